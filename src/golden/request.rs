//! The request that asks one golden prompt.

use serde_json::{Map, Value, json};

use crate::prompt::{Prompt, PromptKind, Sampling};
use crate::verdict::{Substance, Wire};

/// Longest answer of a canary to an upstream without logprobs: enough to see how it begins, and what a
/// canary a minute may cost. With logprobs one token says more and costs less.
pub const CANARY_TOKENS_WITHOUT_LOGPROBS: u32 = 16;

/// Path and body that ask `prompt` of `model`, drawn as `sampling` says.
///
/// With `logprobs_k` that many alternatives a position are asked for where the wire has them, and a
/// canary's answer is cut to one token: its distribution is what counts, and its check can only be met if
/// one token says it. An empty `model` is left out of the body: the upstream may serve
/// only one.
#[must_use]
pub fn request(
    prompt: &Prompt,
    model: &str,
    logprobs_k: Option<u32>,
    stream: bool,
    sampling: Sampling,
) -> (String, Vec<u8>) {
    let mut body = Map::new();
    if !model.is_empty() {
        body.insert("model".to_owned(), model.into());
    }
    ask(&mut body, prompt);
    if prompt.wire.substance() == Substance::Text {
        draw(&mut body, prompt, answer_tokens(prompt, logprobs_k), stream, sampling);
        if let Some(k) = logprobs_k {
            logprobs(&mut body, prompt.wire, k);
        }
    }
    if matches!(prompt.wire, Wire::KserveInfer | Wire::TfPredict) {
        body.remove("model"); // named by the path
    }
    (path(prompt.wire, model), Value::Object(body).to_string().into_bytes())
}

fn answer_tokens(prompt: &Prompt, logprobs_k: Option<u32>) -> u32 {
    match (prompt.kind, logprobs_k) {
        (PromptKind::Canary, Some(_)) => 1,
        (PromptKind::Canary, None) => prompt.max_tokens.min(CANARY_TOKENS_WITHOUT_LOGPROBS),
        (PromptKind::Burst, _) => prompt.max_tokens,
    }
}

fn path(wire: Wire, model: &str) -> String {
    match wire {
        Wire::Chat => "/v1/chat/completions".to_owned(),
        Wire::Completions => "/v1/completions".to_owned(),
        Wire::Embeddings => "/v1/embeddings".to_owned(),
        Wire::Responses => "/v1/responses".to_owned(),
        Wire::Messages => "/v1/messages".to_owned(),
        Wire::Rerank => "/v1/rerank".to_owned(),
        Wire::OllamaChat => "/api/chat".to_owned(),
        Wire::OllamaGenerate => "/api/generate".to_owned(),
        Wire::OllamaEmbed => "/api/embed".to_owned(),
        Wire::KserveInfer => format!("/v2/models/{model}/infer"),
        Wire::TfPredict => format!("/v1/models/{model}:predict"),
    }
}

/// What is asked, in the members that the wire reads it from.
fn ask(body: &mut Map<String, Value>, prompt: &Prompt) {
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body.insert(name.to_owned(), value);
        }
    };
    put("tools", prompt.tools.as_ref().map(|tools| tools_on(prompt.wire, tools)));
    match prompt.wire {
        Wire::Responses => {
            put("text", prompt.response_format.as_ref().map(|f| json!({ "format": flat(f, "json_schema") })))
        }
        Wire::OllamaChat | Wire::OllamaGenerate => {
            put("format", prompt.response_format.as_ref().map(ollama_format));
        }
        Wire::Messages => {} // has no such member
        _ => put("response_format", prompt.response_format.clone()),
    }
    match prompt.wire {
        Wire::Chat | Wire::OllamaChat => put("messages", prompt.messages.clone()),
        Wire::Responses => put("input", prompt.messages.clone()),
        Wire::Messages => {
            let (system, turns) = split_system(prompt.messages.as_ref());
            put("messages", Some(turns));
            put("system", system);
        }
        Wire::Completions | Wire::OllamaGenerate => put("prompt", prompt.prompt.clone().map(Value::from)),
        Wire::Embeddings | Wire::OllamaEmbed => put("input", prompt.input.clone()),
        Wire::Rerank | Wire::KserveInfer | Wire::TfPredict => match prompt.input.clone() {
            Some(Value::Object(members)) => body.extend(members),
            other => put(if prompt.wire == Wire::TfPredict { "instances" } else { "inputs" }, other),
        },
    }
}

