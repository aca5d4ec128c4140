//! Nothing that an upstream or a caller may send stops the readers, or is read differently because the
//! network cut it elsewhere. A recorded corpus (every case, every wire's answers) is mutated with fixed seeds,
//! so that a failure can be repeated; in place of a fuzzer, in the normal tests.

mod common;
#[path = "fuzz/entries.rs"]
mod entries;

use std::sync::Arc;

use common::{cases, wires};
use proptest::prelude::*;
use touchstone::judge::{Ask, End, Head, Judge, Verdict};
use touchstone::verdict::Wire;
use touchstone::wire;

/// Mutations of each body.
const ROUNDS: u64 = 40;

#[derive(Clone)]
struct Recorded {
    name: String,
    wire: Wire,
    request: Vec<u8>,
    kind: Option<String>,
    body: Vec<u8>,
}

fn corpus() -> Vec<Recorded> {
    let mut all: Vec<Recorded> = wires::all()
        .into_iter()
        .map(|a| Recorded {
            name: a.name.clone(),
            wire: a.wire,
            request: a.json["request"].to_string().into_bytes(),
            kind: a.json["content_type"].as_str().map(str::to_owned),
            body: a.body(),
        })
        .collect();
    for case in cases::all() {
        let Some(wire) = wire::of_path(case["request"]["path"].as_str().unwrap_or_default()) else {
            continue;
        };
        let answers = case["upstream"]["sequence"].as_array().cloned();
        for answer in answers.unwrap_or_else(|| vec![case["upstream"].clone()]) {
            all.push(Recorded {
                name: case["id"].as_str().unwrap_or_default().to_owned(),
                wire,
                request: cases::request_body(&case),
                kind: cases::header(&answer, "content-type"),
                body: cases::received(&answer).0,
            });
        }
    }
    assert!(all.len() > 110, "{}", all.len());
    all
}

fn judge(recorded: &Recorded, ask: &Arc<Ask>, pieces: &[&[u8]]) -> Verdict {
    let head = Head { status: 200, content_type: recorded.kind.clone(), ..Head::default() };
    let mut judge = Judge::new(Arc::clone(ask), head);
    for piece in pieces {
        let _ = judge.push(3, piece);
    }
    judge.finish(7, End::Complete)
}

/// Cuts at these places.
fn cut<'a>(body: &'a [u8], at: &mut Vec<usize>) -> Vec<&'a [u8]> {
    at.extend([0, body.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| &body[w[0]..w[1]]).collect()
}

/// What breaks readers: unbalanced and deep, huge and odd numbers, half characters, line ends, control signs.
const SPICE: [&[u8]; 24] = [
    b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":",
    b"}}}}]]]]",
    b"1e999999",
    b"-1e-999999",
    b"184467440737095516160000000000000000000000",
    b"NaN",
    b"-Infinity",
    b"null",
    b"\"\\ud83d",
    b"\\u0000",
    b"\xff\xfe",
    b"\xf0\x9f\x98",
    b"\xe2\x80\xa8",
    b"\n\n",
    b"\r",
    b"\r\n\r\n",
    b"data: ",
    b"event: error\n",
    b": ",
    b"\0",
    b"\x1f\x8b\x08",
    b",,,,",
    b"\"index\":-9223372036854775808,",
];

fn mutate(body: &[u8], others: &[Recorded], rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut out = body.to_vec();
    for _ in 0..rng.usize(1..5) {
        let at = rng.usize(0..=out.len());
        let end = (at + rng.usize(0..40)).min(out.len());
        match rng.u8(0..7) {
            0 if at < out.len() => out[at] ^= 1 << rng.u8(0..8),
            1 => drop(out.drain(at..end)),
            2 => {
                let copy = out[at..end].repeat(rng.usize(1..60));
                out.splice(at..at, copy);
            }
            3 => {
                let spice = SPICE[rng.usize(0..SPICE.len())].repeat(rng.usize(1..30));
                out.splice(at..at, spice);
            }
            4 => out.truncate(at),
            5 => {
                let other = &others[rng.usize(0..others.len())].body;
                let from = rng.usize(0..=other.len());
                out.splice(at..at, other[from..(from + 200).min(other.len())].to_vec());
            }
            _ => out.extend_from_slice(SPICE[rng.usize(0..SPICE.len())]),
        }
    }
    out
}

#[test]
fn no_mutation_of_an_answer_stops_the_reader_or_depends_on_the_cuts() {
    let all = corpus();
    for (i, recorded) in all.iter().enumerate() {
        let ask = Arc::new(Ask::parse(recorded.wire, &recorded.request));
        for round in 0..ROUNDS {
            let mut rng = fastrand::Rng::with_seed(round * 1_000 + i as u64);
            let body = mutate(&recorded.body, &all, &mut rng);
            let whole = format!("{:?}", judge(recorded, &ask, &[&body]));
            let mut at: Vec<usize> = (0..rng.usize(1..30)).map(|_| rng.usize(0..=body.len())).collect();
            let pieces = cut(&body, &mut at);
            let split = format!("{:?}", judge(recorded, &ask, &pieces));
            assert_eq!(split, whole, "{} seed {}", recorded.name, round * 1_000 + i as u64);
        }
    }
}

