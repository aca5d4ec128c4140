//! The availability arms: failing share, failures in a row, slow calls, refusals that persist.

use crate::clock::Timestamp;
use crate::sample::Outcome;
use crate::verdict::FaultClass;

use super::pressure::Pressure;
use super::window::{Counts, Window};
use super::{Cause, Params, seconds};

/// A slow share of one or two calls is an accident, whatever the minimum of samples.
const MIN_SLOW: u32 = 3;

/// How an attempt was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// As served.
    Served,
    /// As failed.
    Failed,
    /// As neither (a caller's fault, a refusal).
    Neither,
}

/// What the arms remember.
#[derive(Clone, Debug)]
pub(super) struct Arms {
    window: Window,
    consecutive: u32,
    pressure: Pressure,
    slow_since: Option<Timestamp>,
}

impl Arms {
    pub(super) fn new(params: &Params) -> Self {
        let window = Window::new(params.window_ms);
        Self { window, consecutive: 0, pressure: Pressure::default(), slow_since: None }
    }

    pub(super) fn clear(&mut self) {
        self.window.clear();
        self.consecutive = 0;
        self.pressure = Pressure::default();
        self.slow_since = None;
    }

    pub(super) fn record(&mut self, now: Timestamp, outcome: &Outcome, params: &Params) -> Counted {
        let mut counts = Counts { attempts: 1, ..Counts::default() };
        let counted = match outcome.class {
            Some(FaultClass::Client) => return Counted::Neither,
            Some(FaultClass::Backpressure) if outcome.keyed => return Counted::Neither,
            Some(FaultClass::Backpressure) => {
                self.pressure.refused(now, outcome.retry_after_ms, params);
                counts = Counts { refused: 1, ..Counts::default() };
                if self.pressure.persists(now, params) {
                    self.consecutive = self.consecutive.saturating_add(1);
                }
                Counted::Neither
            }
            Some(FaultClass::Upstream | FaultClass::Slow) => {
                counts.failures = 1;
                self.consecutive = self.consecutive.saturating_add(1);
                Counted::Failed
            }
            _ => {
                self.pressure.served(now, params);
                counts.slow = u32::from(is_over(outcome, params.slow_limit_ms));
                self.consecutive = 0;
                Counted::Served
            }
        };
        self.window.record(now, counts);
        self.note_spike(now, params);
        counted
    }

    pub(super) fn cooling_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.pressure.cooling_until(now)
    }

    pub(super) fn partial_ratio(&self, now: Timestamp, params: &Params) -> Option<f64> {
        let (n, failures, counts) = self.judged(now, params);
        (n >= params.min_attempts).then(|| ratio(failures + counts.slow, n))
    }

    pub(super) fn slow_spike(&self, now: Timestamp, params: &Params) -> bool {
        self.slow_since.is_some() && self.slow_lately(now, params)
    }

    /// The arm that fires now, and why.
    pub(super) fn verdict(&self, now: Timestamp, params: &Params) -> Option<(Cause, String)> {
        let (n, failures, counts) = self.judged(now, params);
        let window = || seconds(params.window_ms); // put into words only for a verdict
        if self.consecutive >= params.consecutive {
            let message = format!(
                "{} failures in a row (limit {}); {failures} of {n} attempts failed in {}",
                self.consecutive,
                params.consecutive,
                window()
            );
            return Some((Cause::ConsecutiveFailures, message));
        }
        if n < params.min_attempts {
            return None;
        }
        if params.failure_count.is_some_and(|limit| failures >= limit) {
            return Some((Cause::FailureCount, format!("{failures} of {n} attempts failed in {}", window())));
        }
        let share = ratio(failures, n);
        if let Some(limit) = params.failure_ratio.filter(|limit| reaches(share, *limit, params)) {
            let (share, limit, window) = (share * 100.0, limit * 100.0, window());
            let message =
                format!("{failures} of {n} attempts failed in {window} ({share:.0} %, limit {limit:.0} %)");
            return Some((Cause::FailureRatio, message));
        }
        let lasted = now.ms_since(self.slow_since?);
        (lasted >= params.slow_persist_ms && self.slow_lately(now, params)).then(|| {
            let (limit, lasted, window) = (seconds(params.slow_limit_ms), seconds(lasted), window());
            let message = format!("{} of {n} calls over {limit} in {window}, for {lasted}", counts.slow);
            (Cause::SlowCalls, message)
        })
    }

    /// Attempts that count, failures among them, and the raw counts. Refusals are neither good nor
    /// bad until they persist; then all of the window are failures.
    fn judged(&self, now: Timestamp, params: &Params) -> (u32, u32, Counts) {
        let counts = self.window.counts(now);
        let refused = if self.pressure.persists(now, params) { counts.refused } else { 0 };
        (counts.attempts + refused, counts.failures + refused, counts)
    }

    fn note_spike(&mut self, now: Timestamp, params: &Params) {
        let (n, _, counts) = self.judged(now, params);
        let spiking = n >= params.min_attempts
            && counts.slow >= MIN_SLOW
            && params.slow_ratio.is_some_and(|limit| ratio(counts.slow, n) >= limit);
        self.slow_since = if spiking { self.slow_since.or(Some(now)) } else { None };
    }

    fn slow_lately(&self, now: Timestamp, params: &Params) -> bool {
        let recent = self.window.recent(now);
        recent.slow > 0 && params.slow_ratio.is_some_and(|limit| ratio(recent.slow, recent.attempts) >= limit)
    }
}

/// Whether the call took longer than `limit_ms`: to first text when streaming, else altogether.
pub(super) fn is_over(outcome: &Outcome, limit_ms: u64) -> bool {
    let took = if outcome.streaming { outcome.timing.ttft_ms } else { Some(outcome.timing.total_ms) };
    took.is_some_and(|ms| ms > limit_ms)
}

fn reaches(share: f64, limit: f64, params: &Params) -> bool {
    if params.failure_ratio_strict { share > limit } else { share >= limit }
}

fn ratio(part: u32, whole: u32) -> f64 {
    if whole == 0 { 0.0 } else { f64::from(part) / f64::from(whole) }
}
