//! Looking into a document: every question has an answer for every type.

use std::borrow::Cow;

use super::{Doc, Entry, Kind, Node, Span, number};

/// One value of a document.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    pub(super) text: &'a [u8],
    pub(super) doc: &'a Doc,
    pub(super) at: u32,
}

impl<'a> Value<'a> {
    #[inline]
    fn node(&self) -> Node {
        self.doc.nodes[self.at as usize]
    }

    #[inline]
    fn at(&self, at: u32) -> Self {
        Self { at, ..*self }
    }

    /// The member of that name; the last one if there are several, as most readers have it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Self> {
        let object = self.node();
        let end = if object.kind == Kind::Object { object.next } else { 0 };
        let (mut at, mut found) = (self.at + 1, None);
        // As `members`, written out: a request is asked forty times, and most names differ in length.
        while at + 1 < end {
            let name = &self.doc.nodes[at as usize];
            let may_be = name.kind != Kind::Plain || (name.end - name.start) as usize == key.len();
            if may_be && self.at(at).is_key(key) {
                found = Some(self.at(at + 1));
            }
            at = self.doc.nodes[at as usize + 1].next;
        }
        found
    }

    /// The member of that name, unless it is `null`.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<Self> {
        self.get(key).filter(|v| !v.is_null())
    }

    /// Follows several names.
    #[must_use]
    pub fn path(&self, keys: &[&str]) -> Option<Self> {
        keys.iter().try_fold(*self, |value, key| value.field(key))
    }

    /// Members of an object as (name, value); nothing for any other type.
    #[inline]
    pub fn members(&self) -> impl Iterator<Item = (Self, Self)> + use<'a> {
        let (this, node) = (*self, self.node());
        let end = if node.kind == Kind::Object { node.next } else { 0 };
        let mut at = this.at + 1;
        std::iter::from_fn(move || {
            // An object that broke off may end with a name alone.
            if at + 1 >= end {
                return None;
            }
            let (name, value) = (this.at(at), this.at(at + 1));
            at = value.node().next;
            Some((name, value))
        })
    }

    /// Elements of an array; nothing for any other type, and nothing for an array of numbers alone or of alternatives,
    /// which have their own questions.
    #[inline]
    pub fn items(&self) -> impl Iterator<Item = Self> + use<'a> {
        let (this, node) = (*self, self.node());
        let end = if node.kind == Kind::Array { node.next } else { 0 };
        let mut at = this.at + 1;
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let value = this.at(at);
            at = value.node().next;
            Some(value)
        })
    }

    /// The alternatives that a `top_logprobs` consists of, where it consists of nothing else; `None` where it is to be
    /// read as an array or an object, if it is one.
    #[inline]
    #[must_use]
    pub fn alternatives(&self) -> Option<&'a [Entry]> {
        if self.node().kind != Kind::Alternatives {
            return None;
        }
        let place = self.doc.nodes.get(self.at as usize + 1)?;
        self.doc.entries.get(place.start as usize..place.end as usize)
    }

    /// Elements of an array as numbers, `None` for what is no number.
    pub fn numbers(&self) -> impl Iterator<Item = Option<f64>> + use<'a> {
        let flat =
            if self.node().kind == Kind::Numbers { number::list(self.span()) } else { number::list(&[]) };
        flat.chain(self.items().map(|v| v.number()))
    }

    /// Whether it is an object.
    #[inline]
    #[must_use]
    pub fn is_object(&self) -> bool {
        self.node().kind == Kind::Object
    }

    /// Whether it is an array.
    #[inline]
    #[must_use]
    pub fn is_array(&self) -> bool {
        matches!(self.node().kind, Kind::Array | Kind::Numbers | Kind::Alternatives)
    }

    /// Whether it is `null`.
    #[inline]
    #[must_use]
    pub fn is_null(&self) -> bool {
        self.node().kind == Kind::Null
    }

    /// Whether it is a string.
    #[inline]
    #[must_use]
    pub fn is_string(&self) -> bool {
        matches!(self.node().kind, Kind::Plain | Kind::Escaped | Kind::Lone)
    }

    /// Whether it is a string with half a surrogate pair.
    #[must_use]
    pub fn has_lone_surrogate(&self) -> bool {
        self.node().kind == Kind::Lone
    }

    /// A boolean.
    #[must_use]
    pub fn boolean(&self) -> Option<bool> {
        match self.node().kind {
            Kind::True => Some(true),
            Kind::False => Some(false),
            _ => None,
        }
    }

    /// A number, `NaN` and infinities included.
    #[inline]
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        matches!(self.node().kind, Kind::Number | Kind::Nonfinite).then(|| number::loose(self.span()))?
    }

    /// A number in a hurry: two roundings instead of one, so that the last bit may be another than [`Self::number`]'s.
    #[inline]
    #[must_use]
    pub fn rough_number(&self) -> Option<f64> {
        let node = self.node();
        if !matches!(node.kind, Kind::Number | Kind::Nonfinite) {
            return None;
        }
        match number::fixed(self.text, node.start as usize) {
            Some((number, end)) if end == node.end as usize => Some(number.value()),
            _ => number::rough_token(self.span()),
        }
    }

    /// A count given as a number or as digits in a string; cut to whole, may be negative.
    #[must_use]
    pub fn count(&self) -> Option<i64> {
        let number = match self.node().kind {
            Kind::Number => number::loose(self.span()),
            Kind::Plain => number::loose(self.span().trim_ascii()),
            _ => None,
        };
        number.filter(|n| n.is_finite()).map(|n| n as i64)
    }

    /// A string, decoded; what cannot be decoded becomes U+FFFD.
    #[must_use]
    pub fn string(&self) -> Option<Cow<'a, str>> {
        match self.node().kind {
            // The strict check is several times as fast as the lossy one.
            Kind::Plain => Some(match std::str::from_utf8(self.span()) {
                Ok(text) => Cow::Borrowed(text),
                Err(_) => String::from_utf8_lossy(self.span()),
            }),
            Kind::Escaped | Kind::Lone => Some(Cow::Owned(decode(self.span()))),
            _ => None,
        }
    }

    /// Whether it is a string that reads `key`.
    #[must_use]
    pub fn is_key(&self, key: &str) -> bool {
        match self.node().kind {
            Kind::Plain => self.span() == key.as_bytes(),
            Kind::Escaped | Kind::Lone => decode(self.span()) == key,
            _ => false,
        }
    }

    /// What stands behind it in the document's text.
    #[must_use]
    pub fn after(&self) -> &'a [u8] {
        let closing = usize::from(self.is_string()); // its span leaves out the quotes
        self.text.get(self.node().end as usize + closing..).unwrap_or_default()
    }

    /// Where its source bytes stand.
    #[must_use]
    pub fn place(&self) -> Span {
        let node = self.node();
        Span::new(node.start as usize, node.end as usize)
    }

    /// The text of the whole document.
    #[must_use]
    pub const fn document(&self) -> &'a [u8] {
        self.text
    }

    /// The source bytes: of a string what stands between its quotes, of all else the whole text.
    #[inline]
    #[must_use]
    pub fn span(&self) -> &'a [u8] {
        let node = self.node();
        &self.text[node.start as usize..node.end as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Escape {
    Fine,
    /// Half a surrogate pair.
    Lone,
    /// Not an escape of the standard, or cut off.
    Unknown,
}

/// Decodes the escape that `text` begins with; the character, its length in bytes, and its oddness.
pub(super) fn unescape(text: &[u8]) -> (char, usize, Escape) {
    let simple = |c| (c, 2, Escape::Fine);
    match text.get(1) {
        Some(b'n') => simple('\n'),
        Some(b't') => simple('\t'),
        Some(b'r') => simple('\r'),
        Some(b'b') => simple('\u{8}'),
        Some(b'f') => simple('\u{c}'),
        Some(&c @ (b'"' | b'\\' | b'/')) => simple(char::from(c)),
        Some(b'u') => unicode(text),
        Some(c) if c.is_ascii() && *c >= 0x20 => (char::from(*c), 2, Escape::Unknown),
        _ => (char::REPLACEMENT_CHARACTER, 1, Escape::Unknown),
    }
}

fn unicode(text: &[u8]) -> (char, usize, Escape) {
    let Some(first) = hex4(text.get(2..6)) else { return (char::REPLACEMENT_CHARACTER, 2, Escape::Unknown) };
    if let Some(c) = char::from_u32(first) {
        return (c, 6, Escape::Fine);
    }
    let second = (text.get(6..8) == Some(b"\\u")).then(|| hex4(text.get(8..12))).flatten();
    match second {
        Some(low @ 0xdc00..=0xdfff) if first < 0xdc00 => {
            let c = 0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00);
            (char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER), 12, Escape::Fine)
        }
        _ => (char::REPLACEMENT_CHARACTER, 6, Escape::Lone),
    }
}

fn hex4(digits: Option<&[u8]>) -> Option<u32> {
    digits?.iter().try_fold(0, |n, &d| Some(n * 16 + char::from(d).to_digit(16)?))
}

/// What stands between the quotes of a string, decoded.
pub(in crate::wire) fn decode(span: &[u8]) -> String {
    let mut out = String::with_capacity(span.len());
    let mut at = 0;
    while at < span.len() {
        let plain = span[at..].iter().position(|&b| b == b'\\').unwrap_or(span.len() - at);
        out.push_str(&String::from_utf8_lossy(&span[at..at + plain]));
        at += plain;
        if at < span.len() {
            let (c, length, _) = unescape(&span[at..]);
            out.push(c);
            at += length;
        }
    }
    out
}
