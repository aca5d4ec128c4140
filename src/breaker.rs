//! The breaker of one target: outcomes and health → closed, open, half-open, ramp.
//!
//! ```text
//!            arm fires, quality trip
//!   closed ───────────────────────────▶ open ◀──────────────┐
//!   (ramp 10→25→50→100 %)                │ due              │ one hard failure, burst failed,
//!      ▲                                 ▼                  │ time limit
//!      └──────────────────────────── half_open ─────────────┘
//!         enough sound probes, or the burst accepts health
//! ```
//!
//! A pure state machine: an attempt, a probe or a moment goes in, at most one [`Transition`] comes
//! out. Every state has a generation; what was admitted under an earlier one is late and changes
//! nothing, so that a storm of old failures cannot reopen what has just proved itself. The open time
//! is an absolute moment, doubles with each opening in a row and is spread, because many instances
//! that probe at once are a load of their own.
//!
//! Quality never counts in the failure arms: it comes in as [`Breaker::trip`], decided elsewhere, and
//! then only quality (a golden burst) closes again. A slow spike as after a flushed prompt cache shrinks
//! admission and opens only when it lasts.

mod arms;
mod overlay;
mod params;
mod pressure;
mod reading;
mod transition;
mod trial;
mod window;

#[cfg(test)]
mod tests;

pub use overlay::{
    BackpressureOverlay, DegradeOverlay, HalfOpenOverlay, Overlay, Preset, RampOverlay, SlowOverlay,
};
pub use params::{Params, ParamsError};
pub use transition::{Action, Cause, ProbeVerdict, Saved, Transition, TrialKind};

use crate::clock::Timestamp;
use crate::sample::Outcome;
use crate::verdict::{BreakerState, Source};

use arms::{Arms, Counted};
use trial::Trial;

/// A clock set back further than this was corrected; less is disorder of events.
const STEP_BACK_MS: u64 = 60_000;

/// The breaker of one target.
#[derive(Clone, Debug)]
pub struct Breaker {
    params: Params,
    seed: u64,
    state: BreakerState,
    generation: u64,
    since: Timestamp,
    last: Timestamp,
    cause: Cause,
    message: String,
    due: Option<Timestamp>,
    openings: u32,
    quality: bool,
    canaries: bool,
    burst: bool,
    ramp: usize,
    ramp_since: Timestamp,
    ramp_clean: bool,
    last_target: Option<(Cause, String)>,
    arms: Arms,
    trial: Trial,
}

impl Breaker {
    /// A closed breaker at full share. `seed` spreads its open times.
    #[must_use]
    pub fn new(params: Params, seed: u64) -> Self {
        let arms = Arms::new(&params);
        Self {
            params,
            seed,
            state: BreakerState::Closed,
            generation: 0,
            since: Timestamp::ZERO,
            last: Timestamp::ZERO,
            cause: Cause::Start,
            message: String::new(),
            due: None,
            openings: 0,
            quality: false,
            canaries: false,
            burst: false,
            ramp: Params::RAMP_TOP,
            ramp_since: Timestamp::ZERO,
            ramp_clean: false,
            last_target: None,
            arms,
            trial: Trial::new(TrialKind::Live),
        }
    }

    /// Takes up a saved state. An open breaker keeps its due moment, but never waits longer than the
    /// longest open time; an interrupted trial begins anew at once.
    #[must_use]
    pub fn restore(params: Params, seed: u64, saved: Saved, now: Timestamp) -> Self {
        let longest = now.plus_ms(params.open_max_ms);
        let mut breaker = Self::new(params, seed);
        breaker.state = saved.state;
        breaker.generation = saved.generation.saturating_add(1);
        breaker.since = saved.since.min(now);
        breaker.last = now;
        breaker.cause = saved.cause;
        breaker.message = saved.message;
        breaker.openings = saved.openings;
        breaker.quality = saved.quality;
        breaker.ramp = saved.ramp.min(Params::RAMP_TOP);
        breaker.ramp_since = now;
        breaker.last_target = saved.last_target;
        match saved.state {
            BreakerState::Open => breaker.due = Some(saved.due.unwrap_or(now).max(now).min(longest)),
            BreakerState::HalfOpen => {
                breaker.state = BreakerState::Open;
                breaker.due = Some(now);
            }
            _ => {}
        }
        breaker
    }

