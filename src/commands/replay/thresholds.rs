//! What a plain threshold on one signal would do: a table for those who want rules.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::detect::signal::{self, Signal};
use crate::sample::Sample;
use crate::stats::quantile::sorted_quantile;

/// Values kept of each signal, good and bad apart: enough for the 99.9th percentile.
const KEPT: usize = 5_000;
/// Shares of healthy answers that a threshold may cost.
const QUANTILES: [f64; 3] = [0.95, 0.99, 0.999];
/// The signals that a rule on answers would read.
const SIGNALS: [Signal; 7] = [
    Signal::EntropyMean,
    Signal::EntropyMax,
    Signal::EntropyFirst,
    Signal::Repetition,
    Signal::Compression,
    Signal::ForeignShare,
    Signal::Tokens,
];

/// One signal at one threshold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Which signal.
    pub signal: &'static str,
    /// Threshold: above is bad.
    pub above: f64,
    /// Share of healthy answers above, 0..=1.
    pub false_alarms: f64,
    /// Share of bad answers above, 0..=1.
    pub found: f64,
    /// Healthy and bad answers that the row rests on.
    pub n: (usize, usize),
}

/// Values by signal, a uniform sample of all (Vitter's algorithm R).
#[derive(Debug)]
pub(super) struct Thresholds {
    rng: fastrand::Rng,
    values: BTreeMap<(Signal, bool), (u64, Vec<f64>)>,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { rng: fastrand::Rng::with_seed(1), values: BTreeMap::new() }
    }
}

impl Thresholds {
    pub(super) fn record(&mut self, sample: &Sample, bad: Option<bool>) {
        let bad = bad.unwrap_or(false);
        for (signal, value) in signal::of(sample, None).filter(|(s, _)| SIGNALS.contains(s)) {
            let (seen, kept) = self.values.entry((signal, bad)).or_default();
            *seen += 1;
            if kept.len() < KEPT {
                kept.push(value);
            } else if let Some(slot) = usize::try_from(self.rng.u64(..*seen)).ok().filter(|i| *i < KEPT) {
                kept[slot] = value;
            }
        }
    }

    pub(super) fn table(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for signal in SIGNALS {
            let of = |bad: bool| self.values.get(&(signal, bad)).map(|(_, v)| v.clone());
            let (Some(mut good), Some(bad)) = (of(false), of(true)) else { continue };
            good.sort_unstable_by(f64::total_cmp);
            for q in QUANTILES {
                let Some(above) = sorted_quantile(&good, q) else { continue };
                let share =
                    |v: &[f64]| v.iter().filter(|x| **x > above).count() as f64 / v.len().max(1) as f64;
                rows.push(Row {
                    signal: signal.as_str(),
                    above,
                    false_alarms: share(&good),
                    found: share(&bad),
                    n: (good.len(), bad.len()),
                });
            }
        }
        rows
    }
}
