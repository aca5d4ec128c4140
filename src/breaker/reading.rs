//! What everyone may read of a breaker. Reading changes nothing.

use crate::clock::Timestamp;
use crate::sample::Admission;
use crate::verdict::BreakerState;

use super::{Breaker, Cause, Params, TrialKind};

/// Half of the traffic while a slow spike lasts, so that caches warm up under less load.
const SPIKE_SHARE: f64 = 0.5;

impl Breaker {
    /// State now.
    #[must_use]
    pub const fn state(&self) -> BreakerState {
        self.state
    }

    /// Generation now.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Since when the state holds.
    #[must_use]
    pub const fn since(&self) -> Timestamp {
        self.since
    }

    /// Why the state holds.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        self.cause
    }

    /// Why, in words and numbers.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// When an open breaker half-opens.
    #[must_use]
    pub const fn due(&self) -> Option<Timestamp> {
        self.due
    }

    /// The values in force.
    #[must_use]
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// Why the target is kept in part as the last one, if it is.
    #[must_use]
    pub const fn last_target(&self) -> Option<&(Cause, String)> {
        self.last_target.as_ref()
    }

    /// What a half-open breaker waits for.
    #[must_use]
    pub fn trial(&self) -> Option<TrialKind> {
        (self.state == BreakerState::HalfOpen).then_some(self.trial.kind)
    }

    /// What everyone may know. Reading changes nothing.
    #[must_use]
    pub fn admission(&self, now: Timestamp) -> Admission {
        let now = now.max(self.last);
        let share = match self.state {
            BreakerState::Closed => self.closed_share(now),
            BreakerState::ForcedClosed => 1.0,
            _ => 0.0,
        };
        let live_probes = match self.trial() {
            Some(TrialKind::Live) => self.params.probes,
            _ => 0,
        };
        let cause = match (&self.last_target, self.state) {
            (Some(_), BreakerState::Closed) => Cause::LastTarget,
            _ => self.cause,
        };
        Admission {
            state: self.state,
            share,
            live_probes,
            due: self.due,
            cooling_until: self.arms.cooling_until(now),
            small_only: self.capacity_degraded(now).then(|| self.params.degrade_limits()),
            generation: self.generation,
            cause: cause.as_str(),
        }
    }

    fn closed_share(&self, now: Timestamp) -> f64 {
        let ramp = Params::ramp_share(self.ramp);
        let spike = if self.slow_spike(now) { SPIKE_SHARE } else { 1.0 };
        let last = if self.last_target.is_some() { self.params.last_target_share } else { 1.0 };
        ramp.min(spike).min(last)
    }

    /// Slow or failing share of the window, if enough attempts are in it; only while traffic flows.
    #[must_use]
    pub fn partial_failure_ratio(&self, now: Timestamp) -> Option<f64> {
        if !matches!(self.state, BreakerState::Closed | BreakerState::ForcedClosed) {
            return None;
        }
        self.arms.partial_ratio(now.max(self.last), &self.params)
    }

    /// Whether the target is degraded in capacity: between `degrade_at` and its opening limit.
    #[must_use]
    pub fn capacity_degraded(&self, now: Timestamp) -> bool {
        match (self.params.degrade_at, self.partial_failure_ratio(now)) {
            (Some(limit), Some(share)) => share >= limit,
            _ => false,
        }
    }

    /// Whether a slow spike is under way that has not lasted long enough to open: a warm-up is due.
    #[must_use]
    pub fn slow_spike(&self, now: Timestamp) -> bool {
        self.state == BreakerState::Closed && self.arms.slow_spike(now, &self.params)
    }
}
