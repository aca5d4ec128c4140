//! The queue to the writer, which wakes it as seldom as it can.
//!
//! Waking a thread costs more than any other part of handing something over. So samples wait for
//! company: the first one wakes an idle writer, which then gathers for a second, or only for a moment where
//! money is among it; an event, or a batch that is full, wakes it at once.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::writer::Command;

/// Money gathers no longer than this.
const SOON: Duration = Duration::from_millis(20);
/// Commands that are worth a commit of their own.
const FULL: usize = 1_000;

#[derive(Debug, Default)]
struct State {
    commands: Vec<Command>,
    /// The writer waits for a first command.
    idle: bool,
    urgent: bool,
    soon: bool,
    closed: bool,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    bell: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handles' end; the queue closes when it is dropped.
#[derive(Debug)]
pub(super) struct Feed(Arc<Queue>);

/// The writer's end.
#[derive(Debug)]
pub(super) struct Intake(Arc<Queue>);

/// A queue and its two ends.
pub(super) fn queue() -> (Feed, Intake) {
    let queue = Arc::<Queue>::default();
    (Feed(Arc::clone(&queue)), Intake(queue))
}

impl Feed {
    /// Hands a command over; never waits for the writer.
    pub(super) fn push(&self, command: Command) {
        let mut state = self.0.lock();
        let urgent = command.is_urgent();
        let soon = command.is_soon() && !state.soon;
        let first = state.commands.is_empty() && state.idle;
        state.commands.push(command);
        state.urgent |= urgent;
        state.soon |= soon;
        let rings = urgent || soon || first || state.commands.len() == FULL;
        drop(state);
        if rings {
            self.0.bell.notify_one();
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.bell.notify_one();
    }
}

impl Intake {
    /// What has gathered: waits up to `idle` for a first command, then up to `gather` for more unless
    /// one is urgent. False once the queue is closed.
    pub(super) fn take(&self, idle: Duration, gather: Duration) -> (Vec<Command>, bool) {
        let mut state = self.0.lock();
        if state.commands.is_empty() && !state.closed {
            state.idle = true;
            let nothing = |state: &mut State| state.commands.is_empty() && !state.closed;
            let woken = self.0.bell.wait_timeout_while(state, idle, nothing);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.idle = false;
        }
        let gathering = |state: &mut State| {
            !state.commands.is_empty() && !state.urgent && !state.closed && state.commands.len() < FULL
        };
        let woken = self.0.bell.wait_timeout_while(state, gather, |s| !s.soon && gathering(s));
        state = woken.unwrap_or_else(PoisonError::into_inner).0;
        if state.soon {
            let woken = self.0.bell.wait_timeout_while(state, gather.min(SOON), gathering);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.urgent = false;
        state.soon = false;
        (std::mem::take(&mut state.commands), !state.closed)
    }
}
