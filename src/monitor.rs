//! Single writer of all per-target state: outcomes and samples in; transitions out to gate, store,
//! metrics and events.

pub mod board;
mod control;
mod live;
pub mod orders;
mod probes;
mod publish;
pub mod run;
pub mod target;
mod teller;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};

use crate::sample::{Done, Exchange, Outcome, Sample};

/// Operators' commands that may wait.
const COMMANDS: usize = 16;

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

/// What an operator may ask. The reply tells what was done, or why not.
#[derive(Debug)]
pub enum Command {
    /// Force the breaker open or closed, or give it back to measurement.
    Breaker {
        /// Which target.
        target: Arc<str>,
        /// What to do.
        action: crate::breaker::Action,
        /// The operator's reason, for the log.
        reason: String,
        /// State afterwards.
        reply: oneshot::Sender<crate::verdict::BreakerState>,
    },
    /// Another configuration is in force.
    Reload {
        /// Every target, with its new prober.
        starts: Vec<run::Start>,
        /// Every route.
        lanes: Vec<run::Lane>,
        /// Where states are published from now on.
        gate: crate::gate::Gate,
    },
    /// Run a golden burst now.
    Probe {
        /// Which target.
        target: Arc<str>,
        /// Whether it was begun, or why not.
        reply: oneshot::Sender<Result<(), String>>,
    },
}

/// How the proxy and the prober speak to the monitor. Never waits.
#[derive(Clone, Debug)]
pub struct MonitorHandle {
    facts: mpsc::UnboundedSender<Fact>,
    observed: mpsc::Sender<Observed>,
    commands: mpsc::Sender<Command>,
    dropped: Arc<AtomicU64>,
}

/// The monitor's ends of the channels.
#[derive(Debug)]
pub struct Inbox {
    /// Never dropped.
    pub facts: mpsc::UnboundedReceiver<Fact>,
    /// Bounded.
    pub observed: mpsc::Receiver<Observed>,
    /// Few and small.
    pub commands: mpsc::Receiver<Command>,
    /// How many observations were dropped so far.
    pub dropped: Arc<AtomicU64>,
}

/// A handle and its inbox, with room for `capacity` observations.
#[must_use]
pub fn channel(capacity: usize) -> (MonitorHandle, Inbox) {
    let (facts, facts_in) = mpsc::unbounded_channel();
    let (observed, observed_in) = mpsc::channel(capacity.max(1));
    let (commands, commands_in) = mpsc::channel(COMMANDS);
    let dropped = Arc::<AtomicU64>::default();
    let handle = MonitorHandle { facts, observed, commands, dropped: Arc::clone(&dropped) };
    (handle, Inbox { facts: facts_in, observed: observed_in, commands: commands_in, dropped })
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

    /// Hands a command on; gives it back if the monitor is gone or too busy to take it.
    ///
    /// # Errors
    /// The command itself.
    pub async fn command(&self, command: Command) -> Result<(), Command> {
        self.commands.send(command).await.map_err(|e| e.0)
    }

    /// Offers an observation; full means dropped and counted.
    pub fn observe(&self, observed: Observed) {
        if self.observed.try_send(observed).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}
