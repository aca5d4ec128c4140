//! The main story on a real model. A llama.cpp server with SmolLM2-135M stands behind the daemon; then the
//! same port serves a copy with a tenth of its weights' bytes damaged, which answers 200 all the same; then
//! the sound model is back.
//!
//! `bash tests/run --test real_model -- --nocapture` prints the figures.
#![allow(clippy::print_stdout)] // figures of helpers, too

mod support;

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};
use support::daemon::Daemon;
use support::http::{self, Answer};
use support::llama::{self, Llama};
use support::{free_port, strip, wait_for};
use touchstone::clock::{Clock, Stopwatch};
use touchstone::verdict::{FaultClass, Flag};

/// Burst prompts taken from the starter set: enough to judge by, few enough for a model that makes thirty
/// tokens a second.
const BURST_PROMPTS: usize = 30;
/// And no longer answers than this.
const MAX_TOKENS: u64 = 24;
/// Half of what calibration asks by default: the arms that need the rest are not what is shown here.
const CANARIES: [&str; 2] = ["--canaries", "200"];
/// Live requests that a sound model has to answer without an opening.
const SOUND_REQUESTS: usize = 32;
/// Live answers within which the damaged model has to be found, unless one burst finds it.
const LIVE_ANSWERS: usize = 5;

/// Canaries that a sound model has to answer without a suspicion, at so many threads and slots of its server.
const SOUND_CANARIES: [(u64, u32, u32); 3] = [(760, 1, 2), (200, 1, 4), (40, 2, 4)];

/// One model at a time on two cores.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_silently_damaged_model_is_found_left_and_taken_back() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let port = free_port();
    let damaged = llama::damaged(10);
    let mut server = Llama::serve(&llama::sound(), port);
    let spare = Llama::serve(&llama::sound(), free_port());

    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let golden = folder.path().join("golden");
    write_golden_set(&golden, usize::MAX);
    let config = config(port, spare.port, &golden);

    let started = Stopwatch::start();
    println!("{}", calibrate(folder.path(), &config, &CANARIES));
    println!("calibrated in {:.0} s", started.elapsed().as_secs_f64());
    let daemon = Daemon::serve(&config);
    assert_eq!(daemon.target("first")["calibrated"], true, "{}", daemon.process.output());

    // Sound: everything is answered by the first target, nothing opens.
    let started = Stopwatch::start();
    for (i, question) in questions().take(SOUND_REQUESTS).enumerate() {
        let answer = live(&daemon, &question, i % 2 == 1);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-touchstone-target"), Some("first"), "{question}: {:?}", answer.headers);
        assert_eq!(answer.header("x-touchstone-degraded"), None, "{question}");
        assert!(!said(&answer).trim().is_empty(), "{question}: {}", answer.text());
        let hard = hard_flags(&daemon, &answer);
        assert!(hard.is_empty(), "{question}: {hard:?}: {}", said(&answer));
    }
    assert_eq!(daemon.breaker("first"), "closed");
    assert_eq!(openings(&daemon, "first").len(), 0, "{:#?}", openings(&daemon, "first"));
    println!(
        "sound: {SOUND_REQUESTS} live requests in {:.0} s, health {}, no opening",
        started.elapsed().as_secs_f64(),
        daemon.target("first")["health"]
    );

    // Damaged: same port, still 200.
    server.stop();
    server = Llama::serve(&damaged, port);
    let swapped = Stopwatch::start();
    let (mut by_first, mut asked) = (0, 0);
    for (i, question) in questions().cycle().enumerate() {
        if daemon.breaker("first") != "closed" {
            break;
        }
        assert!(swapped.elapsed() < Duration::from_secs(300), "not found: {:#}", daemon.target("first"));
        let answer = live(&daemon, &question, i % 2 == 1);
        asked += 1;
        assert_eq!(answer.status, 200, "{}", answer.text());
        by_first += usize::from(answer.header("x-touchstone-target") == Some("first"));
        println!(
            "  damaged {asked}: by {} {}",
            answer.header("x-touchstone-target").unwrap_or_default(),
            said(&answer).replace('\n', " ")
        );
    }
    let found_after = swapped.elapsed();
    let opened = wait_for("the opening to be told", Duration::from_secs(10), || {
        openings(&daemon, "first").first().cloned()
    });
    let bursts = bursts(&daemon, "first", &opened);
    println!(
        "damaged: open after {:.1} s, {asked} live requests ({by_first} answered by it), {bursts} bursts: {}",
        found_after.as_secs_f64(),
        opened["message"]
    );
    let reason = opened["reason"].as_str().unwrap_or_default();
    assert!(["golden_burst", "hard_faults"].contains(&reason), "opened for another reason: {opened:#}");
    assert!(asked <= LIVE_ANSWERS || bursts <= 1, "{asked} live requests and {bursts} bursts: {opened:#}");

    for (i, question) in questions().take(4).enumerate() {
        let answer = live(&daemon, &question, i % 2 == 1);
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("x-touchstone-target"), Some("second"), "{:?}", answer.headers);
        assert_eq!(answer.header("x-touchstone-degraded"), Some("breaker_open"), "{:?}", answer.headers);
        assert_eq!(answer.header("x-touchstone-tier"), Some("1"));
    }

    // Sound again: closed by what it answers, not by the clock.
    server.stop();
    server = Llama::serve(&llama::sound(), port);
    let back = Stopwatch::start();
    wait_for("the breaker to close", Duration::from_secs(300), || {
        (daemon.breaker("first") == "closed").then_some(())
    });
    let transitions = wait_for("the closing to be told", Duration::from_secs(10), || {
        Some(transitions(&daemon, "first"))
            .filter(|all| all.last().is_some_and(|last| last["data"]["to"] == "closed"))
    });
    let closed = transitions.last().expect("it was waited for");
    println!("sound again: closed after {:.1} s: {}", back.elapsed().as_secs_f64(), closed["message"]);
    assert_eq!(closed["data"]["from"], "half_open", "{closed:#}");
    wait_for("the first target to answer again", Duration::from_secs(120), || {
        let answer = live(&daemon, "What colour is the sky on a clear day?", false);
        assert_eq!(answer.status, 200, "{}", answer.text());
        (answer.header("x-touchstone-target") == Some("first")).then_some(())
    });
    for event in &transitions {
        let word = |of: &Value| of.as_str().unwrap_or_default().to_owned();
        println!(
            "  {} → {}: {}",
            word(&event["data"]["from"]),
            word(&event["data"]["to"]),
            word(&event["message"])
        );
    }
    drop(server);
}

