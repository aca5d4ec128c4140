//! Bad days, made on purpose (`--allow-chaos`), and what callers notice of them.

mod support;

#[allow(dead_code)] // this file uses a part of it
#[path = "common/upstream.rs"]
mod upstream;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use support::daemon::Daemon;
use support::process::Process;
use support::{Stops, free_port, http, strip, wait_for};
use tokio::runtime::Runtime;
use touchstone::clock::Stopwatch;
use upstream::{Upstream, chunk, end, json as answer_json, sse_head};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// The right answer to the n-th question.
fn right(n: usize) -> String {
    let cities =
        ["Lisbon", "Oslo", "Vienna", "Rome", "Athens", "Dublin", "Prague", "Riga", "Sofia", "Tallinn"];
    let city = cities[n % cities.len()];
    format!(
        "The parcel with number {n} lies in {city}, on the second shelf of the third room, and waits for its owner."
    )
}

fn question(n: usize, stream: bool) -> Value {
    json!({ "model": "m", "stream": stream, "messages": [{ "role": "user", "content": format!("Where is parcel #{n}#?") }] })
}

/// Answers every question rightly.
fn honest() -> Upstream {
    Upstream::start(|seen, _| {
        let text = seen.text();
        let n = text.split('#').nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
        let right = right(n);
        if !text.contains("\"stream\":true") {
            let body = json!({ "id": "c", "object": "chat.completion", "created": 1, "model": "m",
                "choices": [{ "index": 0, "message": { "role": "assistant", "content": right }, "finish_reason": "stop" }],
                "usage": { "prompt_tokens": 9, "completion_tokens": 20, "total_tokens": 29 } });
            return answer_json(200, &body.to_string());
        }
        let event = |delta: Value, finish: Value| {
            let event = json!({ "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
                "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
            chunk(&format!("data: {event}\n\n"))
        };
        let mut acts = vec![sse_head(), event(json!({ "role": "assistant", "content": "" }), Value::Null)];
        acts.extend(right.split_inclusive(' ').map(|word| event(json!({ "content": word }), Value::Null)));
        acts.extend([event(json!({}), json!("stop")), chunk("data: [DONE]\n\n"), end()]);
        acts
    })
}

/// What the answer says, whole or streamed; `None` if it is no whole answer.
fn said(answer: &http::Answer, stream: bool) -> Option<String> {
    if answer.status != 200 || !answer.whole {
        return None;
    }
    if !stream {
        return Some(answer.json()["choices"][0]["message"]["content"].as_str()?.to_owned());
    }
    if !answer.text().contains("data: [DONE]") {
        return None;
    }
    let pieces = answer.events();
    Some(pieces.iter().filter_map(|e| e["choices"][0]["delta"]["content"].as_str()).collect())
}

/// Targets `t0` … `t9`, all honest behind, these faults in front of the first three; a small model below.
fn ten_targets(upstream: &Upstream, faults: &str) -> String {
    let mut text = String::from(
        "mode = \"enforce\"\n[quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\non_suspicion = false\n\
         [hold]\nuntil = \"tokens:64\"\n[limits]\nheaders = \"400ms\"\nfirst_text = \"400ms\"\n\
         [retry]\nbackoff_first = \"5ms\"\nbackoff_max = \"50ms\"\nburst = 1000.0\nrefill_per_second = 500.0\n[embed]\nmax_cpu_share = 0.01\n",
    );
    text.push_str(&format!(
        "[chaos]\nseed = 1\nfaults = {{ t0 = {faults:?}, t1 = {faults:?}, t2 = {faults:?} }}\n"
    ));
    for i in 0..11 {
        text.push_str(&format!("[[target]]\nname = \"t{i}\"\nurl = \"{}\"\n", upstream.url()));
    }
    let first: Vec<String> = (0..10).map(|i| format!("\"t{i}\"")).collect();
    text.push_str(&format!("[[route]]\nname = \"r\"\ntiers = [[{}], [\"t10\"]]\n", first.join(", ")));
    text
}

/// Asks so many questions from eight callers, every other one as a stream; how many were answered rightly.
fn ask_all(daemon: &Daemon, requests: usize) -> (usize, Vec<String>) {
    let (next, well) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let wrong = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= requests {
                        return;
                    }
                    let stream = n % 2 == 0;
                    let answer = daemon.chat(&question(n, stream));
                    if said(&answer, stream).as_deref() == Some(&right(n)) {
                        well.fetch_add(1, Ordering::Relaxed);
                    } else {
                        let about = format!(
                            "{n} stream={stream} {} {:?}",
                            answer.status,
                            answer.header("x-touchstone-degraded")
                        );
                        wrong.lock().expect("whole").push(about);
                    }
                }
            });
        }
    });
    (well.into_inner(), wrong.into_inner().expect("whole"))
}

