//! `[breaker]`: presets, single values, and values per target.
//!
//! An [`Overlay`] is what a person wrote; [`Params`] is a preset with an overlay laid over it and every
//! value checked. `[target.breaker]` is an overlay over the daemon's own `[breaker]`; if it names a
//! preset, it starts from that preset instead.

use serde::Deserialize;
use thiserror::Error;

use crate::units::Ms;

use super::overlay::{
    BackpressureOverlay, DegradeOverlay, HalfOpenOverlay, Overlay, Preset, RampOverlay, SlowOverlay,
};

/// One minute holds enough attempts to judge and forgets fast enough to recover.
const WINDOW_MS: u64 = 60_000;
/// Below 20 attempts a share of one half is within chance of a small failure rate.
const MIN_ATTEMPTS: u32 = 20;
/// Five in a row have a chance of 1 in 100,000 at a failure rate of one tenth.
const CONSECUTIVE: u32 = 5;
/// A fifth of the default whole-time limit of an answer (5 minutes).
const SLOW_LIMIT_MS: u64 = 60_000;
/// A flushed prompt cache slows everything for about 30 s; only what lasts longer is a fault.
const SLOW_PERSIST_MS: u64 = 45_000;
/// Short enough that a restarted server is found within a minute.
const OPEN_MS: u64 = 30_000;
/// Long enough to leave a dead server alone, short enough to notice its return.
const OPEN_MAX_MS: u64 = 120_000;
/// A fifth spreads many instances over a quarter of a minute.
const JITTER: f64 = 0.2;
/// After five quiet minutes the next opening is a new incident.
const CLEAN_MS: u64 = 300_000;
/// A server that cannot answer three short prompts in a minute is not back.
const HALF_OPEN_LIMIT_MS: u64 = 60_000;
/// Fifty items of 24 tokens on a slow machine.
const BURST_LIMIT_MS: u64 = 600_000;
/// A probe near the limit would be over it under load.
const PROBE_LATENCY_SHARE: f64 = 0.6;
/// Ten seconds a step: full share half a minute after closing.
const RAMP_STEP_MS: u64 = 10_000;
/// Careful at first, then doubling.
const RAMP: [f64; 4] = [0.10, 0.25, 0.50, 1.0];
/// Half a minute of refusals is load, more is a fault.
const PERSIST_MS: u64 = 30_000;
/// First cool-down where the upstream names none.
const COOL_FIRST_MS: u64 = 1_000;
/// Largest cool-down of one's own making.
const COOL_MAX_MS: u64 = 15_000;
/// A server may ask for a minute; more is the breaker's business.
const RETRY_AFTER_MAX_MS: u64 = 60_000;
/// Open past due for this long without half-opening means that something stood still.
const WATCHDOG_MS: u64 = 10_000;
/// The share at which the last target stays admitted though degraded.
const LAST_TARGET_SHARE: f64 = 0.2;
/// Above this many tokens a request is not small any more.
const DEGRADE_INPUT_TOKENS: u64 = 4_096;
/// Above this many inputs a batch is not small any more.
const DEGRADE_BATCH: u32 = 8;

