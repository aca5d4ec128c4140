//! A lenient JSON reader: one pass over the bytes into a flat, reusable list of nodes.
//!
//! Upstreams send what no strict reader takes: `NaN` and `Infinity`, half surrogate pairs, invalid
//! UTF-8, raw control characters, bodies that stop in the middle. A strict reader loses the whole
//! answer for one such token; this one keeps what can be read and tells what was odd in [`Oddity`].
//! A tree with a map per object was the obvious form, but costs some sixty allocations for one token
//! with twenty alternatives; the node list is reused from event to event and strings and numbers are
//! decoded only when asked for, which keeps a token near a microsecond.
//! What logprobs consist of, objects of a token, its bytes and its logprob by the score, takes one record each
//! and is read in a single pass ([`Entry`]).
//!
//! Limits: no recursion anywhere, at most `MAX_NODES` nodes and `MAX_DEPTH` levels; beyond either
//! the rest counts as unread (`cut`).

mod alternatives;
mod compact;
mod lanes;
mod lex;
mod number;
mod scan;
mod scratch;
mod value;

pub use alternatives::{Entry, Span};
pub use number::Decimal;
pub(super) use number::list as numbers;
pub use scratch::Scratch;
pub use value::Value;
pub(super) use value::decode;

use scan::Scan;

/// Most nodes of one document: an 8 MiB body of objects fits, a hostile one cannot take 100 MB.
const MAX_NODES: usize = 1 << 21;
/// Text that one node stands for, about, and the nodes that are made room for at once.
const BYTES_PER_NODE: usize = 12;
const FIRST_NODES: usize = 512;
/// Deepest nesting that is read; answers need about ten levels.
const MAX_DEPTH: usize = 256;

/// What a strict reader would have refused, or could not have read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oddity {
    /// Tokens outside the standard that could be read all the same: `NaN`, a trailing comma, a raw
    /// control character, bytes after the value.
    pub nonstandard: bool,
    /// The text stopped making sense or ended early; what came before is kept.
    pub broken: bool,
    /// The bytes are not valid UTF-8.
    pub invalid_utf8: bool,
    /// A limit of this reader was reached; the rest is unread.
    pub cut: bool,
}

impl Oddity {
    /// Whether a strict JSON reader takes the text.
    #[must_use]
    pub const fn is_standard(self) -> bool {
        !self.nonstandard && !self.broken
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Null,
    True,
    False,
    Number,
    /// `NaN`, `Infinity` and their like.
    Nonfinite,
    /// String without escapes.
    Plain,
    /// String with escapes.
    Escaped,
    /// String with half a surrogate pair.
    Lone,
    Array,
    /// Array of nothing but numbers, kept as one node.
    Numbers,
    /// Array of nothing but alternatives of a token, kept as entries. A node that no one visits follows it: the
    /// first of its entries and the one behind its last.
    Alternatives,
    Object,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    kind: Kind,
    start: u32,
    end: u32,
    /// Index of the node after this one and all it holds.
    next: u32,
}

/// The nodes of one document; reuse it for the next one.
#[derive(Clone, Debug, Default)]
pub struct Doc {
    nodes: Vec<Node>,
    entries: Vec<Entry>,
    open: Vec<u32>,
}

impl Doc {
    /// Reads one document and returns its root, if there is any value at all.
    pub fn parse<'a>(&'a mut self, text: &'a [u8]) -> (Option<Value<'a>>, Oddity) {
        self.read::<true>(text)
    }

    /// `QUICK`: what is plain is taken in one go. Without, every value goes step by step, which tests compare with.
    fn read<'a, const QUICK: bool>(&'a mut self, text: &'a [u8]) -> (Option<Value<'a>>, Oddity) {
        let mut odd = Oddity { invalid_utf8: !is_utf8(text), ..Oddity::default() };
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let text = text.get(..u32::MAX as usize).unwrap_or(text);
        let mut scan = Scan::<QUICK>::new(text, std::mem::take(self), odd);
        let end = scan.run();
        odd = scan.odd;
        *self = scan.into_doc();
        for index in self.open.drain(..) {
            let next = self.nodes.len() as u32;
            if let Some(node) = self.nodes.get_mut(index as usize) {
                node.end = end as u32;
                node.next = next;
            }
        }
        let root = (!self.nodes.is_empty()).then_some(Value { text, doc: self, at: 0 });
        (root, odd)
    }

    /// Gives memory back after a large document.
    pub fn shrink(&mut self) {
        if self.nodes.capacity() > 1024 {
            self.nodes = Vec::new();
        }
        if self.entries.capacity() > 512 {
            self.entries = Vec::new();
        }
    }
}

/// Most documents are ASCII, which is told in a fraction of the time.
fn is_utf8(text: &[u8]) -> bool {
    text.is_ascii() || std::str::from_utf8(text).is_ok()
}

#[cfg(test)]
mod tests;
