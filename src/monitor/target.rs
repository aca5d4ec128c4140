//! The pure core of one target: detectors, health and breaker composed. Observations and time go in,
//! [`Effect`]s come out; the loop around it publishes, stores and asks the prober.
//!
//! In shadow mode nothing here differs: the true computed state is published together with the mode,
//! and the proxy does not act on it. An opening is then told as `would_open`.

mod arms;
mod telling;
mod told;
mod trial;
mod view;
mod watch;

#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::baseline::Baseline;
use crate::breaker::{self, Breaker, Cause, Transition};
use crate::clock::Timestamp;
use crate::detect::burst::Report;
use crate::detect::conformal::Healthy;
use crate::detect::engine::EngineWatch;
use crate::detect::hard_faults::{HardFaults, Rate};
use crate::detect::rule::{self, Rule, Ruling};
use crate::detect::{self, Arm, Burst, Finding, Level, Signal, Signals, signal};
use crate::event::{Event, EventKind};
use crate::health::{self, Health};
use crate::prompt::BurstReason;
use crate::sample::{Admission, Outcome, Sample};
use crate::verdict::{BreakerState, HealthState, Mode, Source, Unavailable};

pub use arms::Learned;
pub use view::TargetView;

/// What a target is configured to be.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Name.
    pub name: Arc<str>,
    /// Shadow or enforce, for the words of events only.
    pub mode: Mode,
    /// `[breaker]` with the target's own values over it.
    pub breaker: breaker::Params,
    /// `[quality.arms]`.
    pub detect: detect::Params,
    /// The rules meant for this target.
    pub rules: Vec<rule::Params>,
    /// The daemon holds the key: a 401 or 403 is not the caller's fault.
    pub own_key: bool,
    /// The daemon names the model: a 404 is not the caller's fault.
    pub own_model: bool,
}

/// What the loop has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Store and publish at once.
    Transition(Transition),
    /// Number, store, publish.
    Event(Box<EventOf>),
    /// Ask the prober for a golden burst.
    StartBurst {
        /// Why.
        reason: BurstReason,
        /// Generation that its items carry.
        generation: u64,
    },
    /// The burst under way has its verdict: ask no further item.
    StopBurst,
    /// Ask the prober for half-open probes.
    StartProbe {
        /// Generation that they carry.
        generation: u64,
        /// How many.
        count: u32,
    },
    /// A slow spike began: one small call warms the target's caches.
    WarmUp,
    /// Enough is learned: find the limit that keeps its promise, off the loop, and tell
    /// [`TargetCore::on_tested`].
    SelfTest {
        /// Of what.
        what: Learned,
        /// The observations.
        healthy: Healthy,
    },
}

/// An [`Event`] that can be compared in tests.
#[derive(Clone, Debug)]
pub struct EventOf(pub Event);

impl PartialEq for EventOf {
    fn eq(&self, other: &Self) -> bool {
        let (a, b) = (&self.0, &other.0);
        (a.at, a.kind, &a.reason, &a.message) == (b.at, b.kind, &b.reason, &b.message)
    }
}

/// What of a target survives a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Breaker.
    pub breaker: breaker::Saved,
    /// Health.
    pub health: health::Saved,
    /// Healthy rates of hard faults.
    #[serde(default)]
    pub hard_faults: detect::hard_faults::Saved,
    /// Healthy live blocks by route.
    #[serde(default)]
    pub blocks: std::collections::BTreeMap<Arc<str>, detect::blocks::Saved>,
}

/// All state of one target.
#[derive(Clone, Debug)]
pub struct TargetCore {
    setup: Setup,
    breaker: Breaker,
    health: Health,
    faults: HardFaults,
    told: told::Told,
    arms: arms::Arms,
    rules: Vec<Rule>,
    signals: Signals,
    baseline: Option<Arc<Baseline>>,
    burst: Option<(u64, Burst)>,
    last_burst: Option<Report>,
    burst_prompts: bool,
    coverage: Vec<f64>,
    coverage_lost: bool,
    output: detect::output::OutputWatch,
    engine: EngineWatch,
    entropy_unavailable: Option<Unavailable>,
    refusals: u32,
    misconfigured: bool,
    /// A caller has been served.
    serves: bool,
    spike: bool,
    alone: bool,
    last_seen: Option<Timestamp>,
    bursts_total: u64,
    bursts_degraded: u64,
}

impl TargetCore {
    /// A target of which nothing is known.
    #[must_use]
    pub fn new(setup: Setup, seed: u64) -> Self {
        let rules = setup.rules.iter().cloned().map(Rule::new).collect();
        Self {
            breaker: Breaker::new(setup.breaker.clone(), seed),
            health: Health::default(),
            faults: HardFaults::new(),
            told: told::Told::default(),
            arms: arms::Arms::default(),
            rules,
            signals: Signals::default(),
            baseline: None,
            burst: None,
            last_burst: None,
            burst_prompts: false,
            coverage: Vec::new(),
            coverage_lost: false,
            output: detect::output::OutputWatch::default(),
            engine: EngineWatch::default(),
            entropy_unavailable: None,
            refusals: 0,
            misconfigured: false,
            serves: false,
            spike: false,
            alone: false,
            last_seen: None,
            bursts_total: 0,
            bursts_degraded: 0,
            setup,
        }
    }

