//! What all requests to one target share: its permits, its retry budget, its cool-downs.
//!
//! The decisions are the pure cores' ([`crate::permits`], [`crate::retry`]); here they get a lock each, held for
//! nanoseconds and never over an await, and a guard that gives a permit back whatever becomes of its holder:
//! an error, a panic, a cancelled or timed-out future, a caller that leaves. A target without any limit has no
//! pool and costs one atomic.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pool::SharedPool;
use crate::clock::{Stopwatch, Timestamp};
use crate::permits::{self, Ask, Shed};
use crate::retry::{self, Refused, TargetBudget};
use crate::upstream::TargetParams;

/// A pool whose members name no limit.
const UNLIMITED: u32 = 1 << 20;
/// Callers' keys that cool down for themselves; more are not told apart.
const MOST_KEYS: usize = 4_096;
/// Requests that had to leave a target's tier within the cool-down's time before it begins.
const LEAVES: u32 = 5;

/// How further tries ended, or why they were not made; words of `retries_total`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Further {
    Succeeded,
    Failed,
    RefusedRatio,
    RefusedWaste,
    RefusedGlobal,
    RefusedWorkflow,
    Would,
}

/// The words of [`Further`], in its order.
const FURTHER: [&str; 7] = [
    "succeeded",
    "failed",
    "refused_ratio",
    "refused_waste",
    "refused_global",
    "refused_workflow",
    "would_retry",
];
/// The words of requests shed, applied and (in shadow mode) not.
const SHED: [&str; 8] = [
    "queue_full",
    "deadline",
    "rate",
    "money",
    "would_queue_full",
    "would_deadline",
    "would_rate",
    "would_money",
];
const MONEY: usize = 3;

/// See the module.
#[derive(Debug)]
pub(super) struct Flow {
    name: Arc<str>,
    seat: Option<(Arc<SharedPool>, usize)>,
    limited: bool,
    in_flight: AtomicU32,
    shed: [AtomicU64; SHED.len()],
    further: [AtomicU64; FURTHER.len()],
    retry: Mutex<TargetBudget>,
    cooling: Mutex<Cooling>,
    /// Whether anything in `cooling` is worth a look, milliseconds since the epoch.
    cools_until: AtomicU64,
}

#[derive(Debug, Default)]
struct Cooling {
    until: Timestamp,
    leaves: u32,
    leaves_since: Timestamp,
    by_key: HashMap<u64, Timestamp>,
}

/// One target's flow in numbers.
#[derive(Clone, Debug)]
pub struct FlowView {
    /// Target name.
    pub target: Arc<str>,
    /// Its pool, if it has limits.
    pub pool: Option<Arc<str>>,
    /// Calls in flight.
    pub in_flight: u32,
    /// Permits that are out; more than calls where they are weighted.
    pub permits_in_use: u32,
    /// Permits that may be out now; `None` without a limit.
    pub permits_limit: Option<u32>,
    /// Requests that wait.
    pub queue_depth: u32,
    /// Requests refused before an attempt, by reason.
    pub shed: Vec<(&'static str, u64)>,
    /// Further tries, by how they ended or why they were not made.
    pub further: Vec<(&'static str, u64)>,
    /// Further tries that the target may still take.
    pub retry_tokens: f64,
    /// Share of recent further tries that failed.
    pub retry_waste: Option<f64>,
}

/// Every target's flow, in the order of the targets. What was known `before` is kept, counts included.
pub(super) fn flows(
    targets: &[TargetParams],
    queue: &permits::Params,
    retry: &retry::Params,
    before: &[Arc<Flow>],
) -> Vec<Arc<Flow>> {
    let known: HashMap<&str, &Arc<SharedPool>> =
        before.iter().filter_map(|f| f.seat.as_ref()).map(|(pool, _)| (&*pool.name, pool)).collect();
    let mut pools: HashMap<Arc<str>, Arc<SharedPool>> = HashMap::new();
    for target in targets.iter().filter(|t| has_limits(t)) {
        let name = pool_name(target);
        let of_pool = || targets.iter().filter(|t| has_limits(t) && pool_name(t) == name);
        if pools.contains_key(&name) {
            continue;
        }
        let limit = of_pool().filter_map(TargetParams::permits).max().unwrap_or(UNLIMITED);
        let pool = known.get(&*name).map_or_else(|| SharedPool::new(&name), |pool| Arc::clone(pool));
        pool.configure(limit, queue, of_pool());
        pools.insert(name, pool);
    }
    let flow = |target: &TargetParams| {
        let seat = has_limits(target).then(|| {
            let pool = Arc::clone(&pools[&pool_name(target)]);
            let member = pool.place_of(target.name());
            (pool, member)
        });
        let same = |f: &&Arc<Flow>| {
            f.name == *target.name()
                && f.seat.as_ref().map(|(p, m)| (&*p.name, *m)) == seat.as_ref().map(|(p, m)| (&*p.name, *m))
        };
        if let Some(kept) = before.iter().find(same) {
            return Arc::clone(kept);
        }
        let limited = target.permits().is_some() || of_pool_limited(targets, target);
        Arc::new(Flow::new(Arc::clone(target.name()), seat, limited, retry))
    };
    targets.iter().map(flow).collect()
}

fn has_limits(target: &TargetParams) -> bool {
    target.permits().is_some() || target.rate().is_some() || target.pool().is_some()
}

fn of_pool_limited(targets: &[TargetParams], target: &TargetParams) -> bool {
    targets.iter().any(|t| pool_name(t) == pool_name(target) && t.permits().is_some())
}

/// A target without a pool is one by itself; its name cannot be a pool's, which has no slash before it.
fn pool_name(target: &TargetParams) -> Arc<str> {
    target.pool().map_or_else(|| format!("/{}", target.name()).into(), Arc::clone)
}

/// Who wants a permit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) tokens: u64,
    pub(super) patience_ms: u64,
    pub(super) share: f64,
    pub(super) degraded: bool,
}

impl Flow {
    fn new(
        name: Arc<str>,
        seat: Option<(Arc<SharedPool>, usize)>,
        limited: bool,
        retry: &retry::Params,
    ) -> Self {
        Self {
            name,
            seat,
            limited,
            in_flight: AtomicU32::new(0),
            shed: Default::default(),
            further: Default::default(),
            retry: Mutex::new(TargetBudget::new(retry)),
            cooling: Mutex::default(),
            cools_until: AtomicU64::new(0),
        }
    }

