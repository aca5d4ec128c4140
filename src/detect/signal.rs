//! The signals that rules may name and the health API publishes: what one answer shows of each, and
//! their windows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::sample::{CheckResult, Sample};
use crate::stats::TimeWindow;
use crate::verdict::{FaultClass, Flag, Source, Wire};

macro_rules! signals {
    ($($(#[$doc:meta])* $variant:ident = $text:literal),+ $(,)?) => {
        /// A signal by its name; closed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Signal {
            $($(#[$doc])* #[serde(rename = $text)] $variant),+
        }
        impl Signal {
            /// Every signal.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }
    };
}

signals! {
    /// Mean over positions of the lumped entropy, nats.
    EntropyMean = "entropy_mean",
    /// Largest lumped entropy of a position, nats.
    EntropyMax = "entropy_max",
    /// Lumped entropy of the first position, nats.
    EntropyFirst = "entropy_first",
    /// Probability mass outside the top k.
    TailMass = "tail_mass",
    /// Mean logprob of the sampled tokens, nats.
    LogprobMean = "logprob_mean",
    /// Usable logprob positions ÷ output tokens.
    Coverage = "coverage",
    /// Top-1 probability of a classifier, else the geometric mean probability of the sampled tokens.
    Confidence = "confidence",
    /// Variance of the confidence over the window.
    ConfidenceVariance = "confidence_variance",
    /// Entropy of a classifier's distribution, nats.
    ClassEntropy = "class_entropy",
    /// The same divided by its maximum, ln of the number of classes.
    ClassEntropyRatio = "class_entropy_ratio",
    /// Variance of the class entropy over the window.
    ClassEntropyVariance = "class_entropy_variance",
    /// Top-1 less top-2 probability of a classifier.
    Margin = "margin",
    /// Variance of the margin over the window.
    MarginVariance = "margin_variance",
    /// Share of repeated 4-grams.
    Repetition = "repetition",
    /// Compression ratio of the trailing window.
    Compression = "compression",
    /// Share of letters in foreign scripts.
    ForeignShare = "foreign_share",
    /// Share of answers that decline.
    RefusalRatio = "refusal_ratio",
    /// Share of answers with a hard quality fault.
    HardFaultRatio = "hard_fault_ratio",
    /// Share of golden answers that pass their check.
    GoldenAccuracy = "golden_accuracy",
    /// Cosine distance of answers to their references.
    DriftCosine = "drift_cosine",
    /// Cosine distance of live prompts to the reference traffic.
    PromptDrift = "prompt_drift",
    /// Share of a route's answers that came from a lower tier.
    FallbackRatio = "fallback_ratio",
    /// Time to first text, seconds.
    FirstText = "first_text_seconds",
    /// Whole time, seconds.
    Duration = "duration_seconds",
    /// Output tokens a second after the first text.
    TokenRate = "tokens_per_second",
    /// Output tokens of an answer.
    Tokens = "tokens",
}

impl Signal {
    /// Whether answers of this protocol can show the signal at all.
    #[must_use]
    pub const fn is_on(self, wire: Wire) -> bool {
        let vectors = matches!(wire, Wire::Embeddings | Wire::OllamaEmbed);
        let tensors = matches!(wire, Wire::KserveInfer | Wire::TfPredict);
        let generates = !vectors && !tensors && !matches!(wire, Wire::Rerank);
        match self {
            Self::EntropyMean
            | Self::EntropyMax
            | Self::EntropyFirst
            | Self::TailMass
            | Self::LogprobMean
            | Self::Coverage => generates && !matches!(wire, Wire::Messages), // which has no logprobs
            Self::Confidence | Self::ConfidenceVariance => {
                tensors || (generates && !matches!(wire, Wire::Messages))
            }
            Self::ClassEntropy
            | Self::ClassEntropyRatio
            | Self::ClassEntropyVariance
            | Self::Margin
            | Self::MarginVariance => tensors,
            Self::Repetition
            | Self::Compression
            | Self::ForeignShare
            | Self::RefusalRatio
            | Self::TokenRate => generates,
            _ => true,
        }
    }
}

/// Values that a window holds at most.
const CAPACITY: usize = 2_000;
/// Window of what is published, milliseconds: the articles' five minutes.
const PUBLISHED_MS: u64 = 300_000;

/// What one answer shows, signal by signal. `drift` is the cosine distance to its references where
/// the embedder has given one.
pub fn of(sample: &Sample, drift: Option<f64>) -> impl Iterator<Item = (Signal, f64)> {
    let s = &sample.signals;
    let answered = matches!(
        sample.class,
        None | Some(FaultClass::Info | FaultClass::QualitySoft | FaultClass::QualityHard)
    );
    let ratio = |flag: bool| answered.then_some(f64::from(u8::from(flag)));
    let hard = sample.flags.first_of(FaultClass::QualityHard).is_some();
    let live = matches!(sample.source, Source::Live | Source::Observe);
    let check = match sample.check {
        Some(CheckResult::Pass) => Some(1.0),
        Some(CheckResult::Fail) => Some(0.0),
        _ => None,
    };
    #[allow(clippy::cast_precision_loss)]
    let seconds = |ms: u64| ms as f64 / 1_000.0;
    #[allow(clippy::cast_precision_loss)]
    let tokens = s.tokens.map(|n| n as f64);
    [
        (Signal::EntropyMean, s.entropy_mean),
        (Signal::EntropyMax, s.entropy_max),
        (Signal::EntropyFirst, s.entropy_first),
        (Signal::TailMass, s.tail_mass),
        (Signal::LogprobMean, s.logprob_mean),
        (Signal::Coverage, s.coverage),
        (Signal::Confidence, s.confidence.or_else(|| s.logprob_mean.map(f64::exp))),
        (Signal::ClassEntropy, s.class_entropy),
        (Signal::ClassEntropyRatio, s.class_entropy_ratio),
        (Signal::Margin, s.margin),
        (Signal::Repetition, s.repetition),
        (Signal::Compression, s.compression),
        (Signal::ForeignShare, s.foreign_share),
        (Signal::RefusalRatio, ratio(sample.flags.contains(Flag::Refusal)).filter(|_| live)),
        (Signal::HardFaultRatio, ratio(hard).filter(|_| live)),
        (Signal::GoldenAccuracy, check.filter(|_| answered)),
        (Signal::DriftCosine, drift.or(s.drift)),
        (Signal::FirstText, sample.timing.ttft_ms.map(seconds)),
        (Signal::Duration, Some(seconds(sample.timing.total_ms)).filter(|_| answered)),
        (Signal::TokenRate, sample.timing.tokens_per_second),
        (Signal::Tokens, tokens),
    ]
    .into_iter()
    .filter_map(|(signal, value)| Some((signal, value.filter(|v| v.is_finite())?)))
}

/// A window of one signal.
#[derive(Clone, Debug)]
pub(super) struct SignalWindow {
    signal: Signal,
    window: TimeWindow,
}

impl SignalWindow {
    pub(super) fn new(signal: Signal, span_ms: u64) -> Self {
        Self { signal, window: TimeWindow::new(span_ms, CAPACITY) }
    }

    /// The signal whose values go in: a variance reads the confidence.
    const fn source(&self) -> Signal {
        match self.signal {
            Signal::ConfidenceVariance => Signal::Confidence,
            Signal::ClassEntropyVariance => Signal::ClassEntropy,
            Signal::MarginVariance => Signal::Margin,
            other => other,
        }
    }

    pub(super) fn record(&mut self, at: Timestamp, signal: Signal, value: f64) {
        if signal == self.source() {
            self.window.record(at, value);
        }
    }

    pub(super) fn clear(&mut self) {
        self.window.clear();
    }

    pub(super) fn count(&self, now: Timestamp) -> usize {
        self.window.count(now)
    }

    pub(super) fn value(&self, now: Timestamp) -> Option<f64> {
        match self.signal {
            Signal::ConfidenceVariance | Signal::ClassEntropyVariance | Signal::MarginVariance => {
                self.window.variance(now)
            }
            Signal::EntropyMax => self.window.max(now),
            _ => self.window.mean(now),
        }
    }
}

/// One published signal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Mean over the window (largest for `entropy_max`, variance for `…_variance`).
    pub value: f64,
    /// Answers it rests on.
    pub n: usize,
}

/// The last five minutes of every signal of one target.
#[derive(Clone, Debug)]
pub struct Signals {
    windows: Vec<SignalWindow>,
}

impl Default for Signals {
    fn default() -> Self {
        Self { windows: Signal::ALL.iter().map(|s| SignalWindow::new(*s, PUBLISHED_MS)).collect() }
    }
}

impl Signals {
    /// Takes one value.
    pub fn record(&mut self, at: Timestamp, signal: Signal, value: f64) {
        for window in &mut self.windows {
            window.record(at, signal, value);
        }
    }

    /// Every signal that is available at `now`.
    #[must_use]
    pub fn summary(&self, now: Timestamp) -> BTreeMap<&'static str, Summary> {
        let one =
            |w: &SignalWindow| Some((w.signal.as_str(), Summary { value: w.value(now)?, n: w.count(now) }));
        self.windows.iter().filter_map(one).collect()
    }

    /// One signal at `now`.
    #[must_use]
    pub fn value(&self, now: Timestamp, signal: Signal) -> Option<f64> {
        self.windows.iter().find(|w| w.signal == signal)?.value(now)
    }
}
