//! Each wire's answers, in the full form that servers send, are read for what they say, however the network
//! cuts them, and nothing in them, whole or spoilt, can stop the reader.

mod common;

use std::sync::Arc;

use common::wires::{self, WireAnswer};
use serde_json::{Value, json};
use touchstone::judge::{Ask, End, Head, Judge, Verdict};
use touchstone::verdict::FlagSet;

fn ask(answer: &WireAnswer) -> Arc<Ask> {
    Arc::new(Ask::parse(answer.wire, answer.json["request"].to_string().as_bytes()))
}

fn judge(answer: &WireAnswer, ask: &Arc<Ask>, pieces: &[&[u8]]) -> Verdict {
    let head = Head {
        status: answer.status(),
        content_type: answer.json["content_type"].as_str().map(str::to_owned),
        ..Head::default()
    };
    let mut judge = Judge::new(Arc::clone(ask), head);
    for piece in pieces {
        let _ = judge.push(5, piece);
    }
    judge.finish(9, if answer.is_cut() { End::Broken } else { End::Complete })
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
    for answer in wires::all() {
        let verdict = judge(&answer, &ask(&answer), &[&answer.body()]);
        for (name, wanted) in answer.json["expect"].as_object().expect("expectations") {
            let got = shown(name, &verdict);
            if got != *wanted {
                faults.push(format!("{}: {name} is {got}, not {wanted}", answer.name));
            }
        }
        if answer.is_sound() && verdict.class.is_some() {
            faults.push(format!("{}: sound, and yet {:?}", answer.name, verdict.class));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_cuts_of_the_network_change_nothing() {
    for answer in wires::all() {
        let (ask, body) = (ask(&answer), answer.body());
        let whole = format!("{:?}", judge(&answer, &ask, &[&body]));
        for step in [1, 2, 3, 7, 64, 1000] {
            let pieces: Vec<&[u8]> = body.chunks(step).collect();
            assert_eq!(format!("{:?}", judge(&answer, &ask, &pieces)), whole, "{} by {step}", answer.name);
        }
    }
}

#[test]
fn another_request_or_none_raises_no_alarm_about_a_sound_answer() {
    for answer in wires::all().iter().filter(|a| a.json["expect"]["flags"] == json!([])) {
        let blind = Arc::new(Ask::parse(answer.wire, b""));
        let flags = judge(answer, &blind, &[&answer.body()]).flags;
        assert_eq!(flags, FlagSet::EMPTY, "{}", answer.name);
    }
}