/// Without a single caller: a thousand canaries of the sound model suspect nothing, those of the damaged one do,
/// and a golden burst confirms.
#[test]
fn a_fiftieth_of_the_weights_damaged_is_found_by_canaries_and_opened_by_a_burst() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let port = free_port();
    let damaged = llama::damaged(2);
    let mut server = Llama::serve(&llama::sound(), port);
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let golden = folder.path().join("golden");
    write_golden_set(&golden, usize::MAX);
    let config = back_to_back(&config(port, free_port(), &golden));
    println!("{}", calibrate(folder.path(), &config, &CANARIES));
    let daemon = Daemon::serve(&config);

    // Sound, and sound with other numerics: nothing is even suspected.
    for (wanted, threads, slots) in SOUND_CANARIES {
        server.stop();
        server = Llama::serve_with(&llama::sound(), port, threads, slots);
        let (began, watch) = (answers(&daemon, "a1"), Stopwatch::start());
        wait_for("canaries", Duration::from_secs(600), || {
            (answers(&daemon, "a1") >= began + wanted).then_some(())
        });
        println!(
            "sound: {wanted} canaries at {threads} threads and {slots} slots in {:.0} s",
            watch.elapsed().as_secs_f64()
        );
        assert_eq!(daemon.target("first")["health"], "healthy", "{:#}", daemon.target("first"));
        assert_eq!(findings(&daemon).len(), 0, "{:#?}", findings(&daemon));
    }
    assert_eq!(openings(&daemon, "first").len(), 0, "{:#?}", openings(&daemon, "first"));
    let all = answers(&daemon, "a1");
    assert!(all >= 1_000, "{all}");
    println!(
        "sound: {all} canaries, nothing suspected, nothing opened; arms a1 and a3 promise one in 10,000 each"
    );

    server.stop();
    let before = answers(&daemon, "a1");
    let at = now_ms();
    server = Llama::serve(&damaged, port);
    let first = suspected(&daemon, at, &["a1", "a3"], 120);
    let seen = answers(&daemon, "a1") - before;
    println!("2 % damage: {seen} canaries later");
    assert!(seen <= 20, "{seen} canaries: {first:#}");
    confirmed(&daemon, at);
    drop(server);
}

