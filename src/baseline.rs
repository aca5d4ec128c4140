//! What a healthy target looked like: made by calibration, frozen in `baseline.json`, read by the
//! detectors. Reviewed text; every number can be checked by eye.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::verdict::{ClassOutput, Wire};

/// Format version that is written and read.
pub const BASELINE_VERSION: u32 = 1;

/// sha256, hexadecimal: the form in which a fingerprint names weights and prompts.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    use std::fmt::Write as _;
    sha2::Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a String takes whatever is written
        text
    })
}

/// Who answers, as far as it tells; a part that it does not tell is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Engine {
    /// `server` header.
    pub server: String,
    /// Model name in the answer, which may say more than the one asked for.
    pub model: String,
    /// `system_fingerprint` of the answer.
    pub system: String,
}

/// What must be the same for two measurements to be comparable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// `server` header or product name of the engine, as far as it tells.
    pub engine: String,
    /// Who answered in calibration: several behind a balancer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<Engine>,
    /// Model name sent upstream.
    pub model: String,
    /// Alternatives asked a position; 0 where the upstream gives no logprobs.
    pub top_k: u32,
    /// Temperature of the probes.
    pub temperature: f64,
    /// sha256 of the embedder's weights, hexadecimal.
    pub embedder: String,
    /// sha256 of `prompts.jsonl`, hexadecimal.
    pub golden: String,
    /// What the scores of a classifier are; `None` for what is none. Another kind is told as a change and
    /// not refused: both give the same distribution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_output: Option<ClassOutput>,
}

impl Fingerprint {
    /// Whether both tell who answered and have nobody in common.
    #[must_use]
    pub fn is_another_engine(&self, other: &Self) -> bool {
        let told = !self.engines.is_empty() && !other.engines.is_empty();
        told && !self.engines.iter().any(|engine| other.engines.contains(engine))
    }
}

/// One golden prompt on one healthy target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptBaseline {
    /// How often it was asked.
    pub runs: u32,
    /// How often its check passed.
    pub passes: u32,
    /// Why it takes no part in judgement, if so (`check fails on the healthy target`, …).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
    /// Healthy answers, the references of similarity.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
    /// Highest cosine of each healthy re-run to the references, ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub similarities: Vec<f64>,
    /// Mean lumped entropy of each run, nats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entropies: Vec<f64>,
    /// Canaries: how often each first token was seen.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub first_tokens: BTreeMap<String, u32>,
    /// Canaries: mean logprob of each common first-position token, nats.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub first_logprobs: BTreeMap<String, f64>,
    /// Canaries: the same without white space around tokens.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub first_bare: BTreeMap<String, f64>,
    /// Canaries: mean lumped entropy of the first position, nats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_entropy: Option<f64>,
}

/// What the self-test of a calibration found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tested {
    /// Limit of the statistic.
    pub limit: f64,
    /// Promised mean number of observations between false alarms.
    pub promise: f64,
    /// 10th percentile, over resampled calibrations, of the true such number.
    pub arl0_p10: f64,
    /// The same over all calibrations together.
    pub arl0: f64,
    /// Healthy observations.
    pub n: usize,
    /// Share of them that another one equals, 0..=1.
    pub atoms: f64,
    /// Largest lag-1 autocorrelation of a score.
    pub lag1: f64,
    /// Resampled calibrations.
    pub resamples: u32,
    /// Whether the promise is kept; if not, the arm stays in shadow.
    pub kept: bool,
    /// Expected observations until a finding, fault by fault, as injected on paper.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub delays: BTreeMap<String, f64>,
}

/// What calibration found out about canaries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CanaryBaseline {
    /// Alternatives a position; 0 without logprobs.
    pub k: usize,
    /// Tokens of one canary, in and out, on average.
    pub tokens: (f64, f64),
    /// Usable logprob positions ÷ tokens of all golden answers, 0..=1.
    #[serde(default)]
    pub coverage: f64,
    /// Whether the arm that watches them keeps its promise, and at which limit.
    pub tested: Tested,
}

/// One input at which two first tokens were nearly tied on the healthy target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BorderInput {
    /// What is asked: about one token.
    pub text: String,
    /// Logprob of the likeliest first token less that of the next, nats; of an upstream without logprobs an
    /// estimate from draws.
    pub margin: f64,
    /// How often each first token was seen at temperature 0, bare.
    pub first_tokens: BTreeMap<String, u32>,
}

/// What calibration found out about border inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BorderBaseline {
    /// Protocol they are asked in.
    pub wire: Wire,
    /// Inputs tried.
    pub candidates: u32,
    /// Chance that a healthy target answers an input with a first token that it never showed, 0..1.
    pub flips: f64,
    /// Promised mean number of answers between false alarms.
    pub promise: f64,
    /// Expected answers until a finding, change by change, as simulated.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub delays: BTreeMap<String, f64>,
    /// Each by its id.
    pub inputs: BTreeMap<Arc<str>, BorderInput>,
}

/// A target's frozen healthy self.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// Format version.
    pub version: u32,
    /// Name of the target it was made on.
    pub target: Arc<str>,
    /// When.
    pub made_at: Timestamp,
    /// What must match.
    pub fingerprint: Fingerprint,
    /// Each golden prompt by id.
    pub prompts: BTreeMap<Arc<str>, PromptBaseline>,
    /// Largest trailing-window compression ratio of a healthy answer.
    pub compression_max: f64,
    /// Hard-faulty healthy answers and all healthy answers, for the fault rate p₀.
    pub hard_faults: (u32, u32),
    /// Canary scores of the healthy target, in the order they were observed (first-position distance
    /// and change of its lumped entropy, nats), for the sequential arms.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, Vec<f64>>,
    /// What the arms that watch canaries rest on; `None` where no canary was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryBaseline>,
    /// Border inputs; `None` where none were looked for, or too few found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub border: Option<BorderBaseline>,
    /// 99th percentile of the time to first text in health, milliseconds; absent in earlier baselines and where too
    /// few answers tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_text_p99_ms: Option<u64>,
    /// The calibration's verdict in words.
    pub verdict: Vec<String>,
}

/// A healthy target is given so many times the 99th percentile of its own time to first text.
const FIRST_TEXT_FACTOR: u64 = 3;

impl Baseline {
    /// How long a first text is worth waiting for, milliseconds, as far as health told.
    #[must_use]
    pub fn first_text_limit_ms(&self) -> Option<u64> {
        self.first_text_p99_ms.map(|ms| ms.saturating_mul(FIRST_TEXT_FACTOR))
    }

    /// Prompts that take part in judgement.
    pub fn usable(&self) -> impl Iterator<Item = (&Arc<str>, &PromptBaseline)> {
        self.prompts.iter().filter(|(_, p)| p.left_out.is_none())
    }
}
