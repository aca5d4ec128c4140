//! Loops: a character, a token or a phrase that repeats without end.
//!
//! Every few characters the trailing window is compared with itself, shifted by each period: how far
//! back does the text repeat itself with it? A loop stands once that stretch is long both in bytes and
//! in copies; how long depends on what repeats, since sound text repeats rules of dashes, arrays of
//! numbers and empty cells, but never whole phrases for hundreds of bytes. Prompts that ask for repeats (a chant, "write 0 a hundred times") stretch every
//! limit.
//!
//! [`Grams`] measures looser repetition: seq-rep-4 (Welleck et al. 2020), a signal and no flag.

use std::sync::Arc;

use super::Prompt;

mod grams;

pub use grams::Grams;

/// Trailing text that is looked at, bytes: what the longest limit below needs, in characters of three.
const WINDOW_BYTES: usize = 2048;
/// Bytes that must match for a period to be looked at.
const NEEDLE_BYTES: usize = 8;
/// Longest period looked for, characters.
const MAX_PERIOD: usize = 200;
/// New characters between two looks while the text repeats itself …
const STEP_CHARS: usize = 32;
/// … and while it does not: the first sign of a loop is still seen before the loop stands.
const IDLE_STEP_CHARS: usize = 128;

/// One phrase: bytes, first copy included, from which a loop of words stands. With a look every 32
/// characters the loop is seen within 512 bytes.
const PHRASE_BYTES: usize = 400;
/// … and copies in hundredths, so that a chorus sung twice is none, and a period of 200 is still in time.
const COPIES_PERCENT: usize = 235;
/// Signs without words (empty cells, rules): longer, since sound text has stretches of them.
const WORDLESS_BYTES: usize = 460;
/// Numbers and literals of data formats: longer still, arrays hold hundreds of equal ones.
const DATA_BYTES: usize = 1024;
/// A few plain words over and over ("no no no"): copies …
const SHORT_COPIES: usize = 24;
/// … and bytes.
const SHORT_BYTES: usize = 96;
/// Rules and their like over several lines, characters.
const RULE_CHARS: usize = 600;
/// One character: letters and digits (base64 and hex hold runs of one), drawing characters, any other.
const RUN_WORD: usize = 200;
const RUN_RULE: usize = 400;
const RUN_OTHER: usize = 64;
/// A longer piece is no token.
const TOKEN_BYTES: usize = 64;
/// Identical pieces (tokens) in a row.
const SAME_PIECES: u32 = 64;
/// How much longer everything must be when the prompt asks for repeats.
const ASKED_FACTOR: usize = 8;

/// Trailing window and verdict.
#[derive(Clone, Debug)]
pub struct Repetition {
    window: Vec<u8>,
    unseen: usize,
    run: (char, usize),
    pieces: Pieces,
    prompt: Arc<Prompt>,
    /// Copies seen beyond the window, for asked-for repeats: looks in a row that found a loop.
    standing_chars: usize,
    loops: bool,
    /// At the last look the text ended in something that stood before it too.
    repeats: bool,
}

/// Identical pieces in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Pieces {
    last: u64,
    count: u32,
}

impl Repetition {
    /// With what the caller asked.
    #[must_use]
    pub fn new(prompt: Arc<Prompt>) -> Self {
        Self {
            window: Vec::new(),
            unseen: 0,
            run: ('\0', 0),
            pieces: Pieces::default(),
            prompt,
            standing_chars: 0,
            loops: false,
            repeats: false,
        }
    }

    /// Takes the next stretch of text.
    pub fn push(&mut self, text: &str) {
        self.window.reserve(text.len().min(2 * WINDOW_BYTES));
        let mut rest = text;
        while !rest.is_empty() {
            let now = self.until_look(rest);
            self.unseen += if now.is_ascii() { self.runs_ascii(now.as_bytes()) } else { self.runs(now) };
            self.window.extend_from_slice(now.as_bytes());
            rest = &rest[now.len()..];
            let step = if self.repeats { STEP_CHARS } else { IDLE_STEP_CHARS };
            if self.unseen >= step {
                self.look();
            }
        }
    }