#[test]
fn with_thirty_percent_of_the_targets_degraded_nearly_every_request_ends_well() {
    const REQUESTS: usize = 350;
    let upstream = honest();
    let (mut asked, mut well) = (0, 0);
    let kinds = [
        ("hard", "empty"),
        ("hard", "gibberish"),
        ("hard", "loop"),
        ("slow", "latency=2s"),
        ("5xx", "status=503"),
        ("5xx", "status=500:0.7,reset:0.5"),
    ];
    for (kind, faults) in kinds {
        let daemon = Daemon::serve_args(&ten_targets(&upstream, faults), &["--allow-chaos"]);
        let (good, wrong) = ask_all(&daemon, REQUESTS);
        println!("{kind:5} {faults:24}: {good} of {REQUESTS} end well; {wrong:?}");
        asked += REQUESTS;
        well += good;
    }
    let share = well as f64 * 100.0 / asked as f64;
    println!("with 3 of 10 targets degraded: {well} of {asked} requests end well ({share:.2} %)");
    assert!(asked >= 2_000);
    assert!(share >= 99.5, "{share}");
    for faults in ["shuffle", "wrong_language"] {
        let daemon = Daemon::serve_args(&ten_targets(&upstream, faults), &["--allow-chaos"]);
        let (good, _) = ask_all(&daemon, 100);
        println!(
            "soft  {faults:24}: {good} of 100 end well (no promise: what is only statistical passes at first)"
        );
    }
}

fn two_tiers(upstream: &Upstream, more: &str, faults: &str, last: &str) -> String {
    format!(
        "mode = \"enforce\"\n[quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\non_suspicion = false\n{more}\n\
         [chaos]\nfaults = {{ large = {faults:?} }}\n[[target]]\nname = \"large\"\nurl = \"{0}\"\n[[target]]\nname = \"small\"\nurl = \"{0}\"\n\
         [[route]]\nname = \"r\"\ntiers = [[\"large\"], [{last:?}]]\n",
        upstream.url()
    )
}

#[test]
fn two_seconds_of_latency_drain_the_retry_budget_and_open_the_breaker_before_the_pipelines_limit() {
    let upstream = honest();
    let limits = "[limits]\nheaders = \"1s\"\nfirst_text = \"1s\"\n";
    let daemon = Daemon::serve_args(&two_tiers(&upstream, limits, "latency=2s", "small"), &["--allow-chaos"]);
    let started = Stopwatch::start();
    let mut codes = Vec::new();
    let mut steps = 0;
    while daemon.breaker("large") != "open" {
        let body = question(steps, true);
        let answer =
            http::post(daemon.port, "/v1/chat/completions", &[("x-touchstone-workflow", "run")], &body);
        codes.push((answer.status, answer.header("x-touchstone-degraded").map(str::to_owned)));
        steps += 1;
        assert!(steps < 12, "{codes:?}");
    }
    let took = started.elapsed();
    println!("2 s of latency: budget drained and open after {steps} steps and {took:?}: {codes:?}");
    let fell_back = codes.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!(fell_back, 3, "three tokens of the workflow: {codes:?}");
    assert!(
        codes.iter().any(|(status, _)| *status >= 500),
        "then its steps fail, and nothing is repeated without end"
    );
    assert!(steps <= 6, "each step cost one limit, not one a retry");
    let answer = http::post(
        daemon.port,
        "/v1/chat/completions",
        &[("x-touchstone-workflow", "run")],
        &question(99, true),
    );
    assert_eq!(said(&answer, true).as_deref(), Some(&*right(99)), "an open breaker costs no token");
    assert_eq!(answer.header("x-touchstone-degraded"), Some("breaker_open"));
}

