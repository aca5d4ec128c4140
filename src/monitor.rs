//! Single writer of all per-target state: outcomes and samples in; transitions out to gate, store,
//! metrics and events.

pub mod board;
mod control;
mod live;
mod mail;
pub mod orders;
mod probes;
mod publish;
pub mod run;
mod selftests;
mod sharing;
mod split;
pub mod target;
mod teller;
mod watched;
mod workload;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

pub use mail::Batch;
use mail::Mail;

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
    Exchange(Arc<Exchange>),
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
    /// Another instance's breaker has opened or closed.
    Adopt(crate::shared::Remote),
    /// What a target's own load page says.
    Load {
        /// Which target.
        target: Arc<str>,
        /// How full it is, or why that is not known.
        load: Result<crate::upstream::Load, String>,
        /// For how long that is pressure, milliseconds; 0 if it is none.
        holds_ms: u64,
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
    mail: Arc<Mail>,
    commands: mpsc::Sender<Command>,
}

/// The monitor's ends of the channels.
#[derive(Debug)]
pub struct Inbox {
    mail: Arc<Mail>,
    /// Few and small.
    pub commands: mpsc::Receiver<Command>,
}

impl Inbox {
    /// Ready once there is a report, at the earliest after `pause`.
    pub fn arrival(&self, pause: Duration) -> impl Future<Output = ()> + use<> {
        Arc::clone(&self.mail).arrival(pause)
    }

    /// Takes what has gathered in exchange for an empty batch.
    pub fn take(&self, batch: &mut Batch) {
        self.mail.take(batch);
    }

    /// How many observations were dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.mail.dropped()
    }
}

/// A handle and its inbox, with room for `capacity` observations.
#[must_use]
pub fn channel(capacity: usize) -> (MonitorHandle, Inbox) {
    let mail = Arc::new(Mail::new(capacity.max(1)));
    let (commands, commands_in) = mpsc::channel(COMMANDS);
    (MonitorHandle { mail: Arc::clone(&mail), commands }, Inbox { mail, commands: commands_in })
}

impl MonitorHandle {
    /// Reports the end of an attempt.
    pub fn outcome(&self, outcome: Outcome) {
        self.mail.put(Fact::Outcome(outcome));
    }

    /// Reports the end of a caller's request.
    pub fn done(&self, done: Done) {
        self.mail.put(Fact::Done(done));
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
        self.mail.offer(observed);
    }
}
