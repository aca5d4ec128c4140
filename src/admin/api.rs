//! What can be read: health, targets, history, events, requests, workflows, admission.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::sse::{self, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::Surface;
use crate::clock::Timestamp;
use crate::event::{Event, EventKind};
use crate::store::{EventQuery, HistoryQuery, StoreError};
use crate::verdict::{BreakerState, HealthState, Mode, Reason};

/// History without `since` goes back so far.
const DEFAULT_SINCE_MS: u64 = 3_600_000;
/// History without `step` has points of this length.
const DEFAULT_STEP_MS: u64 = 60_000;
/// Keep-alive of the event stream, so that a proxy between does not close it.
const KEEP_ALIVE: std::time::Duration = std::time::Duration::from_secs(15);

/// An error in JSON: `{"error":{"message"}}`.
pub(super) fn error(status: StatusCode, message: impl Into<String>) -> Response {
    (status, Json(json!({ "error": { "message": message.into() } }))).into_response()
}

fn unknown_target(name: &str) -> Response {
    error(StatusCode::NOT_FOUND, format!("there is no target `{name}`"))
}

fn store_failed(failure: &StoreError) -> Response {
    error(StatusCode::SERVICE_UNAVAILABLE, failure.to_string())
}

pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

pub(super) async fn readyz(State(surface): State<Surface>) -> Response {
    match surface.board.not_ready() {
        None => "ready\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {why}\n")).into_response(),
    }
}

pub(super) async fn metrics(State(surface): State<Surface>) -> Response {
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    (kind, surface.metrics.render()).into_response()
}

pub(super) async fn health(State(surface): State<Surface>) -> Response {
    let (status, body) = health_report(&surface);
    let code = if status == "failing" { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (code, Json(body)).into_response()
}

/// `ok`: every target as it should be; `degraded`: traffic is served, though not all is well; `failing`: some
/// route has no target that can serve.
pub(super) fn health_report(surface: &Surface) -> (&'static str, Value) {
    let (targets, routes) = (surface.board.targets(), surface.board.routes());
    let store = surface.store.health();
    let well = targets.values().all(|t| {
        matches!(t.health, HealthState::Healthy | HealthState::Unknown)
            && matches!(t.breaker, BreakerState::Closed | BreakerState::ForcedClosed)
    });
    let status = if routes.iter().any(|r| !r.can_serve) {
        "failing"
    } else if well && store.state == "ok" && !surface.gate.is_stale(surface.clock.now()) {
        "ok"
    } else {
        "degraded"
    };
    let targets: Vec<_> = targets.values().collect();
    let body = json!({
        "status": status,
        "targets": targets,
        "routes": *routes,
        "store": store,
        "shared_state": shared_state(surface),
        "gate_stale": surface.gate.is_stale(surface.clock.now()),
    });
    (status, body)
}

/// `off`, `up`, or `lost` while this instance goes on with its local share.
fn shared_state(surface: &Surface) -> Value {
    match &surface.shared {
        None => json!({ "state": "off" }),
        Some(shared) => {
            let state = if shared.is_up() { "up" } else { "lost" };
            json!({ "state": state, "instances": shared.instances() })
        }
    }
}

pub(super) async fn target(State(surface): State<Surface>, Path(name): Path<String>) -> Response {
    let Some(card) = surface.board.target(&name) else { return unknown_target(&name) };
    let mut body = serde_json::to_value(&*card).unwrap_or_default();
    if let Value::Object(body) = &mut body {
        body.insert("admission".to_owned(), serde_json::to_value(&card.admission).unwrap_or_default());
        if let Value::Object(detail) = &card.detail {
            body.extend(detail.clone());
        }
    }
    Json(body).into_response()
}

/// `?signal=&since=&step=`
#[derive(Debug, Deserialize)]
pub(super) struct HistoryParams {
    signal: Option<String>,
    since: Option<String>,
    step: Option<String>,
}

pub(super) async fn history(
    State(surface): State<Surface>,
    Path(name): Path<String>,
    Query(params): Query<HistoryParams>,
) -> Response {
    if surface.board.target(&name).is_none() {
        return unknown_target(&name);
    }
    let now = surface.clock.now();
    let since = match params.since.as_deref().map(|text| moment(text, now)) {
        None => now.minus_ms(DEFAULT_SINCE_MS),
        Some(Ok(since)) => since,
        Some(Err(why)) => return error(StatusCode::BAD_REQUEST, format!("since: {why}")),
    };
    let step_ms = match params.step.as_deref().map(str::parse::<crate::units::Ms>) {
        None => DEFAULT_STEP_MS,
        Some(Ok(step)) => step.as_millis(),
        Some(Err(why)) => return error(StatusCode::BAD_REQUEST, format!("step: {why}")),
    };
    let Some(signal) = params.signal else {
        return match surface.store.signals(name.clone()).await {
            Ok(signals) => Json(json!({ "target": name, "signals": signals })).into_response(),
            Err(failure) => store_failed(&failure),
        };
    };
    let query = HistoryQuery { target: name.clone(), signal: signal.clone(), since, until: now, step_ms };
    match surface.store.history(query).await {
        Ok(points) => Json(json!({ "target": name, "signal": signal, "step_ms": step_ms, "points": points }))
            .into_response(),
        Err(failure) => store_failed(&failure),
    }
}

/// A moment: milliseconds since the epoch, RFC 3339, or a duration before now such as `48h`.
fn moment(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    if let Ok(ms) = text.parse::<u64>() {
        return Ok(Timestamp::from_millis(ms));
    }
    if let Ok(ago) = text.parse::<crate::units::Ms>() {
        return Ok(now.minus_ms(ago.as_millis()));
    }
    let parsed = humantime::parse_rfc3339_weak(text).ok();
    parsed
        .and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok())
        .and_then(|d| u64::try_from(d.as_millis()).ok())
        .map(Timestamp::from_millis)
        .ok_or_else(|| {
            format!(
                "`{text}` is no moment; write milliseconds, 2026-01-31T12:00:00Z, or how long ago as in 48h"
            )
        })
}