#[test]
fn a_high_entropy_model_opens_the_quality_breaker_before_its_answers_reach_the_cache() {
    let upstream = honest();
    let daemon = Daemon::serve_args(&two_tiers(&upstream, "", "gibberish", "cache"), &["--allow-chaos"]);
    let mut asked = 0;
    wait_for("the quality breaker to open", Duration::from_secs(60), || {
        daemon.chat(&question(asked, false));
        asked += 1;
        (daemon.breaker("large") == "open").then_some(())
    });
    println!("a high-entropy model under status 200: open after {asked} answers");
    assert!(asked <= 10, "{asked}");
    for n in 0..asked {
        let answer = daemon.chat(&question(n, false));
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (503, Some("breaker_open")),
            "nothing bad was kept: {n} {:?} {}",
            answer.headers,
            answer.text()
        );
    }
    let listing = daemon.ask("/v1/cache");
    let misses = listing["misses"].as_array().expect("a list");
    assert_eq!(
        (misses.len(), misses[0]["model"].as_str()),
        (asked, Some("m")),
        "what to warm it with: {listing}"
    );
    let id = misses[0]["request_id"].as_str().expect("an id");
    let status = wait_for("the request to be filed", Duration::from_secs(10), || {
        daemon.ask(&format!("/v1/requests/{id}"))["client_status"].as_u64()
    });
    assert_eq!(status, 503);
}

/// Milliseconds of each answer that came from the first target at once, and of each that was rescued by the second.
fn costs(daemon: &Daemon, requests: usize, pause: Duration) -> (Vec<f64>, Vec<f64>, usize) {
    let (mut direct, mut rescued, mut unserved) = (Vec::new(), Vec::new(), 0);
    for n in 0..requests {
        let started = Stopwatch::start();
        let answer = daemon.chat(&question(n, n % 2 == 0));
        let ms = started.elapsed().as_secs_f64() * 1_000.0;
        if said(&answer, n % 2 == 0).as_deref() != Some(&right(n)) {
            unserved += 1;
        } else if answer.header("x-touchstone-attempts") == Some("2") {
            rescued.push(ms);
        } else if answer.header("x-touchstone-tier") == Some("0") {
            direct.push(ms);
        }
        std::thread::sleep(pause);
    }
    direct.sort_by(f64::total_cmp);
    rescued.sort_by(f64::total_cmp);
    (direct, rescued, unserved)
}

/// The five minutes stand in `failure_modes`, in invented time; here the same over sockets with the persistence cut
/// from half a minute to two seconds, and what a failover costs the caller.
#[test]
fn a_few_529s_open_nothing_most_of_them_open_once_they_persist_and_nobody_goes_unserved() {
    let upstream = honest();
    let quick = "[breaker.backpressure]\npersist = \"2s\"\nfirst = \"20ms\"\nmax = \"100ms\"\n[breaker]\nopen = \"1s\"\njitter = 0.0\n";
    let config = |share: &str| two_tiers(&upstream, quick, &format!("status=529:{share}"), "small");
    let daemon = Daemon::serve_args(&config("0.1"), &["--allow-chaos"]);
    let (direct, rescued, unserved) = costs(&daemon, 250, Duration::from_millis(18));
    let middle = |all: &[f64]| all.get(all.len() / 2).copied().unwrap_or_default();
    println!(
        "10 % of 529s at 50 a second: {} at once ({:.1} ms), {} failed over ({:.1} ms, the dearest {:.1} ms): a failover \
         costs {:.1} ms (the articles measured 280 ms)",
        direct.len(),
        middle(&direct),
        rescued.len(),
        middle(&rescued),
        rescued.last().copied().unwrap_or_default(),
        middle(&rescued) - middle(&direct)
    );
    assert_eq!(unserved, 0);
    assert!(rescued.len() >= 5, "some were refused: {}", rescued.len());
    assert_eq!(daemon.breaker("large"), "closed");
    let told = daemon.ask("/v1/events?target=large&kind=breaker_transition");
    assert_eq!(told["events"].as_array().map(Vec::len), Some(0), "{told}");

    let daemon = Daemon::serve_args(&config("0.6"), &["--allow-chaos"]);
    let started = Stopwatch::start();
    let (mut n, mut wrong) = (0, 0);
    let opened = wait_for("the breaker to open", Duration::from_secs(60), || {
        let answer = daemon.chat(&question(n, n.is_multiple_of(2)));
        wrong += usize::from(said(&answer, n.is_multiple_of(2)).as_deref() != Some(&right(n)));
        n += 1;
        (daemon.breaker("large") == "open").then(|| started.elapsed())
    });
    println!("60 % of 529s: open after {n} requests and {opened:?}, {wrong} unserved");
    assert!(opened >= Duration::from_secs(2), "not before they persisted");
    let transitions = wait_for("it to be tried again", Duration::from_secs(20), || {
        let told = daemon.ask("/v1/events?target=large&kind=breaker_transition");
        let all = told["events"].as_array().cloned().unwrap_or_default();
        let answer = daemon.chat(&question(n, false));
        wrong += usize::from(said(&answer, false).as_deref() != Some(&right(n)));
        all.iter().any(|e| e["data"]["to"] == "half_open").then_some(all)
    });
    let at = |to: &str| {
        transitions.iter().find(|e| e["data"]["to"] == to).and_then(|e| e["at"].as_u64()).expect("told")
    };
    let open_ms = at("half_open") - at("open");
    println!("open for {open_ms} ms of 1000, then half-open; {wrong} unserved");
    assert_eq!(wrong, 0);
    assert!(
        (1_000..6_000).contains(&open_ms),
        "never before it is due, by the daemon's own clock: {open_ms}"
    );
}

