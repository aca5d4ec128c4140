//! Which canary is due where, given now and a seed; when a golden burst may run.
//!
//! One [`Schedule`] a target. Canaries come in random order, each once a round (a fixed order would let
//! a slow drift of the target look like a difference between prompts), jittered so that many daemons do not
//! beat in time. Nothing runs in parallel on one target except the few half-open probes. A target without
//! callers is left alone, so that probes neither pin a model in memory nor wake a scaled-down one; a
//! target that is open gets probes only. Money and calls are bounded by the day; what recovery needs
//! (probes, the burst of a half-open breaker) and what an operator asks for is counted but never
//! refused, because saving there would keep a sound target out.

mod params;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::prompt::BurstReason;
use crate::verdict::BreakerState;

pub use params::{BurstParams, CanaryParams, ParamsError};

/// Milliseconds of an hour.
const HOUR_MS: u64 = 3_600_000;
/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
/// Spread of a period, a share of it.
const JITTER: f64 = 0.2;

/// What the schedule must know of the target at the moment.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Its breaker.
    pub breaker: BreakerState,
    /// Generation of the breaker.
    pub generation: u64,
    /// When a caller last used it.
    pub last_seen: Option<Timestamp>,
}

/// Something to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// One canary.
    Canary {
        /// Index among the canaries.
        prompt: usize,
    },
    /// One half-open probe: a canary that decides about closing.
    Probe {
        /// Index among the canaries.
        prompt: usize,
        /// Generation it belongs to.
        generation: u64,
    },
    /// A golden burst.
    Burst {
        /// Why.
        reason: BurstReason,
        /// Generation it belongs to.
        generation: u64,
        /// Indexes among the burst prompts, in the order to ask them.
        prompts: Vec<usize>,
    },
}

/// Why a burst cannot run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There are no prompts.
    #[error("there are no golden burst prompts")]
    NoPrompts,
    /// Suspicion asks for none.
    #[error("bursts on suspicion are switched off")]
    SwitchedOff,
    /// The hour's bursts are used up.
    #[error("the bursts of this hour are used up")]
    Hour,
    /// The day's money or calls are used up.
    #[error("the golden budget of the day is used up")]
    Budget,
    /// One is under way or asked for.
    #[error("a golden burst is already under way")]
    Busy,
}

/// What was spent today.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Day since the epoch.
    pub day: u64,
    /// Calls of canaries and probes.
    pub canary_calls: u32,
    /// Money of canaries and probes, USD.
    pub canary_usd: f64,
    /// Calls of burst items.
    pub burst_calls: u32,
    /// Money of burst items, USD.
    pub burst_usd: f64,
}

/// The schedule of one target.
#[derive(Clone, Debug)]
pub struct Schedule {
    canary: CanaryParams,
    burst: BurstParams,
    rng: fastrand::Rng,
    canaries: usize,
    bursts: usize,
    round: Vec<usize>,
    next_canary: Timestamp,
    next_burst: Timestamp,
    asked: Option<(BurstReason, u64)>,
    probes: (u64, u32),
    busy: bool,
    recent: VecDeque<Timestamp>,
    spent: Spent,
}

impl Schedule {
    /// A schedule over so many canaries and burst prompts, beginning at `now`.
    #[must_use]
    pub fn new(
        canary: CanaryParams,
        burst: BurstParams,
        (canaries, bursts): (usize, usize),
        seed: u64,
        now: Timestamp,
    ) -> Self {
        let mut schedule = Self {
            canary,
            burst,
            rng: fastrand::Rng::with_seed(seed),
            canaries,
            bursts,
            round: Vec::new(),
            next_canary: now,
            next_burst: now,
            asked: None,
            probes: (0, 0),
            busy: false,
            recent: VecDeque::new(),
            spent: Spent::default(),
        };
        schedule.next_canary = schedule.after(now, schedule.canary.every_ms().map(|ms| ms / 2));
        schedule.next_burst = schedule.after(now, schedule.burst.every_ms());
        schedule
    }

    /// Takes new values or another number of prompts (a reload, a new golden set).
    pub fn set(
        &mut self,
        canary: CanaryParams,
        burst: BurstParams,
        (canaries, bursts): (usize, usize),
        now: Timestamp,
    ) {
        if canary.every_ms() != self.canary.every_ms() {
            self.next_canary = self.after(now, canary.every_ms());
        }
        if burst.every_ms() != self.burst.every_ms() {
            self.next_burst = self.after(now, burst.every_ms());
        }
        self.set_canaries(canaries);
        (self.canary, self.burst, self.bursts) = (canary, burst, bursts);
    }

