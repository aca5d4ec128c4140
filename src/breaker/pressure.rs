//! Backpressure: an upstream that says "not now" is to be left alone for a while, not to be condemned.
//!
//! A refusal starts a cool-down: as long as the upstream asked for, else one second, doubling while
//! refusals go on. Only an episode that has lasted for `backpressure.persist` counts as failure, then
//! with all refusals in the window: at 10 % refused nothing opens, however long; at 60 % the breaker
//! opens when the persistence has passed.

use crate::clock::Timestamp;

use super::Params;

/// After this long without any refusal the next one begins a new episode, milliseconds.
const FORGET_MS: u64 = 120_000;

/// The running episode, if any.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pressure {
    since: Option<Timestamp>,
    last: Timestamp,
    cooling_until: Timestamp,
    doublings: u32,
}

impl Pressure {
    /// A refusal.
    pub(super) fn refused(&mut self, now: Timestamp, retry_after_ms: Option<u64>, params: &Params) {
        if self.since.is_none() || now.ms_since(self.last.max(self.cooling_until)) > FORGET_MS {
            *self = Self { since: Some(now), ..Self::default() };
        }
        // Refusals of calls that were under way when the cool-down began say nothing new.
        let cooled = now >= self.cooling_until;
        let own = params.cool_first_ms.saturating_mul(1 << self.doublings.min(20)).min(params.cool_max_ms);
        let wait = match retry_after_ms {
            Some(ms) => ms.min(params.retry_after_max_ms),
            None if cooled => own,
            None => 0,
        };
        if cooled && retry_after_ms.is_none() {
            self.doublings = (self.doublings + 1).min(20);
        }
        self.cooling_until = self.cooling_until.max(now.plus_ms(wait));
        self.last = now;
    }

    /// An attempt that was served.
    pub(super) fn served(&mut self, now: Timestamp, params: &Params) {
        if now >= self.cooling_until {
            self.doublings = 0;
        }
        if now.ms_since(self.last.max(self.cooling_until)) > params.cool_max_ms {
            *self = Self::default();
        }
    }

    pub(super) fn cooling_until(&self, now: Timestamp) -> Option<Timestamp> {
        (self.cooling_until > now).then_some(self.cooling_until)
    }

    /// Whether refusals count as failures by now.
    pub(super) fn persists(&self, now: Timestamp, params: &Params) -> bool {
        self.since.is_some_and(|since| {
            now.ms_since(since) >= params.persist_ms
                && now.ms_since(self.last.max(self.cooling_until)) <= FORGET_MS
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn the_cool_down_doubles_to_fifteen_seconds_and_starts_anew_after_service() {
        let (p, mut pressure) = (Params::default(), Pressure::default());
        let mut now = 1_000;
        for want in [1_000, 2_000, 4_000, 8_000, 15_000, 15_000] {
            pressure.refused(at(now), None, &p);
            assert_eq!(pressure.cooling_until(at(now)), Some(at(now + want)));
            pressure.refused(at(now + 1), None, &p);
            assert_eq!(pressure.cooling_until(at(now)), Some(at(now + want)), "under way before");
            now += want;
        }
        assert_eq!(pressure.cooling_until(at(now)), None);
        pressure.served(at(now), &p);
        pressure.refused(at(now), None, &p);
        assert_eq!(pressure.cooling_until(at(now)), Some(at(now + 1_000)));
    }

    #[test]
    fn retry_after_wins_and_is_capped() {
        let (p, mut pressure) = (Params::default(), Pressure::default());
        pressure.refused(at(0), Some(7_000), &p);
        assert_eq!(pressure.cooling_until(at(0)), Some(at(7_000)));
        pressure.refused(at(7_000), Some(u64::MAX), &p);
        assert_eq!(pressure.cooling_until(at(7_000)), Some(at(67_000)));
    }

    #[test]
    fn an_episode_persists_after_half_a_minute_and_ends_with_lasting_service() {
        let (p, mut pressure) = (Params::default(), Pressure::default());
        assert!(!pressure.persists(at(0), &p));
        for s in 0..=30 {
            pressure.refused(at(s * 1_000), Some(100), &p);
            pressure.served(at(s * 1_000 + 500), &p);
        }
        assert!(pressure.persists(at(30_000), &p), "service in between does not end it");
        assert!(!pressure.persists(at(400_000), &p), "an hour's silence does");
        pressure.served(at(46_000), &p);
        assert!(!pressure.persists(at(46_000), &p));
    }
}
