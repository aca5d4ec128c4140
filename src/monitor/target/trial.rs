//! Golden bursts and half-open probes of one target.

use std::sync::Arc;

use crate::breaker::{ProbeVerdict, TrialKind};
use crate::clock::Timestamp;
use crate::detect::Burst;
use crate::detect::burst::{Item, Report, Verdict};
use crate::event::EventKind;
use crate::prompt::BurstReason;
use crate::sample::{CheckResult, Sample};
use crate::verdict::{FaultClass, HealthState};

use super::{Effect, TargetCore};

/// A prompt that health passes at least so often is a test of a probe.
const SURE_RATE: f64 = 0.9;

impl TargetCore {
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

    pub(super) fn end_burst(
        &mut self,
        generation: u64,
        burst: &Burst,
        report: Report,
        effects: &mut Vec<Effect>,
    ) {
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
        if report.verdict == Verdict::Sound {
            self.arms.on_sound(self.health.quality() == HealthState::Changed);
        }
        self.last_burst = Some(report);
    }

    pub(super) fn probe_verdict(&self, sample: &Sample, cached: bool) -> ProbeVerdict {
        if let Some(verdict) = ProbeVerdict::of_class(sample.class, sample.flags) {
            return verdict;
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

    pub(super) fn ask_probes(&mut self, effects: &mut Vec<Effect>) {
        let count = self.breaker.take_probes();
        if count > 0 {
            effects.push(Effect::StartProbe { generation: self.breaker.generation(), count });
        }
    }

    pub(super) fn begin_trial(&mut self, effects: &mut Vec<Effect>) {
        let generation = self.breaker.generation();
        if self.breaker.trial() == Some(TrialKind::Burst) {
            effects.push(Effect::StartBurst { reason: BurstReason::HalfOpen, generation });
        }
        self.ask_probes(effects);
    }
}
