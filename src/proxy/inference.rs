//! One inference call: read it, find its route, and let its mode decide how it is forwarded.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;

use super::Proxy;
use super::analysis::{Afterwork, Reading, Watch, read_ask};
use super::body::Body;
use super::keys::caller_hash;
use super::ledger::{Ledger, Opening};
use super::live::degraded_text;
use super::refusal::Refusal;
use super::request::{Unread, Wishes, linger, model_in_path, path_with_model, read_body};
use super::running::{Hold, Running};
use super::{enforce, injecting, shadow, splice, trim};
use crate::cache::{Key, is_repeatable};
use crate::clock::{Stopwatch, Timestamp};
use crate::gate::ProbeSlot;
use crate::judge::{self, Ask, Head};
use crate::plan::{Asked, Board, Moment, route_for};
use crate::sample::Admission;
use crate::spend::Scopes;
use crate::upstream::{Answer, Call, Failure, Inject, headers as travelling};
use crate::verdict::{BreakerState, ErrorCode, FaultClass, Flag, Mode, Reason, Wire};

/// No longer `Retry-After` is believed, milliseconds.
const RETRY_AFTER_CAP_MS: u64 = 3_600_000;
/// A longer request is read on a thread of its own, bytes.
const READ_INLINE: usize = 256 << 10;

/// Where the JSON document of a KServe answer ends.
const INFERENCE_HEADER_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-touchstone-request-id");
pub(super) const TARGET: HeaderName = HeaderName::from_static("x-touchstone-target");
pub(super) const TIER: HeaderName = HeaderName::from_static("x-touchstone-tier");
const ATTEMPTS: HeaderName = HeaderName::from_static("x-touchstone-attempts");
const BREAKER: HeaderName = HeaderName::from_static("x-touchstone-breaker");
const DEGRADED: HeaderName = HeaderName::from_static("x-touchstone-degraded");
pub(super) const VERDICT: HeaderName = HeaderName::from_static("x-touchstone-verdict");

/// A call that can be made, more than once.
pub(super) struct Inquiry {
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) wishes: Wishes,
    pub(super) cache_key: Option<Key>,
    /// A kept answer does as well as a fresh one.
    pub(super) from_cache_first: bool,
    /// Where judging waits for the socket.
    pub(super) after: Option<Afterwork>,
}

/// Answers one inference call. An error breaks the caller's connection, because the caller broke it first.
pub(super) async fn answer(
    proxy: &Arc<Proxy>,
    after: &Afterwork,
    wire: Wire,
    request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    let at = proxy.clock.now();
    let live = proxy.live();
    let (mut parts, mut incoming) = request.into_parts();
    let wishes = Wishes::read(&parts.headers);
    let mut key = None;
    if !live.keys.is_open() {
        key = live.keys.take(&mut parts.headers);
        if key.is_none() {
            linger(&mut incoming).await;
            return Ok(unauthorized().response(Some(wire)));
        }
    }
    let body = match read_body(&parts.headers, incoming, live.max_request_bytes).await {
        Ok(body) => body,
        Err(Unread::Broken(error)) => return Err(error),
        Err(Unread::TooLarge) => return Ok(too_large(live.max_request_bytes).response(Some(wire))),
    };
    let watch = Stopwatch::start();
    let path = parts.uri.path_and_query().map_or("/", |p| p.as_str());
    let mut ask = read(wire, &body).await;
    let model = match model_in_path(wire, path) {
        Some(span) => Some(&path[span]),
        None => ask.as_ref().and_then(|ask| ask.model.as_deref()),
    };
    let path_model = model_in_path(wire, path).map(|span| Arc::from(&path[span]));
    let found = match &wishes.route {
        Some(name) => live.routes.iter().position(|r| **r.name() == **name),
        None => route_for(&live.routes, parts.uri.path(), model),
    };
    let Some(route) = found else {
        return Ok(unroutable(&wishes, parts.uri.path(), model).response(Some(wire)));
    };
    let extra = &live.extras[route];
    let most = live.limits.with(&extra.limits).max_request_bytes();
    if body.len() > most {
        return Ok(too_large(most).response(Some(wire)));
    }
    let vocab =
        live.routes[route].first_target().and_then(|m| live.targets[m.index].upstream.params().vocab_size());
    if let (Some(vocab), Some(ask)) = (vocab, ask.as_mut().and_then(Arc::get_mut)) {
        ask.vocab = Some(vocab);
    }
    let trace = travelling::ensure_trace(&mut parts.headers);
    let who = if extra.forwards_auth { parts.headers.get(header::AUTHORIZATION) } else { None };
    let stream = ask.as_ref().is_some_and(|ask| ask.stream);
    let first = live.cache.serve_first() && extra.mode == Mode::Enforce && is_repeatable(&body);
    let cacheable = (live.routes[route].has_cache() || first) && !wishes.no_cache;
    let cache_key = cacheable
        .then(|| {
            // Who has a key of its own is not told what another was answered.
            let who =
                who.map(HeaderValue::as_bytes).or(key.as_deref().map(str::as_bytes)).unwrap_or_default();
            Key::of(live.routes[route].name(), parts.uri.path(), stream, who, &body)
        })
        .flatten();
    let mode = extra.mode;
    let scopes = if !live.counts_money {
        Scopes::default()
    } else if let Some(key) = &key {
        proxy.money.scopes(live.routes[route].name(), Some(key), wishes.budget.as_deref())
    } else {
        *extra.scopes.get_or_init(|| proxy.money.scopes(live.routes[route].name(), None, None))
    };
    let caller = if extra.forwards_auth { caller_hash(&parts.headers) } else { None };
    let opening = Opening {
        scopes,
        caller,
        route,
        wire,
        trace,
        workflow: wishes.workflow.clone(),
        ask,
        path_model,
        at,
        watch,
        live: Arc::clone(&live),
    };
    let ledger = Ledger::open(Arc::clone(proxy), opening);
    let is_http1 = parts.version < http::Version::HTTP_2;
    let inquiry = Inquiry {
        path: path.to_owned(),
        headers: parts.headers,
        body,
        wishes,
        from_cache_first: first,
        cache_key,
        after: is_http1.then(|| after.clone()),
    };
    Ok(match mode {
        Mode::Shadow => shadow::forward(ledger, inquiry).await,
        Mode::Enforce => enforce::forward(ledger, inquiry).await,
    })
}

