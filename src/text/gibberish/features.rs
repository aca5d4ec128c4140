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
    let plain: String = text.chars().map(plainer).collect();
    let chars: Vec<char> = plain.chars().collect();
    let mut sums = Sums::default();
    let distinct = read_tokens(&chars, &mut sums);
    read_letters(&chars, &mut sums);
    shares(&chars, &sums, distinct)
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
    let mut recent: Vec<String> = Vec::new();
    let mut at = 0;
    // Where the last word ended, and whether it was a word at all.
    let mut last_word_end = None;
    let mut glued_to = false;
    while at < chars.len() {
        let c = chars[at];
        let start = at;
        let symbol = if c.is_alphabetic() {
            at = word_end(chars, at);
            let word: String = chars[start..at].iter().collect();
            let lower = word.to_lowercase();
            let next_to_word = last_word_end.is_some_and(|end| end + 1 == start && chars[end] == ' ');
            let symbol = read_word(&word, lower, start, chars, &mut recent, next_to_word, sums);
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
    recent.sort_unstable();
    recent.dedup();
    #[allow(clippy::cast_precision_loss)] // a few dozen
    let distinct = recent.len() as f32;
    distinct
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
    lower: String,
    start: usize,
    chars: &[char],
    recent: &mut Vec<String>,
    next_to_word: bool,
    sums: &mut Sums,
) -> Symbol {
    let known = english().word(word, &lower);
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
    sums.single += one(letters == 1 && !matches!(lower.as_str(), "a" | "i"));
    sums.short += one(letters <= 2);
    sums.upper += one(letters > 1 && uppers == letters);
    sums.capital += one(starts_upper && uppers == 1 && letters > 1);
    sums.mixed += one(uppers > 0 && uppers < letters && !(starts_upper && uppers == 1));
    let latin = word.chars().any(|c| c < '\u{250}' && c.is_alphabetic());
    // Greek to Arabic; scripts without spaces touch Latin words all the time.
    let other = word.chars().any(|c| ('\u{370}'..'\u{900}').contains(&c) && c.is_alphabetic());
    sums.mixed_scripts += one(latin && other);
    sums.pairs += one(next_to_word);
    let before = recent.last();
    sums.same += one(next_to_word && before.is_some_and(|b| *b == lower));
    let telling = !english().is_common(&lower) || letters > 4;
    sums.again += one(telling && recent.iter().rev().take(AGAIN).any(|w| *w == lower));
    // A stop, blanks, and a small letter.
    let mut back = start;
    while back > 0 && chars[back - 1] == ' ' {
        back -= 1;
    }
    let after_stop = back < start && back > 0 && matches!(chars[back - 1], '.' | '!' | '?');
    sums.lower_after_stop += one(after_stop && !starts_upper);
    sums.double_space +=
        one(start - back >= 2 && back > 0 && chars[back - 1] != '\n' && chars[back - 1] != '.');
    recent.push(lower);
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
    let mut run = ['\n'; 4];
    for c in chars {
        // All digits are one.
        let c = if c.is_ascii_digit() { '0' } else { *c };
        run = [run[1], run[2], run[3], c];
        let s = English::spelling(run);
        sums.spelling += s;
        sums.rare_letters += f32::from(u8::from(s > RARE_LETTER));
        sums.very_rare_letters += f32::from(u8::from(s > VERY_RARE_LETTER));
    }
}

fn shares(chars: &[char], s: &Sums, distinct: f32) -> [f32; FEATURES] {
    #[allow(clippy::cast_precision_loss)] // a block is a few hundred characters
    let count = |f: &dyn Fn(char) -> bool| chars.iter().filter(|c| f(**c)).count() as f32;
    let all = count(&|_| true).max(1.0);
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
        count(&|c| !c.is_alphanumeric() && !c.is_whitespace()) / all,
        count(&|c| "{}[]()<>=_|;/\\\"`*#+&$@^~".contains(c)) / all,
        s.odd_gaps / tokens,
        s.lower_after_stop / tokens,
        s.double_space / tokens,
        s.newlines / tokens,
        s.lower_after_newline / tokens,
        s.letters / words,
        s.short / words,
        count(&|c| !c.is_ascii()) / all,
        count(&|c| c.is_alphabetic() && c > '\u{24f}') / all,
        count(&|c| c == '\u{fffd}') / all,
        s.mixed_scripts / words,
        s.function / words,
        s.pairs / words,
        count(&|c| c.is_whitespace() && !c.is_ascii()) / all,
        count(&|c| !c.is_ascii() && !c.is_alphanumeric() && !c.is_whitespace()) / all,
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
