//! From healthy answers to a frozen baseline.
//!
//! Canaries are asked in batches of random order; the first rounds make the references, later ones the
//! scores. References and scores never come from the same observation: leave-one-out on the same data is
//! not exchangeable with what comes later, and a quiet real series gave 117 false alarms in 483 probes
//! that way and none with the split. Burst prompts are asked several times; the first answer is the
//! reference of the others.
//!
//! A check that the healthy target fails is recorded and left out, since a small model fails many. Refused
//! is a target whose answers are unusable in themselves, or that leaves too few prompts to judge by.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::baseline::{Baseline, Fingerprint, PromptBaseline};
use crate::clock::Timestamp;
use crate::prompt::{Check, Prompt, PromptKind};
use crate::sample::{CheckResult, Sample, TopK};
use crate::stats::{distance, tracking};
use crate::verdict::{FaultClass, Flag};

/// Fewer usable prompts than this cannot carry a judgement.
pub const MIN_USABLE_PROMPTS: usize = 12;
/// Canary rounds that make the references before scores are taken.
const REFERENCE_ROUNDS: u32 = 5;
/// A larger share of answers that are unusable in themselves is no healthy target.
const MAX_UNUSABLE_SHARE: f64 = 0.05;
/// Score name of the first position's distance, upper tail.
pub const SCORE_DISTANCE: &str = "first_position_distance";
/// Score name of the first position's lumped entropy, both tails.
pub const SCORE_ENTROPY: &str = "first_position_entropy";

/// How much to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Runs of each burst prompt, at least 2.
    pub burst_runs: u32,
    /// Burst prompts used at most.
    pub burst_prompts: usize,
    /// Canary observations altogether.
    pub canaries: u32,
}

impl Default for Effort {
    /// 3 runs tell re-run noise; 50 is a burst's bound; 400 canaries leave 300 scores after the references.
    fn default() -> Self {
        Self { burst_runs: 3, burst_prompts: 50, canaries: 400 }
    }
}

/// Why a target was not accepted as healthy.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Its answers are unusable in themselves.
    #[error(
        "{faults} of {answers} answers are unusable ({flags}), first at prompt `{prompt}`: this target is not healthy"
    )]
    HardFaults {
        /// Unusable answers.
        faults: u32,
        /// All answers.
        answers: u32,
        /// Which flags.
        flags: String,
        /// The first prompt concerned.
        prompt: Arc<str>,
    },
    /// Too few prompts can be judged.
    #[error(
        "only {usable} of {asked} prompts are usable, {MIN_USABLE_PROMPTS} are needed; left out: {reasons}"
    )]
    TooFewPrompts {
        /// Usable prompts.
        usable: usize,
        /// Prompts asked.
        asked: usize,
        /// Prompt and reason of each left out.
        reasons: String,
    },
}

/// One answer of the healthy target.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// Flags, class, signals, check and first position.
    pub sample: &'a Sample,
    /// The answer's text.
    pub text: &'a str,
    /// Its embedding, a unit vector.
    pub embedding: Option<&'a [f32]>,
}

#[derive(Debug, Default)]
struct Asked {
    runs: u32,
    failed: u32,
    passes: u32,
    judged: u32,
    hard: Option<Flag>,
    texts: Vec<String>,
    embeddings: Vec<Vec<f32>>,
    entropies: Vec<f64>,
    first: Vec<TopK>,
}

/// A calibration in progress.
#[derive(Debug)]
pub struct Calibration {
    target: Arc<str>,
    prompts: Arc<[Arc<Prompt>]>,
    order: Vec<usize>,
    next: usize,
    asked: BTreeMap<usize, Asked>,
    scores: BTreeMap<String, Vec<f64>>,
    compression_max: f64,
    answers: u32,
    unusable: u32,
    hard_faults: u32,
    flags: BTreeMap<&'static str, u32>,
    first_unusable: Option<Arc<str>>,
}

impl Calibration {
    /// Plans the calibration of `target` on `prompts`; `seed` sets the random order.
    #[must_use]
    pub fn new(target: Arc<str>, prompts: Arc<[Arc<Prompt>]>, effort: Effort, seed: u64) -> Self {
        let order = order(&prompts, effort, seed);
        Self {
            target,
            prompts,
            order,
            next: 0,
            asked: BTreeMap::new(),
            scores: BTreeMap::new(),
            compression_max: 0.0,
            answers: 0,
            unusable: 0,
            hard_faults: 0,
            flags: BTreeMap::new(),
            first_unusable: None,
        }
    }

