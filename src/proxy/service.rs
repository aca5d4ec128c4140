//! The fork in the road: inference calls take the short way, everything else the pages.

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response, header};
use hyper::body::Incoming;
use tower_service::Service as _;

use super::analysis::Afterwork;
use super::body::Body;
use super::{Proxy, cors, inference};
use crate::wire;

/// Answers one request. An error breaks the connection.
pub(super) async fn answer(
    proxy: &Arc<Proxy>,
    mut router: axum::Router,
    after: &Afterwork,
    request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    let wire = if request.method() == Method::POST { wire::of_path(request.uri().path()) } else { None };
    let Some(wire) = wire else {
        let mut request = request;
        let live = proxy.live();
        // A browser asks before its call without any key.
        let asks = request.method() == Method::OPTIONS;
        if !live.keys.is_open() && !asks && live.keys.take(request.headers_mut()).is_none() {
            return Ok(inference::unauthorized().response(None));
        }
        let page = router.call(request).await;
        // a router's error type has no values
        return Ok(page.unwrap_or_else(|never| match never {}).map(Body::Page));
    };
    let origin: Option<HeaderValue> =
        if proxy.has_cors() { request.headers().get(header::ORIGIN).cloned() } else { None };
    let mut response = inference::answer(proxy, after, wire, request).await?;
    if let Some(origin) = origin {
        cors::allow(&proxy.live().proxy, &origin, response.headers_mut());
    }
    Ok(response)
}