#[test]
fn no_mutation_of_a_request_stops_its_reader() {
    let all = corpus();
    for (i, recorded) in all.iter().enumerate() {
        for round in 0..ROUNDS {
            let mut rng = fastrand::Rng::with_seed(77_000 + round * 1_000 + i as u64);
            let requests: Vec<Recorded> =
                all.iter().map(|r| Recorded { body: r.request.clone(), ..r.clone() }).collect();
            let request = mutate(&recorded.request, &requests, &mut rng);
            let ask = Arc::new(Ask::parse(recorded.wire, &request));
            // An answer must be judged all the same, whatever was asked.
            let _ = judge(recorded, &ask, &[&recorded.body]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_cuts_of_any_answer_give_the_same_verdict(
        which in any::<prop::sample::Index>(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
    ) {
        let all = corpus();
        let recorded = &all[which.index(all.len())];
        let ask = Arc::new(Ask::parse(recorded.wire, &recorded.request));
        let mut at: Vec<usize> = cuts.iter().map(|c| c.index(recorded.body.len() + 1)).collect();
        let pieces = cut(&recorded.body, &mut at);
        let whole = judge(recorded, &ask, &[&recorded.body]);
        prop_assert_eq!(format!("{:?}", judge(recorded, &ask, &pieces)), format!("{:?}", whole));
    }
}

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

fn on(wire: Wire, kind: &str, body: &[u8]) -> Verdict {
    let recorded = Recorded {
        name: String::new(),
        wire,
        request: b"{\"stream\":true}".to_vec(),
        kind: Some(kind.into()),
        body: Vec::new(),
    };
    let ask = Arc::new(Ask::parse(wire, &recorded.request));
    judge(&recorded, &ask, &body.chunks(1 << 16).collect::<Vec<_>>())
}

#[test]
fn depth_size_and_number_are_bounded() {
    let many = |entry: &str, n: usize| vec![entry; n].join(",");
    let choices = format!(
        r#"{{"choices":[{}]}}"#,
        many(r#"{"message":{"content":"x"},"finish_reason":"stop"}"#, 10_000)
    );
    let calls = format!(
        r#"{{"choices":[{{"message":{{"tool_calls":[{}]}},"finish_reason":"tool_calls"}}]}}"#,
        many(r#"{"function":{"name":"f","arguments":"{}"}}"#, 10_000)
    );
    let items = format!(
        r#"{{"object":"response","status":"completed","output":[{}]}}"#,
        many(r#"{"type":"message","content":[{"type":"output_text","text":"x"}]}"#, 10_000)
    );
    let vectors = format!(r#"{{"data":[{}]}}"#, many(r#"{"embedding":[0.5,0.25]}"#, 10_000));
    let scores = format!(r#"{{"results":[{}]}}"#, many(r#"{"index":0,"score":0.5}"#, 10_000));
    let numbers = format!(
        r#"{{"data":[{{"embedding":[{}]}}],"usage":{{"prompt_tokens":{},"total_tokens":1e400}}}}"#,
        many("1e308", 100_000),
        "9".repeat(400)
    );
    let deep = [
        "[".repeat(1_000_000),
        "{\"choices\":".repeat(200_000),
        format!("{{\"choices\":{}", "[".repeat(100_000)),
        format!(
            "{{\"type\":\"response.completed\",\"response\":{{\"output\":{}{}",
            "[".repeat(50_000),
            "]".repeat(50_000)
        ),
        format!(
            "{{\"choices\":[{{\"message\":{{\"content\":{}1{}}}}}]}}",
            "[".repeat(50_000),
            "]".repeat(50_000)
        ),
    ];
    let bodies = [choices, calls, items, vectors, scores, numbers].into_iter().chain(deep);
    for body in bodies {
        for (wire, _) in ALL {
            let _ = on(wire, "application/json", body.as_bytes());
            let _ = on(wire, "text/event-stream", format!("data: {body}\n\ndata: [DONE]\n\n").as_bytes());
            let _ = on(wire, "application/x-ndjson", format!("{body}\n").as_bytes());
        }
    }
    // A request may be as odd as an answer.
    for text in [
        "[".repeat(1_000_000),
        format!("{{\"messages\":{}", "[".repeat(300_000)),
        "{\"tools\":[".repeat(50_000),
    ] {
        for (wire, _) in ALL {
            let _ = Ask::parse(wire, text.as_bytes());
        }
    }
}

/// A reader's laws, for any bytes.
type Laws = fn(&[u8]);

#[test]
fn the_laws_of_the_fuzz_targets_hold_on_their_corpus_and_near_it() {
    let readers: [(&str, Laws); 7] = [
        ("sse", entries::sse),
        ("ndjson", entries::ndjson),
        ("json", entries::json),
        ("tensors", entries::tensors),
        ("ask", entries::ask),
        ("golden", entries::golden),
        ("config", entries::config),
    ];
    for (reader, laws) in readers {
        let folder = format!("{}/tests/fuzz/corpus/{reader}", env!("CARGO_MANIFEST_DIR"));
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|fault| panic!("{folder}: {fault}"));
        let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        assert!(files.len() >= 6, "{reader}: {} seeds", files.len());
        for (i, file) in files.iter().enumerate() {
            let seed = std::fs::read(file).expect("a seed");
            laws(&seed);
            let other = Recorded {
                name: String::new(),
                wire: Wire::Chat,
                request: Vec::new(),
                kind: None,
                body: seed.clone(),
            };
            let mut rng = fastrand::Rng::with_seed(i as u64);
            for _ in 0..ROUNDS {
                laws(&mutate(&seed, std::slice::from_ref(&other), &mut rng));
            }
        }
    }
}
