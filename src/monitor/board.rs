//! What the monitor shows of its state: read by the admin surface, written by the monitor alone.
//!
//! Each target has a card, replaced as a whole; a reader never waits and never sees half a change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use serde::Serialize;
use tokio::sync::broadcast;

use crate::clock::Timestamp;
use crate::event::Event;
use crate::sample::Admission;
use crate::verdict::{BreakerState, HealthState, Mode};

/// Events that a slow follower of the stream may lag behind before it misses some.
const FEED_CAPACITY: usize = 256;

/// One target as `/v1/health` tells it; `detail` is what `/v1/targets/{name}` adds.
#[derive(Clone, Debug, Serialize)]
pub struct TargetCard {
    /// Name.
    pub name: Arc<str>,
    /// Health.
    pub health: HealthState,
    /// Breaker; in shadow mode what it would be.
    pub breaker: BreakerState,
    /// Whether decisions are applied.
    pub mode: Mode,
    /// In shadow mode: whether traffic would be refused now.
    pub would_open: bool,
    /// Why, in words and numbers.
    pub reasons: Vec<String>,
    /// Since when the breaker is in its state.
    pub since: Timestamp,
    /// Whether a baseline is in force.
    pub calibrated: bool,
    /// When the next canary, burst or half-open probe is due.
    pub next_probe_at: Option<Timestamp>,
    /// Latest values by name; what is not known has a reason under `unavailable`.
    pub signals: serde_json::Value,
    /// What the gate publishes.
    #[serde(skip)]
    pub admission: Admission,
    /// Arms, baseline, coverage and more.
    #[serde(skip)]
    pub detail: serde_json::Value,
}

/// One route as `/v1/health` tells it.
#[derive(Clone, Debug, Serialize)]
pub struct RouteCard {
    /// Name.
    pub name: Arc<str>,
    /// Whether decisions are applied.
    pub mode: Mode,
    /// Target names, tier by tier; `cache` and the like stand as they are configured.
    pub tiers: Vec<Vec<Arc<str>>>,
    /// Whether some target of it can serve.
    pub can_serve: bool,
    /// Share of recent requests that the first tier did not answer, 0..=1.
    pub fallback_ratio: Option<f64>,
}

#[derive(Debug)]
struct Inner {
    targets: ArcSwap<BTreeMap<Arc<str>, Arc<TargetCard>>>,
    routes: ArcSwap<Vec<RouteCard>>,
    feed: broadcast::Sender<Arc<Event>>,
    listening: AtomicBool,
    draining: AtomicBool,
}

/// The board. Clones share it.
#[derive(Clone, Debug)]
pub struct Board(Arc<Inner>);

impl Default for Board {
    fn default() -> Self {
        Self(Arc::new(Inner {
            targets: ArcSwap::default(),
            routes: ArcSwap::default(),
            feed: broadcast::channel(FEED_CAPACITY).0,
            listening: AtomicBool::new(false),
            draining: AtomicBool::new(false),
        }))
    }
}

impl Board {
    /// All targets, by name.
    #[must_use]
    pub fn targets(&self) -> Arc<BTreeMap<Arc<str>, Arc<TargetCard>>> {
        self.0.targets.load_full()
    }

    /// One target.
    #[must_use]
    pub fn target(&self, name: &str) -> Option<Arc<TargetCard>> {
        self.0.targets.load().get(name).cloned()
    }

    /// All routes.
    #[must_use]
    pub fn routes(&self) -> Arc<Vec<RouteCard>> {
        self.0.routes.load_full()
    }

    /// Replaces all cards.
    pub fn show(&self, targets: BTreeMap<Arc<str>, Arc<TargetCard>>, routes: Vec<RouteCard>) {
        self.0.targets.store(Arc::new(targets));
        self.0.routes.store(Arc::new(routes));
    }

    /// Tells those who follow the event stream.
    pub fn tell(&self, event: Arc<Event>) {
        let _ = self.0.feed.send(event); // nobody following is no fault
    }

    /// Follows the events from now on.
    #[must_use]
    pub fn follow(&self) -> broadcast::Receiver<Arc<Event>> {
        self.0.feed.subscribe()
    }

    /// The proxy listens now.
    pub fn set_listening(&self) {
        self.0.listening.store(true, Ordering::Release);
    }

    /// The daemon drains: it takes no new work and is not ready any more.
    pub fn set_draining(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    /// Why the daemon is not ready, if it is not. Ready once listening, as long as no route is *shown* to be
    /// without a target that can serve.
    #[must_use]
    pub fn not_ready(&self) -> Option<String> {
        if self.0.draining.load(Ordering::Acquire) {
            return Some("draining".to_owned());
        }
        if !self.0.listening.load(Ordering::Acquire) {
            return Some("not listening yet".to_owned());
        }
        let stuck = self.routes().iter().find(|r| !r.can_serve).map(|r| Arc::clone(&r.name));
        stuck.map(|name| format!("no target of route `{name}` can serve"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(can_serve: bool) -> RouteCard {
        RouteCard {
            name: "r".into(),
            mode: Mode::Enforce,
            tiers: vec![vec!["a".into()]],
            can_serve,
            fallback_ratio: None,
        }
    }

    #[test]
    fn readiness_needs_a_listener_and_no_route_shown_to_be_stuck() {
        let board = Board::default();
        assert_eq!(board.not_ready().as_deref(), Some("not listening yet"));
        board.set_listening();
        assert_eq!(board.not_ready(), None);
        board.show(BTreeMap::new(), vec![route(false)]);
        assert_eq!(board.not_ready().as_deref(), Some("no target of route `r` can serve"));
        board.show(BTreeMap::new(), vec![route(true)]);
        assert_eq!(board.not_ready(), None);
        board.set_draining();
        assert_eq!(board.not_ready().as_deref(), Some("draining"));
    }
}
