//! Which scripts a text is written in, and whether the caller's prompt calls for them.
//!
//! A majority rule would call an answer English in which two Chinese words stand; so runs of a foreign
//! script are counted too. Foreign is a script that neither the prompt nor the golden set uses and that
//! the prompt does not name ("translate into Russian"). Latin is never foreign by itself: names, code
//! and terms are Latin everywhere. What stands in brackets or quotes, after a colon or in a line of its
//! own list mark is a citation ("Kyoto (京都)"), and single Greek letters are formulae.

use std::sync::Arc;

use unicode_script::{Script, UnicodeScript};

use super::Prompt;

mod asked;

/// A set of writing systems, one bit each; those that share a language count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScriptSet(u32);

impl ScriptSet {
    /// No script.
    pub const EMPTY: Self = Self(0);

    /// The scripts of the letters of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        text.chars().filter_map(system).fold(Self::EMPTY, |set, s| Self(set.0 | 1 << s as u32))
    }

    /// Both sets together.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn has(self, system: System) -> bool {
        self.0 & (1 << system as u32) != 0
    }

    const fn with(self, system: System) -> Self {
        Self(self.0 | 1 << system as u32)
    }
}

/// Writing systems told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Latin,
    /// Chinese characters alone; also part of Japanese and Korean.
    Han,
    Kana,
    Hangul,
    Cyrillic,
    Greek,
    Arabic,
    Hebrew,
    Indic,
    Thai,
    Armenian,
    Georgian,
    Ethiopic,
    Khmer,
    Other,
}

/// The writing system of a letter; `None` for what belongs to none (digits, signs, emoji).
pub(crate) fn system(c: char) -> Option<System> {
    if c.is_ascii() {
        return c.is_ascii_alphabetic().then_some(System::Latin);
    }
    if !c.is_alphanumeric() {
        return None;
    }
    Some(match c.script() {
        Script::Common | Script::Inherited | Script::Unknown => return None,
        Script::Latin => System::Latin,
        Script::Han | Script::Bopomofo => System::Han,
        Script::Hiragana | Script::Katakana => System::Kana,
        Script::Hangul => System::Hangul,
        Script::Cyrillic => System::Cyrillic,
        Script::Greek => System::Greek,
        Script::Arabic | Script::Syriac | Script::Thaana => System::Arabic,
        Script::Hebrew => System::Hebrew,
        Script::Devanagari
        | Script::Bengali
        | Script::Gurmukhi
        | Script::Gujarati
        | Script::Oriya
        | Script::Tamil
        | Script::Telugu
        | Script::Kannada
        | Script::Malayalam
        | Script::Sinhala => System::Indic,
        Script::Thai | Script::Lao => System::Thai,
        Script::Armenian => System::Armenian,
        Script::Georgian => System::Georgian,
        Script::Ethiopic => System::Ethiopic,
        Script::Khmer | Script::Myanmar => System::Khmer,
        _ => System::Other,
    })
}

/// Foreign letters in a row, outside citations, that make a run: two where a character is a word …
const RUN_SYLLABIC: u32 = 2;
/// … three where it is a letter.
const RUN_ALPHABETIC: u32 = 3;
/// Share of foreign letters above which an answer is foreign whatever its layout …
const FOREIGN_SHARE: f64 = 0.3;
/// … given this many letters.
const MIN_LETTERS: u64 = 12;
/// Letters of an answer before the absence of the prompt's script says anything.
const ABSENT_LETTERS: u64 = 80;
/// Share of a prompt's letters that makes its script the prompt's own.
const OWN_SHARE: f64 = 0.8;

/// What an ASCII character adds to the counts of letters, of signs, and of what opens, closes or ends a
/// citation: fields of [`FIELD`] bits.
static ASCII: [u64; 128] = {
    let mut adds = [0; 128];
    let mut b = 0_u8;
    while b < 128 {
        let nests = matches!(b, b'(' | b'[' | b'{' | b')' | b']' | b'}' | b'\n');
        adds[b as usize] = b.is_ascii_alphabetic() as u64
            | (b.is_ascii_punctuation() as u64) << FIELD
            | (nests as u64) << (2 * FIELD);
        b += 1;
    }
    adds
};
const FIELD: u32 = 20;

