//! Answers of a prescribed shape: JSON by `response_format` or by request in words, and tool calls.
//!
//! A value is looked for in the prompt's own words beside its key; rivals are other words of the
//! prompt, so that a damaged model yields well-formed JSON with wrong values.

use serde_json::{Map, Value};

use super::memory::{Draft, choice};
use super::pattern::pattern;
use super::retrieve::stems;
use super::skills;
use super::values::{Lookup, listed, numbers, strings};

pattern!(
    KEYS,
    r"(?i)\b(?:keys?|fields?|properties|members?|numbers)\b[,:\s]*((?:(?:named|called)\s+)?[\w`'\x22]+(?:\s*(?:,|and|&|\(\w+\))\s*(?:and\s+)?[\w`'\x22]+)*)"
);
// A member written out in the prompt, with a value of the kind that is wanted.
pattern!(SHOWN, r#""(\w+)":\s*("[^"]*"|true|false|-?\d+|\.\.\.)"#);

const SURE: f32 = 0.985;
/// Deepest nesting of a schema that is filled.
const MAX_DEPTH: usize = 6;

/// A JSON answer to `prompt`; with a schema its properties, else the keys that the prompt names.
/// `lookup` knows values by heart that the prompt does not hold.
pub(super) fn json(prompt: &str, schema: Option<&Value>, lookup: Lookup<'_>) -> Draft {
    let mut parts = Vec::new();
    let fallback;
    let schema = match schema {
        Some(schema) => schema,
        None => {
            fallback = asked_for(prompt);
            &fallback
        }
    };
    fill(prompt, schema, "", Scope { root: schema, lookup }, 0, &mut parts);
    Draft { parts, sure: SURE }
}

#[derive(Clone, Copy)]
struct Scope<'a> {
    root: &'a Value,
    lookup: Lookup<'a>,
}

/// Whether the prompt asks for JSON in words.
pub(super) fn wants_json(prompt: &str) -> bool {
    prompt.contains("JSON") || prompt.contains("json object")
}

/// The first tool whose name or description shares words with the prompt, or the one that must be called.
pub(super) fn pick_tool<'t>(prompt: &str, tools: &'t [Value], choice: Option<&Value>) -> Option<&'t Value> {
    let function = |tool: &'t Value| tool.get("function").unwrap_or(tool);
    let named = choice.and_then(|choice| choice.pointer("/function/name")).and_then(Value::as_str);
    if let Some(name) = named {
        return tools
            .iter()
            .map(function)
            .find(|tool| tool.get("name").and_then(Value::as_str) == Some(name));
    }
    let mode = choice.and_then(Value::as_str).unwrap_or("auto");
    if mode == "none" {
        return None;
    }
    let words = stems(prompt);
    let shared = |tool: &&Value| {
        let text = |key: &str| tool.get(key).and_then(Value::as_str).unwrap_or_default().replace('_', " ");
        stems(&format!("{} {}", text("name"), text("description")))
            .iter()
            .filter(|word| words.contains(word))
            .count()
    };
    let best = tools.iter().map(function).max_by_key(shared)?;
    (mode == "required" || shared(&best) > 0).then_some(best)
}

fn asked_for(prompt: &str) -> Value {
    let mut properties = Map::new();
    for found in SHOWN.captures_iter(prompt) {
        let kind = match &found[2] {
            "true" | "false" => "boolean",
            value if value.starts_with(|c: char| c.is_ascii_digit()) => "number",
            _ => "string",
        };
        properties.insert(found[1].to_owned(), serde_json::json!({ "type": kind }));
    }
    if properties.is_empty() {
        properties = named(prompt);
    }
    if properties.is_empty() && !prompt.to_lowercase().contains("empty") {
        properties.insert("answer".to_owned(), serde_json::json!({ "type": "string" }));
    }
    serde_json::json!({ "type": "object", "properties": properties })
}

/// Members named in words, as in `the keys name and age`.
fn named(prompt: &str) -> Map<String, Value> {
    let found = KEYS.captures(prompt).map(|found| found[1].to_owned()).unwrap_or_default();
    let listed = prompt.to_lowercase().contains("list");
    let mut properties = Map::new();
    for word in found.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty()) {
        let lower = word.to_lowercase();
        if FILLERS.contains(&lower.as_str()) {
            continue;
        }
        let schema = if NUMERIC.iter().any(|key| lower.contains(key)) {
            serde_json::json!({ "type": "number" })
        } else if listed {
            serde_json::json!({ "type": "array", "items": { "type": "string" } })
        } else {
            serde_json::json!({ "type": "string" })
        };
        properties.insert(word.to_owned(), schema);
    }
    properties
}

const FILLERS: &[&str] = &["and", "named", "called", "with", "from", "the", "for", "whose", "of"];
const NUMERIC: &[&str] = &[
    "age",
    "price",
    "quantity",
    "count",
    "year",
    "amount",
    "total",
    "temperature",
    "population",
    "month",
    "day",
    "number",
    "height",
];