    /// Takes up a saved state, before the first observation.
    pub fn restore(&mut self, saved: Saved, seed: u64, now: Timestamp) {
        self.breaker = Breaker::restore(self.setup.breaker.clone(), seed, saved.breaker, now);
        self.health = Health::restore(saved.health, now);
        self.faults = HardFaults::restore(&saved.hard_faults);
        self.arms.restore(&saved.blocks);
        if let Some(why) = self.unavailable_by_breaker() {
            let _ = self
                .health
                .set_unavailable(self.breaker.since(), Some((why.as_str(), self.breaker.message())));
        }
    }

    /// What must survive a restart.
    #[must_use]
    pub fn saved(&self) -> Saved {
        Saved {
            breaker: self.breaker.saved(),
            health: self.health.saved(),
            hard_faults: self.faults.saved(),
            blocks: self.arms.saved(),
        }
    }

    /// Takes new values (a reload); state stays, rules begin anew.
    pub fn set_setup(&mut self, setup: Setup) {
        self.breaker.set_params(setup.breaker.clone());
        if setup.rules != self.setup.rules {
            self.rules = setup.rules.iter().cloned().map(Rule::new).collect();
        }
        self.setup = setup;
    }

    /// Which golden prompts there are, and the baseline to compare with, if one is frozen.
    #[must_use]
    pub fn set_golden(
        &mut self,
        now: Timestamp,
        canaries: bool,
        bursts: bool,
        baseline: Option<Arc<Baseline>>,
    ) -> Vec<Effect> {
        self.burst_prompts = bursts;
        self.breaker.set_golden(canaries, bursts && baseline.is_some());
        let (faults, answers) = baseline.as_ref().map_or((0, 0), |b| b.hard_faults);
        self.faults.set_golden(Rate { faults, answers });
        let change = self.health.set_calibrated(now, baseline.is_some(), bursts);
        self.arms.set_baseline(baseline.as_deref());
        self.engine = EngineWatch::default();
        self.baseline = baseline;
        self.coverage.clear();
        let mut effects = Vec::new();
        self.tell_change(now, change, &mut effects);
        effects
    }

    /// An attempt ended, whoever made it.
    #[must_use]
    pub fn on_outcome(&mut self, outcome: &Outcome) -> Vec<Effect> {
        let mut effects = Vec::new();
        let live = matches!(outcome.source, Source::Live | Source::Observe);
        if live {
            self.last_seen = self.last_seen.max(Some(outcome.at));
        }
        self.watch_configuration(outcome, live, &mut effects);
        if matches!(outcome.source, Source::Probe) || self.is_trial_item(outcome) {
            return effects; // judged whole in on_probe and on_burst_item
        }
        let current = outcome.generation == self.breaker.generation();
        let transition = self.breaker.on_outcome(outcome);
        self.tell_transition(transition, &mut effects);
        let flowing = matches!(self.breaker.state(), BreakerState::Closed | BreakerState::ForcedClosed);
        if live && current && flowing && self.setup.detect.hard_faults() {
            let learning = self.health.is_unsuspected();
            if let Some(finding) = self.faults.on_outcome(outcome, learning) {
                self.act_on(&finding, &mut effects);
            }
        }
        self.note_spike(outcome.at, &mut effects);
        effects
    }

    /// A rich observation; `drift` is the answer's cosine distance to its references, if embedded.
    #[must_use]
    pub fn on_sample(&mut self, sample: &Sample, drift: Option<f64>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (signal, value) in signal::of(sample, drift) {
            self.record(sample.at, signal, value);
        }
        if matches!(sample.source, Source::Canary | Source::Burst | Source::Probe) {
            self.entropy_unavailable = sample.signals.entropy_unavailable;
            self.watch_coverage(sample, &mut effects);
        }
        let healthy = self.baseline.as_ref().and_then(|b| b.fingerprint.class_output);
        if let Some(finding) = self.output.record(sample, healthy) {
            self.act_on(&finding, &mut effects);
        }
        self.watch_answers(sample, &mut effects);
        effects
    }

    /// A signal that is measured over many answers (prompt drift, fallback ratio).
    pub fn on_signal(&mut self, at: Timestamp, signal: Signal, value: f64) {
        if value.is_finite() {
            self.record(at, signal, value);
        }
    }

