//! One observed exchange: what was asked, who answered, how it went, what it meant.
//!
//! The proxy, the prober and the offline commands all describe an answer with these types; the
//! detectors read nothing else. An [`Outcome`] and a [`Done`] are small and never dropped; a
//! [`Sample`] and an [`Exchange`] are rich and may be dropped (and counted) under load.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::verdict::{BreakerState, ClassOutput, FaultClass, FlagSet, Source, Unavailable, Wire};

/// Token counts as the upstream gave them, or estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens.
    pub input: Option<u64>,
    /// Answer tokens, reasoning included.
    pub output: Option<u64>,
    /// Reasoning tokens.
    pub reasoning: Option<u64>,
    /// Prompt tokens served from the provider's cache.
    pub cached_input: Option<u64>,
    /// Whether the counts are the daemon's own estimate.
    pub estimated: bool,
}

/// The measured meaning of one answer. Natural logarithms throughout; `None` is "not known", never 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signals {
    /// Mean over positions of the lumped entropy L, nats.
    pub entropy_mean: Option<f64>,
    /// Largest lumped entropy of a position, nats.
    pub entropy_max: Option<f64>,
    /// Lumped entropy of the first position, nats.
    pub entropy_first: Option<f64>,
    /// Mean lower bound of the true entropy, nats.
    pub entropy_lower: Option<f64>,
    /// Mean upper bound of the true entropy, nats; needs the vocabulary size.
    pub entropy_upper: Option<f64>,
    /// Mean probability mass outside the top k, 0..=1.
    pub tail_mass: Option<f64>,
    /// Mean logprob of the sampled tokens, first and last left out, nats.
    pub logprob_mean: Option<f64>,
    /// Largest mean over a 64-token window of the mean top-k logprob, nats.
    pub least_confident_group: Option<f64>,
    /// Usable logprob positions ÷ output tokens, 0..=1; of a classifier 1 where its scores could be read.
    pub coverage: Option<f64>,
    /// Alternatives a position, after the sampled token was deduplicated.
    pub top_k: Option<u32>,
    /// Why entropy is not known.
    pub entropy_unavailable: Option<Unavailable>,
    /// Output tokens seen (logprob positions, usage, or an estimate).
    pub tokens: Option<u64>,
    /// seq-rep-4: 1 − distinct 4-grams ÷ 4-grams, 0..=1.
    pub repetition: Option<f64>,
    /// Largest compression ratio of a trailing 512-byte window.
    pub compression: Option<f64>,
    /// Share of letters in scripts that neither prompt nor golden set has, 0..=1.
    pub foreign_share: Option<f64>,
    /// Bytes of answer text.
    pub text_bytes: u64,
    /// Cosine distance of the answer to its references, 0..=2.
    pub drift: Option<f64>,
    /// Entropy H of a classifier's distribution, nats; of independent labels the mean binary entropy. Mean
    /// over the rows of a batch, like the other signals of a classifier.
    pub class_entropy: Option<f64>,
    /// H ÷ ln C, 0..=1 (÷ ln 2 for independent labels); `None` where the number of classes is not known.
    pub class_entropy_ratio: Option<f64>,
    /// What a classifier's scores are.
    pub class_output: Option<ClassOutput>,
    /// Top-1 probability of a classifier, 0..=1.
    pub confidence: Option<f64>,
    /// Top-1 less top-2 probability, 0..=1.
    pub margin: Option<f64>,
    /// Dimension of the vectors of an embeddings answer; last axis of the first tensor of numbers.
    pub dim: Option<u32>,
    /// L2 norm of the first vector, or of that tensor's first row.
    pub norm: Option<f64>,
    /// Vectors or documents in the answer; rows of that tensor (the batch).
    pub items: Option<u32>,
}

/// Durations of one attempt, milliseconds from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Whole duration.
    pub total_ms: u64,
    /// Until the response headers.
    pub headers_ms: Option<u64>,
    /// Until the first text, reasoning, tool call or refusal.
    pub ttft_ms: Option<u64>,
    /// Output tokens ÷ seconds after the first text.
    pub tokens_per_second: Option<f64>,
}

impl Timing {
    /// Until the first text; of an answer that came in one piece, until it came.
    #[must_use]
    pub fn first_text_ms(&self) -> u64 {
        self.ttft_ms.unwrap_or(self.total_ms)
    }
}

/// The alternatives of one token position, as given: token bytes and natural-log probability.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TopK {
    /// The sampled token.
    pub sampled: Vec<u8>,
    /// Usable alternatives, deduplicated, most likely first.
    pub alternatives: Vec<(Vec<u8>, f64)>,
}

/// Result of a golden prompt's check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckResult {
    /// The answer is what was asked for.
    Pass,
    /// It is not.
    Fail,
    /// The prompt has no check, or the answer could not be judged.
    NotJudged,
}

/// What one attempt at one target showed, for the detectors.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When the attempt ended.
    pub at: Timestamp,
    /// The daemon's id of the exchange.
    pub request_id: Arc<str>,
    /// Route name; empty for the daemon's own probes.
    pub route: Arc<str>,
    /// Target name.
    pub target: Arc<str>,
    /// Where it came from.
    pub source: Source,
    /// Its protocol.
    pub wire: Wire,
    /// Upstream status, if one came.
    pub status: Option<u16>,
    /// Whose fault, if it failed.
    pub class: Option<FaultClass>,
    /// All flags raised.
    pub flags: FlagSet,
    /// Measured meaning.
    pub signals: Signals,
    /// Token counts.
    pub usage: Usage,
    /// Durations.
    pub timing: Timing,
    /// Hash over all that shapes the answer; equal requests are equal.
    pub request_hash: u64,
    /// The golden prompt, if it was one.
    pub prompt_id: Option<Arc<str>>,
    /// Its check.
    pub check: Option<CheckResult>,
    /// The first position's alternatives (canaries).
    pub first_position: Option<TopK>,
    /// Prompt text for the embedder, capped; taken out before anything is stored.
    pub prompt_text: Option<Arc<str>>,
    /// Answer text for the embedder, capped; taken out before anything is stored.
    pub answer_text: Option<Arc<str>>,
    /// Whether the analysis saw only a part of the answer.
    pub partial: bool,
    /// Whether its texts were read lightly, for want of processor time.
    pub light: bool,
    /// Generation of the breaker at admission; a late result of an earlier one changes nothing.
    pub generation: u64,
}

