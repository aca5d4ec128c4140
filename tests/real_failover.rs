//! Two real language models and the cache below them, under load: one server is killed, one stands still, one is
//! damaged. No request that had not yet delivered text is lost.
//!
//! `bash tests/run --test real_failover -- --nocapture` prints the figures.

mod support;

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use support::daemon::Daemon;
use support::http::{self, Answer};
use support::llama::{self, Llama, MODEL};
use support::{Stops, free_port, wait_for};
use touchstone::clock::Stopwatch;

/// Callers at a time; each server takes as many.
const CALLERS: usize = 2;
/// Longest answer, tokens: enough to come to its end, as what was cut off is not kept.
const MAX_TOKENS: u64 = 40;

fn config(first: u16, second: u16) -> String {
    let mut text = String::from(
        "mode = \"enforce\"\n[quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\non_suspicion = false\n\
         [embed]\nmax_cpu_share = 0.01\n[limits]\nheaders = \"5s\"\nfirst_text = \"5s\"\nstream_idle = \"5s\"\n\
         [breaker]\nopen = \"1s\"\nopen_max = \"2s\"\n[breaker.ramp]\nstep = \"50ms\"\n",
    );
    for (name, port) in [("first", first), ("second", second)] {
        text.push_str(&format!(
            "[[target]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:{port}\"\nmodel = \"{MODEL}\"\n"
        ));
    }
    text + "[[route]]\nname = \"r\"\ntiers = [[\"first\"], [\"second\"], [\"cache\"]]\n"
}

/// One of eight questions, so that the cache comes to know them; every other time as a stream.
fn question(n: usize) -> Value {
    let countries = ["France", "Italy", "Spain", "Japan", "Egypt", "Norway", "Greece", "Cuba"];
    let words = format!(
        "What is the capital of {}? Answer in one short sentence.",
        countries[n / 2 % countries.len()]
    );
    json!({ "model": "any", "stream": n % 2 == 1, "max_tokens": MAX_TOKENS, "temperature": 0,
        "messages": [{ "role": "user", "content": words }] })
}

/// How one request ended.
#[derive(Clone, Debug)]
#[allow(dead_code)] // all of it is shown where something was lost
struct Ended {
    n: usize,
    status: u16,
    target: String,
    tier: String,
    attempts: u32,
    text: String,
    whole: bool,
    ms: u128,
}

fn ended(n: usize, answer: &Answer, ms: u128) -> Ended {
    let text = if n % 2 == 1 {
        let pieces = answer.events();
        pieces.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect()
    } else if answer.status == 200 {
        answer.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
    } else {
        answer.text()
    };
    let done = n.is_multiple_of(2) || answer.text().contains("[DONE]");
    let header = |name: &str| answer.header(name).unwrap_or_default().to_owned();
    Ended {
        n,
        status: answer.status,
        target: header("x-touchstone-target"),
        tier: header("x-touchstone-tier"),
        attempts: header("x-touchstone-attempts").parse().unwrap_or(0),
        text,
        whole: answer.whole && done,
        ms,
    }
}

impl Ended {
    fn is_well(&self) -> bool {
        self.status == 200 && self.whole && !self.text.trim().is_empty()
    }

    /// Broken off after text had been delivered: an honest break, which nobody can mend.
    fn broke_after_text(&self) -> bool {
        self.status == 200 && !self.whole && !self.text.trim().is_empty()
    }
}

/// Callers that ask one question after the other until told to stop.
fn under_load<T>(daemon: &Daemon, meanwhile: impl FnOnce(&AtomicUsize) -> T) -> (Vec<Ended>, T) {
    let (next, answered, stop) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let all = Mutex::new(Vec::new());
    let told = std::thread::scope(|scope| {
        for _ in 0..CALLERS {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let started = Stopwatch::start();
                    let answer = http::post(daemon.port, "/v1/chat/completions", &[], &question(n));
                    let ended = ended(n, &answer, started.elapsed().as_millis());
                    all.lock().expect("whole").push(ended);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stops = Stops(&stop);
        meanwhile(&answered)
    });
    (all.into_inner().expect("whole"), told)
}

fn answers_more(answered: &AtomicUsize, more: usize) {
    let goal = answered.load(Ordering::Relaxed) + more;
    wait_for("requests to be answered", Duration::from_secs(90), || {
        (answered.load(Ordering::Relaxed) >= goal).then_some(())
    });
}

/// The figures; fails if anything was lost.
fn figures(what: &str, all: &[Ended]) -> String {
    let well = all.iter().filter(|e| e.is_well()).count();
    let broken = all.iter().filter(|e| e.broke_after_text()).count();
    let lost: Vec<_> = all.iter().filter(|e| !e.is_well() && !e.broke_after_text()).collect();
    let by = |target: &str, tier: &str| {
        all.iter().filter(|e| e.target == target && (tier.is_empty() || e.tier == tier)).count()
    };
    let rescued = all.iter().filter(|e| e.is_well() && e.attempts > 1).count();
    let mut ms: Vec<u128> = all.iter().map(|e| e.ms).collect();
    ms.sort_unstable();
    assert!(lost.is_empty(), "{what}: {lost:#?}");
    format!(
        "{what}: {} requests, {well} well ({rescued} rescued), {broken} broken off after text, {} lost; first {}, second {}, \
         cache {}; median {} ms, slowest {} ms",
        all.len(),
        lost.len(),
        by("first", "0"),
        by("second", "1"),
        all.iter().filter(|e| e.tier == "cache").count(),
        ms[ms.len() / 2],
        ms[ms.len() - 1]
    )
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status().expect("kill runs");
    assert!(sent.success(), "kill {name} {pid}");
}

/// Goes on when dropped, so that a failing test leaves nothing standing still.
struct Stopped(u32);

impl Stopped {
    fn now(pid: u32) -> Self {
        signal(pid, "-STOP");
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, "-CONT");
    }
}

