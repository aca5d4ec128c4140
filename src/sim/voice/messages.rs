//! `/v1/messages`: one block, of text or of a tool's use.

use axum::body::Bytes;
use serde_json::{Value, json};

use super::super::decode::{Chunk, End};
use super::super::render::{Choice, Frame};
use super::event;

#[derive(Debug)]
pub(in super::super) struct Voice {
    frame: Frame,
}

impl Voice {
    pub(super) const fn new(frame: Frame) -> Self {
        Self { frame }
    }

    fn message(&self, content: &[Value], end: Option<End>, prompt: usize, made: usize) -> Value {
        json!({
            "id": self.frame.id, "type": "message", "role": "assistant", "model": self.frame.model,
            "content": content, "stop_reason": end.map(|end| self.reason(end)), "stop_sequence": null,
            "usage": { "input_tokens": prompt, "output_tokens": made },
        })
    }

    fn reason(&self, end: End) -> &'static str {
        match (end, &self.frame.tool) {
            (End::Length, _) => "max_tokens",
            (End::Stop, Some(_)) => "tool_use",
            (End::Stop, None) => "end_turn",
        }
    }

    fn block(&self, text: &str) -> Value {
        match &self.frame.tool {
            None => json!({ "type": "text", "text": text }),
            Some(tool) => {
                let input = serde_json::from_str(text).unwrap_or_else(|_| json!({}));
                json!({ "type": "tool_use", "id": format!("toolu_{}", self.frame.id), "name": tool.name, "input": input })
            }
        }
    }

    pub(super) fn whole(&self, choice: &Choice, prompt: usize, made: usize) -> Value {
        self.message(&[self.block(&choice.chunk.text)], Some(choice.end), prompt, made)
    }

    pub(super) fn opening(&self, prompt: usize) -> Vec<Bytes> {
        let message = self.message(&[], None, prompt, 1);
        let block = self.block("");
        vec![
            event(&json!({ "type": "message_start", "message": message })),
            event(&json!({ "type": "content_block_start", "index": 0, "content_block": block })),
        ]
    }

    pub(super) fn piece(&self, chunk: &Chunk) -> Vec<Bytes> {
        let delta = match self.frame.tool {
            None => json!({ "type": "text_delta", "text": chunk.text }),
            Some(_) => json!({ "type": "input_json_delta", "partial_json": chunk.text }),
        };
        vec![event(&json!({ "type": "content_block_delta", "index": 0, "delta": delta }))]
    }

    pub(super) fn closing(&self, end: End, made: usize) -> Vec<Bytes> {
        let delta = json!({ "stop_reason": self.reason(end), "stop_sequence": null });
        vec![
            event(&json!({ "type": "content_block_stop", "index": 0 })),
            event(&json!({ "type": "message_delta", "delta": delta, "usage": { "output_tokens": made } })),
        ]
    }
}