/// The same behind a gateway that drops logprobs: what is left are first tokens, of which border inputs change
/// first, and the burst.
#[test]
fn without_logprobs_the_damage_is_found_by_border_inputs_and_opened_by_a_burst() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let port = free_port();
    let damaged = llama::damaged(2);
    let server = Llama::serve(&llama::sound(), port);
    let gateway = strip::logprobs(port);
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let golden = folder.path().join("golden");
    write_golden_set(&golden, 8);
    let config = back_to_back(&config(gateway, free_port(), &golden));
    let watch = Stopwatch::start();
    let said = calibrate(folder.path(), &config, &["--border", "--runs", "2", "--canaries", "80"]);
    println!("{said}\ncalibrated in {:.0} s", watch.elapsed().as_secs_f64());
    assert!(said.contains("logprobs: none") && said.contains("border inputs among"), "{said}");
    let daemon = Daemon::serve(&config);

    // Health says what is missing and why, and which arms are left.
    wait_for("border inputs to be asked", Duration::from_secs(120), || {
        (answers(&daemon, "a2") >= 2 * 32).then_some(())
    });
    let target = daemon.target("first");
    assert_eq!(target["health"], "healthy", "{target:#}");
    assert_eq!(target["signals"]["unavailable"]["entropy"], "engine_dropped", "{target:#}");
    assert_eq!(arm(&daemon, "a1")["unavailable"], "no_logprobs_at_calibration");
    for left in ["a2", "a3", "b1"] {
        assert!(arm(&daemon, left)["unavailable"].is_null(), "{:#}", arm(&daemon, left));
    }
    assert_eq!(findings(&daemon).len(), 0, "{:#?}", findings(&daemon));

    server.stop();
    let (before, at) = ((answers(&daemon, "a2"), answers(&daemon, "a3")), now_ms());
    let server = Llama::serve(&damaged, port);
    let first = suspected(&daemon, at, &["a2", "a3"], 120);
    println!(
        "2 % damage without logprobs: {} answers to border inputs and {} canaries later, by arm {}",
        answers(&daemon, "a2") - before.0,
        answers(&daemon, "a3") - before.1,
        first["arm"]
    );
    confirmed(&daemon, at);
    drop(server);
}

/// The first finding since `at`: by one of these arms, with all that a statement has to carry.
fn suspected(daemon: &Daemon, at: u64, arms: &[&str], seconds: u64) -> Value {
    let watch = Stopwatch::start();
    wait_for("a suspicion", Duration::from_secs(seconds), || (!findings(daemon).is_empty()).then_some(()));
    let event = findings(daemon)[0].clone();
    let finding = event["data"].clone();
    println!(
        "suspected after {:.0} s: {}; statistic {}, n {}, limit {}, one false alarm in {}, onset {} ms after the swap",
        watch.elapsed().as_secs_f64(),
        event["message"],
        finding["statistic"],
        finding["n"],
        finding["limit"],
        finding["arl0"],
        finding["onset"].as_u64().unwrap_or_default() as i64 - at as i64
    );
    let number = |name: &str| finding[name].as_f64().unwrap_or_else(|| panic!("no {name}: {event:#}"));
    assert!(number("statistic") >= number("limit") && number("n") >= 1.0, "{event:#}");
    assert!((number("arl0") - 1e4).abs() < 1.0, "{event:#}");
    let arm = finding["arm"].as_str().unwrap_or_default();
    assert!(arms.contains(&arm), "{event:#}");
    // Border inputs are held together over a round, so theirs may begin a little before.
    assert!(number("onset") >= at as f64 - if arm == "a2" { 10_000.0 } else { 1_000.0 }, "{event:#} {at}");
    finding
}

/// A burst opens it, and says why.
fn confirmed(daemon: &Daemon, at: u64) {
    let opened =
        wait_for("the opening", Duration::from_secs(300), || openings(daemon, "first").first().cloned());
    println!(
        "opened {:.0} s after the swap by {} bursts: {}",
        (opened["at"].as_u64().unwrap_or_default().saturating_sub(at)) as f64 / 1_000.0,
        bursts(daemon, "first", &opened),
        opened["message"]
    );
    assert_eq!(opened["reason"], "golden_burst", "{opened:#}");
    assert_eq!(daemon.target("first")["health"], "degraded");
}

