//! Arm B1: a golden burst tells whether a target is *worse*, not only different.
//!
//! Every prompt is compared with itself: its check is a Bernoulli trial with that prompt's own healthy
//! pass rate, its similarity a conformal score against that prompt's own healthy re-runs (a model fails
//! some prompts in health too, and no fixed number of passes fits two models). Items are judged one by
//! one: a product of likelihood ratios (a test martingale, averaged over three sizes of loss) past 100 shows
//! "degraded" at 0.01 at any moment (Ville's inequality), so that garbage ends a burst after four items.
//! At the end the exact distribution of the number of passes decides: degraded when the pass rate is
//! down by 15 points beyond chance or p < 0.01; sound when nothing speaks against it; else undecided.
//!
//! Similarity counts as lost only well below the lowest healthy re-run: other words for the same answer
//! are a change, not a loss.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::baseline::Baseline;
use crate::clock::Timestamp;
use crate::prompt::BurstReason;
use crate::sample::CheckResult;
use crate::verdict::{FaultClass, Flag, FlagSet};

use super::{Arm, Finding, Level, upper95};

/// More items a burst never judges.
pub const MAX_ITEMS: u32 = 50;
/// Fewer judged items decide nothing, unless fewer were planned.
const MIN_ITEMS: u32 = 12;
/// Items before an early verdict, so that one odd answer ends nothing.
const MIN_EARLY: u32 = 4;
/// Lost items before an early verdict.
const MIN_LOST: u32 = 3;
/// Pass rate down by this much is degraded.
const DROP: f64 = 0.15;
/// … if chance does so less often than this, for few items swing by 15 points in health.
const DROP_CHANCE: f64 = 0.05;
/// A p-value below is degraded whatever the drop.
const DEGRADED_P: f64 = 0.01;
/// Above this p-value, and with a drop below [`SOUND_DROP`], the burst is sound.
const SOUND_P: f64 = 0.05;
/// Two thirds of the degrading drop.
const SOUND_DROP: f64 = 0.10;
/// Sizes of loss that are bet on: the share of the healthy pass rate that is gone.
const LOSSES: [f64; 3] = [0.3, 0.6, 0.95];
/// Weight, in runs, of all prompts' pass rate in each prompt's own: the least and the most that the spread of
/// the prompts' own rates can give it.
const SHRINKAGE: (f64, f64) = (1.0, 200.0);
/// No prompt's healthy rate is believed to be nearer to 0 or 1.
const RATE_EDGE: f64 = 0.01;
/// A similarity counts as lost only this far below the lowest healthy re-run.
const SIMILARITY_MARGIN: f64 = 0.10;
/// With this share of items lost to errors the burst cannot judge.
const MAX_ERROR_SHARE: f64 = 0.5;

/// The values of a burst that an operator may set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, try_from = "WrittenParams", into = "WrittenParams")]
pub struct Params {
    drop: f64,
    p_value: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenParams {
    drop: f64,
    p_value: f64,
}

impl Default for WrittenParams {
    fn default() -> Self {
        Self { drop: DROP, p_value: DEGRADED_P }
    }
}

impl Default for Params {
    fn default() -> Self {
        Self { drop: DROP, p_value: DEGRADED_P }
    }
}

impl From<Params> for WrittenParams {
    fn from(p: Params) -> Self {
        Self { drop: p.drop, p_value: p.p_value }
    }
}

impl TryFrom<WrittenParams> for Params {
    type Error = String;

    fn try_from(w: WrittenParams) -> Result<Self, String> {
        if !(w.drop > 0.0 && w.drop <= 1.0) {
            return Err("drop: write a number above 0 and at most 1".to_owned());
        }
        if !(w.p_value > 0.0 && w.p_value <= 0.05) {
            return Err("p_value: write a number above 0 and at most 0.05".to_owned());
        }
        Ok(Self { drop: w.drop, p_value: w.p_value })
    }
}

impl Params {
    /// The p-value below which a burst is degraded.
    #[must_use]
    pub const fn p_value(&self) -> f64 {
        self.p_value
    }
}

/// One answer of a burst.
#[derive(Clone, Debug, Default)]
pub struct Item {
    /// Which prompt.
    pub prompt: Arc<str>,
    /// Its check, if it could be judged.
    pub check: Option<CheckResult>,
    /// Highest cosine of the answer to the prompt's references, if the embedder gave one.
    pub similarity: Option<f64>,
    /// Flags of the answer.
    pub flags: FlagSet,
    /// Whose fault, if it failed.
    pub class: Option<FaultClass>,
}

/// What a burst showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Worse than in health.
    Degraded,
    /// Not worse.
    Sound,
    /// Cannot tell.
    Undecided,
}

