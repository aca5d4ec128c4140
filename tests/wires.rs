//! Each wire's answers, in the full form that servers send, are read for what they say, however the network
//! cuts them, and nothing in them, whole or spoilt, can stop the reader.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use touchstone::judge::{Ask, End, Head, Judge, Verdict};
use touchstone::verdict::{FlagSet, Wire};

struct Answer {
    name: String,
    wire: Wire,
    json: Value,
}

fn answers() -> Vec<Answer> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/wires");
    let mut all: Vec<Answer> = std::fs::read_dir(folder)
        .expect("fixtures")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .map(|path| {
            let json: Value = serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("json");
            let wire = json["wire"].as_str().and_then(Wire::parse).expect("a wire");
            Answer { name: path.file_stem().expect("a name").to_string_lossy().into_owned(), wire, json }
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(all.len() > 50, "only {} answers", all.len());
    all
}

impl Answer {
    fn body(&self) -> Vec<u8> {
        let pieces = self.json["body"].as_array().expect("pieces");
        pieces.iter().flat_map(|p| p.as_str().expect("text").bytes()).collect()
    }

    fn ask(&self) -> Arc<Ask> {
        Arc::new(Ask::parse(self.wire, self.json["request"].to_string().as_bytes()))
    }

    fn judge(&self, ask: &Arc<Ask>, pieces: &[&[u8]]) -> Verdict {
        let head = Head {
            status: self.json["status"].as_u64().expect("a status") as u16,
            content_type: self.json["content_type"].as_str().map(str::to_owned),
            ..Head::default()
        };
        let mut judge = Judge::new(Arc::clone(ask), head);
        for piece in pieces {
            let _ = judge.push(5, piece);
        }
        judge.finish(9, if self.json["ends"] == "broken" { End::Broken } else { End::Complete })
    }
}

/// What a fixture may expect, of a verdict.
fn shown(name: &str, verdict: &Verdict) -> Value {
    match name {
        "flags" => json!(verdict.flags),
        "klass" => json!(verdict.class),
        "text" => json!(verdict.text),
        "tools" => json!(verdict.tool_calls),
        "finish" => json!(verdict.finish_reason),
        "usage" => {
            let usage = verdict.usage;
            json!([usage.input, usage.output, usage.reasoning, usage.cached_input])
        }
        "positions" => json!(verdict.logprob_positions),
        "dim" => json!(verdict.signals.dim),
        "items" => json!(verdict.signals.items),
        "empty_cause" => json!(verdict.empty_cause),
        "streamed" => json!(verdict.streamed),
        other => panic!("`{other}` is not known"),
    }
}

#[test]
fn every_answer_is_read_for_what_it_says() {
    let mut faults = Vec::new();
    for answer in answers() {
        let verdict = answer.judge(&answer.ask(), &[&answer.body()]);
        for (name, wanted) in answer.json["expect"].as_object().expect("expectations") {
            let got = shown(name, &verdict);
            if got != *wanted {
                faults.push(format!("{}: {name} is {got}, not {wanted}", answer.name));
            }
        }
        if answer.json["expect"]["flags"] == json!([]) && verdict.class.is_some() {
            let status = answer.json["status"].as_u64().unwrap_or(0);
            if status == 200 {
                faults.push(format!("{}: sound, and yet {:?}", answer.name, verdict.class));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_cuts_of_the_network_change_nothing() {
    for answer in answers() {
        let (ask, body) = (answer.ask(), answer.body());
        let whole = format!("{:?}", answer.judge(&ask, &[&body]));
        for step in [1, 2, 3, 7, 64, 1000] {
            let pieces: Vec<&[u8]> = body.chunks(step).collect();
            assert_eq!(format!("{:?}", answer.judge(&ask, &pieces)), whole, "{} by {step}", answer.name);
        }
    }
}

#[test]
fn another_request_or_none_raises_no_alarm_about_a_sound_answer() {
    for answer in answers().iter().filter(|a| a.json["expect"]["flags"] == json!([])) {
        let blind = Arc::new(Ask::parse(answer.wire, b""));
        let flags = answer.judge(&blind, &[&answer.body()]).flags;
        assert_eq!(flags, FlagSet::EMPTY, "{}", answer.name);
    }
}
