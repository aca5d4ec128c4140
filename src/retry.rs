//! How many further tries a request may cost, and how long they wait.
//!
//! A retry is an extra call on a server that has just failed. Two purses keep retries from becoming
//! the fault: each request has a few tokens, and all requests together draw from one bucket that
//! refills at a steady rate. An empty purse means the next tier or an error at once, never a wait.
//! Waits grow exponentially with full jitter, which spreads simultaneous failures best
//! (M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015). The server's own
//! `Retry-After` wins when it is longer, up to a cap.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::units::Ms;

/// Three further tries end a request's patience, whatever happens.
const TOKENS_PER_REQUEST: u32 = 3;
/// Further tries a second, over all requests.
const REFILL_PER_SECOND: f64 = 10.0;
/// Further tries at once, after a quiet time.
const BURST: f64 = 30.0;
/// First wait.
const BACKOFF_FIRST: Ms = Ms(200);
/// Longest wait.
const BACKOFF_MAX: Ms = Ms::from_secs(10);
/// A longer `Retry-After` is no invitation to wait.
const MAX_WAIT: Ms = Ms::from_secs(5);
/// A model at temperature above 0 deserves one more chance.
const QUALITY_RETRIES: u32 = 1;

/// `[retry]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawParams", into = "RawParams")]
pub struct Params {
    raw: RawParams,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawParams {
    quality_retries: u32,
    max_wait: Ms,
    tokens_per_request: u32,
    refill_per_second: f64,
    burst: f64,
    backoff_first: Ms,
    backoff_max: Ms,
}

impl Default for RawParams {
    fn default() -> Self {
        Self {
            quality_retries: QUALITY_RETRIES,
            max_wait: MAX_WAIT,
            tokens_per_request: TOKENS_PER_REQUEST,
            refill_per_second: REFILL_PER_SECOND,
            burst: BURST,
            backoff_first: BACKOFF_FIRST,
            backoff_max: BACKOFF_MAX,
        }
    }
}

/// Why a retry budget cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// Not a rate or size.
    #[error("{0}: must be a number of at least 0")]
    Number(&'static str),
    /// Waits that shrink.
    #[error("backoff_max: must be at least backoff_first")]
    Backoff,
}

impl TryFrom<RawParams> for Params {
    type Error = ParamsError;

    fn try_from(raw: RawParams) -> Result<Self, ParamsError> {
        for (name, x) in [("refill_per_second", raw.refill_per_second), ("burst", raw.burst)] {
            if !x.is_finite() || x < 0.0 {
                return Err(ParamsError::Number(name));
            }
        }
        if raw.backoff_max < raw.backoff_first {
            return Err(ParamsError::Backoff);
        }
        Ok(Self { raw })
    }
}

impl From<Params> for RawParams {
    fn from(params: Params) -> Self {
        params.raw
    }
}

impl Params {
    /// Further tries at the same target after an unusable answer.
    #[must_use]
    pub const fn quality_retries(&self) -> u32 {
        self.raw.quality_retries
    }

    /// Longest `Retry-After` that is waited for, milliseconds.
    #[must_use]
    pub const fn max_wait_ms(&self) -> u64 {
        self.raw.max_wait.as_millis()
    }

    /// Further tries of one request.
    #[must_use]
    pub const fn tokens_per_request(&self) -> u32 {
        self.raw.tokens_per_request
    }

    /// The wait before the `retry`th further try (from 0), milliseconds: full jitter, where `roll` is
    /// uniform over 0..1.
    #[must_use]
    pub fn backoff_ms(&self, retry: u32, roll: f64) -> u64 {
        let first = self.raw.backoff_first.as_millis();
        let ceiling = first.saturating_mul(1u64 << retry.min(20)).min(self.raw.backoff_max.as_millis());
        (ceiling as f64 * roll.clamp(0.0, 1.0)) as u64
    }
}

/// The bucket that all requests share.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    refill_per_second: f64,
    burst: f64,
    level: f64,
    at: Timestamp,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub fn new(params: &Params, now: Timestamp) -> Self {
        let Params { raw } = params;
        Self { refill_per_second: raw.refill_per_second, burst: raw.burst, level: raw.burst, at: now }
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
        self.at = self.at.max(now);
        let taken = self.level >= 1.0;
        if taken {
            self.level -= 1.0;
        }
        taken
    }

    /// Takes over new parameters; what is in it stays.
    pub fn reconfigure(&mut self, params: &Params, now: Timestamp) {
        self.level = self.level_at(now).min(params.raw.burst);
        self.at = self.at.max(now);
        self.refill_per_second = params.raw.refill_per_second;
        self.burst = params.raw.burst;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_burst_of_thirty_then_ten_a_second() {
        let mut bucket = Bucket::new(&Params::default(), at(0));
        assert_eq!((0..50).filter(|_| bucket.take(at(0))).count(), 30);
        assert!(!bucket.take(at(50)));
        assert_eq!((0..50).filter(|_| bucket.take(at(1_000))).count(), 10);
        assert_eq!(
            (0..50).filter(|_| bucket.take(at(500))).count(),
            0,
            "a clock that jumps back refills nothing"
        );
        assert_eq!((0..99).filter(|_| bucket.take(at(1 << 40))).count(), 30, "never more than the burst");
    }

    #[test]
    fn waits_grow_to_their_cap_and_never_exceed_it() {
        let params = Params::default();
        assert_eq!(params.backoff_ms(0, 1.0), 200);
        assert_eq!(params.backoff_ms(3, 1.0), 1_600);
        assert_eq!(params.backoff_ms(60, 1.0), 10_000);
        assert_eq!(params.backoff_ms(60, 0.0), 0);
        assert!(params.backoff_ms(u32::MAX, f64::NAN) <= 10_000);
    }

    #[test]
    fn shrinking_waits_and_odd_rates_are_refused() {
        assert!(toml::from_str::<Params>("backoff_max = \"1ms\"").is_err());
        assert!(toml::from_str::<Params>("burst = -1.0").is_err());
        assert!(toml::from_str::<Params>("burst = nan").is_err());
        assert!(toml::from_str::<Params>("colour = 1").is_err());
    }
}
