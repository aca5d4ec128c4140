//! From bytes to nodes: step by step, and objects of plain members in one go.
//!
//! Length: two ways through an object, side by side so that they stay alike.

use super::lex::{is_space, literal, plain_string, space, strict_number, whole_numbers};
use super::{BYTES_PER_NODE, Doc, Entry, FIRST_NODES, Kind, MAX_DEPTH, MAX_NODES, Node, Oddity, value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expect {
    Value,
    FirstValue,
    Key,
    FirstKey,
    Colon,
    Comma,
}

/// One pass over a document. It owns what it fills: what is borrowed would be loaded again and again.
pub(super) struct Scan<'a, const QUICK: bool> {
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    pub(super) nodes: Vec<Node>,
    pub(super) entries: Vec<Entry>,
    pub(super) open: Vec<u32>,
    pub(super) odd: Oddity,
    /// Nodes that step by step there would be and are none: the limit is the same.
    pub(super) saved: usize,
}

impl<'a, const QUICK: bool> Scan<'a, QUICK> {
    /// `doc` gives its memory.
    pub(super) fn new(text: &'a [u8], doc: Doc, odd: Oddity) -> Self {
        let Doc { mut nodes, mut entries, mut open } = doc;
        nodes.clear();
        entries.clear();
        open.clear();
        // Enough for most documents, so that a small one is not moved five times.
        nodes.reserve((text.len() / BYTES_PER_NODE).min(FIRST_NODES));
        Self { text, at: 0, nodes, entries, open, odd, saved: 0 }
    }

    pub(super) fn into_doc(self) -> Doc {
        Doc { nodes: self.nodes, entries: self.entries, open: self.open }
    }

    /// Fills the nodes; returns where reading ended. Containers still open stay in `open`.
    pub(super) fn run(&mut self) -> usize {
        let mut expect = Expect::Value;
        loop {
            self.at = space(self.text, self.at);
            let Some(byte) = self.peek() else {
                self.odd.broken |= !self.open.is_empty();
                return self.at;
            };
            if self.nodes.len() + self.saved >= MAX_NODES || self.open.len() > MAX_DEPTH {
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
                    self.at = space(self.text, self.at);
                    self.odd.nonstandard |= self.at < self.text.len();
                    return self.at;
                }
                Some(next) => expect = next,
            }
        }
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline]
    pub(super) fn push(&mut self, kind: Kind, start: usize, end: usize) {
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
                self.enter(Kind::Object);
                Some(if QUICK { self.members(Expect::FirstKey) } else { Expect::FirstKey })
            }
            b'[' => Some(self.array()),
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

    /// Takes members of the object that was entered last, and of objects in it, as long as they are plain. Says what
    /// is to be expected where something else stands; the nodes are those that step by step would come.
    fn members(&mut self, mut expect: Expect) -> Expect {
        let text = self.text;
        loop {
            if self.nodes.len() + self.saved + 2 >= MAX_NODES || self.open.len() > MAX_DEPTH {
                return expect;
            }
            self.at = space(text, self.at);
            let Some(end) = plain_string(text, self.at).filter(|end| text.get(*end) == Some(&b':')) else {
                return expect;
            };
            self.push(Kind::Plain, self.at + 1, end - 1);
            self.at = space(text, end + 1);
            let (kind, end) = match text.get(self.at) {
                Some(b'"') => match plain_string(text, self.at) {
                    Some(end) => (Kind::Plain, end),
                    None => return Expect::Value,
                },
                Some(b'-' | b'0'..=b'9') => match strict_number(text, self.at) {
                    Some(end) if !goes_on(text, end) => (Kind::Number, end),
                    _ => return Expect::Value,
                },
                Some(b'{') => {
                    self.enter(Kind::Object);
                    expect = Expect::FirstKey;
                    continue;
                }
                Some(b'[') => match self.array() {
                    Expect::Comma => (Kind::Array, self.at),
                    inside => return inside,
                },
                Some(b'n' | b't' | b'f') => match literal(text, self.at) {
                    Some(word) => word,
                    None => return Expect::Value,
                },
                _ => return Expect::Value,
            };
            match kind {
                Kind::Array => {}
                Kind::Plain => self.push(kind, self.at + 1, end - 1),
                _ => self.push(kind, self.at, end),
            }
            self.at = space(text, end);
            while text.get(self.at) == Some(&b'}') {
                self.leave();
                if !self.inside(Kind::Object) {
                    return Expect::Comma;
                }
                self.at = space(text, self.at);
            }
            if text.get(self.at) != Some(&b',') {
                return Expect::Comma;
            }
            self.at += 1;
            expect = Expect::Key;
        }
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
                Some(match object {
                    true if QUICK => self.members(Expect::Key),
                    true => Expect::Key,
                    false => Expect::Value,
                })
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

    #[inline]
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
            let Some(skip) = super::lex::plain_length(rest) else {
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
        if let Some(end) = strict_number(self.text, start).filter(|end| !goes_on(self.text, *end)) {
            self.at = end;
            self.push(Kind::Number, start, end);
            return Some(Expect::Comma);
        }
        let length =
            rest.iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-')));
        let token = &rest[..length.unwrap_or(rest.len())];
        let kind = match super::number::loose(token) {
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

    /// Enters an array, or takes it whole: one of nothing but numbers, or the alternatives of a token.
    fn array(&mut self) -> Expect {
        match self.text.get(self.at + 1) {
            Some(b'-' | b'0'..=b'9') if self.numbers() => return Expect::Comma,
            Some(b) if is_space(*b) && self.numbers() => return Expect::Comma,
            _ => {}
        }
        if QUICK && self.alternatives() {
            return Expect::Comma;
        }
        self.enter(Kind::Array);
        Expect::FirstValue
    }

    /// Takes an array of standard numbers as one node; leaves everything as it was if it is none.
    fn numbers(&mut self) -> bool {
        let whole = if QUICK { whole_numbers(self.text, self.at) } else { None };
        let Some(end) = whole.or_else(|| super::lex::numbers(self.text, self.at)) else { return false };
        self.push(Kind::Numbers, self.at, end);
        self.at = end;
        true
    }

    /// Whether the value under way has the name `name`.
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        // Inside an object a value's name was the last to come.
        self.inside(Kind::Object)
            && self.nodes.last().is_some_and(|n| &self.text[n.start as usize..n.end as usize] == name)
    }
}

/// Whether a number does not end where its standard form does.
#[inline]
fn goes_on(text: &[u8], end: usize) -> bool {
    text.get(end).is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-'))
}