/// Why a `[breaker]` cannot be.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ParamsError {
    /// A share outside its range.
    #[error("{key}: {value} is not a share; write a number above 0 and at most 1")]
    Share {
        /// Which key.
        key: &'static str,
        /// What was written.
        value: f64,
    },
    /// A count or duration of zero.
    #[error("{0}: must be more than 0")]
    Zero(&'static str),
    /// Two values that exclude each other.
    #[error("{0}")]
    Order(&'static str),
}

/// The breaker's checked values. Durations in milliseconds, shares 0..=1.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Overlay")]
pub struct Params {
    pub(super) preset: Preset,
    pub(super) window_ms: u64,
    pub(super) failure_ratio: Option<f64>,
    /// Whether the share must be passed (`> 12 %`) and not only reached (`≥ 50 %`).
    pub(super) failure_ratio_strict: bool,
    pub(super) failure_count: Option<u32>,
    pub(super) min_attempts: u32,
    pub(super) consecutive: u32,
    pub(super) degrade_at: Option<f64>,
    pub(super) open_ms: u64,
    pub(super) open_max_ms: u64,
    pub(super) jitter: f64,
    pub(super) clean_ms: u64,
    pub(super) watchdog_ms: u64,
    pub(super) allow_last: bool,
    pub(super) last_target_share: f64,
    pub(super) slow_limit_ms: u64,
    pub(super) slow_ratio: Option<f64>,
    pub(super) slow_persist_ms: u64,
    pub(super) probes: u32,
    pub(super) successes: u32,
    pub(super) half_open_limit_ms: u64,
    pub(super) burst_limit_ms: u64,
    pub(super) latency_share: f64,
    pub(super) ramp_step_ms: u64,
    pub(super) persist_ms: u64,
    pub(super) cool_first_ms: u64,
    pub(super) cool_max_ms: u64,
    pub(super) retry_after_max_ms: u64,
    pub(super) degrade_input_tokens: u64,
    pub(super) degrade_batch: u32,
}

impl Default for Params {
    fn default() -> Self {
        Self::preset(Preset::Llm)
    }
}

impl TryFrom<Overlay> for Params {
    type Error = ParamsError;

    fn try_from(overlay: Overlay) -> Result<Self, ParamsError> {
        Self::default().with(&overlay)
    }
}

impl Params {
    /// The values of a preset.
    #[must_use]
    pub const fn preset(preset: Preset) -> Self {
        let llm = Self {
            preset,
            window_ms: WINDOW_MS,
            failure_ratio: Some(0.5),
            failure_ratio_strict: false,
            failure_count: None,
            min_attempts: MIN_ATTEMPTS,
            consecutive: CONSECUTIVE,
            degrade_at: Some(0.20),
            open_ms: OPEN_MS,
            open_max_ms: OPEN_MAX_MS,
            jitter: JITTER,
            clean_ms: CLEAN_MS,
            watchdog_ms: WATCHDOG_MS,
            allow_last: false,
            last_target_share: LAST_TARGET_SHARE,
            slow_limit_ms: SLOW_LIMIT_MS,
            slow_ratio: Some(0.5),
            slow_persist_ms: SLOW_PERSIST_MS,
            probes: 3,
            successes: 3,
            half_open_limit_ms: HALF_OPEN_LIMIT_MS,
            burst_limit_ms: BURST_LIMIT_MS,
            latency_share: PROBE_LATENCY_SHARE,
            ramp_step_ms: RAMP_STEP_MS,
            persist_ms: PERSIST_MS,
            cool_first_ms: COOL_FIRST_MS,
            cool_max_ms: COOL_MAX_MS,
            retry_after_max_ms: RETRY_AFTER_MAX_MS,
            degrade_input_tokens: DEGRADE_INPUT_TOKENS,
            degrade_batch: DEGRADE_BATCH,
        };
        match preset {
            Preset::Llm => llm,
            Preset::Gateway => Self {
                failure_ratio: Some(0.12),
                failure_ratio_strict: true,
                degrade_at: Some(0.05),
                slow_limit_ms: 4_500,
                slow_ratio: Some(0.01),
                probes: 1,
                successes: 1,
                ..llm
            },
            Preset::Classic => Self {
                failure_ratio: None,
                failure_count: Some(5),
                min_attempts: 5,
                degrade_at: None,
                slow_ratio: None,
                probes: 3,
                successes: 2,
                ..llm
            },
        }
    }

    /// These values with `overlay` laid over them.
    ///
    /// # Errors
    /// A value out of range, or two that exclude each other; the error names the key.
    pub fn with(&self, overlay: &Overlay) -> Result<Self, ParamsError> {
        let mut p = overlay.preset.map_or_else(|| self.clone(), Self::preset);
        p.lay_window(overlay)?;
        p.lay_open(overlay)?;
        p.lay_trial(overlay)?;
        p.lay_backpressure(overlay)?;
        if p.open_max_ms < p.open_ms {
            return Err(ParamsError::Order("open_max: must not be shorter than open"));
        }
        if p.cool_max_ms < p.cool_first_ms {
            return Err(ParamsError::Order("backpressure.max: must not be shorter than backpressure.first"));
        }
        Ok(p)
    }

    fn lay_window(&mut self, o: &Overlay) -> Result<(), ParamsError> {
        set(&mut self.window_ms, positive("window", o.window.map(|ms| ms.0))?);
        if let Some(ratio) = optional_share("failure_ratio", o.failure_ratio)? {
            self.failure_ratio = ratio;
        }
        if let Some(count) = o.failure_count {
            self.failure_count = (count > 0).then_some(count);
        }
        set(&mut self.min_attempts, positive("min_attempts", o.min_attempts)?);
        set(&mut self.consecutive, positive("consecutive_failures", o.consecutive_failures)?);
        set(&mut self.degrade_at, optional_share("degrade_at", o.degrade_at)?);
        set(&mut self.slow_limit_ms, positive("slow.limit", o.slow.limit.map(|ms| ms.0))?);
        set(&mut self.slow_ratio, optional_share("slow.ratio", o.slow.ratio)?);
        set(&mut self.slow_persist_ms, o.slow.persist.map(|ms| ms.0));
        set(
            &mut self.degrade_input_tokens,
            positive("degrade.max_input_tokens", o.degrade.max_input_tokens)?,
        );
        set(&mut self.degrade_batch, positive("degrade.max_batch", o.degrade.max_batch)?);
        Ok(())
    }

    fn lay_open(&mut self, o: &Overlay) -> Result<(), ParamsError> {
        set(&mut self.open_ms, positive("open", o.open.map(|ms| ms.0))?);
        match positive("open_max", o.open_max.map(|ms| ms.0))? {
            Some(ms) => self.open_max_ms = ms,
            None => self.open_max_ms = self.open_max_ms.max(self.open_ms),
        }
        if let Some(jitter) = o.jitter {
            if !(0.0..=0.5).contains(&jitter) {
                return Err(ParamsError::Order("jitter: must be between 0 and 0.5"));
            }
            self.jitter = jitter;
        }
        set(&mut self.clean_ms, o.clean.map(|ms| ms.0));
        set(&mut self.watchdog_ms, positive("watchdog", o.watchdog.map(|ms| ms.0))?);
        set(&mut self.allow_last, o.allow_last);
        set(&mut self.last_target_share, share("last_target_share", o.last_target_share)?);
        Ok(())
    }

    fn lay_trial(&mut self, o: &Overlay) -> Result<(), ParamsError> {
        let t = &o.half_open;
        set(&mut self.probes, positive("half_open.probes", t.probes)?);
        set(&mut self.successes, positive("half_open.successes", t.successes)?);
        set(&mut self.half_open_limit_ms, positive("half_open.limit", t.limit.map(|ms| ms.0))?);
        set(&mut self.burst_limit_ms, positive("half_open.burst_limit", t.burst_limit.map(|ms| ms.0))?);
        set(&mut self.latency_share, share("half_open.latency_share", t.latency_share)?);
        set(&mut self.ramp_step_ms, o.ramp.step.map(|ms| ms.0));
        Ok(())
    }

    fn lay_backpressure(&mut self, o: &Overlay) -> Result<(), ParamsError> {
        let b = &o.backpressure;
        set(&mut self.persist_ms, b.persist.map(|ms| ms.0));
        set(&mut self.cool_first_ms, positive("backpressure.first", b.first.map(|ms| ms.0))?);
        set(&mut self.cool_max_ms, positive("backpressure.max", b.max.map(|ms| ms.0))?);
        set(
            &mut self.retry_after_max_ms,
            positive("backpressure.max_retry_after", b.max_retry_after.map(|ms| ms.0))?,
        );
        Ok(())
    }

    /// Every value written out, for the reference configuration.
    #[must_use]
    pub fn spelled_out(&self) -> Overlay {
        Overlay {
            preset: Some(self.preset),
            window: Some(Ms(self.window_ms)),
            failure_ratio: Some(self.failure_ratio.unwrap_or(0.0)),
            failure_count: Some(self.failure_count.unwrap_or(0)),
            min_attempts: Some(self.min_attempts),
            consecutive_failures: Some(self.consecutive),
            degrade_at: Some(self.degrade_at.unwrap_or(0.0)),
            open: Some(Ms(self.open_ms)),
            open_max: Some(Ms(self.open_max_ms)),
            jitter: Some(self.jitter),
            clean: Some(Ms(self.clean_ms)),
            watchdog: Some(Ms(self.watchdog_ms)),
            allow_last: Some(self.allow_last),
            last_target_share: Some(self.last_target_share),
            slow: SlowOverlay {
                limit: Some(Ms(self.slow_limit_ms)),
                ratio: Some(self.slow_ratio.unwrap_or(0.0)),
                persist: Some(Ms(self.slow_persist_ms)),
            },
            half_open: HalfOpenOverlay {
                probes: Some(self.probes),
                successes: Some(self.successes),
                limit: Some(Ms(self.half_open_limit_ms)),
                burst_limit: Some(Ms(self.burst_limit_ms)),
                latency_share: Some(self.latency_share),
            },
            ramp: RampOverlay { step: Some(Ms(self.ramp_step_ms)) },
            backpressure: BackpressureOverlay {
                persist: Some(Ms(self.persist_ms)),
                first: Some(Ms(self.cool_first_ms)),
                max: Some(Ms(self.cool_max_ms)),
                max_retry_after: Some(Ms(self.retry_after_max_ms)),
            },
            degrade: DegradeOverlay {
                max_input_tokens: Some(self.degrade_input_tokens),
                max_batch: Some(self.degrade_batch),
            },
        }
    }

    /// Why the target can never be degraded in capacity though that is switched on, if it cannot.
    #[must_use]
    pub fn can_never_degrade(&self) -> Option<String> {
        let (at, opens) = (self.degrade_at?, self.failure_ratio?);
        (at >= opens)
            .then(|| format!("degrade_at of {at} is not below failure_ratio of {opens}, which opens first"))
    }

    /// The preset the values started from.
    #[must_use]
    pub const fn preset_name(&self) -> Preset {
        self.preset
    }

    /// Whole time, or time to first text when streaming, that makes a call slow, milliseconds.
    #[must_use]
    pub const fn slow_limit_ms(&self) -> u64 {
        self.slow_limit_ms
    }

    /// The longest time a half-open probe may take, milliseconds.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn probe_limit_ms(&self) -> u64 {
        (self.slow_limit_ms as f64 * self.latency_share) as u64
    }

    /// Cap of an upstream's `Retry-After`, milliseconds.
    #[must_use]
    pub const fn retry_after_max_ms(&self) -> u64 {
        self.retry_after_max_ms
    }

    /// Largest request (estimated tokens) and batch (inputs) that a target degraded in capacity takes.
    #[must_use]
    pub const fn degrade_limits(&self) -> (u64, u32) {
        (self.degrade_input_tokens, self.degrade_batch)
    }

    /// The open time of the `reopens`-th opening in a row, spread by `seed`; milliseconds.
    ///
    /// Uniform within the jitter around the doubled time, but never above the maximum, so that the
    /// promise "at most" holds and instances still differ there.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    pub fn open_time_ms(&self, reopens: u32, seed: u64) -> u64 {
        let doubled = self.open_ms.saturating_mul(1 << reopens.min(16)).min(self.open_max_ms) as f64;
        let low = doubled * (1.0 - self.jitter);
        let high = (doubled * (1.0 + self.jitter)).min(self.open_max_ms as f64).max(low);
        (low + (high - low) * fastrand::Rng::with_seed(seed).f64()).round().max(1.0) as u64
    }

    pub(super) fn ramp_share(step: usize) -> f64 {
        RAMP.get(step).copied().unwrap_or(1.0)
    }

    /// The step at which the ramp is over.
    pub(super) const RAMP_TOP: usize = RAMP.len() - 1;
}

