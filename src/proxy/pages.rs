//! Everything that is no inference call: the list of models, and what is passed through unscored.
//!
//! A path that nobody reads passes when it is safe: GET and HEAD, and what `proxy.passthrough` names. The
//! rest is refused, because behind many inference servers' ports lie paths that delete or replace models.

use std::sync::Arc;

use axum::Router;
use axum::body::Body as PageBody;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::get;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper_util::rt::TokioIo;
use serde_json::json;

use super::body::Body;
use super::inference::{REQUEST_ID, TARGET, TIER, unanswered};
use super::live::Live;
use super::refusal::Refusal;
use super::request::Wishes;
use super::{Proxy, cors};
use crate::clock::Stopwatch;
use crate::sample::Done;
use crate::upstream::{Call, Failure, Upstream};
use crate::verdict::{ErrorCode, Mode};
use crate::wire;

/// The pages of one proxy.
pub(super) fn router(proxy: &Arc<Proxy>) -> Router {
    Router::new().route("/v1/models", get(models).fallback(pass)).fallback(pass).with_state(Arc::clone(proxy))
}

/// The names that routes take; the upstream's own list where no route names any.
async fn models(State(proxy): State<Arc<Proxy>>, request: Request) -> Response {
    let live = proxy.live();
    if live.names.is_empty() {
        return pass(State(proxy), request).await;
    }
    let entry = |id: &String| json!({ "id": id, "object": "model", "created": 0, "owned_by": "touchstone" });
    let list = json!({ "object": "list", "data": live.names.iter().map(entry).collect::<Vec<_>>() });
    let mut response = Response::new(PageBody::from(list.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(origin) = request.headers().get(header::ORIGIN) {
        cors::allow(&live.proxy, origin, response.headers_mut());
    }
    response
}

/// Passes a request through, or refuses it.
async fn pass(State(proxy): State<Arc<Proxy>>, mut request: Request) -> Response {
    let live = proxy.live();
    let path = request.uri().path();
    let is_preflight = request.method() == Method::OPTIONS;
    if is_preflight && !live.proxy.cors().is_empty() {
        return cors::preflight(&live.proxy, request.headers());
    }
    let safe = matches!(*request.method(), Method::GET | Method::HEAD) || is_preflight;
    if !safe && !live.proxy.passes(path) {
        let words = format!("{} {path} is not passed on; proxy.passthrough can allow it", request.method());
        return Refusal::new(ErrorCode::ForbiddenPath, words)
            .response(wire::of_path(path))
            .map(PageBody::new);
    }
    let origin = request.headers().get(header::ORIGIN).cloned();
    let place = match destination(&live, request.headers()) {
        Ok(place) => place,
        Err(refusal) => return refusal.response(None).map(PageBody::new),
    };
    let watch = Stopwatch::start();
    let upgrade = request.headers().get(header::UPGRADE).cloned();
    let mut response = match upgrade {
        Some(upgrade) => tunnel(&live, place, &mut request, upgrade).await,
        None => forward(&live, place, request).await,
    };
    if let Some(origin) = origin {
        cors::allow(&live.proxy, &origin, response.headers_mut());
    }
    mark(&proxy, &live, place, &mut response, &watch);
    response
}

/// Route and target of an unscored path: the route that the caller names, or the first that takes every
/// model, or the first; there the first target.
fn destination(live: &Live, headers: &HeaderMap) -> Result<(usize, usize), Refusal> {
    let route = match Wishes::read(headers).route {
        Some(name) => live.routes.iter().position(|r| **r.name() == *name).ok_or_else(|| {
            Refusal::new(ErrorCode::BadRequest, format!("there is no route named `{name}`"))
        })?,
        None => live.routes.iter().position(|r| r.takes_all()).unwrap_or(0),
    };
    let target = live.routes[route].first_target().map_or(0, |member| member.index);
    Ok((route, target))
}

async fn forward(live: &Live, (route, target): (usize, usize), request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let most = live.limits.max_request_bytes();
    let Ok(body) = Limited::new(body, most).collect().await else {
        let words = format!("the request body is longer than limits.max_request_bytes, {most}");
        return Refusal::new(ErrorCode::RequestTooLarge, words).response(None).map(PageBody::new);
    };
    let call = Call {
        method: parts.method,
        path: parts.uri.path_and_query().map_or("/", |p| p.as_str()),
        headers: parts.headers,
        body: body.to_bytes(),
        wire: None,
        patient: live.extras[route].mode == Mode::Shadow,
    };
    match live.targets[target].upstream.send(call, None).await {
        Ok(answer) => {
            let mut response = Response::new(PageBody::new(Body::Pass(answer.body)));
            *response.status_mut() = answer.status;
            *response.headers_mut() = answer.headers;
            response
        }
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> Response {
    unanswered(failure, failure.class()).response(None).map(PageBody::new)
}

/// Connects caller and upstream for another protocol, such as a websocket.
async fn tunnel(
    live: &Live,
    (_, target): (usize, usize),
    request: &mut Request,
    upgrade: HeaderValue,
) -> Response {
    let callers = hyper::upgrade::on(&mut *request);
    let call = Call {
        method: request.method().clone(),
        path: request.uri().path_and_query().map_or("/", |p| p.as_str()),
        headers: request.headers().clone(),
        body: bytes::Bytes::new(),
        wire: None,
        patient: false,
    };
    let upstream: &Upstream = &live.targets[target].upstream;
    match upstream.upgrade(call, upgrade.clone()).await {
        Err(failure) => failed(&failure),
        Ok(Err(answer)) => {
            let mut response = Response::new(PageBody::new(Body::Pass(answer.body)));
            *response.status_mut() = answer.status;
            *response.headers_mut() = answer.headers;
            response
        }
        Ok(Ok((mut headers, mut raw))) => {
            tokio::spawn(async move {
                if let Ok(caller) = callers.await {
                    // either side may end it at any time
                    let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(caller), &mut raw).await;
                }
            });
            crate::upstream::headers::drop_hop_by_hop(&mut headers);
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, upgrade);
            let mut response = Response::new(PageBody::empty());
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            *response.headers_mut() = headers;
            response
        }
    }
}

/// Says who answered, and counts the request as passed through.
fn mark(
    proxy: &Proxy,
    live: &Live,
    (route, target): (usize, usize),
    response: &mut Response,
    watch: &Stopwatch,
) {
    let status = response.status().as_u16();
    let headers = response.headers_mut();
    let id = format!("{:016x}", fastrand::u64(..));
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.append(REQUEST_ID, id);
    }
    headers.append(TARGET, live.targets[target].header.clone());
    headers.append(TIER, HeaderValue::from_static("passthrough"));
    proxy.monitor.done(Done {
        at: proxy.clock.now(),
        route: Arc::clone(live.routes[route].name()),
        target: Arc::clone(&live.targets[target].name),
        tier: Arc::clone(&proxy.words.passthrough),
        client_status: status,
        reason: None,
        first_target: Arc::clone(&live.extras[route].first_target),
        ms: watch.elapsed_ms(),
        overhead_us: 0,
        attempts: 1,
    });
}