    /// A permit, after waiting for it if need be.
    ///
    /// # Errors
    /// Why there is none, and when it is worth asking again, milliseconds.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        wanted: Wanted,
        now: Timestamp,
    ) -> Result<Permit, (Shed, u64)> {
        let Some((pool, member)) = &self.seat else { return Ok(Permit::new(self, 0)) };
        match pool.acquire(&wanted.ask(*member), now).await {
            Ok(weight) => Ok(Permit::new(self, weight)),
            Err((why, retry_after_ms)) => {
                self.note_shed(why as usize);
                Err((why, retry_after_ms))
            }
        }
    }

    /// A permit whatever the limits say (shadow mode); what would have been said is counted.
    pub(super) fn observe(self: &Arc<Self>, wanted: Wanted, now: Timestamp) -> Permit {
        let Some((pool, member)) = &self.seat else { return Permit::new(self, 0) };
        let (weight, would) = pool.lock().pool.observe(&wanted.ask(*member), now);
        if let Some(why) = would {
            self.note_shed(SHED.len() / 2 + why as usize);
        }
        Permit::new(self, weight)
    }

    /// Whether a call would have to wait.
    pub(super) fn is_busy(&self) -> bool {
        self.seat.as_ref().is_some_and(|(pool, member)| pool.lock().pool.is_busy(*member))
    }

    /// A call was refused, or would have been, because the money is spent.
    pub(super) fn note_unaffordable(&self, applied: bool) {
        self.note_shed(if applied { MONEY } else { SHED.len() / 2 + MONEY });
    }

