//! The pure core of one target: detectors, health and breaker composed. Observations and time go in,
//! [`Effect`]s come out; the loop around it publishes, stores and asks the prober.
//!
//! In shadow mode nothing here differs: the true computed state is published together with the mode,
//! and the proxy does not act on it. An opening is then told as `would_open`.

mod view;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::baseline::Baseline;
use crate::breaker::{self, Breaker, Cause, ProbeVerdict, Transition, TrialKind};
use crate::clock::Timestamp;
use crate::detect::burst::{Item, Report, Verdict};
use crate::detect::hard_faults::{HardFaults, Rate};
use crate::detect::rule::{self, Rule, Ruling};
use crate::detect::{self, Arm, Burst, Finding, Level, Signal, Signals, signal};
use crate::event::{Event, EventKind};
use crate::health::{self, Change, Health};
use crate::prompt::BurstReason;
use crate::sample::{Admission, CheckResult, Outcome, Sample};
use crate::verdict::{BreakerState, FaultClass, HealthState, Mode, Source, Unavailable};

pub use view::TargetView;

/// So many refusals of key, model or path in a row are a wrong configuration and not a caller's.
const MISCONFIGURED_AFTER: u32 = 3;
/// Canaries whose coverage is averaged.
const COVERAGE_CANARIES: usize = 10;
/// Logprobs below this share of health's are lost.
const COVERAGE_LOST: f64 = 0.9;
/// A prompt that health passes at least so often is a test of a probe.
const SURE_RATE: f64 = 0.9;

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
}

