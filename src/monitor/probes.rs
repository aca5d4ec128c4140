//! What the probers report, and the operator's burst.

use std::sync::Arc;

use super::orders::{Calibrated, Called, Order, Report};
use super::run::Monitor;
use super::target::Effect;
use crate::baseline::Baseline;
use crate::event::EventKind;
use crate::prompt::BurstReason;
use crate::verdict::Source;

impl Monitor {
    pub(super) fn report(&mut self, report: Report) {
        match report {
            Report::Called(called) => self.called(*called),
            Report::BurstStarted { target, reason, planned, generation } => {
                let now = self.out.clock.now();
                if let Some(watched) = self.targets.get_mut(&target) {
                    watched.core.on_burst_started(now, reason, planned, generation);
                }
            }
            Report::BurstEnded { target } => {
                let now = self.out.clock.now();
                let Some(watched) = self.targets.get_mut(&target) else { return };
                let effects = watched.core.on_burst_ended(now);
                self.apply(&target, effects);
            }
            Report::ProbeLost { target, generation, why } => {
                let now = self.out.clock.now();
                let Some(watched) = self.targets.get_mut(&target) else { return };
                let effects = watched.core.on_probe_lost(now, generation, &why);
                self.apply(&target, effects);
            }
            Report::Calibrating { target, done, planned } => {
                if let Some(watched) = self.targets.get_mut(&target) {
                    watched.calibration = Some((done, planned));
                }
            }
            Report::NextCall { target, at } => {
                if let Some(watched) = self.targets.get_mut(&target) {
                    watched.next_call = at;
                }
            }
            Report::Calibrated(calibrated) => self.calibrated(calibrated),
        }
    }

    fn called(&mut self, called: Called) {
        let Called { mut sample, outcome, engine, similarity, more } = called;
        sample.signals.drift = similarity.map(|s| 1.0 - s);
        self.count_outcome(&outcome);
        self.out.store.record_sample(Box::new(sample.clone()));
        let target = Arc::clone(&sample.target);
        let Some(watched) = self.targets.get_mut(&target) else { return };
        let mut effects = engine.map(|e| watched.core.on_engine(sample.at, &e)).unwrap_or_default();
        effects.extend(watched.core.on_outcome(&outcome));
        effects.extend(watched.core.on_sample(&sample, sample.signals.drift));
        match sample.source {
            Source::Burst => effects.extend(watched.core.on_burst_item(&sample, similarity)),
            Source::Probe => effects.extend(watched.core.on_probe(&sample, false)),
            _ => {}
        }
        let stop = effects.iter().any(|e| matches!(e, Effect::StopBurst));
        self.apply(&target, effects);
        if let Some(more) = more {
            let _ = more.send(!stop); // a prober that is gone asks no further
        }
    }

    fn calibrated(&mut self, calibrated: Calibrated) {
        let now = self.out.clock.now();
        let Calibrated { target, result } = calibrated;
        let Some(watched) = self.targets.get_mut(&target) else { return };
        watched.calibration = None;
        let (word, message, effects) = match result {
            Ok(baseline) => {
                self.out.store.record_baseline(Baseline::clone(&baseline));
                let message = baseline.verdict.join("; ");
                let (canaries, bursts) = watched.golden;
                ("calibrated", message, watched.core.set_golden(now, canaries, bursts, Some(baseline)))
            }
            Err(why) => ("refused", why, Vec::new()),
        };
        self.event(now, EventKind::Calibration, Some(&target), word, message, serde_json::Value::Null);
        self.apply(&target, effects);
        self.publish(&target, now);
        self.show(now);
    }

    pub(super) fn burst_on_demand(&self, target: &str) -> Result<(), String> {
        let watched = self.targets.get(target).ok_or("no such target")?;
        if !watched.golden.1 {
            return Err("its golden set has no burst prompts".to_owned());
        }
        if !watched.core.health().is_calibrated() {
            return Err("it is not calibrated, so a burst would show nothing".to_owned());
        }
        let generation = watched.core.breaker().generation();
        let order = Order::Burst { reason: BurstReason::Demand, generation };
        watched.prober.try_send(order).map_err(|_| "its prober is busy".to_owned())
    }
}
