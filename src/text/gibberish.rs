//! Text that no reader would call language: word salad, fragments glued together, letter soup.
//!
//! A really damaged model answers at its usual speed, with status 200 and ordinary confidence; what
//! gives it away is the text alone. And no two damages read alike: one strings common words together in
//! no order, another glues syllables, a third sprinkles signs. So nothing here knows any of them by
//! name. Text is cut into blocks of about fifty tokens; each block becomes some forty numbers (how
//! surprising its word order and its spelling are, how many words are unknown, where signs and capitals
//! stand: see `features`), and a small network, fitted on sound text of many kinds and on
//! the answers of many differently damaged models, turns them into log-odds of damage.
//!
//! Log-odds of blocks add up, but sound text earns credit up to `CREDIT`: then one strange block
//! (a quotation, a riddle, a list of odd names) is forgiven, and two in a row are not. So where text has all its
//! credit, every other block waits unjudged: it is dropped if the next is surely sound, and judged before it if not.
//! One fact beside the text is used: a sound answer nearly always takes up a word of the question (83 % of
//! sound answers of 32 tokens did, and 0.4 % of damaged ones).
//!
//! What is not prose is not judged: code blocks, addresses, long keys, lists of letters (the options of a
//! quiz, chords), and scripts that the models do
//! not cover. The fitting, its material and its error rates stand in README.md beside the tables.

mod data;
mod english;
mod features;
mod fragments;
mod letters;
mod network;
mod noise;

use std::collections::HashSet;
use std::sync::Arc;

use super::Prompt;
use english::english;
use features::{FOREIGN_LETTERS, FUNCTION, MIXED_SCRIPTS, REPLACEMENTS, UNKNOWN, features};

/// Log-odds at which the flag is raised. Of 848 blocks of sound model answers never seen in fitting none
/// reached 1; of some 9,000 of other sound text (prose, code and tables, and languages that fitting had
/// never met) 26 reached this: word play, syntax diagrams, Turkish and Finnish. See README.md.
const LIMIT: f32 = 2.5;
/// A block's log-odds are not trusted beyond this.
const MOST: f32 = 6.0;
/// Credit of sound text.
const CREDIT: f32 = 2.5;
/// Log-odds of a block so sound that one before it, as strange as this is sound, would be forgiven: 132 of
/// 147 blocks of sound model answers are, and none of 81 damaged ones.
const SURE: f32 = -4.0;
/// A block ends at the first blank after this many bytes …
const BLOCK_BYTES: usize = 192;
/// … or here.
const LONGEST_BLOCK_BYTES: usize = 288;
/// At the end of the text: the shortest block that is judged.
const SHORTEST_BLOCK_BYTES: usize = 40;
/// A short block must be this much clearer, for each byte it lacks to 80.
const SHORT_FULL_BYTES: usize = 80;
const SHORT_DOUBT: f32 = 0.05;
/// The answer takes up no word of the question, or one: ln(0.996 ÷ 0.17) and ln(0.004 ÷ 0.83), both
/// cut by a good deal because other prompts than everyday questions were not measured.
const NOTHING_TAKEN_UP: f32 = 1.5;
const TAKEN_UP: f32 = -2.0;
/// More content words than this in a prompt: taking one up proves nothing.
const MOST_CONTENT_WORDS: usize = 40;
/// Doubt added where the prompt is itself no plain language; where it asks for none, nothing is raised.
const ODD_PROMPT: f32 = 4.0;
/// Share of letters outside Latin above which a block is not judged by the network.
const FOREIGN_SHARE: f32 = 0.3;
/// Log-odds of a block that is noise: enough by itself, and forgiven once in sound text like any strange block.
const NOISE: f32 = 4.0;

/// Evidence that grows with every implausible block.
#[derive(Clone, Debug)]
pub struct Gibberish {
    block: String,
    /// Bytes of the block before the word under way.
    word_at: usize,
    backticks: u8,
    in_code: bool,
    /// A block that is judged only if the next is not surely sound.
    waiting: String,
    /// The last block judged was surely sound, and the credit is full.
    trusted: bool,
    blocks: u32,
    sum: f32,
    most: f32,
    prompt: Arc<Prompt>,
    taken_up: bool,
}

