//! `[breaker]` as a person writes it: every value may be left out.

use serde::{Deserialize, Serialize};

use crate::units::Ms;

/// A named set of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// For inference servers: tolerant of single failures, strict on runs of them.
    #[default]
    Llm,
    /// For gateways in front of many models: a small failing share or slow tail opens.
    Gateway,
    /// The count-based breaker known from libraries.
    Classic,
}

/// `[breaker]` as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Overlay {
    /// Where the values come from that are not written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Length of the sliding window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Ms>,
    /// Failing share that opens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_ratio: Option<f64>,
    /// Number of failures in the window that opens, whatever their share; 0 switches it off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_count: Option<u32>,
    /// Nothing in the window is judged below this many attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_attempts: Option<u32>,
    /// Failures in a row that open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_failures: Option<u32>,
    /// Slow or failing share from which the target is degraded in capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degrade_at: Option<f64>,
    /// First open time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<Ms>,
    /// Longest open time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_max: Option<Ms>,
    /// Spread of the open time, a share of it; 0 for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
    /// Closed time after which the next opening counts as the first again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean: Option<Ms>,
    /// Open past due for this long is reported and forced to half-open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog: Option<Ms>,
    /// Quality may open the last target of a route.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_last: Option<bool>,
    /// Share at which the last target stays admitted otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_target_share: Option<f64>,
    /// Slow calls.
    #[serde(skip_serializing_if = "is_default")]
    pub slow: SlowOverlay,
    /// The half-open trial.
    #[serde(skip_serializing_if = "is_default")]
    pub half_open: HalfOpenOverlay,
    /// Coming back step by step.
    #[serde(skip_serializing_if = "is_default")]
    pub ramp: RampOverlay,
    /// 429, 503 and 529.
    #[serde(skip_serializing_if = "is_default")]
    pub backpressure: BackpressureOverlay,
    /// What still passes while degraded in capacity.
    #[serde(skip_serializing_if = "is_default")]
    pub degrade: DegradeOverlay,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// `[breaker.slow]` as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlowOverlay {
    /// Whole time, or time to first text when streaming, that makes a call slow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Ms>,
    /// Slow share that opens; 0 switches the arm off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// How long it must last; shorter spikes only shrink admission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persist: Option<Ms>,
}

/// `[breaker.half_open]` as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HalfOpenOverlay {
    /// Probes in flight at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes: Option<u32>,
    /// Sound probes that close.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub successes: Option<u32>,
    /// Time limit of a trial by probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<Ms>,
    /// Time limit of a trial by a golden burst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_limit: Option<Ms>,
    /// Share of `slow.limit` that a probe may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency_share: Option<f64>,
}

/// `[breaker.ramp]` as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RampOverlay {
    /// Clean time a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Ms>,
}

/// `[breaker.backpressure]` as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackpressureOverlay {
    /// Refusals count as failures once they have lasted so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persist: Option<Ms>,
    /// First cool-down without `Retry-After`; doubles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Ms>,
    /// Largest cool-down without `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Ms>,
    /// Cap of `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retry_after: Option<Ms>,
}

/// `[breaker.degrade]` as written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DegradeOverlay {
    /// Longer requests go elsewhere, estimated tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_input_tokens: Option<u64>,
    /// Larger batches go elsewhere, inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_batch: Option<u32>,
}