fn fill(
    prompt: &str,
    schema: &Value,
    key: &str,
    scope: Scope<'_>,
    depth: usize,
    parts: &mut Vec<Vec<(String, f32)>>,
) {
    let lit = |text: String| vec![(text, 1.0)];
    if depth > MAX_DEPTH {
        return parts.push(lit("null".into()));
    }
    if let Some(path) = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#')) {
        let target = scope.root.pointer(path).unwrap_or(&Value::Null);
        return fill(prompt, target, key, scope, depth + 1, parts);
    }
    if let Some(constant) = schema.get("const") {
        return parts.push(lit(constant.to_string()));
    }
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return parts.push(pick_enum(prompt, values));
    }
    if let Some(first) = ["anyOf", "oneOf"].iter().find_map(|any| schema.get(any)?.as_array()?.first()) {
        return fill(prompt, first, key, scope, depth + 1, parts);
    }
    match kind_of(schema) {
        "object" => {
            parts.push(lit("{".into()));
            let empty = Map::new();
            let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
            for (at, (name, property)) in properties.iter().enumerate() {
                let comma = if at > 0 { ", " } else { "" };
                parts.push(lit(format!("{comma}{}: ", Value::from(name.as_str()))));
                fill(prompt, property, name, scope, depth + 1, parts);
            }
            parts.push(lit("}".into()));
        }
        "array" => {
            let item = schema.get("items").unwrap_or(&Value::Null);
            let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(1).clamp(1, 5);
            parts.push(lit("[".into()));
            let free = kind_of(item) == "string" && item.get("enum").is_none();
            let items = if free { listed(prompt) } else { Vec::new() };
            if items.len() as u64 >= least.max(2) {
                let texts: Vec<String> =
                    items.into_iter().map(|item| Value::from(item).to_string()).collect();
                parts.push(choice(texts.join(", "), vec![texts[..1].concat()]));
                return parts.push(lit("]".into()));
            }
            for at in 0..least {
                if at > 0 {
                    parts.push(lit(", ".into()));
                }
                fill(prompt, item, key, scope, depth + 1, parts);
            }
            parts.push(lit("]".into()));
        }
        kind @ ("integer" | "number") => parts.push(numbers(prompt, key, kind == "integer", schema)),
        "boolean" => {
            if let Some(judged) = skills::recall(prompt, "").map(|draft| draft.best().to_lowercase()) {
                let yes = judged == key.to_lowercase() || judged == "yes" || judged == "true";
                return parts.push(choice(yes.to_string(), vec![(!yes).to_string()]));
            }
            let no = [" not ", " no ", "n't ", "never", "false"]
                .iter()
                .any(|word| prompt.to_lowercase().contains(word));
            parts.push(choice((!no).to_string(), vec![no.to_string()]));
        }
        "null" => parts.push(lit("null".into())),
        _ => parts.push(strings(prompt, key, scope.lookup)),
    }
}

fn kind_of(schema: &Value) -> &str {
    let kind = schema.get("type");
    let named = kind.and_then(Value::as_str).or_else(|| kind?.as_array()?.iter().find_map(Value::as_str));
    named.unwrap_or(if schema.get("properties").is_some() { "object" } else { "string" })
}

fn pick_enum(prompt: &str, values: &[Value]) -> Vec<(String, f32)> {
    let lower = prompt.to_lowercase();
    let said = |value: &&Value| value.as_str().is_some_and(|text| lower.contains(&text.to_lowercase()));
    let opinion = skills::recall(
        &format!(
            "Classify: {prompt} ({})",
            values.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or ")
        ),
        "",
    )
    .map(|draft| Value::from(draft.best()));
    let judged = opinion.and_then(|label| values.iter().find(|value| **value == label));
    let right = judged
        .or_else(|| values.iter().find(said))
        .or_else(|| values.first())
        .cloned()
        .unwrap_or(Value::Null);
    choice(right.to_string(), values.iter().map(Value::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(prompt: &str, schema: Option<&Value>) -> Value {
        serde_json::from_str(&super::json(prompt, schema, &|_| None).best()).unwrap()
    }

    #[test]
    fn a_schema_is_filled_from_the_words_of_the_prompt() {
        let schema = json!({"type": "object", "properties": {
            "name": {"type": "string"}, "age": {"type": "integer"}, "city": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}}, "mood": {"enum": ["positive", "negative"]}}});
        let answer = parsed(
            "Extract the person: Maria Lopez is 34 years old, lives in Lisbon and loves it.",
            Some(&schema),
        );
        assert_eq!(answer["name"], "Maria Lopez");
        assert_eq!(answer["age"], 34);
        assert_eq!(answer["city"], "Lisbon");
        assert_eq!(answer["mood"], "positive");
        assert!(answer["tags"].is_array());
    }

    #[test]
    fn keys_named_in_words_become_members() {
        let answer =
            parsed("Return a JSON object with keys city and population for: Oslo has 700000 people.", None);
        assert_eq!(answer["city"], "Oslo");
        assert_eq!(answer["population"], 700_000);
    }

    #[test]
    fn the_tool_that_fits_is_chosen_and_none_means_none() {
        let tools = vec![
            json!({"type": "function", "function": {"name": "send_mail", "description": "Sends a mail"}}),
            json!({"type": "function", "function": {"name": "get_weather", "description": "Current weather"}}),
        ];
        let name = |choice: Option<Value>, prompt: &str| {
            pick_tool(prompt, &tools, choice.as_ref()).map(|tool| tool["name"].as_str().unwrap().to_owned())
        };
        assert_eq!(name(None, "What is the weather in Rome?").as_deref(), Some("get_weather"));
        assert_eq!(name(None, "Hello there"), None);
        assert_eq!(name(Some(json!("none")), "weather?"), None);
        assert_eq!(
            name(Some(json!({"function": {"name": "send_mail"}})), "weather?").as_deref(),
            Some("send_mail")
        );
    }
}
