//! `[[rule]]`: plain thresholds over time, for those who want them.
//!
//! A rule compares a signal's window with a number and acts when that has held for a while. It never
//! reads a signal that is unavailable: with fewer than `min_samples` values the rule is silent and its
//! time starts anew. Entropy, confidence variance, golden accuracy, cosine drift, fallback ratio: the
//! numbers of published practice go here, not into the defaults, because a fixed number fits one model.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::clock::Timestamp;
use crate::units::Ms;

use super::signal::{Signal, SignalWindow};
use super::{Arm, Finding, Level};

/// Five minutes, the usual window of published practice.
const WINDOW: Ms = Ms(300_000);
/// A threshold must hold before it acts; one spike is no trend.
const FOR: Ms = Ms(60_000);
/// Above this share of requests a route lives on its fallbacks (the practice articles' figure).
const MANY_FALLBACKS: f64 = 0.08;
/// And for so long it is no passing trouble.
const MANY_FALLBACKS_FOR: Ms = Ms(300_000);
/// A mean of fewer is a story.
const MIN_SAMPLES: usize = 20;

/// What a rule does when it has held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Tell.
    #[default]
    Alert,
    /// Raise suspicion: a golden burst will tell.
    Suspect,
    /// Open the breaker.
    Open,
}

/// Why a `[[rule]]` cannot be.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ParamsError {
    /// Neither `above` nor `below`, or both.
    #[error("above: write either above or below")]
    Threshold,
    /// Not a number.
    #[error("above: above and below must be finite numbers")]
    NotFinite,
    /// A window of no length or no samples.
    #[error("{0}: must be more than 0")]
    Zero(&'static str),
}

/// `[[rule]]` as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    signal: Signal,
    #[serde(default = "default_window")]
    window: Ms,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    above: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    below: Option<f64>,
    #[serde(default = "default_for", rename = "for")]
    lasting: Ms,
    #[serde(default = "default_min_samples")]
    min_samples: usize,
    #[serde(default)]
    action: Action,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    targets: Vec<String>,
}

const fn default_window() -> Ms {
    WINDOW
}
const fn default_for() -> Ms {
    FOR
}
const fn default_min_samples() -> usize {
    MIN_SAMPLES
}

/// One checked rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Params {
    written: Written,
}

impl TryFrom<Written> for Params {
    type Error = ParamsError;

    fn try_from(written: Written) -> Result<Self, ParamsError> {
        let threshold = match (written.above, written.below) {
            (Some(t), None) | (None, Some(t)) => t,
            _ => return Err(ParamsError::Threshold),
        };
        if !threshold.is_finite() {
            return Err(ParamsError::NotFinite);
        }
        if written.window.0 == 0 {
            return Err(ParamsError::Zero("window"));
        }
        if written.min_samples == 0 {
            return Err(ParamsError::Zero("min_samples"));
        }
        Ok(Self { written })
    }
}

impl From<Params> for Written {
    fn from(params: Params) -> Self {
        params.written
    }
}

impl Params {
    /// What the `gateway` preset of the breaker alerts of.
    #[must_use]
    pub fn many_fallbacks() -> Self {
        let written = Written {
            name: None,
            signal: Signal::FallbackRatio,
            window: WINDOW,
            above: Some(MANY_FALLBACKS),
            below: None,
            lasting: MANY_FALLBACKS_FOR,
            min_samples: MIN_SAMPLES,
            action: Action::Alert,
            targets: Vec::new(),
        };
        Self { written }
    }

    /// The rule's name: as written, or `signal above|below`.
    #[must_use]
    pub fn name(&self) -> String {
        let side = if self.written.above.is_some() { "above" } else { "below" };
        self.written.name.clone().unwrap_or_else(|| format!("{} {side}", self.written.signal.as_str()))
    }

    /// The signal it reads.
    #[must_use]
    pub const fn signal(&self) -> Signal {
        self.written.signal
    }

    /// What it does.
    #[must_use]
    pub const fn action(&self) -> Action {
        self.written.action
    }

    /// The targets it is meant for; none means all.
    #[must_use]
    pub fn targets(&self) -> &[String] {
        &self.written.targets
    }

    /// Whether it is meant for this target: no `targets` means all.
    #[must_use]
    pub fn applies_to(&self, target: &str) -> bool {
        self.written.targets.is_empty() || self.written.targets.iter().any(|t| t == target)
    }