/// `?since=&target=&kind=`
#[derive(Debug, Default, Deserialize)]
pub(super) struct EventParams {
    since: Option<String>,
    after_id: Option<u64>,
    target: Option<String>,
    kind: Option<String>,
    limit: Option<u32>,
}

impl EventParams {
    fn query(self, now: Timestamp) -> Result<EventQuery, String> {
        let since = self.since.as_deref().map(|s| moment(s, now)).transpose();
        let kind = self.kind.as_deref().map(|text| {
            serde_json::from_value::<EventKind>(text.into())
                .map_err(|_| format!("kind: `{text}` is no kind of event"))
        });
        Ok(EventQuery {
            after_id: self.after_id,
            since: since.map_err(|why| format!("since: {why}"))?,
            target: self.target,
            kind: kind.transpose()?,
            limit: self.limit.unwrap_or(0),
        })
    }
}

pub(super) async fn events(State(surface): State<Surface>, Query(params): Query<EventParams>) -> Response {
    let query = match params.query(surface.clock.now()) {
        Ok(query) => query,
        Err(why) => return error(StatusCode::BAD_REQUEST, why),
    };
    match surface.store.events(query).await {
        Ok(events) => Json(json!({ "events": events })).into_response(),
        Err(failure) => store_failed(&failure),
    }
}