    /// As much of a text as may come before the next look.
    fn until_look<'t>(&self, text: &'t str) -> &'t str {
        let left = STEP_CHARS - self.unseen % STEP_CHARS;
        if let Some(head) = text.as_bytes().get(..left).filter(|head| head.is_ascii()) {
            return &text[..head.len()];
        }
        text.char_indices().nth(left).map_or(text, |(end, _)| &text[..end])
    }

    /// Follows runs of one character; returns how many characters there were.
    fn runs_ascii(&mut self, bytes: &[u8]) -> usize {
        // What begins and ends in these few bytes is too short to stand.
        let lead = bytes.iter().take_while(|b| char::from(**b) == self.run.0).count();
        if lead > 0 {
            self.run.1 += lead;
            self.judge_run();
        }
        if let Some(last) = bytes.last().filter(|_| lead < bytes.len()) {
            self.run = (char::from(*last), bytes.iter().rev().take_while(|b| *b == last).count());
        }
        bytes.len()
    }

    fn runs(&mut self, text: &str) -> usize {
        let mut chars = 0;
        for c in text.chars() {
            self.run = if self.run.0 == c { (c, self.run.1 + 1) } else { (c, 1) };
            self.judge_run();
            chars += 1;
        }
        chars
    }

    /// Looks at what came after the last look.
    pub fn finish(&mut self) {
        if self.unseen > 0 {
            self.look();
        }
    }

    /// Bytes held on the heap, about.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.window.capacity()
    }

    /// Whether the text has begun to repeat itself.
    #[must_use]
    pub const fn is_suspected(&self) -> bool {
        self.repeats
    }

    /// Whether a loop has been seen.
    #[must_use]
    pub const fn loops(&self) -> bool {
        self.loops
    }

    /// How much longer everything must be.
    fn factor(&self) -> usize {
        if self.prompt.wants_repeats() { ASKED_FACTOR } else { 1 }
    }

    /// A run of one character.
    fn judge_run(&mut self) {
        if self.run.1 < RUN_OTHER {
            return;
        }
        let limit = match self.run.0 {
            c if c.is_whitespace() => return, // another flag
            c if is_rule(c) => RUN_RULE,
            c if c.is_alphanumeric() => RUN_WORD,
            _ => RUN_OTHER,
        };
        self.loops |= self.run.1 >= limit && self.run.1 >= limit * self.factor();
    }

    /// Takes note of a piece as it came, whose text is still to be [`push`](Self::push)ed.
    ///
    /// Tokens are only known by their pieces; a piece of a rule or of blanks proves nothing, and a long
    /// piece is no token.
    pub fn piece(&mut self, piece: &str) {
        let telling = piece.len() <= TOKEN_BYTES
            && piece.chars().any(|c| c.is_alphabetic() || !(c.is_whitespace() || c.is_ascii() || is_rule(c)));
        let hash = if telling { hash(piece.as_bytes()) } else { 0 };
        let count = if hash != 0 && hash == self.pieces.last { self.pieces.count + 1 } else { 1 };
        self.pieces = Pieces { last: hash, count };
        self.loops |= count >= SAME_PIECES && count as usize >= SAME_PIECES as usize * self.factor();
    }

    fn look(&mut self) {
        let fresh = std::mem::take(&mut self.unseen);
        if self.window.len() >= 2 * WINDOW_BYTES {
            let mut excess = self.window.len() - WINDOW_BYTES;
            while is_continuation(self.window[excess]) {
                excess -= 1;
            }
            self.window.drain(..excess);
        }
        if self.window.len() < SHORT_BYTES / 2 {
            return;
        }
        let (repeats, stands) = trailing_loop(&self.window[self.window.len().saturating_sub(WINDOW_BYTES)..]);
        self.repeats = repeats;
        if stands {
            self.standing_chars += fresh;
            // Asked for: the loop must go on for as long again, several times over.
            self.loops |= self.standing_chars > (self.factor() - 1) * PHRASE_BYTES;
        } else {
            self.standing_chars = 0;
        }
    }
}

const fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// Whether the text (UTF-8, perhaps cut at its beginning) ends in something that stood shortly before it
/// too, and whether that is a loop by the limits above.
///
/// A period is a candidate if the last few bytes stand one period back too; then the match is followed
/// backwards. What repeats bytewise repeats character by character, since no character ends where another
/// goes on. Multiples of a period that has been followed repeat its verdict.
fn trailing_loop(window: &[u8]) -> (bool, bool) {
    let n = window.len();
    let Some((before, needle)) = window.split_last_chunk::<NEEDLE_BYTES>() else { return (false, false) };
    let reach = if before.is_ascii() { MAX_PERIOD } else { MAX_PERIOD * char::MAX.len_utf8() };
    // The needle may overlap its copy; the nearest comes first.
    let region = &window[before.len().saturating_sub(reach)..n - 1];
    let places = region.windows(NEEDLE_BYTES).enumerate().rev();
    let mut repeats = false;
    let mut followed = 0;
    for (place, _) in places.filter(|(_, bytes)| bytes.first_chunk() == Some(needle)) {
        repeats = true;
        let period = region.len() + 1 - NEEDLE_BYTES - place;
        if followed > 0 && period.is_multiple_of(followed) {
            continue;
        }
        let matched = (0..n - period).take_while(|i| window[n - 1 - i] == window[n - 1 - i - period]).count();
        if matched < period {
            continue;
        }
        if stands(&window[n - period..], &window[n - period - matched..]) {
            return (true, true);
        }
        followed = if followed == 0 { period } else { followed };
    }
    (repeats, false)
}