fn set<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

fn positive<T: PartialEq + Default>(key: &'static str, value: Option<T>) -> Result<Option<T>, ParamsError> {
    match value {
        Some(v) if v == T::default() => Err(ParamsError::Zero(key)),
        other => Ok(other),
    }
}

fn share(key: &'static str, value: Option<f64>) -> Result<Option<f64>, ParamsError> {
    match value {
        Some(v) if v > 0.0 && v <= 1.0 => Ok(Some(v)),
        Some(v) => Err(ParamsError::Share { key, value: v }),
        None => Ok(None),
    }
}

/// A share where 0 means off: `Some(None)` is "switched off".
#[allow(clippy::option_option, clippy::float_cmp)]
fn optional_share(key: &'static str, value: Option<f64>) -> Result<Option<Option<f64>>, ParamsError> {
    match value {
        Some(0.0) => Ok(Some(None)),
        other => Ok(share(key, other)?.map(Some)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Params, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn nothing_written_is_the_llm_preset() {
        assert_eq!(read(""), Ok(Params::default()));
        assert_eq!(Params::default().preset_name(), Preset::Llm);
    }

    #[test]
    fn every_preset_written_out_reads_back_as_itself() {
        for preset in [Preset::Llm, Preset::Gateway, Preset::Classic] {
            let params = Params::preset(preset);
            let text = toml::to_string(&params.spelled_out()).expect("writes");
            assert_eq!(read(&text), Ok(params));
        }
    }

    #[test]
    fn the_presets_are_the_designs_table() {
        let of = Params::preset;
        let ratio = |p: &Params| (p.failure_ratio, p.failure_ratio_strict, p.failure_count, p.min_attempts);
        assert_eq!(ratio(&of(Preset::Llm)), (Some(0.5), false, None, 20));
        assert_eq!(ratio(&of(Preset::Gateway)), (Some(0.12), true, None, 20));
        assert_eq!(ratio(&of(Preset::Classic)), (None, false, Some(5), 5));
        let slow = |p: &Params| (p.slow_ratio, p.degrade_at, p.probes, p.successes);
        assert_eq!(slow(&of(Preset::Llm)), (Some(0.5), Some(0.20), 3, 3));
        assert_eq!(slow(&of(Preset::Gateway)), (Some(0.01), Some(0.05), 1, 1));
        assert_eq!(slow(&of(Preset::Classic)), (None, None, 3, 2));
        assert_eq!(of(Preset::Gateway).slow_limit_ms, 4_500);
        for preset in [Preset::Llm, Preset::Gateway, Preset::Classic] {
            let p = of(preset);
            assert_eq!((p.window_ms, p.consecutive, p.open_ms, p.open_max_ms), (60_000, 5, 30_000, 120_000));
        }
    }

    #[test]
    fn a_target_lays_its_own_values_over_the_daemons() {
        let base = read("preset = 'gateway'\nconsecutive_failures = 7").expect("reads");
        let own: Overlay =
            toml::from_str("failure_ratio = 0.18\nslow = { limit = '2500ms' }").expect("reads");
        let both = base.with(&own).expect("fits");
        assert_eq!((both.consecutive, both.slow_limit_ms), (7, 2_500));
        assert_eq!(both.failure_ratio, Some(0.18));
        let preset: Overlay = toml::from_str("preset = 'classic'").expect("reads");
        assert_eq!(base.with(&preset), Ok(Params::preset(Preset::Classic)));
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (text, key) in [
            ("failure_ratio = 1.5", "failure_ratio"),
            ("failure_ratio = -0.1", "failure_ratio"),
            ("failure_ratio = nan", "failure_ratio"),
            ("min_attempts = 0", "min_attempts"),
            ("open = '0s'", "open"),
            ("open = '10s'\nopen_max = '5s'", "open_max"),
            ("jitter = 0.9", "jitter"),
            ("surprise = 1", "surprise"),
            ("half_open = { probes = 0 }", "half_open.probes"),
            ("backpressure = { first = '20s' }", "backpressure.max"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(key), "{text}: {error}");
        }
    }

    #[test]
    fn open_time_doubles_is_spread_and_never_over_its_maximum() {
        let p = Params::default();
        for (reopens, low, high) in
            [(0, 24_000, 36_000), (1, 48_000, 72_000), (2, 96_000, 120_000), (40, 96_000, 120_000)]
        {
            let times: Vec<u64> = (0..200).map(|seed| p.open_time_ms(reopens, seed)).collect();
            assert!(times.iter().all(|t| (low..=high).contains(t)), "{reopens}");
            let (min, max) = (times.iter().min().expect("some"), times.iter().max().expect("some"));
            assert!(max - min > (high - low) / 2, "the jitter spreads");
        }
        let still = read("jitter = 0.0").expect("reads");
        assert_eq!(still.open_time_ms(0, 9), 30_000);
    }
}
