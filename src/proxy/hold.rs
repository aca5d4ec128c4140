//! Keeps the opening of an answer back until it is known to be worth committing to.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::analysis::INLINE_BYTES;
use super::consequence::Ended;
use super::cutter::Cutter;
use super::inference::Inquiry;
use super::ledger::Ledger;
use super::params::Until;
use super::tap::Bounds;
use crate::judge::{End, Limit, Verdict};
use crate::plan::{Fault, FaultKind};
use crate::upstream::{Answer, AnswerBody, Failure, FailureKind, Limits};
use crate::verdict::{FaultClass, Flag, FlagSet};

/// How long a held answer waits for its judgement; then it goes unjudged.
const JUDGE_PATIENCE: Duration = Duration::from_millis(500);

/// What an answer turned out to be before anything was handed over.
pub(super) enum Held {
    /// It has begun well, or is too large or slow to hold.
    Open(Box<Ledger>, Box<Opening>),
    /// It is all there.
    Whole(Box<Ledger>, Box<WholeAnswer>, Option<Fault>),
    /// It broke off or fell silent.
    Lost(Box<Ledger>, Failure, FaultClass, FaultKind),
}

/// An answer that has begun.
pub(super) struct Opening {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) pieces: VecDeque<Bytes>,
    pub(super) body: AnswerBody,
    pub(super) bounds: Bounds,
    pub(super) close_delimited: bool,
}

/// An answer that is all there.
pub(super) struct WholeAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) target: usize,
    pub(super) tier: usize,
    pub(super) verdict: Option<Box<Verdict>>,
    pub(super) fault: Option<FaultKind>,
}

enum Next {
    Piece(Bytes),
    End,
    Broken(Failure),
    TimedOut(Limit),
}

/// Reads until the answer can be committed to, or is known to be bad.
pub(super) async fn hold(
    mut ledger: Box<Ledger>,
    answer: Answer,
    inquiry: &Inquiry,
    limits: &Limits,
    target: usize,
) -> Held {
    let Answer { status, headers, close_delimited, mut body } = answer;
    let Some((started_ms, streaming)) = ledger.running().map(|r| (r.elapsed_ms(), r.is_streaming())) else {
        return Held::Lost(ledger, no_answer("no try is under way"), FaultClass::Client, FaultKind::Caller);
    };
    let mut bounds = limits_of(&ledger, inquiry, limits, started_ms, streaming);
    let mut streaming = streaming && status.is_success();
    let first_text_ms = u64::try_from(limits.first_text().as_millis()).unwrap_or(u64::MAX);
    let room = |ledger: &Ledger, streaming| {
        let hold = &ledger.live.hold;
        if streaming && hold.until() != Until::End {
            (hold.max_bytes(), Some(started_ms + hold.max_ms().max(first_text_ms)))
        } else {
            (hold.max_json_bytes(), None)
        }
    };
    let (mut max_bytes, mut max_ms) = room(&ledger, streaming);
    let mut pieces: VecDeque<Bytes> = VecDeque::new();
    let mut bytes = 0;
    loop {
        let before = ledger.watch.elapsed_us();
        let next = next(&mut body, &ledger, bounds, max_ms).await;
        ledger.waited_us += ledger.watch.elapsed_us().saturating_sub(before);
        let end = match next {
            Some(Next::Piece(piece)) => {
                let mut progress = ledger.saw(&piece);
                bytes += piece.len();
                pieces.push_back(piece);
                if progress.is_stream && !streaming && status.is_success() {
                    streaming = true;
                    bounds = limits_of(&ledger, inquiry, limits, started_ms, true);
                    (max_bytes, max_ms) = room(&ledger, true);
                }
                let enough = bytes > max_bytes || streaming && is_enough(&ledger, progress.has_content);
                if enough {
                    progress = ledger.catch_up();
                }
                if streaming && let Some(kind) = early_fault(progress.flags) {
                    return early(ledger, kind);
                }
                if !enough {
                    continue;
                }
                let opening = Opening { status, headers, pieces, body, bounds, close_delimited };
                return Held::Open(ledger, Box::new(opening));
            }
            None => {
                let flags = ledger.catch_up().flags;
                if streaming && let Some(kind) = early_fault(flags) {
                    return early(ledger, kind);
                }
                let opening = Opening { status, headers, pieces, body, bounds, close_delimited };
                return Held::Open(ledger, Box::new(opening));
            }
            Some(Next::Broken(failure)) => {
                let ended = ledger.end(End::Broken);
                return Held::Lost(
                    ledger,
                    failure,
                    ended.class.unwrap_or(FaultClass::Upstream),
                    FaultKind::Cut,
                );
            }
            Some(Next::TimedOut(Limit::TokenRate)) if !ledger.crawls() => continue,
            Some(Next::TimedOut(limit)) => {
                let hurried = inquiry.left_ms(&ledger) == Some(0);
                let end = if hurried { End::ClientGone } else { End::TimedOut(limit) };
                ledger.end(end);
                // What had begun and then stalled may be worth another try at once; what never began is not.
                let begun = matches!(limit, Limit::StreamIdle | Limit::TokenRate);
                let (words, kind) = if begun {
                    ("the stream stalled", FaultKind::Cut)
                } else {
                    ("no text within its limit", FaultKind::Silent)
                };
                return Held::Lost(ledger, no_answer(words), FaultClass::Slow, kind);
            }
            Some(Next::End) if close_delimited && ledger.lacks_terminal() => End::Broken,
            Some(Next::End) => End::Complete,
        };
        ledger.stop_watch();
        let ended = judge_whole(&mut ledger, end, bytes).await;
        let body = join(pieces, bytes);
        let body = ledger.injected.map_or(body.clone(), |injected| Cutter::whole(injected, body));
        let fault = ended.fault.map(|kind| {
            let retry_after_ms = ended.retry_after_ms.or(ended.verdict.retry_after_ms);
            Fault { kind, retry_after_ms }
        });
        let whole = WholeAnswer {
            status,
            headers,
            body,
            target,
            tier: 0,
            verdict: Some(Box::new(ended.verdict)),
            fault: None,
        };
        return Held::Whole(ledger, Box::new(whole), fault);
    }
}

