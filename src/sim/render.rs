//! Answers in the two OpenAI layouts, whole and in pieces.

use serde_json::{Value, json};

use super::decode::{Chunk, End, Step};
use super::request::{ToolCall, Wire};
use super::vocab::{Token, Vocab};

/// What all pieces of one answer share.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) wire: Wire,
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    pub(super) tool: Option<ToolCall>,
    /// Whether logprobs are to be given.
    pub(super) logprobs: bool,
}

/// One finished choice.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) chunk: Chunk,
    pub(super) end: End,
}

impl Frame {
    fn shell(&self, object: &str, choices: Value) -> Value {
        json!({
            "id": self.id, "object": object, "created": self.created, "model": self.model,
            "system_fingerprint": "touchstone-sim", "choices": choices,
        })
    }

    /// The whole answer.
    pub(super) fn whole(&self, vocab: &Vocab, choices: &[Choice], usage: Value) -> Value {
        let choices: Vec<Value> =
            choices.iter().enumerate().map(|(at, choice)| self.choice(vocab, at, choice)).collect();
        let object = if self.wire == Wire::Completions { "text_completion" } else { "chat.completion" };
        let mut answer = self.shell(object, choices.into());
        answer["usage"] = usage;
        answer
    }

    fn choice(&self, vocab: &Vocab, index: usize, choice: &Choice) -> Value {
        let finish = self.finish(choice.end);
        match self.wire {
            Wire::Completions => json!({
                "index": index, "text": choice.chunk.text, "finish_reason": finish,
                "logprobs": self.logprobs.then(|| arrays(vocab, &choice.chunk.steps, 0)),
            }),
            _ => {
                let message = match &self.tool {
                    None => json!({ "role": "assistant", "content": choice.chunk.text, "refusal": null }),
                    Some(tool) => json!({
                        "role": "assistant", "content": null, "refusal": null,
                        "tool_calls": [self.call(tool, index, &choice.chunk.text)],
                    }),
                };
                json!({
                    "index": index, "message": message, "finish_reason": finish,
                    "logprobs": self.logprobs.then(|| content(vocab, &choice.chunk.steps)),
                })
            }
        }
    }

    fn call(&self, tool: &ToolCall, index: usize, arguments: &str) -> Value {
        json!({
            "id": format!("call_{}_{index}", self.id), "type": "function",
            "function": { "name": tool.name, "arguments": arguments },
        })
    }

    fn finish(&self, end: End) -> &'static str {
        match (end, &self.tool) {
            (End::Length, _) => "length",
            (End::Stop, Some(_)) => "tool_calls",
            (End::Stop, None) => "stop",
        }
    }

    /// The first event of a chat choice; legacy completions have none.
    pub(super) fn opening(&self, index: usize) -> Option<Value> {
        if self.wire == Wire::Completions {
            return None;
        }
        let delta = match &self.tool {
            None => json!({ "role": "assistant", "content": "" }),
            Some(tool) => {
                let mut call = self.call(tool, index, "");
                call["index"] = json!(0);
                json!({ "role": "assistant", "content": null, "tool_calls": [call] })
            }
        };
        let choice = json!({ "index": index, "delta": delta, "logprobs": null, "finish_reason": null });
        Some(self.shell("chat.completion.chunk", json!([choice])))
    }

    /// One event of text; `offset` is the length of the choice's text before it, characters.
    pub(super) fn piece(&self, vocab: &Vocab, index: usize, chunk: &Chunk, offset: usize) -> Value {
        match self.wire {
            Wire::Completions => {
                let logprobs = self.logprobs.then(|| arrays(vocab, &chunk.steps, offset));
                let choice = json!({ "index": index, "text": chunk.text, "logprobs": logprobs, "finish_reason": null });
                self.shell("text_completion", json!([choice]))
            }
            _ => {
                let delta = match &self.tool {
                    None => json!({ "content": chunk.text }),
                    Some(_) => {
                        json!({ "tool_calls": [{ "index": 0, "function": { "arguments": chunk.text } }] })
                    }
                };
                let logprobs = self.logprobs.then(|| content(vocab, &chunk.steps));
                let choice =
                    json!({ "index": index, "delta": delta, "logprobs": logprobs, "finish_reason": null });
                self.shell("chat.completion.chunk", json!([choice]))
            }
        }
    }

    /// The last event of a choice.
    pub(super) fn closing(&self, index: usize, end: End) -> Value {
        let finish = self.finish(end);
        match self.wire {
            Wire::Completions => {
                let choice = json!({ "index": index, "text": "", "logprobs": null, "finish_reason": finish });
                self.shell("text_completion", json!([choice]))
            }
            _ => {
                let choice =
                    json!({ "index": index, "delta": {}, "logprobs": null, "finish_reason": finish });
                self.shell("chat.completion.chunk", json!([choice]))
            }
        }
    }

    /// The event that carries usage and no choice.
    pub(super) fn usage(&self, usage: Value) -> Value {
        let object = if self.wire == Wire::Completions { "text_completion" } else { "chat.completion.chunk" };
        let mut event = self.shell(object, json!([]));
        event["usage"] = usage;
        event
    }
}

/// Token counts.
pub(super) fn usage(prompt: usize, answer: usize) -> Value {
    json!({ "prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer })
}

fn text(vocab: &Vocab, token: Token) -> String {
    String::from_utf8_lossy(vocab.bytes(token)).into_owned()
}

fn show(vocab: &Vocab, token: Token, logprob: f32) -> Value {
    json!({ "token": text(vocab, token), "logprob": logprob, "bytes": vocab.bytes(token) })
}

pub(super) fn content(vocab: &Vocab, steps: &[Step]) -> Value {
    let entry = |step: &Step| {
        let mut entry = show(vocab, step.token, step.logprob);
        entry["top_logprobs"] =
            step.top.iter().map(|(token, logprob)| show(vocab, *token, *logprob)).collect::<Vec<_>>().into();
        entry
    };
    json!({ "content": steps.iter().map(entry).collect::<Vec<_>>(), "refusal": null })
}

fn arrays(vocab: &Vocab, steps: &[Step], offset: usize) -> Value {
    let mut at = offset;
    let mut offsets = Vec::with_capacity(steps.len());
    for step in steps {
        offsets.push(at);
        at += text(vocab, step.token).chars().count();
    }
    // Several partial characters share one printed form; a map can hold only one of them.
    let maps = steps.iter().map(|step| {
        let map: serde_json::Map<String, Value> =
            step.top.iter().rev().map(|(token, logprob)| (text(vocab, *token), json!(logprob))).collect();
        Value::Object(map)
    });
    json!({
        "tokens": steps.iter().map(|step| text(vocab, step.token)).collect::<Vec<_>>(),
        "token_logprobs": steps.iter().map(|step| step.logprob).collect::<Vec<_>>(),
        "top_logprobs": maps.collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}
