//! `[retry]`.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::stats::Bucket;
use crate::units::Ms;

/// Three further tries end a request's patience, whatever happens.
const TOKENS_PER_REQUEST: u32 = 3;
/// And that of a whole pipeline run, whose steps would otherwise multiply them.
const TOKENS_PER_WORKFLOW: u32 = 3;
/// Further tries a second, over all requests.
const REFILL_PER_SECOND: f64 = 10.0;
/// Further tries at once, after a quiet time.
const BURST: f64 = 30.0;
/// A fifth more load is what a server that struggles can still take.
const TARGET_RATIO: f64 = 0.2;
/// Long enough to count, short enough to follow.
const TARGET_WINDOW: Ms = Ms::from_secs(10);
/// A quiet target must be allowed its retries too.
const TARGET_FLOOR: f64 = 10.0;
/// A retry that much slower than the usual answer meets a queue.
const PENALTY_OVER: Ms = Ms::from_secs(2);
/// One such retry halves the refill for a minute.
const PENALTY_FOR: Ms = Ms::from_secs(60);
/// Of twenty retries fewer than six successes: they only add load.
const WASTE_BELOW: f64 = 0.3;
/// Fewer retries say nothing.
const WASTE_MIN: u32 = 20;
/// Waste is looked at over this time.
const WASTE_WINDOW: Ms = Ms::from_secs(60);
/// So many of the last twenty first tries must succeed before retries are allowed again.
const WASTE_RECOVERY: f64 = 0.8;
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
pub(super) struct RawParams {
    quality_retries: u32,
    max_wait: Ms,
    tokens_per_request: u32,
    tokens_per_workflow: u32,
    refill_per_second: f64,
    burst: f64,
    pub(super) target_ratio: f64,
    pub(super) target_window: Ms,
    pub(super) target_floor_per_second: f64,
    pub(super) penalty_over: Ms,
    pub(super) penalty_for: Ms,
    pub(super) waste_below: f64,
    pub(super) waste_min: u32,
    pub(super) waste_window: Ms,
    pub(super) waste_recovery: f64,
    backoff_first: Ms,
    backoff_max: Ms,
}

impl Default for RawParams {
    fn default() -> Self {
        Self {
            quality_retries: QUALITY_RETRIES,
            max_wait: MAX_WAIT,
            tokens_per_request: TOKENS_PER_REQUEST,
            tokens_per_workflow: TOKENS_PER_WORKFLOW,
            refill_per_second: REFILL_PER_SECOND,
            burst: BURST,
            target_ratio: TARGET_RATIO,
            target_window: TARGET_WINDOW,
            target_floor_per_second: TARGET_FLOOR,
            penalty_over: PENALTY_OVER,
            penalty_for: PENALTY_FOR,
            waste_below: WASTE_BELOW,
            waste_min: WASTE_MIN,
            waste_window: WASTE_WINDOW,
            waste_recovery: WASTE_RECOVERY,
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
    /// Not a share.
    #[error("{0}: must be a share from 0 to 1")]
    Share(&'static str),
    /// A window or count that holds nothing.
    #[error("{0}: must be more than nothing")]
    Zero(&'static str),
    /// Waits that shrink.
    #[error("backoff_max: must be at least backoff_first")]
    Backoff,
}

impl TryFrom<RawParams> for Params {
    type Error = ParamsError;

    fn try_from(raw: RawParams) -> Result<Self, ParamsError> {
        for (name, x) in [
            ("refill_per_second", raw.refill_per_second),
            ("burst", raw.burst),
            ("target_ratio", raw.target_ratio),
            ("target_floor_per_second", raw.target_floor_per_second),
        ] {
            if !x.is_finite() || x < 0.0 {
                return Err(ParamsError::Number(name));
            }
        }
        for (name, x) in [("waste_below", raw.waste_below), ("waste_recovery", raw.waste_recovery)] {
            if !(0.0..=1.0).contains(&x) {
                return Err(ParamsError::Share(name));
            }
        }
        for (name, x) in [("target_window", raw.target_window.0), ("waste_window", raw.waste_window.0)] {
            if x < 10 {
                return Err(ParamsError::Zero(name));
            }
        }
        if raw.waste_min == 0 {
            return Err(ParamsError::Zero("waste_min"));
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
    pub(super) const fn raw(&self) -> &RawParams {
        &self.raw
    }

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

    /// Further tries of one workflow.
    #[must_use]
    pub const fn tokens_per_workflow(&self) -> u32 {
        self.raw.tokens_per_workflow
    }

    /// Refill a second and burst of the bucket that all requests share.
    #[must_use]
    pub const fn shared(&self) -> (f64, f64) {
        (self.raw.refill_per_second, self.raw.burst)
    }

    /// The bucket that all requests share, full.
    #[must_use]
    pub const fn bucket(&self, now: Timestamp) -> Bucket {
        Bucket::new(self.raw.refill_per_second, self.raw.burst, now)
    }

    /// Whether no further try is ever made at the same tier.
    #[must_use]
    pub fn never_retries(&self) -> bool {
        let raw = &self.raw;
        let target = raw.target_ratio <= 0.0 && raw.target_floor_per_second <= 0.0;
        raw.tokens_per_request == 0 || raw.burst < 1.0 || target
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
