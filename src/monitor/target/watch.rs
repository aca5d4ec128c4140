//! What is watched besides the arms: a wrong configuration, and the loss of logprobs.

use crate::detect::{Arm, Finding, Level};
use crate::event::EventKind;
use crate::sample::{Outcome, Sample};
use crate::verdict::FaultClass;

use super::{Effect, TargetCore};

/// So many refusals of key, model or path in a row are a wrong configuration and not a caller's.
const MISCONFIGURED_AFTER: u32 = 3;
/// Canaries whose coverage is averaged.
const COVERAGE_CANARIES: usize = 10;
/// Logprobs below this share of health's are lost.
const COVERAGE_LOST: f64 = 0.9;

impl TargetCore {
    pub(super) fn watch_configuration(&mut self, outcome: &Outcome, live: bool, effects: &mut Vec<Effect>) {
        let refused = match outcome.status {
            Some(401 | 403) => self.setup.own_key || !live,
            Some(404) if live => self.setup.own_model,
            // Golden prompts of another protocol than its callers' find no path: it serves, and was never calibrated.
            Some(404) => !self.serves || self.baseline.is_some(),
            _ => false,
        };
        if !refused {
            let served = outcome.status.is_some_and(|s| (200..300).contains(&s));
            if served {
                self.refusals = 0;
                self.serves |= live;
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
    pub(super) fn watch_coverage(&mut self, sample: &Sample, effects: &mut Vec<Effect>) {
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
        // A baseline of an earlier version does not tell; one-token canaries have nearly all.
        let health = self.baseline.as_ref().and_then(|b| b.canary.as_ref()).map_or(0.0, |c| c.coverage);
        let limit = COVERAGE_LOST * if health > 0.0 { health } else { 1.0 };
        let lost = mean < limit;
        if lost == std::mem::replace(&mut self.coverage_lost, lost) {
            return;
        }
        let (word, message) = if lost {
            (
                "logprobs_lost",
                format!(
                    "logprobs cover {:.0} % of tokens, in health they cover more than {:.0} %",
                    mean * 100.0,
                    limit * 100.0
                ),
            )
        } else {
            ("logprobs_back", format!("logprobs cover {:.0} % of tokens again", mean * 100.0))
        };
        let data = serde_json::json!({ "coverage": mean, "limit": limit });
        self.tell(sample.at, EventKind::SignalLost, word, &message, data, effects);
        if !lost {
            let change = self.health.on_signal_back(sample.at, &message);
            self.tell_change(sample.at, change, effects);
        }
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
                    limit,
                    arl0: None,
                    onset: None,
                    message,
                },
                effects,
            );
        }
    }
}
