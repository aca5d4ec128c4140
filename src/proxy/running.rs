//! One try under way: its clock, its judge, and which limits it has passed.
//!
//! In shadow mode a limit that runs out is noted and nothing else; in enforce mode the holder of the
//! body acts on it. Either way the try counts as slow.

use bytes::Bytes;

use super::analysis::Watch;
use super::flow::Permit;
use super::money::Purchase;
use crate::clock::Stopwatch;
use crate::gate::ProbeSlot;
use crate::judge::{End, Limit, Progress, Verdict};
use crate::plan::FaultKind;
use crate::upstream::{Failure, FailureKind, Limits};
use crate::verdict::{FaultClass, Flag};

/// The pace of a stream is measured over this time, milliseconds.
const PACE_MS: u64 = 5_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) target: usize,
    pub(super) tier: usize,
    pub(super) generation: u64,
    pub(super) status: Option<u16>,
    pub(super) headers_ms: Option<u64>,
    pub(super) streaming: bool,
    pub(super) retry_after_ms: Option<u64>,
    limits: Limits,
    watch: Stopwatch,
    stopped_ms: Option<u64>,
    judge: Watch,
    late: Option<Limit>,
    has_text: bool,
    terminal: bool,
    /// Events with content so far; about one a token.
    events: u32,
    /// Begin of the stretch over which the pace is measured, and the events before it.
    pace: Option<(u64, u32)>,
    last_progress_ms: u64,
    seen_bytes: u64,
    /// What the try holds, given back when it ends.
    hold: Hold,
}

/// What a try holds while it is under way.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// A live probe's place.
    pub(super) probe: Option<ProbeSlot>,
    /// A call in flight.
    pub(super) permit: Option<Permit>,
    /// Money.
    pub(super) purchase: Option<Purchase>,
    /// Whether it is an extra call on its target.
    pub(super) further: bool,
}

/// A try that has ended and been judged.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) running: Facts,
    pub(super) verdict: Verdict,
    pub(super) class: Option<FaultClass>,
    pub(super) total_ms: u64,
    /// Whether the request can have reached the target at all.
    pub(super) reached: bool,
    pub(super) purchase: Option<Purchase>,
}

/// What remains of a try after its judgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) target: usize,
    pub(super) tier: usize,
    pub(super) generation: u64,
    pub(super) status: Option<u16>,
    pub(super) headers_ms: Option<u64>,
    pub(super) streaming: bool,
    pub(super) retry_after_ms: Option<u64>,
    pub(super) further: bool,
}

impl Running {
    pub(super) fn new((target, tier): (usize, usize), generation: u64, hold: Hold, limits: Limits) -> Self {
        Self {
            target,
            tier,
            generation,
            status: None,
            headers_ms: None,
            streaming: false,
            retry_after_ms: None,
            limits,
            watch: Stopwatch::start(),
            stopped_ms: None,
            judge: Watch::blind(),
            late: None,
            has_text: false,
            terminal: false,
            events: 0,
            pace: None,
            last_progress_ms: 0,
            seen_bytes: 0,
            hold,
        }
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        self.stopped_ms.unwrap_or_else(|| self.watch.elapsed_ms())
    }

    pub(super) fn has_text(&self) -> bool {
        self.has_text
    }

    pub(super) fn last_progress_ms(&self) -> u64 {
        self.last_progress_ms
    }

    pub(super) fn seen_bytes(&self) -> u64 {
        self.seen_bytes
    }

    pub(super) fn is_streaming(&self) -> bool {
        self.streaming
    }

    pub(super) fn lacks_terminal(&self) -> bool {
        self.streaming && self.judge.sees() && !self.terminal && self.status.is_some_and(|s| s < 300)
    }

    pub(super) fn stop_watch(&mut self) {
        self.stopped_ms = Some(self.watch.elapsed_ms());
    }

    pub(super) fn give_up_judging(&mut self) {
        self.judge.give_up();
    }

