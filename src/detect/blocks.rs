//! Arm C1: blocks of ten live answers of one route against healthy blocks.
//!
//! Live answers depend on their neighbours (sessions, times of day); ten at a time they hardly do, which
//! is what ranks need. Each block gives one mean a statistic; all of them share the arm's rate of
//! false alarms ([`super::conformal`]). A statistic that too few healthy blocks had takes no part. The
//! reference is learned from live traffic while nothing is suspected, tests itself like a calibration, and
//! is then frozen: learned anew only after a golden burst has found the target sound, since live traffic
//! also moves with what callers ask.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::baseline::Tested;
use crate::clock::Timestamp;
use crate::sample::Sample;
use crate::verdict::{FaultClass, Flag, Source};

use super::conformal::{Conformal, Healthy, Score};
use super::{Arm, ArmStatus, Finding, Level};

/// Answers of a block.
pub const BLOCK: usize = 10;
/// Healthy blocks of a reference.
pub const REFERENCE: usize = 300;
/// A statistic takes part from so many healthy blocks on.
const LEAST: usize = 200;
/// A statistic that fewer of a block's answers have is unknown for the block.
const HALF: f64 = 5.0;
/// Embedded answers are a sample of all: so many make a mean.
const FEW: f64 = 3.0;
/// Blocks until a shift of one standard deviation is found, see the bench.
const EXPECTED: f64 = 25.0;

const fn score(name: &'static str, lower: bool) -> Score {
    Score { name, upper: true, lower }
}

/// The statistics, drift last.
pub const SCORES: &[Score] = &[
    score("entropy_mean", true),
    score("logprob_mean", true),
    score("length", true),
    score("repetition", false),
    score("foreign_share", false),
    score("refusal_ratio", false),
    score("empty_ratio", false),
    score("response_drift", false),
];
const DRIFT: usize = SCORES.len() - 1;

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    total: f64,
    n: f64,
}

impl Sum {
    fn add(&mut self, value: Option<f64>) {
        if let Some(value) = value.filter(|v| v.is_finite()) {
            self.total += value;
            self.n += 1.0;
        }
    }

    fn mean(self, least: f64) -> Option<f64> {
        (self.n >= least).then(|| self.total / self.n)
    }
}

/// A reference that survives a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Healthy blocks by statistic.
    pub columns: BTreeMap<String, Vec<Option<f64>>>,
    /// What the self-test found.
    pub tested: Tested,
}

#[derive(Clone, Debug)]
enum Stage {
    Learning(Healthy),
    Testing(Healthy),
    Armed(Box<Armed>),
}

#[derive(Clone, Debug)]
struct Armed {
    healthy: Healthy,
    tested: Tested,
    detector: Option<Conformal>,
}

/// The blocks of one route on one target.
#[derive(Clone, Debug)]
pub struct Blocks {
    stage: Stage,
    answers: usize,
    sums: [Sum; SCORES.len()],
    last_alarm: Option<Timestamp>,
    last_seen: Option<Timestamp>,
    moved: bool,
}

/// What a block led to.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Enough is learned: these want a self-test, see [`Blocks::on_tested`].
    Learned(Healthy),
    /// The blocks look different.
    Found(Finding),
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            stage: Stage::Learning(Healthy::new(SCORES)),
            answers: 0,
            sums: Default::default(),
            last_alarm: None,
            last_seen: None,
            moved: false,
        }
    }
}

/// Whether a sample is a live answer that blocks are made of.
#[must_use]
pub fn counts(sample: &Sample) -> bool {
    let answered = matches!(
        sample.class,
        None | Some(FaultClass::Info | FaultClass::QualitySoft | FaultClass::QualityHard)
    );
    matches!(sample.source, Source::Live | Source::Observe) && answered && !sample.partial
}

fn values(sample: &Sample) -> [Option<f64>; DRIFT] {
    let s = &sample.signals;
    let is = |flag| Some(f64::from(u8::from(sample.flags.contains(flag))));
    [
        s.entropy_mean,
        s.logprob_mean,
        s.tokens.map(|n| (n as f64).ln_1p()),
        s.repetition,
        s.foreign_share,
        is(Flag::Refusal).filter(|_| !sample.light), // not looked for
        is(Flag::EmptyOutput),
    ]
}

impl Blocks {
    /// With the reference of an earlier life.
    #[must_use]
    pub fn restore(saved: &Saved) -> Self {
        let rows = saved.columns.values().map(Vec::len).max().unwrap_or(0);
        let mut healthy = Healthy::new(SCORES);
        for i in 0..rows {
            healthy.push(SCORES.iter().map(|s| *saved.columns.get(s.name)?.get(i)?));
        }
        let mut blocks = Self { stage: Stage::Testing(healthy), ..Self::default() };
        blocks.on_tested(saved.tested.clone());
        blocks
    }

    /// The frozen reference, if there is one.
    #[must_use]
    pub fn saved(&self) -> Option<Saved> {
        let Stage::Armed(armed) = &self.stage else { return None };
        let known = |v: &f64| Some(*v).filter(|v| v.is_finite());
        let columns = SCORES
            .iter()
            .zip(armed.healthy.columns())
            .map(|(s, c)| (s.name.to_owned(), c.iter().map(known).collect()))
            .collect();
        Some(Saved { columns, tested: armed.tested.clone() })
    }

