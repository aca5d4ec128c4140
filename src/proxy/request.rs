//! What a caller sent, read as far as routing and forwarding need it.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};

use crate::verdict::Wire;

/// Longest workflow id that is kept, bytes.
const MAX_WORKFLOW: usize = 128;
/// Longest name of a sub-budget, bytes.
const MAX_BUDGET: usize = 64;
/// How long a body that is too large is still taken in, so that the refusal can be read.
const LINGER: Duration = Duration::from_secs(3);

const ROUTE: HeaderName = HeaderName::from_static("x-touchstone-route");
const WORKFLOW: HeaderName = HeaderName::from_static("x-touchstone-workflow");
const DEADLINE: HeaderName = HeaderName::from_static("x-touchstone-deadline-ms");
const NO_RETRY: HeaderName = HeaderName::from_static("x-touchstone-no-retry");
const NO_FALLBACK: HeaderName = HeaderName::from_static("x-touchstone-no-fallback");
const BUDGET: HeaderName = HeaderName::from_static("x-touchstone-budget");
const NO_CACHE: HeaderName = HeaderName::from_static("x-touchstone-no-cache");

/// What the caller says to the daemon itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    pub(super) route: Option<String>,
    pub(super) workflow: Option<Arc<str>>,
    pub(super) deadline_ms: Option<u64>,
    pub(super) no_retry: bool,
    pub(super) no_fallback: bool,
    pub(super) no_cache: bool,
    pub(super) budget: Option<String>,
}

impl Wishes {
    pub(super) fn read(headers: &HeaderMap) -> Self {
        if !headers.keys().any(|name| name.as_str().starts_with("x-touchstone-")) {
            return Self::default();
        }
        let text = |name: &HeaderName| headers.get(name).and_then(|v| v.to_str().ok()).map(str::trim);
        let set = |name: &HeaderName| {
            text(name).is_some_and(|v| !matches!(v.to_ascii_lowercase().as_str(), "0" | "false" | "no"))
        };
        let workflow = text(&WORKFLOW).filter(|w| !w.is_empty()).map(|w| {
            Arc::from(w.get(..MAX_WORKFLOW).unwrap_or(w)) // a header's text is ASCII
        });
        Self {
            route: text(&ROUTE).filter(|r| !r.is_empty()).map(str::to_owned),
            workflow,
            deadline_ms: text(&DEADLINE).and_then(|v| v.parse().ok()),
            no_retry: set(&NO_RETRY),
            no_fallback: set(&NO_FALLBACK),
            no_cache: set(&NO_CACHE),
            budget: text(&BUDGET)
                .and_then(|b| b.get(..b.len().min(MAX_BUDGET)))
                .filter(|b| !b.is_empty())
                .map(str::to_owned),
        }
    }
}

/// Why a body could not be read.
#[derive(Debug)]
pub(super) enum Unread {
    /// Over the limit.
    TooLarge,
    /// The caller broke off.
    Broken(hyper::Error),
}

/// The whole body, if it is no longer than `most`.
pub(super) async fn read_body(headers: &HeaderMap, mut body: Incoming, most: usize) -> Result<Bytes, Unread> {
    if body.size_hint().lower() > most as u64 {
        if !headers.contains_key(header::EXPECT) {
            linger(&mut body).await;
        }
        return Err(Unread::TooLarge);
    }
    let Some(first) = next(&mut body).await.map_err(Unread::Broken)? else { return Ok(Bytes::new()) };
    if first.len() <= most && body.is_end_stream() {
        return Ok(first);
    }
    let mut whole = BytesMut::from(first);
    loop {
        if whole.len() > most {
            linger(&mut body).await;
            return Err(Unread::TooLarge);
        }
        match next(&mut body).await.map_err(Unread::Broken)? {
            None => return Ok(whole.freeze()),
            Some(piece) => whole.extend_from_slice(&piece),
        }
    }
}

async fn next(body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

/// A connection that is closed while the caller still sends is reset, and the refusal lost with it.
pub(super) async fn linger(body: &mut Incoming) {
    let rest = async { while let Ok(Some(_)) = next(body).await {} };
    let _ = tokio::time::timeout(LINGER, rest).await;
}

/// Where a path names its model, on wires that do so.
pub(super) fn model_in_path(wire: Wire, path: &str) -> Option<Range<usize>> {
    if !matches!(wire, Wire::KserveInfer | Wire::TfPredict) {
        return None;
    }
    let path = path.split(['?', '#']).next().unwrap_or(path);
    let start = path.find("/models/")? + "/models/".len();
    let rest = &path[start..];
    // A name may hold colons; TensorFlow Serving's verb stands behind the last one.
    let length = rest.find('/').or_else(|| rest.rfind(':'))?;
    (length > 0).then_some(start..start + length)
}

/// The path with the target's model in place of the caller's.
pub(super) fn path_with_model(wire: Wire, path: &str, model: &str) -> Option<String> {
    let name = model_in_path(wire, path)?;
    Some(format!("{}{}{}", &path[..name.start], encoded(model), &path[name.end..]))
}

/// A name as one segment of a path (RFC 3986 § 3.3).
fn encoded(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn wishes_are_read_and_nonsense_is_no_wish() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-touchstone-route", "a"),
            ("x-touchstone-deadline-ms", "soon"),
            ("x-touchstone-no-retry", "1"),
            ("x-touchstone-no-cache", "false"),
            ("x-touchstone-workflow", "run-7"),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let wishes = Wishes::read(&headers);
        assert_eq!(wishes.route.as_deref(), Some("a"));
        assert_eq!(wishes.workflow.as_deref(), Some("run-7"));
        assert_eq!(wishes.deadline_ms, None);
        assert!(wishes.no_retry && !wishes.no_cache && !wishes.no_fallback);
    }

    #[test]
    fn a_path_that_names_its_model_is_rewritten_there_only() {
        let infer = "/v2/models/resnet/infer";
        assert_eq!(path_with_model(Wire::KserveInfer, infer, "m").as_deref(), Some("/v2/models/m/infer"));
        let predict = "/v1/models/a:predict";
        assert_eq!(path_with_model(Wire::TfPredict, predict, "m").as_deref(), Some("/v1/models/m:predict"));
        let pinned = "/v2/models/a:b/versions/3/infer?x=1";
        assert_eq!(
            path_with_model(Wire::KserveInfer, pinned, "my model").as_deref(),
            Some("/v2/models/my%20model/versions/3/infer?x=1")
        );
        let labelled = "/v1/models/a/labels/stable:predict";
        assert_eq!(
            path_with_model(Wire::TfPredict, labelled, "m").as_deref(),
            Some("/v1/models/m/labels/stable:predict")
        );
        assert_eq!(model_in_path(Wire::TfPredict, "/v1/models/a:b:predict"), Some(11..14));
        assert_eq!(path_with_model(Wire::Chat, "/v1/models/a/chat/completions", "m"), None);
    }
}
