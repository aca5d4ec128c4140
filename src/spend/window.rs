//! What was spent, by the minute.

use std::collections::VecDeque;

use super::Nano;
use crate::clock::Timestamp;

pub(super) const MINUTE_MS: u64 = 60_000;
/// Minutes of an hour.
pub(super) const HOUR: u64 = 60;
/// Minutes of a day.
pub(super) const DAY: u64 = 24 * 60;
/// A clock set back further than this was corrected.
const STEP_BACK_MS: u64 = 60_000;

/// Amounts of the last day, a minute each.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    minutes: VecDeque<(u64, Nano)>,
    last: Timestamp,
}

impl Window {
    /// Adds an amount at `now`.
    pub(super) fn add(&mut self, now: Timestamp, amount: Nano) {
        let now = self.advance(now);
        let minute = now.as_millis() / MINUTE_MS;
        match self.minutes.back_mut() {
            Some((last, sum)) if *last >= minute => *sum = sum.plus(amount),
            _ => self.minutes.push_back((minute, amount)),
        }
    }

    /// Puts back what was spent before a restart; `at` in any order.
    pub(super) fn restore(&mut self, at: Timestamp, amount: Nano) {
        let minute = at.as_millis() / MINUTE_MS;
        let place = self.minutes.partition_point(|(m, _)| *m < minute);
        match self.minutes.get_mut(place) {
            Some((m, sum)) if *m == minute => *sum = sum.plus(amount),
            _ => self.minutes.insert(place, (minute, amount)),
        }
        self.last = self.last.max(at);
    }

    /// Sum over the last `minutes`. The one that is partly outside still counts.
    pub(super) fn sum(&self, now: Timestamp, minutes: u64) -> Nano {
        let minute = now.max(self.last).as_millis() / MINUTE_MS;
        self.minutes
            .iter()
            .rev()
            .take_while(|(m, _)| m + minutes >= minute)
            .fold(Nano::ZERO, |sum, (_, x)| sum.plus(*x))
    }

    /// Sum since the beginning of the minute that holds `from`.
    pub(super) fn since(&self, from: Timestamp) -> Nano {
        let first = from.as_millis() / MINUTE_MS;
        self.minutes.iter().rev().take_while(|(m, _)| *m >= first).fold(Nano::ZERO, |s, (_, x)| s.plus(*x))
    }

    /// Milliseconds until at least `needed` of the last `minutes` has left the window.
    pub(super) fn frees_ms(&self, now: Timestamp, minutes: u64, needed: Nano) -> Option<u64> {
        let now = now.max(self.last);
        let minute = now.as_millis() / MINUTE_MS;
        let mut freed = Nano::ZERO;
        for (m, amount) in self.minutes.iter().filter(|(m, _)| m + minutes >= minute) {
            freed = freed.plus(*amount);
            if freed >= needed {
                return Some(((m + minutes + 1) * MINUTE_MS).saturating_sub(now.as_millis()));
            }
        }
        None
    }

    /// Never earlier than before, unless the clock was corrected: then what seems to lie ahead counts as spent
    /// just now, so that nothing is forgotten and nothing waits for the old clock.
    fn advance(&mut self, now: Timestamp) -> Timestamp {
        let minute = now.as_millis() / MINUTE_MS;
        if self.last.ms_since(now) > STEP_BACK_MS {
            let mut ahead = Nano::ZERO;
            while let Some((m, amount)) = self.minutes.back().copied()
                && m >= minute
            {
                ahead = ahead.plus(amount);
                self.minutes.pop_back();
            }
            if ahead > Nano::ZERO {
                self.minutes.push_back((minute, ahead));
            }
            self.last = now;
        }
        self.last = self.last.max(now);
        let minute = self.last.as_millis() / MINUTE_MS;
        while self.minutes.front().is_some_and(|(m, _)| m + DAY < minute) {
            self.minutes.pop_front();
        }
        self.last
    }

    /// Looks whether the clock was corrected.
    pub(super) fn tick(&mut self, now: Timestamp) {
        self.advance(now);
    }
}
