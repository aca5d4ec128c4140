//! From healthy answers to a frozen baseline.
//!
//! Canaries are asked in batches of random order; the first rounds make the references, later ones the
//! scores. References and scores never come from the same observation: leave-one-out on the same data is
//! not exchangeable with what comes later, and a quiet real series gave 117 false alarms in 483 probes
//! that way and none with the split. Burst prompts are asked several times; the first answer is the
//! reference of the others.
//!
//! The arm that watches canaries then tests itself ([`super::selftest`]) and tells what it would cost to
//! find changes injected on paper.
//!
//! A check that the healthy target fails is recorded and left out, since a small model fails many. Refused
//! is a target whose answers are unusable in themselves, or that leaves too few prompts to judge by.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::baseline::{Baseline, CanaryBaseline, Fingerprint, PromptBaseline, Tested};
use crate::clock::Timestamp;
use crate::prompt::{Check, Prompt, PromptKind, Sampling};
use crate::sample::{CheckResult, Sample};
use crate::stats::{distance, quantile};
use crate::verdict::{FaultClass, Flag};

use super::border::search::{Search, Trial};
use super::canary::{DISTANCE_GRID, ENTROPY_GRID, Learner, MIN_SCORES, Plan, Reference};
use super::selftest;

/// The fault on paper whose delay is published as A1's: every canary answers like another model.
pub const ANOTHER_MODEL: &str = "another model";
/// Fewer usable prompts than this cannot carry a judgement.
pub const MIN_USABLE_PROMPTS: usize = 12;
/// A larger share of answers that are unusable in themselves is no healthy target.
const MAX_UNUSABLE_SHARE: f64 = 0.05;
/// Canaries asked in a day at the default pace.
const CANARIES_A_DAY: f64 = 1_440.0;
/// Runs of each fault on paper, and observations after which one counts as not found.
const PAPER: (u32, u32) = (200, 1_000);

/// How much to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Runs of each burst prompt, at least 2.
    pub burst_runs: u32,
    /// Burst prompts used at most.
    pub burst_prompts: usize,
    /// Canary observations altogether.
    pub canaries: u32,
    /// Resampled calibrations of the self-test.
    pub resamples: u32,
    /// Border inputs looked for; 0 for none.
    pub border: u32,
}

impl Default for Effort {
    /// 3 runs tell re-run noise; 50 is a burst's bound; 400 canaries leave 300 scores after the references.
    fn default() -> Self {
        Self { burst_runs: 3, burst_prompts: 50, canaries: 400, resamples: selftest::RESAMPLES, border: 0 }
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
    first: u32,
}

/// A calibration in progress.
#[derive(Debug)]
pub struct Calibration {
    target: Arc<str>,
    prompts: Arc<[Arc<Prompt>]>,
    order: Vec<usize>,
    next: usize,
    asked: BTreeMap<usize, Asked>,
    canaries: Learner,
    canary_tokens: (u64, u64, u32),
    coverage: Vec<f64>,
    /// Time to first text of each canary, which is one token long, milliseconds.
    first_text_ms: Vec<f64>,
    effort: Effort,
    seed: u64,
    border: Option<Search>,
    /// Calls beyond the golden prompts' own.
    beyond: usize,
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
        let canary = prompts.iter().find(|p| p.kind == PromptKind::Canary).filter(|_| effort.border > 0);
        let border = canary.and_then(|p| Search::new(p.wire, effort.border, seed));
        let references = Plan::CALIBRATION.references.min(effort.canaries / 4);
        Self {
            target,
            prompts,
            order,
            next: 0,
            asked: BTreeMap::new(),
            canaries: Learner::new(Plan { references, ..Plan::CALIBRATION }),
            canary_tokens: (0, 0, 0),
            coverage: Vec::new(),
            first_text_ms: Vec::new(),
            effort,
            seed,
            border,
            beyond: 0,
            compression_max: 0.0,
            answers: 0,
            unusable: 0,
            hard_faults: 0,
            flags: BTreeMap::new(),
            first_unusable: None,
        }
    }

