//! A lenient JSON reader: one pass over the bytes into a flat, reusable list of nodes.
//!
//! Upstreams send what no strict reader takes: `NaN` and `Infinity`, half surrogate pairs, invalid
//! UTF-8, raw control characters, bodies that stop in the middle. A strict reader loses the whole
//! answer for one such token; this one keeps what can be read and tells what was odd in [`Oddity`].
//! A tree with a map per object was the obvious form, but costs some sixty allocations for one token
//! with twenty alternatives; the node list is reused from event to event and strings and numbers are
//! decoded only when asked for, which keeps a token near a microsecond.
//!
//! Length: two ways through an object, step by step and in one go, side by side so that they stay alike.
//!
//! Limits: no recursion anywhere, at most `MAX_NODES` nodes and `MAX_DEPTH` levels; beyond either
//! the rest counts as unread (`cut`).

mod lex;
mod value;

pub use value::Value;

use lex::{plain_length, space, strict_number, whole_numbers};

/// Most nodes of one document: an 8 MiB body of objects fits, a hostile one cannot take 100 MB.
const MAX_NODES: usize = 1 << 21;
/// Text that one node stands for, about, and the nodes that are made room for at once.
const BYTES_PER_NODE: usize = 12;
const FIRST_NODES: usize = 512;
/// Deepest nesting that is read; answers need about ten levels.
const MAX_DEPTH: usize = 256;

/// Members of an object that is taken in one go, at most.
const MAX_FLAT: usize = 16;

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
    open: Vec<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    FirstValue,
    Key,
    FirstKey,
    Colon,
    Comma,
}

impl Doc {
    /// Reads one document and returns its root, if there is any value at all.
    pub fn parse<'a>(&'a mut self, text: &'a [u8]) -> (Option<Value<'a>>, Oddity) {
        self.nodes.clear();
        self.open.clear();
        let mut odd = Oddity { invalid_utf8: std::str::from_utf8(text).is_err(), ..Oddity::default() };
        let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
        let text = text.get(..u32::MAX as usize).unwrap_or(text);
        // By value: the loop keeps what it owns in registers, what it borrows it loads again and again.
        let (mut nodes, open) = (std::mem::take(&mut self.nodes), std::mem::take(&mut self.open));
        // Enough for most documents, so that a small one is not moved five times.
        nodes.reserve((text.len() / BYTES_PER_NODE).min(FIRST_NODES));
        let mut scan = Scan { text, at: 0, nodes, open, odd };
        let end = scan.run();
        odd = scan.odd;
        (self.nodes, self.open) = (scan.nodes, scan.open);
        for index in self.open.drain(..) {
            let next = self.nodes.len() as u32;
            if let Some(node) = self.nodes.get_mut(index as usize) {
                node.end = end as u32;
                node.next = next;
            }
        }
        let root = (!self.nodes.is_empty()).then_some(Value { text, nodes: &self.nodes, at: 0 });
        (root, odd)
    }

    /// Gives memory back after a large document.
    pub fn shrink(&mut self) {
        if self.nodes.capacity() > 1024 {
            self.nodes = Vec::new();
        }
    }
}

struct Scan<'a> {
    text: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    open: Vec<u32>,
    odd: Oddity,
}

