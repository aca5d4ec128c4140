//! `touchstone replay` on recorded answers of real models: a local one, healthy and damaged
//! (`fixtures/traces/README.md`), and two public series of one-token canaries (`fixtures/traces/trackllm/README.md`).
//! `-- --nocapture` prints the figures.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use serde_json::{Value, json};
use touchstone::baseline::{Baseline, PromptBaseline};
use touchstone::commands::replay::recording::{Index, Judged, judge};
use touchstone::commands::replay::replayer::{Options, Replayer, Report};
use touchstone::detect::Arm;
use touchstone::embed::{Embedder, ModelSource};
use touchstone::golden::GoldenSet;

fn lines(name: &str) -> Vec<Value> {
    let path = support::root().join("tests/fixtures/traces").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

/// A one-token chat exchange with these alternatives, as a server would send it.
fn canary(at_ms: u64, prompt: &str, sampled: &Value, top: &[Value], temperature: f64) -> Value {
    let entry = |pair: &Value| json!({"token": pair[0], "logprob": pair[1], "bytes": null});
    let mut token = entry(sampled);
    token["top_logprobs"] = top.iter().map(entry).collect();
    json!({
        "at_ms": at_ms, "latency_ms": 90, "status": 200,
        "request": {
            "model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": 1,
            "temperature": temperature, "logprobs": true, "top_logprobs": top.len(),
        },
        "response": {
            "object": "chat.completion", "model": "m",
            "choices": [{
                "index": 0, "message": {"role": "assistant", "content": sampled[0]},
                "logprobs": {"content": [token]}, "finish_reason": "length",
            }],
            "usage": {"prompt_tokens": 30, "completion_tokens": 1},
        },
    })
}

fn canaries(model: &str) -> Vec<Value> {
    let one = |(i, line): (usize, Value)| {
        let prompt = line["prompt"].as_str().expect("a prompt").to_owned();
        let top = line["top"].as_array().expect("alternatives");
        canary(i as u64 * 60_000, &prompt, &line["sampled"], top, 0.0)
    };
    lines(&format!("{model}.canaries.jsonl")).into_iter().enumerate().map(one).collect()
}

fn answers(model: &str) -> Vec<Value> {
    let one = |(i, line): (usize, Value)| {
        json!({
            "at_ms": i as u64 * 1_000, "latency_ms": 900, "status": 200, "route": "chat",
            "request": {
                "model": "m", "messages": [{"role": "user", "content": line["prompt"]}], "max_tokens": 32,
                "temperature": 0.7, "seed": i,
            },
            "response": {
                "object": "chat.completion", "model": "m",
                "choices": [{
                    "index": 0, "message": {"role": "assistant", "content": line["text"]},
                    "finish_reason": line["finish"],
                }],
                "usage": {"prompt_tokens": 30, "completion_tokens": 32},
            },
        })
    };
    lines(&format!("{model}.answers.jsonl")).into_iter().enumerate().map(one).collect()
}

/// A public series as exchanges: the sampled token comes first, the alternatives after it.
fn series(name: &str) -> Vec<Value> {
    let one = |(i, line): (usize, Value)| {
        let mut top = line["top"].as_array().expect("alternatives").clone();
        let sampled = top[0].clone();
        top.sort_by(|a, b| b[1].as_f64().total_cmp_of(a[1].as_f64()));
        canary(i as u64 * 3_600_000, "x", &sampled, &top, 1.0)
    };
    lines(&format!("trackllm/{name}.jsonl")).into_iter().enumerate().map(one).collect()
}

trait TotalCmp {
    fn total_cmp_of(self, other: Self) -> std::cmp::Ordering;
}

impl TotalCmp for Option<f64> {
    fn total_cmp_of(self, other: Self) -> std::cmp::Ordering {
        self.unwrap_or(f64::NAN).total_cmp(&other.unwrap_or(f64::NAN))
    }
}

fn judged(exchanges: &[Value]) -> Vec<Judged> {
    exchanges.iter().map(|e| judge(&e.to_string(), &Index::default()).expect("an exchange")).collect()
}

/// Few resamples: the build is not optimised.
fn options(seed: u64) -> Options {
    Options { resamples: 100, seed, ..Options::default() }
}

fn replay(files: &[&[Judged]], seed: u64) -> Report {
    let mut replayer = Replayer::new(options(seed));
    for (i, file) in files.iter().enumerate() {
        replayer.begin_file(&format!("file {i}"));
        for exchange in *file {
            replayer.feed((*exchange).clone()).expect("few targets");
        }
    }
    replayer.finish()
}

fn openings(report: &Report) -> u64 {
    report.targets.values().map(|t| t.openings).sum()
}

fn false_alarms(report: &Report) -> u64 {
    report.targets.values().map(|t| t.false_alarms).sum()
}

/// Exchanges of the second file until an arm raised suspicion or opened.
fn found_after(
    report: &Report,
    arms: &[Arm],
    count: fn(&touchstone::commands::replay::replayer::Place) -> u64,
) -> Option<u64> {
    let second = report.firings.iter().filter(|f| f.place.file == 1 && arms.contains(&f.finding.arm));
    second.map(|f| count(&f.place)).next()
}

#[test]
fn a_tenth_of_the_weights_damaged_is_found_within_five_answers_or_three_canaries() {
    let traffic = replay(&[&judged(&answers("healthy-a")), &judged(&answers("corrupt-10pct"))], 1);
    let live = found_after(&traffic, &[Arm::C2], |p| p.live);
    let probes = replay(&[&judged(&canaries("healthy-a")), &judged(&canaries("corrupt-10pct"))], 1);
    let probed = found_after(&probes, &[Arm::A1, Arm::A3], |p| p.canaries);
    println!("10 %: {live:?} live answers, {probed:?} canaries");
    assert!(live.is_some_and(|n| n <= 5) || probed.is_some_and(|n| n <= 3), "{live:?} {probed:?}");
    assert_eq!((false_alarms(&traffic), false_alarms(&probes)), (0, 0));
    assert_eq!(openings(&traffic), 1, "hard faults open");
    assert_eq!(openings(&probes), 0, "canaries suspect");
}

#[test]
fn a_hundredth_of_the_weights_damaged_is_found_by_canaries() {
    let report = replay(&[&judged(&canaries("healthy-a")), &judged(&canaries("corrupt-1pct"))], 1);
    let found = found_after(&report, &[Arm::A1, Arm::A3], |p| p.canaries);
    let totals = report.targets.values().next().expect("a target");
    println!("1 %: {found:?} canaries, armed after {:?}", totals.armed_after);
    assert!(found.is_some_and(|n| n <= 6), "{found:?}");
    assert_eq!(false_alarms(&report), 0);
}

#[test]
fn healthy_files_in_any_order_open_nothing_and_keep_the_promise() {
    let (canaries, answers) = (judged(&canaries("healthy-a")), judged(&answers("healthy-a")));
    let all: Vec<Judged> = canaries.into_iter().chain(answers).collect();
    let (mut suspicions, mut watched, mut opened) = (0, 0, 0);
    for seed in 0..200 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut order: Vec<usize> = (0..all.len()).collect();
        rng.shuffle(&mut order);
        let mut replayer = Replayer::new(options(seed));
        for (i, at) in order.into_iter().enumerate() {
            let at_ms = touchstone::clock::Timestamp::from_millis(i as u64 * 10_000);
            replayer.feed(all[at].clone().at(at_ms)).expect("one target");
        }
        let report = replayer.finish();
        opened += openings(&report);
        suspicions += false_alarms(&report);
        watched += report.targets.values().map(|t| t.healthy).sum::<u64>();
    }
    // Two arms promise 10⁴ canaries each; so many alarms at most with 95 %.
    let expected = watched as f64 * 2.0 / 1e4;
    let (mut bound, mut term, mut sum) = (0_u32, (-expected).exp(), (-expected).exp());
    while sum < 0.95 {
        bound += 1;
        term *= expected / f64::from(bound);
        sum += term;
    }
    println!(
        "200 orders: {suspicions} suspicions in {watched} watched canaries ({expected:.1} promised, bound {bound}), {opened} openings"
    );
    assert_eq!(opened, 0);
    assert!(suspicions <= u64::from(bound), "{suspicions} of at most {bound}");
}

