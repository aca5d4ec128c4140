//! The engine against a stand-in for the daemon that does what the breaker should do.

use std::sync::Arc;
use std::sync::Mutex;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::*;
use crate::sim::{Params, Sim, SimHandle};

struct StandIn {
    sim: SimHandle,
    events: Mutex<Vec<Value>>,
    breaker: Mutex<&'static str>,
    opens: bool,
}

impl StandIn {
    /// Moves the breaker as the sim's state asks for, one step a look.
    fn breaker(&self) -> &'static str {
        let damaged = !self.sim.faults().as_slice().is_empty();
        let mut breaker = self.breaker.lock().unwrap();
        let next = match (*breaker, damaged) {
            ("closed", true) if self.opens => "open",
            ("open", false) => "half_open",
            ("half_open", false) => "closed",
            (same, _) => same,
        };
        if next != *breaker {
            *breaker = next;
            let mut events = self.events.lock().unwrap();
            let id = events.len() + 1;
            events.push(
                json!({ "id": id, "kind": "breaker_transition", "target": "primary", "reason": "golden_burst",
                "message": "pass rate 0.20, limit 0.85", "data": { "to": next } }),
            );
        }
        next
    }
}

type Shared = Arc<StandIn>;

fn reply(body: &Value) -> Response<Body> {
    Response::new(Body::from(body.to_string()))
}

async fn health(State(daemon): State<Shared>) -> Response<Body> {
    let breaker = daemon.breaker();
    reply(
        &json!({ "targets": [{ "name": "primary", "health": "healthy", "breaker": breaker, "calibrated": true,
        "reasons": ["a reason with 1 figure"], "signals": { "entropy_mean": 0.4 } }] }),
    )
}

async fn events(State(daemon): State<Shared>, uri: axum::http::Uri) -> Response<Body> {
    let after: u64 = uri.query().and_then(|q| q.split(['=', '&']).nth(1)?.parse().ok()).unwrap_or_default();
    let events = daemon.events.lock().unwrap();
    let new: Vec<&Value> = events.iter().filter(|event| event["id"].as_u64() > Some(after)).collect();
    reply(&json!({ "events": new }))
}

async fn chat(State(daemon): State<Shared>, body: String) -> Response<Body> {
    let closed = *daemon.breaker.lock().unwrap() == "closed";
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer =
        client.post(format!("{}/v1/chat/completions", daemon.sim.url())).body(body).send().await.unwrap();
    let mut response = Response::new(Body::from(answer.bytes().await.unwrap()));
    let headers = response.headers_mut();
    headers.insert("x-touchstone-tier", if closed { "0" } else { "1" }.parse().unwrap());
    if !closed {
        headers.insert("x-touchstone-degraded", "breaker_open".parse().unwrap());
    }
    response
}

async fn story(fault: &str, opens: bool) -> Result<(), Unmet> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let sim = Sim::start("127.0.0.1:0".parse().unwrap(), Params::default()).await.unwrap();
    let primary_url = sim.url();
    let daemon = Arc::new(StandIn { sim, events: Mutex::default(), breaker: Mutex::new("closed"), opens });
    let router = Router::new()
        .route("/v1/health", get(health))
        .route("/v1/events", get(events))
        .route("/v1/admit/primary", get(|| async { reply(&json!({ "share": 1.0 })) }))
        .route("/v1/chat/completions", post(chat))
        .with_state(daemon);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let scene = Scene {
        proxy: base.clone(),
        admin: base,
        primary_url,
        primary: "primary".into(),
        fault: fault.into(),
    };
    let patience = Patience {
        healthy: Duration::from_secs(20),
        degradation: Duration::from_secs(10),
        opening: Duration::from_secs(2),
        fallback: Duration::from_secs(20),
        recovery: Duration::from_secs(20),
    };
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let told = Story::new(client, scene, patience).tell().await;
    server.abort();
    told
}

#[tokio::test]
async fn a_story_in_which_everything_happens_is_told_to_its_end() {
    story("damage=0.1", true).await.unwrap();
}

#[tokio::test]
async fn without_degradation_the_third_chapter_does_not_happen() {
    let unmet = story("none", true).await.unwrap_err().to_string();
    assert!(unmet.starts_with("chapter 3"), "{unmet}");
}

#[tokio::test]
async fn a_breaker_that_does_not_open_is_named() {
    let unmet = story("damage=0.1", false).await.unwrap_err().to_string();
    assert!(unmet.starts_with("chapter 3") && unmet.contains("breaker closed"), "{unmet}");
}
