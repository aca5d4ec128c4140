//! Exponentially weighted moving average over unevenly spaced observations.
//!
//! The weight of an observation halves every `half_life_ms`, so a burst of observations at one moment
//! and a slow trickle are treated alike. Reads do not mutate. A `now` that is older than the last
//! means that no time has passed.

use crate::clock::Timestamp;

/// Time-weighted moving average.
#[derive(Clone, Copy, Debug)]
pub struct Ewma {
    half_life_ms: f64,
    state: Option<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    at: Timestamp,
    /// Σ w·x and Σ w, both as of `at`.
    sum: f64,
    weight: f64,
}

impl Ewma {
    /// An average that forgets half in `half_life_ms` (at least 1 ms).
    #[must_use]
    pub fn new(half_life_ms: u64) -> Self {
        #[allow(clippy::cast_precision_loss)] // durations far below 2^52 ms
        let half_life_ms = half_life_ms.max(1) as f64;
        Self { half_life_ms, state: None }
    }

    /// Adds an observation; one that is not finite is left out.
    pub fn record(&mut self, now: Timestamp, value: f64) {
        if !value.is_finite() {
            return;
        }
        let old = self.state.map_or((0.0, 0.0, now), |s| {
            let keep = self.decay(s.at, now);
            (s.sum * keep, s.weight * keep, now.max(s.at))
        });
        self.state = Some(State { sum: old.0 + value, weight: old.1 + 1.0, at: old.2 });
    }

    /// The average; it does not change while nothing is recorded. `None` before the first observation.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        self.state.filter(|s| s.weight > f64::MIN_POSITIVE).map(|s| s.sum / s.weight)
    }

    /// How much evidence the average rests on at `now`: the sum of the weights, an effective count.
    #[must_use]
    pub fn weight_at(&self, now: Timestamp) -> f64 {
        self.state.map_or(0.0, |s| s.weight * self.decay(s.at, now))
    }

    fn decay(&self, from: Timestamp, to: Timestamp) -> f64 {
        #[allow(clippy::cast_precision_loss)] // differences far below 2^52 ms
        let passed = to.ms_since(from) as f64;
        (-passed / self.half_life_ms * std::f64::consts::LN_2).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn the_weight_halves_in_a_half_life() {
        let mut mean = Ewma::new(1000);
        assert_eq!(mean.value(), None);
        mean.record(at(0), 0.0);
        mean.record(at(1000), 3.0);
        // weights 0.5 and 1
        assert!((mean.value().expect("recorded") - 2.0).abs() < 1e-12);
        assert!((mean.weight_at(at(1000)) - 1.5).abs() < 1e-12);
        assert!((mean.weight_at(at(2000)) - 0.75).abs() < 1e-12);
    }

    #[test]
    fn a_clock_that_jumps_back_means_no_time_passed() {
        let mut mean = Ewma::new(1000);
        mean.record(at(5000), 1.0);
        mean.record(at(10), 3.0);
        assert!((mean.value().expect("recorded") - 2.0).abs() < 1e-12);
        assert!((mean.weight_at(at(5000)) - 2.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_not_a_number_is_left_out_and_ages_do_not_break_it() {
        let mut mean = Ewma::new(1);
        mean.record(at(0), f64::NAN);
        assert_eq!(mean.value(), None);
        mean.record(at(0), 7.0);
        mean.record(at(u64::MAX), 9.0);
        assert!((mean.value().expect("recorded") - 9.0).abs() < 1e-12);
        assert!(mean.weight_at(at(u64::MAX)) <= 1.0 + 1e-12);
    }
}
