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
use super::tensors;
use super::vectors::{self, Kind};
use super::{Params, Stats, dialect, voice};
use crate::clock::Clock;

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
        .route("/v1/responses", post(responses))
        .route("/v1/messages", post(messages))
        .route("/api/chat", post(ollama_chat))
        .route("/api/generate", post(ollama_generate))
        .route(
            "/v1/embeddings",
            post(|s: Shared<Arc<State>>, r: Extension<Reset>, b: Bytes| vectors(s, r, Kind::Embeddings, b)),
        )
        .route(
            "/api/embed",
            post(|s: Shared<Arc<State>>, r: Extension<Reset>, b: Bytes| vectors(s, r, Kind::OllamaEmbed, b)),
        )
        .route(
            "/api/embeddings",
            post(|s: Shared<Arc<State>>, r: Extension<Reset>, b: Bytes| {
                vectors(s, r, Kind::OllamaEmbeddings, b)
            }),
        )
        .route(
            "/v1/rerank",
            post(|s: Shared<Arc<State>>, r: Extension<Reset>, b: Bytes| vectors(s, r, Kind::Rerank, b)),
        )
        .route("/v1/models", get(models))
        .route("/api/tags", get(tags))
        .route("/v1/models/{call}", get(tensors::model_status).post(tensors::predict))
        .route("/v2/models/{model}", get(tensors::metadata))
        .route("/v2/models/{model}/ready", get(health))
        .route("/v2/models/{model}/infer", post(tensors::infer))
        .route("/v2/models/{model}/versions/{version}/infer", post(tensors::infer))
        .route("/v2/health/live", get(health))
        .route("/v2/health/ready", get(health))
        .route("/health", get(health))
        .route("/__sim/fault", get(read_fault).post(write_fault))
        .route("/__sim/stats", get(stats))
        .fallback(unknown)
        .with_state(state)
}

macro_rules! text_path {
    ($name:ident, $wire:ident) => {
        async fn $name(
            Shared(state): Shared<Arc<State>>,
            Extension(reset): Extension<Reset>,
            body: Bytes,
        ) -> Response {
            text(state, reset, Wire::$wire, body).await
        }
    };
}

text_path!(chat, Chat);
text_path!(completions, Completions);
text_path!(responses, Responses);
text_path!(messages, Messages);
text_path!(ollama_chat, OllamaChat);
text_path!(ollama_generate, OllamaGenerate);

/// A request whose faults have been drawn.
pub(super) struct Struck {
    pub(super) number: u64,
    pub(super) rng: fastrand::Rng,
    pub(super) condition: Condition,
    pub(super) transport: Transport,
}

/// Draws the faults of a request and suffers those that come before it is read: waiting, a reset (which
/// never returns).
pub(super) async fn strike(state: &State, reset: &Reset) -> Struck {
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
        std::future::pending::<()>().await;
    }
    Struck { number, rng, condition, transport }
}

/// Likewise; an answer if the fault is already one.
async fn strike_text(state: &State, reset: &Reset, wire: Wire) -> Result<Struck, Response> {
    let struck = strike(state, reset).await;
    match struck.transport.status {
        None => Ok(struck),
        Some(status) => {
            state.counters.errors.fetch_add(1, Ordering::Relaxed);
            Err(fault_status(wire, status, struck.transport.retry_after))
        }
    }
}

async fn text(state: Arc<State>, reset: Reset, wire: Wire, body: Bytes) -> Response {
    let Struck { condition, transport, number, mut rng } = match strike_text(&state, &reset, wire).await {
        Ok(drawn) => drawn,
        Err(response) => return response,
    };
    if let Some(reason) = serde_json::from_slice(&body).ok().and_then(|b| dialect::only_loads(wire, &b)) {
        state.counters.ok.fetch_add(1, Ordering::Relaxed);
        let now = Clock::system().now().as_millis() / 1000;
        return json_response(StatusCode::OK, &voice::loaded(&state.params.model, now, wire, reason));
    }
    let request = match Request::parse(wire, &body) {
        Ok(request) => request,
        Err(fault) => return refuse(&state, wire, &fault),
    };
    let prompt_tokens = trained().vocab.encode(&request.prompt_text).len();
    if prompt_tokens > state.params.context_tokens {
        let message = format!(
            "this model's maximum context length is {} tokens, the prompt has {prompt_tokens}",
            state.params.context_tokens
        );
        let param = Some(if wire == Wire::Completions { "prompt" } else { "messages" });
        return refuse(&state, wire, &BadRequest { message, param, code: Some("context_length_exceeded") });
    }
    state.counters.ok.fetch_add(1, Ordering::Relaxed);
    let seed = request.seed.unwrap_or_else(|| rng.u64(..));
    let job = answer::Job::new(state, request, condition, transport, prompt_tokens, number, seed);
    answer::respond(job).await
}

async fn vectors(
    Shared(state): Shared<Arc<State>>,
    Extension(reset): Extension<Reset>,
    kind: Kind,
    body: Bytes,
) -> Response {
    let wire = match kind {
        Kind::Embeddings | Kind::Rerank => Wire::Chat,
        Kind::OllamaEmbed | Kind::OllamaEmbeddings => Wire::OllamaChat,
    };
    let condition = match strike_text(&state, &reset, wire).await {
        Ok(Struck { condition, .. }) => condition,
        Err(response) => return response,
    };
    match vectors::answer(kind, &state.params.model, condition, state.params.seed, &body) {
        Ok(response) => {
            state.counters.ok.fetch_add(1, Ordering::Relaxed);
            response
        }
        Err(message) => refuse(&state, wire, &BadRequest { message, param: None, code: None }),
    }
}

fn refuse(state: &State, wire: Wire, fault: &BadRequest) -> Response {
    state.counters.errors.fetch_add(1, Ordering::Relaxed);
    let error = voice::error(wire, &fault.message, "invalid_request_error", fault.param, fault.code);
    json_response(StatusCode::BAD_REQUEST, &error)
}

fn fault_status(wire: Wire, status: u16, retry_after: Option<u64>) -> Response {
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if status == 429 { "rate_limit_exceeded" } else { "server_error" };
    let message = code.canonical_reason().unwrap_or("simulated fault");
    let mut response = json_response(code, &voice::error(wire, message, kind, None, Some(kind)));
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

async fn tags(Shared(state): Shared<Arc<State>>) -> Response {
    let name = &state.params.model;
    let model =
        json!({ "name": name, "model": name, "size": 0, "digest": "", "details": { "format": "sim" } });
    json_response(StatusCode::OK, &json!({ "models": [model] }))
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