    /// Why the rule can never fire, if so.
    #[must_use]
    pub fn can_never_fire(&self) -> Option<String> {
        let w = &self.written;
        let (low, high) = match w.signal {
            Signal::GoldenAccuracy
            | Signal::Coverage
            | Signal::Confidence
            | Signal::ClassEntropyRatio
            | Signal::Margin
            | Signal::TailMass
            | Signal::Repetition
            | Signal::ForeignShare
            | Signal::RefusalRatio
            | Signal::HardFaultRatio
            | Signal::FallbackRatio => (0.0, 1.0),
            // Bounded by 0.25 (Popoviciu); a sample variance of two values by twice that.
            Signal::ConfidenceVariance | Signal::MarginVariance => (0.0, 0.5),
            Signal::DriftCosine | Signal::PromptDrift => (0.0, 2.0),
            Signal::LogprobMean => (-40.0, 0.0),
            _ => (0.0, f64::INFINITY),
        };
        let name = w.signal.as_str();
        match (w.above, w.below) {
            (Some(t), _) if t >= high => Some(format!("{name} is never above {high}")),
            (_, Some(t)) if t <= low => Some(format!("{name} is never below {low}")),
            _ => None,
        }
    }
}

/// What a rule's state became.
#[derive(Clone, Debug, PartialEq)]
pub enum Ruling {
    /// It has held for its time.
    Held(Finding),
    /// It does not hold any more (name, words).
    Ceased(String, String),
}

/// One rule at work on one target.
#[derive(Clone, Debug)]
pub struct Rule {
    params: Params,
    window: SignalWindow,
    since: Option<Timestamp>,
    firing: bool,
}

impl Rule {
    /// A rule that has seen nothing.
    #[must_use]
    pub fn new(params: Params) -> Self {
        let window = SignalWindow::new(params.written.signal, params.written.window.0);
        Self { params, window, since: None, firing: false }
    }

    /// Takes a value of any signal; other signals are passed over.
    pub fn record(&mut self, at: Timestamp, signal: Signal, value: f64) {
        self.window.record(at, signal, value);
    }

    /// Forgets all values: what was measured before the breaker opened says nothing about now.
    pub fn restart(&mut self) {
        self.window.clear();
        self.since = None;
        self.firing = false;
    }

    /// Whether it holds.
    #[must_use]
    pub const fn is_firing(&self) -> bool {
        self.firing
    }

    /// The rule.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// Compares.
    pub fn tick(&mut self, now: Timestamp) -> Option<Ruling> {
        let w = &self.params.written;
        let n = self.window.count(now);
        let value = if n >= w.min_samples { self.window.value(now) } else { None };
        let Some(value) = value else {
            self.since = None;
            return self.cease("the signal is unavailable".to_owned());
        };
        let (holds, side, threshold) = match (w.above, w.below) {
            (Some(t), _) => (value > t, "above", t),
            (None, t) => (value < t.unwrap_or(f64::NEG_INFINITY), "below", t.unwrap_or_default()),
        };
        if !holds {
            self.since = None;
            return self.cease(format!("{} is {value:.4}, not {side} {threshold}", w.signal.as_str()));
        }
        let since = *self.since.get_or_insert(now);
        if self.firing || now.ms_since(since) < w.lasting.0 {
            return None;
        }
        self.firing = true;
        let level = match w.action {
            Action::Alert => Level::Alert,
            Action::Suspect => Level::Suspect,
            Action::Open => Level::Degraded,
        };
        Some(Ruling::Held(Finding {
            at: now,
            route: None,
            arm: Arm::Rule,
            level,
            reason: self.params.name(),
            statistic: value,
            n: n as u64,
            limit: threshold,
            arl0: None,
            onset: Some(since),
            message: format!(
                "{} over {} is {value:.4}, {side} {threshold} for {} ({n} samples)",
                w.signal.as_str(),
                w.window,
                Ms(now.ms_since(since))
            ),
        }))
    }

