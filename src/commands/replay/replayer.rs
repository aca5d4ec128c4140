//! Recorded exchanges through the daemon's own cores: judge, detectors, health, breaker.
//!
//! Memory is bounded by targets and not by exchanges. An arm that learns does so from the beginning of the
//! recording, which therefore has to be healthy, unless a frozen baseline is given. A breaker that opens is
//! noted and held closed from then on: what was recorded has been answered, and the other arms shall say
//! when they would have seen it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::meaning::{self, Meaning};
use super::recording::Judged;
use super::thresholds::Thresholds;
use crate::baseline::Baseline;
use crate::breaker;
use crate::clock::Timestamp;
use crate::detect::selftest;
use crate::detect::{self, Arm, ArmStatus, Finding, Level, rule};
use crate::embed::Embedder;
use crate::event::EventKind;
use crate::monitor::target::{Effect, Learned, Setup, TargetCore};
use crate::verdict::{BreakerState, Mode, Source};

/// Firings of one arm on one target that are listed; all are counted.
const LISTED: usize = 5;
/// Pause put between two files whose times overlap, milliseconds.
const BETWEEN_FILES_MS: u64 = 1_000;
/// Virtual time begins here: a clock that shows zero is no clock.
const BEGIN_MS: u64 = 1_000_000;
/// Targets replayed apart at most.
const MAX_TARGETS: usize = 256;

/// What is replayed against.
#[derive(Clone, Debug)]
pub struct Options {
    /// Plain rules.
    pub rules: Vec<rule::Params>,
    /// Frozen baselines by target; a target without one learns from the recording's beginning.
    pub baselines: BTreeMap<Arc<str>, Arc<Baseline>>,
    /// Resampled calibrations of each self-test.
    pub resamples: u32,
    /// Sets what is random in a self-test.
    pub seed: u64,
    /// The sentence model, if likeness and drift are wanted.
    pub embedder: Option<Arc<Embedder>>,
}

impl Default for Options {
    fn default() -> Self {
        let (rules, baselines) = (Vec::new(), BTreeMap::new());
        Self { rules, baselines, resamples: selftest::RESAMPLES, seed: 7, embedder: None }
    }
}

/// Where in the recording something happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Index of the file.
    pub file: usize,
    /// The target's exchanges of this file up to here.
    pub exchanges: u64,
    /// Canaries among them.
    pub canaries: u64,
    /// Live answers among them.
    pub live: u64,
}

/// An arm that would have fired.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Firing {
    /// Which target.
    pub target: Arc<str>,
    /// What it said.
    #[serde(flatten)]
    pub finding: Finding,
    /// Where.
    pub place: Place,
    /// Exchanges of the same kind since the label turned bad; `None` without labels or while healthy.
    pub delay: Option<u64>,
    /// Whether the label said healthy, or it happened in the first of several files without labels.
    pub false_alarm: Option<bool>,
}

/// One target's totals.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Totals {
    /// All exchanges.
    pub exchanges: u64,
    /// Canaries.
    pub canaries: u64,
    /// Live answers.
    pub live: u64,
    /// Golden burst answers.
    pub bursts: u64,
    /// Golden bursts by verdict; only against a frozen baseline.
    pub verdicts: BTreeMap<String, u64>,
    /// Window tests of live prompts and answers that said the workload had changed.
    pub workload_changes: u64,
    /// Canaries until the canary arms were armed; `None` if they never were.
    pub armed_after: Option<u64>,
    /// Suspicions raised, by arm.
    pub suspicions: BTreeMap<Arm, u64>,
    /// Of them, while healthy.
    pub false_alarms: u64,
    /// Times the breaker would have opened.
    pub openings: u64,
    /// Healthy observations of the arms: what the promised false alarms are counted on.
    pub healthy: u64,
    /// Whether the exchanges carry labels.
    pub labelled: bool,
}

struct Target {
    core: TargetCore,
    totals: Totals,
    here: Place,
    bad_since: Option<(u64, u64)>,
    last: Timestamp,
    meaning: Meaning,
}