#[test]
fn a_target_whose_own_page_tells_of_pressure_is_spared_while_somebody_else_can_answer() {
    let full = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let says = std::sync::Arc::clone(&full);
    let upstream = Upstream::start(move |seen, _| {
        if seen.line.starts_with("GET /metrics") {
            let share = if says.load(Ordering::Relaxed) { "0.93" } else { "0.12" };
            let page = format!(
                "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{{engine=\"0\"}} {share}\n"
            );
            return upstream::whole(200, "content-type: text/plain\r\n", &page);
        }
        answer_json(
            200,
            "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Large.\"},\"finish_reason\":\"stop\"}]}",
        )
    });
    let small = Upstream::always(answer_json(
        200,
        "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Small.\"},\"finish_reason\":\"stop\"}]}",
    ));
    let config = |last: &str| {
        format!(
            "mode = \"enforce\"\n[quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\non_suspicion = false\n\
             [[target]]\nname = \"large\"\nurl = \"{0}\"\nload = {{ url = \"{0}/metrics\", every = \"1s\" }}\n\
             [[target]]\nname = \"small\"\nurl = \"{1}\"\n[[route]]\nname = \"r\"\ntiers = [[\"large\"], [{last:?}]]\n",
            upstream.url(),
            small.url()
        )
    };
    let daemon = Daemon::serve(&config("small"));
    let by = |target: &'static str| {
        wait_for("the page to be heard", Duration::from_secs(20), || {
            let answer = daemon.chat(&question(1, false));
            (answer.header("x-touchstone-target") == Some(target)).then_some(answer)
        })
    };
    assert_eq!(by("small").header("x-touchstone-degraded"), Some("cooling_down"));
    let detail = daemon.ask("/v1/targets/large");
    assert_eq!(
        (detail["load"]["what"].as_str(), detail["load"]["share"].as_f64()),
        (Some("cache"), Some(0.93)),
        "{detail}"
    );
    assert_eq!(
        (detail["breaker"].as_str(), detail["health"].as_str()),
        (Some("closed"), Some("unknown")),
        "it is no health"
    );
    full.store(false, Ordering::Relaxed);
    assert_eq!(by("large").header("x-touchstone-degraded"), None);

    // Nobody else, and an empty cache before it: the full one answers all the same; what was kept is given next.
    full.store(true, Ordering::Relaxed);
    let daemon = Daemon::serve(&config("cache"));
    wait_for("the page to be heard", Duration::from_secs(20), || {
        daemon.ask("/v1/targets/large")["load"]["share"].is_number().then_some(())
    });
    let answer = daemon.chat(&question(7, false));
    assert_eq!((answer.status, answer.header("x-touchstone-target")), (200, Some("large")));
    let answer = daemon.chat(&question(7, false));
    assert_eq!(answer.header("x-touchstone-tier"), Some("cache"));
    let after = daemon.ask("/v1/cache");
    assert_eq!(after["misses"].as_array().map(Vec::len), Some(0), "kept meanwhile: {after}");
    assert_eq!(
        (after["stale"][0]["target"].as_str(), after["stale"][0]["route"].as_str()),
        (Some("large"), Some("r")),
        "{after}"
    );
}

