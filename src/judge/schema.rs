//! What the caller asked the answer's shape to be: a JSON Schema, tools, a tool choice.
//!
//! A schema is compiled when the first answer needs it, not when the request arrives: most tools offered
//! are never called. Only the linear-time pattern engine is used and no reference is fetched, since the
//! schema comes from outside. A schema that cannot be compiled judges nothing.

use std::sync::OnceLock;

use serde_json::Value as Json;

use crate::wire::Value;

/// Longest schema that is compiled, bytes; longer ones judge nothing.
const MAX_SCHEMA: usize = 128 << 10;
/// Schemas of all tools of one request together, bytes; further tools are judged by name alone.
const MAX_SCHEMAS: usize = 512 << 10;
/// Largest compiled pattern, bytes.
const MAX_PATTERN: usize = 1 << 20;
/// Most tools remembered of one request.
const MAX_TOOLS: usize = 256;

/// A JSON Schema as the caller sent it.
#[derive(Debug)]
pub struct Schema {
    source: Box<[u8]>,
    compiled: OnceLock<Option<jsonschema::Validator>>,
}

impl Schema {
    fn new(source: &[u8]) -> Self {
        let source = if source.len() <= MAX_SCHEMA { source.into() } else { Box::default() };
        Self { source, compiled: OnceLock::new() }
    }

    /// From a schema already read.
    #[must_use]
    pub fn of(schema: &Json) -> Self {
        Self::new(schema.to_string().as_bytes())
    }

    /// Whether the instance is valid; `true` where the schema itself cannot be used.
    #[must_use]
    pub fn allows(&self, instance: &Json) -> bool {
        self.compiled().is_none_or(|validator| validator.is_valid(instance))
    }

    /// Whether the schema could be compiled.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.compiled().is_some()
    }

    fn compiled(&self) -> Option<&jsonschema::Validator> {
        let compile = || {
            let schema: Json = serde_json::from_slice(&self.source).ok()?;
            let patterns =
                jsonschema::PatternOptions::regex().size_limit(MAX_PATTERN).dfa_size_limit(MAX_PATTERN);
            jsonschema::options().with_pattern_options(patterns).offline().build(&schema).ok()
        };
        self.compiled.get_or_init(compile).as_ref()
    }
}

/// The form of text that was asked for.
#[derive(Debug)]
pub enum Format {
    /// Any JSON object.
    JsonObject,
    /// JSON valid against a schema.
    Schema(Schema),
}

impl Format {
    /// Reads `response_format` and its like.
    #[must_use]
    pub fn read(root: Value<'_>) -> Option<Self> {
        let schema = |v: Value<'_>| v.is_object().then(|| Self::Schema(Schema::new(v.span())));
        let direct = ["guided_json", "json_schema"].iter().find_map(|n| root.field(n));
        if let Some(format) = direct.and_then(schema) {
            return Some(format);
        }
        let asked = root
            .field("response_format")
            .or_else(|| root.path(&["text", "format"]))
            .or_else(|| root.field("format"))?;
        if asked.is_key("json") {
            return Some(Self::JsonObject);
        }
        let kind = asked.field("type").and_then(|t| t.string())?;
        let inner = asked.path(&["json_schema", "schema"]).or_else(|| asked.field("schema"));
        match (&*kind, inner.and_then(schema)) {
            ("json_object" | "json_schema", Some(format)) => Some(format),
            ("json_object" | "json_schema", None) => Some(Self::JsonObject),
            ("object" | "array", _) => schema(asked),
            _ => None,
        }
    }

    /// Whether the text is what was asked for.
    #[must_use]
    pub fn allows(&self, text: &str) -> bool {
        let Ok(instance) = serde_json::from_str::<Json>(text) else { return false };
        match self {
            Self::JsonObject => instance.is_object(),
            Self::Schema(schema) => schema.allows(&instance),
        }
    }
}

/// Whether and which tool must be called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The model decides.
    #[default]
    Auto,
    /// Some tool.
    Required,
    /// This tool.
    Named(String),
}

