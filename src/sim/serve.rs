//! The HTTP surface: paths, errors, the control paths, counters.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State as Shared};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::answer;
use super::fault::{Condition, Faults, Transport};
use super::listen::Reset;
use super::model::Model;
use super::request::{BadRequest, Request, Wire};
use super::{Params, Stats};

static MODEL: LazyLock<Model> = LazyLock::new(Model::train);

/// The model of this process, trained on first use.
pub(super) fn trained() -> &'static Model {
    &MODEL
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) requests: AtomicU64,
    pub(super) streams: AtomicU64,
    pub(super) ok: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) faulted: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) in_flight: AtomicU64,
    pub(super) tokens: AtomicU64,
}

/// What the handlers share.
#[derive(Debug)]
pub(super) struct State {
    pub(super) params: Params,
    faults: watch::Sender<Faults>,
    pub(super) counters: Counters,
}

impl State {
    pub(super) fn new(params: Params) -> Self {
        let faults = watch::Sender::new(params.faults.clone());
        Self { params, faults, counters: Counters::default() }
    }

    pub(super) fn faults(&self) -> Faults {
        self.faults.borrow().clone()
    }

    pub(super) fn watch_faults(&self) -> watch::Receiver<Faults> {
        self.faults.subscribe()
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        self.faults.send_replace(faults);
    }

    /// Ends a refusal whose time is up; the other faults stay.
    pub(super) fn end_refusal(&self) {
        self.faults.send_modify(Faults::end_refusal);
    }

    pub(super) fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let c = &self.counters;
        Stats {
            requests: read(&c.requests),
            streams: read(&c.streams),
            ok: read(&c.ok),
            errors: read(&c.errors),
            faulted: read(&c.faulted),
            cancelled: read(&c.cancelled),
            in_flight: read(&c.in_flight),
            tokens: read(&c.tokens),
        }
    }
}

/// All paths.
pub(super) fn router(state: Arc<State>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/models", get(models))
        .route("/health", get(health))
        .route("/__sim/fault", get(read_fault).post(write_fault))
        .route("/__sim/stats", get(stats))
        .fallback(unknown)
        .with_state(state)
}

async fn chat(
    Shared(state): Shared<Arc<State>>,
    Extension(reset): Extension<Reset>,
    body: Bytes,
) -> Response {
    text(state, reset, Wire::Chat, body).await
}

async fn completions(
    Shared(state): Shared<Arc<State>>,
    Extension(reset): Extension<Reset>,
    body: Bytes,
) -> Response {
    text(state, reset, Wire::Completions, body).await
}

async fn text(state: Arc<State>, reset: Reset, wire: Wire, body: Bytes) -> Response {
    let number = state.counters.requests.fetch_add(1, Ordering::Relaxed);
    let mut rng = fastrand::Rng::with_seed(state.params.seed.wrapping_add(number));
    let (condition, transport) = state.faults().strike(|| rng.f64());
    if condition != Condition::default() || transport != Transport::default() {
        state.counters.faulted.fetch_add(1, Ordering::Relaxed);
    }
    if transport.latency_ms > 0 {
        tokio::time::sleep(Duration::from_millis(transport.latency_ms)).await;
    }
    if transport.reset {
        reset.now();
        return std::future::pending().await;
    }
    if let Some(status) = transport.status {
        state.counters.errors.fetch_add(1, Ordering::Relaxed);
        return fault_status(status, transport.retry_after);
    }
    let request = match Request::parse(wire, &body) {
        Ok(request) => request,
        Err(fault) => return refuse(&state, &fault),
    };
    let prompt_tokens = trained().vocab.encode(&request.prompt_text).len();
    if prompt_tokens > state.params.context_tokens {
        let message = format!(
            "this model's maximum context length is {} tokens, the prompt has {prompt_tokens}",
            state.params.context_tokens
        );
        let param = Some(if wire == Wire::Chat { "messages" } else { "prompt" });
        return refuse(&state, &BadRequest { message, param, code: Some("context_length_exceeded") });
    }
    state.counters.ok.fetch_add(1, Ordering::Relaxed);
    let seed = request.seed.unwrap_or_else(|| rng.u64(..));
    let job = answer::Job::new(state, request, condition, transport, prompt_tokens, number, seed);
    answer::respond(job).await
}

fn refuse(state: &State, fault: &BadRequest) -> Response {
    state.counters.errors.fetch_add(1, Ordering::Relaxed);
    let error = json!({ "error": {
        "message": fault.message, "type": "invalid_request_error", "param": fault.param, "code": fault.code,
    }});
    json_response(StatusCode::BAD_REQUEST, &error)
}

fn fault_status(status: u16, retry_after: Option<u64>) -> Response {
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if status == 429 { "rate_limit_exceeded" } else { "server_error" };
    let message = code.canonical_reason().unwrap_or("simulated fault");
    let mut response = json_response(
        code,
        &json!({ "error": { "message": message, "type": kind, "param": null, "code": kind } }),
    );
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

async fn models(Shared(state): Shared<Arc<State>>) -> Response {
    let model =
        json!({ "id": state.params.model, "object": "model", "created": 0, "owned_by": "touchstone-sim" });
    json_response(StatusCode::OK, &json!({ "object": "list", "data": [model] }))
}

async fn health() -> Response {
    json_response(StatusCode::OK, &json!({ "status": "ok" }))
}

async fn read_fault(Shared(state): Shared<Arc<State>>) -> Response {
    json_response(StatusCode::OK, &json!({ "fault": state.faults().to_string() }))
}

async fn write_fault(Shared(state): Shared<Arc<State>>, body: Bytes) -> Response {
    match String::from_utf8_lossy(&body).parse::<Faults>() {
        Ok(faults) if faults.refuse() == Some(None) => {
            let message = "fault `refuse`: over HTTP it needs a duration, or this path could not be reached again; \
                           for example `refuse=5s`";
            json_response(StatusCode::BAD_REQUEST, &json!({ "error": { "message": message } }))
        }
        Ok(faults) => {
            state.set_faults(faults);
            read_fault(Shared(state)).await
        }
        Err(error) => {
            json_response(StatusCode::BAD_REQUEST, &json!({ "error": { "message": error.to_string() } }))
        }
    }
}

async fn stats(Shared(state): Shared<Arc<State>>) -> Response {
    json_response(StatusCode::OK, &json!(state.stats()))
}

async fn unknown() -> Response {
    let error = json!({ "error": {
        "message": "the simulated upstream has no such path", "type": "invalid_request_error", "param": null, "code": null,
    }});
    json_response(StatusCode::NOT_FOUND, &error)
}

/// A response of one JSON value.
pub(super) fn json_response(status: StatusCode, value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