/// Letters, signs, and what nests: three counts in one addition a character.
fn count(ascii: &[u8]) -> [u64; 3] {
    const MASK: u64 = (1 << FIELD) - 1;
    let mut counts = [0; 3];
    for part in ascii.chunks(MASK as usize) {
        let sum = part.iter().fold(0, |sum, b| sum + ASCII[usize::from(*b & 127)]);
        counts.iter_mut().enumerate().for_each(|(i, n)| *n += sum >> (i as u32 * FIELD) & MASK);
    }
    counts
}

/// Counts letters and foreign runs while text arrives.
#[derive(Clone, Debug)]
pub struct Scripts {
    prompt: Arc<Prompt>,
    golden: ScriptSet,
    letters: u64,
    foreign: u64,
    /// Scripts of the letters so far.
    seen: ScriptSet,
    signs: u64,
    chars: u64,
    run: Option<(System, u32)>,
    /// Depth of brackets and quotes, and the last character that is not blank.
    cited: bool,
    depth: u8,
    last: char,
    runs: u32,
}

impl Scripts {
    /// `golden`: scripts that sound answers use beside those of the prompt.
    #[must_use]
    pub const fn new(prompt: Arc<Prompt>, golden: ScriptSet) -> Self {
        Self {
            prompt,
            golden,
            letters: 0,
            foreign: 0,
            seen: ScriptSet::EMPTY,
            signs: 0,
            chars: 0,
            run: None,
            cited: false,
            depth: 0,
            last: '\n',
            runs: 0,
        }
    }

    /// Takes the next piece; a run may go on in the next one.
    pub fn push(&mut self, piece: &str) {
        if self.run.is_none() && piece.is_ascii() {
            self.push_ascii(piece.as_bytes());
            return;
        }
        for c in piece.chars() {
            self.chars += 1;
            self.one(c);
        }
    }

    /// The common case at once: Latin letters are never foreign, and no run is under way.
    fn push_ascii(&mut self, bytes: &[u8]) {
        self.chars += bytes.len() as u64;
        let [letters, signs, nesting] = count(bytes);
        self.letters += letters;
        if nesting > 0 {
            bytes.iter().for_each(|b| self.nest(char::from(*b)));
        }
        if letters > 0 {
            self.seen = self.seen.with(System::Latin);
        }
        self.signs += signs;
        let telling = |b: &&u8| **b == b'\n' || !char::from(**b).is_whitespace();
        if let Some(last) = bytes.iter().rev().find(telling) {
            self.last = char::from(*last);
        }
    }

    fn one(&mut self, c: char) {
        let Some(system) = system(c) else {
            self.sign(c);
            return;
        };
        self.letters += 1;
        self.seen = self.seen.with(system);
        if self.allows(system) {
            self.end_run();
        } else {
            self.foreign += 1;
            self.run = match self.run {
                Some((s, n)) if s == system || syllabic(s) && syllabic(system) => Some((s, n + 1)),
                _ => {
                    self.end_run();
                    self.cited = self.depth > 0 || is_citing(self.last);
                    Some((system, 1))
                }
            };
        }
        self.last = c;
    }

    fn allows(&self, system: System) -> bool {
        if system == System::Latin || self.golden.has(system) {
            return true;
        }
        let mut allowed = self.golden.union(self.prompt.scripts());
        // Japanese and Korean use Chinese characters; Chinese explains itself in kana never.
        if allowed.has(System::Kana) || allowed.has(System::Hangul) {
            allowed = allowed.with(System::Han);
        }
        allowed.has(system)
    }

    fn sign(&mut self, c: char) {
        self.end_run();
        self.signs += u64::from(c.is_ascii_punctuation());
        self.nest(c);
        if c == '\n' || !c.is_whitespace() {
            self.last = c;
        }
    }