/// Whether a stretch of copies of `unit` is a loop.
fn stands(unit: &[u8], stretch: &[u8]) -> bool {
    let Ok(unit) = std::str::from_utf8(unit) else { return false };
    let unit: Vec<char> = unit.chars().collect();
    let period = unit.len();
    if !(2..=MAX_PERIOD).contains(&period) {
        return false; // one character is followed by itself
    }
    let total = stretch.iter().filter(|b| !is_continuation(**b)).count();
    let bytes = || stretch.len();
    let unit = unit.as_slice();
    let letters = unit.iter().filter(|c| c.is_alphabetic()).count();
    let copies = total * 100 >= period * COPIES_PERCENT;
    if is_data(unit) {
        return copies && bytes() >= DATA_BYTES;
    }
    if letters == 0 {
        let blank = unit.iter().all(|c| c.is_whitespace());
        let rule = unit.iter().all(|c| is_rule(*c) || c.is_whitespace());
        let enough = if rule { total >= RULE_CHARS } else { bytes() >= WORDLESS_BYTES };
        return copies && enough && !blank;
    }
    let plain =
        unit.iter().all(|c| c.is_alphabetic() || matches!(c, ' ' | '\n' | '\'' | '’' | '.' | '!' | '?'));
    if plain && total >= period * SHORT_COPIES && bytes() >= SHORT_BYTES {
        return true;
    }
    copies && bytes() >= if letters * 2 >= period { PHRASE_BYTES } else { WORDLESS_BYTES }
}

/// Whether the unit is data: numbers, or one literal of a data format and its separators.
fn is_data(unit: &[char]) -> bool {
    let digits = unit.iter().filter(|c| c.is_ascii_digit()).count();
    if digits * 5 >= unit.len() {
        return true;
    }
    // The unit may begin anywhere in the loop: two copies hold the literal whole.
    let twice: String = unit.iter().chain(unit).collect::<String>().to_lowercase();
    unit.len() <= 12 && ["false", "true", "null", "none", "0x", "nil"].iter().any(|l| twice.contains(l))
}

/// Characters that draw lines, fill cells and pad.
const fn is_rule(c: char) -> bool {
    matches!(
        c,
        '-' | '='
            | '_'
            | '*'
            | '~'
            | '#'
            | '.'
            | '+'
            | '|'
            | '^'
            | '/'
            | '\\'
            | '%'
            | '@'
            | '<'
            | '>'
            | '·'
            | '•'
            | '…'
            | '–'
            | '—'
            | '\u{2500}'..='\u{259f}'
    )
}

/// Whether the prompt asks for something that repeats.
pub(super) fn wants_repeats(prompt: &str) -> bool {
    use std::sync::LazyLock;
    // Linear-time automaton; the words are those of requests for lines, chants and filler.
    static ASKS: LazyLock<Option<regex::Regex>> = LazyLock::new(|| {
        regex::Regex::new(
            r"(?ix)
            \b(repeat(s|ed|ing|edly|ition)?|chant|mantra|lyrics|chorus|refrain|song|lullaby|nursery\ rhyme|over\ and\ over
              |copy\ this|echo|fill(er)?|padding|ascii\ art|tongue[\ -]twister|wiederhol\w*|répèt\w*|repet[ei]\w*|ripet\w*|повтор\w*)\b
            |\b(\d{2,}|ten|twenty|thirty|fifty|hundred|a\ thousand|dozen|hundert|cent|cien|сто)\s+
              (times|copies|lines|zeros?|zeroes|ones|mal|fois|veces|volte|vezes|раз|\w+s\ of\ the\ (same|letter|word))\b
            |\b(string|list|array|vector|matrix|row|line|block|sequence)\s+of\s+(\w+\s+){0,3}(zeros?|zeroes|ones|dashes|stars|asterisks|spaces|the\ (same|letter|word|digit|character))\b
            |重复|重複|繰り返|遍|반복",
        )
        .ok()
    });
    ASKS.as_ref().is_some_and(|asks| asks.is_match(prompt))
}

/// FNV-1a, never 0.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)) | 1
}

#[cfg(test)]
mod tests;
