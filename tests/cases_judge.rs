//! Every case of odd or sound bytes on a judged wire: the flags that must be raised are raised, the
//! flags that would be false alarms are not, and an answer called sound moves no breaker.

use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine as _;
use serde_json::Value;
use touchstone::judge::{Ask, End, Head, Judge, Verdict};
use touchstone::verdict::{FaultClass, Flag, FlagSet, Wire};
use touchstone::wire;

/// Flags that need a baseline, or several answers, and so cannot come from one answer alone.
const NEEDS_BASELINE: [Flag; 3] =
    [Flag::EmbeddingDimMismatch, Flag::EmbeddingDrift, Flag::EmbeddingEncodingMismatch];

struct Case {
    id: String,
    wire: Wire,
    json: Value,
}

fn cases() -> Vec<Case> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cases");
    let mut all: Vec<Case> = std::fs::read_dir(folder)
        .expect("fixtures")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .filter_map(|path| {
            let json: Value = serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("json");
            let wire = wire::of_path(json["request"]["path"].as_str()?)?;
            Some(Case { id: json["id"].as_str()?.to_owned(), wire, json })
        })
        .collect();
    all.sort_by(|a, b| a.id.cmp(&b.id));
    all
}

fn bytes(piece: &Value) -> Vec<u8> {
    if let Some(text) = piece.as_str() {
        return text.as_bytes().to_vec();
    }
    if let Some(text) = piece["base64"].as_str() {
        return base64::engine::general_purpose::STANDARD.decode(text).expect("base64");
    }
    piece["text"]
        .as_str()
        .unwrap_or_default()
        .repeat(piece["repeat"].as_u64().unwrap_or(1) as usize)
        .into_bytes()
}

/// All answers that the case's upstream gives to the request as written.
fn answers(case: &Case) -> Vec<Value> {
    let upstream = &case.json["upstream"];
    if let Some(list) = upstream["sequence"].as_array() {
        return list.clone();
    }
    if let Some(rules) = upstream["rules"].as_array() {
        let body = case.json["request"]["body"].to_string();
        let matches =
            |rule: &&Value| rule["if_body_contains"].as_str().is_none_or(|needle| body.contains(needle));
        return rules.iter().find(matches).cloned().into_iter().collect();
    }
    vec![upstream.clone()]
}

/// Judges one answer; `step` cuts the body into pieces of that size.
fn judge(case: &Case, answer: &Value, step: Option<usize>) -> Verdict {
    let body = case.json["request"]["body"].to_string();
    let ask = Arc::new(Ask::parse(case.wire, body.as_bytes()));
    let header = |name: &str| {
        let headers = answer["headers"].as_object()?;
        headers
            .iter()
            .find(|(k, _)| k.eq_ignore_ascii_case(name))
            .and_then(|(_, v)| v.as_str())
            .map(str::to_owned)
    };
    let pieces: Vec<Vec<u8>> = match answer["chunks"].as_array() {
        Some(chunks) => chunks.iter().map(bytes).collect(),
        None => vec![bytes(&answer["body"])],
    };
    let behaviour = &answer["behaviour"];
    let cut = behaviour["close_midstream"]["after_chunk"].as_u64();
    let sent: Vec<u8> =
        pieces.iter().take(cut.map_or(usize::MAX, |c| c as usize)).flatten().copied().collect();
    let length = match (behaviour["content_length"].as_u64(), answer["chunks"].is_array()) {
        (Some(declared), _) => Some(declared),
        (None, false) => Some(sent.len() as u64),
        (None, true) => None,
    };
    let head = Head {
        status: answer["status"].as_u64().unwrap_or(0) as u16,
        content_type: header("content-type"),
        content_encoding: header("content-encoding"),
        content_length: length,
        inference_header_length: header("inference-header-content-length"),
    };
    let leaves = case.json["expect"]["client_status"] == 499;
    let short = length.is_some_and(|l| l > sent.len() as u64);
    let end = if leaves {
        End::ClientGone
    } else if cut.is_some() || short {
        End::Broken
    } else {
        End::Complete
    };
    let mut judge = Judge::new(ask, head);
    for piece in sent.chunks(step.unwrap_or(usize::MAX).max(1)) {
        let _ = judge.push(5, piece);
    }
    judge.finish(5, end)
}

