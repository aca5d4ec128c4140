//! A line, an event or a text that never ends takes bounded memory to judge. Alone in its file: it asks what
//! the process holds.

use std::sync::Arc;

use touchstone::judge::{Ask, End, Head, Judge};
use touchstone::verdict::Wire;

/// Memory that the judgement of one answer may hold, bytes; a whole body of 8 MiB and its nodes included.
const STREAM_BYTES: u64 = 48 << 20;

const ALL: [(Wire, &str); 9] = [
    (Wire::Chat, "text/event-stream"),
    (Wire::Completions, "text/event-stream"),
    (Wire::Responses, "text/event-stream"),
    (Wire::Messages, "text/event-stream"),
    (Wire::OllamaChat, "application/x-ndjson"),
    (Wire::OllamaGenerate, "application/x-ndjson"),
    (Wire::Embeddings, "application/json"),
    (Wire::Rerank, "application/json"),
    (Wire::KserveInfer, "application/json"),
];

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse().ok())
        .expect("a Linux machine tells its memory");
    pages * 4096
}

#[test]
fn endless_lines_events_and_texts_take_bounded_memory() {
    let piece = "word ".repeat(13_000);
    for (wire, kind) in ALL {
        for form in ["a line without end", "a text without end", "events without end"] {
            let ask = Arc::new(Ask::parse(wire, b"{\"stream\":true}"));
            let head = Head { status: 200, content_type: Some(kind.into()), ..Head::default() };
            let before = resident();
            let mut judge = Judge::new(ask, head);
            let event = match (kind, form) {
                (_, "a line without end") => "{\"x\":\"".to_owned() + &piece,
                ("text/event-stream", "events without end") => {
                    ": comment\n\ndata: {\"id\":1}\n\n".repeat(2_000)
                }
                (_, "events without end") => "{\"id\":1}\n".repeat(6_000),
                ("text/event-stream", _) => match wire {
                    Wire::Responses => {
                        format!("data: {{\"type\":\"response.output_text.delta\",\"delta\":\"{piece}\"}}\n\n")
                    }
                    Wire::Messages => format!(
                        "data: {{\"type\":\"content_block_delta\",\"delta\":{{\"text\":\"{piece}\"}}}}\n\n"
                    ),
                    _ => format!(
                        "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{piece}\"}},\"text\":\"{piece}\"}}]}}\n\n"
                    ),
                },
                _ => format!("{{\"response\":\"{piece}\",\"message\":{{\"content\":\"{piece}\"}}}}\n"),
            };
            // 16 MiB is twice what any whole body may take; text is judged, too, and so less of it will do.
            let size = if form == "a line without end" { 16 << 20 } else { 256 << 10 };
            for _ in 0..size / event.len() {
                let _ = judge.push(1, event.as_bytes());
            }
            let held = resident().saturating_sub(before);
            assert!(held < STREAM_BYTES, "{form} on {wire}: {} MiB held", held >> 20);
            let _ = judge.finish(2, End::Complete);
        }
    }
}
