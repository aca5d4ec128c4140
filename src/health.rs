//! Findings → health of a target, with hysteresis and reasons.
//!
//! ```text
//!  unknown/healthy ──suspect finding──▶ suspect ──golden burst──▶ degraded   shown to be worse: opens
//!        ▲                                 │                  ├─▶ changed    different, not worse: alert only
//!        └───────────── cleared ───────────┴──────────────────┘
//! ```
//!
//! Changed is not worse: an arm that compares with health may only raise suspicion, and a golden burst
//! must show a loss. Where it shows none, one alarm is what the arm is allowed by chance; the target counts
//! as changed when canaries raise suspicion again within two hours. Live answers alone never say so, for
//! they also move with what callers ask. Hard faults and a rule that says so degrade at once. A state is left only on
//! evidence (a sound burst, a closed trial), or, where no burst can be asked, after a quiet time.
//! `unavailable` lies over the others: what cannot be reached is neither better nor worse, and the state
//! below is kept.

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::detect::burst::Verdict;
use crate::detect::{Arm, Finding, Level};
use crate::prompt::BurstReason;
use crate::verdict::HealthState;

/// Without a golden burst a suspicion ends after this quiet time, milliseconds.
const QUIET_MS: u64 = 600_000;
/// After an undecided burst, and for a degraded target that still takes traffic, the next one follows.
const AGAIN_MS: u64 = 300_000;
/// A changed target is looked at every hour.
const CHANGED_MS: u64 = 3_600_000;
/// A burst that was asked for and never ended is asked for again.
const LOST_MS: u64 = 900_000;
/// A second suspicion by canaries so soon after a sound burst is no chance: the target has changed.
const CONFIRM_MS: u64 = 7_200_000;
/// Reasons kept at most.
const MAX_REASONS: usize = 8;

/// Why a target is in its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// A closed word, or a rule's name.
    pub reason: String,
    /// In words and numbers.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
    /// Which detector, if one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<Arm>,
}

/// A change of state.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// State before.
    pub from: HealthState,
    /// State after.
    pub to: HealthState,
    /// A closed word.
    pub reason: String,
    /// In words and numbers.
    pub message: String,
}

/// What survives a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The state that quality gave.
    pub quality: HealthState,
    /// Since when.
    pub since: Timestamp,
    /// Why.
    pub reasons: Vec<Reason>,
}

/// Health of one target.
#[derive(Clone, Debug)]
pub struct Health {
    quality: HealthState,
    since: Timestamp,
    reasons: Vec<Reason>,
    unavailable: Option<Reason>,
    calibrated: bool,
    can_burst: bool,
    changed_arm: bool,
    lasting: bool,
    cleared: Option<Timestamp>,
    last_suspicion: Timestamp,
    next_burst: Option<(Timestamp, BurstReason)>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            quality: HealthState::Unknown,
            since: Timestamp::ZERO,
            reasons: Vec::new(),
            unavailable: None,
            calibrated: false,
            can_burst: false,
            changed_arm: false,
            lasting: false,
            cleared: None,
            last_suspicion: Timestamp::ZERO,
            next_burst: None,
        }
    }
}

impl Health {
    /// Takes up a saved state; what was suspected is looked at again.
    #[must_use]
    pub fn restore(saved: Saved, now: Timestamp) -> Self {
        let next_burst = match saved.quality {
            HealthState::Suspect => Some((now, BurstReason::Suspicion)),
            HealthState::Degraded => Some((now, BurstReason::Recheck)),
            HealthState::Changed => Some((now.plus_ms(CHANGED_MS), BurstReason::Changed)),
            _ => None,
        };
        Self {
            quality: saved.quality,
            since: saved.since.min(now),
            reasons: saved.reasons,
            last_suspicion: now,
            next_burst,
            ..Self::default()
        }
    }

    /// What must survive a restart.
    #[must_use]
    pub fn saved(&self) -> Saved {
        Saved { quality: self.quality, since: self.since, reasons: self.reasons.clone() }
    }

    /// The state now.
    #[must_use]
    pub const fn state(&self) -> HealthState {
        if self.unavailable.is_some() { HealthState::Unavailable } else { self.quality }
    }

    /// The state below `unavailable`.
    #[must_use]
    pub const fn quality(&self) -> HealthState {
        self.quality
    }

    /// Since when the state holds.
    #[must_use]
    pub fn since(&self) -> Timestamp {
        self.unavailable.as_ref().map_or(self.since, |r| r.since)
    }

    /// Why, the weightiest first.
    pub fn reasons(&self) -> impl Iterator<Item = &Reason> {
        self.unavailable.iter().chain(&self.reasons)
    }