/// A burst's end, in words and numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// When it ended.
    pub at: Timestamp,
    /// Why it ran.
    pub reason: BurstReason,
    /// What it showed.
    pub verdict: Verdict,
    /// Items asked.
    pub asked: u32,
    /// Items that were judged.
    pub judged: u32,
    /// Items that no answer came to.
    pub errors: u32,
    /// Checks passed.
    pub passed: u32,
    /// Checks judged.
    pub checks: u32,
    /// Checks that health would pass.
    pub expected: f64,
    /// Similarities well below health.
    pub dissimilar: u32,
    /// Similarities judged.
    pub similarities: u32,
    /// Chance of so few passes in health.
    pub p_value: f64,
    /// The sequential statistic; 100 shows degraded.
    pub e_value: f64,
    /// In words.
    pub message: String,
}

impl Report {
    /// As a finding of arm B1.
    #[must_use]
    pub fn finding(&self, started: Timestamp) -> Finding {
        Finding {
            at: self.at,
            route: None,
            arm: Arm::B1,
            level: match self.verdict {
                Verdict::Degraded => Level::Degraded,
                Verdict::Sound | Verdict::Undecided => Level::Alert,
            },
            reason: "golden_burst".to_owned(),
            statistic: self.e_value,
            n: u64::from(self.judged),
            limit: 1.0 / DEGRADED_P,
            arl0: Some(1.0 / DEGRADED_P),
            onset: Some(started),
            message: self.message.clone(),
        }
    }
}

/// A burst under way.
#[derive(Clone, Debug)]
pub struct Burst {
    params: Params,
    baseline: Arc<Baseline>,
    reason: BurstReason,
    started: Timestamp,
    planned: u32,
    prior: Prior,
    clean_rate: f64,
    asked: u32,
    judged: u32,
    errors: u32,
    lost: u32,
    expected: f64,
    checks: Vec<(f64, bool)>,
    similarities: Vec<(f64, bool)>,
    ln_e: [f64; LOSSES.len()],
}

impl Burst {
    /// Begins a burst of `planned` items against `baseline`.
    #[must_use]
    pub fn new(
        params: Params,
        baseline: Arc<Baseline>,
        reason: BurstReason,
        planned: u32,
        now: Timestamp,
    ) -> Self {
        let (faults, answers) = baseline.hard_faults;
        let clean_rate = if answers == 0 { 0.95 } else { 1.0 - upper95(faults, answers) };
        Self {
            prior: Prior::of(&baseline),
            params,
            baseline,
            reason,
            started: now,
            planned: planned.clamp(1, MAX_ITEMS),
            clean_rate: clean_rate.clamp(0.5, 1.0 - RATE_EDGE),
            asked: 0,
            judged: 0,
            errors: 0,
            lost: 0,
            expected: 0.0,
            checks: Vec::new(),
            similarities: Vec::new(),
            ln_e: [0.0; LOSSES.len()],
        }
    }

    /// Why it runs.
    #[must_use]
    pub const fn reason(&self) -> BurstReason {
        self.reason
    }

    /// When it began.
    #[must_use]
    pub const fn started(&self) -> Timestamp {
        self.started
    }

    /// Items so far, items planned.
    #[must_use]
    pub const fn progress(&self) -> (u32, u32) {
        (self.asked, self.planned)
    }

    /// Takes the next item; a verdict that need not wait for the rest ends the burst.
    pub fn push(&mut self, now: Timestamp, item: &Item) -> Option<Report> {
        if self.asked >= self.planned {
            return Some(self.finish(now));
        }
        self.asked += 1;
        self.judge(item);
        let early =
            self.judged >= MIN_EARLY && self.lost >= MIN_LOST && self.e_value() >= 1.0 / self.params.p_value;
        (early || self.asked >= self.planned).then(|| self.finish(now))
    }