/// Gives the target its whole share again by an operator's hand: how it proves itself is shown elsewhere.
fn take_back(daemon: &Daemon, target: &str) {
    let token = std::fs::read_to_string(daemon.data.join("admin.token")).expect("a token");
    let bearer = format!("Bearer {}", token.trim());
    for action in ["close", "auto"] {
        let path = format!("/v1/targets/{target}/breaker");
        let body = json!({ "action": action, "reason": "it is back" });
        let answer = http::post(daemon.admin, &path, &[("authorization", &bearer)], &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(daemon.breaker(target), "closed");
}

#[test]
fn a_server_that_is_killed_stands_still_or_is_damaged_loses_no_request_that_had_delivered_no_text() {
    let damaged = llama::damaged(10);
    let (port, second) = (free_port(), Llama::serve(&llama::sound(), free_port()));
    let mut first = Llama::serve(&llama::sound(), port);
    let daemon = Daemon::serve(&config(port, second.port));

    let (all, ()) = under_load(&daemon, |answered| answers_more(answered, 16));
    println!("{}", figures("both well", &all));
    let by_first = all.iter().filter(|e| e.is_well() && e.target == "first").count();
    assert!(by_first * 4 >= all.len() * 3, "a small model may say something unusable now and then: {all:#?}");

    // Killed under load; what was being answered breaks before or after its first text.
    let (all, ()) = under_load(&daemon, |answered| {
        answers_more(answered, 3);
        first.stop();
        answers_more(answered, 10);
    });
    println!("{}", figures("first killed", &all));
    assert!(all.iter().any(|e| e.target == "second"), "the tier below takes over");

    let mut n = 0;
    wait_for("an answer to every question to be kept", Duration::from_secs(60), || {
        n += 1;
        if daemon.ask("/v1/cache")["entries"].as_u64() >= Some(16) {
            return Some(());
        }
        let _ = http::post(daemon.port, "/v1/chat/completions", &[], &question(n));
        None
    });

    // Both gone: the cache has what was asked before.
    {
        let _still = Stopped::now(second.pid());
        wait_for("the second to be given up", Duration::from_secs(90), || {
            let answer = http::post(daemon.port, "/v1/chat/completions", &[], &question(0));
            (answer.header("x-touchstone-tier") == Some("cache")).then_some(())
        });
        let (all, ()) = under_load(&daemon, |answered| answers_more(answered, 8));
        println!("{}", figures("first dead, second standing still", &all));
        assert!(all.iter().any(|e| e.tier == "cache"), "the cache answers what it knows");
    }

    // Both are back.
    take_back(&daemon, "second");

    // The first stands still under load: each of its callers pays one limit, then nobody asks it any more.
    first = Llama::serve(&llama::sound(), port);
    take_back(&daemon, "first");
    let (all, ()) = under_load(&daemon, |answered| {
        answers_more(answered, 4);
        let _still = Stopped::now(first.pid());
        answers_more(answered, 10);
    });
    println!("{}", figures("first standing still", &all));
    assert!(all.iter().all(|e| e.ms < 10_000), "one limit, not one a retry: {all:#?}");

    // Damaged: garbage under status 200, on the same port.
    take_back(&daemon, "first");
    first.stop();
    let first = Llama::serve(&damaged, port);
    let (all, ()) = under_load(&daemon, |answered| answers_more(answered, 16));
    println!("{}", figures("first damaged", &all));
    let garbage = all.iter().filter(|e| e.target == "first").count();
    println!(
        "damaged: {garbage} of {} answers still came from it; breaker {}",
        all.len(),
        daemon.breaker("first")
    );
    first.stop();
    second.stop();
}
