//! Ollama's `/api/chat` and `/api/generate`, whole and as lines.
//!
//! Both have one choice. A chat line holds a message, a generate line the text itself; the last line says
//! `done`, why, and the counts. A call that only loads or unloads a model answers without text, and that
//! is its whole answer. Errors come as `{"error": "…"}`, in the midst of the lines too.

use super::{Channel, Counts, Emit, Event, Fault, Value, chat, logprobs};

/// Turns one document into events.
pub fn read(root: Value<'_>, emit: &mut Emit<'_>) {
    let message = root.field("message").filter(|m| m.is_object());
    let response = root.field("response").filter(|r| r.is_string());
    let done = root.field("done").and_then(|d| d.boolean());
    let answered = message.is_some() || response.is_some() || done.is_some();
    if let Some(name) = root.field("model").and_then(|m| m.string()).filter(|m| !m.is_empty()) {
        emit(Event::Model(&name));
    }
    if let Some(fault) = Fault::find(root, answered) {
        emit(Event::Error(&fault));
    }
    if let Some(list) = root.field("logprobs") {
        logprobs::read(list, &mut |position| emit(Event::Position { choice: 0, position }));
    }
    if let Some(message) = message {
        chat::message_events(message, 0, emit);
    }
    // The thought comes first, as the model had it first.
    for (name, channel) in [("thinking", Channel::Reasoning), ("response", Channel::Text)] {
        if let Some(text) = root.field(name).filter(|t| t.is_string()) {
            super::text_event(text, 0, channel, emit);
        }
    }
    if root.field("tool_calls").is_some() {
        chat::tool_calls(root, 0, emit);
    }
    if root.field("image").and_then(|i| i.string()).is_some_and(|i| !i.is_empty()) {
        emit(Event::OtherContent { choice: 0 });
    }
    if done == Some(true) {
        ending(root, emit);
    }
    if let Some(counts) = Counts::read(root) {
        emit(Event::Usage(counts));
    }
}

fn ending(root: Value<'_>, emit: &mut Emit<'_>) {
    let reason = root.field("done_reason").and_then(|r| r.string()).filter(|r| !r.is_empty());
    if let Some(reason) = reason {
        if matches!(&*reason, "load" | "unload") {
            emit(Event::OtherContent { choice: 0 });
        }
        emit(Event::Finish { choice: 0, reason: &reason });
    }
    emit(Event::End);
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use crate::verdict::Wire;

    fn chat(text: &str) -> Vec<String> {
        let line = events(Wire::OllamaChat, text, false);
        assert_eq!(line, events(Wire::OllamaChat, text, true));
        line
    }

    fn generate(text: &str) -> Vec<String> {
        events(Wire::OllamaGenerate, text, false)
    }

    #[test]
    fn a_message_has_all_channels() {
        let text = r#"{"model":"m","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"Hi","thinking":"hm",
            "tool_calls":[{"id":"call_1","function":{"index":0,"name":"f","arguments":{"a":1}}},{"function":{"name":"g","arguments":{}}}]},"done":false}"#;
        let wanted = [
            "model m",
            "0 Reasoning hm",
            "0 Text Hi",
            r#"0 tool Some(0) call_1 f {"a":1}"#,
            "0 tool None - g {}",
        ];
        assert_eq!(chat(text), wanted);
    }

    #[test]
    fn the_last_line_tells_why_and_how_much() {
        let last = r#"{"model":"m","message":{"role":"assistant","content":""},"done":true,"done_reason":"length",
            "total_duration":5,"load_duration":1,"prompt_eval_count":26,"prompt_eval_duration":1,"eval_count":298,"eval_duration":3}"#;
        let wanted = ["model m", "0 Text ", "0 finish length", "end", "usage Some(26) Some(298) None None"];
        assert_eq!(chat(last), wanted);
        assert_eq!(chat(r#"{"done":true}"#), ["end"], "older servers give no reason");
        assert_eq!(
            generate(r#"{"response":"","done":true,"done_reason":"load"}"#),
            ["0 Text ", "0 other", "0 finish load", "end"]
        );
    }

    #[test]
    fn generated_text_stands_beside_its_thought() {
        assert_eq!(
            generate(r#"{"response":"Hi","thinking":"","done":false}"#),
            ["0 Reasoning ", "0 Text Hi"]
        );
        assert_eq!(
            generate(r#"{"response":"Hi","context":[1,2,3],"done":false}"#),
            ["0 Text Hi"],
            "numbers of the context are no answer"
        );
        assert_eq!(generate(r#"{"image":"iVBOR","done":false}"#), ["0 other"]);
    }

    #[test]
    fn logprobs_stand_beside_the_text() {
        let text = r#"{"response":"Hi","done":false,"logprobs":[{"token":"Hi","logprob":-0.5,"bytes":[72,105],
            "top_logprobs":[{"token":"Hi","logprob":-0.5,"bytes":[72,105]},{"token":"Ho","logprob":-1}]}]}"#;
        assert_eq!(generate(text), [r#"0 "Hi"=-0.5 "Hi"=-0.5000 "Ho"=-1.0000"#, "0 Text Hi"]);
    }

    #[test]
    fn an_error_is_a_text_or_more() {
        assert_eq!(chat(r#"{"error":"model 'x' not found"}"#), ["error Client model 'x' not found"]);
        assert_eq!(chat(r#"{"error":"an error was encountered while running the model"}"#).len(), 1);
        assert_eq!(
            chat(r#"{"StatusCode":429,"Status":"429 Too Many Requests","error":"too many requests"}"#),
            ["error RateLimited too many requests"]
        );
        assert_eq!(chat(r#"{"error":{"message":"boom","type":"server_error"}}"#), ["error Server boom"]);
    }

    #[test]
    fn nothing_is_mandatory() {
        for text in ["{}", "[]", "null", r#"{"message":"x"}"#, r#"{"message":{"content":7},"done":"yes"}"#] {
            assert_eq!(chat(text), Vec::<String>::new(), "{text}");
        }
    }
}