    /// Sets the number of canaries; another one begins a new round.
    pub fn set_canaries(&mut self, canaries: usize) {
        if canaries != self.canaries {
            self.round.clear();
            self.canaries = canaries;
        }
    }

    /// What was spent today.
    #[must_use]
    pub const fn spent(&self) -> Spent {
        self.spent
    }

    /// Takes up what was spent before a restart.
    pub const fn restore(&mut self, spent: Spent) {
        self.spent = spent;
    }

    /// Asks for a burst; it comes with the next [`Schedule::next_job`] that may begin one.
    ///
    /// # Errors
    /// Why it cannot run now.
    pub fn ask_burst(&mut self, now: Timestamp, reason: BurstReason, generation: u64) -> Result<(), Refusal> {
        self.roll(now);
        let must = is_must(reason);
        if self.bursts == 0 {
            return Err(Refusal::NoPrompts);
        }
        if !must && reason != BurstReason::Schedule && !self.burst.on_suspicion() {
            return Err(Refusal::SwitchedOff);
        }
        if !must && self.recent.len() >= self.burst.max_per_hour() {
            return Err(Refusal::Hour);
        }
        if !must && self.burst_budget_is_spent() {
            return Err(Refusal::Budget);
        }
        let weightier = self.asked.is_none_or(|(other, old)| old != generation || rank(reason) < rank(other));
        if !weightier || (self.busy && reason == BurstReason::Demand) {
            return Err(Refusal::Busy);
        }
        self.asked = Some((reason, generation));
        Ok(())
    }

    /// Asks for half-open probes; those of an earlier generation are dropped.
    pub const fn ask_probes(&mut self, generation: u64, count: u32) {
        self.probes = if self.probes.0 == generation {
            (generation, self.probes.1.saturating_add(count))
        } else {
            (generation, count)
        };
    }

    /// What to do now, if anything. A canary or burst given out makes the schedule busy until
    /// [`Schedule::finished`]; probes do not.
    pub fn next_job(&mut self, now: Timestamp, context: &Context) -> Option<Job> {
        self.roll(now);
        if let Some(job) = self.next_probe(context) {
            return Some(job);
        }
        if self.busy {
            return None;
        }
        let job = self.next_burst_job(now, context).or_else(|| self.next_canary_job(now, context));
        self.busy = job.is_some();
        job
    }

    /// A canary or burst ended (a probe does not end here).
    pub const fn finished(&mut self) {
        self.busy = false;
    }

    /// A call was made and cost so much, USD (0 where there is no price).
    pub fn charge(&mut self, now: Timestamp, is_burst: bool, usd: f64) {
        self.roll(now);
        let usd = if usd.is_finite() && usd > 0.0 { usd } else { 0.0 };
        if is_burst {
            self.spent.burst_calls = self.spent.burst_calls.saturating_add(1);
            self.spent.burst_usd += usd;
        } else {
            self.spent.canary_calls = self.spent.canary_calls.saturating_add(1);
            self.spent.canary_usd += usd;
        }
    }

    /// When the next canary or burst is due, as far as it is known; `None` while nothing is planned.
    #[must_use]
    pub fn next_at(&self, now: Timestamp, context: &Context) -> Option<Timestamp> {
        if self.asked.is_some() || self.probes.1 > 0 {
            return Some(now);
        }
        if self.is_idle(now, context) || !is_flowing(context.breaker) {
            return None;
        }
        let canary = (self.canaries > 0 && self.canary.every_ms().is_some()).then_some(self.next_canary);
        let burst = (self.bursts > 0 && self.burst.every_ms().is_some()).then_some(self.next_burst);
        canary.into_iter().chain(burst).min().map(|at| at.max(now))
    }

