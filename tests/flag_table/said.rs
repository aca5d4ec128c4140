//! One answer, said in the layout of each wire, whole or as a stream.

use serde_json::{Value, json};
use touchstone::verdict::Wire;

pub(crate) const TEXT_WIRES: [Wire; 6] =
    [Wire::Chat, Wire::Completions, Wire::Responses, Wire::Messages, Wire::OllamaChat, Wire::OllamaGenerate];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Stop,
    Limit,
    Filter,
}

/// What was asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) prompt: String,
    pub(crate) schema: Option<Value>,
    /// Name and schema of the only tool; whether it must be called.
    pub(crate) tool: Option<(String, Value, bool)>,
    pub(crate) logprobs: bool,
}

/// What came.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) refusal: String,
    /// Name and arguments.
    pub(crate) tool: Option<(String, String)>,
    /// The ending announces a call, whether it came or not.
    pub(crate) announced: bool,
    pub(crate) end: End,
    /// The value that stands as each token's logprob, as it is written.
    pub(crate) logprob: Option<&'static str>,
    /// Output tokens in usage; `None` for no usage at all.
    pub(crate) tokens: Option<i64>,
}

impl Default for Said {
    fn default() -> Self {
        Self {
            text: String::new(),
            reasoning: String::new(),
            refusal: String::new(),
            tool: None,
            announced: false,
            end: End::Stop,
            logprob: None,
            tokens: Some(40),
        }
    }
}

impl Said {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        let tokens = Some((text.len() as i64 / 4).max(1));
        Self { text, tokens, ..Self::default() }
    }

    pub(crate) fn limit(self) -> Self {
        Self { end: End::Limit, ..self }
    }
}

/// Whether a wire can say it at all.
pub(crate) fn can_say(wire: Wire, asked: &Asked, said: &Said) -> bool {
    let plain = matches!(wire, Wire::Completions | Wire::OllamaGenerate);
    let tools = asked.tool.is_some() || said.tool.is_some() || said.announced;
    let ollama = matches!(wire, Wire::OllamaChat | Wire::OllamaGenerate);
    let logprobs = asked.logprobs || said.logprob.is_some();
    let impossible = [
        plain && tools,
        wire == Wire::Completions && !said.reasoning.is_empty(),
        !matches!(wire, Wire::Chat | Wire::Responses) && !said.refusal.is_empty(),
        // The others do not announce a call by their ending.
        !matches!(wire, Wire::Chat | Wire::Messages) && said.announced && said.tool.is_none(),
        // Ollama has neither a filter nor calls that must come.
        ollama && (said.end == End::Filter || asked.tool.as_ref().is_some_and(|t| t.2)),
        wire == Wire::Messages && (logprobs || asked.schema.is_some() || said.end == End::Filter),
    ];
    !impossible.contains(&true)
}

/// The request's body.
pub(crate) fn request(wire: Wire, stream: bool, asked: &Asked) -> Value {
    let turns = json!([{ "role": "user", "content": asked.prompt }]);
    let mut body = match wire {
        Wire::Completions | Wire::OllamaGenerate => {
            json!({ "model": "m", "prompt": asked.prompt, "stream": stream })
        }
        Wire::Responses => json!({ "model": "m", "input": asked.prompt, "stream": stream }),
        _ => json!({ "model": "m", "messages": turns, "stream": stream }),
    };
    if matches!(wire, Wire::Chat | Wire::Completions) && stream {
        body["stream_options"] = json!({ "include_usage": true });
    }
    if asked.logprobs {
        match wire {
            Wire::Completions => body["logprobs"] = json!(2),
            Wire::Responses => {
                body["include"] = json!(["message.output_text.logprobs"]);
                body["top_logprobs"] = json!(2);
            }
            _ => {
                body["logprobs"] = json!(true);
                body["top_logprobs"] = json!(2);
            }
        }
    }
    if let Some(schema) = &asked.schema {
        let named = json!({ "type": "json_schema", "name": "x", "schema": schema });
        match wire {
            Wire::Responses => body["text"] = json!({ "format": named }),
            Wire::OllamaChat | Wire::OllamaGenerate => body["format"] = schema.clone(),
            _ => body["response_format"] = json!({ "type": "json_schema", "json_schema": named }),
        }
    }
    if let Some((name, schema, must)) = &asked.tool {
        body["tools"] = match wire {
            Wire::Responses => json!([{ "type": "function", "name": name, "parameters": schema }]),
            Wire::Messages => json!([{ "name": name, "input_schema": schema }]),
            _ => json!([{ "type": "function", "function": { "name": name, "parameters": schema } }]),
        };
        if *must {
            body["tool_choice"] =
                if wire == Wire::Messages { json!({ "type": "any" }) } else { json!("required") };
        }
    }
    body
}