/// Tools in the wire's own form, whichever the prompt has them in.
fn tools_on(wire: Wire, tools: &Value) -> Value {
    let Some(list) = tools.as_array() else { return tools.clone() };
    let own = |tool: &Value| {
        let inner = tool.get("function").unwrap_or(tool);
        let schema = ["parameters", "input_schema"].iter().find_map(|n| inner.get(n)).cloned();
        let Some(name) = inner.get("name") else { return tool.clone() };
        let mut members = Map::from_iter([("name".to_owned(), name.clone())]);
        for also in ["description", "strict"] {
            members.extend(inner.get(also).map(|v| (also.to_owned(), v.clone())));
        }
        let schema_name = if wire == Wire::Messages { "input_schema" } else { "parameters" };
        members.extend(schema.map(|schema| (schema_name.to_owned(), schema)));
        match wire {
            Wire::Messages => Value::Object(members),
            Wire::Responses => {
                members.insert("type".to_owned(), "function".into());
                Value::Object(members)
            }
            _ => json!({ "type": "function", "function": members }),
        }
    };
    list.iter().map(own).collect()
}

/// The members of an inner object beside the type, as the Responses API has them.
fn flat(format: &Value, inner: &str) -> Value {
    let mut members = format.get(inner).and_then(Value::as_object).cloned().unwrap_or_default();
    members.extend(format.get("type").map(|kind| ("type".to_owned(), kind.clone())));
    Value::Object(members)
}

/// Ollama takes `"json"` or the bare schema where OpenAI wraps it.
fn ollama_format(response_format: &Value) -> Value {
    response_format.pointer("/json_schema/schema").cloned().unwrap_or_else(|| "json".into())
}

/// Anthropic keeps the system text beside the turns.
fn split_system(messages: Option<&Value>) -> (Option<Value>, Value) {
    let all = messages.and_then(Value::as_array).cloned().unwrap_or_default();
    let (system, turns): (Vec<_>, Vec<_>) = all.into_iter().partition(|m| m["role"] == "system");
    let texts: Vec<_> = system.iter().filter_map(|m| m["content"].as_str()).collect();
    let system = (!texts.is_empty()).then(|| texts.join("\n").into());
    (system, Value::Array(turns))
}

fn draw(body: &mut Map<String, Value>, prompt: &Prompt, tokens: u32, stream: bool, sampling: Sampling) {
    // A whole 0 is what every engine reads as "the likeliest".
    let Sampling { temperature, seed } = sampling;
    let temperature = if temperature > 0.0 { Value::from(temperature) } else { 0.into() };
    match prompt.wire {
        Wire::OllamaChat | Wire::OllamaGenerate => {
            let options = json!({ "num_predict": tokens, "temperature": temperature, "seed": seed });
            body.insert("options".to_owned(), options);
            body.insert("stream".to_owned(), stream.into()); // absent means true on this wire
            return;
        }
        Wire::Responses => {
            body.insert("max_output_tokens".to_owned(), tokens.into());
            body.insert("store".to_owned(), false.into());
        }
        Wire::Messages => {
            body.insert("max_tokens".to_owned(), tokens.into());
        }
        _ => {
            body.insert("max_tokens".to_owned(), tokens.into());
            body.insert("seed".to_owned(), seed.into());
        }
    }
    body.insert("temperature".to_owned(), temperature);
    if stream {
        body.insert("stream".to_owned(), true.into());
        if matches!(prompt.wire, Wire::Chat | Wire::Completions) {
            body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
        }
    }
}

fn logprobs(body: &mut Map<String, Value>, wire: Wire, k: u32) {
    match wire {
        Wire::Chat | Wire::OllamaChat | Wire::OllamaGenerate => {
            body.insert("logprobs".to_owned(), true.into());
            body.insert("top_logprobs".to_owned(), k.into());
        }
        Wire::Completions => {
            body.insert("logprobs".to_owned(), k.into());
        }
        Wire::Responses => {
            body.insert("top_logprobs".to_owned(), k.into());
            body.insert("include".to_owned(), json!(["message.output_text.logprobs"]));
        }
        _ => {} // Anthropic gives none
    }
}
