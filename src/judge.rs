//! What one answer means: the wire's events, the text's features and the logprobs' entropy together
//! become flags, a fault class and signals.
//!
//! The proxy feeds a copy of the bytes as they pass, the prober and `touchstone score` feed a whole
//! answer; the same code judges all three. Bounded state, one pass, no clock: time is an argument.

use std::sync::Arc;

use crate::sample::{Signals, TopK, Usage};
use crate::verdict::{FaultClass, Flag, FlagSet, Wire};
use crate::wire::Doc;

mod answer;
mod ask;
mod body;
pub mod check;
mod choice;
mod classes;
mod conclude;
mod confidence;
mod dimensions;
mod encoding;
mod framed;
mod retry_after;
pub mod schema;
mod scores;
mod tensors;
mod usage;
mod vectors;

pub use crate::text::Depth;
pub use ask::Ask;
pub use dimensions::Dimensions;
pub use retry_after::retry_after;

use answer::Answer;
use body::{Body, Unit};

/// The head of a response, as far as judgement needs it.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// HTTP status.
    pub status: u16,
    /// `content-type`.
    pub content_type: Option<String>,
    /// `content-encoding`.
    pub content_encoding: Option<String>,
    /// `content-length`.
    pub content_length: Option<u64>,
    /// `inference-header-content-length` (KServe): where the JSON document ends and raw tensors begin, as the
    /// upstream wrote it.
    pub inference_header_length: Option<String>,
}

/// How the answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The upstream ended the body in order.
    Complete,
    /// The upstream's connection broke, or its body was shorter than declared.
    Broken,
    /// The caller left.
    ClientGone,
    /// A limit ran out.
    TimedOut(Limit),
    /// The daemon ended it, because what had come was unusable.
    Stopped,
}

/// Which limit ran out; `[limits]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Until the connection stood.
    Connect,
    /// Until the response headers.
    Headers,
    /// Until the first text of a stream.
    FirstText,
    /// Between two pieces of progress of a stream.
    StreamIdle,
    /// Whole duration.
    Total,
    /// Tokens per second.
    TokenRate,
}

/// Where the answer stands after a piece of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Text, reasoning, a tool call or a refusal has been seen.
    pub has_content: bool,
    /// This piece brought content (keep-alives, role-only and empty chunks do not).
    pub progressed: bool,
    /// Events of this piece that brought content; about one a token.
    pub events: u32,
    /// The terminal sign has been seen.
    pub terminal: bool,
    /// The body turned out to be a stream, whatever its head said.
    pub is_stream: bool,
    /// Flags that already stand and will not be withdrawn; see [`Judge::catch_up`].
    pub flags: FlagSet,
}

/// What an answer turned out to be.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// All flags.
    pub flags: FlagSet,
    /// Whose fault; `None` is a sound answer.
    pub class: Option<FaultClass>,
    /// Measured meaning.
    pub signals: Signals,
    /// Token counts.
    pub usage: Usage,
    /// Until first text, milliseconds.
    pub ttft_ms: Option<u64>,
    /// Output tokens ÷ seconds after the first text.
    pub tokens_per_second: Option<f64>,
    /// Finish reason of the first choice.
    pub finish_reason: Option<String>,
    /// Model named by the answer.
    pub model: Option<String>,
    /// First position's alternatives.
    pub first_position: Option<TopK>,
    /// Answer text of the first choice, capped.
    pub text: Arc<str>,
    /// Names and argument texts of tool calls of the first choice, capped.
    pub tool_calls: Vec<(String, String)>,
    /// Cause of an empty answer, in a closed word.
    pub empty_cause: Option<&'static str>,
    /// Error message of the upstream, capped.
    pub error: Option<String>,
    /// `retry_after` found in the body, milliseconds.
    pub retry_after_ms: Option<u64>,
    /// Whether only a part could be analysed.
    pub partial: bool,
    /// Whether the texts were read lightly.
    pub light: bool,
    /// First vector of an embeddings answer.
    pub embedding: Option<Vec<f32>>,
    /// Whether the body came as a stream.
    pub streamed: bool,
    /// Positions with a valid logprob.
    pub logprob_positions: u64,
    /// The fault will not pass by itself (quota, filter, a refused request): no retry on the same tier.
    pub lasting: bool,
}

/// Judges one answer while it arrives.
#[derive(Debug)]
pub struct Judge {
    ask: Arc<Ask>,
    head: Head,
    body: Body,
    doc: Doc,
    answer: Answer,
    first_byte_ms: Option<u64>,
}

