//! `/v1/chat/completions`, whole and streamed; `message` and `delta` have the same members.
//!
//! Servers differ in the name of the reasoning member, in content as a string or as parts, in indexes
//! that are missing, and in where they put usage and errors. All of that is read; see the tests.

use super::{Channel, Counts, Emit, Event, Fault, ToolPiece, Value, logprobs};
use crate::verdict::Flag;

/// Highest index that can be right; no API offers more choices or calls.
const MAX_INDEX: i64 = 127;

/// Turns one document into events.
pub fn read(root: Value<'_>, whole: bool, emit: &mut Emit<'_>) {
    let mut top = Top::of(root);
    top.head(whole, emit);
    let mut seen = 0_u128;
    for (place, choice) in top.choices().enumerate() {
        let parts = top.parts(choice);
        let index = parts.index(place, whole, &mut seen, emit);
        parts.extras(choice, index, emit);
        // A closing chunk may repeat the whole message beside its delta.
        let message = if whole { parts.message.or(parts.delta) } else { parts.delta.or(parts.message) };
        if let Some(message) = message {
            message_events(message, index, emit);
        } else if let Some(text) = parts.text {
            text_of(text, index, Channel::Text, emit);
        }
        parts.ending(index, emit);
    }
    top.tail(emit);
}

/// The members of a body that both OpenAI wires know, found in one pass: a stream asks for them with
/// every token.
pub(super) struct Top<'a> {
    root: Value<'a>,
    model: Option<Value<'a>>,
    choices: Option<Value<'a>>,
    usage: Option<Value<'a>>,
    /// That of the first choice that has one.
    usage_of_choice: Option<Value<'a>>,
    x_groq: Option<Value<'a>>,
    timings: Option<Value<'a>>,
    probabilities: Option<Value<'a>>,
    /// Some member is there that an error might have.
    suspect: bool,
}

impl<'a> Top<'a> {
    pub(super) fn of(root: Value<'a>) -> Self {
        let mut top = Self {
            root,
            model: None,
            choices: None,
            usage: None,
            usage_of_choice: None,
            x_groq: None,
            timings: None,
            probabilities: None,
            suspect: false,
        };
        for (name, value) in root.members().filter(|(_, value)| !value.is_null()) {
            match name.span() {
                b"id" | b"created" | b"system_fingerprint" | b"service_tier" => {}
                b"model" => top.model = Some(value),
                b"choices" => top.choices = Some(value),
                b"usage" => top.usage = Some(value),
                b"x_groq" => top.x_groq = Some(value),
                b"timings" => top.timings = Some(value),
                b"completion_probabilities" => top.probabilities = Some(value),
                b"object" => top.suspect |= value.is_key("error"),
                _ => top.suspect = true,
            }
        }
        top
    }

    /// Model and error.
    pub(super) fn head(&self, whole: bool, emit: &mut Emit<'_>) {
        if let Some(name) = self.model.and_then(|m| m.string()).filter(|m| !m.is_empty()) {
            emit(Event::Model(&name));
        }
        if self.suspect {
            // A stream's other events (progress, queue places) have messages, too.
            let answered = !whole || self.choices().next().is_some();
            if let Some(fault) = Fault::find(self.root, answered) {
                emit(Event::Error(&fault));
            }
        }
    }

    /// The choices, whether a list or (seen once) a single object.
    pub(super) fn choices(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let single = self.choices.filter(|c| c.is_object());
        let list = self.choices.into_iter().flat_map(|c| c.items());
        single.into_iter().chain(list).filter(|c| c.is_object())
    }

    /// The members of a choice.
    pub(super) fn parts(&mut self, choice: Value<'a>) -> Parts<'a> {
        let parts = Parts::of(choice);
        self.usage_of_choice = self.usage_of_choice.or(parts.usage);
        parts
    }

    /// Usage, wherever it stands, and llama.cpp's own probabilities.
    pub(super) fn tail(&self, emit: &mut Emit<'_>) {
        if let Some(list) = self.probabilities {
            logprobs::entries(list, &mut |position| emit(Event::Position { choice: 0, position }));
        }
        let usage =
            self.usage.or_else(|| self.x_groq?.field("usage")).or(self.usage_of_choice).or(self.timings);
        if let Some(counts) = usage.and_then(Counts::read) {
            emit(Event::Usage(counts));
        }
    }
}

/// The members of a choice, found in one pass.
pub(super) struct Parts<'a> {
    index: Option<Value<'a>>,
    message: Option<Value<'a>>,
    delta: Option<Value<'a>>,
    pub(super) text: Option<Value<'a>>,
    logprobs: Option<Value<'a>>,
    finish: Option<Value<'a>>,
    error: Option<Value<'a>>,
    filter: Option<Value<'a>>,
    usage: Option<Value<'a>>,
}