    /// Whether there is a baseline to compare with.
    #[must_use]
    pub const fn is_calibrated(&self) -> bool {
        self.calibrated
    }

    /// Whether answers may be learned from.
    #[must_use]
    pub const fn is_unsuspected(&self) -> bool {
        matches!(self.quality, HealthState::Unknown | HealthState::Healthy)
    }

    /// A baseline was made, loaded or withdrawn; `can_burst`: there are prompts for a golden burst.
    pub fn set_calibrated(&mut self, now: Timestamp, calibrated: bool, can_burst: bool) -> Option<Change> {
        (self.calibrated, self.can_burst) = (calibrated, can_burst && calibrated);
        match (self.quality, calibrated) {
            (HealthState::Unknown, true) => {
                self.go(now, HealthState::Healthy, "calibrated", "a healthy baseline is in place")
            }
            (HealthState::Changed, true) => {
                self.go(now, HealthState::Healthy, "calibrated", "a new baseline is in place")
            }
            (HealthState::Healthy | HealthState::Changed, false) => {
                self.go(now, HealthState::Unknown, "not_calibrated", "there is no baseline to compare with")
            }
            _ => None,
        }
    }

    /// A detector spoke.
    pub fn on_finding(&mut self, finding: &Finding) -> Option<Change> {
        let now = finding.at;
        let to = match finding.level {
            Level::Alert => return None,
            Level::Suspect => {
                self.last_suspicion = now;
                self.changed_arm |= matches!(finding.arm, Arm::A1 | Arm::A2 | Arm::A3);
                // A lost signal stays lost; what had changed is not healthy again for a sound burst.
                self.lasting |= matches!(finding.arm, Arm::Coverage | Arm::Output | Arm::Engine)
                    || self.quality == HealthState::Changed;
                match self.quality {
                    HealthState::Suspect | HealthState::Degraded => {
                        self.add_reason(finding);
                        return None;
                    }
                    _ => HealthState::Suspect,
                }
            }
            Level::Degraded => HealthState::Degraded,
        };
        let change = self.go(now, to, &finding.reason, &finding.message);
        self.add_reason(finding);
        self.next_burst = Some(match to {
            HealthState::Suspect => (now, BurstReason::Suspicion),
            _ => (now.plus_ms(AGAIN_MS), BurstReason::Recheck),
        });
        change
    }

    /// A golden burst ended.
    pub fn on_burst(&mut self, now: Timestamp, verdict: Verdict, message: &str) -> Option<Change> {
        match (verdict, self.quality) {
            (Verdict::Degraded, _) => {
                self.next_burst = Some((now.plus_ms(AGAIN_MS), BurstReason::Recheck));
                if self.quality == HealthState::Degraded {
                    return None;
                }
                let change = self.go(now, HealthState::Degraded, "golden_burst", message);
                self.next_burst = Some((now.plus_ms(AGAIN_MS), BurstReason::Recheck));
                change
            }
            (Verdict::Sound, HealthState::Suspect) if self.is_confirmed(now) => {
                let change = self.go(now, HealthState::Changed, "changed_not_worse", message);
                self.next_burst = Some((now.plus_ms(CHANGED_MS), BurstReason::Changed));
                change
            }
            (Verdict::Sound, HealthState::Suspect | HealthState::Degraded) => {
                self.cleared = if self.changed_arm { Some(now) } else { self.cleared };
                let base = self.base();
                self.go(now, base, "cleared", message)
            }
            (Verdict::Sound, HealthState::Changed) => {
                self.next_burst = Some((now.plus_ms(CHANGED_MS), BurstReason::Changed));
                None
            }
            (Verdict::Sound, _) => {
                self.next_burst = None;
                None
            }
            (Verdict::Undecided, _) => {
                self.next_burst = Some((now.plus_ms(AGAIN_MS), BurstReason::Suspicion));
                None
            }
        }
    }

    /// Whether a suspicion that a burst does not confirm is a change all the same: canaries raised it twice in a
    /// short time (once is what each arm is allowed by chance), or its cause lasts.
    fn is_confirmed(&self, now: Timestamp) -> bool {
        let again = self.cleared.is_some_and(|at| now.ms_since(at) <= CONFIRM_MS);
        self.lasting || (self.changed_arm && again)
    }

    /// All targets of a route have moved together: a suspicion that rests on live answers alone is none.
    pub fn on_workload_changed(&mut self, now: Timestamp, message: &str) -> Option<Change> {
        let live = self.reasons.iter().all(|r| r.arm == Some(Arm::C1));
        if self.quality != HealthState::Suspect || !live {
            return None;
        }
        let base = self.base();
        self.go(now, base, "workload_changed", message)
    }

