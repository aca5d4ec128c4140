//! An upstream's answer on its way to the caller, observed as it passes.
//!
//! Each piece goes on as it came; the judge reads it in passing. How the body ends is told to the caller as
//! it happened: an orderly end is one, and whatever broke off breaks the caller's connection too. A body that
//! is dropped before its end means that the caller left.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use tokio::time::Sleep;

use super::analysis::{Afterwork, INLINE_BYTES};
use super::body::Broken;
use super::inject::Injected;
use super::ledger::Ledger;
use super::refusal;
use crate::judge::{End, Limit};
use crate::upstream::AnswerBody;
use crate::verdict::{FaultClass, Flag, Wire};

/// When a body on its way is given up, milliseconds from the start of its try.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bounds {
    /// Whole duration.
    pub(super) total: Option<u64>,
    /// Until the first text of a stream.
    pub(super) first_text: Option<u64>,
    /// Between two pieces of progress of a stream.
    pub(super) idle: Option<u64>,
    /// Whether the least pace of a stream is kept to.
    pub(super) paced: bool,
    /// Whether a stream that turns out unusable is broken off.
    pub(super) breaks_late: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Tap {
    upstream: AnswerBody,
    /// Gone once the end has been seen.
    ledger: Option<Box<Ledger>>,
    /// Read while the opening was held, and judged then.
    held: VecDeque<Bytes>,
    bounds: Bounds,
    timer: Option<Pin<Box<Sleep>>>,
    /// How the body breaks off, told once what came before has left.
    breaking: Option<Broken>,
    /// The same, while what tells it is still on its way.
    late: Option<Broken>,
    /// Whether only the end of the connection ends the body.
    close_delimited: bool,
    /// Where judging waits for the socket; `None` for HTTP/2, whose streams have tasks of their own.
    after: Option<Afterwork>,
}

impl Tap {
    pub(super) fn new(
        upstream: AnswerBody,
        ledger: Box<Ledger>,
        held: VecDeque<Bytes>,
        bounds: Bounds,
        close_delimited: bool,
        after: Option<Afterwork>,
    ) -> Self {
        Self {
            upstream,
            ledger: Some(ledger),
            held,
            bounds,
            timer: None,
            breaking: None,
            late: None,
            close_delimited,
            after,
        }
    }

    /// What the caller did not ask for.
    pub(super) fn injected(&self) -> Option<Injected> {
        self.ledger.as_ref().and_then(|ledger| ledger.injected)
    }

    pub(super) fn is_end(&self) -> bool {
        let over = self.ledger.is_none() || self.upstream.is_end();
        self.held.is_empty() && self.breaking.is_none() && self.late.is_none() && over
    }

    pub(super) fn exact_len(&self) -> Option<u64> {
        let held: usize = self.held.iter().map(Bytes::len).sum();
        self.upstream.exact_len().map(|rest| rest + held as u64)
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(piece) = self.held.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if let Some(broken) = self.breaking.take() {
            return Poll::Ready(Some(Err(broken)));
        }
        if let Some(broken) = self.late.take() {
            return self.break_off(broken, cx);
        }
        if self.ledger.is_none() {
            return Poll::Ready(None);
        }
        match self.upstream.poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                if let (Some(ledger), Some(data)) = (&mut self.ledger, frame.data_ref()) {
                    let progress = ledger.saw(data);
                    if self.bounds.breaks_late
                        && let Some(flag) = progress.flags.first_of(FaultClass::QualityHard)
                    {
                        return self.stop(flag);
                    }
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(failure))) => {
                self.finish(End::Broken);
                self.break_off(Broken::Upstream(failure), cx)
            }
            Poll::Ready(None) => {
                let cut = self.close_delimited
                    && self.ledger.as_ref().is_some_and(|ledger| ledger.lacks_terminal());
                self.finish(if cut { End::Broken } else { End::Complete });
                if cut { self.break_off(Broken::NoTerminal, cx) } else { Poll::Ready(None) }
            }
            Poll::Pending => {
                let limit = ready!(self.poll_limit(cx));
                self.finish(End::TimedOut(limit));
                self.break_off(Broken::TimedOut, cx)
            }
        }
    }

    /// Cancels the upstream, so that no more tokens are paid for, says why in the wire's own form, and breaks
    /// off: there is no clean end to what is no answer.
    fn stop(&mut self, flag: Flag) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let wire = self.ledger.as_ref().map_or(Wire::Chat, |ledger| ledger.wire);
        self.finish(End::Stopped);
        self.upstream.cancel();
        self.late = Some(Broken::Unusable(flag));
        Poll::Ready(Some(Ok(Frame::data(refusal::stream_error(wire, flag)))))
    }

    /// Breaks off at the next turn. An error makes the server drop what it has not written yet, and the caller
    /// would lose what the upstream had said; between two turns it is written.
    fn break_off(&mut self, broken: Broken, cx: &Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.breaking = Some(broken);
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ready when a limit has run out. One timer is kept, and only looked at again when it fires, because
    /// limits only ever move further away.
    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<Limit> {
        loop {
            let Some((limit, left)) = self.nearest() else { return Poll::Pending };
            if left == 0 && limit == Limit::TokenRate && !self.ledger.as_mut().is_some_and(|l| l.crawls()) {
                continue;
            }
            if left == 0 {
                return Poll::Ready(limit);
            }
            let timer =
                self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_millis(left))));
            ready!(timer.as_mut().poll(cx));
            self.timer = None;
        }
    }

    fn nearest(&self) -> Option<(Limit, u64)> {
        let running = self.ledger.as_ref()?.running()?;
        let now = running.elapsed_ms();
        let left = |due: Option<u64>| due.map(|at| at.saturating_sub(now));
        let first = if running.has_text() { None } else { left(self.bounds.first_text) };
        let idle = self.bounds.idle.map(|ms| running.last_progress_ms() + ms);
        let idle = if running.has_text() { left(idle) } else { None };
        let pace = left(running.pace_due_ms().filter(|_| self.bounds.paced));
        let total = left(self.bounds.total);
        [
            (Limit::Total, total),
            (Limit::FirstText, first),
            (Limit::StreamIdle, idle),
            (Limit::TokenRate, pace),
        ]
        .into_iter()
        .filter_map(|(limit, left)| Some((limit, left?)))
        .min_by_key(|(_, left)| *left)
    }

    /// Files the answer, once the socket has been served.
    fn finish(&mut self, end: End) {
        let Some(mut ledger) = self.ledger.take() else { return };
        ledger.stop_watch();
        let large =
            ledger.running().is_some_and(|r| r.seen_bytes() > INLINE_BYTES as u64 && !r.is_streaming());
        if large {
            ledger.file_on_pool(end);
            return;
        }
        match &self.after {
            Some(after) => after.defer(Box::new(move || ledger.file(end))),
            None => match tokio::runtime::Handle::try_current() {
                Ok(runtime) => drop(runtime.spawn(async move { ledger.file(end) })),
                Err(_) => ledger.file(end), // the process ends
            },
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // A body of declared length is dropped without a last look once all of it has been taken.
        let complete = self.held.is_empty() && self.upstream.is_end();
        self.finish(if complete { End::Complete } else { End::ClientGone });
    }
}