    fn judge(&mut self, item: &Item) {
        if matches!(
            item.class,
            Some(FaultClass::Upstream | FaultClass::Slow | FaultClass::Backpressure | FaultClass::Client)
        ) {
            self.errors += 1;
            return;
        }
        let Some(prompt) = self.baseline.prompts.get(&item.prompt).filter(|p| p.left_out.is_none()) else {
            return;
        };
        let hard = item.flags.iter().any(|f: Flag| f.class() == FaultClass::QualityHard);
        let has_check =
            prompt.passes > 0 && matches!(item.check, Some(CheckResult::Pass | CheckResult::Fail));
        let rate = self.prior.rate(prompt.passes, prompt.runs);
        let check = if has_check {
            self.expected += f64::from(prompt.passes) / f64::from(prompt.runs.max(1));
            Some((rate, item.check == Some(CheckResult::Pass) && !hard))
        } else if hard || item.similarity.is_none() {
            self.expected += self.clean_rate;
            Some((self.clean_rate, !hard))
        } else {
            None
        };
        let similarity = item.similarity.filter(|s| s.is_finite()).and_then(|s| {
            let lowest = prompt.similarities.iter().copied().reduce(f64::min)?;
            #[allow(clippy::cast_precision_loss)]
            let n = prompt.similarities.len() as f64;
            Some((n / (n + 1.0), s >= lowest - SIMILARITY_MARGIN))
        });
        if check.is_none() && similarity.is_none() {
            return;
        }
        self.judged += 1;
        let passed = |t: Option<(f64, bool)>| t.is_none_or(|(_, passed)| passed);
        self.lost += u32::from(!passed(check) || !passed(similarity));
        self.checks.extend(check);
        self.similarities.extend(similarity);
        for (ln_e, loss) in self.ln_e.iter_mut().zip(LOSSES) {
            // Two looks at one answer depend on each other; their mean is an e-value all the same.
            let es: Vec<f64> = [check, similarity].into_iter().flatten().map(|t| e_value(t, loss)).collect();
            #[allow(clippy::cast_precision_loss)]
            let mean = es.iter().sum::<f64>() / es.len() as f64;
            *ln_e += mean.ln();
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn e_value(&self) -> f64 {
        self.ln_e.iter().map(|l| l.min(600.0).exp()).sum::<f64>() / LOSSES.len() as f64
    }

    /// Ends the burst with what has come so far.
    #[must_use]
    pub fn finish(&self, now: Timestamp) -> Report {
        let passes = |items: &[(f64, bool)]| items.iter().filter(|(_, passed)| *passed).count();
        let (passed, checks) = (passes(&self.checks), self.checks.len());
        let (similar, similarities) = (passes(&self.similarities), self.similarities.len());
        let p_value = match (lower_tail(&self.checks), lower_tail(&self.similarities)) {
            (Some(a), Some(b)) => (2.0 * a.min(b)).min(1.0),
            (Some(p), None) | (None, Some(p)) => p,
            (None, None) => 1.0,
        };
        let e_value = self.e_value();
        #[allow(clippy::cast_precision_loss)]
        let drop = if checks == 0 { 0.0 } else { (self.expected - passed as f64) / checks as f64 };
        let verdict = self.verdict(p_value, e_value, drop);
        let word = match verdict {
            Verdict::Degraded => "worse than in health",
            Verdict::Sound => "as in health",
            Verdict::Undecided => "undecided",
        };
        let mut message = format!(
            "golden burst {word}: {passed} of {checks} checks passed, {:.1} expected ({:+.0} points)",
            self.expected,
            -drop * 100.0
        );
        if similarities > 0 {
            message +=
                &format!("; {} of {similarities} answers far from their references", similarities - similar);
        }
        if self.errors > 0 {
            message += &format!("; {} of {} without an answer", self.errors, self.asked);
        }
        message +=
            &format!("; p = {p_value:.2e}, statistic {e_value:.3e}, limit {:.0}", 1.0 / self.params.p_value);
        Report {
            at: now,
            reason: self.reason,
            verdict,
            asked: self.asked,
            judged: self.judged,
            errors: self.errors,
            passed: count(passed),
            checks: count(checks),
            expected: self.expected,
            dissimilar: count(similarities - similar),
            similarities: count(similarities),
            p_value,
            e_value,
            message,
        }
    }

    fn verdict(&self, p_value: f64, e_value: f64, drop: f64) -> Verdict {
        let enough = self.judged >= MIN_EARLY && self.lost >= MIN_LOST;
        let down = drop >= self.params.drop && p_value < DROP_CHANCE;
        if enough && (e_value >= 1.0 / self.params.p_value || p_value < self.params.p_value || down) {
            return Verdict::Degraded;
        }
        let wanted = MIN_ITEMS.min(self.planned - self.planned / 4);
        let errors = f64::from(self.errors) > MAX_ERROR_SHARE * f64::from(self.asked);
        if self.judged >= wanted && !errors && p_value >= SOUND_P && drop < SOUND_DROP {
            Verdict::Sound
        } else {
            Verdict::Undecided
        }
    }
}

/// What all prompts say about one: a prompt that passed three of three runs need not pass always, and how far
/// it may be believed is told by how different the prompts are.
///
/// A beta law over the prompts' rates, fitted by moments (Kleinman, "Proportions with extraneous variance",
/// 1973). Prompts that differ no more than chance makes them differ share one rate; prompts that always pass
/// or often fail each keep their own. Without it a single failure of a prompt that happened to pass its few
/// runs weighs far too much: a sound classifier with 94 % opened in 7 bursts of a hundred.
#[derive(Clone, Copy, Debug)]
struct Prior {
    mean: f64,
    runs: f64,
}

impl Prior {
    fn of(baseline: &Baseline) -> Self {
        let checked: Vec<(f64, f64)> = baseline
            .usable()
            .filter(|(_, p)| p.passes > 0)
            .map(|(_, p)| (f64::from(p.passes), f64::from(p.runs.max(1))))
            .collect();
        let (passes, runs) = checked.iter().fold((0.0, 0.0), |(a, b), (p, r)| (a + p, b + r));
        if runs <= 0.0 {
            return Self { mean: 0.9, runs: SHRINKAGE.0 };
        }
        let mean = clip(passes / runs);
        let prompts = checked.len() as f64;
        let spread = checked.iter().map(|(p, r)| (p / r - mean).powi(2)).sum::<f64>() / prompts;
        let chance = checked.iter().map(|(_, r)| mean * (1.0 - mean) / r).sum::<f64>() / prompts;
        let own = spread - chance;
        let weight = if own > 0.0 { mean * (1.0 - mean) / own - 1.0 } else { SHRINKAGE.1 };
        // The mean itself is an estimate: believed one standard error lower, lest it promise too much.
        let error = (mean * (1.0 - mean) / runs).sqrt();
        Self { mean: clip(mean - error), runs: weight.clamp(SHRINKAGE.0, SHRINKAGE.1) }
    }

    fn rate(self, passes: u32, runs: u32) -> f64 {
        clip((f64::from(passes) + self.runs * self.mean) / (f64::from(runs) + self.runs))
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

const fn clip(rate: f64) -> f64 {
    rate.clamp(RATE_EDGE, 1.0 - RATE_EDGE)
}

/// Likelihood ratio of one trial, the healthy rate less `loss` of it against the healthy rate.
fn e_value((rate, passed): (f64, bool), loss: f64) -> f64 {
    let lowered = rate * (1.0 - loss);
    if passed { lowered / rate } else { (1.0 - lowered) / (1.0 - rate) }
}

/// P(at most so many passes) for independent trials, exactly, half of the observed count's own chance
/// left out (mid-p); `None` for no trial.
#[allow(clippy::cast_precision_loss)]
fn lower_tail(trials: &[(f64, bool)]) -> Option<f64> {
    if trials.is_empty() {
        return None;
    }
    let mut chance = vec![0.0; trials.len() + 1];
    chance[0] = 1.0;
    for (i, (rate, _)) in trials.iter().enumerate() {
        for k in (0..=i).rev() {
            chance[k + 1] += chance[k] * rate;
            chance[k] *= 1.0 - rate;
        }
    }
    let seen = trials.iter().filter(|(_, passed)| *passed).count();
    Some(chance[..seen].iter().sum::<f64>() + chance[seen] / 2.0)
}

#[cfg(test)]
mod tests;
