//! Sends the daemon's own questions along, and withdraws them where they do harm.

use std::time::Duration;

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::inference::is_plain;
use super::inject::{self, Injected};
use crate::clock::Timestamp;
use crate::upstream::{Answer, Call, Failure, Upstream};
use crate::verdict::Wire;

const INJECTED: HeaderName = HeaderName::from_static("x-touchstone-injected");

/// Says what was asked for, and that the body will be shorter than it came.
pub(super) fn mark(headers: &mut HeaderMap, injected: Option<Injected>) {
    if let Some(injected) = injected {
        headers.remove(header::CONTENT_LENGTH);
        headers.append(INJECTED, HeaderValue::from_static(injected.as_str()));
    }
}

/// Sends a call with the daemon's questions in it; once more as the caller wrote it, if they may be what was refused.
pub(super) async fn ask_more(
    upstream: &Upstream,
    wire: Wire,
    call: Call<'_>,
    wait: Option<Duration>,
    now: Timestamp,
) -> (Result<Answer, Failure>, Option<Injected>) {
    let questions = inject::with_questions(wire, &call.body).filter(|_| upstream.injection().is_allowed(now));
    let Some((body, injected)) = questions else { return (upstream.send(call, wait).await, None) };
    let mut headers = call.headers.clone();
    headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity")); // else nothing could be cut
    let more = Call {
        method: call.method.clone(),
        path: call.path,
        headers,
        body,
        wire: call.wire,
        patient: call.patient,
    };
    let first = upstream.send(more, wait).await;
    let Ok(answer) = &first else { return (first, Some(injected)) };
    let encoded = !is_plain(&answer.headers);
    if !encoded && !may_be_refused(answer.status) {
        return (first, Some(injected));
    }
    drop(first); // and its connection: nobody waits for the rest
    let second = upstream.send(call, wait).await;
    let sound = second.as_ref().is_ok_and(|answer| answer.status.is_success());
    if sound || encoded {
        if upstream.injection().withdraw() {
            tracing::info!(
                target_name = %upstream.name(),
                questions = injected.as_str(),
                encoded,
                "target refuses what inject = \"live\" asks for; it is asked no longer"
            );
        }
    } else if second.as_ref().map_or(true, |answer| answer.status.is_server_error()) {
        upstream.injection().rest(now);
    }
    (second, None)
}

/// Whether an error can be about what was asked: neither who asked nor when.
fn may_be_refused(status: StatusCode) -> bool {
    (status.is_client_error() || status.is_server_error())
        && !matches!(status.as_u16(), 401 | 402 | 403 | 407 | 408 | 413 | 429 | 503 | 504 | 529)
}
