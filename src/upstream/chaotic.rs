//! Faults in front of a target: see [`crate::chaos`].
//!
//! They stand between the daemon and the target, so that callers' requests and the daemon's own golden prompts
//! meet them alike. An answer whose content is spoiled is taken in whole first.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::{Body, Frame, SizeHint};

use super::{Answer, AnswerBody, Call, Failure, FailureKind, Upstream};
use crate::chaos::{self, Condition, Faults, Spoil, Transport};

/// A longer answer is not spoiled.
const MOST_BYTES: usize = 8 << 20;

/// What is put in front of one target.
#[derive(Debug)]
pub(super) struct Chaos {
    faults: Faults,
    swap_model: Option<String>,
    rng: Mutex<fastrand::Rng>,
}

impl Chaos {
    pub(super) fn new(params: &chaos::Params, target: &str) -> Option<Self> {
        let faults = params.of(target)?.clone();
        // targets draw apart from each other, and the same in each run
        let seed = target.bytes().fold(params.seed(), |seed, b| seed.wrapping_mul(31).wrapping_add(b.into()));
        let rng = Mutex::new(fastrand::Rng::with_seed(seed));
        Some(Self { faults, swap_model: params.swap_model().map(str::to_owned), rng })
    }

    fn draw(&self) -> f64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }

    fn strike(&self) -> (Condition, Transport) {
        self.faults.strike(|| self.draw())
    }
}

/// Sends a call through the faults.
pub(super) async fn send(
    upstream: &Upstream,
    chaos: &Chaos,
    mut call: Call<'_>,
    wait: Option<Duration>,
) -> Result<Answer, Failure> {
    let (condition, transport) = chaos.strike();
    let fail = |kind, words: &str| Err(Failure::new(kind, format!("{words} (chaos)")));
    let mut wait = wait;
    if transport.latency_ms > 0 {
        let latency = Duration::from_millis(transport.latency_ms);
        let slept = wait.map_or(latency, |wait| wait.min(latency));
        tokio::time::sleep(slept).await;
        wait = wait.map(|wait| wait.saturating_sub(slept));
        if wait.is_some_and(|left| left.is_zero()) {
            return fail(FailureKind::HeadersTimeout, "no response headers in time");
        }
    }
    if chaos.faults.refuse().is_some() {
        return fail(FailureKind::Refused, "connection refused");
    }
    if transport.reset {
        return fail(FailureKind::Reset, "connection reset");
    }
    if let Some(status) = transport.status {
        return Ok(refused(status, transport.retry_after));
    }
    let spoil = Spoil::of(condition, &transport);
    let swapped = chaos.swap_model.as_deref().filter(|_| condition.swapped);
    let asked = swapped.and_then(|name| swap(&mut call, name));
    if spoil.is_some() || swapped.is_some() {
        call.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    let mut answer = upstream.send_plain(call, wait).await?;
    if answer.status.is_success() && (spoil.is_some() || asked.is_some()) {
        answer = spoiled(answer, chaos, spoil, asked.as_deref()).await?;
    }
    let after = transport.cut.map(|n| (n, false)).or(transport.stall.map(|n| (n, true)));
    if let Some((tokens, stalls)) = after {
        let inner = std::mem::replace(&mut answer.body, AnswerBody::of(Whole(Bytes::new())));
        answer.body = AnswerBody::of(Broken { inner: Mutex::new(inner), left: tokens, stalls });
    }
    Ok(answer)
}

/// An error status with the body that servers send along.
fn refused(status: u16, retry_after: Option<u64>) -> Answer {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if status.as_u16() == 429 { "rate_limit_exceeded" } else { "server_error" };
    let words = status.canonical_reason().unwrap_or("injected fault");
    let body =
        format!("{{\"error\":{{\"message\":\"{words} (chaos)\",\"type\":\"{kind}\",\"code\":\"{kind}\"}}}}");
    let mut headers = http::HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    Answer { status, headers, close_delimited: false, body: AnswerBody::of(Whole(body.into())) }
}

/// Asks for another model; the name that was asked for.
fn swap(call: &mut Call<'_>, name: &str) -> Option<String> {
    let mut request: serde_json::Value = serde_json::from_slice(&call.body).ok()?;
    let before = request.get("model")?.as_str()?.to_owned();
    request["model"] = name.into();
    call.body = request.to_string().into();
    Some(before)
}

async fn spoiled(
    answer: Answer,
    chaos: &Chaos,
    spoil: Option<Spoil>,
    asked: Option<&str>,
) -> Result<Answer, Failure> {
    let Answer { status, mut headers, close_delimited, mut body } = answer;
    let mut whole = Vec::new();
    while let Some(piece) = body.next().await? {
        whole.extend_from_slice(&piece);
        if whole.len() > MOST_BYTES {
            return Err(Failure::new(FailureKind::Cut, "the answer is too long to be spoiled (chaos)"));
        }
    }
    if let Some(spoil) = spoil {
        whole = spoil.body(&whole, &mut || chaos.draw());
    }
    if let Some(name) = asked {
        whole = chaos::rename(&whole, name);
    }
    headers.remove(header::CONTENT_LENGTH);
    Ok(Answer { status, headers, close_delimited, body: AnswerBody::of(Whole(whole.into())) })
}

/// Bytes that are all there.
struct Whole(Bytes);

impl Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = std::mem::take(&mut self.0);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

/// A body that breaks off, or falls silent, after so many tokens.
struct Broken {
    /// Never contended: a body has one reader. It only makes the body shareable, as the client asks.
    inner: Mutex<AnswerBody>,
    left: usize,
    stalls: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("the connection was cut (chaos)")]
struct Cut;

impl Body for Broken {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if this.left == 0 {
            return if this.stalls { Poll::Pending } else { Poll::Ready(Some(Err(Box::new(Cut)))) };
        }
        let inner = this.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        match inner.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => Poll::Ready(Some(Ok(Frame::data(this.part(data))))),
                Err(frame) => Poll::Ready(Some(Ok(frame))),
            },
            Poll::Ready(Some(Err(failure))) => Poll::Ready(Some(Err(Box::new(failure)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Broken {
    /// What still passes: events up to the last token, or half of an answer without events.
    fn part(&mut self, data: Bytes) -> Bytes {
        let mut at = 0;
        let mut events = 0;
        while let Some(found) = data[at..].windows(5).position(|w| w == b"data:") {
            if self.left == 0 {
                return data.slice(..at + found);
            }
            at += found + 5;
            events += 1;
            self.left -= 1;
        }
        if events == 0 {
            self.left = 0;
            return data.slice(..data.len() / 2);
        }
        data
    }
}