async fn read(wire: Wire, body: &Bytes) -> Option<Arc<Ask>> {
    if body.len() <= READ_INLINE {
        return read_ask(wire, body);
    }
    let body = body.clone();
    tokio::task::spawn_blocking(move || read_ask(wire, &body)).await.ok().flatten()
}

pub(super) fn unauthorized() -> Refusal {
    let words = "a key is needed here: send it in x-touchstone-key, or as the bearer token";
    Refusal::new(ErrorCode::Unauthorized, words)
}

fn too_large(most: usize) -> Refusal {
    Refusal::new(
        ErrorCode::RequestTooLarge,
        format!("the request body is longer than limits.max_request_bytes, {most}"),
    )
}

fn unroutable(wishes: &Wishes, path: &str, model: Option<&str>) -> Refusal {
    let words = match (&wishes.route, model) {
        (Some(name), _) => format!("there is no route named `{name}`"),
        (None, Some(model)) => format!("no route takes model `{model}` on {path}"),
        (None, None) => format!("the request names no model, and more than one route could take {path}"),
    };
    Refusal::new(ErrorCode::BadRequest, words)
}

impl Inquiry {
    /// What the plan needs to know of it.
    pub(super) fn asked(&self, ledger: &Ledger) -> Asked {
        Asked {
            input_tokens: ledger.ask.as_ref().map_or(0, |ask| ask.input_tokens_estimate),
            batch: ledger.ask.as_ref().map_or(1, |ask| ask.items.unwrap_or(1)),
            on_content_filter: ledger.live.fallback.on_content_filter(),
            no_retry: self.wishes.no_retry,
            no_fallback: self.wishes.no_fallback,
            trims_to: self.trims_to(ledger),
        }
    }

    /// Tokens to which the request could be cut, where that is allowed and some tier of its route needs it.
    fn trims_to(&self, ledger: &Ledger) -> Option<u64> {
        if !ledger.live.fallback.trims_oldest() {
            return None;
        }
        let tokens = ledger.ask.as_ref()?.input_tokens_estimate;
        let shortest = ledger.route().least_context()?;
        (tokens > shortest).then(|| trim::least_tokens(&self.body, ledger.wire, tokens)).flatten()
    }

    /// Milliseconds until the caller's deadline.
    pub(super) fn left_ms(&self, ledger: &Ledger) -> Option<u64> {
        self.wishes.deadline_ms.map(|deadline| deadline.saturating_sub(ledger.watch.elapsed_ms()))
    }
}

