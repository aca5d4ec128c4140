//! Stop and reload of the built daemon: an answer under way is delivered whole, a faulty configuration changes
//! nothing, a sound one takes effect without a restart.

mod support;

use std::time::Duration;

use serde_json::json;
use support::daemon::command;
use support::http;
use support::process::Process;
use support::{free_port, wait_for};
use touchstone::sim::{Params, Sim, SimHandle};

struct Set {
    _runtime: tokio::runtime::Runtime,
    sims: Vec<SimHandle>,
    dir: tempfile::TempDir,
    daemon: Process,
    port: u16,
    admin: u16,
}

fn config(url: &str, name: &str, mode: &str) -> String {
    format!(
        "mode = \"{mode}\"\n[[target]]\nname = \"{name}\"\nurl = \"{url}\"\n\
         [quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\n[quality.calibration]\npace = \"1m\"\n"
    )
}

fn set(tokens_per_second: f64) -> Set {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let sims: Vec<_> = (0..2)
        .map(|_| {
            let params = Params { tokens_per_second, ..Params::default() };
            runtime.block_on(Sim::start(([127, 0, 0, 1], 0).into(), params)).expect("a simulated upstream")
        })
        .collect();
    let dir = tempfile::tempdir().expect("a temporary folder");
    let file = dir.path().join("touchstone.toml");
    std::fs::write(&file, config(&sims[0].url(), "one", "shadow")).expect("writable");
    let (port, admin) = (free_port(), free_port());
    let mut command = command();
    command.arg("serve").arg("--config").arg(&file).arg("--data-dir").arg(dir.path().join("data")).args([
        "--listen",
        &format!("127.0.0.1:{port}"),
        "--admin",
        &format!("127.0.0.1:{admin}"),
    ]);
    let mut daemon = Process::spawn("touchstone", &mut command);
    wait_for("the daemon to be ready", Duration::from_secs(60), || {
        daemon.assert_alive();
        http::try_get(admin, "/readyz").filter(|answer| answer.status == 200)
    });
    Set { _runtime: runtime, sims, dir, daemon, port, admin }
}

fn ask(port: u16, stream: bool) -> http::Answer {
    let body = json!({ "stream": stream, "max_tokens": 40, "messages": [{ "role": "user", "content": "How do bees make honey?" }] });
    http::post(port, "/v1/chat/completions", &[], &body)
}

#[test]
fn an_answer_under_way_is_delivered_whole_before_the_daemon_ends() {
    let mut set = set(15.0);
    let port = set.port;
    let caller = std::thread::spawn(move || ask(port, true));
    wait_for("the stream to be under way", Duration::from_secs(20), || {
        (set.sims[0].stats().in_flight > 0).then_some(())
    });
    let status = set.daemon.terminate(Duration::from_secs(40));
    assert!(status.success(), "{status}");
    let answer = caller.join().expect("the caller is answered");
    assert!(answer.status == 200 && answer.whole, "{}", answer.text());
    assert!(answer.text().trim_end().ends_with("[DONE]"), "{}", answer.text());
    assert!(http::try_get(set.admin, "/healthz").is_none(), "nobody listens any more");
}

#[test]
fn a_changed_file_takes_effect_and_a_faulty_one_is_told_and_ignored() {
    let set = set(0.0);
    let file = set.dir.path().join("touchstone.toml");
    assert_eq!(ask(set.port, false).header("x-touchstone-target"), Some("one"));

    std::fs::write(&file, "mode = \"loud\"\n").expect("writable");
    let refused = wait_for("the fault to be told", Duration::from_secs(20), || {
        let events = http::get(set.admin, "/v1/events?kind=config").json();
        events["events"].as_array()?.last().filter(|e| e["reason"] == "refused").cloned()
    });
    assert!(refused["message"].as_str().expect("words").contains("mode"), "{refused}");
    assert_eq!(ask(set.port, false).header("x-touchstone-target"), Some("one"));

    std::fs::write(&file, config(&set.sims[1].url(), "two", "enforce")).expect("writable");
    wait_for("the new target to answer", Duration::from_secs(20), || {
        let answer = ask(set.port, false);
        assert_eq!(answer.status, 200, "no request suffers from a reload: {}", answer.text());
        (answer.header("x-touchstone-target") == Some("two")).then_some(())
    });
    let health = wait_for("health to tell of the new target", Duration::from_secs(20), || {
        let health = http::get(set.admin, "/v1/health").json();
        (health["targets"][0]["name"] == "two").then_some(health)
    });
    assert_eq!(health["targets"][0]["mode"], "enforce", "{health:#}");
    assert_eq!(health["targets"].as_array().map(Vec::len), Some(1), "{health:#}");
}
