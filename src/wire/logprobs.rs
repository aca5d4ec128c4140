//! Token probabilities in all the layouts they come in.
//!
//! `content[]` (chat), the parallel arrays of the legacy completions, and the two native forms of
//! llama.cpp (logprobs, or linear probabilities). Any of them may stand on any wire. Values are given as
//! they are; what they are worth is judged elsewhere. A linear probability becomes its logarithm.

use super::Value;
use super::json::{Entry, Span, decode, numbers};

/// A token, kept as it stands in the document until somebody asks.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// What stands between the quotes.
    text: Option<&'a [u8]>,
    /// An array.
    bytes: Option<&'a [u8]>,
    /// Its text is a string, and not something in a string's place.
    is_string: bool,
}

impl<'a> Token<'a> {
    #[inline]
    fn of(document: &'a [u8], entry: &Entry) -> Self {
        Self { text: entry.token.of(document), bytes: entry.bytes.of(document), is_string: true }
    }

    /// The token's bytes; of its text if no bytes are given (a token may be a part of a character).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let byte = |n: Option<f64>| n.filter(|n| (0.0..256.0).contains(n)).map(|n| n as u8);
        match self.bytes.and_then(|array| numbers(array).map(byte).collect::<Option<Vec<u8>>>()) {
            Some(bytes) if !bytes.is_empty() => bytes,
            _ => {
                self.text.filter(|_| self.is_string).map(|text| decode(text).into_bytes()).unwrap_or_default()
            }
        }
    }

    /// Whether both are the same token, as far as the document tells.
    #[inline]
    #[must_use]
    pub fn is(&self, other: &Token<'_>) -> bool {
        match (self.bytes, other.bytes, self.text, other.text) {
            (Some(a), Some(b), ..) => a == b,
            (.., Some(a), Some(b)) => a == b,
            _ => false,
        }
    }
}

/// One of the tokens that might have come.
#[derive(Clone, Copy, Debug)]
pub struct Alternative<'a> {
    /// The token.
    pub token: Token<'a>,
    /// Its logprob as given, nats; NaN for `null`.
    pub logprob: f64,
}

/// The tokens that might have come, as given: in any order, perhaps with the sampled token.
#[derive(Clone, Copy, Debug)]
pub struct Alternatives<'a> {
    document: &'a [u8],
    entries: &'a [Entry],
}

impl<'a> Alternatives<'a> {
    /// One after another.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Alternative<'a>> {
        self.entries.iter().map(move |entry| Alternative {
            token: Token::of(self.document, entry),
            logprob: entry.logprob.value(),
        })
    }

    /// The logprob of each, and whether it is that of `token`.
    #[inline]
    pub fn beside(self, token: &Token<'a>) -> impl ExactSizeIterator<Item = (f64, bool)> {
        self.entries.iter().map(move |entry| {
            // Nearly all others have another length.
            let may_be =
                token.bytes.is_none_or(|b| entry.bytes == Span::NONE || entry.bytes.length() == b.len());
            (entry.logprob.value(), may_be && Token::of(self.document, entry).is(token))
        })
    }
}

/// One token of the answer.
#[derive(Clone, Copy, Debug)]
pub struct Position<'a> {
    /// The token that was sampled.
    pub token: Token<'a>,
    /// Its logprob as given, nats; NaN for `null` or none.
    pub logprob: f64,
    /// What else might have come.
    pub alternatives: Alternatives<'a>,
    /// Where the token begins in the text, characters (legacy layout).
    pub offset: Option<i64>,
}

/// Gives out the positions of a `logprobs` member.
pub fn read(logprobs: Value<'_>, emit: &mut dyn FnMut(Position<'_>)) {
    let (mut content, mut refusal, mut is_legacy) = (None, None, false);
    for (name, value) in logprobs.members().filter(|(_, value)| !value.is_null()) {
        match name.span() {
            b"content" => content = Some(value),
            b"refusal" => refusal = Some(value),
            b"token_logprobs" | b"tokens" => is_legacy = true,
            _ => {}
        }
    }
    for list in [content, refusal].into_iter().flatten() {
        entries(list, emit);
    }
    if is_legacy {
        legacy(logprobs, emit);
    }
    if logprobs.is_array() {
        entries(logprobs, emit);
    }
}

/// Gives out the positions of a list of objects: the chat layout, or llama.cpp's `completion_probabilities`.
pub fn entries(list: Value<'_>, emit: &mut dyn FnMut(Position<'_>)) {
    let document = list.document();
    let mut room = Vec::new();
    for entry in list.items() {
        let (own, top) = entry_of(entry);
        let alternatives = Alternatives { document, entries: alternatives(top, &mut room) };
        let token = Token::of(document, &own);
        // The oldest native form names the sampled token without its probability.
        let listed = || alternatives.iter().find(|a| a.token.is(&token)).map(|a| a.logprob);
        let own = own.logprob.value();
        let logprob = if own.is_nan() { listed().unwrap_or(f64::NAN) } else { own };
        emit(Position { token, logprob, alternatives, offset: None });
    }
}

/// The alternatives in a list of objects, or in an object of logprobs by their tokens. `room` is for those that the
/// document does not keep ready.
fn alternatives<'a>(top: Option<Value<'a>>, room: &'a mut Vec<Entry>) -> &'a [Entry] {
    let Some(top) = top else { return &[] };
    if let Some(ready) = top.alternatives() {
        return ready;
    }
    room.clear();
    room.extend(top.items().map(|entry| entry_of(entry).0));
    room.extend(top.members().map(|(name, value)| Entry {
        token: name.place(),
        bytes: Span::NONE,
        logprob: value.number().unwrap_or(f64::NAN).into(),
    }));
    room
}

/// A token and its logprob, and what lists its alternatives.
fn entry_of(value: Value<'_>) -> (Entry, Option<Value<'_>>) {
    let mut entry = Entry::EMPTY;
    let mut top = None;
    for (name, value) in value.members() {
        match name.span() {
            b"token" | b"tok_str" | b"content" if value.is_string() => entry.token = value.place(),
            b"bytes" if value.is_array() => entry.bytes = value.place(),
            b"logprob" => entry.logprob = value.rough_number().unwrap_or(f64::NAN).into(),
            b"prob" => entry.logprob = value.number().map_or(f64::NAN, f64::ln).into(),
            b"top_logprobs" | b"top_probs" | b"probs" => top = Some(value),
            _ => {}
        }
    }
    (entry, top)
}

fn legacy(logprobs: Value<'_>, emit: &mut dyn FnMut(Position<'_>)) {
    let mut tokens = logprobs.field("tokens").into_iter().flat_map(|v| v.items());
    let mut own = logprobs.field("token_logprobs").into_iter().flat_map(|v| v.numbers());
    let mut top = logprobs.field("top_logprobs").into_iter().flat_map(|v| v.items());
    let mut offsets = logprobs.field("text_offset").into_iter().flat_map(|v| v.numbers());
    let document = logprobs.document();
    let mut room = Vec::new();
    loop {
        let (token, logprob) = (tokens.next(), own.next());
        if token.is_none() && logprob.is_none() {
            return;
        }
        let offset = offsets.next().flatten().filter(|o| o.is_finite()).map(|o| o as i64);
        emit(Position {
            token: Token {
                text: token.map(|t| t.span()),
                bytes: None,
                is_string: token.is_some_and(|t| t.is_string()),
            },
            logprob: logprob.flatten().unwrap_or(f64::NAN),
            alternatives: Alternatives { document, entries: alternatives(top.next(), &mut room) },
            offset,
        });
    }
}