#[test]
fn one_model_of_a_server_that_fails_takes_no_other_model_out_of_traffic() {
    let upstream = Upstream::start(|seen, _| {
        if seen.text().contains("\"model\":\"broken\"") {
            return answer_json(500, "{\"error\":{\"message\":\"no memory for this model\"}}");
        }
        answer_json(
            200,
            "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"Well.\"},\"finish_reason\":\"stop\"}]}",
        )
    });
    let config = format!(
        "mode = \"enforce\"\n[retry]\nbackoff_first = \"1ms\"\nbackoff_max = \"2ms\"\n[quality.canary]\nevery = \"off\"\n\
         [quality.burst]\nevery = \"off\"\non_suspicion = false\n[[target]]\nname = \"ollama\"\nurl = \"{}\"\n",
        upstream.url()
    );
    let daemon = Daemon::serve(&config);
    let ask = |model: &str| {
        daemon.chat(&json!({ "model": model, "messages": [{ "role": "user", "content": "Are you well?" }] }))
    };
    assert_eq!(ask("sound").status, 200);
    for _ in 0..5 {
        assert!(ask("broken").status >= 500);
    }
    let opened = wait_for("the broken model's breaker to open", Duration::from_secs(10), || {
        let answer = ask("broken");
        (answer.json()["error"]["code"] == "breaker_open").then_some(answer)
    });
    assert_eq!(opened.header("x-touchstone-breaker"), Some("open"));
    for _ in 0..5 {
        let answer = ask("sound");
        assert_eq!(
            (answer.status, answer.header("x-touchstone-breaker")),
            (200, Some("closed")),
            "{}",
            answer.text()
        );
    }
    assert_eq!((daemon.breaker("ollama"), daemon.breaker("ollama#broken")), ("closed".into(), "open".into()));
    // An event is told once it is on disk.
    let event = wait_for("the event of the opening", Duration::from_secs(10), || {
        let mut events = daemon.ask("/v1/events?target=ollama%23broken&kind=breaker_transition");
        Some(events["events"][0].take()).filter(|event| !event.is_null())
    });
    assert_eq!(event["data"]["to"], "open", "{event}");
}

/// The engine behind an address is replaced while the daemon runs, and later put back.
#[test]
fn a_new_engine_is_told_watched_apart_and_forgotten_when_the_old_one_is_back() {
    let sim = free_port();
    let mut command = support::daemon::command();
    command.args(["sim", "--listen", &format!("127.0.0.1:{sim}")]);
    let _simulator = Process::spawn("simulator", &mut command);
    let minute = Duration::from_secs(60);
    wait_for("the simulator", minute, || http::try_get(sim, "/v1/models").filter(|a| a.status == 200));
    let renamed = Arc::new(AtomicBool::new(false));
    let daemon = Daemon::serve(&format!(
        "[[target]]
        name = \"sim\"
        url = \"http://127.0.0.1:{}\"
        [quality.canary]
        every = \"100ms\"
        idle_pause = \"0s\"
        max_calls_per_day = 100000
        [quality.burst]
        every = \"off\"
        [quality.calibration]
        canaries = 160
        burst_runs = 2
        burst_prompts = 20
        resamples = 20
        pace = \"0ms\"
        ",
        strip::renaming(sim, &renamed)
    ));
    let health = || daemon.target("sim")["health"].as_str().unwrap_or_default().to_owned();
    let become_ = |wanted: &str| wait_for(wanted, minute, || (health() == wanted).then_some(()));
    let arm = |name: &str| {
        let arms = daemon.ask("/v1/targets/sim")["arms"].as_array().cloned().unwrap_or_default();
        arms.into_iter().find(|arm| arm["arm"] == name).unwrap_or_default()
    };
    let findings = || {
        let events = daemon.ask("/v1/events?target=sim&kind=finding");
        events.as_array().or_else(|| events["events"].as_array()).cloned().unwrap_or_default()
    };
    become_("healthy");
    wait_for("canaries", minute, || (arm("a3")["n"].as_u64() > Some(10)).then_some(()));
    assert_eq!(findings().len(), 0, "{:#?}", findings());

    renamed.store(true, Ordering::SeqCst);
    let told = wait_for("the change to be told", minute, || findings().first().cloned());
    println!("{}", told["message"]);
    assert_eq!((&told["reason"], &told["data"]["arm"]), (&json!("engine_changed"), &json!("engine")));
    // Its answers are as good, so a burst finds it changed and not worse; its canaries are learned apart.
    become_("changed");
    let learning = arm("a1")["unavailable"].as_str().unwrap_or_default().to_owned();
    assert!(learning.starts_with("learning") || learning.starts_with("testing"), "{learning}");
    assert_eq!(daemon.breaker("sim"), "closed");

    renamed.store(false, Ordering::SeqCst);
    become_("healthy");
    assert!(arm("a3")["unavailable"].is_null(), "{:#}", arm("a3"));
    assert_eq!(
        findings().iter().map(|e| e["reason"].clone()).collect::<Vec<_>>(),
        ["engine_changed", "engine_back"]
    );
}

