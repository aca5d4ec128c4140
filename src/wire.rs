//! Bytes ⇄ what an answer says.
//!
//! Two steps. The framing readers ([`sse`], [`ndjson`]) cut a stream into documents and [`json`] reads
//! one document without insisting on anything. Then one file per wire turns a document (a whole answer
//! or one event of a stream) into [`Event`]s, the same for all wires, so that judgement never sees a
//! wire's field names. Nothing is mandatory: what is missing gives no event, what is odd gives
//! [`Event::Odd`].
//!
//! A new wire is one file with a `read` function, one line in [`read`] and one in [`Wire::substance`].

use crate::verdict::{Flag, Wire};

pub mod chat;
pub mod completions;
pub mod embeddings;
pub mod fault;
pub mod json;
pub mod kserve;
pub mod logprobs;
pub mod messages;
pub mod ndjson;
pub mod ollama;
pub mod rerank;
pub mod responses;
pub mod sse;
pub mod tensor;
pub mod tfserving;
pub mod usage;

pub use fault::{Fault, Kind as FaultKind};
pub use json::{Doc, Oddity, Scratch, Value};
pub use logprobs::Position;
pub use tensor::Tensor;
pub use usage::Counts;

/// Where text of an answer can stand. Tool calls are the fourth channel and have an event of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// What the user reads.
    Text,
    /// What the model thought aloud.
    Reasoning,
    /// The field for declining.
    Refusal,
}

/// A piece of a tool call; a whole one comes as a single piece.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolPiece<'a> {
    /// Position as given.
    pub index: Option<i64>,
    /// Whether the positions count calls only, so that a gap cannot be right.
    pub counts_calls: bool,
    /// Id of the call.
    pub id: Option<&'a str>,
    /// Name of the tool.
    pub name: Option<&'a str>,
    /// The next piece of the arguments' JSON text.
    pub arguments: &'a str,
    /// Whether the arguments are any text instead: a custom tool's input.
    pub free: bool,
}

/// One embedding.
#[derive(Clone, Copy, Debug)]
pub struct Vector<'a> {
    /// The components, capped.
    pub values: &'a [f32],
    /// Whether all are finite numbers.
    pub finite: bool,
    /// Whether it came as base64.
    pub encoded: bool,
    /// Whether the base64 could be read as 32-bit floats.
    pub readable: bool,
}

/// One fact of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The next piece of a channel; may be empty.
    Piece {
        /// Index of the choice.
        choice: u32,
        /// Which channel.
        channel: Channel,
        /// The text.
        text: &'a str,
    },
    /// A tool call, or a piece of one.
    ToolCall {
        /// Index of the choice.
        choice: u32,
        /// The piece.
        piece: ToolPiece<'a>,
    },
    /// Content that is no text: an image, sound.
    OtherContent {
        /// Index of the choice.
        choice: u32,
    },
    /// Probabilities of one token.
    Position {
        /// Index of the choice.
        choice: u32,
        /// The token and its alternatives.
        position: Position<'a>,
    },
    /// A choice ended, and why.
    Finish {
        /// Index of the choice.
        choice: u32,
        /// The wire's own word.
        reason: &'a str,
    },
    /// The provider's filter withheld something.
    Filtered,
    /// Token counts.
    Usage(Counts),
    /// The model's name as the answer has it; never empty.
    Model(&'a str),
    /// An error inside the answer.
    Error(&'a Fault),
    /// An embedding.
    Vector(Vector<'a>),
    /// The score of one document.
    Score {
        /// Place of the document in the request, as given.
        index: Option<i64>,
        /// The score as given; NaN for none.
        value: f64,
    },
    /// Vectors or scores in the answer, those not looked at included.
    Items(usize),
    /// A tensor.
    Tensor(Tensor<'a>),
    /// The wire's own terminal sign.
    End,
    /// Something that cannot be right.
    Odd(Flag),
}

/// Takes events.
pub type Emit<'e> = dyn FnMut(Event<'_>) + 'e;

/// What a document is of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form<'a> {
    /// All of it.
    Whole,
    /// One event or line of a stream, with the event's name; empty if it has none.
    Event(&'a [u8]),
}

/// What reading one answer has to remember from document to document.
#[derive(Debug, Default)]
pub struct Memory {
    told: responses::Told,
}

/// Turns one document into events; `memory` is of this answer alone.
pub fn read(wire: Wire, root: Value<'_>, form: Form<'_>, memory: &mut Memory, emit: &mut Emit<'_>) {
    let whole = form == Form::Whole;
    match wire {
        Wire::Chat => chat::read(root, whole, emit),
        Wire::Completions => completions::read(root, whole, emit),
        Wire::Messages => messages::read(root, form, emit),
        Wire::OllamaChat | Wire::OllamaGenerate => ollama::read(root, emit),
        Wire::Rerank => rerank::read(root, emit),
        Wire::Responses => responses::read(root, form, &mut memory.told, emit),
        Wire::Embeddings | Wire::OllamaEmbed => embeddings::read(root, emit),
        Wire::KserveInfer => kserve::read(root, kserve::Tail::default(), emit),
        Wire::TfPredict => tfserving::read(root, emit),
    }
}

/// Gives out a string as a piece of a channel.
fn text_event(text: Value<'_>, choice: u32, channel: Channel, emit: &mut Emit<'_>) {
    if text.has_lone_surrogate() {
        emit(Event::Odd(Flag::EncodingError));
    }
    if let Some(text) = text.string() {
        emit(Event::Piece { choice, channel, text: &text });
    }
}

/// The wire of a request path, with or without a query. A prefix before the wire's own path is fine.
#[must_use]
pub fn of_path(path: &str) -> Option<Wire> {
    let path = path.split(['?', '#']).next().unwrap_or(path).trim_end_matches('/');
    let ends = [
        ("/chat/completions", Wire::Chat),
        ("/completions", Wire::Completions),
        // llama.cpp's own path for the same.
        ("/completion", Wire::Completions),
        ("/embeddings", Wire::Embeddings),
        ("/responses", Wire::Responses),
        ("/messages", Wire::Messages),
        ("/rerank", Wire::Rerank),
        ("/api/chat", Wire::OllamaChat),
        ("/api/generate", Wire::OllamaGenerate),
        ("/api/embed", Wire::OllamaEmbed),
    ];
    if path.contains("/threads/") {
        return None; // messages put into a store, which nothing answers
    }
    if path.ends_with("/api/embeddings") {
        return Some(Wire::OllamaEmbed);
    }
    if path.contains("/models/") && path.ends_with("/infer") {
        return Some(Wire::KserveInfer);
    }
    if path.contains("/models/") && path.ends_with(":predict") {
        return Some(Wire::TfPredict);
    }
    ends.iter().find(|(end, _)| path.ends_with(end)).map(|(_, wire)| *wire)
}

#[cfg(test)]
mod tests;
