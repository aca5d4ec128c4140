//! Attempts of the last minute, counted in slices of time, so that a window under any load holds the
//! same few numbers. The oldest slice leaves whole: the window's length is exact to one slice.

use std::collections::VecDeque;

use crate::clock::Timestamp;

/// One sixtieth of the window is finer than anything that is decided on it.
const SLICES: u64 = 60;

/// What happened in a slice, or in the whole window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Attempts that count, refusals by backpressure left out.
    pub(super) attempts: u32,
    /// Failed ones among them.
    pub(super) failures: u32,
    /// Slow ones among them that did not fail.
    pub(super) slow: u32,
    /// Attempts refused by backpressure.
    pub(super) refused: u32,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.attempts = self.attempts.saturating_add(other.attempts);
        self.failures = self.failures.saturating_add(other.failures);
        self.slow = self.slow.saturating_add(other.slow);
        self.refused = self.refused.saturating_add(other.refused);
    }
}

/// A sliding window of [`Counts`].
#[derive(Clone, Debug)]
pub(super) struct Window {
    slice_ms: u64,
    slices: VecDeque<(u64, Counts)>,
}

impl Window {
    pub(super) fn new(span_ms: u64) -> Self {
        Self { slice_ms: (span_ms / SLICES).max(1), slices: VecDeque::new() }
    }

    pub(super) fn record(&mut self, now: Timestamp, counts: Counts) {
        let index = self.index(now).max(self.slices.back().map_or(0, |(i, _)| *i));
        while self.slices.front().is_some_and(|(i, _)| i + SLICES <= index) {
            self.slices.pop_front();
        }
        match self.slices.back_mut() {
            Some((last, sum)) if *last == index => sum.add(counts),
            _ => self.slices.push_back((index, counts)),
        }
    }

    /// The whole window.
    pub(super) fn counts(&self, now: Timestamp) -> Counts {
        self.newest(now, SLICES)
    }

    /// Its newest sixth.
    pub(super) fn recent(&self, now: Timestamp) -> Counts {
        self.newest(now, SLICES / 6)
    }

    fn newest(&self, now: Timestamp, slices: u64) -> Counts {
        let index = self.index(now);
        let mut sum = Counts::default();
        for (_, counts) in self.slices.iter().filter(|(i, _)| i + slices > index) {
            sum.add(*counts);
        }
        sum
    }

    pub(super) fn clear(&mut self) {
        self.slices.clear();
    }

    const fn index(&self, now: Timestamp) -> u64 {
        now.as_millis() / self.slice_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Counts = Counts { attempts: 1, failures: 1, slow: 0, refused: 0 };

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn what_is_older_than_the_span_is_gone_and_memory_is_bounded() {
        let mut w = Window::new(60_000);
        assert_eq!(w.counts(at(0)), Counts::default());
        for s in 0..1_000 {
            w.record(at(s * 500), ONE);
        }
        assert!(w.slices.len() <= 60);
        assert_eq!(w.counts(at(499_999)).attempts, 120);
        assert_eq!(w.counts(at(10_000_000)), Counts::default());
        assert_eq!(w.counts(at(499_999)).attempts, 120, "reading changes nothing");
        w.clear();
        assert_eq!(w.counts(at(499_999)), Counts::default());
    }

    #[test]
    fn a_clock_that_jumps_back_puts_the_attempt_into_the_newest_slice() {
        let mut w = Window::new(1_000);
        w.record(at(5_000), ONE);
        w.record(at(10), ONE);
        assert_eq!(w.counts(at(5_000)).attempts, 2);
    }

    #[test]
    fn a_tiny_span_still_works() {
        let mut w = Window::new(0);
        w.record(at(7), ONE);
        assert_eq!(w.counts(at(7)).attempts, 1);
    }
}
