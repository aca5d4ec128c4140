//! Ollama's `/api/chat` and `/api/generate`: lines of JSON; a call comes in one of them.

use std::time::{Duration, UNIX_EPOCH};

use axum::body::Bytes;
use serde_json::{Value, json};

use super::super::decode::{Chunk, End};
use super::super::render::{Choice, Frame, content};
use super::super::request::Wire;
use super::super::vocab::Vocab;
use super::line;

#[derive(Debug)]
pub(in super::super) struct Voice {
    frame: Frame,
    arguments: String,
    end: End,
}

impl Voice {
    pub(super) fn new(frame: Frame) -> Self {
        Self { frame, arguments: String::new(), end: End::Stop }
    }

    fn said(&self, text: &str, done: bool) -> Value {
        let mut value = shell(&self.frame.model, self.frame.created, self.frame.wire, text);
        value["done"] = done.into();
        value
    }

    /// A call, or its text where the model did not write JSON.
    fn call(&self, arguments: &str, done: bool) -> Value {
        let Some(tool) = &self.frame.tool else { return self.said(arguments, done) };
        let Ok(read) = serde_json::from_str::<Value>(arguments) else { return self.said(arguments, done) };
        let mut value = self.said("", done);
        let function = json!({ "index": 0, "name": tool.name, "arguments": read });
        value["message"]["tool_calls"] =
            json!([{ "id": format!("call_{}", self.frame.id), "function": function }]);
        value
    }

    fn finish(&self, mut value: Value, end: End, prompt: usize, made: usize) -> Value {
        value["done"] = true.into();
        value["done_reason"] = if end == End::Length { "length" } else { "stop" }.into();
        for (name, count) in [("prompt_eval_count", prompt), ("eval_count", made)] {
            value[name] = count.into();
        }
        for name in ["total_duration", "load_duration", "prompt_eval_duration", "eval_duration"] {
            value[name] = 1.into();
        }
        value
    }

    pub(super) fn whole(&self, vocab: &Vocab, choice: &Choice, prompt: usize, made: usize) -> Value {
        let mut value = self.call(&choice.chunk.text, true);
        if self.frame.logprobs {
            value["logprobs"] = content(vocab, &choice.chunk.steps)["content"].take();
        }
        self.finish(value, choice.end, prompt, made)
    }

    pub(super) fn piece(&mut self, vocab: &Vocab, chunk: &Chunk) -> Vec<Bytes> {
        if self.frame.tool.is_some() {
            self.arguments.push_str(&chunk.text);
            return Vec::new();
        }
        let mut value = self.said(&chunk.text, false);
        if self.frame.logprobs {
            value["logprobs"] = content(vocab, &chunk.steps)["content"].take();
        }
        vec![line(&value)]
    }

    pub(super) fn closing(&mut self, end: End) -> Vec<Bytes> {
        self.end = end;
        let call = self.frame.tool.is_some().then(|| line(&self.call(&self.arguments, false)));
        call.into_iter().collect()
    }

    pub(super) fn last(&self, prompt: usize, made: usize) -> Vec<Bytes> {
        vec![line(&self.finish(self.said("", true), self.end, prompt, made))]
    }
}

fn shell(model: &str, created: u64, wire: Wire, text: &str) -> Value {
    let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(created)).to_string();
    let mut value = json!({ "model": model, "created_at": at });
    match wire {
        Wire::OllamaGenerate => value["response"] = text.into(),
        _ => value["message"] = json!({ "role": "assistant", "content": text }),
    }
    value
}

pub(super) fn loaded(model: &str, created: u64, wire: Wire, reason: &str) -> Value {
    let mut value = shell(model, created, wire, "");
    value["done"] = true.into();
    value["done_reason"] = reason.into();
    value
}
