//! Connections that wait for their next request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::connection::Connection;
use crate::clock::Stopwatch;

/// So often within its time is an idle connection looked at, so that one that the upstream closed is closed here too.
const LOOKS: u32 = 4;

/// The idle connections to one origin. The latest is used first, so that those that are not needed grow old.
#[derive(Debug)]
pub(super) struct Idle {
    /// No connection is kept for longer.
    limit: Duration,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// The oldest first.
    connections: Vec<(Stopwatch, Connection)>,
    /// A task looks after them.
    is_tended: bool,
}

impl Idle {
    pub(super) fn new(limit: Duration) -> Arc<Self> {
        Arc::new(Self { limit, waiting: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection that can take a request at once.
    pub(super) fn take(&self) -> Option<Connection> {
        loop {
            let (since, mut connection) = self.lock().connections.pop()?;
            if since.elapsed() < self.limit && connection.is_free() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request.
    pub(super) fn put(self: &Arc<Self>, connection: Connection) {
        let mut waiting = self.lock();
        waiting.connections.push((Stopwatch::start(), connection));
        let is_tended = std::mem::replace(&mut waiting.is_tended, true);
        drop(waiting);
        if !is_tended {
            tokio::spawn(Self::tend(Arc::clone(self)));
        }
    }

    /// Closes what is too old or was closed by the upstream, until nothing waits.
    async fn tend(this: Arc<Self>) {
        loop {
            tokio::time::sleep(this.limit / LOOKS).await;
            let mut over = Vec::new();
            let mut waiting = this.lock();
            let kept = waiting.connections.len();
            for (since, mut connection) in
                std::mem::replace(&mut waiting.connections, Vec::with_capacity(kept))
            {
                if since.elapsed() < this.limit && connection.is_free() {
                    waiting.connections.push((since, connection));
                } else {
                    over.push(connection);
                }
            }
            if waiting.connections.is_empty() {
                waiting.is_tended = false;
                return;
            }
            drop(waiting);
            drop(over); // closing takes its time: not under the lock
        }
    }
}