#[test]
fn a_published_change_is_found_within_six_probes_and_a_quiet_endpoint_stays_quiet() {
    let changing = judged(&series("kimi-k2.7-code.alibaba"));
    let (changed, back) = (313, 358);
    let quiet = judged(&series("deepseek-v3.1.coreweave"));
    let (mut good, mut delays) = (0, Vec::new());
    for seed in 0..20_u64 {
        // Another calibration each time; the first ten begin in another, unlogged state that ends at probe 30.
        let start = seed as usize * 3;
        let report = replay(&[&changing[start..changed], &changing[changed..back]], seed);
        let totals = report.targets.values().next().expect("a target");
        let found = found_after(&report, &[Arm::A1, Arm::A3], |p| p.canaries);
        let still = replay(&[&quiet[seed as usize * 5..]], seed);
        let armed = totals.armed_after.is_some_and(|n| n <= 100)
            && still.targets.values().all(|t| t.armed_after.is_some_and(|n| n <= 100));
        let ok =
            armed && found.is_some_and(|n| n <= 6) && false_alarms(&report) == 0 && false_alarms(&still) == 0;
        println!(
            "seed {seed}: armed after {:?}, found after {found:?} changed probes, false alarms {} and {}",
            totals.armed_after,
            false_alarms(&report),
            false_alarms(&still)
        );
        good += u32::from(ok);
        delays.extend(found);
    }
    delays.sort_unstable();
    println!("{good} of 20; delays {delays:?}, median {:?}", delays.get(delays.len() / 2));
    assert!(good >= 18, "{good} of 20");
}