    /// Time passes. `alone`: no other tier of any of its routes can answer now.
    #[must_use]
    pub fn tick(&mut self, now: Timestamp, alone: bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.alone = alone;
        let transition = self.breaker.tick(now);
        self.tell_transition(transition, &mut effects);
        self.rule(now, &mut effects);
        let change = self.health.tick(now);
        self.tell_change(now, change, &mut effects);
        self.settle_last_target(now, &mut effects);
        if self.burst.as_ref().is_some_and(|(generation, _)| *generation != self.breaker.generation()) {
            self.burst = None;
            effects.push(Effect::StopBurst);
        }
        let flowing = matches!(self.breaker.state(), BreakerState::Closed | BreakerState::ForcedClosed);
        if flowing && self.burst.is_none() {
            let generation = self.breaker.generation();
            effects
                .extend(self.health.take_burst(now).map(|reason| Effect::StartBurst { reason, generation }));
        }
        self.ask_probes(&mut effects);
        self.note_spike(now, &mut effects);
        effects
    }

    /// Another instance's breaker of the same target has opened or closed.
    #[must_use]
    pub fn adopt(
        &mut self,
        now: Timestamp,
        open: bool,
        due: Option<Timestamp>,
        cause: Cause,
        message: &str,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        let transition = self.breaker.adopt(now, open, due, cause, message);
        self.tell_transition(transition, &mut effects);
        effects
    }

    /// An operator acts.
    #[must_use]
    pub fn operator(&mut self, now: Timestamp, action: breaker::Action, reason: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        let transition = self.breaker.operator(now, action, reason);
        if let Some(t) = &transition {
            self.tell(
                now,
                EventKind::Operator,
                "operator",
                &t.message,
                serde_json::Value::Null,
                &mut effects,
            );
        }
        self.tell_transition(transition, &mut effects);
        effects
    }

    /// What it is configured to be.
    #[must_use]
    pub const fn setup(&self) -> &Setup {
        &self.setup
    }

    /// What everyone may know at `now`.
    #[must_use]
    pub fn admission(&self, now: Timestamp) -> Admission {
        self.breaker.admission(now)
    }

    /// The breaker, to read.
    #[must_use]
    pub const fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Health, to read.
    #[must_use]
    pub const fn health(&self) -> &Health {
        &self.health
    }

    /// When a caller last used the target.
    #[must_use]
    pub const fn last_seen(&self) -> Option<Timestamp> {
        self.last_seen
    }

    /// How long a first text is worth waiting for, as calibration found, milliseconds.
    #[must_use]
    pub fn first_text_ms(&self) -> Option<u64> {
        self.baseline.as_ref().and_then(|b| b.first_text_limit_ms())
    }

    /// The signals of the last five minutes, to read.
    #[must_use]
    pub const fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Whether the target refuses the configured key, model or path.
    #[must_use]
    pub const fn is_misconfigured(&self) -> bool {
        self.misconfigured
    }

    fn record(&mut self, at: Timestamp, signal: Signal, value: f64) {
        self.signals.record(at, signal, value);
        for rule in &mut self.rules {
            rule.record(at, signal, value);
        }
    }

    fn is_trial_item(&self, outcome: &Outcome) -> bool {
        outcome.source == Source::Burst && self.breaker.state() == BreakerState::HalfOpen
    }

    fn rule(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if self.breaker.state() != BreakerState::Closed {
            return; // what does not serve is not ruled on
        }
        let rulings: Vec<Ruling> = self.rules.iter_mut().filter_map(|rule| rule.tick(now)).collect();
        for ruling in rulings {
            match ruling {
                Ruling::Held(finding) => self.act_on(&finding, effects),
                Ruling::Ceased(name, why) => {
                    self.tell(now, EventKind::Rule, &name, &why, serde_json::Value::Null, effects);
                }
            }
        }
    }

    fn act_on(&mut self, finding: &Finding, effects: &mut Vec<Effect>) {
        let untold = self.told.admits(finding);
        if let Some(untold) = untold {
            let kind = if finding.arm == Arm::Rule { EventKind::Rule } else { EventKind::Finding };
            let mut data = serde_json::to_value(finding).unwrap_or_default();
            data["untold"] = untold.into();
            self.tell(finding.at, kind, &finding.reason, &finding.message, data, effects);
        }
        let change = self.health.on_finding(finding);
        self.tell_change(finding.at, change, effects);
        if finding.level == Level::Degraded {
            let cause = match finding.arm {
                Arm::Rule => Cause::Rule,
                Arm::B1 => Cause::GoldenBurst,
                _ => Cause::HardFaults,
            };
            let transition = self.breaker.trip(finding.at, cause, &finding.message, self.alone);
            self.tell_transition(transition, effects);
        }
        if untold.is_some() {
            self.told.note(finding); // what it has changed may have made all else news again
        }
    }

    /// The last target opens once another tier can answer, and is admitted in full once it is well.
    fn settle_last_target(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let Some((cause, message)) = self.breaker.last_target().cloned() else { return };
        if self.health.quality() != HealthState::Degraded {
            self.breaker.absolve(now);
        } else if !self.alone {
            let transition = self.breaker.trip(now, cause, &message, false);
            self.tell_transition(transition, effects);
        }
    }

    fn note_spike(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let spike = self.breaker.slow_spike(now);
        if spike && !self.spike {
            effects.push(Effect::WarmUp);
        }
        self.spike = spike;
    }
}