#[test]
fn a_stream_that_breaks_is_logged_with_its_condition_and_what_had_been_received() {
    let upstream = honest();
    let daemon = Daemon::serve_args(&two_tiers(&upstream, "", "cut=5", "small"), &["--allow-chaos"]);
    let answer = daemon.chat(&question(1, true));
    assert!(!answer.whole && answer.text().contains("parcel"), "{}", answer.text());
    let id = answer.header("x-touchstone-request-id").expect("an id").to_owned();
    let line = wait_for("the break to be logged", Duration::from_secs(10), || {
        let said = daemon.process.output();
        said.lines().find(|line| line.contains("answer broke off") && line.contains(&id)).map(str::to_owned)
    });
    for part in
        ["condition=Broken", "received_bytes=", "received_events=", "text_had_begun=true", "trace_id="]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    let exchange = wait_for("the request to be filed", Duration::from_secs(10), || {
        let exchange = daemon.ask(&format!("/v1/requests/{id}"));
        exchange["partial"].is_boolean().then_some(exchange)
    });
    assert_eq!(exchange["partial"], true, "{exchange}");
}

/// Many workers report, one task writes the gauge: under load and over every change no page shows two states.
#[test]
fn the_state_gauge_has_one_writer_and_never_shows_two_states() {
    const SOUND: &str = "{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"It stands there.\"},\"finish_reason\":\"stop\"}]}";
    let broken = Arc::new(AtomicBool::new(false));
    let is_broken = Arc::clone(&broken);
    let upstream = Upstream::start(move |_, _| {
        if is_broken.load(Ordering::Relaxed) { answer_json(500, "{}") } else { answer_json(200, SOUND) }
    });
    let other = Upstream::always(answer_json(200, SOUND));
    let daemon = Daemon::serve(&format!(
        "mode = \"enforce\"\n[retry]\nbackoff_first = \"1ms\"\nbackoff_max = \"2ms\"\n[breaker]\nopen = \"1s\"\njitter = 0.0\n\
         [quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\non_suspicion = false\n\
         [[target]]\nname = \"a\"\nurl = \"{}\"\n[[target]]\nname = \"b\"\nurl = \"{}\"\n\
         [[route]]\nname = \"r\"\ntiers = [[\"a\"], [\"b\"]]\n",
        upstream.url(),
        other.url()
    ));
    let shown = || -> Vec<String> {
        let page = http::get(daemon.admin, "/metrics").text();
        let of_a = page
            .lines()
            .filter(|l| l.starts_with("touchstone_breaker_state{target=\"a\"") && l.ends_with(" 1"));
        of_a.filter_map(|l| l.split("state=\"").nth(1)?.split('"').next().map(str::to_owned)).collect()
    };
    let (stop, seen) = (AtomicBool::new(false), Mutex::new(std::collections::BTreeSet::new()));
    std::thread::scope(|scope| {
        let _stops = Stops(&stop);
        for _ in 0..6 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(daemon.chat(&question(1, false)).status, 200);
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let states = shown();
                assert!(states.len() <= 1, "{states:?}");
                seen.lock().expect("whole").extend(states);
            }
        });
        for _ in 0..2 {
            for (fault, state) in [(true, "open"), (false, "closed")] {
                broken.store(fault, Ordering::Relaxed);
                wait_for(state, Duration::from_secs(30), || (daemon.breaker("a") == state).then_some(()));
            }
        }
    });
    let seen = seen.into_inner().expect("whole");
    assert!(seen.contains("open") && seen.contains("closed"), "{seen:?}");
    wait_for("the gauge to say what the health page says", Duration::from_secs(10), || {
        (shown() == [daemon.breaker("a")]).then_some(())
    });
}
