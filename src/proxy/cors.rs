//! Calls from a browser, where `proxy.cors` names origins; otherwise the upstream's word is passed on.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::params::ProxyParams;

/// A browser asks again after so many seconds.
const MAX_AGE: &str = "600";
const METHODS: &str = "GET, HEAD, POST, OPTIONS";
/// Headers that a page may read.
const EXPOSED: &str = "x-touchstone-request-id, x-touchstone-target, x-touchstone-tier, x-touchstone-attempts, \
                       x-touchstone-breaker, x-touchstone-degraded, x-touchstone-verdict, \
                       x-touchstone-cached-at, age, retry-after";

/// Whether pages of this origin may call.
fn is_allowed(params: &ProxyParams, origin: &HeaderValue) -> bool {
    params.cors().iter().any(|o| o == "*" || o.as_bytes() == origin.as_bytes())
}

/// Lets a page of an allowed origin read the response.
pub(super) fn allow(params: &ProxyParams, origin: &HeaderValue, headers: &mut HeaderMap) {
    if !is_allowed(params, origin) {
        return;
    }
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.append(header::VARY, HeaderValue::from_static("origin"));
}

/// The answer to a browser's question before its call.
pub(super) fn preflight<B: Default>(params: &ProxyParams, asked: &HeaderMap) -> Response<B> {
    let mut response = Response::new(B::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let Some(origin) = asked.get(header::ORIGIN).filter(|o| is_allowed(params, o)) else { return response };
    let headers = response.headers_mut();
    allow(params, origin, headers);
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    let requested: HeaderName = header::ACCESS_CONTROL_REQUEST_HEADERS;
    if let Some(names) = asked.get(requested) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_origins_are_let_in() {
        let params: ProxyParams = toml::from_str("cors = [\"https://chat.example\"]").expect("reads");
        let mut asked = HeaderMap::new();
        asked.insert(header::ORIGIN, HeaderValue::from_static("https://chat.example"));
        asked.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_static("authorization"));
        let yes: Response<()> = preflight(&params, &asked);
        assert_eq!(yes.headers()["access-control-allow-origin"], "https://chat.example");
        assert_eq!(yes.headers()["access-control-allow-headers"], "authorization");
        asked.insert(header::ORIGIN, HeaderValue::from_static("https://evil.example"));
        let no: Response<()> = preflight(&params, &asked);
        assert!(no.headers().is_empty());
    }
}
