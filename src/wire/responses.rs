//! `/v1/responses`, whole and streamed.
//!
//! An answer is a list of items: messages, reasoning, tool calls. A stream tells its events by `type`
//! (by the event's name where a server leaves `type` out), and tells everything up to four times: in
//! pieces, as a finished part, as a finished item, and in the whole response at the end. Servers differ
//! in which of these they send, so each telling counts only for what has not been told yet; [`Told`]
//! remembers that. A stream ends with `response.completed`, `.incomplete` or `.failed`, without `[DONE]`.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::{Channel, Counts, Emit, Event, Fault, Form, ToolPiece, Value, logprobs};

/// Most parts followed in one stream; later ones are read in pieces only.
const MAX_PARTS: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Text,
    Logprobs,
    Refusal,
    Summary,
    Thought,
    Name,
    Arguments,
}

/// Which part of the answer something belongs to: the item, and the place within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    item: u64,
    place: i64,
    what: What,
}

/// What a stream has told already.
#[derive(Debug, Default)]
pub struct Told {
    parts: Vec<Part>,
    /// Items whose text is not the answer: reasoning, and what is said between tool calls.
    asides: Vec<u64>,
    full: bool,
}

impl Told {
    fn note(&mut self, part: Part) {
        if self.parts.last() == Some(&part) || self.parts.contains(&part) {
            return;
        }
        self.full |= self.parts.len() >= MAX_PARTS;
        if !self.full {
            self.parts.push(part);
        }
    }

    /// Whether a part is new, and notes it.
    fn is_new(&mut self, part: Part) -> bool {
        let new = !self.full && !self.parts.contains(&part);
        self.note(part);
        new
    }

    fn has_item(&self, item: u64, what: What) -> bool {
        self.full || self.parts.iter().any(|p| p.item == item && p.what == what)
    }

    fn has_any(&self, what: What) -> bool {
        self.full || self.parts.iter().any(|p| p.what == what)
    }
}

/// Turns one document into events.
pub fn read(root: Value<'_>, form: Form<'_>, told: &mut Told, emit: &mut Emit<'_>) {
    let kind = root.field("type").and_then(|t| t.string()).unwrap_or_default();
    let name = match form {
        Form::Event(name) if kind.is_empty() => std::str::from_utf8(name).unwrap_or_default(),
        _ => &kind,
    };
    let response = root.field("response").filter(|r| r.is_object());
    let answered = response.is_some() || !name.is_empty() || root.field("output").is_some();
    if let Some(fault) = Fault::find(root, answered) {
        return emit(Event::Error(&fault));
    }
    if form == Form::Whole || root.field("object").is_some_and(|o| o.is_key("response")) {
        return whole(root, told, emit);
    }
    let part = |place: &str, what| Part {
        item: item_of(root),
        place: root.field(place).and_then(|p| p.count()).unwrap_or(0),
        what,
    };
    let text = |name: &str| root.field(name).filter(|t| t.is_string());
    match name {
        "response.output_text.delta" => {
            let part = part("content_index", What::Text);
            positions(root, part, told, true, emit);
            say(text("delta"), part, told, true, emit);
        }
        "response.output_text.done" => {
            let part = part("content_index", What::Text);
            positions(root, part, told, false, emit);
            say(text("text"), part, told, false, emit);
        }
        "response.refusal.delta" => {
            say(text("delta"), part("content_index", What::Refusal), told, true, emit);
        }
        "response.refusal.done" => {
            say(text("refusal"), part("content_index", What::Refusal), told, false, emit);
        }
        "response.reasoning_summary_text.delta" | "response.reasoning_summary.delta" => {
            say(text_in(root), part("summary_index", What::Summary), told, true, emit);
        }
        "response.reasoning_summary_text.done" | "response.reasoning_summary.done" => {
            say(text("text"), part("summary_index", What::Summary), told, false, emit);
        }
        "response.reasoning_text.delta" | "response.reasoning.delta" => {
            say(text_in(root), part("content_index", What::Thought), told, true, emit);
        }
        "response.reasoning_text.done" | "response.reasoning.done" => {
            say(text("text"), part("content_index", What::Thought), told, false, emit);
        }
        "response.audio.transcript.delta" | "response.output_audio_transcript.delta" => {
            say(text("delta"), part("content_index", What::Text), told, true, emit);
        }
        "response.audio.delta" | "response.output_audio.delta" => emit(Event::OtherContent { choice: 0 }),
        "response.content_part.done" => {
            if let Some(content) = root.field("part") {
                let place = part("content_index", What::Text).place;
                content_part(content, item_of(root), place, told, emit);
            }
        }
        "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
            arguments(root, text("delta"), part("", What::Arguments), told, true, emit);
        }
        "response.function_call_arguments.done" => {
            arguments(root, text("arguments"), part("", What::Arguments), told, false, emit);
        }
        "response.custom_tool_call_input.done" => {
            arguments(root, text("input"), part("", What::Arguments), told, false, emit);
        }
        "response.output_item.added" | "response.output_item.done" => {
            let Some(item) = root.field("item") else { return };
            let place = root.field("output_index").and_then(|i| i.count());
            let done = name.ends_with("done");
            self::item(item, place, place.map_or_else(|| id_of(item), index_of), done, told, emit);
        }
        _ => {
            if let Some(response) = response {
                envelope(name, response, told, emit);
            }
        }
    }
}