/// Sends a try to its target and opens the judgement of what comes back.
pub(super) async fn send(
    ledger: &mut Ledger,
    inquiry: &Inquiry,
    headers: HeaderMap,
    (target, tier): (usize, usize),
    generation: u64,
    hold: Hold,
    wait: Option<Duration>,
) -> Result<Answer, Failure> {
    let upstream = Arc::clone(&ledger.target(target).upstream);
    let limits = ledger.limits(target);
    let (path, body) = match upstream.model() {
        None => (None, inquiry.body.clone()),
        Some(model) => match path_with_model(ledger.wire, &inquiry.path, model) {
            Some(path) => (Some(path), inquiry.body.clone()),
            None => (None, splice::with_model(&inquiry.body, model)),
        },
    };
    let call = Call {
        method: Method::POST,
        path: path.as_deref().unwrap_or(&inquiry.path),
        headers,
        body,
        wire: Some(ledger.wire),
        patient: ledger.extra().mode == Mode::Shadow,
    };
    ledger.begin(Running::new((target, tier), generation, hold, limits));
    let before = ledger.watch.elapsed_us();
    let (sent, injected) = if upstream.params().inject() == Inject::Live {
        let now = ledger.proxy.clock.now();
        Box::pin(injecting::ask_more(&upstream, ledger.wire, call, wait, now)).await
    } else {
        (upstream.send(call, wait).await, None)
    };
    ledger.waited_us += ledger.watch.elapsed_us().saturating_sub(before);
    let mut answer = sent?;
    ledger.injected = injected;
    open_judgement(ledger, inquiry, &answer);
    injecting::mark(&mut answer.headers, injected);
    Ok(answer)
}

pub(super) fn is_plain(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_ENCODING).is_none_or(|e| e.as_bytes().eq_ignore_ascii_case(b"identity"))
}

fn open_judgement(ledger: &mut Ledger, inquiry: &Inquiry, answer: &Answer) {
    let text = |name: &HeaderName| answer.headers.get(name).and_then(|v| v.to_str().ok());
    let content_type = text(&header::CONTENT_TYPE);
    let streaming = content_type.is_some_and(is_stream);
    let after = if answer.status.is_success() {
        None
    } else {
        let finer = HeaderName::from_static("retry-after-ms");
        judge::retry_after(
            text(&header::RETRY_AFTER),
            text(&finer),
            ledger.proxy.clock.now(),
            RETRY_AFTER_CAP_MS,
        )
    };
    let watch = match &ledger.ask {
        Some(ask) => {
            let head = Head {
                status: answer.status.as_u16(),
                content_type: content_type.map(str::to_owned),
                content_encoding: text(&header::CONTENT_ENCODING).map(str::to_owned),
                content_length: text(&header::CONTENT_LENGTH).and_then(|v| v.parse().ok()),
                inference_header_length: text(&INFERENCE_HEADER_LENGTH).map(str::to_owned),
            };
            let reading = match ledger.extra().mode {
                Mode::Enforce => Reading::Full,
                Mode::Shadow => ledger.proxy.allowance().grant().map_or(Reading::Light, Reading::Granted),
            };
            let ask = ledger.injected.map_or_else(|| Arc::clone(ask), |more| Arc::new(more.asked(ask)));
            Watch::new(ask, head, reading)
        }
        None => Watch::blind(),
    };
    let plain = is_plain(&answer.headers);
    if let (Some(key), true, StatusCode::OK) = (inquiry.cache_key, plain && watch.sees(), answer.status) {
        ledger.keep_for(key, answer.headers.get(header::CONTENT_TYPE).cloned());
    }
    ledger.head(answer.status.as_u16(), watch, streaming, after);
}

/// Whether a content type is read piece by piece.
fn is_stream(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    ["text/event-stream", "application/x-ndjson", "application/stream+json"]
        .iter()
        .any(|stream| essence.eq_ignore_ascii_case(stream))
}

/// The present moment of a route, for its plan.
pub(super) fn moment(ledger: &Ledger, turn: usize) -> Moment {
    let now = ledger.proxy.clock.now();
    Moment { now, roll: fastrand::f64(), turn, stale: ledger.live.gate.is_stale(now) }
}

/// The published states, as a plan reads them; holds the probe's place that was taken last.
pub(super) struct GateBoard {
    live: Arc<super::live::Live>,
    route: usize,
    caller: Option<u64>,
    ask: Option<Arc<Ask>>,
    path_model: Option<Arc<str>>,
    clock: crate::clock::Clock,
    taken: Option<ProbeSlot>,
}