fn write(folder: &tempfile::TempDir, name: &str, exchanges: &[Value]) -> PathBuf {
    let path = folder.path().join(name);
    let text: String = exchanges.iter().map(|e| format!("{e}\n")).collect();
    std::fs::write(&path, text).expect("a temporary folder is writable");
    path
}

fn run(args: &[&std::ffi::OsStr]) -> std::process::Output {
    support::daemon::command().arg("replay").args(args).output().expect("the built program runs")
}

#[test]
fn the_command_says_when_each_arm_fired_and_names_a_faulty_line() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let labelled = |model: &str, label: &str| {
        let mut all = answers(model);
        all.iter_mut().for_each(|e| e["label"] = label.into());
        all
    };
    let healthy = write(&folder, "healthy.jsonl", &labelled("healthy-a", "healthy"));
    let damaged = write(&folder, "damaged.jsonl", &labelled("corrupt-10pct", "damaged"));
    let rules = folder.path().join("rules.toml");
    std::fs::write(&rules, "[[rule]]\nsignal = 'foreign_share'\nabove = 0.9\nname = 'foreign'\n")
        .expect("written");
    let done = run(&[
        healthy.as_ref(),
        damaged.as_ref(),
        "--format".as_ref(),
        "json".as_ref(),
        "--rules".as_ref(),
        rules.as_ref(),
    ]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: Value = serde_json::from_slice(&done.stdout).expect("one JSON document");
    let first = &report["firings"][0];
    assert_eq!(first["arm"], "c2", "{first:#}");
    assert!(first["delay"].as_u64().is_some_and(|n| n <= 5), "{first:#}");
    assert_eq!(report["targets"]["recorded"]["false_alarms"], 0);
    assert!(report["thresholds"].as_array().is_some_and(|rows| !rows.is_empty()));
    let text = run(&[healthy.as_ref(), damaged.as_ref()]);
    let said = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(said.contains("c2 degraded in") && said.contains("delay 3"), "{said}");
    println!("{said}");

    let mut broken = answers("healthy-a");
    broken[6]["response"] = Value::Null;
    broken[6].as_object_mut().expect("an object").remove("response");
    let broken = write(&folder, "broken.jsonl", &broken);
    let done = run(&[broken.as_ref()]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("broken.jsonl:7: response, chunks: write one of them"), "{said}");
}

