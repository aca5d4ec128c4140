//! `[quality]`: canaries, bursts, calibration and arms of the quality side, by default and per target.
//!
//! What a target writes under `[target.quality]` is laid over what the file writes under `[quality]`,
//! key by key, before either is read; so one set of rules checks both.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::detect::border::search::{FEWEST, MOST};
use crate::detect::selftest::RESAMPLES;
use crate::detect::{self, calibration::Effort};
use crate::schedule::{BurstParams, CanaryParams};
use crate::units::Ms;

/// So many canaries and burst runs are enough to keep the promised false-alarm rate; see `Effort`.
const CANARIES: u32 = 400;
/// Re-runs tell the noise of one prompt.
const BURST_RUNS: u32 = 3;
/// A burst's bound.
const BURST_PROMPTS: usize = 50;
/// One to three thousand calls more are spent on an operator's word only.
const BORDER: u32 = 0;
/// Four calls a second at most are not felt by the traffic that calibration shares the target with.
const PACE: Ms = Ms(250);

/// `[quality]`, read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quality {
    canary: CanaryParams,
    burst: BurstParams,
    calibration: Calibration,
    arms: detect::Params,
}

/// `[quality.calibration]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawCalibration", into = "RawCalibration")]
pub struct Calibration {
    raw: RawCalibration,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawCalibration {
    canaries: u32,
    burst_runs: u32,
    burst_prompts: usize,
    pace: Ms,
    resamples: u32,
    border: u32,
}

impl Default for RawCalibration {
    fn default() -> Self {
        Self {
            canaries: CANARIES,
            burst_runs: BURST_RUNS,
            burst_prompts: BURST_PROMPTS,
            pace: PACE,
            resamples: RESAMPLES,
            border: BORDER,
        }
    }
}

/// Why `[quality.calibration]` is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalibrationError {
    /// One run tells nothing about re-runs.
    #[error("burst_runs: must be from 2 to 20")]
    Runs,
    /// More than a burst may have.
    #[error("burst_prompts: must be at most {BURST_PROMPTS}")]
    Prompts,
    /// A day of calls.
    #[error("canaries: must be at most 10000")]
    Canaries,
    /// Too few say nothing, too many take minutes.
    #[error("resamples: must be from 20 to 10000")]
    Resamples,
    /// Too few show nothing, too many are a round that takes an hour.
    #[error("border: must be 0 or from {FEWEST} to {MOST}")]
    Border,
    /// Calibration would never end.
    #[error("pace: must be at most 1m")]
    Pace,
}

impl TryFrom<RawCalibration> for Calibration {
    type Error = CalibrationError;

    fn try_from(raw: RawCalibration) -> Result<Self, CalibrationError> {
        if !(2..=20).contains(&raw.burst_runs) {
            return Err(CalibrationError::Runs);
        }
        if raw.burst_prompts > BURST_PROMPTS {
            return Err(CalibrationError::Prompts);
        }
        if raw.canaries > 10_000 {
            return Err(CalibrationError::Canaries);
        }
        if !(20..=10_000).contains(&raw.resamples) {
            return Err(CalibrationError::Resamples);
        }
        if raw.border != 0 && !(FEWEST..=MOST).contains(&raw.border) {
            return Err(CalibrationError::Border);
        }
        if raw.pace > Ms::from_secs(60) {
            return Err(CalibrationError::Pace);
        }
        Ok(Self { raw })
    }
}

impl From<Calibration> for RawCalibration {
    fn from(calibration: Calibration) -> Self {
        calibration.raw
    }
}

impl Quality {
    /// How often canaries are sent and what they may cost.
    #[must_use]
    pub const fn canary(&self) -> &CanaryParams {
        &self.canary
    }

    /// When bursts run and what they may cost.
    #[must_use]
    pub const fn burst(&self) -> &BurstParams {
        &self.burst
    }

    /// Whether nothing of the daemon's own is ever asked, so that only live answers can show a change.
    pub(super) const fn is_blind(&self) -> bool {
        self.canary.every_ms().is_none() && self.burst.every_ms().is_none() && !self.burst.on_suspicion()
    }

    /// How much is asked of a target to calibrate.
    #[must_use]
    pub fn effort(&self) -> Effort {
        let raw = &self.calibration.raw;
        Effort {
            burst_runs: raw.burst_runs,
            burst_prompts: raw.burst_prompts,
            canaries: raw.canaries,
            resamples: raw.resamples,
            border: raw.border,
        }
    }

    /// Pause between two calls of a calibration in the background.
    #[must_use]
    pub fn pace(&self) -> Duration {
        self.calibration.raw.pace.as_duration()
    }

    /// Which arms run.
    #[must_use]
    pub const fn detect(&self) -> &detect::Params {
        &self.arms
    }
}

/// `over` laid over `base`, table by table.
pub(super) fn lay_over(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                lay_over(base.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}
