//! Each wire's answers through the built daemon: unchanged, piece by piece, told for what they are, and
//! when they cannot be delivered, refused in the wire's own words.

#![allow(clippy::duplicate_mod)] // both sides speak HTTP by the same file

mod common;
mod support;

use std::io::{Read as _, Write as _};
use std::time::Duration;

use common::upstream::{self, Act, Upstream};
use common::wires::{self, WireAnswer};
use serde_json::{Value, json};
use support::daemon::Daemon;
use support::http::{self, Answer};
use support::wait_for;
use touchstone::verdict::Wire;

const NAME: &str = "x-case";

struct Stage {
    daemon: Daemon,
    upstream: Upstream,
}

impl Stage {
    fn new(mode: &str) -> Self {
        let told = wires::all();
        let upstream = Upstream::start(move |seen, _| {
            let found = told.iter().find(|a| seen.header(NAME) == Some(&*a.name));
            found.map_or_else(|| upstream::json(404, "{}"), WireAnswer::acts)
        });
        let mut config = format!(
            "mode = \"{mode}\"\n[quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\n\
             on_suspicion = false\n[proxy]\nmax_analysis_cpu_share = 1\n"
        );
        // One target each, so that a bad answer closes no way to the next.
        for answer in wires::all() {
            config += &format!("[[target]]\nname = \"{0}\"\nurl = \"{1}\"\n", answer.name, upstream.url());
            config += &format!("[[route]]\nname = \"{0}\"\ntiers = [[\"{0}\"]]\n", answer.name);
        }
        Self { daemon: Daemon::serve(&config), upstream }
    }

    fn ask(&self, answer: &WireAnswer) -> Answer {
        let headers =
            [(NAME, &*answer.name), ("x-touchstone-route", &*answer.name), ("x-touchstone-no-retry", "1")];
        http::post(self.daemon.port, answer.path(), &headers, &answer.json["request"])
    }

    fn account(&self, answer: &Answer) -> Value {
        let id = answer.header("x-touchstone-request-id").expect("an id").to_owned();
        wait_for("the account of a request", Duration::from_secs(10), || {
            let told = http::get(self.daemon.admin, &format!("/v1/requests/{id}"));
            (told.status == 200).then(|| told.json())
        })
    }
}

#[test]
fn every_answer_passes_unchanged_and_is_told_for_what_it_is() {
    let stage = Stage::new("shadow");
    for answer in wires::all() {
        let got = stage.ask(&answer);
        assert_eq!(got.status, answer.status(), "{}", answer.name);
        assert!(got.body == answer.body(), "{}: {}", answer.name, got.text());
        assert_eq!(got.whole, !answer.is_cut(), "{}: ends as it ended", answer.name);
        let account = stage.account(&got);
        assert_eq!(account["flags"], answer.json["expect"]["flags"], "{}", answer.name);
        assert_eq!(account["wire"], answer.json["wire"], "{}", answer.name);
        if let Some(class) = answer.json["expect"].get("klass") {
            assert_eq!(account["attempts"][0]["class"], *class, "{}", answer.name);
        }
    }
    assert_eq!(stage.upstream.seen().iter().filter(|s| s.header(NAME).is_some()).count(), wires::all().len());
}

#[test]
fn held_openings_change_no_byte_and_a_refusal_has_the_wires_own_shape() {
    let stage = Stage::new("enforce");
    let (mut delivered, mut refused) = (0, 0);
    for answer in wires::all() {
        let got = stage.ask(&answer);
        if got.body == answer.body() && got.status == answer.status() {
            delivered += 1;
            assert_eq!(got.whole, !answer.is_cut(), "{}", answer.name);
            continue;
        }
        assert!(!answer.is_sound(), "{}: {} {}", answer.name, got.status, got.text());
        refused += 1;
        let error = &got.json()["error"];
        match answer.wire {
            Wire::OllamaChat | Wire::OllamaGenerate | Wire::OllamaEmbed => {
                assert!(error.is_string(), "{}: {}", answer.name, got.text());
            }
            Wire::Messages => assert_eq!(got.json()["type"], "error", "{}", answer.name),
            _ => assert!(
                error["code"].is_string() && error["param"].is_null(),
                "{}: {}",
                answer.name,
                got.text()
            ),
        }
        assert!(got.status >= 400, "{}", answer.name);
    }
    assert!(delivered > 50 && refused >= 3, "{delivered} delivered, {refused} refused");
}

#[test]
fn a_stream_is_handed_on_piece_by_piece() {
    // One that says everything in its last event has no content to commit to before.
    let streams = |a: &WireAnswer| {
        a.is_sound() && a.json["expect"]["streamed"] == json!(true) && !a.name.ends_with("only-completed")
    };
    for mode in ["shadow", "enforce"] {
        // Each upstream waits for ever before its last piece: whoever waits for the end never sees the first.
        let told: Vec<WireAnswer> = wires::all().into_iter().filter(streams).collect();
        assert!(told.len() >= 12);
        let names: Vec<(String, &str, Value, Vec<String>)> =
            told.iter().map(|a| (a.name.clone(), a.path(), a.json["request"].clone(), a.pieces())).collect();
        let upstream = Upstream::start(move |seen, n| {
            let Some(found) = told.iter().find(|a| seen.header(NAME) == Some(&*a.name)) else {
                return upstream::json(404, "{}");
            };
            // The next request may find the same stream under another name.
            let kind = ["", "application/json", "text/plain"][n % 3];
            let mut acts = if kind.is_empty() { found.acts() } else { found.acts_as(kind) };
            acts.truncate(acts.len() - 2);
            acts.push(Act::Hang);
            acts
        });
        let daemon = Daemon::serve(&format!(
            "mode = \"{mode}\"\n[quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\n\
             on_suspicion = false\n[[target]]\nname = \"t\"\nurl = \"{}\"\n[[route]]\nname = \"r\"\ntiers = [[\"t\"]]\n",
            upstream.url()
        ));
        for (name, path, request, pieces) in names.iter().flat_map(|n| [n, n, n]) {
            let body = request.to_string();
            let mut socket = std::net::TcpStream::connect(("127.0.0.1", daemon.port)).expect("connects");
            socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\n{NAME}: {name}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            socket.write_all(&[head.as_bytes(), body.as_bytes()].concat()).expect("sends");
            let wanted = pieces[..pieces.len() - 1].concat();
            let mut got = Vec::new();
            let body_of = |got: &[u8]| {
                let head = got.windows(4).position(|w| w == b"\r\n\r\n")?;
                Some(http::unchunk(&got[head + 4..]).0)
            };
            while body_of(&got).is_none_or(|body| body != wanted.as_bytes()) {
                let mut piece = [0; 4096];
                let n = socket.read(&mut piece).unwrap_or_else(|f| panic!("{mode} {name}: {f}"));
                assert!(n > 0, "{mode} {name}: ended early");
                got.extend_from_slice(&piece[..n]);
            }
        }
    }
}
