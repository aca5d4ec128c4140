//! `/v1/responses`: one item, a message or a call, told in pieces, as a part, as an item and in whole.

use axum::body::Bytes;
use serde_json::{Value, json};

use super::super::decode::{Chunk, End};
use super::super::render::{Choice, Frame, content};
use super::super::vocab::Vocab;
use super::event;

#[derive(Debug)]
pub(in super::super) struct Voice {
    frame: Frame,
    number: u64,
    text: String,
    logprobs: Vec<Value>,
    end: End,
}

impl Voice {
    pub(super) fn new(frame: Frame) -> Self {
        Self { frame, number: 0, text: String::new(), logprobs: Vec::new(), end: End::Stop }
    }

    fn item_id(&self) -> String {
        let kind = if self.frame.tool.is_some() { "fc" } else { "msg" };
        format!("{kind}_{}", self.frame.id)
    }

    fn item(&self, text: &str, logprobs: &[Value], status: &str) -> Value {
        match &self.frame.tool {
            Some(tool) => json!({
                "id": self.item_id(), "type": "function_call", "status": status,
                "call_id": format!("call_{}", self.frame.id), "name": tool.name, "arguments": text,
            }),
            None => json!({
                "id": self.item_id(), "type": "message", "status": status, "role": "assistant",
                "content": if status == "in_progress" { json!([]) } else { json!([part(text, logprobs)]) },
            }),
        }
    }

    fn response(&self, status: &str, end: End, output: &[Value], usage: Value) -> Value {
        let details =
            (end == End::Length && status != "in_progress").then(|| json!({ "reason": "max_output_tokens" }));
        json!({
            "id": self.frame.id, "object": "response", "created_at": self.frame.created, "status": status,
            "background": false, "error": null, "incomplete_details": details, "instructions": null,
            "max_output_tokens": null, "metadata": {}, "model": self.frame.model, "output": output,
            "parallel_tool_calls": true, "previous_response_id": null, "reasoning": { "effort": null, "summary": null },
            "store": false, "temperature": 1.0, "text": { "format": { "type": "text" } }, "tool_choice": "auto",
            "tools": [], "top_p": 1.0, "truncation": "disabled", "usage": usage,
        })
    }

    pub(super) fn whole(&self, vocab: &Vocab, choice: &Choice, prompt: usize, made: usize) -> Value {
        let list = content(vocab, &choice.chunk.steps)["content"].as_array().cloned().unwrap_or_default();
        let logprobs: &[Value] = if self.frame.logprobs { &list } else { &[] };
        let status = status(choice.end);
        let item = self.item(&choice.chunk.text, logprobs, status);
        self.response(status, choice.end, &[item], usage(prompt, made))
    }

    fn tell(&mut self, mut value: Value) -> Bytes {
        value["sequence_number"] = self.number.into();
        self.number += 1;
        event(&value)
    }

    fn place(&self, kind: &str) -> Value {
        let mut value = json!({ "type": kind, "item_id": self.item_id(), "output_index": 0 });
        if self.frame.tool.is_none() {
            value["content_index"] = 0.into();
        }
        value
    }

    pub(super) fn opening(&mut self) -> Vec<Bytes> {
        let started = self.response("in_progress", End::Stop, &[], Value::Null);
        let item = self.item("", &[], "in_progress");
        let mut all = vec![
            self.tell(json!({ "type": "response.created", "response": started })),
            self.tell(json!({ "type": "response.in_progress", "response": started })),
            self.tell(json!({ "type": "response.output_item.added", "output_index": 0, "item": item })),
        ];
        if self.frame.tool.is_none() {
            let mut added = self.place("response.content_part.added");
            added["part"] = part("", &[]);
            all.push(self.tell(added));
        }
        all
    }

    pub(super) fn piece(&mut self, vocab: &Vocab, chunk: &Chunk) -> Vec<Bytes> {
        self.text.push_str(&chunk.text);
        let mut piece = if self.frame.tool.is_some() {
            self.place("response.function_call_arguments.delta")
        } else {
            let list =
                if self.frame.logprobs { content(vocab, &chunk.steps)["content"].take() } else { json!([]) };
            self.logprobs.extend(list.as_array().cloned().unwrap_or_default());
            let mut piece = self.place("response.output_text.delta");
            piece["logprobs"] = list;
            piece
        };
        piece["delta"] = chunk.text.as_str().into();
        vec![self.tell(piece)]
    }

    pub(super) fn closing(&mut self, end: End) -> Vec<Bytes> {
        self.end = end;
        let item = self.item(&self.text, &self.logprobs, status(end));
        let mut all = Vec::new();
        if self.frame.tool.is_some() {
            let mut done = self.place("response.function_call_arguments.done");
            done["arguments"] = self.text.as_str().into();
            all.push(self.tell(done));
        } else {
            let mut done = self.place("response.output_text.done");
            done["text"] = self.text.as_str().into();
            done["logprobs"] = self.logprobs.clone().into();
            all.push(self.tell(done));
            let mut done = self.place("response.content_part.done");
            done["part"] = part(&self.text, &self.logprobs);
            all.push(self.tell(done));
        }
        all.push(self.tell(json!({ "type": "response.output_item.done", "output_index": 0, "item": item })));
        all
    }

    pub(super) fn last(&mut self, prompt: usize, made: usize) -> Vec<Bytes> {
        let item = self.item(&self.text, &self.logprobs, status(self.end));
        let response = self.response(status(self.end), self.end, &[item], usage(prompt, made));
        vec![self.tell(json!({ "type": format!("response.{}", status(self.end)), "response": response }))]
    }
}

fn part(text: &str, logprobs: &[Value]) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": logprobs })
}

const fn status(end: End) -> &'static str {
    match end {
        End::Stop => "completed",
        End::Length => "incomplete",
    }
}

fn usage(prompt: usize, made: usize) -> Value {
    json!({
        "input_tokens": prompt, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": made, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": prompt + made,
    })
}