impl Judge {
    /// Begins with the response's head, and reads everything.
    #[must_use]
    pub fn new(ask: Arc<Ask>, head: Head) -> Self {
        Self::with_depth(ask, head, Depth::Full)
    }

    /// Begins with the response's head.
    #[must_use]
    pub fn with_depth(ask: Arc<Ask>, head: Head, depth: Depth) -> Self {
        let body = Body::new(&head, ask.wire, ask.stream);
        let answer = Answer::new(&ask, depth);
        Self { ask, head, body, doc: Doc::default(), answer, first_byte_ms: None }
    }

    /// Takes the next bytes of the body, `at_ms` after the attempt's start.
    pub fn push(&mut self, at_ms: u64, bytes: &[u8]) -> Progress {
        let Self { ask, body, doc, answer, .. } = self;
        let mut events = 0;
        let substance =
            body.push(bytes, &mut |unit| events += u32::from(take(unit, doc, answer, at_ms, ask)));
        if self.body.has_begun() {
            self.first_byte_ms.get_or_insert(at_ms);
        }
        self.progress(events > 0 || substance, events)
    }

    /// Where the answer stands with all its text read: pieces of text are gathered, and the last few bytes may raise a
    /// flag that [`Self::push`] does not tell yet. For what is decided for good.
    pub fn catch_up(&mut self) -> Progress {
        self.answer.catch_up();
        self.progress(false, 0)
    }

    fn progress(&self, progressed: bool, events: u32) -> Progress {
        let mut flags = self.answer.flags_now();
        if self.answer.fault.is_some() && self.body.is_stream() {
            flags.insert(Flag::StreamErrorEvent);
        }
        Progress {
            has_content: self.answer.has_content,
            progressed,
            events,
            terminal: self.answer.marked_end || self.answer.all_finished(),
            is_stream: self.body.is_stream(),
            flags,
        }
    }

    /// Ends, `at_ms` after the attempt's start.
    #[must_use]
    pub fn finish(self, at_ms: u64, end: End) -> Verdict {
        let Self { ask, head, body, mut doc, mut answer, first_byte_ms } = self;
        let (received, bad_encoding) = (body.received, body.has_bad_encoding());
        let (partial, cut_encoding) = (body.is_partial(), body.is_cut());
        let expects_stream = ask.stream || body.expects_sse;
        let rest = body.finish(&mut |unit| {
            take(unit, &mut doc, &mut answer, at_ms, &ask);
        });
        let seen = conclude::Seen {
            ask: &ask,
            head: &head,
            answer,
            rest,
            received,
            first_byte_ms,
            bad_encoding,
            cut_encoding,
            partial,
            broken: false,
            expects_stream,
            at_ms,
            end,
        };
        seen.conclude()
    }
}

/// After a longer event the reader's memory is given back, bytes.
const LONG_EVENT: usize = 32 << 10;

/// Takes one unit of a stream; true if it brought content.
fn take(unit: Unit<'_>, doc: &mut Doc, answer: &mut Answer, at_ms: u64, ask: &Ask) -> bool {
    let is_line = matches!(unit, Unit::Line(_));
    let (name, data) = match unit {
        Unit::Event(name, data) => {
            answer.has_events = true;
            (name, data.trim_ascii())
        }
        Unit::Line(data) => (&b""[..], data),
        Unit::Comment => return false,
        Unit::Dropped => {
            answer.partial = true;
            return false;
        }
    };
    if data.is_empty() {
        return false;
    }
    if is_done(data) {
        answer.mark_end();
        return false;
    }
    let (root, odd) = doc.parse(data);
    if odd.cut {
        answer.partial = true;
    }
    if !odd.is_standard() || root.is_none() {
        answer.flags.insert(Flag::UnparseableEvent);
    }
    if odd.invalid_utf8 {
        answer.flags.insert(Flag::EncodingError);
    }
    let Some(root) = root else { return false };
    if is_line && matches!(ask.wire, Wire::OllamaChat | Wire::OllamaGenerate) {
        answer.has_events |= root.field("done").is_some();
    }
    if name == b"error" && answer.fault.is_none() {
        answer.fault = Some(crate::wire::Fault::of(root.field("error").unwrap_or(root), root));
    }
    let content = answer.document(root, crate::wire::Form::Event(name), at_ms, ask);
    if data.len() > LONG_EVENT {
        doc.shrink();
    }
    content
}

/// `[DONE]`, as any server spells it.
fn is_done(data: &[u8]) -> bool {
    let bare = data.strip_prefix(b"\"").and_then(|d| d.strip_suffix(b"\"")).unwrap_or(data);
    bare.eq_ignore_ascii_case(b"[DONE]")
}

#[cfg(test)]
mod tests;