    /// The prompt to ask now; `None` when all is asked. Asking again without [`Self::record`] or
    /// [`Self::skip`] gives the same prompt.
    #[must_use]
    pub fn next(&self) -> Option<&Arc<Prompt>> {
        self.order.get(self.next).map(|i| &self.prompts[*i])
    }

    /// Calls made and calls planned.
    #[must_use]
    pub fn progress(&self) -> (usize, usize) {
        (self.next, self.order.len())
    }

    /// Leaves the present prompt's run out, since no answer came.
    pub fn skip(&mut self) {
        if let Some(index) = self.order.get(self.next) {
            let asked = self.asked.entry(*index).or_default();
            asked.runs += 1;
            asked.failed += 1;
            self.next += 1;
        }
    }

    /// Takes the answer to the present prompt.
    pub fn record(&mut self, seen: Observation<'_>) {
        let Some(index) = self.order.get(self.next).copied() else { return };
        self.next += 1;
        self.answers += 1;
        let prompt = &self.prompts[index];
        let asked = self.asked.entry(index).or_default();
        asked.runs += 1;
        let hard = seen.sample.flags.first_of(FaultClass::QualityHard);
        if let Some(flag) = hard {
            self.hard_faults += 1;
            asked.hard.get_or_insert(flag);
            if unusable_in_itself(flag) {
                self.unusable += 1;
                *self.flags.entry(flag.as_str()).or_default() += 1;
                self.first_unusable.get_or_insert_with(|| Arc::clone(&prompt.id));
            }
        }
        match seen.sample.check {
            Some(CheckResult::Pass) => {
                asked.passes += 1;
                asked.judged += 1;
            }
            Some(CheckResult::Fail) => asked.judged += 1,
            Some(CheckResult::NotJudged) | None => {}
        }
        let signals = &seen.sample.signals;
        self.compression_max =
            self.compression_max.max(signals.compression.filter(|c| c.is_finite()).unwrap_or(0.0));
        asked.entropies.extend(signals.entropy_mean.filter(|e| e.is_finite()));
        match prompt.kind {
            PromptKind::Canary => {
                if let Some(first) = &seen.sample.first_position {
                    score(asked, first, signals.entropy_first, &mut self.scores);
                }
            }
            PromptKind::Burst => {
                asked.texts.push(seen.text.to_owned());
                asked.embeddings.extend(seen.embedding.map(<[f32]>::to_vec));
            }
        }
    }

    /// Freezes the baseline, made under what `fingerprint` tells.
    ///
    /// # Errors
    /// [`Refusal`] if the answers are unusable in themselves or too few prompts remain.
    pub fn finish(self, now: Timestamp, fingerprint: Fingerprint) -> Result<Baseline, Refusal> {
        if f64::from(self.unusable) > MAX_UNUSABLE_SHARE * f64::from(self.answers) {
            return Err(Refusal::HardFaults {
                faults: self.unusable,
                answers: self.answers,
                flags: self.flags.keys().copied().collect::<Vec<_>>().join(", "),
                prompt: self.first_unusable.unwrap_or_else(|| Arc::from("")),
            });
        }
        let prompts: BTreeMap<Arc<str>, PromptBaseline> = self
            .asked
            .iter()
            .map(|(i, asked)| (Arc::clone(&self.prompts[*i].id), settle(&self.prompts[*i], asked)))
            .collect();
        let left: Vec<String> = prompts
            .iter()
            .filter_map(|(id, p)| p.left_out.as_ref().map(|why| format!("{id} ({why})")))
            .collect();
        let usable = prompts.len() - left.len();
        if usable < MIN_USABLE_PROMPTS {
            return Err(Refusal::TooFewPrompts { usable, asked: prompts.len(), reasons: left.join(", ") });
        }
        let scores = self.scores.values().map(Vec::len).max().unwrap_or(0);
        let mut verdict = vec![format!(
            "{} answers to {} prompts; {usable} prompts usable, {scores} canary scores",
            self.answers,
            prompts.len()
        )];
        if !left.is_empty() {
            verdict.push(format!("left out: {}", left.join(", ")));
        }
        if fingerprint.top_k == 0 {
            verdict.push("no logprobs: entropy and the canary distance are unavailable".to_owned());
        }
        Ok(Baseline {
            version: 1,
            target: self.target,
            made_at: now,
            fingerprint,
            prompts,
            compression_max: self.compression_max,
            hard_faults: (self.hard_faults, self.answers),
            scores: self.scores,
            verdict,
        })
    }
}