/// The answer's body and content type.
pub(crate) fn body(wire: Wire, stream: bool, said: &Said) -> (&'static str, String) {
    let (kind, documents) = match wire {
        Wire::Chat | Wire::Completions => openai(wire, stream, said),
        Wire::Responses => responses(stream, said),
        Wire::Messages => messages(stream, said),
        _ => ollama(wire, stream, said),
    };
    // `NaN` and its like cannot stand in a JSON value: they are put in where they belong at the end.
    let body = documents.concat();
    (kind, body.replace("\"LOGPROB\"", said.logprob.unwrap_or("null")))
}

const SSE: &str = "text/event-stream";
const JSON: &str = "application/json";

/// The text in pieces of some characters.
fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(7).map(|c| c.iter().collect()).collect()
}

fn positions(said: &Said, text: &str) -> Value {
    if said.logprob.is_none() || text.is_empty() {
        return Value::Null;
    }
    let top = json!([{ "token": text, "logprob": "LOGPROB" }, { "token": "x", "logprob": -3.0 }]);
    json!([{ "token": text, "logprob": "LOGPROB", "top_logprobs": top }])
}

fn input(said: &Said) -> Value {
    let arguments = said.tool.as_ref().map_or("{}", |t| &t.1);
    serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments))
}

fn openai(wire: Wire, stream: bool, said: &Said) -> (&'static str, Vec<String>) {
    let finish = match said.end {
        End::Stop if said.announced || said.tool.is_some() => "tool_calls",
        End::Stop => "stop",
        End::Limit => "length",
        End::Filter => "content_filter",
    };
    let usage =
        said.tokens.map(|n| json!({ "prompt_tokens": 9, "completion_tokens": n, "total_tokens": 9 + n }));
    let logprobs = |text: &str| match (positions(said, text), wire) {
        (Value::Null, _) => Value::Null,
        (_, Wire::Completions) => {
            json!({ "tokens": [text], "token_logprobs": ["LOGPROB"], "top_logprobs": [{ text: "LOGPROB", "x": -3.0 }] })
        }
        (list, _) => json!({ "content": list }),
    };
    let choice = |name: &str, text: &str, message: Value, finish: Value| {
        let mut choice = json!({ "index": 0, "finish_reason": finish, "logprobs": logprobs(text) });
        if wire == Wire::Completions {
            choice["text"] = text.into()
        } else {
            choice[name] = message
        }
        json!({ "id": "c", "model": "m", "choices": [choice] })
    };
    let call = said.tool.as_ref().map(|(name, arguments)| json!([{ "index": 0, "id": "call_1", "type": "function", "function": { "name": name, "arguments": arguments } }]));
    if !stream {
        let mut message = json!({ "role": "assistant", "content": said.text });
        if !said.reasoning.is_empty() {
            message["reasoning_content"] = said.reasoning.as_str().into();
        }
        if !said.refusal.is_empty() {
            message["refusal"] = said.refusal.as_str().into();
        }
        if let Some(call) = call {
            message["tool_calls"] = call;
        }
        let mut answer = choice("message", &said.text, message, finish.into());
        if let Some(usage) = usage {
            answer["usage"] = usage;
        }
        return (JSON, vec![answer.to_string()]);
    }
    let mut all = Vec::new();
    if wire == Wire::Chat {
        all.push(choice("delta", "", json!({ "role": "assistant", "content": "" }), Value::Null));
    }
    for (name, text) in
        [("reasoning_content", &said.reasoning), ("refusal", &said.refusal), ("content", &said.text)]
    {
        let logged = |piece: &str| if name == "content" { piece.to_owned() } else { String::new() };
        all.extend(pieces(text).iter().map(|p| choice("delta", &logged(p), json!({ name: p }), Value::Null)));
    }
    if let Some(call) = call {
        all.push(choice("delta", "", json!({ "tool_calls": call }), Value::Null));
    }
    all.push(choice("delta", "", json!({}), finish.into()));
    if let Some(usage) = usage {
        all.push(json!({ "id": "c", "choices": [], "usage": usage }));
    }
    let mut lines: Vec<String> = all.iter().map(|e| format!("data: {e}\n\n")).collect();
    lines.push("data: [DONE]\n\n".to_owned());
    (SSE, lines)
}