    fn cease(&mut self, why: String) -> Option<Ruling> {
        std::mem::take(&mut self.firing).then(|| Ruling::Ceased(self.params.name(), why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Result<Rule, String> {
        toml::from_str(text).map(Rule::new).map_err(|e| e.to_string())
    }

    fn at(s: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + s * 1_000)
    }

    const ENTROPY: &str =
        "signal = 'entropy_mean'\nwindow = '60s'\nabove = 3.0\nfor = '30s'\nmin_samples = 5\naction = 'open'";

    #[test]
    fn a_threshold_must_hold_for_its_time() {
        let mut r = rule(ENTROPY).expect("reads");
        let mut fired = Vec::new();
        for s in 0..60 {
            r.record(at(s), Signal::EntropyMean, 3.5);
            r.record(at(s), Signal::DriftCosine, 99.0);
            if let Some(Ruling::Held(f)) = r.tick(at(s)) {
                fired.push((s, f));
            }
        }
        assert_eq!(fired.len(), 1, "once");
        let (s, finding) = &fired[0];
        assert_eq!((*s, finding.level, finding.arm), (34, Level::Degraded, Arm::Rule));
        assert_eq!(finding.message, "entropy_mean over 1m is 3.5000, above 3 for 30s (35 samples)");
        for s in 60..200 {
            r.record(at(s), Signal::EntropyMean, 1.0);
            if let Some(ruling) = r.tick(at(s)) {
                assert!(matches!(ruling, Ruling::Ceased(..)), "{ruling:?}");
            }
        }
        assert!(!r.is_firing());
    }

    #[test]
    fn an_unavailable_signal_is_never_read() {
        let mut r = rule(ENTROPY).expect("reads");
        for s in 0..1_000 {
            r.record(at(s), Signal::EntropyMean, f64::NAN);
            if s % 20 == 0 {
                r.record(at(s), Signal::EntropyMean, 9.0);
            }
            assert_eq!(r.tick(at(s)), None, "3 samples a minute are fewer than 5");
        }
        let mut r =
            rule("signal = 'golden_accuracy'\nbelow = 0.9\nfor = '0s'\nmin_samples = 1").expect("reads");
        assert_eq!(r.tick(at(0)), None, "no value is not a value below");
        r.record(at(1), Signal::GoldenAccuracy, 0.0);
        assert!(matches!(r.tick(at(1)), Some(Ruling::Held(f)) if f.level == Level::Alert));
        assert!(matches!(r.tick(at(1_000)), Some(Ruling::Ceased(_, why)) if why.contains("unavailable")));
    }

    #[test]
    fn variance_reads_the_confidence_and_a_single_value_has_none() {
        let text = "signal = 'confidence_variance'\nabove = 0.04\nfor = '0s'\nmin_samples = 1";
        let mut r = rule(text).expect("reads");
        r.record(at(0), Signal::Confidence, 0.9);
        assert_eq!(r.tick(at(0)), None);
        r.record(at(1), Signal::Confidence, 0.1);
        assert!(matches!(r.tick(at(1)), Some(Ruling::Held(_))));
    }

    #[test]
    fn nonsense_is_refused_and_what_can_never_fire_is_named() {
        for text in [
            "signal = 'entropy_mean'",
            "signal = 'entropy_mean'\nabove = 1.0\nbelow = 2.0",
            "signal = 'entropy_mean'\nabove = nan",
            "signal = 'mood'\nabove = 1.0",
            "signal = 'entropy_mean'\nabove = 1.0\nmin_samples = 0",
            "signal = 'entropy_mean'\nabove = 1.0\nwindow = '0s'",
            "signal = 'entropy_mean'\nabove = 1.0\naction = 'explode'",
        ] {
            assert!(rule(text).is_err(), "{text}");
        }
        let never = rule("signal = 'golden_accuracy'\nabove = 1.5").expect("reads");
        assert_eq!(never.params().can_never_fire().as_deref(), Some("golden_accuracy is never above 1"));
        assert_eq!(rule(ENTROPY).expect("reads").params().can_never_fire(), None);
    }

    #[test]
    fn a_clock_that_jumps_back_holds_nothing_longer() {
        let mut r = rule(ENTROPY).expect("reads");
        for s in 0..10 {
            r.record(at(s), Signal::EntropyMean, 4.0);
        }
        assert_eq!(r.tick(at(9)), None);
        assert_eq!(r.tick(at(0)), None);
        assert!(r.tick(at(39)).is_some());
    }
}