/// Faults that no healthy model shows, whatever it was asked. A schema or a tool call can be beyond a small
/// model and says nothing about its health.
fn unusable_in_itself(flag: Flag) -> bool {
    matches!(flag, Flag::EmptyOutput | Flag::Repetition | Flag::WhitespaceRunaway | Flag::Gibberish)
}

/// Burst prompts run by run, canaries batch by batch, each in random order.
fn order(prompts: &[Arc<Prompt>], effort: Effort, seed: u64) -> Vec<usize> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let of = |kind: PromptKind| (0..prompts.len()).filter(move |i| prompts[*i].kind == kind);
    let mut bursts: Vec<usize> = of(PromptKind::Burst).take(effort.burst_prompts).collect();
    let mut canaries: Vec<usize> = of(PromptKind::Canary).collect();
    let batches = if canaries.is_empty() { 0 } else { (effort.canaries as usize).div_ceil(canaries.len()) };
    let runs = effort.burst_runs.max(2) as usize;
    let mut order = Vec::new();
    for round in 0..runs.max(batches) {
        if round < runs {
            rng.shuffle(&mut bursts);
            order.extend_from_slice(&bursts);
        }
        if round < batches {
            rng.shuffle(&mut canaries);
            order.extend_from_slice(&canaries);
        }
    }
    order
}

/// The first rounds of a canary make its reference, later ones scores.
fn score(asked: &mut Asked, first: &TopK, entropy: Option<f64>, scores: &mut BTreeMap<String, Vec<f64>>) {
    if asked.first.len() < REFERENCE_ROUNDS as usize {
        asked.first.push(first.clone());
        return;
    }
    let probes: Vec<tracking::Position<'_>> = asked.first.iter().map(|t| t.alternatives.as_slice()).collect();
    if let Some(d) = tracking::distance(&tracking::reference(&probes), &first.alternatives) {
        scores.entry(SCORE_DISTANCE.to_owned()).or_default().push(d);
    }
    if let Some(h) = entropy.filter(|h| h.is_finite()) {
        scores.entry(SCORE_ENTROPY.to_owned()).or_default().push(h);
    }
}

fn settle(prompt: &Prompt, asked: &Asked) -> PromptBaseline {
    let mut similarities: Vec<f64> = asked
        .embeddings
        .split_first()
        .map(|(reference, reruns)| {
            reruns.iter().filter_map(|v| distance::cosine(reference[..].into(), v[..].into())).collect()
        })
        .unwrap_or_default();
    similarities.sort_by(f64::total_cmp);
    let probes: Vec<tracking::Position<'_>> = asked.first.iter().map(|t| t.alternatives.as_slice()).collect();
    let mut first_tokens = BTreeMap::new();
    for first in &asked.first {
        *first_tokens.entry(tracking::key(&first.sampled)).or_insert(0) += 1;
    }
    PromptBaseline {
        runs: asked.runs,
        passes: asked.passes,
        left_out: left_out(prompt, asked, &similarities),
        references: asked.texts.first().filter(|_| !asked.texts.is_empty()).cloned().into_iter().collect(),
        similarities,
        entropies: asked.entropies.clone(),
        first_tokens,
        first_logprobs: tracking::reference(&probes),
    }
}

fn left_out(prompt: &Prompt, asked: &Asked, similarities: &[f64]) -> Option<String> {
    if asked.failed > 0 {
        return Some(format!("{} of {} calls failed", asked.failed, asked.runs));
    }
    if let Some(flag) = asked.hard {
        return Some(format!("the healthy answer is flagged {flag}"));
    }
    match (prompt.kind, &prompt.check) {
        (PromptKind::Canary, _) => {
            (asked.first.is_empty() && asked.judged == 0).then(|| "no first token seen".to_owned())
        }
        (PromptKind::Burst, Some(Check::Similarity(least))) => match similarities.first() {
            None => Some("no embedding".to_owned()),
            Some(lowest) if lowest < least => {
                Some(format!("healthy re-runs are only {lowest:.2} similar, {least:.2} is asked"))
            }
            Some(_) => None,
        },
        (PromptKind::Burst, Some(_)) if 2 * asked.passes < asked.judged.max(1) => {
            Some(format!("its check passes {} of {} times on the healthy target", asked.passes, asked.judged))
        }
        (PromptKind::Burst, Some(_)) => None,
        (PromptKind::Burst, None) => similarities.is_empty().then(|| "nothing to judge it by".to_owned()),
    }
}

#[cfg(test)]
mod tests;