impl<'a> Parts<'a> {
    fn of(choice: Value<'a>) -> Self {
        let mut parts = Self {
            index: None,
            message: None,
            delta: None,
            text: None,
            logprobs: None,
            finish: None,
            error: None,
            filter: None,
            usage: None,
        };
        for (name, value) in choice.members().filter(|(_, value)| !value.is_null()) {
            let slot = match name.span() {
                b"index" => &mut parts.index,
                b"message" => &mut parts.message,
                b"delta" => &mut parts.delta,
                b"text" => &mut parts.text,
                b"logprobs" => &mut parts.logprobs,
                b"finish_reason" => &mut parts.finish,
                b"error" => &mut parts.error,
                b"content_filter_results" => &mut parts.filter,
                b"usage" => &mut parts.usage,
                _ => continue,
            };
            *slot = Some(value);
        }
        parts
    }

    /// The index; the place in the list where none is given.
    pub(super) fn index(&self, place: usize, whole: bool, seen: &mut u128, emit: &mut Emit<'_>) -> u32 {
        let place = place.min(MAX_INDEX as usize) as u32;
        let Some(given) = self.index else { return place };
        match given.number() {
            Some(n) if n.fract() == 0.0 && (0.0..=MAX_INDEX as f64).contains(&n) => {
                let index = n as u32;
                if whole && *seen & (1 << index) != 0 {
                    emit(Event::Odd(Flag::IndexAnomaly));
                }
                *seen |= 1 << index;
                index
            }
            _ => {
                emit(Event::Odd(Flag::IndexAnomaly));
                place
            }
        }
    }

    /// What stands on the choice itself: error, probabilities, the filter's verdict.
    pub(super) fn extras(&self, choice: Value<'_>, index: u32, emit: &mut Emit<'_>) {
        if let Some(error) = self.error.filter(|e| e.is_object() || e.is_string()) {
            emit(Event::Error(&Fault::of(error, choice)));
        }
        if let Some(list) = self.logprobs {
            logprobs::read(list, &mut |position| emit(Event::Position { choice: index, position }));
        }
        let withheld = |filter: Value<'_>| {
            filter.members().any(|(_, v)| v.field("filtered").and_then(|f| f.boolean()) == Some(true))
        };
        if self.filter.is_some_and(withheld) {
            emit(Event::Filtered);
        }
    }

    /// Why the choice ended.
    pub(super) fn ending(&self, index: u32, emit: &mut Emit<'_>) {
        // SGLang's own form is an object around the word.
        let word = self.finish.map(|r| r.field("type").unwrap_or(r));
        if let Some(reason) = word.and_then(|r| r.string()).filter(|r| !r.is_empty()) {
            emit(Event::Finish { choice: index, reason: &reason });
        }
    }
}

pub(super) fn message_events(message: Value<'_>, choice: u32, emit: &mut Emit<'_>) {
    if let Some(content) = only_content(message) {
        if let Some(content) = content {
            text_of(content, choice, Channel::Text, emit);
        }
        return;
    }
    let reasoning = ["reasoning_content", "reasoning", "thinking"]
        .iter()
        .filter_map(|name| message.field(name))
        .find(|v| v.span().len() > usize::from(v.is_array() || v.is_object()) * 2);
    match reasoning {
        Some(value) => text_of(value, choice, Channel::Reasoning, emit),
        None => {
            if let Some(details) = message.field("reasoning_details") {
                text_of(details, choice, Channel::Reasoning, emit);
            }
        }
    }
    if let Some(content) = message.field("content") {
        text_of(content, choice, Channel::Text, emit);
    }
    if let Some(refusal) = message.field("refusal") {
        text_of(refusal, choice, Channel::Refusal, emit);
    }
    if let Some(audio) = message.field("audio") {
        emit(Event::OtherContent { choice });
        if let Some(words) = audio.field("transcript") {
            text_of(words, choice, Channel::Text, emit);
        }
    }
    if message.field("images").is_some_and(|i| i.items().next().is_some()) {
        emit(Event::OtherContent { choice });
    }
    tool_calls(message, choice, emit);
    if let Some(call) = message.field("function_call") {
        tool_call(call, choice, emit);
    }
}