#[test]
fn serve_with_an_upstream_alone_works_in_front_of_a_real_server() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let llama = Llama::serve(&llama::sound(), free_port());
    let mut daemon = Daemon::in_front_of(llama.port);
    let minute = Duration::from_secs(60);

    let answer = daemon.chat(&json!({
        "model": llama::MODEL, "max_tokens": 16, "temperature": 0,
        "messages": [{"role": "user", "content": "Is ice cold? Answer yes or no."}],
    }));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-touchstone-tier"), Some("0"));
    assert!(answer.header("x-touchstone-request-id").is_some());

    let said = daemon.process.line_with("canar", minute);
    println!("{said}");
    let health = wait_for("health to know of the answer", minute, || {
        let health = daemon.ask("/v1/health");
        (health["status"] == "ok").then_some(health)
    });
    let target = &health["targets"][0];
    assert_eq!(target["mode"], "shadow", "{health:#}");
    assert_eq!(target["breaker"], "closed", "{health:#}");
    assert!(["unknown", "healthy"].contains(&target["health"].as_str().unwrap_or_default()), "{health:#}");

    // The truth within a minute also when it is bad news.
    llama.stop();
    wait_for("health to know that the server is gone", minute, || {
        let _ = daemon.chat(&json!({"messages": [{"role": "user", "content": "Hello?"}]}));
        let target = &daemon.ask("/v1/health")["targets"][0];
        (target["health"] == "unavailable").then_some(())
    });
}

