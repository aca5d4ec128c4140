//! The admin surface of the built daemon, path by path as the contract names them, and its metrics as promtool
//! reads them.

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use support::daemon::Daemon;
use support::http;
use support::{tool, wait_for};
use touchstone::metrics::TABLE;
use touchstone::sim::{Params, Sim, SimHandle};

struct Set {
    _runtime: tokio::runtime::Runtime,
    _sim: SimHandle,
    daemon: Daemon,
    bearer: String,
}

fn set() -> Set {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let started = runtime.block_on(Sim::start(([127, 0, 0, 1], 0).into(), Params::default()));
    let sim = started.expect("a simulated upstream");
    let config = format!(
        "[[target]]\nname = \"only\"\nurl = \"{}\"\nmodel = \"sim-large\"\n\
         [[route]]\nname = \"r\"\nmodels = [\"assistant\"]\ntiers = [[\"only\"], [\"cache\"]]\n",
        sim.url()
    );
    let daemon = Daemon::serve(&config);
    let token = std::fs::read_to_string(daemon.data.join("admin.token")).expect("a token");
    Set { _runtime: runtime, _sim: sim, daemon, bearer: format!("Bearer {}", token.trim()) }
}

impl Set {
    fn chat(&self, stream: bool) -> http::Answer {
        let body = json!({
            "model": "assistant", "stream": stream, "logprobs": true, "top_logprobs": 5, "max_tokens": 24,
            "messages": [{ "role": "user", "content": "What do bees do all day?" }],
        });
        let headers = [("x-touchstone-workflow", "run-7")];
        let answer = http::post(self.daemon.port, "/v1/chat/completions", &headers, &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer
    }

    fn post(&self, path: &str, body: &Value) -> http::Answer {
        http::post(self.daemon.admin, path, &[("authorization", &self.bearer)], body)
    }
}

#[test]
fn every_path_of_the_admin_surface_answers_as_the_contract_says() {
    let set = set();
    let admin = set.daemon.admin;
    let id = set.chat(false).header("x-touchstone-request-id").expect("an id").to_owned();
    set.chat(true);

    // reading
    assert_eq!(http::get(admin, "/healthz").status, 200);
    assert_eq!(http::get(admin, "/readyz").status, 200);
    let page = http::get(admin, "/").text();
    assert!(page.contains("only") && page.contains("breaker closed"), "{page}");
    let api = set.daemon.ask("/openapi.json");
    assert_eq!(api["openapi"], "3.1.0");
    let health = set.daemon.ask("/v1/health");
    for key in ["status", "targets", "routes", "store", "shared_state"] {
        assert!(!health[key].is_null(), "{key} in {health:#}");
    }
    let target = &health["targets"][0];
    for key in ["name", "health", "breaker", "mode", "reasons", "since", "calibrated", "signals"] {
        assert!(!target[key].is_null(), "{key} in {target:#}");
    }
    assert!(target.get("next_probe_at").is_some(), "{target:#}");
    let one = set.daemon.ask("/v1/targets/only");
    for key in ["arms", "admission", "drift", "breaker_message"] {
        assert!(!one[key].is_null(), "{key} in {one:#}");
    }
    assert!(one["arms"][0]["limit"].is_number(), "{one:#}");
    assert_eq!(http::get(admin, "/v1/targets/nobody").status, 404);

    let explained = wait_for("the exchange to be explained", Duration::from_secs(10), || {
        http::try_get(admin, &format!("/v1/requests/{id}")).filter(|a| a.status == 200)
    })
    .json();
    assert_eq!(explained["attempts"][0]["target"], "only", "{explained:#}");
    assert_eq!(explained["client_status"], 200);
    assert!(explained["signals"]["entropy_mean"].as_f64().expect("entropy") > 0.0, "{explained:#}");
    assert!(explained["usage"]["output"].as_u64().expect("usage") > 0, "{explained:#}");
    assert_eq!(http::get(admin, "/v1/requests/nobody").status, 404);
    let run = wait_for("the workflow's time line", Duration::from_secs(10), || {
        let run = http::try_get(admin, "/v1/workflows/run-7")?;
        (run.status == 200 && run.json()["requests"].as_array()?.len() == 2).then(|| run.json())
    });
    assert!(run["slowest"].is_string() && run["requests"][0]["duration_ms"].is_number(), "{run:#}");
    let history = wait_for("a point of history", Duration::from_secs(20), || {
        let history = set.daemon.ask("/v1/targets/only/history?signal=entropy_mean&since=1h&step=1m");
        (!history["points"].as_array()?.is_empty()).then_some(history)
    });
    assert!(history["points"][0]["mean"].as_f64().expect("a mean") > 0.0, "{history:#}");
    let faulty = http::get(admin, "/v1/targets/only/history?signal=entropy_mean&since=soon");
    assert_eq!(faulty.status, 400);
    assert!(faulty.text().contains("since"), "{}", faulty.text());
    let events = set.daemon.ask("/v1/events?kind=lifecycle");
    assert_eq!(events["events"][0]["reason"], "started", "{events:#}");
    assert_eq!(http::get(admin, "/v1/events?kind=gossip").status, 400);
    let budgets = set.daemon.ask("/v1/budgets");
    assert!(budgets["retry"]["global"]["tokens"].as_f64().expect("tokens") > 0.0, "{budgets:#}");
    let admit = set.daemon.ask("/v1/admit/only");
    assert_eq!((admit["admit"].as_bool(), admit["tier"].as_u64()), (Some(true), Some(0)), "{admit:#}");
    assert_eq!(http::get(admin, "/v1/admit/nobody").status, 404);
    assert_eq!(http::get(admin, "/v1/nothing").status, 404);

    // changing
    let open = json!({ "action": "open", "reason": "drill" });
    assert_eq!(http::post(admin, "/v1/targets/only/breaker", &[], &open).status, 401);
    assert_eq!(set.post("/v1/targets/only/breaker", &json!({ "action": "explode" })).status, 400);
    let done = set.post("/v1/targets/only/breaker", &open);
    assert_eq!(
        (done.status, done.json()["breaker"].as_str().map(str::to_owned)),
        (200, Some("forced_open".to_owned()))
    );
    assert_eq!(set.daemon.breaker("only"), "forced_open");
    assert_eq!(set.daemon.ask("/v1/admit/only")["reason"], "operator");
    set.chat(false); // shadow mode applies nothing
    assert_eq!(
        set.post("/v1/targets/only/breaker", &json!({ "action": "close" })).json()["breaker"],
        "forced_closed"
    );
    assert_eq!(
        set.post("/v1/targets/only/breaker", &json!({ "action": "auto" })).json()["breaker"],
        "closed"
    );
    let probe = set.post("/v1/targets/only/probe", &json!({}));
    assert_eq!(probe.status, 409, "not calibrated yet: {}", probe.text());
    let seen = set.post("/v1/observe", &json!({ "target": "only", "probabilities": [0.7, 0.2, 0.1] }));
    assert_eq!(seen.status, 200, "{}", seen.text());
    assert!(seen.json()["signals"]["class_entropy"].as_f64().expect("entropy") > 0.5, "{}", seen.text());
    let faulty = set.post("/v1/observe", &json!({ "target": "only", "probabilities": [7.0] }));
    assert!(faulty.status == 400 && faulty.text().contains("probabilities"), "{}", faulty.text());
}

#[test]
fn events_are_followed_as_they_happen_and_resumed_from_the_last_one_seen() {
    let set = set();
    let stream = TcpStream::connect(("127.0.0.1", set.daemon.admin)).expect("connects");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time limit");
    let request = "GET /v1/events/stream?since=0 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    (&stream).write_all(request.as_bytes()).expect("writes");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("\"reason\":\"started\"")), "the past comes first");
    let open = json!({ "action": "open", "reason": "somebody looks" });
    assert_eq!(set.post("/v1/targets/only/breaker", &open).status, 200);
    assert!(lines.any(|line| line.contains("somebody looks")), "then what happens");
}

#[test]
fn metrics_please_promtool_and_hold_every_name_of_the_contract() {
    let set = set();
    set.chat(false);
    set.chat(true);
    let text = wait_for("the first answers to be counted", Duration::from_secs(10), || {
        let text = http::get(set.daemon.admin, "/metrics").text();
        let shown = |family: &str| text.contains(&format!("\ntouchstone_{family}"));
        let wanted =
            ["requests_total{", "entropy_nats{", "time_to_first_token_seconds_count{", "tokens_total{"];
        wanted.into_iter().all(shown).then_some(text)
    });
    for family in TABLE {
        assert!(text.contains(&format!("# TYPE {} ", family.name)), "{}", family.name);
    }
    assert!(!text.contains("NaN") && !text.to_lowercase().contains(" inf"), "{text}");
    let mut promtool = Command::new(tool("promtool"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    promtool.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("promtool reads");
    let said = promtool.wait_with_output().expect("promtool ends");
    let words = String::from_utf8_lossy(&said.stdout).into_owned() + &String::from_utf8_lossy(&said.stderr);
    assert!(said.status.success() && words.trim().is_empty(), "promtool complains: {words}");
}
