//! What sound text looks like: known words, a model of English word order and one of spelling.
//!
//! Word order is modelled without the subject matter: the 500 commonest words stand for themselves, any
//! other word for its shape and ending, so that a few hundred symbols cover every topic. Frequencies of
//! pairs and triples of symbols, and of runs of two to four characters, lie in two hash tables with
//! eight-bit fingerprints, as natural logarithms in sixteenths; known words in a Bloom filter. How the
//! two files were made stands in README.md beside them.

use std::collections::HashMap;
use std::sync::LazyLock;

const WORDS: &str = include_str!("english.txt");
const TABLES: &[u8] = include_bytes!("english.bin");

/// Words that stand for themselves.
const COMMON: u16 = 500;
/// Rank below which a word is a function word or nearly so.
const FUNCTION: u16 = 150;
/// Endings that classify the other words, longest first where one ends in another.
const ENDINGS: [&str; 18] = [
    "ings", "ing", "ed", "ly", "tion", "ions", "ment", "ness", "able", "ity", "ous", "ive", "est", "al",
    "er", "ers", "s", "y",
];

const NEWLINE: u16 = COMMON;
const NUMBER: u16 = COMMON + 1;
const POSSESSIVE: u16 = COMMON + 2;
const UPPER: u16 = COMMON + 3;
const OTHER: u16 = COMMON + 4;
const SHORT: u16 = COMMON + 5;
const WORD: u16 = COMMON + 9;
const PUNCT: u16 = WORD + 76;
const SYMBOLS: usize = PUNCT as usize + 94;

/// Slots of the table of pairs and triples of symbols, and of that of runs of characters.
const ORDER_SLOTS: usize = 1 << 17;
const SPELLING_SLOTS: usize = 1 << 18;
const ORDER_AT: usize = SYMBOLS;
const SPELLING_AT: usize = ORDER_AT + 2 * ORDER_SLOTS;
/// Bits of the filter of known words, and hashes a word.
const KNOWN_BITS: usize = 1 << 19;
const KNOWN_AT: usize = SPELLING_AT + 2 * SPELLING_SLOTS;
const KNOWN_HASHES: usize = 4;
/// Longest search for a free slot.
const PROBES: usize = 32;
/// Cost of an unseen triple over its pair, and of an unseen pair over its second symbol, nats.
const BACK_OFF: [f32; 2] = [1.0, 2.0];
/// Cost of an unseen run of characters over the next shorter one, and of a pair never seen, nats.
const LETTER_BACK_OFF: f32 = 1.5;
const UNSEEN_LETTER: f32 = 9.0;

/// A symbol of the word-order model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol(u16);

impl Symbol {
    /// Where every text begins.
    pub(super) const START: Self = Self(NEWLINE);
}

/// What is known of a word.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    pub(super) symbol: Symbol,
    /// In the word list.
    pub(super) known: bool,
    /// Among the commonest.
    pub(super) function: bool,
    /// Too common to tell what a text is about.
    pub(super) common: bool,
}

pub(super) struct English {
    ranks: HashMap<&'static str, u16, foldhash::fast::FixedState>,
}

/// The model, read once.
pub(super) fn english() -> &'static English {
    static ENGLISH: LazyLock<English> = LazyLock::new(|| English { ranks: WORDS.lines().zip(0..).collect() });
    &ENGLISH
}

impl English {
    /// Classifies a word: letters, with apostrophes inside.
    pub(super) fn word(&self, word: &str, lower: &str) -> Word {
        let rank = self.ranks.get(lower).copied().unwrap_or(u16::MAX);
        let known = rank < COMMON || is_known(lower);
        Word {
            symbol: Symbol(symbol(word, lower, rank, known)),
            known,
            function: rank < FUNCTION,
            common: rank < COMMON,
        }
    }

    /// Whether the word is too common to tell what a text is about.
    pub(super) fn is_common(&self, lower: &str) -> bool {
        self.ranks.get(lower).is_some_and(|rank| *rank < COMMON)
    }

    /// The common words.
    pub(super) fn common(&self) -> impl Iterator<Item = &'static str> + use<> {
        WORDS.lines()
    }

    /// −ln P of a symbol: after the two before it, after the one before it, and alone.
    pub(super) fn surprise(before: [Symbol; 2], symbol: Symbol) -> [f32; 3] {
        let alone = sixteenths(TABLES[usize::from(symbol.0)]);
        let find = |symbols: &[u16]| find(ORDER_AT, ORDER_SLOTS, key(symbols.iter().map(|s| u32::from(*s))));
        let pair = find(&[before[1].0, symbol.0]).unwrap_or(alone + BACK_OFF[1]);
        let triple = find(&[before[0].0, before[1].0, symbol.0]).unwrap_or(pair + BACK_OFF[0]);
        [triple, pair, alone]
    }

    /// −ln P of the last of four characters after the others, looked up for itself.
    #[cfg(test)]
    pub(super) fn spelling(run: [char; 4]) -> f32 {
        let mut extra = 0.0;
        for start in 0..3 {
            let key = key(run[start..].iter().map(|c| u32::from(*c)));
            if let Some(cost) = find(SPELLING_AT, SPELLING_SLOTS, key) {
                return cost + extra;
            }
            extra += LETTER_BACK_OFF;
        }
        UNSEEN_LETTER + extra
    }

    /// −ln P of each of many characters after the three before it, `text` beginning with three more. The table lies far
    /// away: where many runs should stand is looked at before any is judged, so that they come together.
    pub(super) fn spellings(text: &[char], mut each: impl FnMut(f32)) {
        const TOGETHER: usize = 32;
        for part in (3..text.len()).step_by(TOGETHER) {
            let part = &text[part - 3..(part + TOGETHER).min(text.len())];
            let all = part.len() - 3;
            let mut costs = [0.0; TOGETHER];
            let mut open: [u8; TOGETHER] = std::array::from_fn(|i| i as u8);
            let (mut left, mut extra) = (all, 0.0);
            for start in 0..3 {
                let mut first = [(0, 0, 0); TOGETHER];
                for (first, i) in first.iter_mut().zip(&open[..left]) {
                    let run = &part[usize::from(*i) + start..usize::from(*i) + 4];
                    let key = key(run.iter().map(|c| u32::from(*c)));
                    let at = SPELLING_AT + 2 * (key as usize & (SPELLING_SLOTS - 1));
                    *first = (key, TABLES[at], TABLES[at + 1]);
                }
                let mut still = 0;
                for n in 0..left {
                    let (key, value, print) = first[n];
                    let cost = match (value, print) {
                        (0, 0) => None,
                        (value, print) if u32::from(print) == key >> 24 => Some(sixteenths(value)),
                        _ => find(SPELLING_AT, SPELLING_SLOTS, key),
                    };
                    costs[usize::from(open[n])] = cost.unwrap_or(UNSEEN_LETTER + LETTER_BACK_OFF) + extra;
                    open[still] = open[n];
                    still += usize::from(cost.is_none());
                }
                left = still;
                extra += LETTER_BACK_OFF;
            }
            costs[..all].iter().for_each(|cost| each(*cost));
        }
    }
}