fn flags(list: &Value) -> FlagSet {
    let words = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    words.map(|w| Flag::parse(w).unwrap_or_else(|| panic!("unknown flag {w}"))).collect()
}

#[test]
fn every_case_raises_what_it_must_and_nothing_it_must_not() {
    let mut faults = Vec::new();
    let all = cases();
    assert!(all.len() >= 40, "only {} cases", all.len());
    for case in &all {
        let answers = answers(case);
        let verdicts: Vec<Verdict> = answers.iter().map(|a| judge(case, a, None)).collect();
        let raised = verdicts.iter().fold(FlagSet::EMPTY, |set, v| set.union(v.flags));
        let wanted = flags(&case.json["expect"]["quality_flags"]);
        let forbidden = flags(&case.json["expect"]["not_flags"]);
        for flag in wanted.iter().filter(|f| !raised.contains(*f) && !NEEDS_BASELINE.contains(f)) {
            faults.push(format!("{}: {flag} missing, raised {raised}", case.id));
        }
        for flag in forbidden.iter().filter(|f| raised.contains(*f)) {
            faults.push(format!("{}: {flag} is a false alarm", case.id));
        }
        let moves =
            |v: &Verdict| v.class.is_some_and(|c| !matches!(c, FaultClass::Client | FaultClass::Info));
        if wanted.is_empty() && verdicts.iter().any(moves) {
            faults.push(format!("{}: a sound answer counts as {:?} by {raised}", case.id, verdicts[0].class));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_case_has_its_values() {
    let mut faults = Vec::new();
    for case in cases() {
        let answers = answers(&case);
        let Some(last) = answers.last() else { continue };
        let verdict = judge(&case, last, None);
        let values = case.json["expect"]["values"].as_object().cloned().unwrap_or_default();
        for (name, value) in values {
            let number = value.as_f64().unwrap_or(f64::NAN);
            let near = |x: Option<f64>| x.is_some_and(|x| (x - number).abs() < 1e-9);
            let count = |x: Option<u64>| x == value.as_u64();
            let holds = match name.as_str() {
                "text" => value == *verdict.text,
                "prompt_tokens" => count(verdict.usage.input),
                "completion_tokens" => count(verdict.usage.output),
                "cache_read_tokens" => count(verdict.usage.cached_input),
                "n_valid_logprobs" => count(Some(verdict.logprob_positions)),
                "mean_logprob" => near(verdict.signals.logprob_mean),
                "tensor" => {
                    let norm =
                        value.as_array().map(|v| v.iter().filter_map(Value::as_f64).map(|x| x * x).sum());
                    let near = norm.map(f64::sqrt).zip(verdict.signals.norm);
                    near.is_some_and(|(a, b)| (a - b).abs() < 1e-6)
                        && verdict.signals.dim.map(u64::from) == value.as_array().map(|v| v.len() as u64)
                }
                "top_label" => value == *verdict.text,
                "top_value" => near(verdict.signals.confidence),
                "text_choice_0_after_think" => {
                    verdict.text.rsplit("</think>").next().map(str::trim) == value.as_str()
                }
                _ => true,
            };
            if !holds {
                faults.push(format!(
                    "{}: {name} is not {value}: {:?} {:?}",
                    case.id, verdict.usage, verdict.text
                ));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn the_cuts_of_the_network_change_no_verdict() {
    for case in cases() {
        for answer in answers(&case) {
            let whole = format!("{:?}", judge(&case, &answer, None));
            for step in [1, 2, 3, 7, 64, 1000] {
                assert_eq!(
                    format!("{:?}", judge(&case, &answer, Some(step))),
                    whole,
                    "{} by {step}",
                    case.id
                );
            }
        }
    }
}