/// Everything found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Files in their order.
    pub files: Vec<String>,
    /// By target.
    pub targets: BTreeMap<Arc<str>, Totals>,
    /// Where each arm stands at the end, by target.
    pub arms: BTreeMap<Arc<str>, Vec<ArmStatus>>,
    /// Who would have fired and when, in order.
    pub firings: Vec<Firing>,
    /// Thresholds of single signals, where labels tell good from bad.
    pub thresholds: Vec<super::thresholds::Row>,
}

/// The cores at work.
pub struct Replayer {
    options: Options,
    targets: BTreeMap<Arc<str>, Target>,
    files: Vec<String>,
    offset_ms: Option<i128>,
    last_ms: u64,
    firings: Vec<Firing>,
    thresholds: Thresholds,
}

impl Replayer {
    /// Has seen nothing.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            targets: BTreeMap::new(),
            files: Vec::new(),
            offset_ms: None,
            last_ms: BEGIN_MS,
            firings: Vec::new(),
            thresholds: Thresholds::default(),
        }
    }

    /// Another target's baseline was found.
    pub fn know(&mut self, options: &Options) {
        self.options.baselines.clone_from(&options.baselines);
    }

    /// The next file begins.
    pub fn begin_file(&mut self, name: &str) {
        self.files.push(name.to_owned());
        self.offset_ms = None;
        for target in self.targets.values_mut() {
            target.here = Place { file: self.files.len() - 1, ..Place::default() };
        }
    }

    /// Takes the next exchange; the findings it led to.
    ///
    /// # Errors
    /// Too many targets.
    pub fn feed(&mut self, judged: Judged) -> Result<Vec<Firing>, String> {
        if self.files.is_empty() {
            self.begin_file("");
        }
        let at = self.time(judged.sample.at);
        let Judged { mut sample, mut outcome, bad } = judged.at(at);
        let name = Arc::clone(&sample.target);
        if !self.targets.contains_key(&name) {
            if self.targets.len() >= MAX_TARGETS {
                return Err(format!("more than {MAX_TARGETS} targets"));
            }
            let target = self.begin_target(&name, at);
            self.targets.insert(Arc::clone(&name), target);
        }
        let first_file = self.files.len() == 1;
        let Some(target) = self.targets.get_mut(&name) else { return Ok(Vec::new()) };
        // Without labels every file after the first stands for the change.
        let bad = bad.or_else(|| (!first_file).then_some(true));
        target.count(sample.source, bad);
        target.last = at;
        let mut effects = target.meaning.end_burst(&mut target.core, at);
        effects.extend(target.core.tick(at, false));
        let generation = target.core.breaker().generation();
        (sample.generation, outcome.generation) = (generation, generation);
        effects.extend(target.core.on_outcome(&outcome));
        effects.extend(target.core.on_sample(&sample, None));
        let (seen, prompts_moved) = target.meaning.read(&mut target.core, &sample);
        effects.extend(seen);
        target.totals.workload_changes += u64::from(prompts_moved);
        self.thresholds.record(&sample, bad);
        let mut fired = Vec::new();
        for effect in effects {
            match effect {
                Effect::SelfTest { what, healthy } => {
                    let (resamples, seed) = (self.options.resamples, self.options.seed);
                    let tested = selftest::test(&healthy, selftest::PROMISE, resamples, seed);
                    target.core.on_tested(&what, &tested);
                    if what == Learned::Canaries {
                        target.totals.armed_after.get_or_insert(target.totals.canaries);
                    }
                }
                Effect::Event(event) if matches!(event.0.kind, EventKind::Finding | EventKind::Rule) => {
                    if let Ok(finding) = serde_json::from_value::<Finding>(event.0.data) {
                        fired.push(target.fire(&name, finding, bad, first_file));
                    }
                }
                Effect::Event(event) if event.0.kind == EventKind::Burst => {
                    *target.totals.verdicts.entry(event.0.reason.clone()).or_default() += 1;
                }
                Effect::Transition(t) if t.to == BreakerState::Open => {
                    target.totals.openings += 1;
                    let _ = target.core.operator(at, breaker::Action::Close, "replay");
                }
                _ => {}
            }
        }
        let same = |f: &&Firing, new: &Firing| f.target == new.target && f.finding.arm == new.finding.arm;
        for firing in &fired {
            if self.firings.iter().filter(|f| same(f, firing)).count() < LISTED {
                self.firings.push(firing.clone());
            }
        }
        Ok(fired)
    }

    fn begin_target(&self, name: &Arc<str>, at: Timestamp) -> Target {
        let setup = Setup {
            name: Arc::clone(name),
            mode: Mode::Shadow,
            breaker: breaker::Params::default(),
            detect: detect::Params::default(),
            rules: self.options.rules.clone(),
            own_key: false,
            own_model: false,
        };
        let mut core = TargetCore::new(setup, self.options.seed);
        let mut totals = Totals::default();
        match self.options.baselines.get(name) {
            Some(baseline) => {
                let _ = core.set_golden(at, true, false, Some(Arc::clone(baseline)));
                totals.armed_after = Some(0);
            }
            None => core.learn_canaries(),
        }
        let here = Place { file: self.files.len().saturating_sub(1), ..Place::default() };
        let baseline = self.options.baselines.get(name).cloned();
        let meaning = Meaning::new(baseline, self.options.embedder.clone(), self.options.seed);
        Target { core, totals, here, bad_since: None, last: at, meaning }
    }

    /// Virtual time: as recorded, each file after the one before it.
    fn time(&mut self, at: Timestamp) -> Timestamp {
        let at = i128::from(at.as_millis());
        let offset =
            *self.offset_ms.get_or_insert(i128::from(self.last_ms.saturating_add(BETWEEN_FILES_MS)) - at);
        let shifted = u64::try_from(at + offset).unwrap_or(0).max(self.last_ms);
        self.last_ms = shifted;
        Timestamp::from_millis(shifted)
    }

    /// What was found.
    #[must_use]
    pub fn finish(mut self) -> Report {
        for target in self.targets.values_mut() {
            let end = target.last.plus_ms(meaning::BURST_GAP_MS);
            for effect in target.meaning.end_burst(&mut target.core, end) {
                if let Effect::Event(event) = effect
                    && event.0.kind == EventKind::Burst
                {
                    *target.totals.verdicts.entry(event.0.reason.clone()).or_default() += 1;
                }
            }
        }
        let arms = self.targets.iter().map(|(name, t)| (Arc::clone(name), t.core.view(t.last).arms));
        Report {
            files: self.files,
            arms: arms.collect(),
            targets: self.targets.into_iter().map(|(name, t)| (name, t.totals)).collect(),
            firings: self.firings,
            thresholds: self.thresholds.table(),
        }
    }
}

