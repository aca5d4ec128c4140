//! `/v1/completions`, whole and streamed, and llama.cpp's native form of the same answer.

use super::chat::{self, Top};
use super::{Channel, Emit, Event, Value};

/// Turns one document into events.
pub fn read(root: Value<'_>, whole: bool, emit: &mut Emit<'_>) {
    let mut top = Top::of(root);
    top.head(whole, emit);
    let mut seen = 0;
    let mut any = false;
    for (place, choice) in top.choices().enumerate() {
        any = true;
        let parts = top.parts(choice);
        let index = parts.index(place, whole, &mut seen, emit);
        if let Some(text) = parts.text {
            super::text_event(text, index, Channel::Text, emit);
        }
        parts.extras(choice, index, emit);
        chat::message_events(choice, index, emit);
        parts.ending(index, emit);
    }
    if !any {
        native(root, emit);
    }
    top.tail(emit);
}

/// `{"content", "stop", "stop_type"}`.
fn native(root: Value<'_>, emit: &mut Emit<'_>) {
    if let Some(content) = root.field("content") {
        super::text_event(content, 0, Channel::Text, emit);
    }
    if root.field("stop").and_then(|s| s.boolean()) == Some(true) {
        let limit = root.field("stop_type").is_some_and(|t| t.is_key("limit"))
            || root.field("stopped_limit").and_then(|s| s.boolean()) == Some(true);
        emit(Event::Finish { choice: 0, reason: if limit { "length" } else { "stop" } });
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use crate::verdict::Wire;

    #[test]
    fn text_and_its_ending() {
        let text =
            r#"{"model":"m","choices":[{"text":" Ge","index":0,"logprobs":null,"finish_reason":"length"}]}"#;
        assert_eq!(events(Wire::Completions, text, true), ["model m", "0 Text  Ge", "0 finish length"]);
    }

    #[test]
    fn the_native_form_is_the_same_answer() {
        let text =
            r#"{"content":"a","stop":true,"stop_type":"limit","timings":{"prompt_n":1,"predicted_n":2}}"#;
        assert_eq!(
            events(Wire::Completions, text, true),
            ["0 Text a", "0 finish length", "usage Some(1) Some(2) None None"]
        );
    }
}