    fn note_shed(&self, reason: usize) {
        self.shed[reason].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn note_further(&self, what: Further) {
        self.further[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether an extra call may be made. `closed`: the breaker's generation while it is closed.
    pub(super) fn may_retry(&self, params: &retry::Params, now: Timestamp, closed: Option<u64>) -> bool {
        self.lock_retry().check(params, now, closed).is_ok()
    }

    /// Draws an extra call.
    pub(super) fn take_retry(&self, params: &retry::Params, now: Timestamp, closed: Option<u64>) -> bool {
        let taken = self.lock_retry().take(params, now, closed);
        match taken {
            Ok(()) => {}
            Err(Refused::Ratio) => self.note_further(Further::RefusedRatio),
            Err(Refused::Waste) => self.note_further(Further::RefusedWaste),
        }
        taken.is_ok()
    }

    /// An attempt ended. `further`: it was no request's first.
    pub(super) fn ended(
        &self,
        params: &retry::Params,
        now: Timestamp,
        further: bool,
        sound: bool,
        ms: u64,
        generation: u64,
    ) {
        let mut retry = self.lock_retry();
        if further {
            retry.on_retry(params, now, sound, ms, generation);
            drop(retry);
            self.note_further(if sound { Further::Succeeded } else { Further::Failed });
        } else {
            retry.on_first(params, now, sound, ms);
        }
    }

    /// Until when this caller leaves the target alone.
    pub(super) fn cooling_until(&self, key: Option<u64>, now: Timestamp) -> Option<Timestamp> {
        if self.cools_until.load(Ordering::Relaxed) <= now.as_millis() {
            return None;
        }
        let cooling = self.lock_cooling();
        let own = key.and_then(|key| cooling.by_key.get(&key).copied());
        Some(own.unwrap_or(Timestamp::ZERO).max(cooling.until)).filter(|until| *until > now)
    }

    /// A caller's own limit was hit: the target rests for that caller alone.
    pub(super) fn cool_key(&self, key: u64, now: Timestamp, ms: u64) {
        let until = now.plus_ms(ms);
        let mut cooling = self.lock_cooling();
        if cooling.by_key.len() >= MOST_KEYS {
            cooling.by_key.retain(|_, at| *at > now);
        }
        if cooling.by_key.len() < MOST_KEYS {
            cooling.by_key.insert(key, until);
            self.cools_until.fetch_max(until.as_millis(), Ordering::Relaxed);
        }
    }

    /// A request had to leave the target's tier because the target failed. Where that happens again and again
    /// within `ms`, the target rests so long, so that requests do not go to and fro.
    pub(super) fn left(&self, now: Timestamp, ms: u64) {
        if ms == 0 {
            return;
        }
        let mut cooling = self.lock_cooling();
        if now.ms_since(cooling.leaves_since) > ms || cooling.leaves_since > now {
            (cooling.leaves, cooling.leaves_since) = (0, now);
        }
        cooling.leaves += 1;
        if cooling.leaves >= LEAVES {
            cooling.leaves = 0;
            cooling.until = now.plus_ms(ms);
            self.cools_until.fetch_max(cooling.until.as_millis(), Ordering::Relaxed);
        }
    }

    pub(super) fn view(&self, params: &retry::Params, now: Timestamp) -> FlowView {
        let count = |all: &[AtomicU64], words: &[&'static str]| {
            words
                .iter()
                .zip(all)
                .map(|(word, n)| (*word, n.load(Ordering::Relaxed)))
                .filter(|(_, n)| *n > 0)
                .collect()
        };
        let (in_use, limit, depth) = self.seat.as_ref().map_or((0, 0, 0), |(pool, member)| {
            let state = pool.lock();
            (state.pool.in_use(*member), state.pool.limit(*member), state.pool.waiting(*member))
        });
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        let retry = self.lock_retry();
        FlowView {
            target: Arc::clone(&self.name),
            pool: self
                .seat
                .as_ref()
                .map(|(pool, _)| Arc::clone(&pool.name))
                .filter(|name| !name.starts_with('/')),
            in_flight,
            permits_in_use: if self.limited { in_use } else { in_flight },
            permits_limit: self.limited.then_some(limit),
            queue_depth: depth,
            shed: count(&self.shed, &SHED),
            further: count(&self.further, &FURTHER),
            retry_tokens: retry.left_at(params, now).max(0.0),
            retry_waste: retry.waste_at(now),
        }
    }

    fn lock_retry(&self) -> MutexGuard<'_, TargetBudget> {
        self.retry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_cooling(&self) -> MutexGuard<'_, Cooling> {
        self.cooling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wanted {
    const fn ask(self, member: usize) -> Ask {
        let Self { tokens, patience_ms, share, degraded } = self;
        Ask { member, tokens, patience_ms, share, degraded }
    }
}

/// The right to one call in flight; given back when dropped.
#[derive(Debug)]
pub(super) struct Permit {
    flow: Arc<Flow>,
    weight: u32,
    since: Stopwatch,
    sound: Option<bool>,
}

impl Permit {
    fn new(flow: &Arc<Flow>, weight: u32) -> Self {
        flow.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { flow: Arc::clone(flow), weight, since: Stopwatch::start(), sound: None }
    }

    /// How the call ended, as far as the target's capacity is concerned.
    pub(super) fn ended(&mut self, sound: bool) {
        self.sound = Some(sound);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.flow.in_flight.fetch_sub(1, Ordering::Relaxed);
        if let Some((pool, member)) = &self.flow.seat {
            let mut state = pool.lock();
            state.pool.release(*member, self.weight, self.since.elapsed_ms(), self.sound);
            state.wake();
        }
    }
}

#[cfg(test)]
mod tests;
