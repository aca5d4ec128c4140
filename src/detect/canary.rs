//! Arms A1 and A3: does a canary's first position still look as in health?
//!
//! A1 scores each canary against its own prompt: the distance of its alternatives from the prompt's
//! reference (log-probability tracking, [`crate::stats::tracking`]; large is suspicious) and the
//! difference of its lumped entropy from the reference's (both tails). The scores of all prompts make one
//! stream ([`super::conformal`]). Both are put on a tie grid, for healthy logprobs are atomic: equal to the
//! last bit on one machine and a little off with another batch size, which is no fault. The sampled
//! token's own logprob is never used. A3 counts first tokens ([`super::novelty`]).
//!
//! References and scores come from different observations ([`Learner`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::baseline::{Baseline, Tested};
use crate::clock::Timestamp;
use crate::sample::TopK;
use crate::stats::ranks::on_grid;
use crate::stats::{changepoint, entropy, tracking};

use super::conformal::{Conformal, Healthy, Score};
use super::novelty::{Counts, Novelty};
use super::{Arm, ArmStatus, Finding, Level};

/// Score name of the first position's distance, upper tail.
pub const DISTANCE: &str = "first_position_distance";
/// Score name of the change of the first position's lumped entropy, both tails.
pub const ENTROPY: &str = "first_position_entropy_change";
/// The scores of A1.
pub const SCORES: &[Score] =
    &[Score { name: DISTANCE, upper: true, lower: false }, Score { name: ENTROPY, upper: true, lower: true }];
/// Distances that differ by less are equal, nats: what other thread and batch settings do.
pub const DISTANCE_GRID: f64 = 0.05;
/// Entropies that differ by less are equal, nats.
pub const ENTROPY_GRID: f64 = 0.05;
/// Fewer scores than this cannot keep the promise at any limit.
pub const MIN_SCORES: usize = 50;
/// Chance explains a change among the canaries that are learned from with less than this.
const CHANGED_WHILE_LEARNING: f64 = 1e-4;
/// Fewer references than this are no mean.
const FEWEST_REFERENCES: usize = 10;
/// Prompts learned at most; recorded traffic may hold any number.
const MAX_PROMPTS: usize = 256;
/// An answer with fewer alternatives than this share of the reference's cannot be compared.
const MIN_K_SHARE: f64 = 0.8;

/// What health looks like at one prompt's first position.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptReference {
    /// Mean logprob of each common token, nats.
    pub logprobs: BTreeMap<String, f64>,
    /// The same of bare tokens.
    pub bare: BTreeMap<String, f64>,
    /// Mean lumped entropy, nats.
    pub entropy: Option<f64>,
}