/// Whether a stream has shown enough to be committed to.
fn is_enough(ledger: &Ledger, has_content: bool) -> bool {
    match ledger.live.hold.until() {
        Until::FirstContent => has_content,
        Until::Tokens(n) => ledger.running().is_some_and(|r| r.events() >= n),
        Until::End => false,
    }
}

fn no_answer(words: &str) -> Failure {
    Failure { kind: FailureKind::HeadersTimeout, message: words.to_owned() }
}

/// Ends a stream of which nothing has been passed on.
fn early(mut ledger: Box<Ledger>, kind: FaultKind) -> Held {
    let quality = matches!(kind, FaultKind::Quality(_));
    let ended = ledger.end(if quality { End::Stopped } else { End::Complete });
    let message =
        ended.verdict.error.unwrap_or_else(|| format!("the stream began with {}", ended.verdict.flags));
    let failure = Failure { kind: FailureKind::Cut, message };
    let kind = ended.fault.unwrap_or(kind);
    Held::Lost(ledger, failure, ended.class.unwrap_or(kind.class()), kind)
}

/// What already stands against a stream before its first content.
fn early_fault(flags: FlagSet) -> Option<FaultKind> {
    if flags.contains(Flag::RateLimited) || flags.contains(Flag::Overloaded) {
        return Some(FaultKind::Backpressure);
    }
    if flags.contains(Flag::StreamErrorEvent) || flags.contains(Flag::UpstreamErrorIn200) {
        return Some(FaultKind::Cut);
    }
    flags.first_of(FaultClass::QualityHard).map(FaultKind::Quality)
}

fn limits_of(
    ledger: &Ledger,
    inquiry: &Inquiry,
    limits: &Limits,
    started_ms: u64,
    streaming: bool,
) -> Bounds {
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    let total = ms(limits.total());
    let total = inquiry.left_ms(ledger).map_or(total, |left| total.min(started_ms.saturating_add(left)));
    Bounds {
        total: Some(total),
        first_text: streaming.then(|| started_ms + ms(limits.first_text())),
        idle: streaming.then(|| ms(limits.stream_idle())),
        paced: streaming,
        breaks_late: streaming && ledger.live.hold.breaks_late(),
    }
}

/// The next piece, or `None` where the opening has been held long enough.
async fn next(body: &mut AnswerBody, ledger: &Ledger, bounds: Bounds, max_ms: Option<u64>) -> Option<Next> {
    let Some(running) = ledger.running() else { return Some(Next::End) };
    let now = running.elapsed_ms();
    let (first_text, idle) = if running.has_text() {
        (None, bounds.idle.map(|ms| running.last_progress_ms() + ms))
    } else {
        (bounds.first_text, None)
    };
    let dues = [
        (Some(Limit::Total), bounds.total),
        (Some(Limit::FirstText), first_text),
        (Some(Limit::StreamIdle), idle),
        (Some(Limit::TokenRate), running.pace_due_ms()),
        (None, max_ms),
    ];
    let nearest = dues.into_iter().filter_map(|(what, due)| Some((what, due?))).min_by_key(|(_, due)| *due);
    let read = async {
        match body.next().await {
            Ok(Some(piece)) => Next::Piece(piece),
            Ok(None) => Next::End,
            Err(failure) => Next::Broken(failure),
        }
    };
    let Some((what, due)) = nearest else { return Some(read.await) };
    let left = Duration::from_millis(due.saturating_sub(now));
    match tokio::time::timeout(left, read).await {
        Ok(next) => Some(next),
        Err(_) => what.map(Next::TimedOut),
    }
}

/// Judges a whole answer: here if it is small, on the threads for large ones otherwise, and not at all if
/// those are busy too long.
async fn judge_whole(ledger: &mut Ledger, end: End, bytes: usize) -> Ended {
    if bytes <= INLINE_BYTES {
        return ledger.end(end);
    }
    let Some(running) = ledger.take_running() else { return Ended::default() };
    let spare = running.unjudged();
    let (done, judged) = tokio::sync::oneshot::channel();
    let job = Box::new(move || {
        let _ = done.send(running.finish(end)); // nobody waits any more: the answer went unjudged
    });
    let seen = match ledger.proxy.pool.offer(job) {
        Ok(()) => tokio::time::timeout(JUDGE_PATIENCE, judged).await.ok().and_then(Result::ok),
        Err(_) => None,
    };
    ledger.end_judged(seen.unwrap_or_else(|| spare.finish(end)), end)
}

fn join(mut pieces: VecDeque<Bytes>, bytes: usize) -> Bytes {
    if pieces.len() == 1 {
        return pieces.pop_front().unwrap_or_default();
    }
    let mut whole = Vec::with_capacity(bytes);
    pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
    whole.into()
}