/// The events that carry the response itself.
fn envelope(name: &str, response: Value<'_>, told: &mut Told, emit: &mut Emit<'_>) {
    let is_last = ["completed", "done", "incomplete", "failed", "cancelled"]
        .iter()
        .any(|end| name.strip_prefix("response.") == Some(end));
    if !is_last {
        return model(response, emit);
    }
    if let Some(fault) = Fault::find(response, true) {
        emit(Event::Error(&fault));
    } else if name == "response.failed" {
        emit(Event::Error(&Fault::of(response, response)));
    }
    whole(response, told, emit);
    emit(Event::End);
}

/// A whole response; of a stream's last event only what nobody told before.
fn whole(response: Value<'_>, told: &mut Told, emit: &mut Emit<'_>) {
    model(response, emit);
    let all = [What::Text, What::Logprobs, What::Refusal, What::Summary, What::Thought, What::Arguments];
    let before: Vec<What> = all.into_iter().filter(|what| told.has_any(*what)).collect();
    let has_output = response.field("output").is_some_and(|o| o.items().next().is_some());
    let mut inner = Told::default();
    let mut fresh = |event: Event<'_>| {
        let what = match event {
            Event::Piece { channel: Channel::Text, .. } => Some(What::Text),
            Event::Piece { channel: Channel::Refusal, .. } => Some(What::Refusal),
            Event::Piece { channel: Channel::Reasoning, .. } => Some(What::Thought),
            Event::Position { .. } => Some(What::Logprobs),
            Event::ToolCall { .. } => Some(What::Arguments),
            _ => None,
        };
        let thought_of = what == Some(What::Thought) && before.contains(&What::Summary);
        if !thought_of && what.is_none_or(|what| !before.contains(&what)) {
            emit(event);
        }
    };
    for (place, item) in response.field("output").into_iter().flat_map(|o| o.items()).enumerate() {
        let place = i64::try_from(place).ok();
        self::item(item, place, place.map_or(0, index_of), true, &mut inner, &mut fresh);
    }
    if !has_output {
        let text = response.field("output_text").filter(|t| t.is_string());
        say(text, Part { item: 0, place: 0, what: What::Text }, &mut inner, true, &mut fresh);
    }
    if response.field("content_filters").is_some_and(|filters| {
        filters.items().any(|f| f.field("blocked").and_then(|b| b.boolean()) == Some(true))
    }) {
        emit(Event::Filtered);
    }
    ending(response, has_output, emit);
    if let Some(counts) = response.field("usage").and_then(Counts::read) {
        emit(Event::Usage(counts));
    }
}

