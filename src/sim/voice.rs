//! Answers in the layout and framing of each wire: the same text, said as each has it.

use axum::body::Bytes;
use serde_json::{Value, json};

use super::decode::{Chunk, End};
use super::render::{self, Choice, Frame};
use super::request::Wire;
use super::vocab::Vocab;

mod messages;
mod ollama;
mod responses;

/// One answer's way of speaking.
#[derive(Debug)]
pub(super) enum Voice {
    /// Chat and completions, and how far each choice's text has come.
    OpenAi(Frame, Vec<usize>),
    Responses(Box<responses::Voice>),
    Messages(messages::Voice),
    Ollama(ollama::Voice),
}

impl Voice {
    pub(super) fn new(frame: Frame, choices: usize) -> Self {
        match frame.wire {
            Wire::Chat | Wire::Completions => Self::OpenAi(frame, vec![0; choices]),
            Wire::Responses => Self::Responses(Box::new(responses::Voice::new(frame))),
            Wire::Messages => Self::Messages(messages::Voice::new(frame)),
            Wire::OllamaChat | Wire::OllamaGenerate => Self::Ollama(ollama::Voice::new(frame)),
        }
    }

    /// Content type of a stream.
    pub(super) fn stream_type(&self) -> &'static str {
        match self {
            Self::Ollama(_) => "application/x-ndjson",
            _ => "text/event-stream; charset=utf-8",
        }
    }

    /// The whole answer.
    pub(super) fn whole(&self, vocab: &Vocab, choices: &[Choice], prompt: usize, made: usize) -> Value {
        let nothing = Choice { chunk: Chunk::default(), end: End::Stop };
        let first = choices.first().unwrap_or(&nothing);
        match self {
            Self::OpenAi(frame, _) => frame.whole(vocab, choices, render::usage(prompt, made)),
            Self::Responses(voice) => voice.whole(vocab, first, prompt, made),
            Self::Messages(voice) => voice.whole(first, prompt, made),
            Self::Ollama(voice) => voice.whole(vocab, first, prompt, made),
        }
    }

    /// What stands before the first text of a choice.
    pub(super) fn opening(&mut self, index: usize, prompt: usize) -> Vec<Bytes> {
        match self {
            Self::OpenAi(frame, _) => frame.opening(index).iter().map(data).collect(),
            Self::Responses(voice) => voice.opening(),
            Self::Messages(voice) => voice.opening(prompt),
            Self::Ollama(_) => Vec::new(),
        }
    }

    /// The next text of a choice.
    pub(super) fn piece(&mut self, vocab: &Vocab, index: usize, chunk: &Chunk) -> Vec<Bytes> {
        match self {
            Self::OpenAi(frame, offsets) => {
                let event = frame.piece(vocab, index, chunk, offsets[index]);
                offsets[index] += chunk.text.chars().count();
                vec![data(&event)]
            }
            Self::Responses(voice) => voice.piece(vocab, chunk),
            Self::Messages(voice) => voice.piece(chunk),
            Self::Ollama(voice) => voice.piece(vocab, chunk),
        }
    }

    /// The end of a choice.
    pub(super) fn closing(&mut self, index: usize, end: End, made: usize) -> Vec<Bytes> {
        match self {
            Self::OpenAi(frame, _) => vec![data(&frame.closing(index, end))],
            Self::Responses(voice) => voice.closing(end),
            Self::Messages(voice) => voice.closing(end, made),
            Self::Ollama(voice) => voice.closing(end),
        }
    }

    /// The end of the answer.
    pub(super) fn last(&mut self, prompt: usize, made: usize, include_usage: bool) -> Vec<Bytes> {
        match self {
            Self::OpenAi(frame, _) => {
                let usage = include_usage.then(|| data(&frame.usage(render::usage(prompt, made))));
                usage.into_iter().chain([Bytes::from_static(b"data: [DONE]\n\n")]).collect()
            }
            Self::Responses(voice) => voice.last(prompt, made),
            Self::Messages(_) => vec![event(&json!({ "type": "message_stop" }))],
            Self::Ollama(voice) => voice.last(prompt, made),
        }
    }
}

fn data(event: &Value) -> Bytes {
    Bytes::from(format!("data: {event}\n\n"))
}

/// An event that bears its own name.
fn event(event: &Value) -> Bytes {
    Bytes::from(format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default()))
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

/// An error as the wire has it.
pub(super) fn error(wire: Wire, message: &str, kind: &str, param: Option<&str>, code: Option<&str>) -> Value {
    match wire {
        Wire::Messages => json!({ "type": "error", "error": { "type": kind, "message": message } }),
        Wire::OllamaChat | Wire::OllamaGenerate => json!({ "error": message }),
        Wire::Chat | Wire::Completions | Wire::Responses => {
            json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
        }
    }
}

/// The answer to a call that only loads or unloads the model.
pub(super) fn loaded(model: &str, created: u64, wire: Wire, reason: &str) -> Value {
    ollama::loaded(model, created, wire, reason)
}