    /// What must survive a restart.
    #[must_use]
    pub fn saved(&self) -> Saved {
        Saved {
            state: self.state,
            generation: self.generation,
            since: self.since,
            cause: self.cause,
            message: self.message.clone(),
            due: self.due,
            openings: self.openings,
            quality: self.quality,
            ramp: self.ramp,
            last_target: self.last_target.clone(),
        }
    }

    /// Tells which golden prompts can be asked. Without canaries callers' requests are the probes;
    /// without a burst (no prompts, or no baseline to compare with) probes decide after a quality trip.
    pub const fn set_golden(&mut self, canaries: bool, burst: bool) {
        (self.canaries, self.burst) = (canaries, burst);
    }

    /// Takes new values (a reload); state and counts stay.
    pub fn set_params(&mut self, params: Params) {
        if params.window_ms != self.params.window_ms {
            self.arms = Arms::new(&params);
        }
        self.params = params;
    }

    /// An attempt ended. Probes and burst items of a trial come in elsewhere and are ignored here.
    pub fn on_outcome(&mut self, outcome: &Outcome) -> Option<Transition> {
        let now = self.advance(outcome.at);
        if outcome.generation != self.generation {
            return None;
        }
        match self.state {
            BreakerState::Closed | BreakerState::ForcedClosed => {
                match self.arms.record(now, outcome, &self.params) {
                    Counted::Served => self.ramp_clean = true,
                    Counted::Failed => (self.ramp_since, self.ramp_clean) = (now, false),
                    Counted::Neither => {}
                }
                self.climb(now);
                self.judge(now)
            }
            BreakerState::HalfOpen
                if self.trial.kind == TrialKind::Live && outcome.source == Source::Live =>
            {
                let verdict = self.live_verdict(outcome);
                self.count_probe(now, verdict, Cause::ProbesPassed)
            }
            _ => None,
        }
    }

    /// Quality has shown the target to be unfit. `alone`: no other tier can answer; the target then
    /// stays admitted in part unless `allow_last`.
    pub fn trip(&mut self, now: Timestamp, cause: Cause, message: &str, alone: bool) -> Option<Transition> {
        let now = self.advance(now);
        if self.state != BreakerState::Closed {
            return None;
        }
        if alone && !self.params.allow_last {
            self.last_target = Some((cause, message.to_owned()));
            return None;
        }
        Some(self.go(now, BreakerState::Open, cause, message.to_owned()))
    }

    /// Quality has cleared the target: the last one is admitted in full again.
    pub fn absolve(&mut self, now: Timestamp) {
        self.advance(now);
        self.last_target = None;
    }

    /// Another instance's breaker of the same target has opened (until `due`) or closed. An operator's word here stands
    /// above it, and so does a state that is the same already.
    pub fn adopt(
        &mut self,
        now: Timestamp,
        open: bool,
        due: Option<Timestamp>,
        cause: Cause,
        message: &str,
    ) -> Option<Transition> {
        let now = self.advance(now);
        match (self.state, open) {
            (BreakerState::Closed | BreakerState::HalfOpen, true) => {
                let longest = now.plus_ms(self.params.open_max_ms);
                let mut transition = self.go(now, BreakerState::Open, cause, message.to_owned());
                self.due = Some(due.unwrap_or(longest).min(longest).max(now));
                transition.due = self.due;
                Some(transition)
            }
            (BreakerState::Open | BreakerState::HalfOpen, false) => {
                Some(self.go(now, BreakerState::Closed, cause, message.to_owned()))
            }
            _ => None,
        }
    }

    /// An operator's word.
    pub fn operator(&mut self, now: Timestamp, action: Action, reason: &str) -> Option<Transition> {
        let now = self.advance(now);
        let to = match (action, self.state) {
            (Action::Open, BreakerState::ForcedOpen) | (Action::Close, BreakerState::ForcedClosed) => {
                return None;
            }
            (Action::Open, _) => BreakerState::ForcedOpen,
            (Action::Close, _) => BreakerState::ForcedClosed,
            (Action::Auto, BreakerState::ForcedOpen) => BreakerState::HalfOpen,
            (Action::Auto, BreakerState::ForcedClosed) => BreakerState::Closed,
            (Action::Auto, _) => return None,
        };
        let verb = match action {
            Action::Open => "opened",
            Action::Close => "closed",
            Action::Auto => "given back to measurement",
        };
        let why = if reason.is_empty() { "no reason given" } else { reason };
        let transition = self.go(now, to, Cause::Operator, format!("{verb} by an operator: {why}"));
        if to == BreakerState::Closed {
            self.ramp = Params::RAMP_TOP; // it carried the whole share until now
        }
        Some(transition)
    }