    /// The prompt to ask now and how; `None` when all is asked. Asking again without [`Self::record`] or
    /// [`Self::skip`] gives the same prompt.
    #[must_use]
    pub fn next(&self) -> Option<Trial> {
        let golden = self.order.get(self.next).map(|i| Arc::clone(&self.prompts[*i]));
        golden
            .map(|prompt| Trial { prompt, sampling: Sampling::GREEDY })
            .or_else(|| self.border.as_ref().and_then(Search::next))
    }

    /// Calls made and calls planned, as far as can be told.
    #[must_use]
    pub fn progress(&self) -> (usize, usize) {
        let made = self.next + self.beyond;
        (made, made + self.order.len() - self.next + self.border.as_ref().map_or(0, Search::left))
    }

    /// Leaves the present prompt's run out, since no answer came.
    pub fn skip(&mut self) {
        if let Some(index) = self.order.get(self.next) {
            let asked = self.asked.entry(*index).or_default();
            asked.runs += 1;
            asked.failed += 1;
            self.next += 1;
        } else {
            self.record_border(None);
        }
    }

    fn record_border(&mut self, sample: Option<&Sample>) {
        let Some(search) = &mut self.border else { return };
        self.beyond += 1;
        let usable = sample.filter(|s| !matches!(s.class, Some(FaultClass::QualityHard)));
        search.record(usable.and_then(|s| s.first_position.as_ref()));
    }

