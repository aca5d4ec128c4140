//! `/v1/messages` (Anthropic), whole and streamed.
//!
//! A stream tells its events by `type`, and by the event's name where a server leaves that out. Content comes in numbered blocks; the start of a tool block
//! carries the name, its deltas the arguments. Usage comes at the start and, as totals, at the end.

use super::{Channel, Counts, Emit, Event, Fault, Form, ToolPiece, Value};

/// Turns one document into events.
pub fn read(root: Value<'_>, form: Form<'_>, emit: &mut Emit<'_>) {
    let kind = root.field("type").and_then(|t| t.string()).unwrap_or_default();
    let kind = match form {
        Form::Event(name) if kind.is_empty() => String::from_utf8_lossy(name),
        _ => kind,
    };
    if let Some(fault) = Fault::find(root, !kind.is_empty() || root.field("content").is_some()) {
        return emit(Event::Error(&fault));
    }
    let block = root.field("index").and_then(|i| i.count());
    match &*kind {
        "message_start" => {
            if let Some(message) = root.field("message") {
                self::message(message, emit);
            }
        }
        "content_block_start" => {
            if let Some(start) = root.field("content_block") {
                content(start, block, emit);
            }
        }
        "content_block_delta" => {
            if let Some(delta) = root.field("delta") {
                self::delta(delta, block, emit);
            }
        }
        "message_delta" => {
            if let Some(delta) = root.field("delta") {
                ending(delta, emit);
            }
            usage(root, emit);
        }
        "message_stop" => emit(Event::End),
        "ping" | "content_block_stop" => {}
        _ => message(root, emit),
    }
}

fn message(message: Value<'_>, emit: &mut Emit<'_>) {
    if let Some(name) = message.field("model").and_then(|m| m.string()).filter(|m| !m.is_empty()) {
        emit(Event::Model(&name));
    }
    if let Some(list) = message.field("content") {
        piece(Some(list), Channel::Text, emit);
        for (place, block) in list.items().enumerate() {
            content(block, i64::try_from(place).ok(), emit);
        }
    }
    ending(message, emit);
    usage(message, emit);
}

fn content(block: Value<'_>, index: Option<i64>, emit: &mut Emit<'_>) {
    let kind = block.field("type").and_then(|t| t.string()).unwrap_or_default();
    match &*kind {
        "thinking" => piece(block.field("thinking"), Channel::Reasoning, emit),
        // What was thought is hidden, but thought it was.
        "redacted_thinking" => piece(block.field("data"), Channel::Reasoning, emit),
        "tool_use" => {
            let id = block.field("id").and_then(|v| v.string());
            let name = block.field("name").and_then(|v| v.string());
            // The start of a streamed call has an empty object here, and the arguments follow.
            let input = block.field("input").filter(|i| !i.is_object() || i.members().next().is_some());
            let input = input.map(|i| i.string().unwrap_or_else(|| String::from_utf8_lossy(i.span())));
            emit(Event::ToolCall {
                choice: 0,
                piece: ToolPiece {
                    index,
                    counts_calls: false,
                    id: id.as_deref(),
                    name: name.as_deref(),
                    arguments: input.as_deref().unwrap_or_default(),
                    free: false,
                },
            });
        }
        "text" | "" => piece(block.field("text"), Channel::Text, emit),
        _ => emit(Event::OtherContent { choice: 0 }),
    }
}

fn delta(delta: Value<'_>, index: Option<i64>, emit: &mut Emit<'_>) {
    piece(delta.field("text"), Channel::Text, emit);
    piece(delta.field("thinking"), Channel::Reasoning, emit);
    if let Some(json) = delta.field("partial_json").and_then(|p| p.string()) {
        let piece = ToolPiece { index, arguments: &json, ..ToolPiece::default() };
        emit(Event::ToolCall { choice: 0, piece });
    }
}

fn piece(text: Option<Value<'_>>, channel: Channel, emit: &mut Emit<'_>) {
    if let Some(text) = text.filter(|t| t.is_string()) {
        super::text_event(text, 0, channel, emit);
    }
}

fn ending(holder: Value<'_>, emit: &mut Emit<'_>) {
    if let Some(reason) = holder.field("stop_reason").and_then(|r| r.string()).filter(|r| !r.is_empty()) {
        emit(Event::Finish { choice: 0, reason: &reason });
    }
}

fn usage(holder: Value<'_>, emit: &mut Emit<'_>) {
    if let Some(counts) = holder.field("usage").and_then(Counts::read) {
        emit(Event::Usage(counts));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Form;
    use super::super::tests::{all_events, events};
    use crate::verdict::Wire;

    fn of(text: &str) -> Vec<String> {
        events(Wire::Messages, text, false)
    }

    #[test]
    fn a_whole_message_has_all_channels() {
        let text = r#"{"type":"message","model":"m","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"Hi"},
            {"type":"tool_use","id":"t","name":"f","input":{"a":1}},{"type":"server_tool_use"}],"stop_reason":"tool_use",
            "usage":{"input_tokens":3,"output_tokens":4}}"#;
        let wanted = [
            "model m",
            "0 Reasoning hm",
            "0 Text Hi",
            r#"0 tool Some(2) t f {"a":1}"#,
            "0 other",
            "0 finish tool_use",
            "usage Some(3) Some(4) None None",
        ];
        assert_eq!(of(text), wanted);
    }

    #[test]
    fn a_stream_tells_its_events_by_type() {
        assert_eq!(of(r#"{"type":"ping"}"#), Vec::<String>::new());
        assert_eq!(
            of(
                r#"{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t","name":"f","input":{}}}"#
            ),
            ["0 tool Some(1) t f "]
        );
        assert_eq!(
            of(
                r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\""}}"#
            ),
            [r#"0 tool Some(1) - - {"a""#]
        );
        assert_eq!(
            of(r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#),
            ["0 Text Hi"]
        );
        assert_eq!(
            of(r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":4}}"#),
            ["0 finish end_turn", "usage None Some(4) None None"]
        );
        assert_eq!(of(r#"{"type":"message_stop"}"#), ["end"]);
        assert_eq!(
            of(r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#),
            ["error Overloaded Overloaded"]
        );
    }

    #[test]
    fn the_type_may_stand_in_the_events_name_alone() {
        let pieces = [
            (Form::Event(b"content_block_delta"), r#"{"index":0,"delta":{"text":"Hi"}}"#),
            (Form::Event(b"message_stop"), "{}"),
        ];
        assert_eq!(all_events(Wire::Messages, &pieces), ["0 Text Hi", "end"]);
    }

    #[test]
    fn nothing_is_mandatory() {
        for text in [
            "{}",
            "[]",
            "null",
            r#"{"type":"message_start"}"#,
            r#"{"type":"content_block_delta"}"#,
            r#"{"content":[3,null]}"#,
        ] {
            let all = of(text);
            assert!(all.iter().all(|e| e == "0 other"), "{text} {all:?}");
        }
    }
}
