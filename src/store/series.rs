//! What a history shows: count, sum, smallest and largest of each signal, a minute at a time.
//!
//! A minute's row is added to, never replaced, so that several batches and a restart within the
//! minute come to the same figures. Signals have the names that rules know them by. Live traffic keeps
//! the plain names; the daemon's own probes stand under `canary.` and `burst.`, because a one-token
//! canary and a caller's answer are not alike.

use std::collections::HashMap;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::sample::{CheckResult, Sample};
use crate::verdict::{FaultClass, Flag, Source};

/// Length of a step, milliseconds.
pub(super) const MINUTE_MS: u64 = 60_000;

/// More open minutes than this are not kept while the file cannot be written.
const MAX_OPEN: usize = 20_000;

/// One minute of one signal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Minute {
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) target: Arc<str>,
    pub(super) signal: String,
    pub(super) minute: u64,
}

/// Minutes that wait for the next commit.
#[derive(Debug, Default)]
pub(super) struct Series(HashMap<Key, Minute>);

impl Series {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Minute)> {
        self.0.iter()
    }

    /// Takes one value; what is not finite is left out.
    pub(super) fn add(&mut self, target: &Arc<str>, signal: String, at: Timestamp, value: f64) {
        if !value.is_finite() {
            return;
        }
        let key = Key { target: Arc::clone(target), signal, minute: at.as_millis() / MINUTE_MS };
        if self.0.len() >= MAX_OPEN && !self.0.contains_key(&key) {
            return;
        }
        let minute = self.0.entry(key).or_insert(Minute {
            count: 0,
            sum: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
        });
        minute.count += 1;
        minute.sum += value;
        minute.min = minute.min.min(value);
        minute.max = minute.max.max(value);
    }

    /// Takes every signal of an attempt.
    pub(super) fn add_sample(&mut self, sample: &Sample) {
        let prefix = match sample.source {
            Source::Live | Source::Observe => "",
            Source::Canary | Source::Probe => "canary.",
            Source::Burst => "burst.",
        };
        for (name, value) in values(sample) {
            if let Some(value) = value {
                self.add(&sample.target, format!("{prefix}{name}"), sample.at, value);
            }
        }
        if let Some(passed) = sample.check.and_then(passed) {
            self.add(&sample.target, "golden_accuracy".to_owned(), sample.at, passed);
        }
    }
}

#[allow(clippy::cast_precision_loss)] // milliseconds and token counts are far below 2⁵³
fn values(sample: &Sample) -> [(&'static str, Option<f64>); 26] {
    let (s, t) = (&sample.signals, &sample.timing);
    let share = |held: bool| Some(f64::from(u8::from(held)));
    let seconds = |ms: u64| ms as f64 / 1_000.0;
    [
        ("entropy_mean", s.entropy_mean),
        ("entropy_max", s.entropy_max),
        ("entropy_first", s.entropy_first),
        ("entropy_lower", s.entropy_lower),
        ("entropy_upper", s.entropy_upper),
        ("tail_mass", s.tail_mass),
        ("logprob_mean", s.logprob_mean),
        ("least_confident_group", s.least_confident_group),
        ("coverage", s.coverage),
        ("tokens", s.tokens.map(|n| n as f64)),
        ("repetition", s.repetition),
        ("compression", s.compression),
        ("foreign_share", s.foreign_share),
        ("drift_cosine", s.drift),
        ("class_entropy", s.class_entropy),
        ("class_entropy_ratio", s.class_entropy_ratio),
        ("confidence", s.confidence),
        ("margin", s.margin),
        ("norm", s.norm),
        ("duration_seconds", Some(seconds(t.total_ms))),
        ("first_text_seconds", t.ttft_ms.map(seconds)),
        ("tokens_per_second", t.tokens_per_second),
        ("upstream_fault_ratio", share(sample.class == Some(FaultClass::Upstream))),
        ("slow_ratio", share(sample.class == Some(FaultClass::Slow))),
        ("hard_fault_ratio", share(sample.flags.first_of(FaultClass::QualityHard).is_some())),
        ("refusal_ratio", share(sample.flags.contains(Flag::Refusal))),
    ]
}

fn passed(check: CheckResult) -> Option<f64> {
    match check {
        CheckResult::Pass => Some(1.0),
        CheckResult::Fail => Some(0.0),
        CheckResult::NotJudged => None,
    }
}
