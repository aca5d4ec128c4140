//! What a block of text looks like, as numbers.
//!
//! Every feature is a mean or a share, so that blocks of different length can be compared. The text is
//! read as tokens: words, numbers, runs of newlines, single signs.

use super::english::{English, Symbol, english, sign};

/// How many numbers describe a block.
pub(super) const FEATURES: usize = 39;

/// Where those of them stand that are read by themselves.
pub(super) const SPELLING: usize = 6;
pub(super) const UNKNOWN: usize = 9;
pub(super) const FOREIGN_LETTERS: usize = 30;
pub(super) const REPLACEMENTS: usize = 31;
pub(super) const MIXED_SCRIPTS: usize = 32;
pub(super) const FUNCTION: usize = 33;

/// Symbols so surprising that prose has few of them, nats.
const RARE: f32 = 8.0;
const VERY_RARE: f32 = 11.0;
/// Characters likewise, nats.
const RARE_LETTER: f32 = 5.0;
const VERY_RARE_LETTER: f32 = 7.0;
/// Words back in which a word counts as said again.
const AGAIN: usize = 10;

#[derive(Default)]
struct Sums {
    triple: f32,
    pair: f32,
    alone: f32,
    rare: f32,
    very_rare: f32,
    symbols: f32,
    spelling: f32,
    rare_letters: f32,
    very_rare_letters: f32,
    tokens: f32,
    words: f32,
    numbers: f32,
    unknown: f32,
    unknown_lower: f32,
    single: f32,
    mixed: f32,
    upper: f32,
    capital: f32,
    glued: f32,
    same: f32,
    again: f32,
    odd_gaps: f32,
    lower_after_stop: f32,
    double_space: f32,
    newlines: f32,
    lower_after_newline: f32,
    letters: f32,
    short: f32,
    function: f32,
    pairs: f32,
    mixed_scripts: f32,
    longest: f32,
}

/// The features of a block.
pub(super) fn features(text: &str) -> [f32; FEATURES] {
    // Three line ends before it, which spelling begins with.
    let mut chars = Vec::with_capacity(text.len() + 3);
    chars.extend(['\n'; 3]);
    chars.extend(text.chars().map(plainer));
    let mut sums = Sums::default();
    let distinct = read_tokens(&chars[3..], &mut sums);
    let signs = Signs::of(&chars[3..]);
    // All digits are one.
    chars.iter_mut().filter(|c| c.is_ascii_digit()).for_each(|c| *c = '0');
    read_letters(&chars, &mut sums);
    shares(chars.len() - 3, &signs, &sums, distinct)
}

/// Typographic signs as their ASCII twins, as in the models.
const fn plainer(c: char) -> char {
    match c {
        '’' | '‘' => '\'',
        '“' | '”' => '"',
        '–' | '—' => '-',
        '…' => '.',
        '•' => '*',
        _ => c,
    }
}

/// Reads words, numbers and signs; returns how many different words there were.
fn read_tokens(chars: &[char], sums: &mut Sums) -> f32 {
    let mut before = [Symbol::START; 2];
    let mut recent = Recent::default();
    let mut word = String::new();
    let mut at = 0;
    // Where the last word ended, and whether it was a word at all.
    let mut last_word_end = None;
    let mut glued_to = false;
    while at < chars.len() {
        let c = chars[at];
        let start = at;
        let symbol = if c.is_alphabetic() {
            at = word_end(chars, at);
            word.clear();
            word.extend(&chars[start..at]);
            let next_to_word = last_word_end.is_some_and(|end| end + 1 == start && chars[end] == ' ');
            let symbol = read_word(&word, start, chars, &mut recent, next_to_word, sums);
            sums.glued += f32::from(u8::from(glued_to));
            last_word_end = Some(at);
            symbol
        } else if c.is_ascii_digit() {
            at = number_end(chars, at);
            sums.numbers += 1.0;
            let after_letter = start > 0 && chars[start - 1].is_alphabetic();
            sums.glued += f32::from(u8::from(after_letter));
            sign('0')
        } else if c == '\n' {
            while at < chars.len() && chars[at] == '\n' {
                at += 1;
            }
            sums.newlines += 1.0;
            let lower_next = at < chars.len() && chars[at].is_lowercase();
            let open_before = start > 0 && (chars[start - 1].is_lowercase() || chars[start - 1] == ',');
            sums.lower_after_newline += f32::from(u8::from(lower_next && open_before));
            sign('\n')
        } else {
            at += 1;
            if c.is_whitespace() {
                glued_to = false;
                continue;
            }
            read_sign(chars, start, sums);
            sign(c)
        };
        glued_to = c.is_ascii_digit();
        let [triple, pair, alone] = English::surprise(before, symbol);
        before = [before[1], symbol];
        sums.triple += triple;
        sums.pair += pair;
        sums.alone += alone;
        sums.rare += f32::from(u8::from(triple > RARE));
        sums.very_rare += f32::from(u8::from(triple > VERY_RARE));
        sums.symbols += 1.0;
    }
    sums.tokens = sums.words + sums.numbers;
    recent.distinct()
}

