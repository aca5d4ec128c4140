//! The alternatives of a token, `"top_logprobs":[{"token","logprob","bytes"}, …]`, as one record each.
//!
//! With twenty of them they are nine tenths of what a stream consists of. Taken is a list of objects that hold these
//! members (and an `id`, which llama.cpp adds) in any order; one with any other member, with a value of another type
//! or with what a strict reader refuses is left to the steps, which come to the same. So is one without a token: that
//! is an object of logprobs by their tokens, one of which reads `id`.

use super::compact;
use super::lex::{is_space, number_end, numbers, plain_length, plain_string, space, whole_numbers, word};
use super::number::{Decimal, fixed, rough};
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

    /// How long it is, bytes.
    #[inline]
    #[must_use]
    pub const fn length(self) -> usize {
        self.end.saturating_sub(self.start) as usize
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
    pub logprob: Decimal,
}

impl Entry {
    /// Nothing known of it.
    pub const EMPTY: Self = Self { token: Span::NONE, bytes: Span::NONE, logprob: Decimal::NONE };
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
        let Some((end, nodes)) = pulp::Arch::new().dispatch(Listing(self)) else {
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
    #[inline(always)]
    fn list(&mut self) -> Option<(usize, usize)> {
        let (text, mut at) = (self.text, self.at + 1);
        let mut nodes = self.nodes.len() + self.saved + 1;
        let before = nodes - 1;
        loop {
            if nodes + 2 * MAX_MEMBERS >= MAX_NODES {
                return None;
            }
            let (end, members) = match compact::take(text, at, &mut self.entries) {
                Some(end) => (end, 3),
                None => {
                    let (entry, end, members) = entry(text, space(text, at))?;
                    self.entries.push(entry);
                    (end, members)
                }
            };
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

/// [`Scan::list`], with the instructions that newer machines have.
struct Listing<'s, 'a, const QUICK: bool>(&'s mut Scan<'a, QUICK>);

impl<const QUICK: bool> pulp::WithSimd for Listing<'_, '_, QUICK> {
    type Output = Option<(usize, usize)>;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) -> Self::Output {
        self.0.list()
    }
}

/// The alternative that begins at `at`, where it ends, and how many members it has.
#[cold]
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
        let mut name = word(text, at)?;
        if is_space(name as u8) {
            at = space(text, at);
            name = word(text, at)?;
        }
        match name {
            TOKEN => {
                let start = at + 8;
                (entry.token, at) = match plain_string(text, start) {
                    Some(end) => (Span::new(start + 1, end - 1), end),
                    None => string(text, start)?,
                };
            }
            LOGPROB if text.get(at + 8..at + 10) == Some(b"\":") => {
                (entry.logprob, at) = match fixed(text, at + 10) {
                    Some(found) => found,
                    None => logprob(text, at + 10).map(|(logprob, end)| (logprob.into(), end))?,
                };
            }
            BYTES => {
                let start = at + 8;
                let end = if text.get(start) == Some(&b'[') { whole_numbers(text, start) } else { None };
                (entry.bytes, at) = match end {
                    Some(end) => (Span::new(start, end), end),
                    None => match numbers_or_null(text, start)? {
                        (Some(bytes), end) => (bytes, end),
                        (None, end) => (entry.bytes, end),
                    },
                };
            }
            name if name as u32 == u32::from_le_bytes(*b"\"id\"") && text[at + 4] == b':' => {
                at = space(text, at + 5);
                at = plain_string(text, at).or_else(|| number_end(text, at))?;
            }
            _ => return None,
        }
        if text.get(at).is_some_and(|b| is_space(*b)) {
            at = space(text, at);
        }
        match text.get(at)? {
            b',' => at += 1,
            b'}' => return (entry.token != Span::NONE).then_some((entry, at + 1, members)),
            _ => return None,
        }
    }
    None
}

/// What stands between the quotes of the string at `at`, escapes and all, and where it ends; `None` if a strict reader
/// refuses it.
#[cold]
fn string(text: &[u8], at: usize) -> Option<(Span, usize)> {
    let start = space(text, at);
    if *text.get(start)? != b'"' {
        return None;
    }
    let mut at = start + 1;
    loop {
        at += plain_length(&text[at..])?;
        match text[at] {
            b'"' => return Some((Span::new(start + 1, at), at + 1)),
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

/// A logprob of any standard form, or none.
#[cold]
fn logprob(text: &[u8], at: usize) -> Option<(f64, usize)> {
    let at = space(text, at);
    if is_null(text, at) { Some((f64::NAN, at + 4)) } else { rough(text, at) }
}

/// An array of standard numbers, which may be empty, or none, and where it ends.
#[cold]
fn numbers_or_null(text: &[u8], at: usize) -> Option<(Option<Span>, usize)> {
    let start = space(text, at);
    if is_null(text, start) {
        return Some((None, start + 4));
    }
    if *text.get(start)? != b'[' {
        return None;
    }
    let inside = space(text, start + 1);
    let end = if text.get(inside) == Some(&b']') { inside + 1 } else { numbers(text, start)? };
    Some((Some(Span::new(start, end)), end))
}

fn is_null(text: &[u8], at: usize) -> bool {
    text.get(at..at + 4) == Some(b"null")
}
