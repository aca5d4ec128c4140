//! The body of a response, whoever made it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use super::cutter::Cutting;
use super::tap::Tap;
use crate::upstream::{AnswerBody, Failure};

/// Why a body ends without its proper end, so that the caller's connection must break too.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The upstream broke off.
    #[error("the upstream's answer broke off")]
    Upstream(#[source] Failure),
    /// The upstream only closed the connection, in the middle of a stream.
    #[error("the upstream's stream ended without its terminal sign")]
    NoTerminal,
    /// A limit or the caller's deadline ran out.
    #[error("the answer took longer than its limit")]
    TimedOut,
    /// What came is no answer.
    #[error("the answer turned out unusable: {0}")]
    Unusable(crate::verdict::Flag),
    /// A page of the daemon's own failed.
    #[error("the answer could not be made")]
    Own(#[source] axum::Error),
}

/// One response body.
#[derive(Debug)]
pub(super) enum Body {
    /// Bytes that are all there.
    Whole(Bytes),
    /// An upstream's answer on its way, observed.
    Tap(Box<Tap>),
    /// Likewise, and what the daemon asked for is cut out.
    Cut(Box<Cutting>),
    /// An upstream's answer on its way, unobserved.
    Pass(AnswerBody),
    /// A page of the daemon's own.
    Page(axum::body::Body),
}

impl Body {
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }

    pub(super) fn tapped(tap: Tap) -> Self {
        match tap.injected() {
            None => Self::Tap(Box::new(tap)),
            Some(injected) => Self::Cut(Box::new(Cutting::new(tap, injected))),
        }
    }

    pub(super) fn empty() -> Self {
        Self::Whole(Bytes::new())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match &mut *self {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Tap(tap) => tap.poll_frame(cx),
            Self::Cut(cutting) => cutting.poll_frame(cx),
            Self::Pass(body) => body.poll_frame(cx).map_err(Broken::Upstream),
            Self::Page(body) => Pin::new(body).poll_frame(cx).map_err(Broken::Own),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Tap(tap) => tap.is_end(),
            Self::Cut(cutting) => cutting.is_end(),
            Self::Pass(body) => body.is_end(),
            Self::Page(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Tap(tap) => tap.exact_len().map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Cut(_) => SizeHint::default(),
            Self::Pass(body) => body.exact_len().map_or_else(SizeHint::default, SizeHint::with_exact),
            Self::Page(body) => body.size_hint(),
        }
    }
}
