//! OpenAI requests as the simulated server understands them: lenient on what it does not know,
//! strict on what it uses.

use serde_json::Value;

use super::dialect;
use super::logits::hash_text;
use super::model::Ask;
use super::shapes;

/// Answer limit when the request names none, tokens.
const DEFAULT_MAX_TOKENS: usize = 256;
/// Most answers to one request.
const MAX_CHOICES: u64 = 16;
/// Most alternatives, as in the real API.
const MAX_TOP_LOGPROBS: u64 = 20;

/// What a request may be refused for.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(super) struct BadRequest {
    pub(super) message: String,
    pub(super) param: Option<&'static str>,
    pub(super) code: Option<&'static str>,
}

fn bad(param: &'static str, message: impl Into<String>) -> BadRequest {
    BadRequest { message: message.into(), param: Some(param), code: None }
}

/// Which of the text protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Chat,
    Completions,
    Responses,
    Messages,
    OllamaChat,
    OllamaGenerate,
}

/// A tool that the answer calls.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ToolCall {
    pub(super) name: String,
}

/// A request, understood.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) wire: Wire,
    /// What each choice answers: one ask for each prompt, times `n`.
    pub(super) asks: Vec<Ask>,
    pub(super) tool: Option<ToolCall>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    pub(super) temperature: f64,
    pub(super) top_p: f64,
    pub(super) seed: Option<u64>,
    pub(super) max_tokens: usize,
    pub(super) stop: Vec<String>,
    pub(super) alternatives: Option<usize>,
    pub(super) guided: bool,
    /// All text that counts as prompt.
    pub(super) prompt_text: String,
}

impl Request {
    /// Reads a request body.
    pub(super) fn parse(wire: Wire, body: &[u8]) -> Result<Self, BadRequest> {
        let body: Value = serde_json::from_slice(body).map_err(|error| BadRequest {
            message: format!("the body is not JSON: {error}"),
            param: None,
            code: None,
        })?;
        let body = dialect::to_chat(wire, body);
        if !body.is_object() {
            return Err(BadRequest { message: "the body must be an object".into(), param: None, code: None });
        }
        let max_tokens = ["max_completion_tokens", "max_tokens"]
            .into_iter()
            .find_map(|key| whole(&body, key, 1, 1_000_000).transpose())
            .transpose()?
            .map_or(DEFAULT_MAX_TOKENS, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let n = whole(&body, "n", 1, MAX_CHOICES)?.unwrap_or(1);
        let (mut asks, prompt_text) = match wire {
            Wire::Completions => prompts(&body)?,
            _ => conversation(&body)?,
        };
        let format = body.get("response_format");
        let json = match format.and_then(|format| format.get("type")).and_then(Value::as_str) {
            Some("json_object") => Some(None),
            Some("json_schema") => {
                Some(format.and_then(|format| format.pointer("/json_schema/schema")).cloned())
            }
            Some("text") | None => None,
            Some(other) => {
                return Err(bad("response_format", format!("unknown response_format type `{other}`")));
            }
        };
        let tools = body.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
        let answered = last_role(&body) == Some("tool");
        let picked = match asks.first() {
            Some(ask) if !answered => shapes::pick_tool(&ask.prompt, &tools, body.get("tool_choice")),
            _ => None,
        };
        for ask in &mut asks {
            ask.max_tokens = max_tokens;
            ask.json.clone_from(&json);
            ask.tool_schema = picked.map(|tool| tool.get("parameters").cloned().unwrap_or(Value::Null));
        }
        let asks = asks.into_iter().flat_map(|ask| (0..n).map(move |_| ask.clone())).collect();
        let name = |tool: &Value| tool.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self {
            wire,
            asks,
            tool: picked.map(|tool| ToolCall { name: name(tool) }),
            stream: flag(&body, "stream")?,
            include_usage: body
                .pointer("/stream_options/include_usage")
                .and_then(Value::as_bool)
                .unwrap_or(false),
            temperature: number(&body, "temperature", 0.0, 2.0)?.unwrap_or(1.0),
            top_p: number(&body, "top_p", 0.0, 1.0)?.unwrap_or(1.0),
            seed: body.get("seed").filter(|seed| !seed.is_null()).map(|seed| hash_text(&seed.to_string())),
            max_tokens,
            stop: stops(&body)?,
            alternatives: alternatives(wire, &body)?,
            guided: json.is_some(),
            prompt_text,
        })
    }
}

fn alternatives(wire: Wire, body: &Value) -> Result<Option<usize>, BadRequest> {
    let width = |n: u64| usize::try_from(n).unwrap_or(0);
    match wire {
        Wire::Completions => {
            // `true` is what some clients of the legacy layout send.
            if body.get("logprobs").and_then(Value::as_bool) == Some(false) {
                return Ok(None);
            }
            if body.get("logprobs").and_then(Value::as_bool) == Some(true) {
                return Ok(Some(1));
            }
            Ok(whole(body, "logprobs", 0, MAX_TOP_LOGPROBS)?.map(width))
        }
        _ => {
            let top = whole(body, "top_logprobs", 0, MAX_TOP_LOGPROBS)?;
            if flag(body, "logprobs")? {
                return Ok(Some(top.map_or(0, width)));
            }
            match top {
                Some(n) if n > 0 => Err(bad("top_logprobs", "top_logprobs needs logprobs to be true")),
                _ => Ok(None),
            }
        }
    }
}

