//! Every case of odd or sound bytes through the built daemon over real sockets, in the mode that the case
//! states: what the caller gets, what reached the upstream, and what the daemon says of it afterwards.
//! `touchstone score` says the same of the same bytes.

#![allow(clippy::duplicate_mod)] // both sides speak HTTP by the same file

mod common;
mod support;

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::Duration;

use common::upstream::{self, Seen, Upstream};
use common::{Served, cases, chat_json, chat_stream, eventually, tiers};
use serde_json::{Value, json};
use support::daemon::{self, Daemon};
use support::http::{self, Answer};
use support::wait_for;
use touchstone::verdict::{Flag, FlagSet};
use touchstone::wire;

/// Values that one answer's account does not hold; tests/cases_judge.rs and the units of the readers see to them.
const ELSEWHERE: [&str; 7] = [
    "flagged_choice",
    "text_choice_0_after_think",
    "tensor",
    "top_label",
    "top_value",
    "vllm_prompt_tokens",
    "vllm_generation_tokens",
];

/// One daemon before one upstream that plays all these cases, each on a route of its own.
struct Stage {
    daemon: Daemon,
    upstream: Upstream,
}

fn id(case: &Value) -> &str {
    case["id"].as_str().expect("an id")
}

/// Which case a request belongs to: a header that the daemon has no reason to touch.
const CASE: &str = "x-case";

impl Stage {
    fn new(mode: &str, all: &[Value]) -> Self {
        let told = all.to_vec();
        let counts: Vec<std::sync::atomic::AtomicUsize> = all.iter().map(|_| 0.into()).collect();
        let upstream = Upstream::start(move |seen, _| {
            // The daemon asks what it is in front of when it starts.
            let Some(at) = told.iter().position(|c| seen.header(CASE) == Some(id(c))) else {
                return upstream::json(404, "{}");
            };
            let n = counts[at].fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            cases::acts(&cases::answer(&told[at]["upstream"], seen, n), 5_000)
        });
        let mut config = format!(
            "mode = \"{mode}\"\n[quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\n\
             on_suspicion = false\n[proxy]\npassthrough = [\"*\"]\nmax_analysis_cpu_share = 1\n"
        );
        for case in all {
            let (url, id) = (upstream.url(), id(case));
            config += &format!("[[target]]\nname = \"{id}\"\nurl = \"{url}\"\n");
            config += &format!("[[target]]\nname = \"{id}-b\"\nurl = \"{url}\"\n");
            config += &format!("[[route]]\nname = \"{id}\"\ntiers = [[\"{id}\"], [\"{id}-b\"]]\n");
        }
        Self { daemon: Daemon::serve(&config), upstream }
    }