    /// Why no canary is sent at the moment, for people.
    #[must_use]
    pub fn paused(&self, now: Timestamp, context: &Context) -> Option<&'static str> {
        if self.canaries == 0 {
            Some("no canaries in the golden set")
        } else if self.canary.every_ms().is_none() {
            Some("switched off")
        } else if !is_flowing(context.breaker) {
            Some("the breaker is open")
        } else if self.is_idle(now, context) {
            Some("no traffic lately")
        } else if self.canary_budget_is_spent() {
            Some("the budget of the day is spent")
        } else {
            None
        }
    }

    fn next_probe(&mut self, context: &Context) -> Option<Job> {
        let (generation, count) = self.probes;
        if generation != context.generation || context.breaker != BreakerState::HalfOpen {
            return None;
        }
        if count == 0 || self.canaries == 0 {
            return None;
        }
        self.probes.1 -= 1;
        let prompt = self.next_prompt();
        Some(Job::Probe { prompt, generation })
    }

    fn next_burst_job(&mut self, now: Timestamp, context: &Context) -> Option<Job> {
        if self.asked.is_some_and(|(_, generation)| generation != context.generation) {
            self.asked = None; // the state it was asked in is over
        }
        let half_open = context.breaker == BreakerState::HalfOpen;
        if self.asked.is_none() && is_flowing(context.breaker) && self.is_period_over(now, context) {
            let _ = self.ask_burst(now, BurstReason::Schedule, context.generation);
            self.next_burst = self.after(now, self.burst.every_ms());
        }
        let (reason, generation) = self.asked?;
        let fits = if half_open { reason == BurstReason::HalfOpen } else { is_flowing(context.breaker) };
        if !fits {
            return None;
        }
        self.asked = None;
        self.recent.push_back(now);
        self.next_burst = self.after(now, self.burst.every_ms());
        let mut prompts: Vec<usize> = (0..self.bursts).collect();
        self.rng.shuffle(&mut prompts);
        prompts.truncate(self.burst.items());
        Some(Job::Burst { reason, generation, prompts })
    }

    fn is_period_over(&self, now: Timestamp, context: &Context) -> bool {
        self.burst.every_ms().is_some() && now >= self.next_burst && !self.is_idle(now, context)
    }

    fn next_canary_job(&mut self, now: Timestamp, context: &Context) -> Option<Job> {
        if now < self.next_canary || self.paused(now, context).is_some() {
            return None;
        }
        self.next_canary = self.after(now, self.canary.every_ms());
        let prompt = self.next_prompt();
        Some(Job::Canary { prompt })
    }

    fn next_prompt(&mut self) -> usize {
        if self.round.is_empty() {
            self.round = (0..self.canaries).collect();
            self.rng.shuffle(&mut self.round);
        }
        self.round.pop().unwrap_or_default()
    }

    fn is_idle(&self, now: Timestamp, context: &Context) -> bool {
        let pause = self.canary.idle_pause_ms();
        pause > 0 && context.last_seen.is_none_or(|seen| now.ms_since(seen) >= pause)
    }

    fn canary_budget_is_spent(&self) -> bool {
        self.spent.canary_calls >= self.canary.max_calls_per_day()
            || self.spent.canary_usd >= self.canary.max_usd_per_day()
    }

    fn burst_budget_is_spent(&self) -> bool {
        self.spent.burst_usd >= self.burst.max_usd_per_day()
    }

    /// A period later, spread; never for no period.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    fn after(&mut self, now: Timestamp, period_ms: Option<u64>) -> Timestamp {
        let Some(period) = period_ms else { return Timestamp::from_millis(u64::MAX) };
        let spread = 1.0 + JITTER * (2.0 * self.rng.f64() - 1.0);
        now.plus_ms((period as f64 * spread) as u64)
    }

    /// Begins a new day's budget and forgets bursts older than an hour. A clock that jumps back keeps
    /// the day, so that money is not spent twice.
    fn roll(&mut self, now: Timestamp) {
        let day = now.as_millis() / DAY_MS;
        if day > self.spent.day {
            self.spent = Spent { day, ..Spent::default() };
        }
        while self.recent.front().is_some_and(|at| now.ms_since(*at) >= HOUR_MS) {
            self.recent.pop_front();
        }
    }
}

/// What one day of canaries and scheduled bursts is at most: calls of each.
#[must_use]
pub fn calls_a_day(
    canary: &CanaryParams,
    burst: &BurstParams,
    (canaries, bursts): (usize, usize),
) -> (u64, u64) {
    let times = |every: Option<u64>| every.map_or(0, |ms| DAY_MS / ms.max(1));
    let canary_calls = if canaries == 0 { 0 } else { times(canary.every_ms()) };
    let items = bursts.min(burst.items()) as u64;
    (canary_calls.min(u64::from(canary.max_calls_per_day())), times(burst.every_ms()) * items)
}

const fn is_flowing(breaker: BreakerState) -> bool {
    matches!(breaker, BreakerState::Closed | BreakerState::ForcedClosed)
}

/// Never refused for budget or frequency.
const fn is_must(reason: BurstReason) -> bool {
    matches!(reason, BurstReason::HalfOpen | BurstReason::Demand)
}

const fn rank(reason: BurstReason) -> u8 {
    match reason {
        BurstReason::HalfOpen => 0,
        BurstReason::Demand => 1,
        BurstReason::Suspicion => 2,
        BurstReason::Recheck => 3,
        BurstReason::Changed => 4,
        BurstReason::Schedule => 5,
    }
}