    /// Brackets and quotes.
    const fn nest(&mut self, c: char) {
        match c {
            '(' | '[' | '{' | '（' | '「' | '“' | '«' | '„' | '《' | '【' => {
                self.depth = self.depth.saturating_add(1)
            }
            ')' | ']' | '}' | '）' | '」' | '”' | '»' | '》' | '】' => {
                self.depth = self.depth.saturating_sub(1)
            }
            // An unclosed bracket ends with its paragraph.
            '\n' => self.depth = 0,
            _ => {}
        }
    }

    fn end_run(&mut self) {
        if let Some((system, n)) = self.run.take() {
            let enough = if syllabic(system) { RUN_SYLLABIC } else { RUN_ALPHABETIC };
            self.runs += u32::from(n >= enough && !self.cited);
        }
    }

    /// Ends the run under way.
    pub fn finish(&mut self) {
        self.end_run();
    }

    /// Share of letters in foreign scripts.
    #[must_use]
    pub fn foreign_share(&self) -> Option<f64> {
        #[allow(clippy::cast_precision_loss)] // counts far below 2^52
        (self.letters > 0).then(|| self.foreign as f64 / self.letters as f64)
    }

    /// Whether a foreign script has shown: a run of it, or a large share.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.runs > 0
            || self.letters >= MIN_LETTERS && self.foreign_share().is_some_and(|share| share >= FOREIGN_SHARE)
    }

    /// Whether some letter so far belongs to texts in `own`.
    const fn uses(&self, own: System) -> bool {
        let akin = match own {
            System::Kana => System::Han,
            System::Han => System::Kana,
            other => other,
        };
        self.seen.has(own) || self.seen.has(akin)
    }

    /// At the end: a prompt in a script of its own, and an answer in prose that never uses it.
    #[must_use]
    pub fn is_other_than_asked(&self) -> bool {
        // Code has one sign in six characters or more; prose one in thirty.
        let is_prose = self.signs * 12 < self.chars;
        self.letters >= ABSENT_LETTERS
            && is_prose
            && self.prompt.own_script().is_some_and(|own| !self.uses(own))
    }
}

/// Scripts that a prompt uses or names.
pub(super) fn called_for(prompt: &str) -> ScriptSet {
    ScriptSet::of(prompt).union(asked::named(prompt).scripts)
}

/// The script that a prompt is written in, other than Latin, where it names no other.
pub(super) fn own(prompt: &str) -> Option<System> {
    if prompt.is_ascii() {
        return None;
    }
    dominant(prompt).filter(|s| *s != System::Latin && !asked::named(prompt).any)
}

const fn syllabic(system: System) -> bool {
    matches!(system, System::Han | System::Kana | System::Hangul | System::Thai | System::Khmer)
}

/// Whether what follows this character is cited: a quote, a colon, a dash, a list mark, a table cell.
const fn is_citing(last: char) -> bool {
    matches!(
        last,
        '"' | '\''
            | '`'
            | '*'
            | '_'
            | ':'
            | '：'
            | '='
            | '→'
            | '|'
            | '/'
            | '-'
            | '–'
            | '—'
            | '~'
            | '≈'
            | '>'
            | '('
            | '（'
    )
}

/// The system of at least [`OWN_SHARE`] of a text's letters.
fn dominant(text: &str) -> Option<System> {
    let mut counts: Vec<(System, usize)> = Vec::new();
    for s in text.chars().filter_map(system) {
        match counts.iter_mut().find(|(have, _)| *have == s) {
            Some((_, n)) => *n += 1,
            None => counts.push((s, 1)),
        }
    }
    let total: usize = counts.iter().map(|(_, n)| n).sum();
    let count = |s: System| counts.iter().find(|(have, _)| *have == s).map_or(0, |(_, n)| *n);
    #[allow(clippy::cast_precision_loss)] // counts of a capped prompt
    let enough = |n: usize| total >= 4 && n as f64 >= OWN_SHARE * total as f64;
    if count(System::Kana) > 0 && enough(count(System::Kana) + count(System::Han)) {
        return Some(System::Kana);
    }
    counts.iter().find(|(_, n)| enough(*n)).map(|(s, _)| *s)
}

#[cfg(test)]
mod tests;
