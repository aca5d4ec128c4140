//! What a fault of quality does to an answer: its texts are replaced, everything else stays.
//!
//! An answer is spoiled whole, also a streamed one: its pieces of text are put together, spoiled as one text,
//! and dealt out again over the same pieces, so that the answer looks in every other way like the sound one.

use serde_json::Value;

use super::{Condition, Transport};

/// Words of a loop, and how often they come.
const LOOP_WORDS: usize = 3;
const LOOP_TIMES: usize = 120;
/// Shortest high-entropy text, bytes.
const NOISE_BYTES: usize = 240;
/// What another language looks like.
const FOREIGN: &str = "Съешь же ещё этих мягких французских булок, да выпей чаю. Погода сегодня хорошая, и мы идём \
                       гулять в парк, где растут высокие деревья и поют птицы.";

/// What is to be done to one answer.
#[derive(Clone, Copy, Debug)]
pub struct Spoil {
    /// Faults of quality.
    pub condition: Condition,
    /// Whether logprobs go.
    pub logprobs_drop: bool,
}

impl Spoil {
    /// What these faults do to an answer; `None` if they leave its content alone.
    #[must_use]
    pub fn of(condition: Condition, transport: &Transport) -> Option<Self> {
        let spoils = !Condition { swapped: false, ..condition }.is_sound() || transport.logprobs_drop;
        spoils.then_some(Self { condition, logprobs_drop: transport.logprobs_drop })
    }

    /// The whole body, spoiled; `draw` yields numbers in 0..1. A body that cannot be read stays as it is.
    #[must_use]
    pub fn body(&self, body: &[u8], draw: &mut dyn FnMut() -> f64) -> Vec<u8> {
        let Ok(text) = std::str::from_utf8(body) else { return body.to_vec() };
        if let Ok(mut whole) = serde_json::from_str::<Value>(text) {
            self.values(std::slice::from_mut(&mut whole), draw);
            return whole.to_string().into_bytes();
        }
        let mut lines: Vec<Line<'_>> = text.split_inclusive('\n').map(Line::read).collect();
        let mut values: Vec<Value> = lines.iter_mut().filter_map(|line| line.value.take()).collect();
        self.values(&mut values, draw);
        let mut values = values.into_iter();
        let mut out = String::with_capacity(body.len());
        for line in lines {
            match line.prefix {
                Some(prefix) => {
                    out.push_str(prefix);
                    out.push_str(&values.next().map(|v| v.to_string()).unwrap_or_default());
                    out.push_str(line.end);
                }
                None => out.push_str(line.text),
            }
        }
        out.into_bytes()
    }

    fn values(&self, values: &mut [Value], draw: &mut dyn FnMut() -> f64) {
        if self.logprobs_drop {
            values.iter_mut().for_each(drop_logprobs);
        }
        let mut pieces: Vec<&mut String> = Vec::new();
        for value in values.iter_mut() {
            collect(value, &mut pieces);
        }
        let whole: String = pieces.iter().map(|piece| piece.as_str()).collect();
        let Some(spoiled) = self.text(&whole, draw) else { return };
        let letters: Vec<char> = spoiled.chars().collect();
        let n = pieces.len().max(1);
        for (i, piece) in pieces.into_iter().enumerate() {
            *piece = letters[letters.len() * i / n..letters.len() * (i + 1) / n].iter().collect();
        }
    }

    /// The text, spoiled; `None` to leave it alone.
    fn text(&self, text: &str, draw: &mut dyn FnMut() -> f64) -> Option<String> {
        let c = &self.condition;
        let mut below = |n: usize| ((draw() * n as f64) as usize).min(n.saturating_sub(1));
        if c.empty {
            return Some(String::new());
        }
        if c.gibberish {
            return Some(noise(text.len().max(NOISE_BYTES), &mut below));
        }
        if c.looping {
            let words: Vec<&str> = text.split_whitespace().take(LOOP_WORDS).collect();
            let words = if words.is_empty() { "and so on".to_owned() } else { words.join(" ") };
            return Some(vec![words; LOOP_TIMES].join(" "));
        }
        if c.wrong_language {
            return Some(FOREIGN.to_owned());
        }
        let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        if c.shuffle {
            for i in (1..words.len()).rev() {
                words.swap(i, below(i + 1));
            }
            return Some(words.join(" "));
        }
        if c.damage > 0.0 {
            let n = words.len();
            for i in 0..n {
                if (below(1_000) as f32) < c.damage * 1_000.0 {
                    let other = below(n);
                    words.swap(i, other);
                }
            }
            return Some(words.join(" "));
        }
        c.schema_break.then(|| match text.rfind(['}', ']']) {
            Some(at) => text[..at].to_owned(),
            None => format!("{{\"answer\": {text}"),
        })
    }
}

/// Letters without a word among them, as a model with broken weights prints them at worst.
fn noise(bytes: usize, below: &mut dyn FnMut(usize) -> usize) -> String {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
    let mut out = String::with_capacity(bytes + 16);
    while out.len() < bytes {
        for _ in 0..2 + below(9) {
            out.push(char::from(LETTERS[below(LETTERS.len())]));
        }
        out.push(' ');
    }
    out
}

/// Puts this name in place of the model's, wherever the answer says it.
#[must_use]
pub fn rename(body: &[u8], name: &str) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(body) else { return body.to_vec() };
    let set = |value: &mut Value| {
        if let Some(model) = value.get_mut("model") {
            *model = name.into();
        }
    };
    if let Ok(mut whole) = serde_json::from_str::<Value>(text) {
        set(&mut whole);
        return whole.to_string().into_bytes();
    }
    let mut out = String::with_capacity(body.len());
    for line in text.split_inclusive('\n').map(Line::read) {
        match (line.prefix, line.value) {
            (Some(prefix), Some(mut value)) => {
                set(&mut value);
                out.push_str(prefix);
                out.push_str(&value.to_string());
                out.push_str(line.end);
            }
            _ => out.push_str(line.text),
        }
    }
    out.into_bytes()
}