    pub(super) fn head(&mut self, status: u16, judge: Watch, streaming: bool, retry_after_ms: Option<u64>) {
        let now = self.watch.elapsed_ms();
        self.status = Some(status);
        self.judge = judge;
        self.streaming = streaming;
        self.retry_after_ms = retry_after_ms;
        self.headers_ms = Some(now);
        self.last_progress_ms = now;
        if streaming && u128::from(now) > self.limits.headers().as_millis() {
            self.late.get_or_insert(Limit::Headers);
        }
    }

    pub(super) fn saw(&mut self, piece: &Bytes) -> Progress {
        let now = self.watch.elapsed_ms();
        self.seen_bytes += piece.len() as u64;
        let progress = self.judge.push(now, piece);
        // Servers send streams under the name of JSON, too.
        self.streaming |= progress.is_stream;
        if self.streaming {
            self.note_limits(now, progress);
        }
        self.has_text |= progress.has_content;
        self.terminal |= progress.terminal;
        self.events = self.events.saturating_add(progress.events);
        if self.has_text && self.limits.min_tokens_per_second() > 0.0 {
            self.pace.get_or_insert((now, self.events));
        }
        if progress.progressed || progress.terminal {
            self.last_progress_ms = now;
        }
        progress
    }

    /// Where the answer stands with all its text read.
    pub(super) fn catch_up(&mut self) -> Progress {
        self.judge.catch_up()
    }

    /// Events with content so far; about one a token.
    pub(super) fn events(&self) -> u32 {
        self.events
    }

    /// When the pace of the stream is looked at next, milliseconds from the start of the try.
    pub(super) fn pace_due_ms(&self) -> Option<u64> {
        self.pace.filter(|_| !self.terminal).map(|(since, _)| since + PACE_MS)
    }

    /// Whether fewer tokens than the limit have come since the pace was looked at last; the next stretch begins.
    pub(super) fn crawls(&mut self) -> bool {
        let Some((_, before)) = self.pace else { return false };
        self.pace = Some((self.elapsed_ms(), self.events));
        let least = self.limits.min_tokens_per_second() * PACE_MS as f64 / 1_000.0;
        f64::from(self.events - before) < least
    }

    fn note_limits(&mut self, now: u64, progress: Progress) {
        let headers = self.headers_ms.unwrap_or(0);
        let past = |since: u64, limit: std::time::Duration| {
            u128::from(now.saturating_sub(since)) > limit.as_millis()
        };
        if !self.has_text && progress.has_content && past(headers, self.limits.first_text()) {
            self.late.get_or_insert(Limit::FirstText);
        }
        if self.has_text && progress.progressed && past(self.last_progress_ms, self.limits.stream_idle()) {
            self.late.get_or_insert(Limit::StreamIdle);
        }
    }

    /// Judges what came.
    pub(super) fn finish(mut self, end: End) -> Seen {
        let total_ms = self.elapsed_ms();
        self.note_silence(total_ms, end);
        let facts = self.facts();
        let blind = !self.judge.sees();
        let mut verdict = self.judge.finish(total_ms, end);
        if matches!(self.late, Some(Limit::FirstText | Limit::StreamIdle)) {
            verdict.flags.insert(Flag::Stall);
        }
        let floor = self.limits.min_tokens_per_second();
        let crawls = floor > 0.0 && verdict.tokens_per_second.is_some_and(|rate| rate < floor);
        let late = self.late.is_some() || crawls;
        if blind && end == End::Broken {
            verdict.flags.insert(if self.streaming { Flag::StreamIncomplete } else { Flag::BodyTruncated });
        }
        let class = class_of(self.status, &verdict, end, late);
        let purchase = self.hold.end(class);
        Seen { running: facts, verdict, class, total_ms, reached: true, purchase }
    }