/// Events as they happen. `Last-Event-ID` (or `since`) first brings what was missed.
pub(super) async fn event_stream(
    State(surface): State<Surface>,
    headers: HeaderMap,
    Query(mut params): Query<EventParams>,
) -> Response {
    let last = headers.get("last-event-id").and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    params.after_id = params.after_id.or(last);
    let replay = params.after_id.is_some() || params.since.is_some();
    let query = match params.query(surface.clock.now()) {
        Ok(query) => query,
        Err(why) => return error(StatusCode::BAD_REQUEST, why),
    };
    // Followed before the past is read, so that nothing falls between.
    let feed = surface.board.follow();
    let past =
        if replay { surface.store.events(query.clone()).await.unwrap_or_default() } else { Vec::new() };
    let newest = past.last().map_or(0, |e| e.id);
    let past = stream::iter(past.into_iter().map(Arc::new).collect::<Vec<_>>());
    let live = live(feed, query, newest);
    let all = futures_util::StreamExt::chain(past, live);
    let framed = futures_util::StreamExt::map(all, |event| Ok::<_, Infallible>(frame(&event)));
    Sse::new(framed).keep_alive(sse::KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

fn live(
    feed: broadcast::Receiver<Arc<Event>>,
    query: EventQuery,
    newest: u64,
) -> impl Stream<Item = Arc<Event>> {
    stream::unfold((feed, query), move |(mut feed, query)| async move {
        loop {
            match feed.recv().await {
                Ok(event) if (event.id > newest || event.id == 0) && query.wants(&event) => {
                    return Some((event, (feed, query)));
                }
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    })
}

fn frame(event: &Event) -> sse::Event {
    let kind = serde_json::to_value(event.kind).ok().and_then(|v| v.as_str().map(str::to_owned));
    let data = serde_json::to_string(event).unwrap_or_default();
    sse::Event::default().id(event.id.to_string()).event(kind.unwrap_or_default()).data(data)
}

pub(super) async fn request(State(surface): State<Surface>, Path(id): Path<String>) -> Response {
    match surface.store.exchange(id.clone()).await {
        Ok(Some(exchange)) => Json(&*exchange).into_response(),
        Ok(None) => error(StatusCode::NOT_FOUND, format!("request `{id}` is not known, or no longer")),
        Err(failure) => store_failed(&failure),
    }
}

pub(super) async fn workflow(State(surface): State<Surface>, Path(id): Path<String>) -> Response {
    let exchanges = match surface.store.workflow(id.clone()).await {
        Ok(exchanges) if exchanges.is_empty() => {
            return error(StatusCode::NOT_FOUND, format!("workflow `{id}` is not known, or no longer"));
        }
        Ok(exchanges) => exchanges,
        Err(failure) => return store_failed(&failure),
    };
    let start = exchanges.iter().map(|e| e.at).min().unwrap_or_default();
    let end = exchanges.iter().map(|e| e.at.plus_ms(e.ms)).max().unwrap_or_default();
    let slowest = exchanges.iter().max_by_key(|e| e.ms).map(|e| Arc::clone(&e.id));
    let requests: Vec<_> = exchanges
        .iter()
        .map(|e| {
            json!({
                "id": e.id, "at": e.at, "start_ms": e.at.ms_since(start), "duration_ms": e.ms, "route": e.route,
                "target": e.target, "tier": e.tier, "retries": e.attempts.len().saturating_sub(1),
                "client_status": e.client_status, "degraded": e.degraded, "flags": e.flags, "cost_usd": e.cost_usd,
            })
        })
        .collect();
    let body = json!({
        "id": id, "start": start, "duration_ms": end.ms_since(start), "slowest": slowest, "requests": requests,
    });
    Json(body).into_response()
}

pub(super) async fn budgets(State(surface): State<Surface>) -> Response {
    Json((surface.budgets.0)()).into_response()
}

/// What the cache was asked for in vain, and what it gave in place of a fresh answer.
pub(super) async fn cache(State(surface): State<Surface>) -> Response {
    Json(surface.cache.listing(surface.clock.now())).into_response()
}

/// May a client that keeps its own connection call this target now?
pub(super) async fn admit(State(surface): State<Surface>, Path(name): Path<String>) -> Response {
    match admission(&surface, &name) {
        Some(body) => Json(body).into_response(),
        None => unknown_target(&name),
    }
}

/// `{admit, tier, reason}`: what the gate says; `tier` is the first tier of a route that has the target.
pub(super) fn admission(surface: &Surface, name: &str) -> Option<Value> {
    let card = surface.board.target(name)?;
    let now = surface.clock.now();
    let routes = surface.board.routes();
    let tier = routes.iter().find_map(|r| r.tiers.iter().position(|t| t.iter().any(|n| **n == *name)));
    let a = &card.admission;
    let reason = match a.state {
        BreakerState::Open => Some(Reason::BreakerOpen),
        BreakerState::ForcedOpen => Some(Reason::Operator),
        BreakerState::HalfOpen => Some(Reason::HalfOpenBusy),
        _ if a.cooling_until.is_some_and(|until| until > now) => Some(Reason::CoolingDown),
        _ => None,
    };
    let applied = card.mode == Mode::Enforce && !surface.gate.is_stale(now);
    Some(json!({
        "admit": reason.is_none() || !applied,
        "tier": tier,
        "reason": reason,
        "share": a.share,
        "mode": card.mode,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_in_three_forms_and_nonsense_is_named() {
        let now = Timestamp::from_millis(100_000_000);
        assert_eq!(moment("5", now), Ok(Timestamp::from_millis(5)));
        assert_eq!(moment("1h", now), Ok(now.minus_ms(3_600_000)));
        assert_eq!(moment("1970-01-01T00:00:01Z", now), Ok(Timestamp::from_millis(1_000)));
        assert!(moment("yesterday", now).expect_err("no moment").contains("yesterday"));
    }
}