impl Scan<'_> {
    /// Fills the nodes; returns where reading ended. Containers still open stay in `open`.
    fn run(&mut self) -> usize {
        let mut expect = Expect::Value;
        loop {
            self.skip_space();
            let Some(byte) = self.peek() else {
                self.odd.broken |= !self.open.is_empty();
                return self.at;
            };
            if self.nodes.len() >= MAX_NODES || self.open.len() > MAX_DEPTH {
                self.odd.cut = true;
                return self.at;
            }
            let step = match expect {
                Expect::Value | Expect::FirstValue => self.value(byte, expect),
                Expect::Key | Expect::FirstKey => self.key(byte, expect),
                Expect::Colon => (byte == b':').then(|| {
                    self.at += 1;
                    Expect::Value
                }),
                Expect::Comma => self.comma(byte),
            };
            match step {
                None => {
                    self.odd.broken = true;
                    return self.at;
                }
                Some(Expect::Comma) if self.open.is_empty() => {
                    self.skip_space();
                    self.odd.nonstandard |= self.at < self.text.len();
                    return self.at;
                }
                Some(next) => expect = next,
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn push(&mut self, kind: Kind, start: usize, end: usize) {
        let next = self.nodes.len() as u32 + 1;
        self.nodes.push(Node { kind, start: start as u32, end: end as u32, next });
    }

    fn value(&mut self, byte: u8, expect: Expect) -> Option<Expect> {
        match byte {
            b'"' => {
                self.string();
                Some(Expect::Comma)
            }
            b'{' => {
                if self.flat_object() {
                    return Some(Expect::Comma);
                }
                self.enter(Kind::Object);
                Some(Expect::FirstKey)
            }
            b'[' => {
                if self.numbers() {
                    return Some(Expect::Comma);
                }
                self.enter(Kind::Array);
                Some(Expect::FirstValue)
            }
            b']' if self.inside(Kind::Array) => {
                self.odd.nonstandard |= expect == Expect::Value;
                self.leave();
                Some(Expect::Comma)
            }
            b'-' | b'+' | b'.' | b'0'..=b'9' => self.number(),
            b'a'..=b'z' | b'A'..=b'Z' => self.word(),
            _ => None,
        }
    }

    /// Takes an object of plain members in one go, as the alternatives of a token are; leaves everything as it was if
    /// there is anything else in it. The nodes are those that step by step would come.
    fn flat_object(&mut self) -> bool {
        let (start, first) = (self.at, self.nodes.len());
        if self.open.len() < MAX_DEPTH && first + 2 * MAX_FLAT < MAX_NODES && self.flat_members().is_some() {
            let next = self.nodes.len() as u32;
            self.nodes[first] = Node { kind: Kind::Object, start: start as u32, end: self.at as u32, next };
            return true;
        }
        self.nodes.truncate(first);
        self.at = start;
        false
    }

    fn flat_members(&mut self) -> Option<()> {
        let text = self.text;
        let mut at = self.at + 1;
        self.push(Kind::Object, 0, 0); // in its place
        for _ in 0..MAX_FLAT {
            at = space(text, at);
            // The names of alternatives: three of four strings.
            let known = match text.get(at..).and_then(<[u8]>::first_chunk::<8>) {
                Some(b"\"token\":" | b"\"bytes\":") => Some(5),
                Some(b"\"logprob") if text.get(at + 8..at + 10) == Some(b"\":") => Some(7),
                _ => None,
            };
            at = match known {
                Some(length) => {
                    self.push(Kind::Plain, at + 1, at + 1 + length);
                    at + length + 3
                }
                None => {
                    let end = self.plain_string(at)?;
                    if text.get(end) != Some(&b':') {
                        return None;
                    }
                    end + 1
                }
            };
            at = space(text, at);
            at = match text.get(at)? {
                b'"' => self.plain_string(at)?,
                b'-' | b'0'..=b'9' => {
                    let end = strict_number(text, at)?;
                    self.push(Kind::Number, at, end);
                    end
                }
                b'[' => {
                    self.at = at;
                    if !self.numbers() {
                        return None;
                    }
                    self.at
                }
                b'n' if text.get(at..at + 4) == Some(b"null") => {
                    self.push(Kind::Null, at, at + 4);
                    at + 4
                }
                _ => return None,
            };
            at = space(text, at);
            match text.get(at)? {
                b',' => at += 1,
                b'}' => {
                    self.at = at + 1;
                    return Some(());
                }
                _ => return None,
            }
        }
        None
    }

    /// Takes the string without escapes that begins with the quote at `at`; where it ends.
    #[inline]
    fn plain_string(&mut self, at: usize) -> Option<usize> {
        if self.text.get(at) != Some(&b'"') {
            return None;
        }
        let end = at + 1 + plain_length(&self.text[at + 1..])?;
        if self.text[end] != b'"' {
            return None;
        }
        self.push(Kind::Plain, at + 1, end);
        Some(end + 1)
    }

    fn key(&mut self, byte: u8, expect: Expect) -> Option<Expect> {
        match byte {
            b'"' => {
                self.string();
                if self.peek() == Some(b':') {
                    self.at += 1;
                    return Some(Expect::Value);
                }
                Some(Expect::Colon)
            }
            b'}' => {
                self.odd.nonstandard |= expect == Expect::Key;
                self.leave();
                Some(Expect::Comma)
            }
            _ => None,
        }
    }

    fn comma(&mut self, byte: u8) -> Option<Expect> {
        let object = self.inside(Kind::Object);
        match byte {
            b',' => {
                self.at += 1;
                Some(if object { Expect::Key } else { Expect::Value })
            }
            b'}' if object => {
                self.leave();
                Some(Expect::Comma)
            }
            b']' if !object => {
                self.leave();
                Some(Expect::Comma)
            }
            _ => None,
        }
    }

    fn inside(&self, kind: Kind) -> bool {
        self.open.last().and_then(|&i| self.nodes.get(i as usize)).is_some_and(|n| n.kind == kind)
    }

    fn enter(&mut self, kind: Kind) {
        self.open.push(self.nodes.len() as u32);
        self.push(kind, self.at, self.at);
        self.at += 1;
    }

    fn leave(&mut self) {
        self.at += 1;
        let next = self.nodes.len() as u32;
        let node = self.open.pop().and_then(|i| self.nodes.get_mut(i as usize));
        if let Some(node) = node {
            node.end = self.at as u32;
            node.next = next;
        }
    }

    fn string(&mut self) {
        self.at += 1;
        let start = self.at;
        let mut kind = Kind::Plain;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(skip) = plain_length(rest) else {
                self.at = self.text.len();
                self.odd.broken = true;
                return self.push(kind, start, self.at);
            };
            self.at += skip;
            match self.text[self.at] {
                b'"' => {
                    self.push(kind, start, self.at);
                    self.at += 1;
                    return;
                }
                b'\\' => {
                    let lone = self.escape();
                    kind = if lone || kind == Kind::Lone { Kind::Lone } else { Kind::Escaped };
                }
                _ => {
                    self.odd.nonstandard = true;
                    self.at += 1;
                }
            }
        }
    }

    /// Steps over one escape; true for half a surrogate pair.
    fn escape(&mut self) -> bool {
        let (_, length, oddness) = value::unescape(&self.text[self.at..]);
        self.at += length;
        self.odd.nonstandard |= oddness == value::Escape::Unknown;
        oddness == value::Escape::Lone
    }

    fn number(&mut self) -> Option<Expect> {
        let start = self.at;
        let rest = &self.text[start..];
        if let Some(end) = strict_number(self.text, start) {
            let next = self.text.get(end).copied().unwrap_or(0);
            if !next.is_ascii_alphanumeric() && !matches!(next, b'.' | b'+' | b'-') {
                self.at = end;
                self.push(Kind::Number, start, end);
                return Some(Expect::Comma);
            }
        }
        let length =
            rest.iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-')));
        let token = &rest[..length.unwrap_or(rest.len())];
        let kind = match value::loose_number(token) {
            Some(number) if number.is_finite() => Kind::Number,
            Some(_) => Kind::Nonfinite,
            None => return None,
        };
        self.at += token.len();
        self.odd.nonstandard = true;
        self.push(kind, start, self.at);
        Some(Expect::Comma)
    }

    fn word(&mut self) -> Option<Expect> {
        let rest = &self.text[self.at..];
        let length =
            rest.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_')).unwrap_or(rest.len());
        let kind = match &rest[..length] {
            b"null" => Kind::Null,
            b"true" => Kind::True,
            b"false" => Kind::False,
            word => {
                self.odd.nonstandard = true;
                match word.to_ascii_lowercase().as_slice() {
                    b"nan" | b"inf" | b"infinity" => Kind::Nonfinite,
                    b"none" | b"undefined" | b"nil" => Kind::Null,
                    b"true" => Kind::True,
                    b"false" => Kind::False,
                    _ => return None,
                }
            }
        };
        self.push(kind, self.at, self.at + length);
        self.at += length;
        Some(Expect::Comma)
    }

    /// Takes an array of standard numbers as one node; leaves everything as it was if it is none.
    fn numbers(&mut self) -> bool {
        if let Some(end) = whole_numbers(self.text, self.at) {
            self.push(Kind::Numbers, self.at, end);
            self.at = end;
            return true;
        }
        let mut at = self.at + 1;
        loop {
            at = space(self.text, at);
            at = match strict_number(self.text, at) {
                Some(end) => space(self.text, end),
                None => return false,
            };
            match self.text.get(at) {
                Some(b',') => at += 1,
                Some(b']') => break,
                _ => return false,
            }
        }
        self.push(Kind::Numbers, self.at, at + 1);
        self.at = at + 1;
        true
    }
}

#[cfg(test)]
mod tests;
