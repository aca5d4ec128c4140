//! The published state of each target: the monitor writes, everyone reads without waiting.
//!
//! A reader loads one pointer; there is no lock in the request path. The monitor proves that it is
//! alive with a heartbeat: a published state older than [`STALE_AFTER_MS`] is not to be believed, and
//! all traffic is admitted then, because a proxy that blocks on its own fault is worse than none.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

mod models;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;

pub use models::{MODEL_MARK, Models, target_of};

use crate::clock::Timestamp;
use crate::sample::Admission;
use crate::verdict::{BreakerState, HealthState};

/// A heartbeat older than this makes the published state stale, milliseconds.
pub const STALE_AFTER_MS: u64 = 5_000;

/// What is published of one target.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Breaker state and what it admits.
    pub admission: Admission,
    /// Health of the target.
    pub health: HealthState,
    /// In words and numbers, for people.
    pub reason: String,
    /// When a caller last used the target.
    pub last_seen: Option<Timestamp>,
    /// How long its first text is worth waiting for, as calibration found, milliseconds.
    pub first_text_ms: Option<u64>,
}

impl Default for Published {
    fn default() -> Self {
        Self {
            admission: Admission {
                state: BreakerState::Closed,
                share: 1.0,
                live_probes: 0,
                due: None,
                cooling_until: None,
                small_only: None,
                generation: 0,
                cause: "start",
            },
            health: HealthState::Unknown,
            reason: String::new(),
            last_seen: None,
            first_text_ms: None,
        }
    }
}

/// One target's slot.
#[derive(Debug, Default)]
struct Slot {
    published: ArcSwap<Published>,
    probes_in_flight: Arc<AtomicU32>,
}

/// The board on which the monitor publishes. Clones share it.
#[derive(Clone, Debug)]
pub struct Gate {
    slots: Arc<HashMap<Arc<str>, Arc<Slot>, RandomState>>,
    /// Slots of the further models of targets that name none.
    split: Arc<ArcSwap<HashMap<Arc<str>, Arc<Slot>>>>,
    models: Arc<HashMap<Arc<str>, Arc<Models>>>,
    beat: Arc<AtomicU64>,
}

/// A live half-open probe's place; given back when dropped.
#[derive(Debug)]
pub struct ProbeSlot(Arc<AtomicU32>);

impl Drop for ProbeSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Gate {
    /// A board with one closed, unknown slot for each target.
    #[must_use]
    pub fn new(targets: impl IntoIterator<Item = Arc<str>>) -> Self {
        let empty = Self {
            slots: Arc::default(),
            split: Arc::default(),
            models: Arc::default(),
            beat: Arc::default(),
        };
        empty.with_targets(targets)
    }

    /// A board for these targets: those that were known keep their slot and what is published there.
    #[must_use]
    pub fn with_targets(&self, targets: impl IntoIterator<Item = Arc<str>>) -> Self {
        let (mut slots, mut models) = (HashMap::default(), HashMap::new());
        for name in targets {
            let fresh = || Arc::new(Models::new(Arc::clone(&name), Arc::clone(&self.split)));
            models.insert(Arc::clone(&name), self.models.get(&name).cloned().unwrap_or_else(fresh));
            let slot = self.slots.get(&name).cloned().unwrap_or_default();
            slots.insert(name, slot);
        }
        Self {
            slots: Arc::new(slots),
            split: Arc::clone(&self.split),
            models: Arc::new(models),
            beat: Arc::clone(&self.beat),
        }
    }

    /// What is published of `target`; an unknown name reads as closed and unknown.
    #[must_use]
    pub fn read(&self, target: &str) -> Arc<Published> {
        match self.slots.get(target) {
            Some(slot) => slot.published.load_full(),
            None => {
                self.split.load().get(target).map_or_else(Arc::default, |slot| slot.published.load_full())
            }
        }
    }

    /// The models seen at a target, for one that names none itself.
    #[must_use]
    pub fn models(&self, target: &str) -> Option<&Arc<Models>> {
        self.models.get(target)
    }

    fn slot(&self, name: &str) -> Option<Arc<Slot>> {
        match self.slots.get(name) {
            Some(slot) => Some(Arc::clone(slot)),
            None => self.split.load().get(name).cloned(),
        }
    }

    /// Publishes; an unknown name is ignored.
    pub fn publish(&self, target: &str, published: Published) {
        if let Some(slot) = self.slot(target) {
            slot.published.store(Arc::new(published));
        }
    }

    /// The monitor's sign of life.
    pub fn beat(&self, now: Timestamp) {
        self.beat.store(now.as_millis(), Ordering::Release);
    }

    /// Whether the monitor has been silent too long. Before its first beat nothing is stale.
    #[must_use]
    pub fn is_stale(&self, now: Timestamp) -> bool {
        let beat = self.beat.load(Ordering::Acquire);
        beat != 0 && now.ms_since(Timestamp::from_millis(beat)) > STALE_AFTER_MS
    }

    /// Takes one of the `live_probes` places of a half-open target, if one is free.
    #[must_use]
    pub fn try_probe(&self, target: &str) -> Option<ProbeSlot> {
        let slot = self.slot(target)?;
        let limit = slot.published.load().admission.live_probes;
        let taken = slot
            .probes_in_flight
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1));
        taken.is_ok().then(|| ProbeSlot(Arc::clone(&slot.probes_in_flight)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn half_open(live_probes: u32) -> Published {
        let mut published = Published::default();
        published.admission.state = BreakerState::HalfOpen;
        published.admission.live_probes = live_probes;
        published
    }

    #[test]
    fn a_probe_slot_is_given_back_when_dropped() {
        let gate = Gate::new([Arc::from("a")]);
        gate.publish("a", half_open(1));
        let held = gate.try_probe("a");
        assert!(held.is_some());
        assert!(gate.try_probe("a").is_none());
        drop(held);
        assert!(gate.try_probe("a").is_some());
        assert!(gate.try_probe("nobody").is_none());
    }

    #[test]
    fn other_targets_come_and_go_and_known_ones_keep_their_slot() {
        let before = Gate::new([Arc::from("a"), Arc::from("b")]);
        before.publish("a", half_open(1));
        let after = before.with_targets([Arc::from("a"), Arc::from("c")]);
        assert_eq!(after.read("a").admission.state, BreakerState::HalfOpen);
        assert_eq!(after.read("c").admission.state, BreakerState::Closed);
        let held = before.try_probe("a");
        assert!(held.is_some() && after.try_probe("a").is_none(), "probes in flight are counted together");
    }

    #[test]
    fn a_silent_monitor_is_stale_after_five_seconds_and_not_before_its_first_beat() {
        let gate = Gate::new([Arc::from("a")]);
        assert!(!gate.is_stale(Timestamp::from_millis(1 << 40)));
        gate.beat(Timestamp::from_millis(1_000));
        assert!(!gate.is_stale(Timestamp::from_millis(6_000)));
        assert!(gate.is_stale(Timestamp::from_millis(6_001)));
        assert!(!gate.is_stale(Timestamp::from_millis(0)), "a clock that jumps back is no silence");
    }
}