    /// Takes one live answer (see [`counts`]). `healthy`: it may be learned from.
    pub fn record(&mut self, sample: &Sample, healthy: bool) -> Option<Step> {
        self.last_seen = Some(sample.at);
        if !healthy && matches!(self.stage, Stage::Learning(_)) {
            self.forget_block(); // nothing of a block with a suspect answer is learned
            return None;
        }
        for (sum, value) in self.sums.iter_mut().zip(values(sample)) {
            sum.add(value);
        }
        self.answers += 1;
        if self.answers < BLOCK {
            return None;
        }
        let row: Vec<Option<f64>> = self
            .sums
            .iter()
            .enumerate()
            .map(|(i, sum)| sum.mean(if i == DRIFT { FEW } else { HALF }))
            .collect();
        self.forget_block();
        self.block(sample.at, &sample.route, row)
    }

    /// Takes an answer's drift given its prompt, whenever the embedder has it.
    pub fn record_drift(&mut self, drift: f64) {
        self.sums[DRIFT].add(Some(drift));
    }

    fn forget_block(&mut self) {
        self.answers = 0;
        self.sums = Default::default();
    }

    fn block(&mut self, at: Timestamp, route: &Arc<str>, row: Vec<Option<f64>>) -> Option<Step> {
        match &mut self.stage {
            Stage::Learning(healthy) => {
                healthy.push(row);
                if healthy.len() < REFERENCE {
                    return None;
                }
                let learned = std::mem::replace(healthy, Healthy::new(SCORES));
                self.stage = Stage::Testing(learned.clone());
                Some(Step::Learned(learned))
            }
            Stage::Testing(_) => None,
            Stage::Armed(armed) => {
                let detector = armed.detector.as_mut()?;
                let alarm = detector.record(at, |name| {
                    let i = SCORES.iter().position(|s| s.name == name)?;
                    row[i]
                })?;
                (self.last_alarm, self.moved) = (Some(at), true);
                let promise = armed.tested.promise;
                let side = if alarm.larger { "larger" } else { "smaller" };
                let message = format!(
                    "live answers on route {route} look different: {} {side} than in health; statistic {:.3e} \
                     after {} blocks of {BLOCK}, limit {:.3e}, one false alarm in {promise:.0} blocks promised",
                    alarm.score, alarm.statistic, alarm.n, armed.tested.limit
                );
                Some(Step::Found(Finding {
                    at,
                    route: Some(Arc::clone(route)),
                    arm: Arm::C1,
                    level: Level::Suspect,
                    reason: format!("block_{}", alarm.score),
                    statistic: alarm.statistic,
                    n: alarm.n,
                    limit: armed.tested.limit,
                    arl0: Some(promise),
                    onset: alarm.onset,
                    message,
                }))
            }
        }
    }

    /// The self-test of what was learned has ended.
    pub fn on_tested(&mut self, tested: Tested) {
        if let Stage::Testing(healthy) = &mut self.stage {
            let healthy = std::mem::replace(healthy, Healthy::new(SCORES));
            let detector = Conformal::new(&healthy, tested.limit, LEAST).filter(|_| tested.kept);
            self.stage = Stage::Armed(Box::new(Armed { healthy, tested, detector }));
        }
    }

    /// Begins anew; the reference stays.
    pub fn restart(&mut self) {
        self.forget_block();
        if let Stage::Armed(armed) = &mut self.stage {
            armed.detector.iter_mut().for_each(Conformal::restart);
        }
    }

    /// Golden answers are sound though live ones have moved: what is healthy is learned anew.
    pub fn learn_anew(&mut self) {
        *self = Self { last_alarm: self.last_alarm, last_seen: self.last_seen, ..Self::default() };
    }

    /// When it last found a change.
    #[must_use]
    pub const fn last_alarm(&self) -> Option<Timestamp> {
        self.last_alarm
    }

    /// Whether it has found a change since it was learned.
    #[must_use]
    pub const fn has_moved(&self) -> bool {
        self.moved
    }

    /// When it last took an answer, if it is armed.
    #[must_use]
    pub fn watching_since(&self) -> Option<Timestamp> {
        self.last_seen.filter(|_| matches!(self.stage, Stage::Armed(_)))
    }

    /// Where it stands.
    #[must_use]
    pub fn status(&self, route: &Arc<str>) -> ArmStatus {
        let mut status = ArmStatus {
            arm: Arm::C1,
            route: Some(Arc::clone(route)),
            unavailable: None,
            statistic: 0.0,
            n: 0,
            limit: super::selftest::PROMISE,
            arl0: Some(super::selftest::PROMISE),
            realised: None,
            onset: None,
            expected_delay: None,
        };
        match &self.stage {
            Stage::Learning(healthy) => {
                let learned = healthy.len();
                status.unavailable = Some(format!("learning: {learned} of {REFERENCE} healthy blocks"));
            }
            Stage::Testing(_) => status.unavailable = Some("testing its reference".to_owned()),
            Stage::Armed(armed) => {
                let Some(detector) = &armed.detector else {
                    status.unavailable = Some("promise_not_kept".to_owned());
                    return status;
                };
                status.statistic = detector.statistic();
                status.n = detector.tally().n;
                status.limit = armed.tested.limit;
                status.arl0 = Some(armed.tested.promise);
                status.realised = detector.tally().realised();
                status.onset = detector.leading().2;
                status.expected_delay = Some(EXPECTED);
            }
        }
        status
    }

    /// Bytes of state.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let column = |h: &Healthy| h.len() * SCORES.len() * size_of::<f64>();
        let held = match &self.stage {
            Stage::Learning(h) | Stage::Testing(h) => column(h),
            Stage::Armed(a) => column(&a.healthy) + a.detector.as_ref().map_or(0, Conformal::bytes),
        };
        size_of::<Self>() + held
    }
}

#[cfg(test)]
mod tests;