/// The words so far in small letters, one behind the other.
#[derive(Default)]
struct Recent {
    text: String,
    /// Where each ends, and its hash.
    words: Vec<(usize, u32)>,
}

impl Recent {
    /// Adds a word.
    fn push(&mut self, word: &str) {
        let start = self.text.len();
        if word.is_ascii() {
            self.text.push_str(word);
            self.text[start..].make_ascii_lowercase();
        } else {
            self.text.push_str(&word.to_lowercase());
        }
        let hash = self.text.as_bytes()[start..]
            .iter()
            .fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(*b)).wrapping_mul(0x0100_0193));
        self.words.push((self.text.len(), hash));
    }

    fn word(&self, i: usize) -> &str {
        let start = i.checked_sub(1).map_or(0, |before| self.words[before].0);
        &self.text[start..self.words[i].0]
    }

    fn last(&self) -> &str {
        self.words.len().checked_sub(1).map_or("", |last| self.word(last))
    }

    /// Whether the last word is one of so many before it.
    fn again(&self, most: usize) -> bool {
        let Some(last) = self.words.len().checked_sub(1) else { return false };
        let same = |i: &usize| self.words[*i].1 == self.words[last].1 && self.word(*i) == self.word(last);
        (last.saturating_sub(most)..last).rev().any(|i| same(&i))
    }

    /// How many different ones there are.
    fn distinct(&self) -> f32 {
        let mut order: Vec<(u32, usize)> = self.words.iter().map(|word| word.1).zip(0..).collect();
        order.sort_unstable();
        let mut distinct: u16 = 0;
        for same in order.chunk_by(|a, b| a.0 == b.0) {
            // Words of one hash are one word, but for chance.
            for (n, (_, word)) in same.iter().enumerate() {
                let is_new = same[..n].iter().all(|(_, other)| self.word(*other) != self.word(*word));
                distinct = distinct.saturating_add(u16::from(is_new));
            }
        }
        f32::from(distinct)
    }
}

fn word_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        let inner = chars[at] == '\'' && chars.get(at + 1).is_some_and(|c| c.is_alphabetic());
        if !(chars[at].is_alphabetic() || inner) {
            break;
        }
        at += 1;
    }
    at
}

fn number_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        let inner = matches!(chars[at], '.' | ',') && chars.get(at + 1).is_some_and(char::is_ascii_digit);
        if !(chars[at].is_ascii_digit() || inner) {
            break;
        }
        at += 1;
    }
    at
}

fn read_word(
    word: &str,
    start: usize,
    chars: &[char],
    recent: &mut Recent,
    next_to_word: bool,
    sums: &mut Sums,
) -> Symbol {
    recent.push(word);
    let lower = recent.last();
    let known = english().word(word, lower);
    let letters = word.chars().count();
    let uppers = word.chars().filter(|c| c.is_uppercase()).count();
    let starts_upper = word.starts_with(char::is_uppercase);
    let one = |on: bool| f32::from(u8::from(on));
    sums.words += 1.0;
    #[allow(clippy::cast_precision_loss)] // the length of a word
    let length = letters as f32;
    sums.letters += length;
    sums.longest = sums.longest.max(length);
    sums.unknown += one(!known.known);
    sums.unknown_lower += one(!known.known && uppers == 0);
    sums.function += one(known.function);
    sums.single += one(letters == 1 && !matches!(lower, "a" | "i"));
    sums.short += one(letters <= 2);
    sums.upper += one(letters > 1 && uppers == letters);
    sums.capital += one(starts_upper && uppers == 1 && letters > 1);
    sums.mixed += one(uppers > 0 && uppers < letters && !(starts_upper && uppers == 1));
    // Greek to Arabic; scripts without spaces touch Latin words all the time.
    let other = |c: char| ('\u{370}'..'\u{900}').contains(&c) && c.is_alphabetic();
    let mixed = !word.is_ascii()
        && word.chars().any(|c| c < '\u{250}' && c.is_alphabetic())
        && word.chars().any(other);
    sums.mixed_scripts += one(mixed);
    sums.pairs += one(next_to_word);
    sums.same += one(next_to_word && recent.again(1));
    sums.again += one((!known.common || letters > 4) && recent.again(AGAIN));
    // A stop, blanks, and a small letter.
    let mut back = start;
    while back > 0 && chars[back - 1] == ' ' {
        back -= 1;
    }
    let after_stop = back < start && back > 0 && matches!(chars[back - 1], '.' | '!' | '?');
    sums.lower_after_stop += one(after_stop && !starts_upper);
    sums.double_space +=
        one(start - back >= 2 && back > 0 && chars[back - 1] != '\n' && chars[back - 1] != '.');
    known.symbol
}