    /// A limit that ran out while nothing came at all.
    fn note_silence(&mut self, now: u64, end: End) {
        let past = |since: u64, limit: std::time::Duration| {
            u128::from(now.saturating_sub(since)) > limit.as_millis()
        };
        if past(0, self.limits.total()) {
            self.late.get_or_insert(Limit::Total);
        }
        if !matches!(end, End::ClientGone | End::Broken) {
            return;
        }
        match self.headers_ms {
            None if past(0, self.limits.headers()) => self.late.get_or_insert(Limit::Headers),
            Some(at) if self.streaming && !self.has_text && past(at, self.limits.first_text()) => {
                self.late.get_or_insert(Limit::FirstText)
            }
            Some(_)
                if self.streaming
                    && self.has_text
                    && past(self.last_progress_ms, self.limits.stream_idle()) =>
            {
                self.late.get_or_insert(Limit::StreamIdle)
            }
            _ => return,
        };
    }

    /// There was no answer to judge.
    pub(super) fn lost(mut self, failure: &Failure, class: FaultClass) -> Seen {
        let total_ms = self.elapsed_ms();
        let mut verdict = Verdict { error: Some(failure.message.clone()), ..Verdict::default() };
        if failure.kind == FailureKind::HeadersTimeout {
            verdict.flags.insert(Flag::Stall);
        }
        let purchase = self.hold.end(Some(class));
        let reached = !failure.kind.is_before_sending();
        Seen { running: self.facts(), verdict, class: Some(class), total_ms, reached, purchase }
    }

    /// The same try without its judge, for when that cannot be waited for.
    pub(super) fn unjudged(&self) -> Self {
        Self { judge: Watch::given_up(), hold: Hold::default(), ..*self }
    }

    fn facts(&self) -> Facts {
        Facts {
            target: self.target,
            tier: self.tier,
            generation: self.generation,
            status: self.status,
            headers_ms: self.headers_ms,
            streaming: self.streaming,
            retry_after_ms: self.retry_after_ms,
            further: self.hold.further,
        }
    }
}

impl Hold {
    /// Gives everything back but the money, which is still to be settled.
    fn end(&mut self, class: Option<FaultClass>) -> Option<Purchase> {
        if let Some(mut permit) = self.permit.take() {
            match class {
                Some(FaultClass::Upstream | FaultClass::Slow | FaultClass::Backpressure) => {
                    permit.ended(false)
                }
                Some(FaultClass::Client) => {}
                _ => permit.ended(true),
            }
        }
        self.probe = None;
        self.purchase.take()
    }
}

/// Whose fault the try was. A caller that left is no fault of the target, unless a limit had run out before.
fn class_of(status: Option<u16>, verdict: &Verdict, end: End, late: bool) -> Option<FaultClass> {
    if end == End::ClientGone {
        return Some(if late { FaultClass::Slow } else { FaultClass::Client });
    }
    let by_status = || status.and_then(FaultKind::of_status).map(FaultKind::class);
    let by_end = || match end {
        End::Broken => Some(FaultClass::Upstream),
        End::TimedOut(_) => Some(FaultClass::Slow),
        End::Complete | End::ClientGone | End::Stopped => None,
    };
    let class = verdict.class.or_else(by_status).or_else(by_end);
    match class {
        None | Some(FaultClass::Info | FaultClass::QualitySoft) if late => Some(FaultClass::Slow),
        class => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_leaves_is_no_fault_unless_it_waited_past_a_limit() {
        let verdict = Verdict::default();
        assert_eq!(class_of(None, &verdict, End::ClientGone, false), Some(FaultClass::Client));
        assert_eq!(class_of(None, &verdict, End::ClientGone, true), Some(FaultClass::Slow));
    }

    #[test]
    fn without_a_verdict_the_status_and_the_end_decide() {
        let verdict = Verdict::default();
        assert_eq!(class_of(Some(200), &verdict, End::Complete, false), None);
        assert_eq!(class_of(Some(500), &verdict, End::Complete, false), Some(FaultClass::Upstream));
        assert_eq!(class_of(Some(429), &verdict, End::Complete, false), Some(FaultClass::Backpressure));
        assert_eq!(class_of(Some(404), &verdict, End::Complete, false), Some(FaultClass::Client));
        assert_eq!(class_of(Some(200), &verdict, End::Broken, false), Some(FaultClass::Upstream));
        assert_eq!(class_of(Some(200), &verdict, End::Complete, true), Some(FaultClass::Slow));
    }
}