/// One line of a stream: an event's data, a line of JSON, or anything else.
struct Line<'t> {
    text: &'t str,
    prefix: Option<&'t str>,
    end: &'t str,
    value: Option<Value>,
}

impl<'t> Line<'t> {
    fn read(text: &'t str) -> Self {
        let bare = text.trim_end_matches(['\n', '\r']);
        let end = &text[bare.len()..];
        let start = bare.find('{').filter(|at| matches!(bare[..*at].trim(), "" | "data:"));
        let value = start.and_then(|at| serde_json::from_str(&bare[at..]).ok());
        let prefix = start.filter(|_| value.is_some()).map(|at| &bare[..at]);
        Self { text, prefix, end, value }
    }
}

/// Where the wires keep their text.
fn collect<'v>(value: &'v mut Value, out: &mut Vec<&'v mut String>) {
    let Value::Object(map) = value else { return };
    let is_delta = map.get("type").and_then(Value::as_str).is_some_and(|t| t.ends_with("output_text.delta"));
    for (name, member) in map.iter_mut() {
        let name = name.as_str();
        if member.is_object() && matches!(name, "message" | "delta" | "content_block") {
            collect(member, out);
            continue;
        }
        match member {
            Value::Array(list) if matches!(name, "choices" | "output" | "content") => {
                list.iter_mut().for_each(|v| collect(v, out));
            }
            Value::String(text)
                if matches!(name, "content" | "text" | "response") || (name == "delta" && is_delta) =>
            {
                out.push(text);
            }
            _ => {}
        }
    }
}

fn drop_logprobs(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for name in ["logprobs", "top_logprobs", "token_logprobs"] {
                map.remove(name);
            }
            map.values_mut().for_each(drop_logprobs);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_logprobs),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SENTENCE: &str = "The capital of France is Paris, on the river Seine.";

    fn spoiled(faults: &str, body: &str) -> String {
        let faults: super::super::Faults = faults.parse().expect("a fault");
        let mut rng = fastrand::Rng::with_seed(3);
        let (condition, transport) = faults.strike(|| rng.f64());
        let spoil = Spoil::of(condition, &transport).expect("spoils");
        String::from_utf8(spoil.body(body.as_bytes(), &mut || rng.f64())).expect("text")
    }

    fn chat(text: &str) -> String {
        json!({ "model": "m", "choices": [{ "message": { "role": "assistant", "content": text }, "logprobs": { "content": [] } }],
                "usage": { "total_tokens": 9 } })
        .to_string()
    }

    fn said(body: &str) -> String {
        let value: Value = serde_json::from_str(body).expect("JSON");
        value["choices"][0]["message"]["content"].as_str().expect("text").to_owned()
    }

    #[test]
    fn only_the_text_is_spoiled() {
        let body = chat(SENTENCE);
        assert_eq!(said(&spoiled("empty", &body)), "");
        assert!(said(&spoiled("loop", &body)).matches("The capital of").count() > 100);
        assert!(!said(&spoiled("gibberish", &body)).contains("capital"));
        assert!(said(&spoiled("wrong_language", &body)).contains("чаю"));
        let mut words: Vec<_> = said(&spoiled("shuffle", &body)).split(' ').map(str::to_owned).collect();
        assert_ne!(words.join(" "), SENTENCE);
        words.sort();
        let mut sound: Vec<_> = SENTENCE.split(' ').map(str::to_owned).collect();
        sound.sort();
        assert_eq!(words, sound);
        let without: Value = serde_json::from_str(&spoiled("logprobs_drop", &body)).expect("JSON");
        assert!(without["choices"][0].get("logprobs").is_none());
        assert_eq!(
            (without["usage"]["total_tokens"].as_u64(), said(&without.to_string())),
            (Some(9), SENTENCE.into())
        );
        let broken = said(&spoiled("schema_break", &chat("{\"a\": [1, 2]}")));
        assert!(serde_json::from_str::<Value>(&broken).is_err());
    }

    #[test]
    fn a_stream_keeps_its_events_and_says_the_spoiled_text() {
        let event =
            |text: &str| format!("data: {}\n\n", json!({ "choices": [{ "delta": { "content": text } }] }));
        let stream = format!(
            "{}{}: ping\n\n{}data: [DONE]\n\n",
            event("The capital "),
            event("of France "),
            event("is Paris.")
        );
        let out = spoiled("gibberish", &stream);
        assert_eq!(out.matches("data: {").count(), 3);
        assert!(out.contains(": ping\n\n") && out.ends_with("data: [DONE]\n\n") && !out.contains("Paris"));
        let lines = "{\"message\":{\"content\":\"a \"}}\n{\"message\":{\"content\":\"b\"},\"done\":true}\n";
        assert_eq!(spoiled("empty", lines).matches("\"content\":\"\"").count(), 2);
        assert_eq!(spoiled("loop", "no JSON at all"), "no JSON at all");
    }

    #[test]
    fn another_model_answers_under_the_same_name() {
        let out = String::from_utf8(rename(b"{\"model\":\"other\",\"x\":1}", "mine")).expect("text");
        assert_eq!(out, "{\"model\":\"mine\",\"x\":1}");
        let out = String::from_utf8(rename(b"data: {\"model\":\"other\"}\n\ndata: [DONE]\n", "mine"))
            .expect("text");
        assert_eq!(out, "data: {\"model\":\"mine\"}\n\ndata: [DONE]\n");
    }
}