/// All state of one target.
#[derive(Clone, Debug)]
pub struct TargetCore {
    setup: Setup,
    breaker: Breaker,
    health: Health,
    faults: HardFaults,
    rules: Vec<Rule>,
    signals: Signals,
    baseline: Option<Arc<Baseline>>,
    burst: Option<(u64, Burst)>,
    last_burst: Option<Report>,
    burst_prompts: bool,
    coverage: Vec<f64>,
    coverage_lost: bool,
    entropy_unavailable: Option<Unavailable>,
    refusals: u32,
    misconfigured: bool,
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
            rules,
            signals: Signals::default(),
            baseline: None,
            burst: None,
            last_burst: None,
            burst_prompts: false,
            coverage: Vec::new(),
            coverage_lost: false,
            entropy_unavailable: None,
            refusals: 0,
            misconfigured: false,
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
        if let Some(why) = self.unavailable_by_breaker() {
            let _ = self
                .health
                .set_unavailable(self.breaker.since(), Some((why.as_str(), self.breaker.message())));
        }
    }

    /// What must survive a restart.
    #[must_use]
    pub fn saved(&self) -> Saved {
        Saved { breaker: self.breaker.saved(), health: self.health.saved(), hard_faults: self.faults.saved() }
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
        effects
    }

    /// A signal that is measured over many answers (prompt drift, fallback ratio).
    pub fn on_signal(&mut self, at: Timestamp, signal: Signal, value: f64) {
        if value.is_finite() {
            self.record(at, signal, value);
        }
    }

    /// A half-open probe came back.
    #[must_use]
    pub fn on_probe(&mut self, sample: &Sample, cached: bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        let verdict = self.probe_verdict(sample, cached);
        let transition = self.breaker.on_probe(sample.at, sample.generation, verdict);
        self.tell_transition(transition, &mut effects);
        self.ask_probes(&mut effects);
        effects
    }

    /// A half-open probe could not be made (no budget, the prober stopped).
    #[must_use]
    pub fn on_probe_lost(&mut self, now: Timestamp, generation: u64, why: &str) -> Vec<Effect> {
        let void = ProbeVerdict::Void(why.to_owned());
        let mut effects = Vec::new();
        let transition = self.breaker.on_probe(now, generation, void);
        self.tell_transition(transition, &mut effects);
        effects
    }

    /// The prober begins a burst of `planned` items.
    pub fn on_burst_started(&mut self, now: Timestamp, reason: BurstReason, planned: u32, generation: u64) {
        if let Some(baseline) = &self.baseline {
            let params = self.setup.detect.golden().clone();
            self.burst = Some((generation, Burst::new(params, Arc::clone(baseline), reason, planned, now)));
        }
    }

    /// An item of the burst came back; `similarity` is the highest cosine to its references.
    #[must_use]
    pub fn on_burst_item(&mut self, sample: &Sample, similarity: Option<f64>) -> Vec<Effect> {
        let mut effects = Vec::new();
        let Some((generation, mut burst)) = self.burst.take() else { return effects };
        if sample.generation != generation || generation != self.breaker.generation() {
            effects.push(Effect::StopBurst); // the state has moved on
            return effects;
        }
        self.breaker.on_burst_progress(sample.at, generation);
        let item = Item {
            prompt: sample.prompt_id.clone().unwrap_or_default(),
            check: sample.check,
            similarity: similarity.or_else(|| sample.signals.drift.map(|d| 1.0 - d)),
            flags: sample.flags,
            class: sample.class,
        };
        let hard = matches!(sample.class, Some(FaultClass::Upstream | FaultClass::Slow));
        let in_trial = self.breaker.trial() == Some(TrialKind::Burst);
        let report = match burst.push(sample.at, &item) {
            Some(report) => report,
            None if hard && in_trial => burst.finish(sample.at), // one hard failure reopens
            None => {
                self.burst = Some((generation, burst));
                return effects;
            }
        };
        effects.push(Effect::StopBurst);
        self.end_burst(generation, &burst, report, &mut effects);
        effects
    }

    /// The prober ended the burst before its verdict (no budget, stopped, out of prompts).
    #[must_use]
    pub fn on_burst_ended(&mut self, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some((generation, burst)) = self.burst.take() {
            let report = burst.finish(now);
            self.end_burst(generation, &burst, report, &mut effects);
        }
        effects
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
        let kind = if finding.arm == Arm::Rule { EventKind::Rule } else { EventKind::Finding };
        let data = serde_json::to_value(finding).unwrap_or_default();
        self.tell(finding.at, kind, &finding.reason, &finding.message, data, effects);
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
    }

    fn end_burst(&mut self, generation: u64, burst: &Burst, report: Report, effects: &mut Vec<Effect>) {
        self.bursts_total += 1;
        self.bursts_degraded += u64::from(report.verdict == Verdict::Degraded);
        let word = match report.verdict {
            Verdict::Degraded => "degraded",
            Verdict::Sound => "sound",
            Verdict::Undecided => "undecided",
        };
        let data = serde_json::to_value(&report).unwrap_or_default();
        self.tell(report.at, EventKind::Burst, word, &report.message, data, effects);
        if self.breaker.trial() == Some(TrialKind::Burst) {
            let accepted = report.verdict == Verdict::Sound;
            let transition = self.breaker.on_burst(report.at, generation, accepted, &report.message);
            self.tell_transition(transition, effects);
        } else {
            let change = self.health.on_burst(report.at, report.verdict, &report.message);
            self.tell_change(report.at, change, effects);
            if report.verdict == Verdict::Degraded {
                self.act_on(&report.finding(burst.started()), effects);
            }
        }
        self.last_burst = Some(report);
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

    fn probe_verdict(&self, sample: &Sample, cached: bool) -> ProbeVerdict {
        let failed =
            |class: FaultClass| ProbeVerdict::Failed(format!("a probe failed ({class}: {})", sample.flags));
        match sample.class {
            Some(class @ (FaultClass::Upstream | FaultClass::Slow | FaultClass::QualityHard)) => {
                return failed(class);
            }
            Some(class @ (FaultClass::Backpressure | FaultClass::Client)) => {
                return ProbeVerdict::Void(class.as_str().to_owned());
            }
            _ => {}
        }
        let limit = self.breaker.params().probe_limit_ms();
        if cached || sample.timing.total_ms >= limit {
            let took = sample.timing.total_ms;
            return ProbeVerdict::Void(if cached { "cached".to_owned() } else { format!("took {took} ms") });
        }
        let sure =
            sample.prompt_id.as_ref().and_then(|id| self.baseline.as_ref()?.prompts.get(id)).is_some_and(
                |p| {
                    p.runs > 0 && p.left_out.is_none() && f64::from(p.passes) >= SURE_RATE * f64::from(p.runs)
                },
            );
        if sure && sample.check == Some(CheckResult::Fail) {
            return ProbeVerdict::Void("its check failed".to_owned());
        }
        ProbeVerdict::Sound
    }

    fn ask_probes(&mut self, effects: &mut Vec<Effect>) {
        let count = self.breaker.take_probes();
        if count > 0 {
            effects.push(Effect::StartProbe { generation: self.breaker.generation(), count });
        }
    }

    fn note_spike(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        let spike = self.breaker.slow_spike(now);
        if spike && !self.spike {
            effects.push(Effect::WarmUp);
        }
        self.spike = spike;
    }

    fn watch_configuration(&mut self, outcome: &Outcome, live: bool, effects: &mut Vec<Effect>) {
        let refused = match outcome.status {
            Some(401 | 403) => self.setup.own_key || !live,
            Some(404) => self.setup.own_model || !live,
            _ => false,
        };
        if !refused {
            let served = outcome.status.is_some_and(|s| (200..300).contains(&s));
            if served {
                self.refusals = 0;
            }
            if served && std::mem::take(&mut self.misconfigured) && self.unavailable_by_breaker().is_none() {
                let change = self.health.set_unavailable(outcome.at, None);
                self.tell_change(outcome.at, change, effects);
            }
            return;
        }
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals < MISCONFIGURED_AFTER || self.misconfigured {
            return;
        }
        self.misconfigured = true;
        let message = format!(
            "it answered {} {} times in a row: check the target's key, model and url",
            outcome.status.unwrap_or_default(),
            self.refusals
        );
        let data = serde_json::json!({ "status": outcome.status });
        self.tell(outcome.at, EventKind::Misconfigured, "misconfigured", &message, data, effects);
        let change = self.health.set_unavailable(outcome.at, Some(("misconfigured", &message)));
        self.tell_change(outcome.at, change, effects);
    }

    #[allow(clippy::cast_precision_loss)]
    fn watch_coverage(&mut self, sample: &Sample, effects: &mut Vec<Effect>) {
        let had_logprobs = self.baseline.as_ref().is_some_and(|b| b.fingerprint.top_k > 0);
        let answered = matches!(sample.class, None | Some(FaultClass::Info | FaultClass::QualitySoft));
        if !had_logprobs || !answered {
            return;
        }
        if self.coverage.len() == COVERAGE_CANARIES {
            self.coverage.remove(0);
        }
        self.coverage.push(sample.signals.coverage.unwrap_or(0.0));
        if self.coverage.len() < COVERAGE_CANARIES {
            return;
        }
        let mean = self.coverage.iter().sum::<f64>() / self.coverage.len() as f64;
        let lost = mean < COVERAGE_LOST;
        if lost == std::mem::replace(&mut self.coverage_lost, lost) {
            return;
        }
        let (word, message) = if lost {
            (
                "logprobs_lost",
                format!("logprobs cover {:.0} % of tokens, health gave nearly all", mean * 100.0),
            )
        } else {
            ("logprobs_back", format!("logprobs cover {:.0} % of tokens again", mean * 100.0))
        };
        let data = serde_json::json!({ "coverage": mean, "limit": COVERAGE_LOST });
        self.tell(sample.at, EventKind::SignalLost, word, &message, data, effects);
        if lost {
            self.act_on(
                &Finding {
                    at: sample.at,
                    route: None,
                    arm: Arm::Coverage,
                    level: Level::Suspect,
                    reason: word.to_owned(),
                    statistic: mean,
                    n: COVERAGE_CANARIES as u64,
                    limit: COVERAGE_LOST,
                    arl0: None,
                    onset: None,
                    message,
                },
                effects,
            );
        }
    }

    fn unavailable_by_breaker(&self) -> Option<Cause> {
        let out = matches!(self.breaker.state(), BreakerState::Open | BreakerState::HalfOpen);
        let quality = self.health.quality() == HealthState::Degraded;
        (out && !quality).then(|| self.breaker.cause())
    }

    fn tell_transition(&mut self, transition: Option<Transition>, effects: &mut Vec<Effect>) {
        let Some(t) = transition else { return };
        let would = self.setup.mode == Mode::Shadow && t.to == BreakerState::Open;
        let kind = if would { EventKind::WouldOpen } else { EventKind::BreakerTransition };
        let data = serde_json::to_value(&t).unwrap_or_default();
        self.tell(t.at, kind, t.cause.as_str(), &t.message, data, effects);
        effects.push(Effect::Transition(t.clone()));
        if t.cause == Cause::Watchdog {
            self.tell(t.at, EventKind::Finding, "watchdog", &t.message, serde_json::Value::Null, effects);
        }
        match t.to {
            BreakerState::Open => {
                if let Some(cause) = self.unavailable_by_breaker() {
                    let change = self.health.set_unavailable(t.at, Some((cause.as_str(), &t.message)));
                    self.tell_change(t.at, change, effects);
                }
            }
            BreakerState::HalfOpen => self.begin_trial(effects),
            BreakerState::Closed => self.recover(&t, effects),
            BreakerState::ForcedOpen | BreakerState::ForcedClosed => self.available(t.at, effects),
        }
    }

    fn begin_trial(&mut self, effects: &mut Vec<Effect>) {
        let generation = self.breaker.generation();
        if self.breaker.trial() == Some(TrialKind::Burst) {
            effects.push(Effect::StartBurst { reason: BurstReason::HalfOpen, generation });
        }
        self.ask_probes(effects);
    }

    fn recover(&mut self, t: &Transition, effects: &mut Vec<Effect>) {
        self.faults.restart();
        self.rules.iter_mut().for_each(Rule::restart);
        self.available(t.at, effects);
        let change = self.health.on_recovery(t.at, &t.message);
        self.tell_change(t.at, change, effects);
    }

    fn available(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if !self.misconfigured {
            let change = self.health.set_unavailable(now, None);
            self.tell_change(now, change, effects);
        }
    }

    fn tell_change(&self, now: Timestamp, change: Option<Change>, effects: &mut Vec<Effect>) {
        let Some(c) = change else { return };
        let data = serde_json::json!({ "from": c.from, "to": c.to });
        self.tell(now, EventKind::HealthChange, &c.reason, &c.message, data, effects);
    }

    fn tell(
        &self,
        at: Timestamp,
        kind: EventKind,
        reason: &str,
        message: &str,
        data: serde_json::Value,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Event(Box::new(EventOf(Event {
            id: 0,
            at,
            kind,
            target: Some(Arc::clone(&self.setup.name)),
            route: None,
            reason: reason.to_owned(),
            message: message.to_owned(),
            data,
        }))));
    }
}