impl PromptReference {
    fn of(probes: &[TopK], k: usize) -> Self {
        let cut = |t: &TopK| t.alternatives.iter().take(k).cloned().collect::<Vec<_>>();
        let cut: Vec<Vec<(Vec<u8>, f64)>> = probes.iter().map(cut).collect();
        let bare: Vec<Vec<(Vec<u8>, f64)>> = cut.iter().map(|p| tracking::bare(p)).collect();
        let views = |all: &[Vec<(Vec<u8>, f64)>]| {
            tracking::reference(&all.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        let entropies: Vec<f64> = cut.iter().filter_map(|p| lumped(p)).collect();
        Self { logprobs: views(&cut), bare: views(&bare), entropy: crate::stats::quantile::mean(&entropies) }
    }

    /// Distance and change of entropy of a probe, on the grid.
    fn score(&self, first: &TopK, k: usize) -> Option<(f64, f64)> {
        let seen = &first.alternatives[..first.alternatives.len().min(k)];
        let plain = tracking::distance(&self.logprobs, seen)?;
        let bare = tracking::distance(&self.bare, &tracking::bare(seen)).unwrap_or(plain);
        let change = lumped(seen)? - self.entropy?;
        Some((on_grid(plain.min(bare), DISTANCE_GRID), on_grid(change, ENTROPY_GRID)))
    }
}

fn lumped(alternatives: &[(Vec<u8>, f64)]) -> Option<f64> {
    let logprobs: Vec<f64> = alternatives.iter().map(|(_, l)| *l).collect();
    entropy::position(&logprobs, None).map(|p| p.lumped)
}

/// A first token without white space around it.
#[must_use]
pub fn bare_token(first: &TopK) -> String {
    let token = tracking::key(&first.sampled);
    let bare = token.trim();
    if bare.is_empty() { token } else { bare.to_owned() }
}

/// The first position of an answer without logprobs: its first word.
#[must_use]
pub fn first_word(text: &str) -> Option<TopK> {
    let word = text.split_whitespace().next()?;
    Some(TopK { sampled: word.as_bytes().to_vec(), alternatives: Vec::new() })
}

/// How much is learned before the arms run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// References of each prompt at least.
    pub each: u32,
    /// References altogether at least.
    pub references: u32,
    /// Scores.
    pub scores: u32,
    /// Whether the beginning is left out if the target changed while it was learned.
    pub trims: bool,
}

impl Plan {
    /// A calibration's: five a prompt and a hundred make the references, the rest are scores.
    pub const CALIBRATION: Self = Self { each: 5, references: 100, scores: 300, trims: false };
    /// For a stream that has changed, or a recorded one without a baseline: armed after a hundred.
    pub const PROVISIONAL: Self = Self { each: 3, references: 30, scores: 70, trims: true };
}

#[derive(Clone, Debug, Default)]
struct Gathered {
    probes: Vec<TopK>,
    reference: Option<PromptReference>,
}

/// Learns references and scores from healthy canaries.
#[derive(Clone, Debug)]
pub struct Learner {
    plan: Plan,
    prompts: BTreeMap<Arc<str>, Gathered>,
    counts: Counts,
    healthy: Healthy,
    references: u32,
    seen: u32,
    k: usize,
    log: Vec<(Arc<str>, TopK)>,
}

impl Learner {
    /// Has seen nothing.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self {
            plan,
            prompts: BTreeMap::new(),
            counts: Counts::new(),
            healthy: Healthy::new(SCORES),
            references: 0,
            seen: 0,
            k: 0,
            log: Vec::new(),
        }
    }

    /// Takes one healthy canary.
    pub fn record(&mut self, prompt: &Arc<str>, first: &TopK) {
        if !self.prompts.contains_key(prompt) && self.prompts.len() >= MAX_PROMPTS {
            return;
        }
        self.seen += 1;
        if self.plan.trims {
            self.log.push((Arc::clone(prompt), first.clone()));
        }
        *self.counts.entry(Arc::clone(prompt)).or_default().entry(bare_token(first)).or_default() += 1;
        let gathered = self.prompts.entry(Arc::clone(prompt)).or_default();
        if gathered.reference.is_none() {
            let few =
                (gathered.probes.len() as u32) < self.plan.each || self.references < self.plan.references;
            if few {
                self.k = self.k.max(first.alternatives.len());
                self.references += 1;
                gathered.probes.push(first.clone());
                return;
            }
            gathered.reference = Some(PromptReference::of(&gathered.probes, self.k));
        }
        let score = gathered.reference.as_ref().and_then(|r| r.score(first, self.k));
        if let Some((distance, change)) = score {
            self.healthy.push([Some(distance), Some(change)]);
        }
    }

    /// Canaries so far and those planned as far as can be told.
    #[must_use]
    pub fn progress(&self) -> (u32, u32) {
        let references = self.plan.references.max(self.plan.each * self.prompts.len() as u32);
        (self.seen, references + self.plan.scores)
    }

    /// Whether enough is learned. A target that has changed while it was learned is learned from the change on.
    pub fn is_done(&mut self) -> bool {
        let done = self.has_enough();
        if done && self.plan.trims {
            self.plan.trims = false;
            if let Some(from) = self.change() {
                let rest = self.log.split_off(from);
                let spare = rest.len().saturating_sub(MIN_SCORES); // the scores are what the promise rests on
                let references = (rest.len() * 3 / 10).min(spare).max(FEWEST_REFERENCES) as u32;
                let scores = (rest.len() as u32).saturating_sub(references).max(MIN_SCORES as u32);
                let mut anew = Self::new(Plan { references, scores, ..self.plan });
                rest.iter().for_each(|(prompt, first)| anew.record(prompt, first));
                *self = anew;
                return self.has_enough();
            }
            self.log = Vec::new();
        }
        done
    }

    fn has_enough(&self) -> bool {
        if self.k == 0 {
            let (seen, planned) = self.progress();
            return seen >= planned; // without logprobs there are first tokens only
        }
        self.healthy.len() >= self.plan.scores as usize
    }

    /// Where in the log the target changed: each prompt's probes seen from its latest ones.
    fn change(&self) -> Option<usize> {
        let late = self.log.len() * 2 / 3;
        let mut probes: BTreeMap<&Arc<str>, Vec<TopK>> = BTreeMap::new();
        for (prompt, first) in &self.log[late..] {
            probes.entry(prompt).or_default().push(first.clone());
        }
        let references: BTreeMap<_, _> =
            probes.into_iter().map(|(prompt, seen)| (prompt, PromptReference::of(&seen, self.k))).collect();
        let scored: Vec<(usize, f64)> = self.log[..late]
            .iter()
            .enumerate()
            .filter_map(|(i, (prompt, first))| Some((i, references.get(prompt)?.score(first, self.k)?.0)))
            .collect();
        let distances: Vec<f64> = scored.iter().map(|(_, d)| *d).collect();
        let place = changepoint::pettitt(&distances, CHANGED_WHILE_LEARNING)?;
        scored.get(place).map(|(i, _)| *i)
    }

    /// What was learned.
    #[must_use]
    pub fn finish(self) -> Reference {
        let k = self.k;
        let of = |g: Gathered| g.reference.unwrap_or_else(|| PromptReference::of(&g.probes, k));
        Reference {
            prompts: self.prompts.into_iter().map(|(id, g)| (id, of(g))).collect(),
            counts: self.counts,
            healthy: self.healthy,
            k,
        }
    }
}

