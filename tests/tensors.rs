//! Tensor wires from end to end, in front of the simulated classifier: tritonclient gets through the daemon what
//! it gets without it, every answer is judged, and a classifier that errs as surely as it was right is found by
//! its golden labels.

mod support;

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use support::daemon::{self, Daemon};
use support::http;
use support::process::Process;
use support::{free_port, python, root, wait_for};

const MINUTE: Duration = Duration::from_secs(60);

struct Sim {
    process: Process,
    port: u16,
}

impl Sim {
    fn serve() -> Self {
        let port = free_port();
        let mut command = daemon::command();
        command.args(["sim", "--model", "c", "--listen", &format!("127.0.0.1:{port}")]);
        let mut process = Process::spawn("sim", &mut command);
        wait_for("the simulated classifier", MINUTE, || {
            process.assert_alive();
            http::try_get(port, "/v2/health/ready").filter(|a| a.status == 200)
        });
        Self { process, port }
    }

    fn fault(&self, spec: &str) {
        let answer =
            http::request(self.port, "POST", "/__sim/fault", &[], spec.as_bytes()).expect("the sim answers");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

/// One target in front of `sim`, that knows the classifier by another name than the callers do.
fn config(sim: &Sim, more: &str) -> String {
    format!(
        "mode = \"enforce\"
        [[target]]
        name = \"triton\"
        url = \"http://127.0.0.1:{}\"
        model = \"c\"
        {more}",
        sim.port
    )
}

const QUIET: &str = "[quality.canary]
    every = \"off\"
    [quality.burst]
    every = \"off\"
    on_suspicion = false
    ";

/// The pattern that the simulated classifier knows a class by.
fn pattern(class: usize) -> Vec<f64> {
    let sign = |f: usize| if ((class + 1) & f).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    (0..8).map(sign).collect()
}

const LABELS: [&str; 6] = ["anchor", "bell", "candle", "drum", "engine", "feather"];

/// An input of that class, a little off its pattern.
fn input(class: usize, i: usize) -> Vec<f64> {
    pattern(class).iter().enumerate().map(|(f, x)| x + 0.05 * ((i * 7 + f * 3) % 11) as f64 - 0.25).collect()
}

fn infer(class: usize, i: usize) -> Value {
    json!({ "inputs": [{ "name": "features", "datatype": "FP32", "shape": [1, 8], "data": input(class, i) }] })
}

/// What the daemon knows of one answered request.
fn explained(daemon: &Daemon, answer: &http::Answer) -> Value {
    let id = answer.header("x-touchstone-request-id").expect("an id").to_owned();
    wait_for("the request to be filed", MINUTE, || {
        let answer = http::get(daemon.admin, &format!("/v1/requests/{id}"));
        (answer.status == 200).then(|| answer.json())
    })
}

#[test]
fn tritonclient_does_not_notice_the_daemon() {
    let sim = Sim::serve();
    let daemon = Daemon::serve(&config(&sim, QUIET));
    let compared = Command::new(python())
        .arg(root().join("tests/support/triton_equal.py"))
        .args([format!("127.0.0.1:{}", sim.port), format!("127.0.0.1:{}", daemon.port), "c".to_owned()])
        .output()
        .expect("python runs");
    let said = String::from_utf8_lossy(&compared.stdout).into_owned();
    let complained = String::from_utf8_lossy(&compared.stderr).into_owned();
    assert!(compared.status.success(), "{said}\n{complained}");
    assert_eq!(said.matches("EQUAL ").count(), 9, "{said}");
    println!("{said}");
}

#[test]
fn each_answer_of_a_classifier_is_explained_on_both_wires() {
    let sim = Sim::serve();
    let daemon = Daemon::serve(&config(&sim, QUIET).replace("enforce", "shadow"));
    let post = |path: &str, body: &Value| http::post(daemon.port, path, &[], body);
    let kserve = |i| post("/v2/models/callers-name/infer", &infer(i % 6, i));
    let rows = json!({ "instances": [input(0, 1), input(1, 2)] });
    let tensorflow = || post("/v1/models/callers-name:predict", &rows);

    for (answer, items) in
        [(kserve(4), 1), (tensorflow(), 2), (post("/v2/models/x/versions/3/infer", &infer(1, 1)), 1)]
    {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let explained = explained(&daemon, &answer);
        let signals = &explained["signals"];
        assert_eq!(explained["flags"], json!([]), "{explained:#}");
        assert_eq!((&signals["dim"], &signals["items"]), (&json!(6), &json!(items)), "{explained:#}");
        assert_eq!(signals["class_output"], "probabilities");
        assert!(signals["confidence"].as_f64().is_some_and(|c| c > 0.9), "{explained:#}");
        assert!(signals["class_entropy"].as_f64().is_some_and(|h| h > 0.0 && h < 0.5), "{explained:#}");
        assert!(signals["norm"].as_f64().is_some_and(|n| n > 0.9 && n < 1.0), "{explained:#}");
    }
    for (fault, flag) in [
        ("nonfinite", "tensor_nonfinite"),
        ("empty", "empty_output"),
        ("schema_break", "malformed_json"),
        ("cut", "body_truncated"),
        ("status=503", "overloaded"),
    ] {
        sim.fault(fault);
        for answer in [kserve(1), tensorflow()] {
            let explained = explained(&daemon, &answer);
            let flags = explained["attempts"][0]["flags"].as_array().cloned().unwrap_or_default();
            assert!(flags.contains(&json!(flag)), "{fault}: {explained:#}");
        }
    }
    wait_for("the health API to show the signals", MINUTE, || {
        let signals = daemon.target("triton")["signals"].clone();
        (signals["margin"]["n"].as_u64() >= Some(3) && signals["confidence_variance"]["value"].is_number())
            .then_some(())
    });
}

#[test]
fn the_daemons_own_errors_have_the_wires_shape() {
    let mut sim = Sim::serve();
    let daemon = Daemon::serve(&config(&sim, QUIET));
    sim.process.kill();
    for path in ["/v2/models/c/infer", "/v1/models/c:predict"] {
        let answer = http::post(daemon.port, path, &[], &infer(0, 0));
        assert_eq!(answer.status, 502, "{}", answer.text());
        let error = answer.json()["error"].clone();
        assert!(error.as_str().is_some_and(|e| e.starts_with("upstream_unreachable")), "{path}: {error}");
    }
}

#[test]
fn raw_scores_in_place_of_probabilities_are_told() {
    let sim = Sim::serve();
    let daemon = Daemon::serve(&config(&sim, QUIET));
    let ask = |i: usize| {
        assert_eq!(http::post(daemon.port, "/v2/models/c/infer", &[], &infer(i % 6, i)).status, 200)
    };
    (0..25).for_each(ask);
    sim.fault("raw_scores");
    (0..25).for_each(ask);
    let event = wait_for("the change to be told", MINUTE, || {
        let events = daemon.ask("/v1/events?kind=finding");
        events["events"].as_array()?.iter().find(|e| e["reason"] == "class_output_changed").cloned()
    });
    assert!(event["message"].as_str().is_some_and(|m| m.contains("raw scores")), "{event:#}");
}

/// Ten canaries and fifty burst prompts with known labels, on both wires.
fn golden_set() -> String {
    let line = |i: usize| {
        let class = i % LABELS.len();
        let (kind, id) = if i < 10 { ("canary", format!("c{i}")) } else { ("burst", format!("b{i}")) };
        let (wire, input, label) = if i.is_multiple_of(3) {
            ("tfserving", json!([input(class, i)]), class.to_string())
        } else {
            ("kserve", infer(class, i)["inputs"].clone(), LABELS[class].to_owned())
        };
        json!({ "id": id, "kind": kind, "wire": wire, "input": input, "check": { "label": label } })
            .to_string()
    };
    (0..60).map(|i| line(i) + "\n").collect()
}

#[test]
fn a_classifier_that_errs_as_surely_as_it_was_right_is_found_by_its_labels() {
    let sim = Sim::serve();
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let golden = folder.path().join("golden");
    std::fs::create_dir_all(&golden).expect("it is writable");
    std::fs::write(golden.join("prompts.jsonl"), golden_set()).expect("it is writable");
    let config = config(
        &sim,
        &format!(
            "[[route]]
            name = \"classify\"
            tiers = [[\"triton\"]]
            golden = \"{}\"
            [breaker]
            open = \"2s\"
            allow_last = true
            [quality.canary]
            every = \"1s\"
            ",
            golden.display()
        ),
    );
    let file = folder.path().join("calibrate.toml");
    std::fs::write(&file, &config).expect("it is writable");
    let done = daemon::command()
        .args(["golden", "calibrate", "--config"])
        .arg(&file)
        .arg("--data-dir")
        .arg(folder.path().join("data"))
        .output()
        .expect("the built program runs");
    let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
    assert!(done.status.success(), "{said}");
    println!("{said}");

    let daemon = Daemon::serve(&config);
    let ask = |i: usize| http::post(daemon.port, "/v2/models/any/infer", &[], &infer(i % 6, i));
    assert_eq!(daemon.target("triton")["calibrated"], true, "{}", daemon.process.output());
    (0..30).for_each(|i| assert_eq!(ask(i).status, 200));
    let confidence = || {
        wait_for("the confidence to be known", MINUTE, || {
            daemon.target("triton")["signals"]["confidence"]["value"].as_f64()
        })
    };
    let before = confidence();

    sim.fault("mislabel:0.24");
    let mut asked = 30;
    let opened = wait_for("the loss to be found", MINUTE * 2, || {
        let _ = ask(asked);
        asked += 1;
        let events = daemon.ask("/v1/events?kind=breaker_transition");
        events["events"].as_array()?.iter().find(|e| e["data"]["to"] == "open").cloned()
    });
    assert_eq!(opened["reason"], "golden_burst", "{opened:#}");
    let burst = daemon.ask("/v1/events?kind=burst")["events"].as_array().and_then(|all| all.last().cloned());
    println!("{}\n{}", opened["message"], burst.unwrap_or_default()["message"]);
    let after = confidence();
    assert!((before - after).abs() < 0.02, "it is as sure as it was: {before} {after}");

    sim.fault("none");
    wait_for("the breaker to close by golden answers", MINUTE * 2, || {
        (daemon.breaker("triton") == "closed").then_some(())
    });
}