fn conversation(body: &Value) -> Result<(Vec<Ask>, String), BadRequest> {
    let messages = body.get("messages").and_then(Value::as_array);
    let Some(messages) = messages.filter(|messages| !messages.is_empty()) else {
        return Err(bad("messages", "messages must be a list with at least one message"));
    };
    let mut turns: Vec<(String, String)> = Vec::new();
    for message in messages {
        let Some(role) = message.get("role").and_then(Value::as_str) else {
            return Err(bad("messages", "each message needs a role"));
        };
        turns.push((role.to_owned(), content(message.get("content"))));
    }
    let all = turns.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    let asked = turns.iter().rposition(|(role, _)| matches!(role.as_str(), "user" | "tool"));
    let at = asked.unwrap_or(turns.len() - 1);
    let before = turns[..at].iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    let prompt = match turns[at].0.as_str() {
        "tool" => format!("Repeat exactly: The result is {}", turns[at].1),
        _ => turns[at].1.clone(),
    };
    Ok((vec![Ask { prompt, before, ..Ask::default() }], all))
}

fn last_role(body: &Value) -> Option<&str> {
    body.get("messages")?.as_array()?.last()?.get("role")?.as_str()
}

/// The text of a message's content: a string, or the text parts of a list.
fn content(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

fn prompts(body: &Value) -> Result<(Vec<Ask>, String), BadRequest> {
    let texts: Vec<String> = match body.get("prompt") {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) if !items.is_empty() => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(|| bad("prompt", "prompt must be a string or a list of strings"))?,
        _ => return Err(bad("prompt", "prompt must be a string or a list of strings")),
    };
    let all = texts.join("\n");
    Ok((texts.into_iter().map(|prompt| Ask { prompt, continues: true, ..Ask::default() }).collect(), all))
}

fn stops(body: &Value) -> Result<Vec<String>, BadRequest> {
    match body.get("stop") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(items)) if items.len() <= 4 => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(|| bad("stop", "stop must be a string or a list of at most 4 strings")),
        Some(_) => Err(bad("stop", "stop must be a string or a list of at most 4 strings")),
    }
}

fn whole(body: &Value, key: &'static str, least: u64, most: u64) -> Result<Option<u64>, BadRequest> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(n) if (least..=most).contains(&n) => Ok(Some(n)),
            _ => Err(bad(key, format!("{key} must be a whole number from {least} to {most}, not {value}"))),
        },
    }
}

fn number(body: &Value, key: &'static str, least: f64, most: f64) -> Result<Option<f64>, BadRequest> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64() {
            Some(x) if (least..=most).contains(&x) => Ok(Some(x)),
            _ => Err(bad(key, format!("{key} must be a number from {least} to {most}, not {value}"))),
        },
    }
}

fn flag(body: &Value, key: &'static str) -> Result<bool, BadRequest> {
    match body.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(value) => {
            value.as_bool().ok_or_else(|| bad(key, format!("{key} must be true or false, not {value}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(body: &str) -> Result<Request, BadRequest> {
        Request::parse(Wire::Chat, body.as_bytes())
    }

    #[test]
    fn the_last_user_message_is_the_question_and_lists_of_parts_are_text() {
        let request = chat(
            r#"{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"One"},
            {"role":"assistant","content":null},{"role":"user","content":[{"type":"text","text":"Two?"}]}],
            "n":2,"logprobs":true,"top_logprobs":5,"stop":"x","seed":3}"#,
        )
        .unwrap();
        assert_eq!(request.asks.len(), 2);
        assert_eq!(request.asks[0].prompt, "Two?");
        assert!(request.asks[0].before.contains("Be brief."));
        assert_eq!(request.alternatives, Some(5));
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_its_name() {
        for (body, param) in [
            (r#"{"messages":[]}"#, Some("messages")),
            (r#"{"messages":[{"content":"x"}]}"#, Some("messages")),
            (
                r#"{"messages":[{"role":"user","content":"x"}],"top_logprobs":21,"logprobs":true}"#,
                Some("top_logprobs"),
            ),
            (r#"{"messages":[{"role":"user","content":"x"}],"temperature":9}"#, Some("temperature")),
            (r#"{"messages":[{"role":"user","content":"x"}],"n":0}"#, Some("n")),
            (r#"{"messages":[{"role":"user","content":"x"}],"stream":"yes"}"#, Some("stream")),
            ("[]", None),
            ("{", None),
        ] {
            assert_eq!(chat(body).unwrap_err().param, param, "{body}");
        }
        let legacy = Request::parse(Wire::Completions, br#"{"prompt":[1,2]}"#);
        assert_eq!(legacy.unwrap_err().param, Some("prompt"));
    }
}
