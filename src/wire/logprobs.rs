//! Token probabilities in all the layouts they come in.
//!
//! `content[]` (chat), the parallel arrays of the legacy completions, and the two native forms of
//! llama.cpp (logprobs, or linear probabilities). Any of them may stand on any wire. Values are given as
//! they are; what they are worth is judged elsewhere. A linear probability becomes its logarithm.

use super::Value;

/// A token, kept as it stands in the document until somebody asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Token<'a> {
    text: Option<Value<'a>>,
    bytes: Option<Value<'a>>,
}

impl Token<'_> {
    /// The token's bytes; of its text if no bytes are given (a token may be a part of a character).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes: Option<Vec<u8>> = self.bytes.and_then(|b| {
            b.numbers()
                .map(|n| n.filter(|n| (0.0..256.0).contains(n)).map(|n| n as u8))
                .collect::<Option<Vec<u8>>>()
        });
        match (bytes, self.text) {
            (Some(bytes), _) if !bytes.is_empty() => bytes,
            (_, Some(text)) => text.string().map(|s| s.into_owned().into_bytes()).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    /// Whether both are the same token, as far as the document tells.
    #[must_use]
    pub fn is(&self, other: &Token<'_>) -> bool {
        match (self.bytes, other.bytes, self.text, other.text) {
            (Some(a), Some(b), ..) => a.span() == b.span(),
            (.., Some(a), Some(b)) => a.span() == b.span(),
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

/// One token of the answer.
#[derive(Clone, Copy, Debug)]
pub struct Position<'a> {
    /// The token that was sampled.
    pub token: Token<'a>,
    /// Its logprob as given, nats; NaN for `null` or none.
    pub logprob: f64,
    /// What else might have come, as given: in any order, perhaps with the sampled token.
    pub alternatives: &'a [Alternative<'a>],
    /// Where the token begins in the text, characters (legacy layout).
    pub offset: Option<i64>,
}

/// Gives out the positions of a `logprobs` member.
pub fn read(logprobs: Value<'_>, emit: &mut dyn FnMut(Position<'_>)) {
    for channel in ["content", "refusal"] {
        if let Some(list) = logprobs.field(channel) {
            entries(list, emit);
        }
    }
    if logprobs.field("token_logprobs").is_some() || logprobs.field("tokens").is_some() {
        legacy(logprobs, emit);
    }
    if logprobs.is_array() {
        entries(logprobs, emit);
    }
}

/// Gives out the positions of a list of objects: the chat layout, or llama.cpp's `completion_probabilities`.
pub fn entries(list: Value<'_>, emit: &mut dyn FnMut(Position<'_>)) {
    let mut alternatives = Vec::with_capacity(24);
    for entry in list.items() {
        alternatives.clear();
        let mut top = None;
        let own = alternative(entry, Some(&mut top));
        if let Some(top) = top {
            list_alternatives(top, &mut alternatives);
        }
        // The oldest native form names the sampled token without its probability.
        let listed = || alternatives.iter().find(|a| a.token.is(&own.token)).map(|a| a.logprob);
        let logprob = if own.logprob.is_nan() { listed().unwrap_or(f64::NAN) } else { own.logprob };
        emit(Position { token: own.token, logprob, alternatives: &alternatives, offset: None });
    }
}

fn list_alternatives<'a>(top: Value<'a>, out: &mut Vec<Alternative<'a>>) {
    out.extend(top.items().map(|entry| alternative(entry, None)));
    out.extend(top.members().map(|(name, value)| Alternative {
        token: Token { text: Some(name), bytes: None },
        logprob: value.number().unwrap_or(f64::NAN),
    }));
}

fn alternative<'a>(entry: Value<'a>, mut top: Option<&mut Option<Value<'a>>>) -> Alternative<'a> {
    let mut token = Token::default();
    let mut logprob = f64::NAN;
    for (name, value) in entry.members() {
        match name.span() {
            b"token" | b"tok_str" | b"content" if value.is_string() => token.text = Some(value),
            b"bytes" if value.is_array() => token.bytes = Some(value),
            b"logprob" => logprob = value.rough_number().unwrap_or(f64::NAN),
            b"prob" => logprob = value.number().map_or(f64::NAN, f64::ln),
            b"top_logprobs" | b"top_probs" | b"probs" => {
                if let Some(top) = top.as_deref_mut() {
                    *top = Some(value);
                }
            }
            _ => {}
        }
    }
    Alternative { token, logprob }
}

fn legacy(logprobs: Value<'_>, emit: &mut dyn FnMut(Position<'_>)) {
    let mut tokens = logprobs.field("tokens").into_iter().flat_map(|v| v.items());
    let mut own = logprobs.field("token_logprobs").into_iter().flat_map(|v| v.numbers());
    let mut top = logprobs.field("top_logprobs").into_iter().flat_map(|v| v.items());
    let mut offsets = logprobs.field("text_offset").into_iter().flat_map(|v| v.numbers());
    let mut alternatives = Vec::with_capacity(24);
    loop {
        let (token, logprob) = (tokens.next(), own.next());
        if token.is_none() && logprob.is_none() {
            return;
        }
        alternatives.clear();
        if let Some(top) = top.next() {
            list_alternatives(top, &mut alternatives);
        }
        let offset = offsets.next().flatten().filter(|o| o.is_finite()).map(|o| o as i64);
        emit(Position {
            token: Token { text: token, bytes: None },
            logprob: logprob.flatten().unwrap_or(f64::NAN),
            alternatives: &alternatives,
            offset,
        });
    }
}
