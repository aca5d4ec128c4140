//! The arms that compare a target with its healthy self: canaries (A1, A3), border inputs (A2) and blocks of live answers (C1).
//!
//! They may raise suspicion only. A target that has changed without being worse is watched from then on
//! against a provisional reference, learned from what it says now, until an operator calibrates anew; live
//! blocks are learned anew once a golden burst has found the target sound. What was learned is tested
//! before it is used; the test takes a second and is the loop's business ([`Effect::SelfTest`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::baseline::{Baseline, Engine, Tested};
use crate::clock::Timestamp;
use crate::detect::blocks::{self, Blocks, Step};
use crate::detect::calibration::ANOTHER_MODEL;
use crate::detect::canary::{Learner, Plan, Reference, bare_token};
use crate::detect::selftest::PROMISE;
use crate::detect::{Arm, ArmStatus, Border, Canaries, Finding, engine};
use crate::event::EventKind;
use crate::sample::Sample;
use crate::verdict::{BreakerState, FaultClass, Source};

use super::{Effect, TargetCore};

/// Routes watched apart; more share one stream.
const MAX_ROUTES: usize = 64;

/// What was learned and wants a self-test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    /// Canaries, provisionally.
    Canaries,
    /// Live blocks of a route.
    Blocks(Arc<str>),
}

/// The arms of one target.
#[derive(Clone, Debug, Default)]
pub(super) struct Arms {
    canaries: Option<Canaries>,
    delay: Option<f64>,
    learner: Option<Learner>,
    untested: Option<Reference>,
    border: Option<Border>,
    blocks: BTreeMap<Arc<str>, Blocks>,
}

impl Arms {
    pub(super) fn set_baseline(&mut self, baseline: Option<&Baseline>) {
        (self.canaries, self.learner, self.untested, self.delay) = (None, None, None, None);
        self.border = baseline.and_then(|b| b.border.as_ref()).map(Border::new);
        let k = baseline.map_or(0, |b| b.fingerprint.top_k);
        self.border.iter_mut().for_each(|border| border.set_logprobs(k > 0));
        if let Some(baseline) = baseline
            && let Some(canary) = &baseline.canary
        {
            let promise = if canary.tested.promise > 0.0 { canary.tested.promise } else { PROMISE };
            self.delay = canary.tested.delays.get(ANOTHER_MODEL).copied();
            self.canaries = Some(Canaries::new(Reference::of_baseline(baseline), &canary.tested, promise));
        }
    }

    /// Learns from the canaries to come and watches them from then on.
    pub(super) fn learn_canaries(&mut self) {
        (self.canaries, self.untested, self.delay) = (None, None, None);
        self.learner = Some(Learner::new(Plan::PROVISIONAL));
    }

    pub(super) fn restart(&mut self) {
        self.canaries.iter_mut().for_each(Canaries::restart);
        self.border.iter_mut().for_each(Border::restart);
        self.blocks.values_mut().for_each(Blocks::restart);
    }

    /// A golden burst has found the target sound.
    pub(super) fn on_sound(&mut self, changed: bool) {
        if changed && self.learner.is_none() && self.untested.is_none() {
            self.learn_canaries();
            self.border.iter_mut().for_each(Border::learn_anew);
        } else if !changed {
            self.canaries.iter_mut().for_each(Canaries::restart);
            self.border.iter_mut().for_each(Border::restart);
        }
        self.blocks.values_mut().filter(|b| b.has_moved()).for_each(Blocks::learn_anew);
    }

    pub(super) fn saved(&self) -> BTreeMap<Arc<str>, blocks::Saved> {
        self.blocks.iter().filter_map(|(route, b)| Some((Arc::clone(route), b.saved()?))).collect()
    }

    pub(super) fn restore(&mut self, saved: &BTreeMap<Arc<str>, blocks::Saved>) {
        let restored = saved.iter().take(MAX_ROUTES).map(|(r, s)| (Arc::clone(r), Blocks::restore(s)));
        self.blocks = restored.collect();
    }

    fn blocks_of(&mut self, route: &Arc<str>) -> &mut Blocks {
        let full = self.blocks.len() >= MAX_ROUTES && !self.blocks.contains_key(route);
        let name = if full { Arc::from("other") } else { Arc::clone(route) };
        self.blocks.entry(name).or_default()
    }

    pub(super) fn status(&self) -> Vec<ArmStatus> {
        let mut all: Vec<ArmStatus> = match (&self.canaries, &self.learner) {
            (Some(canaries), _) => canaries.status(self.delay).into(),
            (None, learner) => {
                let why = match learner {
                    Some(learner) => {
                        let (done, planned) = learner.progress();
                        format!("learning: {done} of {planned} canaries")
                    }
                    None if self.untested.is_some() => "testing its reference".to_owned(),
                    None => "not calibrated".to_owned(),
                };
                [(Arm::A1, PROMISE), (Arm::A3, PROMISE.ln())]
                    .map(|(arm, limit)| idle(arm, limit, &why))
                    .into()
            }
        };
        all.extend(self.border.iter().map(Border::status));
        all.extend(self.blocks.iter().map(|(route, b)| b.status(route)));
        all
    }
}

