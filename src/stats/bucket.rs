//! The token bucket: so many at once, and so many a second (ITU-T I.371's leaky bucket as a meter).

use crate::clock::Timestamp;

/// Refills steadily up to its burst. A clock that jumps back refills nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    refill_per_second: f64,
    burst: f64,
    level: f64,
    at: Timestamp,
}

/// A clock set back further than this was corrected; waiting for the old one would stop the refill.
const STEP_BACK_MS: u64 = 60_000;

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub const fn new(refill_per_second: f64, burst: f64, now: Timestamp) -> Self {
        Self { refill_per_second, burst, level: burst, at: now }
    }

    /// Tokens in it at `now`.
    #[must_use]
    pub fn level_at(&self, now: Timestamp) -> f64 {
        let gained = now.ms_since(self.at) as f64 / 1_000.0 * self.refill_per_second;
        (self.level + gained).min(self.burst)
    }

    /// Whether a token could be taken at `now`.
    #[must_use]
    pub fn has_at(&self, now: Timestamp) -> bool {
        self.level_at(now) >= 1.0
    }

    /// Takes one token; false and nothing taken where there is none.
    #[must_use]
    pub fn take(&mut self, now: Timestamp) -> bool {
        self.level = self.level_at(now);
        let corrected = self.at.ms_since(now) > STEP_BACK_MS;
        self.at = if corrected { now } else { self.at.max(now) };
        let taken = self.level >= 1.0;
        if taken {
            self.level -= 1.0;
        }
        taken
    }

    /// Milliseconds until a token can be taken; 0 where one can be now, `None` where it never refills.
    #[must_use]
    pub fn wait_ms(&self, now: Timestamp) -> Option<u64> {
        let lacking = 1.0 - self.level_at(now);
        if lacking <= 0.0 {
            return Some(0);
        }
        (self.refill_per_second > 0.0).then(|| (lacking / self.refill_per_second * 1_000.0).ceil() as u64)
    }

    /// Takes over another rate and burst; what is in it stays.
    pub fn reconfigure(&mut self, refill_per_second: f64, burst: f64, now: Timestamp) {
        *self = Self { refill_per_second, burst, level: self.level_at(now).min(burst), at: self.at.max(now) };
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
    fn the_wait_for_the_next_token_is_told() {
        let mut bucket = Bucket::new(8.0, 2.0, at(0));
        assert_eq!(bucket.wait_ms(at(0)), Some(0));
        assert!(bucket.take(at(0)) && bucket.take(at(0)) && !bucket.take(at(0)));
        assert_eq!(bucket.wait_ms(at(0)), Some(125));
        assert!(bucket.take(at(125)));
        let mut dry = Bucket::new(0.0, 1.0, at(0));
        assert!(dry.take(at(0)));
        assert_eq!(dry.wait_ms(at(9)), None);
    }

    #[test]
    fn a_clock_set_back_a_day_refills_again_from_there() {
        let day = 86_400_000;
        let mut bucket = Bucket::new(1.0, 3.0, at(day));
        while bucket.take(at(2 * day)) {}
        assert!(!bucket.take(at(day)));
        assert!(bucket.take(at(day + 1_000)), "it does not wait for the day that was promised");
    }

    proptest! {
        #[test]
        fn no_window_gives_more_than_burst_and_refill(
            refill in 0.0..50.0f64, burst in 0.0..50.0f64,
            steps in proptest::collection::vec((0u64..2_000, 1usize..20), 1..60),
        ) {
            let mut bucket = Bucket::new(refill, burst, at(0));
            let (mut now, mut taken) = (0, Vec::new());
            for (wait, tries) in steps {
                now += wait;
                taken.extend((0..tries).filter(|_| bucket.take(at(now))).map(|_| now));
            }
            for (i, from) in taken.iter().enumerate() {
                for (j, to) in taken.iter().enumerate().skip(i) {
                    let allowed = burst + refill * (to - from) as f64 / 1_000.0;
                    prop_assert!((j - i + 1) as f64 <= allowed + 1e-6);
                }
            }
        }
    }
}