/// Signs where no writing puts them: a stop after a blank, two commas, a stop inside a word, `()`.
fn read_sign(chars: &[char], at: usize, sums: &mut Sums) {
    let c = chars[at];
    let before = at.checked_sub(1).map(|i| chars[i]);
    let after = chars.get(at + 1).copied();
    let blank = |c: Option<char>| c.is_none_or(char::is_whitespace);
    let odd = match c {
        '.' | ',' | ';' | ':' | '!' | '?' if before == Some(' ') && blank(after) => true,
        ',' | ';' if matches!(after, Some(',' | ';')) => true,
        '.' | '!' | '?' => before.is_some_and(char::is_lowercase) && after.is_some_and(char::is_alphabetic),
        ',' => before.is_some_and(char::is_alphabetic) && after.is_some_and(char::is_alphabetic),
        '(' | '[' => matches!(after, Some(')' | ']' | ' ' | ',')),
        _ => false,
    };
    sums.odd_gaps += f32::from(u8::from(odd));
}

fn read_letters(chars: &[char], sums: &mut Sums) {
    English::spellings(chars, |s| {
        sums.spelling += s;
        sums.rare_letters += f32::from(u8::from(s > RARE_LETTER));
        sums.very_rare_letters += f32::from(u8::from(s > VERY_RARE_LETTER));
    });
}

/// How many characters are of what kind.
#[derive(Default)]
struct Signs {
    signs: u32,
    code: u32,
    beyond_ascii: u32,
    foreign: u32,
    replacements: u32,
    odd_blanks: u32,
    odd_signs: u32,
}

impl Signs {
    fn of(chars: &[char]) -> Self {
        /// Signs, and signs of code, in the two lowest bits.
        static ASCII: [u8; 128] = {
            let code = *b"{}[]()<>=_|;/\\\"`*#+&$@^~";
            let mut kinds = [0; 128];
            let mut c = 0_u8;
            while c < 128 {
                let plain = c.is_ascii_alphanumeric() || matches!(c, b' ' | b'\t'..=b'\r');
                kinds[c as usize] = !plain as u8;
                c += 1;
            }
            let mut i = 0;
            while i < code.len() {
                kinds[code[i] as usize] |= 2;
                i += 1;
            }
            kinds
        };
        let mut this = Self::default();
        let one = |on: bool| u32::from(on);
        for c in chars.iter().copied() {
            if c.is_ascii() {
                let kind = u32::from(ASCII[c as usize & 127]);
                this.signs += kind & 1;
                this.code += kind >> 1;
                continue;
            }
            let (blank, alphanumeric) = (c.is_whitespace(), c.is_alphanumeric());
            this.beyond_ascii += 1;
            this.signs += one(!alphanumeric && !blank);
            this.odd_signs += one(!alphanumeric && !blank);
            this.foreign += one(c > '\u{24f}' && c.is_alphabetic());
            this.replacements += one(c == '\u{fffd}');
            this.odd_blanks += one(blank);
        }
        this
    }
}