/// The content of a message that has nothing else, as nearly every piece of a stream; `None` for any other.
fn only_content(message: Value<'_>) -> Option<Option<Value<'_>>> {
    let mut content = None;
    let mut members = message.members();
    let simple = message.is_object()
        && members.all(|(name, value)| match name.span() {
            b"content" => {
                content = Some(value);
                true
            }
            b"role" => true,
            name => value.is_null() && !name.contains(&b'\\'), // which may spell any name
        });
    simple.then(|| content.filter(|c| !c.is_null()))
}

pub(super) fn tool_calls(holder: Value<'_>, choice: u32, emit: &mut Emit<'_>) {
    for call in holder.field("tool_calls").into_iter().flat_map(|c| c.items()) {
        tool_call(call, choice, emit);
    }
}

/// Text as a string, as one part, or as a list of parts.
fn text_of(value: Value<'_>, choice: u32, channel: Channel, emit: &mut Emit<'_>) {
    if value.is_string() {
        super::text_event(value, choice, channel, emit);
    } else if value.is_object() {
        part(value, choice, channel, emit);
    } else {
        value.items().for_each(|p| part(p, choice, channel, emit));
    }
}

fn part(part: Value<'_>, choice: u32, channel: Channel, emit: &mut Emit<'_>) {
    let piece = |value: Value<'_>, channel, emit: &mut Emit<'_>| {
        // One level of parts inside a part (thinking), no more.
        for value in value.items().filter_map(|p| p.field("text")).chain(value.is_string().then_some(value)) {
            if value.is_string() {
                text_of(value, choice, channel, emit);
            }
        }
    };
    if part.is_string() {
        return piece(part, channel, emit);
    }
    if let Some(thought) =
        part.field("thinking").or_else(|| part.field("reasoning")).or_else(|| part.field("summary"))
    {
        return piece(thought, Channel::Reasoning, emit);
    }
    if let Some(refusal) = part.field("refusal") {
        return piece(refusal, Channel::Refusal, emit);
    }
    let kind = part.field("type").and_then(|t| t.string()).unwrap_or_default();
    let channel =
        if kind.contains("reasoning") || kind.contains("thinking") { Channel::Reasoning } else { channel };
    if let Some(text) = part.field("text") {
        piece(text, channel, emit);
    } else if kind.contains("image") || kind.contains("audio") || kind.contains("video") {
        emit(Event::OtherContent { choice });
    }
}

fn tool_call(call: Value<'_>, choice: u32, emit: &mut Emit<'_>) {
    if !call.is_object() {
        return;
    }
    let inner = call.field("function").or_else(|| call.field("custom")).unwrap_or(call);
    let index = match call.field("index").or_else(|| inner.field("index")) {
        Some(given) => match given.number() {
            Some(n) if n.fract() == 0.0 && (0.0..=MAX_INDEX as f64).contains(&n) => Some(n as i64),
            _ => {
                emit(Event::Odd(Flag::IndexAnomaly));
                None
            }
        },
        None => None,
    };
    let id = call.field("id").and_then(|v| v.string()).filter(|s| !s.is_empty());
    let name = inner.field("name").and_then(|v| v.string()).filter(|s| !s.is_empty());
    let arguments = ["arguments", "input"].iter().find_map(|n| inner.field(n));
    // Arguments given as an object instead of as its text mean the same.
    let arguments = arguments.map(|a| a.string().unwrap_or_else(|| String::from_utf8_lossy(a.span())));
    let piece = ToolPiece {
        index,
        counts_calls: true,
        id: id.as_deref(),
        name: name.as_deref(),
        arguments: arguments.as_deref().unwrap_or_default(),
        free: call.field("custom").is_some(),
    };
    emit(Event::ToolCall { choice, piece });
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use crate::verdict::Wire;

    fn message(message: &str) -> Vec<String> {
        let whole =
            events(Wire::Chat, &format!(r#"{{"choices":[{{"index":0,"message":{message}}}]}}"#), true);
        let delta = events(Wire::Chat, &format!(r#"{{"choices":[{{"index":0,"delta":{message}}}]}}"#), false);
        assert_eq!(whole, delta);
        whole
    }

    #[test]
    fn four_channels_under_all_their_names() {
        assert_eq!(message(r#"{"content":"a"}"#), ["0 Text a"]);
        assert_eq!(message(r#"{"content":null,"reasoning":"r"}"#), ["0 Reasoning r"]);
        assert_eq!(
            message(r#"{"content":"","reasoning_content":"r","reasoning":"r"}"#),
            ["0 Reasoning r", "0 Text "]
        );
        assert_eq!(message(r#"{"refusal":"no"}"#), ["0 Refusal no"]);
        assert_eq!(
            message(
                r#"{"tool_calls":[{"index":1,"id":"c","function":{"name":"f","arguments":"{\"a\":1}"}}]}"#
            ),
            [r#"0 tool Some(1) c f {"a":1}"#]
        );
        assert_eq!(message(r#"{"function_call":{"name":"f","arguments":"{}"}}"#), ["0 tool None - f {}"]);
        assert_eq!(
            message(r#"{"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]}"#),
            [r#"0 tool None - f {"a":1}"#]
        );
    }

    #[test]
    fn content_may_come_in_parts() {
        let parts = r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"t"}]},{"type":"text","text":"a"},
            {"type":"reference","reference_ids":[1]},{"type":"image_url","image_url":{}},"b",{"type":"refusal","refusal":"no"}]}"#;
        assert_eq!(message(parts), ["0 Reasoning t", "0 Text a", "0 other", "0 Text b", "0 Refusal no"]);
        assert_eq!(message(r#"{"content":{"type":"text","text":"a"}}"#), ["0 Text a"]);
    }

    #[test]
    fn nothing_is_mandatory() {
        for text in [
            "{}",
            "[]",
            "null",
            "3",
            r#"{"choices":null}"#,
            r#"{"choices":[null,3,{}]}"#,
            r#"{"choices":{"x":1}}"#,
        ] {
            assert_eq!(events(Wire::Chat, text, true), Vec::<String>::new(), "{text}");
        }
        assert_eq!(message(r#"{"content":3,"tool_calls":[3,null,{}]}"#), ["0 tool None - - "]);
    }

    #[test]
    fn why_it_ended_may_stand_in_an_object() {
        for reason in [r#""length""#, r#"{"type":"length","length":8}"#] {
            let text = format!(r#"{{"choices":[{{"finish_reason":{reason}}}]}}"#);
            assert_eq!(events(Wire::Chat, &text, true), ["0 finish length"], "{reason}");
        }
    }

    #[test]
    fn impossible_indexes_are_odd() {
        let two = |a: &str, b: &str| format!(r#"{{"choices":[{{"index":{a}}},{{"index":{b}}}]}}"#);
        assert_eq!(events(Wire::Chat, &two("0", "1"), true), Vec::<String>::new());
        assert_eq!(events(Wire::Chat, &two("0", "0"), true), ["odd index_anomaly"]);
        assert_eq!(events(Wire::Chat, &two("0", "0"), false), Vec::<String>::new());
        assert_eq!(events(Wire::Chat, &two("-1", "\"x\""), true), ["odd index_anomaly", "odd index_anomaly"]);
    }

    #[test]
    fn errors_stand_on_the_body_or_on_the_choice() {
        assert_eq!(
            events(Wire::Chat, r#"{"error":{"message":"slow down","code":429}}"#, true),
            ["error RateLimited slow down"]
        );
        assert_eq!(
            events(
                Wire::Chat,
                r#"{"choices":[{"error":{"message":"x","code":502},"finish_reason":"error"}]}"#,
                true
            ),
            ["error Server x", "0 finish error"]
        );
    }

    #[test]
    fn logprobs_of_every_layout_are_found() {
        let chat = r#"{"choices":[{"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],
            "top_logprobs":[{"token":"a","logprob":-0.5,"bytes":[97]},{"token":"b","logprob":-1,"bytes":null}]}]}}]}"#;
        assert_eq!(events(Wire::Chat, chat, true), [r#"0 "a"=-0.5 "a"=-0.5000 "b"=-1.0000"#]);
        let legacy = r#"{"choices":[{"text":"","logprobs":{"tokens":["a","b"],"token_logprobs":[null,-1],
            "top_logprobs":[null,{"b":-1,"c":-2}],"text_offset":[0,1]}}]}"#;
        assert_eq!(
            events(Wire::Completions, legacy, true),
            ["0 Text ", r#"0 "a"=NaN"#, r#"0 "b"=-1 "b"=-1.0000 "c"=-2.0000"#]
        );
        let native = r#"{"completion_probabilities":[{"content":"a","probs":[{"tok_str":"a","prob":1.0},{"tok_str":"b","prob":0.0}]},
            {"token":"c","prob":0.5,"top_probs":[{"token":"c","prob":0.5}]}]}"#;
        assert_eq!(
            events(Wire::Chat, native, true),
            [r#"0 "a"=0 "a"=0.0000 "b"=-inf"#, r#"0 "c"=-0.6931471805599453 "c"=-0.6931"#]
        );
    }

    #[test]
    fn usage_is_found_wherever_it_stands() {
        for text in [
            r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}"#,
            r#"{"choices":[{"usage":{"input_tokens":5,"output_tokens":2}}]}"#,
            r#"{"x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":2}}}"#,
            r#"{"usage":null,"timings":{"prompt_n":5,"predicted_n":2}}"#,
        ] {
            assert_eq!(events(Wire::Chat, text, false), ["usage Some(5) Some(2) None None"], "{text}");
        }
    }
}