    /// A lost signal is back: a target that was changed by its loss alone is not changed any more.
    pub fn on_signal_back(&mut self, now: Timestamp, message: &str) -> Option<Change> {
        self.take_back(Arm::Coverage, now, "signal_back", message)
    }

    /// The calibrated engine answers again: a target that was changed by another one alone is not any more.
    pub fn on_engine_back(&mut self, now: Timestamp, message: &str) -> Option<Change> {
        self.take_back(Arm::Engine, now, "engine_back", message)
    }

    fn take_back(&mut self, arm: Arm, now: Timestamp, reason: &str, message: &str) -> Option<Change> {
        let lost = |r: &Reason| r.arm.is_none_or(|of| of == arm);
        let known = matches!(self.quality, HealthState::Changed | HealthState::Suspect);
        if !known || self.reasons.is_empty() || !self.reasons.iter().all(lost) {
            return None;
        }
        let base = self.base();
        self.go(now, base, reason, message)
    }

    /// The breaker closed after a trial: what was degraded has proved itself.
    pub fn on_recovery(&mut self, now: Timestamp, message: &str) -> Option<Change> {
        if self.quality != HealthState::Degraded {
            return None;
        }
        let base = self.base();
        self.go(now, base, "recovered", message)
    }

    /// Whether the target can be reached at all; `None` says that it can.
    pub fn set_unavailable(&mut self, now: Timestamp, why: Option<(&str, &str)>) -> Option<Change> {
        let from = self.state();
        match (why, &self.unavailable) {
            (Some((reason, message)), None) => {
                self.unavailable = Some(Reason {
                    reason: reason.to_owned(),
                    message: message.to_owned(),
                    since: now,
                    arm: None,
                });
                let (reason, message) = (reason.to_owned(), message.to_owned());
                Some(Change { from, to: HealthState::Unavailable, reason, message })
            }
            (None, Some(_)) => {
                self.unavailable = None;
                let (reason, message) = ("available".to_owned(), "it answers again".to_owned());
                Some(Change { from, to: self.quality, reason, message })
            }
            _ => None,
        }
    }

    /// Time passes.
    pub fn tick(&mut self, now: Timestamp) -> Option<Change> {
        let quiet = now.ms_since(self.last_suspicion) >= QUIET_MS;
        if self.quality == HealthState::Suspect && !self.can_burst && quiet {
            let base = self.base();
            return self.go(now, base, "quiet", "nothing suspicious for 10 minutes");
        }
        None
    }

    /// The golden burst that is due, if one can be asked. Asking again is put off until it is lost.
    pub fn take_burst(&mut self, now: Timestamp) -> Option<BurstReason> {
        let (due, reason) = self.next_burst?;
        if !self.can_burst || now < due {
            return None;
        }
        self.next_burst = Some((now.plus_ms(LOST_MS), reason));
        Some(reason)
    }

    const fn base(&self) -> HealthState {
        if self.calibrated { HealthState::Healthy } else { HealthState::Unknown }
    }

    fn add_reason(&mut self, finding: &Finding) {
        let reason = Reason {
            reason: finding.reason.clone(),
            message: finding.message.clone(),
            since: finding.at,
            arm: Some(finding.arm),
        };
        let same = |r: &Reason| r.reason == reason.reason && (r.arm.is_none() || r.arm == reason.arm);
        match self.reasons.iter().position(same) {
            Some(i) => self.reasons[i] = Reason { since: self.reasons[i].since, ..reason },
            None if self.reasons.len() < MAX_REASONS => self.reasons.push(reason),
            None => {}
        }
    }

    fn go(&mut self, now: Timestamp, to: HealthState, reason: &str, message: &str) -> Option<Change> {
        let from = self.state();
        if to == self.quality {
            return None;
        }
        let bad = matches!(to, HealthState::Degraded | HealthState::Changed);
        if !bad {
            self.reasons.clear();
        }
        if bad && !self.reasons.iter().any(|r| r.reason == reason) && self.reasons.len() < MAX_REASONS {
            let (reason, message) = (reason.to_owned(), message.to_owned());
            self.reasons.insert(0, Reason { reason, message, since: now, arm: None });
        }
        if matches!(to, HealthState::Healthy | HealthState::Unknown) {
            (self.changed_arm, self.lasting) = (false, false);
        }
        (self.quality, self.since, self.next_burst) = (to, now, None);
        let (reason, message) = (reason.to_owned(), message.to_owned());
        Some(Change { from, to: self.state(), reason, message })
    }
}

#[cfg(test)]
mod tests;