fn shares(chars: usize, signs: &Signs, s: &Sums, distinct: f32) -> [f32; FEATURES] {
    #[allow(clippy::cast_precision_loss)] // a block is a few hundred characters
    let all = (chars as f32).max(1.0);
    #[allow(clippy::cast_precision_loss)]
    let count = |n: u32| n as f32;
    let (symbols, tokens, words) = (s.symbols.max(1.0), s.tokens.max(1.0), s.words.max(1.0));
    [
        s.triple / symbols,
        s.pair / symbols,
        s.alone / symbols,
        s.rare / symbols,
        s.very_rare / symbols,
        s.triple / all,
        s.spelling / all,
        s.rare_letters / all,
        s.very_rare_letters / all,
        s.unknown / words,
        s.unknown_lower / words,
        s.single / words,
        s.mixed / words,
        s.upper / words,
        s.capital / words,
        s.glued / tokens,
        s.numbers / tokens,
        s.same / words,
        s.again / words,
        distinct / words,
        count(signs.signs) / all,
        count(signs.code) / all,
        s.odd_gaps / tokens,
        s.lower_after_stop / tokens,
        s.double_space / tokens,
        s.newlines / tokens,
        s.lower_after_newline / tokens,
        s.letters / words,
        s.short / words,
        count(signs.beyond_ascii) / all,
        count(signs.foreign) / all,
        count(signs.replacements) / all,
        s.mixed_scripts / words,
        s.function / words,
        s.pairs / words,
        count(signs.odd_blanks) / all,
        count(signs.odd_signs) / all,
        s.longest,
        (1.0 + symbols).ln(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degenerate_blocks_have_finite_features() {
        for text in ["", " ", "\n\n", "\u{fffd}", "a", "1", "'", "''a'", "日本", "....", "a1b2"] {
            assert!(features(text).iter().all(|f| f.is_finite()), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn signs_words_and_spelling_are_counted_as_one_by_one(text in "([ -~]|\\PC|\n){0,90}") {
            let chars: Vec<char> = text.chars().collect();
            let count = |f: &dyn Fn(char) -> bool| u32::try_from(chars.iter().filter(|c| f(**c)).count()).expect("few");
            let plain = |c: char| c.is_alphanumeric() || c.is_whitespace();
            let signs = Signs::of(&chars);
            assert_eq!(signs.signs, count(&|c| !plain(c)));
            assert_eq!(signs.code, count(&|c| "{}[]()<>=_|;/\\\"`*#+&$@^~".contains(c)));
            assert_eq!(signs.beyond_ascii, count(&|c| !c.is_ascii()));
            assert_eq!(signs.foreign, count(&|c| c.is_alphabetic() && c > '\u{24f}'));
            assert_eq!(signs.replacements, count(&|c| c == '\u{fffd}'));
            assert_eq!(signs.odd_blanks, count(&|c| c.is_whitespace() && !c.is_ascii()));
            assert_eq!(signs.odd_signs, count(&|c| !c.is_ascii() && !plain(c)));

            let mut words = Recent::default();
            let mut before: Vec<String> = Vec::new();
            for word in text.split_whitespace() {
                words.push(word);
                let lower = word.to_lowercase();
                for most in [1, AGAIN] {
                    assert_eq!(words.again(most), before.iter().rev().take(most).any(|w| *w == lower));
                }
                assert_eq!(words.last(), lower);
                before.push(lower);
            }
            before.sort_unstable();
            before.dedup();
            assert_eq!(words.distinct().to_bits(), f32::from(u16::try_from(before.len()).expect("few")).to_bits());

            let mut together = Vec::new();
            English::spellings(&chars, |s| together.push(s));
            let one_by_one: Vec<f32> =
                chars.windows(4).map(|run| English::spelling([run[0], run[1], run[2], run[3]])).collect();
            assert_eq!(together, one_by_one);
        }
    }

    /// Not a check: writes the features of `{"text"}` lines for fitting, see README.md.
    #[test]
    #[ignore = "for fitting only"]
    fn dump() {
        let path = std::env::var("GIBBERISH_LINES").expect("path");
        let lines = std::fs::read_to_string(path).expect("readable");
        let mut out = String::new();
        for line in lines.lines() {
            let text = serde_json::from_str::<serde_json::Value>(line).expect("json");
            let row: Vec<String> =
                features(text["text"].as_str().expect("text")).iter().map(ToString::to_string).collect();
            out.push_str(&row.join(" "));
            out.push('\n');
        }
        std::fs::write(std::env::var("GIBBERISH_FEATURES").expect("path"), out).expect("written");
    }
}
