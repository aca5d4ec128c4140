//! `[quality.canary]` and `[quality.burst]`.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::units::{Every, Ms};

/// One a minute: a change is seen within minutes, and 1,440 one-token calls cost cents.
const CANARY_EVERY: Every = Every::Period(Ms(60_000));
/// What a person would shrug at.
const CANARY_USD: f64 = 1.0;
/// One a minute and some room for probes.
const CANARY_CALLS: u32 = 2_000;
/// Servers unload a model after five to fifteen minutes without use.
const IDLE_PAUSE: Ms = Ms(600_000);
/// Four times a day even without suspicion.
const BURST_EVERY: Every = Every::Period(Ms(21_600_000));
/// Fifty items show a loss of 15 points.
const BURST_ITEMS: usize = 50;
/// An undecided burst comes again after five minutes; more than four an hour is load.
const BURSTS_PER_HOUR: usize = 4;
/// Twice the canaries'.
const BURST_USD: f64 = 2.0;

/// More often than ten times a second is load and no probe.
const LEAST_PERIOD_MS: u64 = 100;

/// Why a section cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ParamsError {
    /// Not an amount.
    #[error("max_usd_per_day: write a number of at least 0")]
    Usd,
    /// Too few or many items.
    #[error("items: write a number from 1 to 50")]
    Items,
    /// No burst at all.
    #[error(
        "max_per_hour: must be more than 0; write every = \"off\" and on_suspicion = false for no bursts"
    )]
    PerHour,
    /// A period that is no period.
    #[error("every: must be at least {}ms", LEAST_PERIOD_MS)]
    Every,
}

/// `[quality.canary]` as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenCanary {
    every: Every,
    max_usd_per_day: f64,
    max_calls_per_day: u32,
    idle_pause: Ms,
}

impl Default for WrittenCanary {
    fn default() -> Self {
        Self {
            every: CANARY_EVERY,
            max_usd_per_day: CANARY_USD,
            max_calls_per_day: CANARY_CALLS,
            idle_pause: IDLE_PAUSE,
        }
    }
}

/// `[quality.canary]`: how often one golden canary is sent, and what that may cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenCanary", into = "WrittenCanary")]
pub struct CanaryParams {
    written: WrittenCanary,
}

impl TryFrom<WrittenCanary> for CanaryParams {
    type Error = ParamsError;

    fn try_from(written: WrittenCanary) -> Result<Self, ParamsError> {
        if written.max_usd_per_day.is_nan() || written.max_usd_per_day < 0.0 {
            return Err(ParamsError::Usd);
        }
        if written.every.as_millis().is_some_and(|ms| ms < LEAST_PERIOD_MS) {
            return Err(ParamsError::Every);
        }
        Ok(Self { written })
    }
}

impl From<CanaryParams> for WrittenCanary {
    fn from(params: CanaryParams) -> Self {
        params.written
    }
}

impl CanaryParams {
    /// Period, milliseconds; `None` for off.
    #[must_use]
    pub const fn every_ms(&self) -> Option<u64> {
        self.written.every.as_millis()
    }

    /// Money a day, USD.
    #[must_use]
    pub const fn max_usd_per_day(&self) -> f64 {
        self.written.max_usd_per_day
    }

    /// Calls a day.
    #[must_use]
    pub const fn max_calls_per_day(&self) -> u32 {
        self.written.max_calls_per_day
    }

    /// Without traffic for so long nothing is sent, milliseconds; 0 for never pausing.
    #[must_use]
    pub const fn idle_pause_ms(&self) -> u64 {
        self.written.idle_pause.as_millis()
    }
}

/// `[quality.burst]` as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenBurst {
    every: Every,
    on_suspicion: bool,
    items: usize,
    max_per_hour: usize,
    max_usd_per_day: f64,
}

impl Default for WrittenBurst {
    fn default() -> Self {
        Self {
            every: BURST_EVERY,
            on_suspicion: true,
            items: BURST_ITEMS,
            max_per_hour: BURSTS_PER_HOUR,
            max_usd_per_day: BURST_USD,
        }
    }
}

/// `[quality.burst]`: when a golden burst runs, how long it may get and what it may cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "WrittenBurst", into = "WrittenBurst")]
pub struct BurstParams {
    written: WrittenBurst,
}

impl TryFrom<WrittenBurst> for BurstParams {
    type Error = ParamsError;

    fn try_from(written: WrittenBurst) -> Result<Self, ParamsError> {
        if written.max_usd_per_day.is_nan() || written.max_usd_per_day < 0.0 {
            return Err(ParamsError::Usd);
        }
        if !(1..=BURST_ITEMS).contains(&written.items) {
            return Err(ParamsError::Items);
        }
        if written.max_per_hour == 0 {
            return Err(ParamsError::PerHour);
        }
        if written.every.as_millis().is_some_and(|ms| ms < LEAST_PERIOD_MS) {
            return Err(ParamsError::Every);
        }
        Ok(Self { written })
    }
}

impl From<BurstParams> for WrittenBurst {
    fn from(params: BurstParams) -> Self {
        params.written
    }
}

impl BurstParams {
    /// Period, milliseconds; `None` for off.
    #[must_use]
    pub const fn every_ms(&self) -> Option<u64> {
        self.written.every.as_millis()
    }

    /// Whether suspicion, change and recheck may ask for one.
    #[must_use]
    pub const fn on_suspicion(&self) -> bool {
        self.written.on_suspicion
    }

    /// Items at most.
    #[must_use]
    pub const fn items(&self) -> usize {
        self.written.items
    }

    /// Bursts an hour at most.
    #[must_use]
    pub const fn max_per_hour(&self) -> usize {
        self.written.max_per_hour
    }

    /// Money a day, USD.
    #[must_use]
    pub const fn max_usd_per_day(&self) -> f64 {
        self.written.max_usd_per_day
    }
}