impl GateBoard {
    pub(super) fn new(ledger: &Ledger) -> Self {
        Self {
            live: Arc::clone(&ledger.live),
            route: ledger.route,
            caller: ledger.caller,
            ask: ledger.ask.clone(),
            path_model: ledger.path_model.clone(),
            clock: ledger.proxy.clock.clone(),
            taken: None,
        }
    }

    fn state_of(&self, target: usize) -> Arc<str> {
        let asked = || self.ask.as_ref()?.model.as_deref();
        self.live.targets[target].state_of(self.path_model.as_deref().or_else(asked))
    }

    pub(super) fn take_slot(&mut self) -> Option<ProbeSlot> {
        self.taken.take()
    }
}

impl Board for GateBoard {
    fn admission(&self, target: usize) -> Admission {
        self.live.gate.read(&self.state_of(target)).admission.clone()
    }

    fn take_probe(&mut self, target: usize) -> bool {
        self.taken = self.live.gate.try_probe(&self.state_of(target));
        self.taken.is_some()
    }

    fn may_retry(&self, target: usize) -> bool {
        let flow = &self.live.targets[target].flow;
        flow.may_retry(&self.live.retry, self.clock.now(), closed(&self.admission(target)))
    }

    fn is_busy(&self, target: usize) -> bool {
        self.live.targets[target].flow.is_busy()
    }

    fn cooling_until(&self, target: usize) -> Option<Timestamp> {
        let caller = self.caller.filter(|_| self.live.targets[target].upstream.forwards_auth());
        self.live.targets[target].flow.cooling_until(caller, self.clock.now())
    }

    fn has_share(&self, target: usize) -> bool {
        let (Some(share), Some(most)) = (&self.live.extras[self.route].share, self.live.fallback.max_share())
        else {
            return true;
        };
        let share = share.lock().unwrap_or_else(PoisonError::into_inner);
        share.allows(self.clock.now(), target, most)
    }
}

/// The breaker's generation while it is closed.
pub(super) fn closed(admission: &Admission) -> Option<u64> {
    let is = matches!(admission.state, BreakerState::Closed | BreakerState::ForcedClosed);
    is.then_some(admission.generation)
}

/// Adds what the daemon has to say; never in place of what the upstream said.
pub(super) fn mark(
    headers: &mut HeaderMap,
    ledger: &Ledger,
    target: Option<usize>,
    tier: Option<&str>,
    degraded: Option<(Reason, Option<Flag>)>,
) {
    let value = |text: &str| HeaderValue::from_str(text).ok();
    let mut add = |name: HeaderName, value: Option<HeaderValue>| {
        if let Some(value) = value {
            headers.append(name, value);
        }
    };
    add(REQUEST_ID, value(&ledger.id));
    add(TARGET, target.map(|i| ledger.target(i).header.clone()));
    add(TIER, tier.and_then(value));
    let attempts = match ledger.tries() {
        1 => HeaderValue::from_static("1"), // nearly always, and costs no memory
        n => HeaderValue::from(n),
    };
    add(ATTEMPTS, Some(attempts));
    let first = ledger.route().first_target().map(|member| ledger.state_of(member.index));
    let first = first.unwrap_or_else(|| Arc::clone(&ledger.extra().first_target));
    let state = ledger.live.gate.read(&first).admission.state;
    add(BREAKER, Some(HeaderValue::from_static(state.as_str())));
    add(DEGRADED, degraded.and_then(|(reason, flag)| value(&degraded_text(reason, flag))));
}

/// The daemon's own word after the last try brought nothing.
pub(super) fn unanswered(failure: &Failure, class: FaultClass) -> Refusal {
    let code = if failure.kind.is_timeout() || class == FaultClass::Slow {
        ErrorCode::UpstreamTimeout
    } else {
        ErrorCode::UpstreamUnreachable
    };
    Refusal::new(code, format!("the upstream gave no answer: {failure}"))
}

/// Sends a refusal to the caller and files the request.
pub(super) fn refuse(
    mut ledger: Box<Ledger>,
    refusal: &Refusal,
    degraded: Option<(Reason, Option<Flag>)>,
) -> Response<Body> {
    let mut response = refusal.response(Some(ledger.wire));
    mark(response.headers_mut(), &ledger, None, None, None);
    let none = Arc::clone(&ledger.proxy.words.none);
    ledger.deliver(refusal.status.as_u16(), &none, None, degraded);
    ledger.close();
    response
}