/// Healthy canaries: references by prompt, scores, first tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// By prompt.
    pub prompts: BTreeMap<Arc<str>, PromptReference>,
    /// First tokens by prompt, bare.
    pub counts: Counts,
    /// The scores.
    pub healthy: Healthy,
    /// Alternatives a position; 0 without logprobs.
    pub k: usize,
}

impl Reference {
    /// As a baseline keeps it.
    #[must_use]
    pub fn of_baseline(baseline: &Baseline) -> Self {
        let prompts = baseline.usable().filter(|(_, p)| !p.first_tokens.is_empty());
        let reference = |p: &crate::baseline::PromptBaseline| PromptReference {
            logprobs: p.first_logprobs.clone(),
            bare: p.first_bare.clone(),
            entropy: p.first_entropy,
        };
        let (mut references, mut counts) = (BTreeMap::new(), Counts::new());
        for (id, prompt) in prompts {
            references.insert(Arc::clone(id), reference(prompt));
            counts.insert(Arc::clone(id), prompt.first_tokens.clone());
        }
        let k = baseline.canary.as_ref().map_or(0, |c| c.k);
        Self { prompts: references, counts, healthy: Healthy::from_columns(SCORES, &baseline.scores), k }
    }

    /// Distances that another model's references would have: each prompt's compared with the next one's.
    #[must_use]
    pub fn other_models(&self) -> Vec<f64> {
        let all: Vec<&PromptReference> = self.prompts.values().filter(|r| !r.logprobs.is_empty()).collect();
        let other = |i: usize| {
            let next: Vec<(Vec<u8>, f64)> =
                all[(i + 1) % all.len()].logprobs.iter().map(|(t, l)| (t.as_bytes().to_vec(), *l)).collect();
            tracking::distance(&all[i].logprobs, &next).map(|d| on_grid(d, DISTANCE_GRID))
        };
        if all.len() < 2 { Vec::new() } else { (0..all.len()).filter_map(other).collect() }
    }
}

/// Both arms of one target.
#[derive(Clone, Debug)]
pub struct Canaries {
    reference: Reference,
    shift: Option<Conformal>,
    novelty: Option<Novelty>,
    promise: f64,
    without: Option<&'static str>,
    provisional: bool,
}

impl Canaries {
    /// Against a reference, at the limit that its self-test found. A test that does not keep its promise
    /// leaves A1 in shadow.
    #[must_use]
    pub fn new(reference: Reference, tested: &Tested, promise: f64) -> Self {
        let shift = Conformal::new(&reference.healthy, tested.limit, MIN_SCORES).filter(|_| tested.kept);
        let without = match (reference.k, &shift) {
            (0, _) => Some("no_logprobs_at_calibration"),
            (_, None) if reference.healthy.len() < MIN_SCORES => Some("too_few_scores"),
            (_, None) => Some("promise_not_kept"),
            _ => None,
        };
        let novelty = Novelty::new(reference.counts.clone(), promise);
        Self { reference, shift, novelty, promise, without, provisional: false }
    }