/// What a tool takes.
#[derive(Debug)]
enum Arguments {
    /// JSON, valid against a schema if there is one.
    Json(Option<Schema>),
    /// Any text: a custom tool.
    Free,
}

/// The tools offered by a request.
#[derive(Debug, Default)]
pub struct Tools {
    offered: Vec<(String, Arguments)>,
    /// All tools are the caller's own; a provider's own tools may be called, and answer, out of sight.
    complete: bool,
    /// Which of them must be called.
    pub choice: Choice,
}

impl Tools {
    /// Reads `tools` and `tool_choice`, and the legacy `functions` and `function_call`.
    #[must_use]
    pub fn read(root: Value<'_>) -> Self {
        let list = root.field("tools").or_else(|| root.field("functions"));
        let mut tools = Self { complete: true, ..Self::default() };
        let mut room = MAX_SCHEMAS;
        for tool in list.into_iter().flat_map(|l| l.items()) {
            let inner = tool.field("function").or_else(|| tool.field("custom")).unwrap_or(tool);
            let name = inner.field("name").and_then(|n| n.string());
            let kind = tool.field("type").and_then(|t| t.string()).unwrap_or_default();
            // A provider's own tool (web search) has no name of ours: any call may then be right.
            tools.complete &= matches!(&*kind, "" | "function" | "custom");
            let Some(name) = name.filter(|_| tools.offered.len() < MAX_TOOLS) else {
                tools.complete = false;
                continue;
            };
            let schema = ["parameters", "input_schema"].iter().find_map(|n| inner.field(n));
            let schema = schema.filter(|s| s.is_object() && s.span().len() <= room).map(|s| {
                room -= s.span().len();
                Schema::new(s.span())
            });
            // Anthropic calls a tool of the caller's own custom, too, and gives it a schema.
            let free = kind == "custom" && tool.field("input_schema").is_none();
            let arguments = if free { Arguments::Free } else { Arguments::Json(schema) };
            tools.offered.push((name.into_owned(), arguments));
        }
        tools.choice = root
            .field("tool_choice")
            .or_else(|| root.field("function_call"))
            .map(|c| Self::read_choice(c))
            .unwrap_or_default();
        tools
    }

    fn read_choice(choice: Value<'_>) -> Choice {
        let name =
            choice.path(&["function", "name"]).or_else(|| choice.field("name")).and_then(|n| n.string());
        let word =
            choice.string().or_else(|| choice.field("type").and_then(|t| t.string())).unwrap_or_default();
        match (name, &*word) {
            (Some(name), "" | "function" | "custom" | "tool") => Choice::Named(name.into_owned()),
            (None, "allowed_tools") => {
                let mode = choice.field("mode").or_else(|| choice.path(&["allowed_tools", "mode"]));
                if mode.is_some_and(|m| m.is_key("required")) { Choice::Required } else { Choice::Auto }
            }
            (None, "required" | "any") => Choice::Required,
            _ => Choice::Auto,
        }
    }

