//! A sliding window over time, bounded in memory.
//!
//! Holds (time, value) pairs of the last `span_ms`, at most `capacity` of them: under more load than
//! that the oldest leave early, so the window is then shorter in time and never larger in memory.
//! Reads take `now` and do not mutate: what is too old at `now` is not counted, even though it still
//! lies in memory until the next write. A clock that jumps back keeps the newest moment seen.

use std::collections::VecDeque;

use crate::clock::Timestamp;
use crate::stats::quantile;

/// The values of the last `span_ms`.
#[derive(Clone, Debug)]
pub struct TimeWindow {
    span_ms: u64,
    capacity: usize,
    entries: VecDeque<(Timestamp, f64)>,
}

impl TimeWindow {
    /// A window of `span_ms` that never holds more than `capacity` values (each at least 1).
    #[must_use]
    pub fn new(span_ms: u64, capacity: usize) -> Self {
        Self { span_ms: span_ms.max(1), capacity: capacity.max(1), entries: VecDeque::new() }
    }

    /// Adds a value; one that is not finite is left out.
    pub fn record(&mut self, now: Timestamp, value: f64) {
        let at = self.entries.back().map_or(now, |(last, _)| now.max(*last));
        self.expire(at);
        if !value.is_finite() {
            return;
        }
        if self.entries.len() == self.capacity {
            self.entries.pop_front();
        }
        self.entries.push_back((at, value));
    }

    /// Drops what is too old at `now`, to give memory back while nothing is recorded.
    pub fn expire(&mut self, now: Timestamp) {
        while self.entries.front().is_some_and(|(at, _)| self.is_old(*at, now)) {
            self.entries.pop_front();
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
    }

    /// The window's length, milliseconds.
    #[must_use]
    pub const fn span_ms(&self) -> u64 {
        self.span_ms
    }

    /// The values in the window at `now`, oldest first.
    pub fn values(&self, now: Timestamp) -> impl Iterator<Item = f64> + '_ {
        self.entries(now).map(|(_, v)| v)
    }

    /// The values in the window at `now` with their times, oldest first.
    pub fn entries(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, f64)> + '_ {
        self.entries.iter().skip_while(move |(at, _)| self.is_old(*at, now)).copied()
    }

    /// How many values there are at `now`.
    #[must_use]
    pub fn count(&self, now: Timestamp) -> usize {
        self.entries(now).count()
    }

    /// Their sum; 0 if there are none.
    #[must_use]
    pub fn sum(&self, now: Timestamp) -> f64 {
        self.values(now).sum()
    }

    /// Their mean.
    #[must_use]
    pub fn mean(&self, now: Timestamp) -> Option<f64> {
        let (n, sum) = self.values(now).fold((0_u32, 0.0), |(n, sum), v| (n + 1, sum + v));
        (n > 0).then(|| sum / f64::from(n))
    }

    /// Their sample variance; `None` for fewer than two.
    #[must_use]
    pub fn variance(&self, now: Timestamp) -> Option<f64> {
        quantile::variance(&self.collect(now))
    }

    /// Their `q`-quantile.
    #[must_use]
    pub fn quantile(&self, now: Timestamp, q: f64) -> Option<f64> {
        quantile::quantile(&self.collect(now), q)
    }

    /// The largest.
    #[must_use]
    pub fn max(&self, now: Timestamp) -> Option<f64> {
        self.values(now).reduce(f64::max)
    }

    fn collect(&self, now: Timestamp) -> Vec<f64> {
        self.values(now).collect()
    }

    const fn is_old(&self, at: Timestamp, now: Timestamp) -> bool {
        now.ms_since(at) >= self.span_ms
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn old_values_leave_and_reads_do_not_mutate() {
        let mut w = TimeWindow::new(100, 10);
        for (ms, v) in [(0, 1.0), (50, 2.0), (99, 3.0)] {
            w.record(at(ms), v);
        }
        assert_eq!(w.count(at(99)), 3);
        assert_eq!(w.count(at(100)), 2, "the span is half open");
        assert_eq!(w.count(at(1000)), 0);
        assert_eq!(w.count(at(99)), 3, "reading changed nothing");
        assert_eq!(w.mean(at(1000)), None);
        assert!((w.sum(at(100)) - 5.0).abs() < 1e-12);
        assert!((w.quantile(at(99), 0.5).expect("some") - 2.0).abs() < 1e-12);
        assert!((w.variance(at(99)).expect("some") - 1.0).abs() < 1e-12);
        assert_eq!(w.max(at(99)), Some(3.0));
    }

    #[test]
    fn a_clock_that_jumps_back_keeps_order_and_values() {
        let mut w = TimeWindow::new(100, 10);
        w.record(at(500), 1.0);
        w.record(at(3), 2.0);
        assert_eq!(w.entries(at(500)).map(|(t, _)| t.as_millis()).collect::<Vec<_>>(), [500, 500]);
        assert_eq!(w.count(at(3)), 2);
    }

    #[test]
    fn what_is_not_a_number_stays_out() {
        let mut w = TimeWindow::new(100, 10);
        w.record(at(0), f64::NAN);
        w.record(at(0), f64::INFINITY);
        assert_eq!(w.count(at(0)), 0);
        assert_eq!(w.variance(at(0)), None);
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_only_fresh_values_count(steps in prop::collection::vec((0_u64..300, -1e3_f64..1e3), 1..200), capacity in 1_usize..20) {
            let mut w = TimeWindow::new(1000, capacity);
            let mut now = 0;
            let mut all = Vec::new();
            for (step, v) in steps {
                now += step;
                w.record(at(now), v);
                all.push((now, v));
                prop_assert!(w.entries.len() <= capacity);
                let want: Vec<f64> = all.iter().filter(|(t, _)| now - t < 1000).map(|(_, v)| *v).collect();
                let want = &want[want.len().saturating_sub(capacity)..];
                let have: Vec<f64> = w.values(at(now)).collect();
                prop_assert_eq!(have.len(), want.len());
                prop_assert!(have.iter().zip(want).all(|(a, b)| a.total_cmp(b).is_eq()));
            }
        }
    }
}
