//! What is published of one target: the body of `/v1/health` and `/v1/targets/{name}`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::baseline::Fingerprint;
use crate::clock::Timestamp;
use crate::detect::burst::Report;
use crate::detect::signal::Summary;
use crate::detect::{Arm, ArmStatus};
use crate::health::Reason;
use crate::verdict::{BreakerState, HealthState, Mode, Unavailable};

use super::TargetCore;

/// One target, to read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TargetView {
    /// Name.
    pub name: Arc<str>,
    /// Health.
    pub health: HealthState,
    /// Breaker; in shadow mode what it would be.
    pub breaker: BreakerState,
    /// Shadow or enforce.
    pub mode: Mode,
    /// In shadow mode: the breaker would keep traffic out now.
    pub would_open: bool,
    /// Why, the weightiest first.
    pub reasons: Vec<Reason>,
    /// Since when health holds.
    pub since: Timestamp,
    /// Why the breaker is in its state, in a closed word.
    pub breaker_cause: &'static str,
    /// Why, in words and numbers.
    pub breaker_message: String,
    /// Since when the breaker holds.
    pub breaker_since: Timestamp,
    /// Generation of the breaker.
    pub generation: u64,
    /// Share of requests admitted, 0..=1.
    pub share: f64,
    /// Whether there is a baseline to compare with.
    pub calibrated: bool,
    /// When an open breaker is probed next.
    pub next_probe_at: Option<Timestamp>,
    /// Until when the target cools down after backpressure.
    pub cooling_until: Option<Timestamp>,
    /// Slow or failing share while closed.
    pub partial_failure_ratio: Option<f64>,
    /// Whether the target is degraded in capacity.
    pub capacity_degraded: bool,
    /// Whether the target refuses the configured key, model or path.
    pub misconfigured: bool,
    /// The signals of the last five minutes that are available.
    pub signals: BTreeMap<&'static str, Summary>,
    /// Each detector's standing.
    pub arms: Vec<ArmStatus>,
    /// Canaries until a finding if every answer were another model's, by the fastest arm that can run now.
    pub expected_delay_canaries: Option<f64>,
    /// Usable logprob positions ÷ tokens of the last canaries.
    pub coverage: Option<f64>,
    /// Why entropy is not known, if so.
    pub entropy_unavailable: Option<Unavailable>,
    /// What the baseline was made under.
    pub baseline: Option<Fingerprint>,
    /// When the baseline was made.
    pub baseline_made_at: Option<Timestamp>,
    /// The last golden burst.
    pub last_burst: Option<Report>,
    /// When a caller last used the target.
    pub last_seen: Option<Timestamp>,
}

impl TargetCore {
    /// All of the target at `now`. Reads many windows: for the API and the metrics, not per request.
    #[must_use]
    pub fn view(&self, now: Timestamp) -> TargetView {
        let admission = self.admission(now);
        let closed = matches!(admission.state, BreakerState::Closed | BreakerState::ForcedClosed);
        TargetView {
            name: Arc::clone(&self.setup.name),
            health: self.health.state(),
            breaker: admission.state,
            mode: self.setup.mode,
            would_open: self.setup.mode == Mode::Shadow && !closed,
            reasons: self.health.reasons().cloned().collect(),
            since: self.health.since(),
            breaker_cause: admission.cause,
            breaker_message: self.breaker.message().to_owned(),
            breaker_since: self.breaker.since(),
            generation: admission.generation,
            share: admission.share,
            calibrated: self.health.is_calibrated(),
            next_probe_at: admission.due,
            cooling_until: admission.cooling_until,
            partial_failure_ratio: self.breaker.partial_failure_ratio(now),
            capacity_degraded: self.breaker.capacity_degraded(now),
            misconfigured: self.misconfigured,
            signals: self.signals.summary(now),
            expected_delay_canaries: self.expected_delay(),
            arms: self.arms(now),
            coverage: mean(&self.coverage),
            entropy_unavailable: self.entropy_unavailable,
            baseline: self.baseline.as_ref().map(|b| b.fingerprint.clone()),
            baseline_made_at: self.baseline.as_ref().map(|b| b.made_at),
            last_burst: self.last_burst.clone(),
            last_seen: self.last_seen,
        }
    }

    fn expected_delay(&self) -> Option<f64> {
        let canary = |a: &ArmStatus| matches!(a.arm, Arm::A1 | Arm::A2 | Arm::A3) && a.unavailable.is_none();
        let delays = self.arms.status().into_iter().filter(canary).filter_map(|a| a.expected_delay);
        delays.filter(|_| self.setup.detect.canaries()).min_by(f64::total_cmp)
    }

    fn arms(&self, now: Timestamp) -> Vec<ArmStatus> {
        let mut arms = self.faults.status(now);
        if !self.setup.detect.hard_faults() {
            for arm in &mut arms {
                arm.unavailable = Some("switched off".to_owned());
            }
        }
        let mut own = self.arms.status();
        for arm in &mut own {
            let on = match arm.arm {
                Arm::C1 => self.setup.detect.blocks(),
                _ => self.setup.detect.canaries(),
            };
            if !on {
                arm.unavailable = Some("switched off".to_owned());
            }
        }
        arms.extend(own);
        arms.push(self.burst_status());
        arms.extend(self.output.status());
        arms
    }

    #[allow(clippy::cast_precision_loss)]
    fn burst_status(&self) -> ArmStatus {
        let unavailable = match (self.burst_prompts, self.baseline.is_some()) {
            (false, _) => Some("no golden burst prompts"),
            (_, false) => Some("not calibrated"),
            _ => None,
        };
        let limit = 1.0 / self.setup.detect.golden().p_value();
        let last = self.last_burst.as_ref();
        let all = self.bursts_total as f64;
        ArmStatus {
            arm: Arm::B1,
            route: None,
            unavailable: unavailable.map(str::to_owned),
            statistic: last.map_or(0.0, |r| r.e_value),
            n: last.map_or(0, |r| u64::from(r.judged)),
            limit,
            arl0: Some(limit),
            realised: (self.bursts_degraded > 0).then(|| all / self.bursts_degraded as f64),
            onset: None,
            expected_delay: Some(4.0),
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
