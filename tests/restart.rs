//! `kill -9` while a breaker is open and under load: after the restart it is open with the same due time, and no
//! transition that was told is missing.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use support::daemon::serve_at;
use support::http;
use support::{free_port, wait_for};
use touchstone::sim::{Params, Sim};

fn first(admin: u16) -> Value {
    http::get(admin, "/v1/targets/first").json()
}

/// Transitions of the first target: number, moment, and where to.
fn transitions(admin: u16) -> Vec<(u64, u64, String)> {
    let events = http::get(admin, "/v1/events?kind=breaker_transition&target=first&since=0").json();
    let events = events["events"].as_array().cloned().unwrap_or_default();
    let read = |e: &Value| {
        let to = e["data"]["to"].as_str().unwrap_or_default().to_owned();
        (e["id"].as_u64().unwrap_or(0), e["at"].as_u64().unwrap_or(0), to)
    };
    events.iter().map(read).collect()
}

#[test]
fn an_open_breaker_survives_kill_9_with_its_due_time_and_every_transition() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let sim = |faults: &str| {
        let params = Params { faults: faults.parse().expect("a fault"), ..Params::default() };
        runtime.block_on(Sim::start(([127, 0, 0, 1], 0).into(), params)).expect("a simulated upstream")
    };
    let (broken, sound) = (sim("none"), sim("none"));
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (file, data) = (dir.path().join("touchstone.toml"), dir.path().join("data"));
    let config = format!(
        "mode = \"enforce\"\n\
         [[target]]\nname = \"first\"\nurl = \"{}\"\n[[target]]\nname = \"second\"\nurl = \"{}\"\n\
         [[route]]\nname = \"r\"\ntiers = [[\"first\"], [\"second\"]]\n\
         [breaker]\nopen = \"2m\"\nopen_max = \"2m\"\n\
         [quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\n[quality.calibration]\npace = \"1m\"\n",
        broken.url(),
        sound.url()
    );
    std::fs::write(&file, config).expect("a temporary folder is writable");
    let (port, admin) = (free_port(), free_port());
    let arguments = ["--config".to_owned(), file.display().to_string()];
    let mut daemon = serve_at(&arguments, &[], &data, port, admin);

    // An operator's hand leaves transitions too, so that there is more than one to lose.
    let token = std::fs::read_to_string(data.join("admin.token")).expect("a token");
    let bearer = format!("Bearer {}", token.trim());
    for action in ["open", "auto", "close", "auto"] {
        let body = json!({ "action": action, "reason": "test" });
        let done = http::post(admin, "/v1/targets/first/breaker", &[("authorization", &bearer)], &body);
        assert_eq!(done.status, 200, "{}", done.text());
    }

    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let load: Vec<_> = (0..4)
        .map(|i| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            std::thread::spawn(move || {
                for n in 0..4_000 {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let body = json!({ "messages": [{ "role": "user", "content": format!("Question {i} {n}?") }],
                                       "max_tokens": 8 });
                    let raw = std::panic::catch_unwind(|| http::post(port, "/v1/chat/completions", &[], &body));
                    answered.fetch_add(u32::from(raw.is_ok_and(|a| a.status == 200)), Ordering::Relaxed);
                }
            })
        })
        .collect();
    wait_for("some answers", Duration::from_secs(30), || {
        (answered.load(Ordering::Relaxed) > 20).then_some(())
    });
    broken.set_fault("status=500").expect("a fault");
    let before = wait_for("the breaker to open", Duration::from_secs(60), || {
        let state = first(admin);
        (state["breaker"] == "open").then_some(state)
    });
    let told = wait_for("the opening to be told", Duration::from_secs(10), || {
        let told = transitions(admin);
        told.iter().any(|(_, _, to)| to == "open").then_some(told)
    });
    daemon.kill(); // SIGKILL, with requests under way
    stop.store(true, Ordering::Relaxed);
    for thread in load {
        thread.join().expect("the load ends");
    }

    let _again = serve_at(&arguments, &[], &data, port, admin);
    let after = first(admin);
    let due = |state: &Value| state["admission"]["due"].as_u64().expect("an open breaker has a due time");
    println!("{} transitions told before, due {}, after {}", told.len(), due(&before), due(&after));
    assert_eq!(after["breaker"], "open", "{after:#}");
    assert_eq!(due(&after), due(&before));
    let kept = transitions(admin);
    for transition in &told {
        assert!(kept.contains(transition), "{transition:?} is missing in {kept:?}");
    }
    assert!(told.len() >= 5, "four by the operator and the opening: {told:?}");
    let answer = http::post(
        port,
        "/v1/chat/completions",
        &[],
        &json!({ "messages": [{ "role": "user", "content": "Hi" }], "max_tokens": 8 }),
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-touchstone-target"), Some("second"));
    assert_eq!(answer.header("x-touchstone-degraded"), Some("breaker_open"));
}