fn responses(stream: bool, said: &Said) -> (&'static str, Vec<String>) {
    let mut output = Vec::new();
    if !said.reasoning.is_empty() {
        output.push(json!({ "type": "reasoning", "id": "rs", "summary": [{ "type": "summary_text", "text": said.reasoning }] }));
    }
    let part = json!({ "type": "output_text", "text": said.text, "logprobs": positions(said, &said.text) });
    if !said.refusal.is_empty() {
        output.push(json!({ "type": "message", "id": "msg", "content": [{ "type": "refusal", "refusal": said.refusal }] }));
    } else if !said.text.is_empty() {
        output.push(json!({ "type": "message", "id": "msg", "content": [part] }));
    }
    if let Some((name, arguments)) = &said.tool {
        output.push(json!({ "type": "function_call", "id": "fc", "call_id": "call_1", "name": name, "arguments": arguments }));
    }
    let (status, details) = match said.end {
        End::Stop => ("completed", Value::Null),
        End::Limit => ("incomplete", json!({ "reason": "max_output_tokens" })),
        End::Filter => ("incomplete", json!({ "reason": "content_filter" })),
    };
    let mut response = json!({ "id": "resp", "object": "response", "model": "m", "status": status, "error": null,
        "incomplete_details": details, "output": output });
    if let Some(n) = said.tokens {
        response["usage"] = json!({ "input_tokens": 9, "output_tokens": n, "total_tokens": 9 + n });
    }
    if !stream {
        return (JSON, vec![response.to_string()]);
    }
    let mut all = vec![
        json!({ "type": "response.created", "response": { "id": "resp", "status": "in_progress", "output": [] } }),
    ];
    for (at, item) in output.iter().enumerate() {
        let place =
            json!({ "output_index": at, "content_index": 0, "summary_index": 0, "item_id": item["id"] });
        let event = |kind: &str, members: Value| {
            let mut event = place.clone();
            event["type"] = kind.into();
            members.as_object().into_iter().flatten().for_each(|(n, v)| event[n] = v.clone());
            event
        };
        let mut opened = item.clone();
        for name in ["content", "summary"] {
            if opened[name].is_array() {
                opened[name] = json!([]);
            }
        }
        if opened["arguments"].is_string() {
            opened["arguments"] = json!("");
        }
        all.push(event("response.output_item.added", json!({ "item": opened })));
        let told = [
            ("response.reasoning_summary_text", "/summary/0/text"),
            ("response.output_text", "/content/0/text"),
            ("response.refusal", "/content/0/refusal"),
            ("response.function_call_arguments", "/arguments"),
        ];
        for (kind, at) in told {
            let Some(text) = item.pointer(at).and_then(Value::as_str) else { continue };
            for piece in pieces(text) {
                let logprobs =
                    if kind == "response.output_text" { positions(said, &piece) } else { Value::Null };
                all.push(event(&format!("{kind}.delta"), json!({ "delta": piece, "logprobs": logprobs })));
            }
            let name = at.rsplit('/').next().unwrap_or_default();
            all.push(event(&format!("{kind}.done"), json!({ name: text })));
        }
        all.push(event("response.output_item.done", json!({ "item": item })));
    }
    all.push(json!({ "type": format!("response.{status}"), "response": response }));
    (
        SSE,
        all.iter()
            .map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap_or_default()))
            .collect(),
    )
}

