//! `kill -9` in the middle of paid calls: what was spent is remembered, and what was under way is charged with what
//! had been set aside for it.

mod support;

#[allow(dead_code)] // this file uses a part of it
#[path = "common/upstream.rs"]
mod upstream;

use std::time::Duration;

use serde_json::{Value, json};
use support::daemon::serve_at;
use support::{free_port, http, wait_for};
use tokio::runtime::Runtime;
use upstream::{Act, Upstream, json as answer_json};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// Spent and set aside in the hour, US dollars.
fn money(admin: u16, scope: &str) -> (f64, f64) {
    let all = http::get(admin, "/v1/budgets").json();
    let of = |a: &&Value| a["scope"] == scope && a["window"] == "hour";
    let account = all["money"].as_array().and_then(|list| list.iter().find(of)).cloned().unwrap_or_default();
    (account["spent_usd"].as_f64().unwrap_or(0.0), account["reserved_usd"].as_f64().unwrap_or(0.0))
}

fn ask(words: &str) -> Value {
    json!({ "model": "m", "max_tokens": 50, "messages": [{ "role": "user", "content": words }] })
}

#[test]
fn kill_9_loses_no_money_and_charges_what_was_under_way() {
    let upstream = Upstream::start(|seen, _| {
        if seen.text().contains("wait for ever") {
            return vec![Act::Hang];
        }
        let body = json!({ "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{ "index": 0, "message": { "role": "assistant", "content": "Certainly." }, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14 } });
        answer_json(200, &body.to_string())
    });
    let dir = tempfile::tempdir().expect("a folder");
    let (file, data) = (dir.path().join("touchstone.toml"), dir.path().join("data"));
    let config = format!(
        "mode = \"enforce\"\n[quality.canary]\nevery = \"off\"\n[quality.burst]\nevery = \"off\"\non_suspicion = false\n\
         [cost]\nper_hour_usd = 5.0\n[[target]]\nname = \"paid\"\nurl = \"{}\"\n\
         price = {{ input_usd_per_mtok = 100.0, output_usd_per_mtok = 1000.0 }}\n",
        upstream.url()
    );
    std::fs::write(&file, config).expect("writes");
    let (port, admin) = (free_port(), free_port());
    let arguments = ["--config".to_owned(), file.display().to_string()];
    let mut daemon = serve_at(&arguments, &[], &data, port, admin);
    for _ in 0..20 {
        assert_eq!(http::post(port, "/v1/chat/completions", &[], &ask("Hi")).status, 200);
    }
    let pending: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let body = ask("wait for ever").to_string();
                let _ = http::request(port, "POST", "/v1/chat/completions", &[], body.as_bytes()); // it is killed
            })
        })
        .collect();
    let waiting = || upstream.seen().iter().filter(|seen| seen.text().contains("wait for ever")).count();
    wait_for("four calls to be under way", Duration::from_secs(20), || (waiting() == 4).then_some(()));
    let (spent, reserved) = money(admin, "global");
    daemon.kill(); // SIGKILL
    for thread in pending {
        thread.join().expect("the caller sees the end");
    }
    assert!((spent - 20.0 * 0.005).abs() < 1e-9, "{spent}");
    assert!(reserved > 0.2, "{reserved}");

    let _again = serve_at(&arguments, &[], &data, port, admin);
    let (after, open) = money(admin, "global");
    println!(
        "before kill -9: spent {spent:.6}, set aside {reserved:.6}; after: spent {after:.6}, set aside {open:.6}"
    );
    assert!((after - (spent + reserved)).abs() < 1e-9);
    assert!((money(admin, "route/default").0 - after).abs() < 1e-9);
    assert!(open.abs() < 1e-12);
    let metrics = http::get(admin, "/metrics").text();
    wait_for("the metric to follow", Duration::from_secs(10), || {
        let text = http::get(admin, "/metrics").text();
        text.contains("touchstone_budget_limit_usd{window=\"hour\"} 5").then_some(())
    });
    drop(metrics);
}
