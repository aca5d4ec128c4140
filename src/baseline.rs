//! What a healthy target looked like: made by calibration, frozen in `baseline.json`, read by the
//! detectors. Reviewed text; every number can be checked by eye.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

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

/// What must be the same for two measurements to be comparable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// `server` header or product name of the engine, as far as it tells.
    pub engine: String,
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
    /// Canary scores of the healthy target, in the order they were observed (Lumped entropy and
    /// first-position distance), for the sequential arms.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, Vec<f64>>,
    /// The calibration's verdict in words.
    pub verdict: Vec<String>,
}

impl Baseline {
    /// Prompts that take part in judgement.
    pub fn usable(&self) -> impl Iterator<Item = (&Arc<str>, &PromptBaseline)> {
        self.prompts.iter().filter(|(_, p)| p.left_out.is_none())
    }
}