fn messages(stream: bool, said: &Said) -> (&'static str, Vec<String>) {
    let mut blocks = Vec::new();
    if !said.reasoning.is_empty() {
        blocks.push(json!({ "type": "thinking", "thinking": said.reasoning }));
    }
    if !said.text.is_empty() {
        blocks.push(json!({ "type": "text", "text": said.text }));
    }
    if let Some((name, _)) = &said.tool {
        blocks.push(json!({ "type": "tool_use", "id": "toolu_1", "name": name, "input": input(said) }));
    }
    let reason = match said.end {
        End::Limit => "max_tokens",
        _ if said.announced || said.tool.is_some() => "tool_use",
        _ => "end_turn",
    };
    let usage = said.tokens.map(|n| json!({ "input_tokens": 9, "output_tokens": n }));
    if !stream {
        let mut message = json!({ "type": "message", "role": "assistant", "model": "m", "content": blocks, "stop_reason": reason });
        if let Some(usage) = usage {
            message["usage"] = usage;
        }
        return (JSON, vec![message.to_string()]);
    }
    let mut all = vec![
        json!({ "type": "message_start", "message": { "type": "message", "model": "m", "content": [] } }),
    ];
    for (i, block) in blocks.iter().enumerate() {
        let (kind, text, empty) = match block["type"].as_str().unwrap_or_default() {
            "thinking" => ("thinking", said.reasoning.clone(), json!({ "type": "thinking", "thinking": "" })),
            "text" => ("text", said.text.clone(), json!({ "type": "text", "text": "" })),
            _ => {
                let arguments = said.tool.as_ref().map_or(String::new(), |t| t.1.clone());
                (
                    "partial_json",
                    arguments,
                    json!({ "type": "tool_use", "id": "toolu_1", "name": block["name"], "input": {} }),
                )
            }
        };
        all.push(json!({ "type": "content_block_start", "index": i, "content_block": empty }));
        all.extend(
            pieces(&text)
                .iter()
                .map(|p| json!({ "type": "content_block_delta", "index": i, "delta": { kind: p } })),
        );
        all.push(json!({ "type": "content_block_stop", "index": i }));
    }
    let mut last = json!({ "type": "message_delta", "delta": { "stop_reason": reason } });
    if let Some(usage) = usage {
        last["usage"] = usage;
    }
    all.extend([last, json!({ "type": "message_stop" })]);
    (
        SSE,
        all.iter()
            .map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap_or_default()))
            .collect(),
    )
}

fn ollama(wire: Wire, stream: bool, said: &Said) -> (&'static str, Vec<String>) {
    let line = |text: &str, thinking: &str, done: bool| {
        let mut line = json!({ "model": "m", "created_at": "2026-01-01T00:00:00Z", "done": done });
        if wire == Wire::OllamaChat {
            line["message"] = json!({ "role": "assistant", "content": text });
            if !thinking.is_empty() {
                line["message"]["thinking"] = thinking.into();
            }
        } else {
            line["response"] = text.into();
            if !thinking.is_empty() {
                line["thinking"] = thinking.into();
            }
        }
        let list = positions(said, text);
        if !list.is_null() {
            line["logprobs"] = list;
        }
        line
    };
    let call = said
        .tool
        .as_ref()
        .map(|(name, _)| json!([{ "function": { "name": name, "arguments": input(said) } }]));
    let end = |mut line: Value| {
        line["done_reason"] = if said.end == End::Limit { "length" } else { "stop" }.into();
        if let Some(n) = said.tokens {
            line["prompt_eval_count"] = 9.into();
            line["eval_count"] = n.into();
        }
        line
    };
    if !stream {
        let mut whole = end(line(&said.text, &said.reasoning, true));
        if let Some(call) = call {
            whole["message"]["tool_calls"] = call;
        }
        return (JSON, vec![whole.to_string()]);
    }
    let mut all: Vec<Value> = pieces(&said.reasoning).iter().map(|p| line("", p, false)).collect();
    all.extend(pieces(&said.text).iter().map(|p| line(p, "", false)));
    if let Some(call) = call {
        let mut called = line("", "", false);
        called["message"]["tool_calls"] = call;
        all.push(called);
    }
    all.push(end(line("", "", true)));
    ("application/x-ndjson", all.iter().map(|l| format!("{l}\n")).collect())
}
