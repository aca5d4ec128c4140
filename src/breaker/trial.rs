//! The half-open trial: golden probes, a golden burst, or callers' requests decide.

use crate::clock::Timestamp;
use crate::sample::Outcome;
use crate::verdict::BreakerState;

use super::{Breaker, Cause, ProbeVerdict, Transition, TrialKind, arms, seconds};

/// The trial under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    pub(super) kind: TrialKind,
    sound: u32,
    outstanding: u32,
    results: u32,
}

impl Trial {
    pub(super) const fn new(kind: TrialKind) -> Self {
        Self { kind, sound: 0, outstanding: 0, results: 0 }
    }
}

impl Breaker {
    /// How many golden probes to launch now; they count as under way from here on.
    pub fn take_probes(&mut self) -> u32 {
        if self.trial() != Some(TrialKind::Probes) {
            return 0;
        }
        let t = &mut self.trial;
        let wanted = self.params.successes.saturating_sub(t.sound + t.outstanding);
        let free = self.params.probes.saturating_sub(t.outstanding);
        let launch = wanted.min(free);
        t.outstanding += launch;
        launch
    }

    /// A golden probe ended.
    pub fn on_probe(&mut self, now: Timestamp, generation: u64, verdict: ProbeVerdict) -> Option<Transition> {
        let now = self.advance(now);
        if generation != self.generation || self.trial() != Some(TrialKind::Probes) {
            return None;
        }
        self.trial.outstanding = self.trial.outstanding.saturating_sub(1);
        self.count_probe(now, verdict, Cause::ProbesPassed)
    }

    /// An item of the trial's burst came in: the prober is alive.
    pub fn on_burst_progress(&mut self, now: Timestamp, generation: u64) {
        self.advance(now);
        if generation == self.generation && self.trial() == Some(TrialKind::Burst) {
            self.trial.results += 1;
        }
    }

    /// The trial's burst ended: `accepted` closes, anything else reopens.
    pub fn on_burst(
        &mut self,
        now: Timestamp,
        generation: u64,
        accepted: bool,
        message: &str,
    ) -> Option<Transition> {
        let now = self.advance(now);
        if generation != self.generation || self.trial() != Some(TrialKind::Burst) {
            return None;
        }
        Some(if accepted {
            self.go(now, BreakerState::Closed, Cause::BurstPassed, message.to_owned())
        } else {
            self.go(now, BreakerState::Open, Cause::BurstFailed, message.to_owned())
        })
    }

    pub(super) fn tick_half_open(&mut self, now: Timestamp) -> Option<Transition> {
        let elapsed = now.ms_since(self.since);
        let Trial { kind, results, .. } = self.trial;
        if results == 0 && kind == TrialKind::Live {
            return None; // a night without callers is no failed trial
        }
        if results == 0 && kind == TrialKind::Probes && elapsed >= self.params.half_open_limit_ms / 2 {
            // Golden probes that never come (a dead prober) must not keep a sound target out.
            self.trial.kind = TrialKind::Live;
            return None;
        }
        let limit = match kind {
            TrialKind::Burst if results > 0 => self.params.burst_limit_ms,
            _ => self.params.half_open_limit_ms,
        };
        (elapsed >= limit).then(|| {
            let message = match kind {
                TrialKind::Burst => format!("no verdict of a golden burst within {}", seconds(limit)),
                _ => format!(
                    "{} of {} sound probes within {}",
                    self.trial.sound,
                    self.params.successes,
                    seconds(limit)
                ),
            };
            self.go(now, BreakerState::Open, Cause::TrialTimeout, message)
        })
    }

    pub(super) fn live_verdict(&self, outcome: &Outcome) -> ProbeVerdict {
        if let Some(verdict) = ProbeVerdict::of_class(outcome.class, outcome.flags) {
            return verdict;
        }
        if arms::is_over(outcome, self.params.probe_limit_ms()) {
            return ProbeVerdict::Void("too slow".to_owned());
        }
        ProbeVerdict::Sound
    }

    pub(super) fn count_probe(
        &mut self,
        now: Timestamp,
        verdict: ProbeVerdict,
        passed: Cause,
    ) -> Option<Transition> {
        self.trial.results += 1;
        match verdict {
            ProbeVerdict::Sound => {
                self.trial.sound += 1;
                (self.trial.sound >= self.params.successes).then(|| {
                    let message = format!("{} sound probes", self.trial.sound);
                    self.go(now, BreakerState::Closed, passed, message)
                })
            }
            ProbeVerdict::Failed(why) => Some(self.go(now, BreakerState::Open, Cause::ProbeFailed, why)),
            ProbeVerdict::Void(_) => None,
        }
    }
}