impl Target {
    fn count(&mut self, source: Source, bad: Option<bool>) {
        let (here, totals) = (&mut self.here, &mut self.totals);
        here.exchanges += 1;
        totals.exchanges += 1;
        match source {
            Source::Canary => {
                here.canaries += 1;
                totals.canaries += 1;
            }
            Source::Burst => totals.bursts += 1,
            _ => {
                here.live += 1;
                totals.live += 1;
            }
        }
        totals.labelled |= bad.is_some();
        if bad == Some(true) {
            let before = (totals.canaries, totals.live);
            let (canary, live) = (source == Source::Canary, source == Source::Live);
            self.bad_since.get_or_insert((before.0 - u64::from(canary), before.1 - u64::from(live)));
        } else {
            self.bad_since = None;
            totals.healthy += u64::from(totals.armed_after.is_some() && source == Source::Canary);
        }
    }

    fn fire(&mut self, name: &Arc<str>, finding: Finding, bad: Option<bool>, first_file: bool) -> Firing {
        let totals = &mut self.totals;
        let canary = matches!(finding.arm, Arm::A1 | Arm::A2 | Arm::A3 | Arm::Coverage);
        let delay = self
            .bad_since
            .map(|(canaries, live)| if canary { totals.canaries - canaries } else { totals.live - live });
        let false_alarm = match bad {
            Some(bad) => Some(!bad),
            None => first_file.then_some(true),
        };
        if finding.level != Level::Alert {
            *totals.suspicions.entry(finding.arm).or_default() += 1;
            totals.false_alarms += u64::from(false_alarm == Some(true));
        }
        Firing { target: Arc::clone(name), finding, place: self.here, delay, false_alarm }
    }
}
