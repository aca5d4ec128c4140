//! What one answer means: the wire's events, the text's features and the logprobs' entropy together
//! become flags, a fault class and signals.
//!
//! The proxy feeds a copy of the bytes as they pass, the prober and `touchstone score` feed a whole
//! answer; the same code judges all three. Bounded state, one pass, no clock: time is an argument.

use crate::sample::{Signals, TopK, Usage};
use crate::verdict::{FaultClass, FlagSet, Wire};

/// What the caller asked for, read once from the request's body. A body that cannot be read leaves
/// everything unknown: the upstream may know better.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Protocol.
    pub wire: Wire,
    /// `model` as the caller wrote it.
    pub model: Option<String>,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// Choices asked for.
    pub choices: u32,
    /// Whether logprobs were asked for.
    pub logprobs: bool,
    /// Limit of the answer, tokens.
    pub max_tokens: Option<u64>,
    /// Prompt tokens, estimated as bytes ÷ 4.
    pub input_tokens_estimate: u64,
    /// The last user message or prompt, capped, for the embedder.
    pub prompt_text: String,
    /// Hash over the whole body; equal requests are equal.
    pub request_hash: u64,
    /// Whether the body was readable JSON.
    pub readable: bool,
}

impl Ask {
    /// Reads the request's body.
    #[must_use]
    pub fn parse(wire: Wire, body: &[u8]) -> Self {
        let _ = (wire, body);
        unimplemented!("judge")
    }
}

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
    /// The terminal sign has been seen.
    pub terminal: bool,
    /// Flags that already stand and will not be withdrawn.
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
    pub text: String,
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
}

/// Judges one answer while it arrives.
#[derive(Debug)]
pub struct Judge {}

impl Judge {
    /// Begins with the response's head.
    #[must_use]
    pub fn new(ask: std::sync::Arc<Ask>, head: Head) -> Self {
        let _ = (ask, head);
        unimplemented!("judge")
    }

    /// Takes the next bytes of the body, `at_ms` after the attempt's start.
    pub fn push(&mut self, at_ms: u64, bytes: &[u8]) -> Progress {
        let _ = (at_ms, bytes);
        unimplemented!("judge")
    }

    /// Ends, `at_ms` after the attempt's start.
    #[must_use]
    pub fn finish(self, at_ms: u64, end: End) -> Verdict {
        let _ = (at_ms, end);
        unimplemented!("judge")
    }
}
