//! Whether one line of `prompts.jsonl` can be asked and judged.

use regex::Regex;
use serde_json::Value;

use crate::prompt::{Check, Prompt};
use crate::verdict::Wire;

/// Longest id: it becomes a label and a key in the store.
const MAX_ID_BYTES: usize = 64;

/// Reads and examines one line.
pub(super) fn prompt(line: &str) -> Result<Prompt, String> {
    let prompt: Prompt = serde_json::from_str(line).map_err(|e| {
        let text = e.to_string();
        let cause = text.split(" at line ").next().unwrap_or_default();
        format!("{cause} (column {})", e.column())
    })?;
    id(&prompt.id)?;
    if prompt.max_tokens == 0 {
        return Err("max_tokens must be at least 1".to_owned());
    }
    question(&prompt)?;
    tools(&prompt)?;
    if let Some(check) = &prompt.check {
        examine(check, &prompt)?;
    }
    if prompt.references.iter().any(|r| r.trim().is_empty()) {
        return Err("an empty text among the references".to_owned());
    }
    Ok(prompt)
}

fn id(id: &str) -> Result<(), String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if id.is_empty() || id.len() > MAX_ID_BYTES || !id.chars().all(sound) {
        return Err(format!("id {id:?}: wanted 1 to {MAX_ID_BYTES} of letters, digits, '-', '_' and '.'"));
    }
    Ok(())
}

/// The one member that holds what is asked must be there, fit the wire and hold something.
fn question(prompt: &Prompt) -> Result<(), String> {
    let given = [
        ("messages", prompt.messages.is_some()),
        ("prompt", prompt.prompt.is_some()),
        ("input", prompt.input.is_some()),
    ];
    let wanted = match prompt.wire {
        Wire::Chat | Wire::Messages | Wire::Responses | Wire::OllamaChat => "messages",
        Wire::Completions | Wire::OllamaGenerate => "prompt",
        Wire::Embeddings | Wire::Rerank | Wire::OllamaEmbed | Wire::KserveInfer | Wire::TfPredict => "input",
    };
    for (name, there) in given {
        if there && name != wanted {
            return Err(format!("wire {} takes {wanted}, not {name}", prompt.wire));
        }
        if !there && name == wanted {
            return Err(format!("wire {} needs {wanted}", prompt.wire));
        }
    }
    if prompt.prompt.as_ref().is_some_and(|p| p.trim().is_empty()) {
        return Err("prompt is empty".to_owned());
    }
    if prompt.input.as_ref().is_some_and(is_hollow) {
        return Err("input is empty".to_owned());
    }
    prompt.messages.as_ref().map_or(Ok(()), messages)
}

fn messages(value: &Value) -> Result<(), String> {
    let list = value.as_array().filter(|l| !l.is_empty()).ok_or("messages must be a list of at least one")?;
    for (i, message) in list.iter().enumerate() {
        if message.get("role").and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(format!("messages[{i}] has no role"));
        }
        let silent = message.get("content").is_none_or(is_hollow);
        if silent && message.get("tool_calls").is_none() {
            return Err(format!("messages[{i}] has no content"));
        }
    }
    Ok(())
}

fn is_hollow(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(s) => s.trim().is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Name and argument schema of one offered tool, in OpenAI's or Anthropic's form.
fn tool(value: &Value) -> Option<(&str, Option<&Value>)> {
    let body = value.get("function").unwrap_or(value);
    let name = body.get("name")?.as_str()?;
    Some((name, body.get("parameters").or_else(|| body.get("input_schema"))))
}

fn tools(prompt: &Prompt) -> Result<(), String> {
    let Some(offered) = &prompt.tools else { return Ok(()) };
    let list = offered.as_array().filter(|l| !l.is_empty()).ok_or("tools must be a list of at least one")?;
    for (i, item) in list.iter().enumerate() {
        let (name, parameters) = tool(item).ok_or_else(|| format!("tools[{i}] has no name"))?;
        if let Some(schema) = parameters {
            compile_schema(schema).map_err(|e| format!("tools[{i}] ({name}): {e}"))?;
        }
    }
    Ok(())
}

fn compile_schema(schema: &Value) -> Result<(), String> {
    if !schema.is_object() && !schema.is_boolean() {
        return Err("schema is no JSON object".to_owned());
    }
    jsonschema::validator_for(schema).map(drop).map_err(|e| format!("bad schema: {e}"))
}

fn examine(check: &Check, prompt: &Prompt) -> Result<(), String> {
    match check {
        Check::Exact(texts) | Check::Contains(texts) => {
            let texts = texts.as_slice();
            if texts.is_empty() || texts.iter().any(|t| t.trim().is_empty()) {
                return Err("check wants an empty text, which every answer or none would meet".to_owned());
            }
            if matches!(check, Check::Exact(_)) && texts.iter().any(|t| t.trim() != t) {
                return Err(
                    "check exact has white space at an end; the answer is compared trimmed".to_owned()
                );
            }
            Ok(())
        }
        Check::Regex(pattern) => {
            let regex = Regex::new(pattern).map_err(|e| {
                let text = e.to_string();
                format!("check regex: {}", text.lines().last().unwrap_or_default().trim())
            })?;
            if regex.is_match("") {
                return Err("check regex matches the empty answer".to_owned());
            }
            Ok(())
        }
        Check::JsonSchema(schema) => compile_schema(schema).map_err(|e| format!("check json_schema: {e}")),
        Check::Tool(name) => {
            let offered = prompt.tools.as_ref().and_then(Value::as_array);
            if offered.is_some_and(|l| l.iter().filter_map(tool).any(|(n, _)| n == name)) {
                return Ok(());
            }
            Err(format!("check tool {name:?} is not among the tools"))
        }
        Check::Label(label) if label.trim().is_empty() => Err("check label is empty".to_owned()),
        Check::Label(_) => Ok(()),
        Check::Similarity(least) if *least > 0.0 && *least <= 1.0 => Ok(()),
        Check::Similarity(least) => Err(format!("check similarity {least}: wanted above 0 and at most 1")),
    }
}
