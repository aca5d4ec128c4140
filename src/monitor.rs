//! Single writer of all per-target state: outcomes and samples in; transitions out to gate, store,
//! metrics and events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use crate::sample::{Done, Exchange, Outcome, Sample};

/// Small facts that are never dropped.
#[derive(Debug)]
pub enum Fact {
    /// An attempt ended.
    Outcome(Outcome),
    /// A caller's request ended.
    Done(Done),
}

/// Rich observations that may be dropped under load.
#[derive(Debug)]
pub enum Observed {
    /// For the detectors.
    Sample(Box<Sample>),
    /// For `/v1/requests/{id}`.
    Exchange(Box<Exchange>),
}

/// How the proxy and the prober speak to the monitor. Never waits.
#[derive(Clone, Debug)]
pub struct MonitorHandle {
    facts: mpsc::UnboundedSender<Fact>,
    observed: mpsc::Sender<Observed>,
    dropped: Arc<AtomicU64>,
}

/// The monitor's ends of the channels.
#[derive(Debug)]
pub struct Inbox {
    /// Never dropped.
    pub facts: mpsc::UnboundedReceiver<Fact>,
    /// Bounded.
    pub observed: mpsc::Receiver<Observed>,
    /// How many observations were dropped so far.
    pub dropped: Arc<AtomicU64>,
}

/// A handle and its inbox, with room for `capacity` observations.
#[must_use]
pub fn channel(capacity: usize) -> (MonitorHandle, Inbox) {
    let (facts, facts_in) = mpsc::unbounded_channel();
    let (observed, observed_in) = mpsc::channel(capacity.max(1));
    let dropped = Arc::<AtomicU64>::default();
    let handle = MonitorHandle { facts, observed, dropped: Arc::clone(&dropped) };
    (handle, Inbox { facts: facts_in, observed: observed_in, dropped })
}

impl MonitorHandle {
    /// Reports the end of an attempt.
    pub fn outcome(&self, outcome: Outcome) {
        let _ = self.facts.send(Fact::Outcome(outcome)); // a dead monitor must not stop traffic
    }

    /// Reports the end of a caller's request.
    pub fn done(&self, done: Done) {
        let _ = self.facts.send(Fact::Done(done));
    }

    /// Offers an observation; full means dropped and counted.
    pub fn observe(&self, observed: Observed) {
        if self.observed.try_send(observed).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