    /// Takes the answer to the present prompt.
    pub fn record(&mut self, seen: Observation<'_>) {
        let Some(index) = self.order.get(self.next).copied() else {
            return self.record_border(Some(seen.sample));
        };
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
        self.coverage.extend(signals.coverage);
        asked.entropies.extend(signals.entropy_mean.filter(|e| e.is_finite()));
        match prompt.kind {
            PromptKind::Canary => {
                let (input, output) = (seen.sample.usage.input, seen.sample.usage.output);
                self.canary_tokens.0 += input.unwrap_or(0);
                self.canary_tokens.1 += output.unwrap_or(0);
                self.canary_tokens.2 += 1;
                self.first_text_ms.push(seen.sample.timing.first_text_ms() as f64);
                if let Some(first) = &seen.sample.first_position {
                    asked.first += 1;
                    self.canaries.record(&prompt.id, first);
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
        let (tokens, coverage, first_text) = (self.canary_tokens, self.coverage, self.first_text_ms);
        // the slowest hundredth is told by a hundred answers
        let first_text_p99_ms = quantile::told(&first_text, 0.99, 100).map(|ms| ms.ceil() as u64);
        let canaries = self.canaries.finish();
        let prompts: BTreeMap<Arc<str>, PromptBaseline> = self
            .asked
            .iter()
            .map(|(i, asked)| {
                let prompt = &self.prompts[*i];
                (Arc::clone(&prompt.id), settle(prompt, asked, &canaries))
            })
            .collect();
        let left: Vec<String> = prompts
            .iter()
            .filter_map(|(id, p)| p.left_out.as_ref().map(|why| format!("{id} ({why})")))
            .collect();
        let usable = prompts.len() - left.len();
        if usable < MIN_USABLE_PROMPTS {
            return Err(Refusal::TooFewPrompts { usable, asked: prompts.len(), reasons: left.join(", ") });
        }
        let scores = canaries.healthy.len();
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
        let canary = (tokens.2 > 0).then(|| {
            let mean = |sum: u64| sum as f64 / f64::from(tokens.2);
            let tested = try_out(&canaries, self.effort.resamples, self.seed);
            let coverage = quantile::mean(&coverage).unwrap_or(0.0);
            CanaryBaseline { k: canaries.k, tokens: (mean(tokens.0), mean(tokens.1)), coverage, tested }
        });
        verdict.extend(canary.iter().flat_map(in_words));
        let seed = self.seed;
        let (border, said) = self.border.map(|search| search.finish(seed)).unzip();
        verdict.extend(said);
        Ok(Baseline {
            version: 1,
            target: self.target,
            made_at: now,
            fingerprint,
            prompts,
            compression_max: self.compression_max,
            hard_faults: (self.hard_faults, self.answers),
            scores: canaries.healthy.to_columns(),
            canary,
            border: border.flatten(),
            first_text_p99_ms,
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

/// The limit that keeps the promise, and what changes would cost to find, on paper.
fn try_out(canaries: &Reference, resamples: u32, seed: u64) -> Tested {
    let healthy = &canaries.healthy;
    let mut tested = selftest::test(healthy, selftest::PROMISE, resamples, seed);
    if healthy.len() < MIN_SCORES {
        tested.kept = false;
    }
    if !tested.kept {
        return tested;
    }
    let spread = |column: usize, grid: f64| {
        let known = healthy.columns().get(column).and_then(|c| quantile::variance(c));
        known.map_or(grid, |v| v.sqrt().max(grid))
    };
    let (distance, entropy) = (spread(0, DISTANCE_GRID), spread(1, ENTROPY_GRID));
    let other = canaries.other_models();
    let mut paper = |name: &str, fault: selftest::Fault<'_>| {
        let delay = selftest::delay(healthy, tested.limit, fault, PAPER.0, PAPER.1, seed);
        tested.delays.extend(delay.map(|d| (name.to_owned(), d)));
    };
    for (name, sigmas) in [("entropy +1σ", 1.0), ("entropy +2σ", 2.0), ("entropy +3σ", 3.0)] {
        paper(name, &|row, _| row[1] += sigmas * entropy);
    }
    paper("one bad replica of six", &|row, rng| {
        if rng.f64() < 0.16 {
            row[0] += 3.0 * distance;
            row[1] += 3.0 * entropy;
        }
    });
    if !other.is_empty() {
        paper(ANOTHER_MODEL, &|row, rng| row[0] = other[rng.usize(..other.len())]);
    }
    tested
}

fn in_words(canary: &CanaryBaseline) -> Vec<String> {
    let t = &canary.tested;
    let (input, output) = (canary.tokens.0 * CANARIES_A_DAY, canary.tokens.1 * CANARIES_A_DAY);
    let mut lines = vec![format!("a canary a minute takes {input:.0} tokens in and {output:.0} out a day")];
    if canary.k == 0 {
        return lines;
    }
    if t.n < MIN_SCORES {
        lines.push(format!("{} canary scores are too few, {MIN_SCORES} are needed: arm a1 stays off", t.n));
        return lines;
    }
    lines.push(format!(
        "canary scores: {}, {:.0} % of them equal to another, lag-1 autocorrelation {:.2}",
        t.n,
        t.atoms * 100.0,
        t.lag1
    ));
    let word = if t.kept { "kept" } else { "not kept, arm a1 stays in shadow" };
    lines.push(format!(
        "arm a1: limit {:.3e}; one false alarm in {:.0} canaries promised, {word}: nine of ten of {} resampled \
         calibrations have at most one in {:.0}",
        t.limit, t.promise, t.resamples, t.arl0_p10
    ));
    if !t.delays.is_empty() {
        let cap = f64::from(PAPER.1);
        let one = |(name, d): (&String, &f64)| {
            if *d >= cap * 0.95 { format!("{name} not found") } else { format!("{name} {d:.1}") }
        };
        let all: Vec<String> = t.delays.iter().map(one).collect();
        lines.push(format!("expected delay in canaries: {}", all.join(", ")));
    }
    lines
}

fn settle(prompt: &Prompt, asked: &Asked, canaries: &Reference) -> PromptBaseline {
    let mut similarities: Vec<f64> = asked
        .embeddings
        .split_first()
        .map(|(reference, reruns)| {
            reruns.iter().filter_map(|v| distance::cosine(reference[..].into(), v[..].into())).collect()
        })
        .unwrap_or_default();
    similarities.sort_by(f64::total_cmp);
    let first = canaries.prompts.get(&prompt.id).cloned().unwrap_or_default();
    PromptBaseline {
        runs: asked.runs,
        passes: asked.passes,
        left_out: left_out(prompt, asked, &similarities),
        references: asked.texts.first().filter(|_| !asked.texts.is_empty()).cloned().into_iter().collect(),
        similarities,
        entropies: asked.entropies.clone(),
        first_tokens: canaries.counts.get(&prompt.id).cloned().unwrap_or_default(),
        first_logprobs: first.logprobs,
        first_bare: first.bare,
        first_entropy: first.entropy,
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
            (asked.first == 0 && asked.judged == 0).then(|| "no first token seen".to_owned())
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