/// The small fact that the breaker needs of each attempt. Never dropped.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// When the attempt ended.
    pub at: Timestamp,
    /// Route name; empty for the daemon's own probes.
    pub route: Arc<str>,
    /// Target name.
    pub target: Arc<str>,
    /// Generation of the breaker at admission.
    pub generation: u64,
    /// Where it came from.
    pub source: Source,
    /// Whose fault, if it failed; `None` is a sound answer.
    pub class: Option<FaultClass>,
    /// All flags raised.
    pub flags: FlagSet,
    /// Hash of the request.
    pub request_hash: u64,
    /// Upstream status, if one came.
    pub status: Option<u16>,
    /// Durations.
    pub timing: Timing,
    /// Whether the answer streamed.
    pub streaming: bool,
    /// Whether its texts were read lightly: that they show no fault then proves little.
    pub light: bool,
    /// `Retry-After` of the upstream, milliseconds, capped.
    pub retry_after_ms: Option<u64>,
    /// Token counts.
    pub usage: Usage,
    /// What it cost, US dollars, where the target has a price.
    pub cost_usd: Option<f64>,
    /// Whether a refusal meant the caller's own key alone, so that it says nothing about the target.
    pub keyed: bool,
}

/// One attempt inside an [`Exchange`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// Target name.
    pub target: Arc<str>,
    /// Tier index.
    pub tier: u32,
    /// Upstream status, if one came.
    pub status: Option<u16>,
    /// Whole duration, milliseconds.
    pub ms: u64,
    /// Until first text, milliseconds.
    pub ttft_ms: Option<u64>,
    /// `ok`, `failed`, `refused`, `client_gone`.
    pub outcome: AttemptOutcome,
    /// Whose fault.
    pub class: Option<FaultClass>,
    /// Flags raised.
    pub flags: FlagSet,
}

/// How one attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    /// A sound answer.
    Ok,
    /// A fault of some class.
    Failed,
    /// The caller left.
    ClientGone,
}

/// One caller's request from arrival to the last byte, for `/v1/requests/{id}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exchange {
    /// The daemon's id.
    pub id: Arc<str>,
    /// When it arrived.
    pub at: Timestamp,
    /// W3C trace id.
    pub trace_id: Arc<str>,
    /// `x-touchstone-workflow`.
    pub workflow: Option<Arc<str>>,
    /// Route name.
    pub route: Arc<str>,
    /// Protocol.
    pub wire: Wire,
    /// All tries, in order.
    pub attempts: Vec<Attempt>,
    /// Flags of the answer that was delivered.
    pub flags: FlagSet,
    /// Signals of the answer that was delivered.
    pub signals: Signals,
    /// Usage of the answer that was delivered.
    pub usage: Usage,
    /// Money of all attempts, USD.
    pub cost_usd: Option<f64>,
    /// What the caller saw; 499 if it left.
    pub client_status: u16,
    /// Whether the answer broke off after a part had been delivered, or the analysis was partial.
    pub partial: bool,
    /// Whether its texts were read lightly, for want of processor time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub light: bool,
    /// Tier that answered: a number, `cache`, `passthrough`, or `none`.
    pub tier: Arc<str>,
    /// Target that answered.
    pub target: Option<Arc<str>>,
    /// `x-touchstone-degraded`.
    pub degraded: Option<String>,
    /// Whole duration, milliseconds.
    pub ms: u64,
}

/// The small fact of each finished request that counters need. Never dropped.
#[derive(Clone, Debug)]
pub struct Done {
    /// When it ended.
    pub at: Timestamp,
    /// Route name.
    pub route: Arc<str>,
    /// Target that answered; empty if none.
    pub target: Arc<str>,
    /// Tier that answered.
    pub tier: Arc<str>,
    /// What the caller saw.
    pub client_status: u16,
    /// Degraded reason, without its flag.
    pub reason: Option<crate::verdict::Reason>,
    /// Target the route would have used first.
    pub first_target: Arc<str>,
    /// Whole duration, milliseconds.
    pub ms: u64,
    /// Time spent in the daemon and not waiting for the upstream, microseconds.
    pub overhead_us: u64,
    /// Number of tries.
    pub attempts: u32,
}

/// What everyone may read of a target's breaker at any time, without waiting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Admission {
    /// State of the breaker; in shadow mode what it would be.
    pub state: BreakerState,
    /// Share of requests admitted while closed, 0..=1 (ramp).
    pub share: f64,
    /// Live probes admitted while half-open; 0 where golden probes decide.
    pub live_probes: u32,
    /// When an open breaker is due to half-open.
    pub due: Option<Timestamp>,
    /// Until when the target cools down after backpressure.
    pub cooling_until: Option<Timestamp>,
    /// While degraded in capacity: largest prompt (estimated tokens) and batch (inputs) that it takes.
    pub small_only: Option<(u64, u32)>,
    /// Changes with every state; results of an earlier one are late.
    pub generation: u64,
    /// Why, in the closed vocabulary of the breaker.
    pub cause: &'static str,
}