fn ending(response: Value<'_>, has_output: bool, emit: &mut Emit<'_>) {
    let reason = response.path(&["incomplete_details", "reason"]).and_then(|r| r.string());
    let status = response.field("status").and_then(|s| s.string());
    if !has_output && matches!(status.as_deref(), Some("queued" | "in_progress")) {
        // Taken on to be done in the background: there is no answer yet, and that is no fault.
        emit(Event::OtherContent { choice: 0 });
    }
    if let Some(reason) = reason.or(status).filter(|r| !r.is_empty()) {
        emit(Event::Finish { choice: 0, reason: &reason });
    }
}

fn model(response: Value<'_>, emit: &mut Emit<'_>) {
    if let Some(name) = response.field("model").and_then(|m| m.string()).filter(|m| !m.is_empty()) {
        emit(Event::Model(&name));
    }
}

/// One item of the output: `done` if it is finished, else only its opening.
fn item(item: Value<'_>, place: Option<i64>, key: u64, done: bool, told: &mut Told, emit: &mut Emit<'_>) {
    let kind = item.field("type").and_then(|t| t.string()).unwrap_or_default();
    let is_aside = kind == "reasoning" || item.field("phase").is_some_and(|p| p.is_key("commentary"));
    if is_aside && !told.asides.contains(&key) && told.asides.len() < MAX_PARTS {
        told.asides.push(key);
    }
    match &*kind {
        "message" | "reasoning" | "" if done => {
            for (i, summary) in item.field("summary").into_iter().flat_map(|s| s.items()).enumerate() {
                let part = Part { item: key, place: i as i64, what: What::Summary };
                say(summary.field("text").filter(|t| t.is_string()), part, told, false, emit);
            }
            for (i, content) in item.field("content").into_iter().flat_map(|c| c.items()).enumerate() {
                content_part(content, key, i as i64, told, emit);
            }
            if let Some(content) = item.field("content").filter(|c| c.is_string()) {
                say(Some(content), Part { item: key, place: 0, what: What::Text }, told, false, emit);
            }
            let hidden = item.field("encrypted_content").is_some();
            let shown = told.has_item(key, What::Summary) || told.has_item(key, What::Thought);
            if hidden && !shown && !told.has_item(key, What::Text) {
                // What was thought is hidden, but thought it was.
                emit(Event::Piece { choice: 0, channel: Channel::Reasoning, text: "\u{2026}" });
            }
        }
        "message" | "reasoning" | "" => {}
        "function_call" | "custom_tool_call" | "tool_call" => tool(item, place, key, done, told, emit),
        // Steps on the way to an answer, not an answer.
        "web_search_call"
        | "file_search_call"
        | "code_interpreter_call"
        | "mcp_call"
        | "mcp_list_tools"
        | "tool_search_call"
        | "compaction" => {}
        // What a caller is to act upon or look at: an image, a click, a command, a question to approve.
        _ if done && !kind.ends_with("_output") => emit(Event::OtherContent { choice: 0 }),
        _ => {}
    }
}

fn tool(item: Value<'_>, place: Option<i64>, key: u64, done: bool, told: &mut Told, emit: &mut Emit<'_>) {
    let inner = item.field("function").unwrap_or(item);
    let name = inner.field("name").and_then(|n| n.string()).filter(|n| !n.is_empty());
    let name = name.filter(|_| told.is_new(Part { item: key, place: 0, what: What::Name }));
    // The opening of a streamed call may have its arguments already; then no piece repeats them.
    let given = ["arguments", "input"].iter().find_map(|n| inner.field(n));
    let given = given.map(|a| a.string().unwrap_or_else(|| String::from_utf8_lossy(a.span())));
    let given = given.filter(|a| done && !a.is_empty());
    let given = given.filter(|_| told.is_new(Part { item: key, place: 0, what: What::Arguments }));
    if name.is_none() && given.is_none() {
        return;
    }
    // Within a stream calls are told apart by their place, since some servers give each event a new id.
    let id = ["id", "call_id"].iter().find_map(|n| item.field(n)).and_then(|i| i.string());
    let piece = ToolPiece {
        index: place,
        counts_calls: false,
        id: id.as_deref().filter(|i| !i.is_empty() && place.is_none()),
        name: name.as_deref(),
        arguments: given.as_deref().unwrap_or_default(),
        free: item.field("type").is_some_and(|t| t.is_key("custom_tool_call")),
    };
    emit(Event::ToolCall { choice: 0, piece });
}