    /// Names of the tools offered.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.offered.iter().map(|(name, _)| name.as_str())
    }

    /// Whether any tool was offered.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.offered.is_empty() || !self.complete
    }

    /// Whether a call is one of the tools offered, with arguments that its schema allows.
    #[must_use]
    pub fn allows(&self, name: &str, arguments: &str) -> bool {
        let tool = self.offered.iter().find(|(offered, _)| offered == name);
        if name.is_empty() || (tool.is_none() && self.complete && !self.offered.is_empty()) {
            return false;
        }
        if tool.is_some_and(|(_, arguments)| matches!(arguments, Arguments::Free)) {
            return true;
        }
        // A call without arguments is sent as an empty text by some servers.
        let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
        let Ok(instance) = serde_json::from_str::<Json>(arguments) else { return false };
        match tool {
            Some((_, Arguments::Json(Some(schema)))) => schema.allows(&instance),
            _ => true,
        }
    }

    /// Whether the calls fall short of the tool choice.
    #[must_use]
    pub fn misses<'a>(&self, mut called: impl Iterator<Item = &'a str>) -> bool {
        match &self.choice {
            Choice::Auto => false,
            Choice::Required => self.complete && called.next().is_none(),
            Choice::Named(name) => !called.any(|c| c == name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Doc;

    fn with<T>(text: &str, read: impl FnOnce(Value<'_>) -> T) -> T {
        let mut doc = Doc::default();
        read(doc.parse(text.as_bytes()).0.expect("json"))
    }

    fn format(text: &str) -> Option<Format> {
        with(text, Format::read)
    }

    #[test]
    fn every_way_to_ask_for_a_schema_is_understood() {
        let schema = r#"{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]}"#;
        for text in [
            format!(
                r#"{{"response_format":{{"type":"json_schema","json_schema":{{"name":"t","schema":{schema}}}}}}}"#
            ),
            format!(r#"{{"response_format":{{"type":"json_object","schema":{schema}}}}}"#),
            format!(r#"{{"text":{{"format":{{"type":"json_schema","schema":{schema}}}}}}}"#),
            format!(r#"{{"guided_json":{schema}}}"#),
            format!(r#"{{"format":{schema}}}"#),
        ] {
            let format = format(&text).expect("a format");
            assert!(format.allows(" {\"a\":\"x\"}\n"), "{text}");
            assert!(!format.allows("{\"a\":1}") && !format.allows("{\"a\":\"x\""), "{text}");
        }
        assert!(format(r#"{"response_format":{"type":"text"}}"#).is_none());
    }

    #[test]
    fn any_object_means_any_object() {
        let format = format(r#"{"response_format":{"type":"json_object"}}"#).expect("a format");
        assert!(format.allows("{}") && !format.allows("[]") && !format.allows("```json\n{}\n```"));
    }

    #[test]
    fn a_schema_that_cannot_be_used_judges_nothing() {
        for schema in [r#"{"$ref":"https://example.com/x.json"}"#, r#"{"type":7}"#] {
            let schema = Schema::new(schema.as_bytes());
            assert!(!schema.is_usable() && schema.allows(&Json::Null));
        }
    }

    #[test]
    fn calls_are_held_against_what_was_offered() {
        let tools = with(
            r#"{"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","required":["a"]}}},
                {"type":"function","function":{"name":"g"}}],"tool_choice":{"type":"function","function":{"name":"f"}}}"#,
            Tools::read,
        );
        assert!(tools.allows("f", r#"{"a":1}"#) && tools.allows("g", ""));
        assert!(!tools.allows("f", "{}") && !tools.allows("f", "{\"a\":") && !tools.allows("h", "{}"));
        assert!(tools.misses(["g"].into_iter()) && !tools.misses(["g", "f"].into_iter()));
        let required = with(r#"{"tool_choice":"required"}"#, Tools::read);
        assert!(required.misses(std::iter::empty()) && !required.any());
    }

    #[test]
    fn a_custom_tool_takes_any_text_and_a_providers_own_answers_out_of_sight() {
        for text in [
            r#"{"tools":[{"type":"custom","name":"sh"}],"tool_choice":{"type":"custom","name":"sh"}}"#,
            r#"{"tools":[{"type":"custom","custom":{"name":"sh"}}]}"#,
        ] {
            let tools = with(text, Tools::read);
            assert!(tools.allows("sh", "ls -l") && !tools.allows("f", "{}"), "{text}");
        }
        let anthropic = r#"{"tools":[{"type":"custom","name":"f","input_schema":{"required":["a"]}}]}"#;
        assert!(!with(anthropic, Tools::read).allows("f", "{}"));
        let hosted = with(r#"{"tools":[{"type":"web_search"}],"tool_choice":"required"}"#, Tools::read);
        assert!(!hosted.misses(std::iter::empty()));
        let by_server = r#"{"tool_choice":{"type":"mcp","server_label":"s","name":"f"}}"#;
        assert!(!with(by_server, Tools::read).misses(std::iter::empty()));
        for (mode, misses) in [("required", true), ("auto", false)] {
            let text = format!(r#"{{"tool_choice":{{"type":"allowed_tools","mode":"{mode}","tools":[]}}}}"#);
            assert_eq!(with(&text, Tools::read).misses(std::iter::empty()), misses, "{mode}");
        }
    }
}
