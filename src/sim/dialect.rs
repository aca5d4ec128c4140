//! Requests of other wires, said in the words of OpenAI's chat, which is what the model is asked in.

use serde_json::{Map, Value, json};

use super::request::Wire;

/// The request as a chat request; one that is no object stays what it is.
pub(super) fn to_chat(wire: Wire, body: Value) -> Value {
    let Value::Object(body) = body else { return body };
    let mut chat = Map::new();
    let mut keep = |from: &str, to: &str| {
        if let Some(value) = body.get(from).filter(|v| !v.is_null()) {
            chat.insert(to.to_owned(), value.clone());
        }
    };
    for name in ["model", "temperature", "top_p", "seed", "stop"] {
        keep(name, name);
    }
    match wire {
        Wire::Chat | Wire::Completions => return Value::Object(body),
        Wire::Responses => {
            keep("stream", "stream");
            keep("max_output_tokens", "max_tokens");
            let includes = |name| {
                body.get("include").is_some_and(|i| i.as_array().is_some_and(|l| l.contains(&json!(name))))
            };
            if includes("message.output_text.logprobs") {
                keep("top_logprobs", "top_logprobs");
                chat.insert("logprobs".to_owned(), true.into());
            }
            chat.insert("messages".to_owned(), response_turns(&body));
            let format = body.get("text").and_then(|t| t.get("format"));
            if let Some(format) = format.filter(|f| f["type"] != "text") {
                let schema = json!({ "name": format["name"], "schema": format["schema"] });
                chat.insert(
                    "response_format".to_owned(),
                    json!({ "type": format["type"], "json_schema": schema }),
                );
            }
            tools(&body, "parameters", &mut chat);
        }
        Wire::Messages => {
            for (from, to) in [("stream", "stream"), ("max_tokens", "max_tokens"), ("stop_sequences", "stop")]
            {
                keep(from, to);
            }
            chat.insert("messages".to_owned(), message_turns(&body));
            tools(&body, "input_schema", &mut chat);
        }
        Wire::OllamaChat | Wire::OllamaGenerate => {
            for name in ["logprobs", "top_logprobs", "tools"] {
                keep(name, name);
            }
            chat.insert("stream".to_owned(), body.get("stream").cloned().unwrap_or(Value::Bool(true)));
            let options = body.get("options").and_then(Value::as_object).cloned().unwrap_or_default();
            for name in ["temperature", "top_p", "seed", "stop"] {
                if let Some(value) = options.get(name) {
                    chat.insert(name.to_owned(), value.clone());
                }
            }
            // Less than one is no limit.
            if let Some(limit) = options.get("num_predict").filter(|n| n.as_i64() > Some(0)) {
                chat.insert("max_tokens".to_owned(), limit.clone());
            }
            match body.get("format") {
                Some(Value::String(_)) => {
                    chat.insert("response_format".to_owned(), json!({ "type": "json_object" }));
                }
                Some(schema @ Value::Object(_)) => {
                    let format = json!({ "type": "json_schema", "json_schema": { "schema": schema } });
                    chat.insert("response_format".to_owned(), format);
                }
                _ => {}
            }
            let turns = match (wire, body.get("messages")) {
                (Wire::OllamaChat, Some(messages)) => messages.clone(),
                _ => with_system(body.get("system"), vec![turn("user", body.get("prompt").cloned())]),
            };
            chat.insert("messages".to_owned(), turns);
        }
    }
    Value::Object(chat)
}

/// Whether an Ollama request has nothing to answer: it loads or unloads the model.
pub(super) fn only_loads(wire: Wire, body: &Value) -> Option<&'static str> {
    let empty = match wire {
        Wire::OllamaChat => body["messages"].as_array().is_none_or(Vec::is_empty),
        Wire::OllamaGenerate => body["prompt"].as_str().is_none_or(str::is_empty),
        _ => false,
    };
    let unloads = body["keep_alive"].as_f64() == Some(0.0) || body["keep_alive"] == "0";
    (empty && body.is_object()).then_some(if unloads { "unload" } else { "load" })
}

fn turn(role: &str, content: Option<Value>) -> Value {
    json!({ "role": role, "content": content.unwrap_or(Value::Null) })
}

fn with_system(system: Option<&Value>, mut turns: Vec<Value>) -> Value {
    if let Some(system) = system.filter(|s| !s.is_null()) {
        turns.insert(0, turn("system", Some(system.clone())));
    }
    turns.into()
}

fn response_turns(body: &Map<String, Value>) -> Value {
    let turns = match body.get("input") {
        Some(Value::Array(items)) => items.iter().filter_map(response_turn).collect(),
        Some(text @ Value::String(_)) => vec![turn("user", Some(text.clone()))],
        _ => Vec::new(),
    };
    if turns.is_empty() { turns.into() } else { with_system(body.get("instructions"), turns) }
}

fn response_turn(item: &Value) -> Option<Value> {
    match item["type"].as_str().unwrap_or("message") {
        "message" => {
            let role = item["role"].as_str()?;
            Some(turn(if role == "developer" { "system" } else { role }, item.get("content").cloned()))
        }
        "function_call_output" => Some(turn("tool", item.get("output").cloned())),
        _ => None,
    }
}

fn message_turns(body: &Map<String, Value>) -> Value {
    let messages = body.get("messages").and_then(Value::as_array).cloned().unwrap_or_default();
    let turns: Vec<Value> = messages
        .into_iter()
        .map(|message| {
            let results = message["content"].as_array().and_then(|blocks| {
                blocks.iter().rfind(|b| b["type"] == "tool_result").map(|b| b["content"].clone())
            });
            match results {
                Some(result) => turn("tool", Some(result)),
                None => message,
            }
        })
        .collect();
    if turns.is_empty() { turns.into() } else { with_system(body.get("system"), turns) }
}

/// Tools whose schema stands under `schema`, and the choice among them.
fn tools(body: &Map<String, Value>, schema: &str, chat: &mut Map<String, Value>) {
    let own = |tool: &&Value| tool["name"].is_string();
    let function = |tool: &Value| {
        let inner =
            json!({ "name": tool["name"], "description": tool["description"], "parameters": tool[schema] });
        json!({ "type": "function", "function": inner })
    };
    let listed = body.get("tools").and_then(Value::as_array).into_iter().flatten();
    let all: Vec<Value> = listed.filter(own).map(function).collect();
    if all.is_empty() {
        return;
    }
    chat.insert("tools".to_owned(), all.into());
    let Some(choice) = body.get("tool_choice") else { return };
    let choice = match (choice["name"].as_str(), choice.as_str().or_else(|| choice["type"].as_str())) {
        (Some(name), _) => json!({ "type": "function", "function": { "name": name } }),
        (None, Some("any" | "required")) => json!("required"),
        (None, Some(word)) => json!(word),
        (None, None) => return,
    };
    chat.insert("tool_choice".to_owned(), choice);
}