impl Gibberish {
    /// With what the caller asked.
    #[must_use]
    pub const fn new(prompt: Arc<Prompt>) -> Self {
        Self {
            block: String::new(),
            word_at: 0,
            backticks: 0,
            in_code: false,
            waiting: String::new(),
            trusted: false,
            blocks: 0,
            sum: 0.0,
            most: f32::NEG_INFINITY,
            prompt,
            taken_up: false,
        }
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &str) {
        // The common case: no block can end here, and nothing in it begins or ends code.
        if self.block.len() + piece.len() < BLOCK_BYTES && !self.in_code && is_simple(piece.as_bytes()) {
            self.backticks = 0;
            for part in piece.split_inclusive(|c: char| c.is_ascii_whitespace() || c == '\x0b') {
                let (word, blank) = match part.as_bytes().last() {
                    Some(b' ' | b'\t'..=b'\r') => part.split_at(part.len() - 1),
                    _ => (part, ""),
                };
                self.block.push_str(word);
                if !blank.is_empty() {
                    self.end_word();
                    self.block.push_str(blank);
                    self.word_at = self.block.len();
                }
            }
            return;
        }
        for c in piece.chars() {
            if c == '`' {
                self.backticks += 1;
                if self.backticks == 3 {
                    self.in_code = !self.in_code;
                    self.backticks = 0;
                }
                continue;
            }
            self.backticks = 0;
            if self.in_code {
                continue;
            }
            if c.is_whitespace() {
                self.end_word();
            }
            self.block.push(c);
            if c.is_whitespace() {
                self.word_at = self.block.len();
            }
            let full = self.block.len() >= BLOCK_BYTES && c.is_whitespace();
            if full || self.block.len() >= LONGEST_BLOCK_BYTES {
                self.judge();
            }
        }
    }

    /// Takes what is left.
    pub fn finish(&mut self) {
        self.end_word();
        if self.block.trim().len() >= SHORTEST_BLOCK_BYTES {
            self.judge();
        }
        self.block.clear();
        let waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() {
            self.weigh(&waiting, self.odds(&waiting));
        }
    }

    /// Bytes held on the heap, about.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.block.capacity() + self.waiting.capacity()
    }

    /// Whether the evidence has reached the limit.
    #[must_use]
    pub fn tripped(&self) -> bool {
        self.most >= LIMIT
    }

    /// The largest evidence so far, as a fraction of the limit; below 0 is sound.
    #[must_use]
    pub fn evidence(&self) -> f64 {
        if self.most.is_finite() { f64::from(self.most / LIMIT) } else { 0.0 }
    }

    /// Drops the word that ends here if it is an address, a key or the like.
    fn end_word(&mut self) {
        if data::is_opaque(&self.block[self.word_at..]) {
            self.block.truncate(self.word_at);
        }
        self.word_at = self.block.len();
    }

    /// Takes the block that is complete.
    fn judge(&mut self) {
        let block = std::mem::take(&mut self.block);
        self.word_at = 0;
        if block.trim_ascii().is_empty() {
            return; // another flag
        }
        if self.trusted && self.waiting.is_empty() {
            self.waiting = block;
            return;
        }
        let odds = self.odds(&block);
        let waiting = std::mem::take(&mut self.waiting);
        if !waiting.is_empty() && odds > SURE {
            self.weigh(&waiting, self.odds(&waiting));
        }
        self.weigh(&block, odds);
    }

    /// Log-odds of a block, whatever the question was.
    fn odds(&self, block: &str) -> f32 {
        #[allow(clippy::cast_precision_loss)] // a few dozen
        let missing = SHORT_FULL_BYTES.saturating_sub(block.len()) as f32;
        let odds = odds(block).clamp(-MOST, MOST) - missing * SHORT_DOUBT;
        // The tail of a long text, which full blocks have judged.
        if missing > 0.0 && self.blocks > 0 { odds.min(0.0) } else { odds }
    }

    fn weigh(&mut self, block: &str, odds: f32) {
        // Plainly sound whatever the question was: then the question is not read.
        let with_question = if self.sum + odds + NOTHING_TAKEN_UP <= -CREDIT {
            odds
        } else {
            odds + self.take_up(block) - self.prompt.doubt()
        };
        self.blocks += 1;
        self.sum = (self.sum + with_question).max(-CREDIT);
        self.most = self.most.max(self.sum);
        self.trusted = odds <= SURE && self.sum <= -CREDIT;
    }

    /// What it says that this block takes up the question, or that the first does not.
    fn take_up(&mut self, block: &str) -> f32 {
        if self.taken_up || self.prompt.content().is_empty() {
            return 0.0;
        }
        let asked = self.prompt.content();
        self.taken_up = stems(block).any(|stem| asked.contains(&stem));
        match (self.taken_up, self.blocks) {
            // What the first block was charged is given back with it.
            (true, 0) => TAKEN_UP,
            (true, _) => TAKEN_UP - NOTHING_TAKEN_UP,
            (false, 0) => NOTHING_TAKEN_UP,
            (false, _) => 0.0,
        }
    }
}

/// Whether a piece is ASCII without a backtick.
fn is_simple(piece: &[u8]) -> bool {
    piece.iter().fold(true, |simple, b| simple & b.is_ascii() & (*b != b'`'))
}

/// Log-odds that a block comes from a damaged model.
fn odds(block: &str) -> f32 {
    if is_lettered(block) {
        return 0.0;
    }
    let features = features(block);
    if noise::is_noise(block, &features) {
        return NOISE;
    }
    if features[FOREIGN_LETTERS] > FOREIGN_SHARE {
        // Another script: only what is wrong in any script counts.
        let broken = features[REPLACEMENTS] > 0.05 || features[MIXED_SCRIPTS] > 0.2;
        return if broken { LIMIT } else { -LIMIT };
    }
    let odds = network::fitted().odds(&features);
    if odds > 0.0 && (data::is_data(block) || is_other_language(block, &features)) { 0.0 } else { odds }
}