/// A golden set of checks, one exchange of a burst, and a target that passes all of it in health.
fn golden(n: usize) -> (GoldenSet, Baseline) {
    let prompt = |i: usize| {
        json!({
            "id": format!("sum-{i}"), "kind": "burst", "wire": "chat", "check": {"contains": format!("is {}", 2 * i)},
            "messages": [{"role": "user", "content": format!("What is {i} + {i}?")}],
        })
        .to_string()
    };
    let text: Vec<String> = (0..n).map(prompt).collect();
    let set = GoldenSet::parse("sums", &text.join("\n")).expect("a golden set");
    let healthy = PromptBaseline { runs: 3, passes: 3, ..PromptBaseline::default() };
    let prompts = set.prompts().iter().map(|p| (Arc::clone(&p.id), healthy.clone())).collect();
    (set, Baseline { version: 1, target: "recorded".into(), prompts, ..Baseline::default() })
}

fn exchange(at_ms: u64, label: &str, question: &str, answer: &str) -> Value {
    json!({
        "at_ms": at_ms, "latency_ms": 300, "status": 200, "route": "chat", "label": label,
        "request": {"model": "m", "messages": [{"role": "user", "content": question}], "max_tokens": 40},
        "response": {
            "object": "chat.completion", "model": "m",
            "choices": [{
                "index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop",
            }],
            "usage": {"prompt_tokens": 20, "completion_tokens": 9},
        },
    })
}

#[test]
fn recorded_golden_bursts_are_judged_as_the_daemon_would_have_judged_them() {
    let (set, baseline) = golden(30);
    let index = Index::of(&set);
    let baselines = BTreeMap::from([(Arc::clone(&baseline.target), Arc::new(baseline))]);
    let mut replayer = Replayer::new(Options { baselines, ..options(1) });
    let burst = |begin: u64, label: &str, right: bool| {
        let one = |i: u64| {
            let answer =
                if right { format!("The sum is {}.", 2 * i) } else { "It is hard to say.".to_owned() };
            exchange(begin + i * 1_000, label, &format!("What is {i} + {i}?"), &answer)
        };
        (0..30).map(one).collect::<Vec<_>>()
    };
    let hour = 3_600_000;
    let (sound, again, bad) =
        (burst(0, "healthy", true), burst(hour, "healthy", true), burst(2 * hour, "damaged", false));
    let mut fired = Vec::new();
    for line in sound.iter().chain(&again).chain(&bad) {
        let judged = judge(&line.to_string(), &index).expect("an exchange");
        assert!(judged.sample.prompt_id.is_some() && judged.sample.check.is_some());
        fired.extend(replayer.feed(judged).expect("one target"));
    }
    let report = replayer.finish();
    let totals = &report.targets["recorded"];
    println!("{:?}, opened {} times: {}", totals.verdicts, totals.openings, fired[0].finding.message);
    assert_eq!((totals.bursts, totals.live), (90, 0));
    assert_eq!((totals.verdicts["sound"], totals.verdicts["degraded"]), (2, 1));
    assert_eq!((totals.openings, totals.false_alarms), (1, 0));
    assert_eq!((fired.len(), fired[0].finding.arm), (1, Arm::B1), "{fired:#?}");
    assert!(fired[0].place.exchanges <= 60 + 10, "{:?}", fired[0].place);
}