    /// Learned after a change, until an operator calibrates anew.
    #[must_use]
    pub fn provisional(mut self) -> Self {
        self.provisional = true;
        self
    }

    /// Whether it was learned after a change.
    #[must_use]
    pub const fn is_provisional(&self) -> bool {
        self.provisional
    }

    /// Takes one canary that was answered.
    pub fn record(&mut self, at: Timestamp, prompt: &str, first: &TopK) -> Vec<Finding> {
        let mut findings = Vec::new();
        let k = self.reference.k;
        if let Some(shift) = &mut self.shift {
            let enough = first.alternatives.len() as f64 >= MIN_K_SHARE * k as f64;
            self.without = match (first.alternatives.is_empty(), enough) {
                (true, _) => Some("no_logprobs"),
                (false, false) => Some("k_mismatch"),
                _ => None,
            };
            let reference = self.reference.prompts.get(prompt).filter(|_| enough);
            if let Some((distance, change)) = reference.and_then(|r| r.score(first, k)) {
                let alarm = shift.record(at, |name| Some(if name == DISTANCE { distance } else { change }));
                let (limit, promise) = (shift.limit(), self.promise);
                findings.extend(alarm.map(|alarm| {
                    let side = if alarm.larger { "larger" } else { "smaller" };
                    let what = if alarm.score == DISTANCE { "distance from the reference" } else { "entropy" };
                    Finding {
                        at,
                        route: None,
                        arm: Arm::A1,
                        level: Level::Suspect,
                        reason: "canary_shift".to_owned(),
                        statistic: alarm.statistic,
                        n: alarm.n,
                        limit,
                        arl0: Some(promise),
                        onset: alarm.onset,
                        message: format!(
                            "canaries look different: {what} {side} than in health; statistic {:.3e} after {} \
                             canaries, limit {limit:.3e}, one false alarm in {promise:.0} promised",
                            alarm.statistic, alarm.n
                        ),
                    }
                }));
            }
        }
        if let Some(novelty) = &mut self.novelty {
            let bare = bare_token(first);
            let token = novelty.known_as(prompt, &bare).to_owned();
            let alarm = novelty.record(at, prompt, &token);
            let limit = novelty.limit();
            findings.extend(alarm.map(|alarm| Finding {
                at,
                route: None,
                arm: Arm::A3,
                level: Level::Suspect,
                reason: "first_token_novel".to_owned(),
                statistic: alarm.statistic,
                n: alarm.n,
                limit,
                arl0: Some(self.promise),
                onset: alarm.onset,
                message: format!(
                    "{} of the last {} canaries began with a token never seen in health; statistic {:.2}, \
                     limit {limit:.2}",
                    alarm.novel, alarm.n, alarm.statistic
                ),
            }));
        }
        findings
    }

    /// Begins anew: what was measured before says nothing about now.
    pub fn restart(&mut self) {
        self.shift.iter_mut().for_each(Conformal::restart);
        self.novelty.iter_mut().for_each(Novelty::restart);
    }

    /// Where both arms stand; `delays` are A1's expected delays as calibration found them.
    #[must_use]
    pub fn status(&self, delay: Option<f64>) -> [ArmStatus; 2] {
        let shift = self.shift.as_ref();
        let tally = shift.map(Conformal::tally).unwrap_or_default();
        let a1 = ArmStatus {
            arm: Arm::A1,
            route: None,
            unavailable: self.without.map(str::to_owned),
            statistic: shift.map_or(0.0, Conformal::statistic),
            n: tally.n,
            limit: shift.map_or(self.promise, Conformal::limit),
            arl0: Some(self.promise),
            realised: tally.realised(),
            onset: shift.and_then(|s| s.leading().2),
            expected_delay: delay.filter(|_| self.without.is_none()),
        };
        let novelty = self.novelty.as_ref();
        let tally = novelty.map(Novelty::tally).unwrap_or_default();
        let (statistic, onset) = novelty.map_or((0.0, None), Novelty::standing);
        let a3 = ArmStatus {
            arm: Arm::A3,
            route: None,
            unavailable: novelty.is_none().then(|| "health_is_too_varied".to_owned()),
            statistic,
            n: tally.n,
            limit: novelty.map_or_else(|| self.promise.ln(), Novelty::limit),
            arl0: Some(self.promise),
            realised: tally.realised(),
            onset,
            expected_delay: novelty.map(Novelty::delay),
        };
        [a1, a3]
    }
}

#[cfg(test)]
mod tests;