fn idle(arm: Arm, limit: f64, why: &str) -> ArmStatus {
    ArmStatus {
        arm,
        route: None,
        unavailable: Some(why.to_owned()),
        statistic: 0.0,
        n: 0,
        limit,
        arl0: Some(PROMISE),
        realised: None,
        onset: None,
        expected_delay: None,
    }
}

impl TargetCore {
    /// Hands a sample to the arms it is for.
    pub(super) fn watch_answers(&mut self, sample: &Sample, effects: &mut Vec<Effect>) {
        let flowing = matches!(self.breaker.state(), BreakerState::Closed | BreakerState::ForcedClosed);
        if sample.source == Source::Canary {
            if self.setup.detect.canaries() && flowing {
                self.watch_canary(sample, effects);
            }
        } else if self.setup.detect.blocks() && flowing && blocks::counts(sample) {
            let healthy = self.health.is_unsuspected();
            let blocks = self.arms.blocks_of(&sample.route);
            match blocks.record(sample, healthy) {
                Some(Step::Found(finding)) => self.act_on(&finding, effects),
                Some(Step::Learned(healthy)) => {
                    effects
                        .push(Effect::SelfTest { what: Learned::Blocks(Arc::clone(&sample.route)), healthy });
                }
                None => {}
            }
        }
    }

    fn watch_canary(&mut self, sample: &Sample, effects: &mut Vec<Effect>) {
        let answered = matches!(sample.class, None | Some(FaultClass::Info | FaultClass::QualitySoft));
        let (Some(prompt), Some(first), true) = (&sample.prompt_id, &sample.first_position, answered) else {
            return;
        };
        if let Some(border) = &mut self.arms.border {
            if border.knows(prompt) {
                if let Some(finding) = border.record(sample.at, prompt, &bare_token(first)) {
                    self.act_on(&finding, effects);
                }
                return;
            }
            border.set_logprobs(!first.alternatives.is_empty());
        }
        if let Some(learner) = &mut self.arms.learner {
            learner.record(prompt, first);
            if learner.is_done()
                && let Some(learner) = self.arms.learner.take()
            {
                let reference = learner.finish();
                let healthy = reference.healthy.clone();
                self.arms.untested = Some(reference);
                effects.push(Effect::SelfTest { what: Learned::Canaries, healthy });
            }
            return;
        }
        let findings = match &mut self.arms.canaries {
            Some(canaries) => canaries.record(sample.at, prompt, first),
            None => return,
        };
        for finding in findings {
            self.act_on(&finding, effects);
        }
    }

    /// What was learned has been tested.
    pub fn on_tested(&mut self, what: &Learned, tested: &Tested) {
        match what {
            Learned::Canaries => {
                if let Some(reference) = self.arms.untested.take() {
                    self.arms.canaries = Some(Canaries::new(reference, tested, tested.promise).provisional());
                }
            }
            Learned::Blocks(route) => self.arms.blocks_of(route).on_tested(tested.clone()),
        }
    }

    /// Without a baseline: learns from the canaries to come and watches them from then on.
    pub fn learn_canaries(&mut self) {
        self.arms.learn_canaries();
    }

    /// The embedder has an answer's drift given its prompt.
    pub fn on_drift(&mut self, route: &Arc<str>, drift: f64) {
        if self.setup.detect.blocks() && drift.is_finite() {
            self.arms.blocks_of(route).record_drift(drift);
        }
    }

    /// A golden call was answered by this engine.
    #[must_use]
    pub fn on_engine(&mut self, at: Timestamp, engine: &Engine) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some(baseline) = self.baseline.clone() else { return effects };
        match self.engine.record(at, engine, &baseline.fingerprint) {
            None => {}
            Some(engine::Step::Changed(finding)) => {
                self.arms.learn_canaries();
                self.arms.border.iter_mut().for_each(Border::learn_anew);
                self.act_on(&finding, &mut effects);
            }
            Some(engine::Step::Back) => {
                self.arms.set_baseline(Some(&baseline));
                let message = "the engine that was calibrated answers again; its baseline is compared with";
                let nothing = serde_json::Value::Null;
                self.tell(at, EventKind::Finding, "engine_back", message, nothing, &mut effects);
                let change = self.health.on_engine_back(at, message);
                self.tell_change(at, change, &mut effects);
            }
        }
        effects
    }

    /// Live answers have moved from their reference while the prompts have not.
    #[must_use]
    pub fn on_live_shift(&mut self, finding: &Finding) -> Vec<Effect> {
        let mut effects = Vec::new();
        let flowing = matches!(self.breaker.state(), BreakerState::Closed | BreakerState::ForcedClosed);
        if self.setup.detect.blocks() && flowing {
            self.act_on(finding, &mut effects);
        }
        effects
    }

    /// When live blocks of a route last took an answer while armed, and last found a change.
    #[must_use]
    pub fn live_blocks(&self, route: &str) -> Option<(Timestamp, Option<Timestamp>)> {
        let blocks = self.arms.blocks.get(route)?;
        Some((blocks.watching_since()?, blocks.last_alarm()))
    }

    /// All targets of a route have moved together: what callers ask has changed, not this target.
    #[must_use]
    pub fn on_workload_changed(&mut self, now: Timestamp, route: &Arc<str>, message: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.arms.blocks_of(route).learn_anew();
        let change = self.health.on_workload_changed(now, message);
        self.tell_change(now, change, &mut effects);
        effects
    }
}

#[cfg(test)]
mod tests;