    fn ask(&self, case: &Value, more: &[(&str, &str)]) -> Answer {
        let request = &case["request"];
        let mut headers = cases::headers(case);
        headers.push((CASE.to_owned(), id(case).to_owned()));
        headers.push(("x-touchstone-route".to_owned(), id(case).to_owned()));
        headers.extend(more.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
        let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let (method, path) =
            (request["method"].as_str().expect("a method"), request["path"].as_str().expect("a path"));
        http::request(self.daemon.port, method, path, &headers, &cases::request_body(case))
            .unwrap_or_else(|fault| panic!("{}: {fault}", id(case)))
    }

    /// Asks; once more if nothing reached the upstream. A server that closes a kept connection, as the case
    /// before may end, loses what is written to it at that moment (RFC 9112, section 9.5), and shadow mode
    /// repeats nothing.
    fn ask_reaching(&self, case: &Value) -> Answer {
        let before = self.seen(case).len();
        let answer = self.ask(case, &[]);
        if answer.status == 502 && self.seen(case).len() == before { self.ask(case, &[]) } else { answer }
    }

    /// What reached the upstream for this case.
    fn seen(&self, case: &Value) -> Vec<Seen> {
        self.upstream.seen().into_iter().filter(|s| s.header(CASE) == Some(id(case))).collect()
    }

    /// The daemon's account of an answer.
    fn account(&self, answer: &Answer) -> Value {
        let id = answer.header("x-touchstone-request-id").expect("an id").to_owned();
        account(&self.daemon, &id)
    }
}

fn account(daemon: &Daemon, id: &str) -> Value {
    wait_for("the account of a request", Duration::from_secs(10), || {
        let answer = http::get(daemon.admin, &format!("/v1/requests/{id}"));
        (answer.status == 200).then(|| answer.json())
    })
}

fn flags(list: &Value) -> FlagSet {
    let words = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    words.map(|w| Flag::parse(w).unwrap_or_else(|| panic!("unknown flag {w}"))).collect()
}

/// Flags of all tries.
fn raised(account: &Value) -> FlagSet {
    let attempts = account["attempts"].as_array().expect("attempts");
    attempts.iter().fold(FlagSet::EMPTY, |set, a| set.union(flags(&a["flags"])))
}

/// What an account says against what the case expects.
fn hold(case: &Value, account: &Value, took: Duration) -> Vec<String> {
    let mut faults = Vec::new();
    let expect = &case["expect"];
    let raised = raised(account);
    for flag in flags(&expect["quality_flags"]).iter().filter(|f| !raised.contains(*f)) {
        faults.push(format!("{flag} is missing among {raised}"));
    }
    for flag in flags(&expect["not_flags"]).iter().filter(|f| raised.contains(*f)) {
        faults.push(format!("{flag} is a false alarm"));
    }
    if flags(&expect["quality_flags"]).is_empty() {
        let classes = account["attempts"].as_array().expect("attempts").iter().map(|a| &a["class"]);
        let moved: Vec<_> =
            classes.filter(|c| !matches!(c.as_str(), None | Some("client" | "info"))).collect();
        if !moved.is_empty() {
            faults.push(format!("sound, and yet {moved:?} by {raised}"));
        }
    }
    for (name, value) in expect["values"].as_object().into_iter().flatten() {
        let (usage, signals) = (&account["usage"], &account["signals"]);
        let near = |x: &Value| (x.as_f64().unwrap_or(f64::NAN) - value.as_f64().unwrap_or(0.0)).abs() < 1e-9;
        let waited = took.as_millis() as u64;
        let last = account["attempts"].as_array().and_then(|a| a.last()).cloned().unwrap_or_default();
        let limit = value.as_u64().unwrap_or(0);
        let holds = match name.as_str() {
            "text" => signals["text_bytes"].as_u64() == value.as_str().map(|t| t.len() as u64),
            "prompt_tokens" => usage["input"] == *value,
            "completion_tokens" => usage["output"] == *value,
            "cache_read_tokens" => usage["cached_input"] == *value,
            "n_valid_logprobs" => {
                let share = signals["coverage"].as_f64().unwrap_or(0.0);
                (share * signals["tokens"].as_f64().unwrap_or(0.0)).round() as u64 == limit
            }
            "mean_logprob" => near(&signals["logprob_mean"]),
            "embedding_dim" => signals["dim"] == *value,
            "ttft_ms_min" => last["ttft_ms"].as_u64().is_some_and(|ms| ms >= limit),
            "retry_wait_ms_min" => waited >= limit,
            // The machine may be busy beside the wait itself.
            "retry_wait_ms_max" => waited <= limit + 3_000,
            "client_sees_role_chunks" => true, // the bytes are compared as a whole
            other if ELSEWHERE.contains(&other) => true,
            other => panic!("{}: value `{other}` is not known", id(case)),
        };
        if !holds {
            faults.push(format!("{name} is not {value}: {usage} {signals}"));
        }
    }
    faults.into_iter().map(|fault| format!("{}: {fault}", id(case))).collect()
}

/// Cases that the caller leaves in the middle.
fn leaves(case: &Value) -> bool {
    id(case).starts_with("120-")
}

fn observed() -> Vec<Value> {
    cases::all().into_iter().filter(|c| c["expect"]["mode"] != "enforce").collect()
}

#[test]
fn every_observed_case_passes_and_is_told_for_what_it_is() {
    let all = observed();
    assert_eq!(all.len(), 45);
    let stage = Stage::new("shadow", &all);
    let mut faults = Vec::new();
    for case in all.iter().filter(|c| !leaves(c)) {
        let asked = case["upstream"]["sequence"].as_array().map_or(1, Vec::len);
        let answers: Vec<Answer> = (0..asked).map(|_| stage.ask_reaching(case)).collect();
        let (n, answer) = (answers.len() - 1, answers.last().expect("one"));
        let seen = stage.seen(case);
        let told = cases::answer(&case["upstream"], &seen[n], n);
        let (bytes, whole) = cases::received(&told);
        let mut check = |holds: bool, what: &str| {
            if !holds {
                faults.push(format!("{}: {what}", id(case)));
            }
        };
        check(u64::from(answer.status) == case["expect"]["client_status"], "the status");
        check(answer.body == bytes, "the bytes");
        check(answer.whole == whole, "ends as it ended");
        check(seen.len() == asked, "nothing is repeated");
        check(seen.iter().all(|s| s.body == cases::request_body(case)), "what reached the upstream");
        let known = case["request"]["method"] == "POST"
            && wire::of_path(case["request"]["path"].as_str().unwrap_or_default()).is_some();
        if known {
            faults.extend(hold(case, &stage.account(answer), answer.took));
        } else {
            assert_eq!(answer.header("x-touchstone-tier"), Some("passthrough"), "{}", id(case));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn every_enforced_case_is_mended_as_it_says() {
    let all: Vec<Value> = cases::all().into_iter().filter(|c| c["expect"]["mode"] == "enforce").collect();
    assert_eq!(all.len(), 3);
    let stage = Stage::new("enforce", &all);
    let mut faults = Vec::new();
    for case in &all {
        // A wait for the same target is only needed where there is no other.
        let waits = case["expect"]["values"]["retry_wait_ms_max"].is_u64();
        let more: &[(&str, &str)] = if waits { &[("x-touchstone-no-fallback", "1")] } else { &[] };
        let answer = stage.ask(case, more);
        let seen = stage.seen(case);
        assert_eq!(seen.len(), 2, "{}", id(case));
        let (bytes, whole) = cases::received(&cases::answer(&case["upstream"], &seen[1], 1));
        assert_eq!(u64::from(answer.status), case["expect"]["client_status"], "{}", id(case));
        assert!(answer.body == bytes && answer.whole == whole, "{}: {}", id(case), answer.text());
        faults.extend(hold(case, &stage.account(&answer), answer.took));
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// What a case says of enforce mode beside its own: tries on the first target, then the next tier.
const IN_ENFORCE_MODE: [(&str, usize); 3] =
    [("027-zero-byte-body", 2), ("035-error-body-200", 1), ("039-stream-error-first", 1)];

#[test]
fn conditions_of_enforce_mode_hold_too() {
    for (name, tries) in IN_ENFORCE_MODE {
        let case = cases::all().into_iter().find(|c| id(c) == name).expect("a case");
        for rescued in [true, false] {
            let told = case["upstream"].clone();
            let first = Upstream::start(move |seen, n| cases::acts(&cases::answer(&told, seen, n), 50));
            let told = case["upstream"].clone();
            let second = Upstream::start(move |seen, n| match rescued {
                true if seen.text().contains("\"stream\":true") => upstream::sse(&chat_stream()),
                true => upstream::json(200, &chat_json("Red.")),
                false => cases::acts(&cases::answer(&told, seen, n), 50),
            });
            let served =
                Served::start(&tiers("enforce", &[&first, &second], "[retry]\nbackoff_first=\"5ms\"\n"));
            let answer = served.post(
                case["request"]["path"].as_str().expect("a path"),
                &[],
                &String::from_utf8(cases::request_body(&case)).expect("text"),
            );
            assert_eq!(first.calls(), tries, "{name}");
            if rescued {
                assert_eq!((answer.status, second.calls()), (200, 1), "{name}: {}", answer.text());
                assert!(answer.text().contains("Red"), "{name}: {}", answer.text());
                assert_eq!(answer.header("x-touchstone-tier"), Some("1"), "{name}");
            } else {
                // What a target said at last, or the daemon's own error (502 for no answer, 503 where the request's
                // tokens ended first); never an empty success.
                let holds = if name.starts_with("035") { answer.status == 200 } else { answer.status >= 502 };
                assert!(holds, "{name}: {} {}", answer.status, answer.text());
                assert!(answer.json()["error"]["code"] != Value::Null, "{name}");
                if name.starts_with("039") {
                    assert_eq!(second.calls(), 1, "a spent quota does not pass by itself");
                }
            }
        }
    }
}

#[test]
fn sound_cases_are_the_same_bytes_when_their_opening_is_held() {
    let sound = |c: &Value| flags(&c["expect"]["quality_flags"]).is_empty() && !leaves(c);
    let all: Vec<Value> = observed().into_iter().filter(sound).collect();
    assert!(all.len() > 15);
    let stage = Stage::new("enforce", &all);
    for case in &all {
        let answer = stage.ask(case, &[]);
        let seen = stage.seen(case);
        let (bytes, whole) = cases::received(&cases::answer(&case["upstream"], &seen[0], 0));
        assert_eq!(seen.len(), 1, "{}: one try is enough", id(case));
        assert_eq!(u64::from(answer.status), case["expect"]["client_status"], "{}", id(case));
        assert!(answer.body == bytes && answer.whole == whole, "{}: {}", id(case), answer.text());
    }
}

#[test]
fn a_caller_that_leaves_is_followed_while_the_upstream_still_writes() {
    let all: Vec<Value> = cases::all().into_iter().filter(leaves).collect();
    let (case, stage) = (&all[0], Stage::new("shadow", &all));
    let body = cases::request_body(case);
    let mut socket = std::net::TcpStream::connect(("127.0.0.1", stage.daemon.port)).expect("connects");
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\n{CASE}: {id}\r\nx-touchstone-route: {id}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        case["request"]["path"].as_str().expect("a path"),
        body.len(),
        id = id(case),
    );
    socket.write_all(&[head.as_bytes(), &body].concat()).expect("sends");
    let mut got = String::new();
    let mut piece = [0; 4096];
    while got.matches("word").count() < 2 {
        let n = socket.read(&mut piece).expect("reads");
        assert!(n > 0, "ended early: {got}");
        got.push_str(&String::from_utf8_lossy(&piece[..n]));
    }
    drop(socket);
    // It would write for twelve seconds.
    eventually("the upstream is left", || stage.upstream.left() == 1);
    let id = got.lines().find_map(|l| l.strip_prefix("x-touchstone-request-id: ")).expect("an id");
    let account = account(&stage.daemon, id);
    assert_eq!(account["client_status"], 499);
    assert_eq!((&account["attempts"][0]["class"], &account["partial"]), (&json!("client"), &json!(true)));
    assert!(account["signals"]["text_bytes"].as_u64().is_some_and(|n| n >= 12), "{account}");
    assert_eq!(hold(case, &account, Duration::ZERO), Vec::<String>::new());
    let breaker = stage.daemon.target(case["id"].as_str().expect("an id"))["breaker"].clone();
    assert_eq!(breaker, "closed");
}

#[test]
fn score_says_of_the_bytes_what_the_daemon_said_of_the_answer() {
    // What only the daemon can see: that a connection broke, and that the last answer was of another length.
    let only_live = |c: &Value| {
        let answer = &c["upstream"];
        leaves(c) || !cases::received(answer).1 || answer["sequence"].is_array()
    };
    let scored = |c: &Value| {
        let wire = wire::of_path(c["request"]["path"].as_str().unwrap_or_default());
        c["request"]["method"] == "POST" && wire.is_some() && !only_live(c)
    };
    let all: Vec<Value> = observed().into_iter().filter(scored).collect();
    assert!(all.len() >= 40, "{}", all.len());
    let stage = Stage::new("shadow", &all);
    let folder = tempfile::tempdir().expect("a folder");
    for case in &all {
        let account = stage.account(&stage.ask(case, &[]));
        let answer = cases::answer(&case["upstream"], &stage.seen(case)[0], 0);
        let wire = wire::of_path(case["request"]["path"].as_str().expect("a path")).expect("a wire");
        let request = folder.path().join("request.json");
        std::fs::write(&request, cases::request_body(case)).expect("written");
        let mut command = daemon::command();
        command.args(["score", "--wire", wire.as_str(), "--request"]).arg(&request);
        command.args(["--status", &answer["status"].to_string()]);
        let told = [
            ("--content-type", "content-type"),
            ("--content-encoding", "content-encoding"),
            ("--inference-header-length", "inference-header-content-length"),
        ];
        for (option, name) in told {
            if let Some(value) = cases::header(&answer, name) {
                command.args([option, &value]);
            }
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
        child.stdin.take().expect("piped").write_all(&cases::received(&answer).0).expect("written");
        let said: Value =
            serde_json::from_slice(&child.wait_with_output().expect("ends").stdout).expect("json");
        for member in ["flags", "usage"] {
            assert_eq!(said[member], account[member], "{}: {member}", id(case));
        }
        assert_eq!(said["signals"]["text_bytes"], account["signals"]["text_bytes"], "{}", id(case));
        assert_eq!(said["class"], account["attempts"][0]["class"], "{}: class", id(case));
    }
}