/// Whether the filter holds a word (letter case folded).
fn is_known(lower: &str) -> bool {
    let first = key(lower.chars().map(u32::from)) as usize;
    let step = (key(lower.chars().rev().map(u32::from)) | 1) as usize;
    (0..KNOWN_HASHES).all(|i| {
        let bit = (first + i * step) & (KNOWN_BITS - 1);
        TABLES[KNOWN_AT + bit / 8] & (1 << (bit % 8)) != 0
    })
}

/// A number, a run of newlines, a sign.
pub(super) const fn sign(c: char) -> Symbol {
    Symbol(match c {
        '\n' => NEWLINE,
        '0'..='9' => NUMBER,
        '!'..='~' => PUNCT + c as u16 - 33,
        _ => OTHER,
    })
}

fn symbol(word: &str, lower: &str, rank: u16, known: bool) -> u16 {
    if rank < COMMON {
        return rank;
    }
    if lower.ends_with("'s") {
        return POSSESSIVE;
    }
    let letters = if word.is_ascii() { word.len() } else { word.chars().count() };
    if letters > 1 && word.chars().all(|c| c.is_uppercase() || c == '\'') {
        return UPPER;
    }
    let capital = u16::from(word.starts_with(char::is_uppercase));
    if letters <= 2 {
        return SHORT + 2 * capital + u16::from(letters == 2);
    }
    let unknown = u16::from(!known);
    let ending = ENDINGS.iter().zip(1..).find(|(e, _)| letters > e.len() + 2 && lower.ends_with(**e));
    WORD + 38 * capital + 19 * unknown + ending.map_or(0, |(_, i)| i)
}

fn sixteenths(q: u8) -> f32 {
    f32::from(q) / 16.0
}

fn key(parts: impl Iterator<Item = u32>) -> u32 {
    let mut h = parts.fold(0x811c_9dc5_u32, |h, part| (h ^ part).wrapping_mul(0x9e37_79b1).rotate_left(13));
    h ^= h >> 15;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^ (h >> 13)
}

/// Looks a key up: fingerprint in the high byte, value in the low one, 0 is a free slot.
fn find(table: usize, slots: usize, key: u32) -> Option<f32> {
    let fingerprint = (key >> 24) as u8;
    for probe in 0..PROBES {
        let at = table + 2 * ((key as usize + probe) & (slots - 1));
        match (TABLES[at], TABLES[at + 1]) {
            (0, 0) => return None,
            (value, print) if print == fingerprint => return Some(sixteenths(value)),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_have_their_size() {
        assert_eq!(TABLES.len(), KNOWN_AT + KNOWN_BITS / 8);
        assert_eq!(WORDS.lines().count(), usize::from(COMMON));
        assert!(WORDS.lines().all(|w| w.chars().all(|c| c.is_ascii_lowercase() || c == '\'')));
    }

    #[test]
    fn words_are_known() {
        assert!(["station", "house", "und", "gehört", "the"].iter().all(|w| is_known(w)));
        let made_up =
            ["waytrel", "hindetremunt", "enresting", "uniceci", "ategies", "xqzv", "footening", "remtest"];
        assert!(made_up.iter().filter(|w| is_known(w)).count() <= 2);
    }

    #[test]
    fn order_and_spelling_tell_english_from_its_shuffle() {
        let of = |words: &[&str]| {
            let mut before = [Symbol::START; 2];
            words.iter().fold(0.0, |sum, w| {
                let symbol = english().word(w, &w.to_lowercase()).symbol;
                let s = English::surprise(before, symbol)[0];
                before = [before[1], symbol];
                sum + s
            })
        };
        let sound = of(&["this", "is", "one", "of", "the", "most", "important", "parts", "of", "it"]);
        let salad = of(&["of", "most", "it", "is", "parts", "the", "this", "of", "important", "one"]);
        assert!(sound * 1.5 < salad, "{sound} {salad}");
        let spelt = |w: &str| {
            let c: Vec<char> = w.chars().collect();
            c.windows(4).map(|c| English::spelling([c[0], c[1], c[2], c[3]])).sum::<f32>()
        };
        assert!(spelt(" station ") < spelt(" tnoitas "));
    }
}
