//! The alternatives of a token, `"top_logprobs":[{"token","logprob","bytes"}, …]`, as one record each.
//!
//! With twenty of them they are nine tenths of what a stream consists of. Taken is a list of objects that hold these
//! members (and an `id`, which llama.cpp adds) in any order; one with any other member, with a value of another type
//! or with what a strict reader refuses is left to the steps, which come to the same. So is one without a token: that
//! is an object of logprobs by their tokens, one of which reads `id`.

use super::lex::{number_end, numbers, plain_length, plain_string, space, whole_numbers, word};
use super::number::rough;
use super::scan::Scan;
use super::value::{Escape, unescape};
use super::{Kind, MAX_DEPTH, MAX_NODES};

/// A piece of a document's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    start: u32,
    end: u32,
}

impl Span {
    /// Nothing at all, which is not the same as an empty piece.
    pub const NONE: Self = Self { start: u32::MAX, end: 0 };

    pub(super) const fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// The piece of its own document.
    #[inline]
    #[must_use]
    pub fn of(self, text: &[u8]) -> Option<&[u8]> {
        text.get(self.start as usize..self.end as usize)
    }
}

/// One alternative.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What stands between the quotes of its token.
    pub token: Span,
    /// The array of its bytes, brackets included.
    pub bytes: Span,
    /// Its logprob, as [`super::Value::rough_number`] has it; NaN for none.
    pub logprob: f64,
}

impl Entry {
    pub(super) const EMPTY: Self = Self { token: Span::NONE, bytes: Span::NONE, logprob: f64::NAN };
}

/// Deepest that alternatives stand in the array's own terms: array, object, array of bytes.
const LEVELS: usize = 3;
/// Most members of one; more are repeated ones.
const MAX_MEMBERS: usize = 16;

impl<const QUICK: bool> Scan<'_, QUICK> {
    /// Takes the alternatives whose array begins here; leaves everything as it was if there is anything else in it.
    pub(super) fn alternatives(&mut self) -> bool {
        if self.open.len() + LEVELS > MAX_DEPTH || !self.is_named(b"top_logprobs") {
            return false;
        }
        let first = self.entries.len();
        let Some((end, nodes)) = self.list() else {
            self.entries.truncate(first);
            return false;
        };
        self.push(Kind::Alternatives, self.at, end);
        self.push(Kind::Null, first, self.entries.len());
        let hidden = self.nodes.len();
        self.nodes[hidden - 2].next = hidden as u32;
        self.saved += nodes - 2;
        self.at = end;
        true
    }

    /// The end of the array, and how many nodes it would be.
    fn list(&mut self) -> Option<(usize, usize)> {
        let (text, mut at) = (self.text, self.at + 1);
        let mut nodes = self.nodes.len() + self.saved + 1;
        let before = nodes - 1;
        loop {
            if nodes + 2 * MAX_MEMBERS >= MAX_NODES {
                return None;
            }
            at = space(text, at);
            let (entry, end, members) = entry(text, at)?;
            self.entries.push(entry);
            nodes += 1 + 2 * members;
            at = space(text, end);
            match text.get(at)? {
                b',' => at += 1,
                b']' => return Some((at + 1, nodes - before)),
                _ => return None,
            }
        }
    }
}

/// The alternative that begins at `at`, where it ends, and how many members it has.
#[inline]
fn entry(text: &[u8], mut at: usize) -> Option<(Entry, usize, usize)> {
    const TOKEN: u64 = u64::from_le_bytes(*b"\"token\":");
    const BYTES: u64 = u64::from_le_bytes(*b"\"bytes\":");
    const LOGPROB: u64 = u64::from_le_bytes(*b"\"logprob");
    if *text.get(at)? != b'{' {
        return None;
    }
    at += 1;
    let mut entry = Entry::EMPTY;
    for members in 1..=MAX_MEMBERS {
        at = space(text, at);
        match word(text, at)? {
            TOKEN => {
                at = space(text, at + 8);
                let end = string(text, at)?;
                entry.token = Span::new(at + 1, end - 1);
                at = end;
            }
            LOGPROB if text.get(at + 8..at + 10) == Some(b"\":") => {
                at = space(text, at + 10);
                (entry.logprob, at) = match null(text, at) {
                    Some(end) => (f64::NAN, end),
                    None => rough(text, at)?,
                };
            }
            BYTES => {
                at = space(text, at + 8);
                at = match null(text, at) {
                    Some(end) => end,
                    None => {
                        let end = bytes(text, at)?;
                        entry.bytes = Span::new(at, end);
                        end
                    }
                };
            }
            name if name as u32 == u32::from_le_bytes(*b"\"id\"") && text[at + 4] == b':' => {
                at = space(text, at + 5);
                at = plain_string(text, at).or_else(|| number_end(text, at))?;
            }
            _ => return None,
        }
        at = space(text, at);
        match text.get(at)? {
            b',' => at += 1,
            b'}' => return (entry.token != Span::NONE).then_some((entry, at + 1, members)),
            _ => return None,
        }
    }
    None
}

/// Where the `null` at `at` ends, if one stands there.
#[inline]
fn null(text: &[u8], at: usize) -> Option<usize> {
    (text.get(at) == Some(&b'n') && text.get(at..at + 4) == Some(b"null")).then_some(at + 4)
}

/// Where the string at `at` ends, escapes and all; `None` if a strict reader refuses it.
#[inline]
fn string(text: &[u8], at: usize) -> Option<usize> {
    plain_string(text, at).or_else(|| escaped(text, at))
}

#[cold]
fn escaped(text: &[u8], at: usize) -> Option<usize> {
    if *text.get(at)? != b'"' {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += plain_length(&text[at..])?;
        match text[at] {
            b'"' => return Some(at + 1),
            b'\\' => {
                let (_, length, oddness) = unescape(&text[at..]);
                if oddness == Escape::Unknown {
                    return None;
                }
                at += length;
            }
            _ => return None,
        }
    }
}

/// Where the array of numbers at `at` ends; it may be empty.
#[inline]
fn bytes(text: &[u8], at: usize) -> Option<usize> {
    if *text.get(at)? != b'[' {
        return None;
    }
    whole_numbers(text, at).or_else(|| any_numbers(text, at))
}

#[cold]
fn any_numbers(text: &[u8], at: usize) -> Option<usize> {
    let inside = space(text, at + 1);
    if text.get(inside) == Some(&b']') { Some(inside + 1) } else { numbers(text, at) }
}