/// Accented letters of a block that is not English, most of whose words are known and few of them English ones
/// that join others: none of 132 blocks of damaged answers is so.
const ACCENTS: usize = 2;
const MAX_FUNCTION: f32 = 0.15;
const MAX_UNKNOWN: f32 = 0.6;

/// Or so many accented letters, in words that some language could have, whatever the word list knows.
const MANY_ACCENTS: usize = 5;
const PLAUSIBLE: f32 = 1.1;

/// Whether a block is plainly prose of another Latin language: of its word order the network knows nothing.
fn is_other_language(block: &str, features: &[f32; features::FEATURES]) -> bool {
    let accented = |c: &char| c.is_alphabetic() && ('\u{c0}'..'\u{250}').contains(c);
    let accents = block.chars().filter(accented).count();
    features[FUNCTION] < MAX_FUNCTION
        && (features[UNKNOWN] < MAX_UNKNOWN && accents >= ACCENTS
            || accents >= MANY_ACCENTS && letters::surprise(block).0 < PLAUSIBLE)
}

/// Labels among the words of a list of letters, in percent: none of 1,200 blocks of damaged answers has so
/// many single letters.
const LABELS_PERCENT: usize = 75;
/// Fewer words are no list.
const MIN_LABELS: usize = 8;

/// Whether nearly all words are labels: one letter, or a capital and one more (`Am`, `B1`).
fn is_lettered(block: &str) -> bool {
    let (mut words, mut labels) = (0, 0);
    for word in block.split_whitespace() {
        // Long ones in a hurry: letters alone.
        if word.len() > 2 && word.bytes().all(|b| b.is_ascii_alphabetic()) {
            words += 1;
            continue;
        }
        let word = word.trim_matches(|c: char| !c.is_alphanumeric());
        let Some(first) = word.chars().find(|c| c.is_alphabetic()) else { continue };
        words += 1;
        let length = word.chars().count();
        labels += usize::from(length == 1 || length == 2 && first.is_uppercase());
    }
    words >= MIN_LABELS && labels * 100 >= words * LABELS_PERCENT
}

/// What a prompt takes away from the evidence, log-odds.
pub(super) fn doubt(prompt: &str) -> f32 {
    match () {
        () if asks_for_oddities(prompt) => f32::INFINITY,
        () if is_odd(prompt) => ODD_PROMPT,
        () => 0.0,
    }
}

/// Whether the prompt is itself no plain language: a cipher, a dump, another language than modelled.
fn is_odd(prompt: &str) -> bool {
    let end = prompt.len().saturating_sub(BLOCK_BYTES);
    let tail = prompt.char_indices().find(|(at, _)| *at >= end).map_or(prompt, |(at, _)| &prompt[at..]);
    tail.len() >= SHORT_FULL_BYTES && odds(tail) > 0.0
}

/// Requests for text that is no plain language.
fn asks_for_oddities(prompt: &str) -> bool {
    let lower = prompt.to_lowercase();
    [
        "gibberish",
        "nonsense",
        "lorem ipsum",
        "random",
        "cipher",
        "caesar",
        "rot13",
        "anagram",
        "scrambl",
        "shuffl",
        "password",
        "passphrase",
        "base64",
        "encod",
        "encrypt",
        "decod",
        "morse",
        "hash",
        "jabberwock",
        "made-up",
        "made up",
        "invent",
        "constructed language",
        "conlang",
        "klingon",
        "elvish",
        "esperanto",
        "pig latin",
        "palindrom",
        "tongue twister",
        "leetspeak",
        "backwards",
        "reverse",
        "regex",
        "regular expression",
        "phonetic",
        "ipa ",
        "uuid",
        "dna",
        "protein",
        "chess",
        "ascii",
        "kaomoji",
        "emoticon",
        "acronym",
        "abbreviation",
        "syllable",
        "scat",
        "onomatop",
        "glossolalia",
        "dada",
        "vogon",
        "word salad",
        "keyboard smash",
        "typo",
        "misspell",
        "fragment",
    ]
    .iter()
    .any(|word| lower.contains(word))
}

/// Beginnings of the content words of a prompt; none where there are too many.
pub(super) fn content_words(prompt: &str) -> HashSet<u64> {
    let words: HashSet<u64> = stems(prompt).take(4 * MOST_CONTENT_WORDS).collect();
    if words.len() <= MOST_CONTENT_WORDS { words } else { HashSet::new() }
}

/// Hashes of the first five letters of each word of at least four that is not too common.
fn stems(text: &str) -> impl Iterator<Item = u64> {
    text.split(|c: char| !c.is_alphabetic())
        .filter(|word| word.len() >= 4)
        .map(str::to_lowercase)
        .filter(|word| !english().is_common(word))
        .map(|word| super::repetition::hash(word.chars().take(5).collect::<String>().as_bytes()))
}

#[cfg(test)]
mod tests;