/// The program's own figure of the most memory it ever held, kB, while it replays so many exchanges.
fn memory_of(folder: &Path, exchanges: u64) -> u64 {
    let file = folder.join(format!("{exchanges}.jsonl"));
    let mut text = String::new();
    for i in 0..exchanges {
        // Every exchange is new, on four routes; one in ten is a canary.
        let (question, answer) =
            (format!("Where is parcel {i} now?"), format!("Parcel {i} lies on shelf {}.", i % 97));
        let mut line = exchange(i * 1_000, "healthy", &question, &answer);
        line["route"] = json!(format!("route-{}", i % 4));
        if i % 10 == 0 {
            line["request"]["max_tokens"] = json!(1);
        }
        text.push_str(&line.to_string());
        text.push('\n');
    }
    std::fs::write(&file, text).expect("a temporary folder is writable");
    let mut replay = support::daemon::command()
        .arg("replay")
        .arg(&file)
        .stdout(Stdio::null())
        .spawn()
        .expect("the built program runs");
    let status = format!("/proc/{}/status", replay.id());
    let mut most = 0;
    let done = loop {
        if let Some(done) = replay.try_wait().expect("a child") {
            break done;
        }
        let said = std::fs::read_to_string(&status).unwrap_or_default();
        let peak = said
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        most = most.max(peak.unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(2));
    };
    assert!(done.success() && most > 0, "{done}: {most}");
    most
}

#[test]
fn ten_times_the_exchanges_take_no_more_memory() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let (few, many) = (memory_of(folder.path(), 1_000), memory_of(folder.path(), 10_000));
    println!("most memory held: {few} kB for 1,000 exchanges, {many} kB for 10,000");
    assert!(many < few + 8_192, "{few} kB, then {many} kB");
}

/// With the sentence model: live answers of another model at the same prompts are a suspicion, other prompts are a
/// changed workload and none.
#[test]
fn answers_that_moved_are_told_from_a_workload_that_moved() {
    let embedder = Arc::new(Embedder::load(&ModelSource::Builtin, 1).expect("the model inside"));
    let topics = ["tomato soup", "rye bread", "apple pie", "rice with beans", "onion tart", "plum jam"];
    let ways =
        ["How long do I cook", "What goes into", "Who invented", "How do I store", "What do I serve with"];
    let mut rng = fastrand::Rng::with_seed(3);
    let mut live = |n: u64, begin: u64, kind: &str| -> Vec<Judged> {
        let mut one = |i: u64| {
            let (topic, way) = (topics[rng.usize(..6)], ways[rng.usize(..5)]);
            let (question, answer) = match kind {
                "other model" => (
                    format!("{way} {topic}?"),
                    format!("Your invoice number {} will be sent by the billing department.", rng.u32(..900)),
                ),
                "other traffic" => (
                    format!("Does train number {} to the coast stop at the airport?", rng.u32(..900)),
                    "The train stops there twice an hour.".to_owned(),
                ),
                _ => (
                    format!("{way} {topic}?"),
                    format!("Most cooks take {topic} slowly, about {} minutes.", rng.u32(5..90)),
                ),
            };
            let line = exchange(begin + i * 1_000, "healthy", &question, &answer);
            judge(&line.to_string(), &Index::default()).expect("an exchange")
        };
        (0..n).map(&mut one).collect()
    };
    let healthy = live(240, 0, "healthy");
    for (kind, suspicions, changes) in [("other model", 1, 0), ("other traffic", 0, 1)] {
        let mut replayer = Replayer::new(Options { embedder: Some(Arc::clone(&embedder)), ..options(1) });
        let mut fired = Vec::new();
        for exchange in healthy.iter().cloned().chain(live(70, 400_000, kind)) {
            fired.extend(replayer.feed(exchange).expect("one target"));
        }
        let report = replayer.finish();
        let totals = &report.targets["recorded"];
        println!("{kind}: {:?}, workload changed {} times", totals.suspicions, totals.workload_changes);
        assert_eq!(totals.workload_changes, changes, "{kind}");
        assert_eq!(totals.suspicions.contains_key(&Arm::C1), suspicions > 0, "{kind}: {fired:#?}");
        if let Some(first) = fired.first() {
            println!("after {} answers: {}", first.place.live, first.finding.message);
            assert!((241..=310).contains(&first.place.live), "{first:?}");
        }
    }
}