fn config(first: u16, second: u16, golden: &Path) -> String {
    format!(
        "mode = \"enforce\"
        [[target]]
        name = \"first\"
        url = \"http://127.0.0.1:{first}\"
        model = \"{model}\"
        [[target]]
        name = \"second\"
        url = \"http://127.0.0.1:{second}\"
        model = \"{model}\"
        quality = {{ canary = {{ every = \"off\" }}, burst = {{ every = \"off\", on_suspicion = false }} }}
        [[route]]
        name = \"chat\"
        paths = [\"/v1/chat/completions\"]
        tiers = [[\"first\"], [\"second\"]]
        golden = \"{golden}\"
        [breaker]
        open = \"5s\"
        ramp = {{ step = \"2s\" }}
        [quality.canary]
        every = \"5s\"
        ",
        model = llama::MODEL,
        golden = golden.display()
    )
}

/// The same with a canary as soon as the last one is answered, without any caller.
fn back_to_back(config: &str) -> String {
    config.replace(
        "every = \"5s\"",
        "every = \"100ms\"\n        idle_pause = \"0s\"\n        max_calls_per_day = 100000",
    )
}

fn now_ms() -> u64 {
    Clock::system().now().as_millis()
}

/// `touchstone golden calibrate` of the first target; what it said.
fn calibrate(folder: &Path, config: &str, further: &[&str]) -> String {
    let file = folder.join("calibrate.toml");
    std::fs::write(&file, config).expect("a temporary folder is writable");
    let done = support::daemon::command()
        .args(["golden", "calibrate", "--target", "first"])
        .args(["--bursts", &BURST_PROMPTS.to_string()])
        .args(further)
        .arg("--config")
        .arg(&file)
        .arg("--data-dir")
        .arg(folder.join("data"))
        .output()
        .expect("the built program runs");
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(done.status.success(), "{said}");
    said
}

/// So many canaries of the starter set, and burst prompts from all over it.
fn write_golden_set(folder: &Path, most: usize) {
    let starter = support::root().join("golden/starter/prompts.jsonl");
    let text = std::fs::read_to_string(starter).expect("the starter set is there");
    let (mut canaries, mut bursts) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let prompt: Value = serde_json::from_str(line).expect("a line is JSON");
        if prompt["kind"] == "canary" {
            canaries.push(line);
        } else if prompt["max_tokens"].as_u64().unwrap_or(MAX_TOKENS) <= MAX_TOKENS {
            bursts.push(line);
        }
    }
    assert!(bursts.len() >= BURST_PROMPTS, "only {} short burst prompts", bursts.len());
    let spread = (0..BURST_PROMPTS).map(|i| bursts[i * bursts.len() / BURST_PROMPTS]);
    let lines: Vec<&str> = canaries.into_iter().take(most).chain(spread).collect();
    std::fs::create_dir_all(folder).expect("a temporary folder is writable");
    std::fs::write(folder.join("prompts.jsonl"), lines.join("\n") + "\n").expect("it is writable");
}

/// Questions of live traffic; none is a golden prompt.
fn questions() -> impl Iterator<Item = String> + Clone {
    const TOPICS: [&str; 8] =
        ["a bicycle", "honey", "the moon", "a library", "rain", "bread", "a lighthouse", "winter"];
    const FORMS: [&str; 4] = [
        "In one sentence, what is {}?",
        "Write one short sentence about {}.",
        "Tell me a fact about {}.",
        "Why do people like {}?",
    ];
    FORMS.iter().flat_map(|form| TOPICS.iter().map(move |topic| form.replace("{}", topic)))
}

/// One request as an application would send it.
fn live(daemon: &Daemon, question: &str, stream: bool) -> Answer {
    daemon.chat(&json!({
        "model": "chat", "stream": stream, "temperature": 0, "seed": 3, "max_tokens": MAX_TOKENS,
        "logprobs": true, "top_logprobs": 5,
        "messages": [{"role": "user", "content": question}],
    }))
}

/// The text of an answer, whichever way it came.
fn said(answer: &Answer) -> String {
    let streamed = answer.header("content-type").is_some_and(|t| t.starts_with("text/event-stream"));
    if !streamed {
        return answer.json()["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned();
    }
    assert!(answer.whole && answer.text().trim_end().ends_with("data: [DONE]"), "cut: {}", answer.text());
    answer
        .events()
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
        .collect()
}

/// Flags that say the answer was unusable, from the daemon's own explanation of the request.
fn hard_flags(daemon: &Daemon, answer: &Answer) -> Vec<String> {
    let id = answer.header("x-touchstone-request-id").expect("each answer has one").to_owned();
    let explained = wait_for("the request to be explained", Duration::from_secs(10), || {
        http::try_get(daemon.admin, &format!("/v1/requests/{id}")).filter(|answer| answer.status == 200)
    });
    let explained = explained.json();
    let flags = explained["flags"].as_array().cloned().unwrap_or_default();
    flags
        .iter()
        .filter_map(|flag| flag.as_str())
        .filter(|flag| Flag::parse(flag).is_some_and(|flag| flag.class() == FaultClass::QualityHard))
        .map(str::to_owned)
        .collect()
}

fn events(daemon: &Daemon, query: &str) -> Vec<Value> {
    let answer = daemon.ask(&format!("/v1/events?{query}"));
    let list = answer.as_array().or_else(|| answer["events"].as_array()).cloned();
    list.unwrap_or_else(|| panic!("no list of events: {answer}"))
}

/// Where an arm of the first target stands.
fn arm(daemon: &Daemon, name: &str) -> Value {
    let target = daemon.ask("/v1/targets/first");
    let arms = target["arms"].as_array().cloned().unwrap_or_default();
    arms.into_iter().find(|arm| arm["arm"] == name).unwrap_or_default()
}

/// Answers that an arm has watched.
fn answers(daemon: &Daemon, name: &str) -> u64 {
    arm(daemon, name)["n"].as_u64().unwrap_or(0)
}

/// What detectors found on the first target.
fn findings(daemon: &Daemon) -> Vec<Value> {
    events(daemon, "target=first&kind=finding")
}

fn transitions(daemon: &Daemon, target: &str) -> Vec<Value> {
    events(daemon, &format!("target={target}&kind=breaker_transition"))
}

fn openings(daemon: &Daemon, target: &str) -> Vec<Value> {
    transitions(daemon, target).into_iter().filter(|event| event["data"]["to"] == "open").collect()
}

/// Golden bursts that ended up to the moment of the opening.
fn bursts(daemon: &Daemon, target: &str, opened: &Value) -> usize {
    let all = events(daemon, &format!("target={target}&kind=burst"));
    all.iter().filter(|event| event["id"].as_u64() <= opened["id"].as_u64()).count()
}