    /// Time passes.
    pub fn tick(&mut self, now: Timestamp) -> Option<Transition> {
        let now = self.advance(now);
        match self.state {
            BreakerState::Open => self.tick_open(now),
            BreakerState::HalfOpen => self.tick_half_open(now),
            BreakerState::Closed => {
                if self.openings > 0 && now.ms_since(self.since) >= self.params.clean_ms {
                    self.openings = 0;
                }
                self.climb(now);
                self.judge(now)
            }
            _ => None,
        }
    }

    fn tick_open(&mut self, now: Timestamp) -> Option<Transition> {
        let due = self.due.unwrap_or(now);
        if now < due {
            return None;
        }
        let late = now.ms_since(due);
        let (cause, message) = if late > self.params.watchdog_ms {
            (Cause::Watchdog, format!("open {} past due without a probe", seconds(late)))
        } else {
            (Cause::Due, format!("open time of {} is over", seconds(due.ms_since(self.since))))
        };
        Some(self.go(now, BreakerState::HalfOpen, cause, message))
    }

    fn judge(&mut self, now: Timestamp) -> Option<Transition> {
        if self.state != BreakerState::Closed {
            return None;
        }
        let (cause, message) = self.arms.verdict(now, &self.params)?;
        Some(self.go(now, BreakerState::Open, cause, message))
    }

    fn climb(&mut self, now: Timestamp) {
        let waiting = now.ms_since(self.ramp_since) < self.params.ramp_step_ms;
        if self.state != BreakerState::Closed || self.ramp >= Params::RAMP_TOP || waiting || !self.ramp_clean
        {
            return;
        }
        self.ramp += 1;
        self.ramp_since = now;
        self.ramp_clean = false;
    }

    fn go(&mut self, now: Timestamp, to: BreakerState, cause: Cause, message: String) -> Transition {
        let from = self.state;
        self.generation += 1;
        self.state = to;
        self.since = now;
        self.cause = cause;
        self.message.clone_from(&message);
        self.due = None;
        self.last_target = None;
        self.arms.clear();
        match to {
            BreakerState::Open => {
                self.quality = cause.is_quality() || (self.quality && from == BreakerState::HalfOpen);
                let open_ms = self.params.open_time_ms(self.openings, self.seed ^ mix(self.generation));
                self.openings = self.openings.saturating_add(1);
                self.due = Some(now.plus_ms(open_ms));
            }
            BreakerState::HalfOpen => {
                let kind = if self.quality && self.burst {
                    TrialKind::Burst
                } else if self.canaries {
                    TrialKind::Probes
                } else {
                    TrialKind::Live
                };
                self.trial = Trial::new(kind);
            }
            BreakerState::Closed => {
                self.quality = false;
                self.ramp = 0;
                self.ramp_since = now;
                self.ramp_clean = false;
            }
            BreakerState::ForcedOpen | BreakerState::ForcedClosed => {}
        }
        Transition { from, to, cause, message, at: now, due: self.due, generation: self.generation }
    }

    /// The moment to decide at: never earlier than the last one, unless the clock was set back; then
    /// nothing may wait for a moment that the old clock had promised.
    fn advance(&mut self, now: Timestamp) -> Timestamp {
        if self.last.ms_since(now) > STEP_BACK_MS {
            self.last = now;
            self.since = self.since.min(now);
            self.ramp_since = self.ramp_since.min(now);
            self.due = self.due.map(|due| due.min(now.plus_ms(self.params.open_max_ms)));
            self.arms.clear();
        }
        self.last = self.last.max(now);
        self.last
    }
}

/// Spreads a small number over all bits (the finaliser of splitmix64).
const fn mix(n: u64) -> u64 {
    let z = n.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Milliseconds for people.
#[allow(clippy::cast_precision_loss)]
fn seconds(ms: u64) -> String {
    let s = ms as f64 / 1_000.0;
    if ms < 10_000 && !ms.is_multiple_of(1_000) { format!("{s:.1} s") } else { format!("{s:.0} s") }
}