/// A piece of a call's arguments, or all of them.
fn arguments(
    root: Value<'_>,
    text: Option<Value<'_>>,
    part: Part,
    told: &mut Told,
    is_piece: bool,
    emit: &mut Emit<'_>,
) {
    let Some(text) = text.and_then(|t| t.string()).filter(|t| !t.is_empty()) else { return };
    if is_piece {
        told.note(part);
    } else if !told.is_new(part) {
        return;
    }
    let place = root.field("output_index").and_then(|i| i.count());
    let id = root.field("item_id").and_then(|i| i.string());
    let id = id.as_deref().filter(|i| !i.is_empty() && place.is_none());
    let piece = ToolPiece { index: place, id, arguments: &text, ..ToolPiece::default() };
    emit(Event::ToolCall { choice: 0, piece });
}

/// A finished part of a message's or a thought's content.
fn content_part(content: Value<'_>, item: u64, place: i64, told: &mut Told, emit: &mut Emit<'_>) {
    let kind = content.field("type").and_then(|t| t.string()).unwrap_or_default();
    let text = |name: &str| content.field(name).filter(|t| t.is_string());
    let part = |what| Part { item, place, what };
    match &*kind {
        "refusal" => say(text("refusal"), part(What::Refusal), told, false, emit),
        "reasoning_text" => say(text("text"), part(What::Thought), told, false, emit),
        "summary_text" => say(text("text"), part(What::Summary), told, false, emit),
        "output_audio" => {
            emit(Event::OtherContent { choice: 0 });
            say(text("transcript"), part(What::Text), told, false, emit);
        }
        "output_text" | "text" | "" => {
            let part = part(What::Text);
            positions(content, part, told, false, emit);
            say(text("text"), part, told, false, emit);
        }
        _ => emit(Event::OtherContent { choice: 0 }),
    }
}

/// Gives out a text: a piece always, a finished one if it has not been told in pieces.
fn say(text: Option<Value<'_>>, part: Part, told: &mut Told, is_piece: bool, emit: &mut Emit<'_>) {
    let Some(text) = text.filter(|t| !t.span().is_empty()) else { return };
    if is_piece {
        told.note(part);
    } else if !told.is_new(part) {
        return;
    }
    let channel = match part.what {
        What::Refusal => Channel::Refusal,
        What::Text if !told.asides.contains(&part.item) => Channel::Text,
        _ => Channel::Reasoning,
    };
    super::text_event(text, 0, channel, emit);
}

fn positions(holder: Value<'_>, text: Part, told: &mut Told, is_piece: bool, emit: &mut Emit<'_>) {
    let part = Part { what: What::Logprobs, ..text };
    let Some(list) = holder.field("logprobs").filter(|l| l.items().next().is_some()) else { return };
    if is_piece {
        told.note(part);
    } else if !told.is_new(part) {
        return;
    }
    if !told.asides.contains(&text.item) {
        logprobs::entries(list, &mut |position| emit(Event::Position { choice: 0, position }));
    }
}

/// A delta that is a text, or (seen with reasoning) an object around one.
fn text_in(root: Value<'_>) -> Option<Value<'_>> {
    let delta = root.field("delta")?;
    Some(delta.field("text").unwrap_or(delta)).filter(|t| t.is_string())
}

/// The item that an event belongs to: by its place, else by its id.
fn item_of(event: Value<'_>) -> u64 {
    match event.field("output_index").and_then(|i| i.count()) {
        Some(place) => index_of(place),
        None => event.field("item_id").and_then(|i| i.string()).map_or(0, |id| hashed(&id)),
    }
}

fn id_of(item: Value<'_>) -> u64 {
    item.field("id").and_then(|i| i.string()).map_or(0, |id| hashed(&id))
}

fn index_of(place: i64) -> u64 {
    // Apart from all ids: those have the highest bit.
    place.unsigned_abs() & (u64::MAX >> 1)
}

fn hashed(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish() | 1 << 63
}

#[cfg(test)]
mod tests;
