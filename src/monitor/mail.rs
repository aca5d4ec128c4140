//! What proxy and prober put down for the monitor, and the one bell that calls it.
//!
//! Every request leaves several reports. Each on a channel of its own would wake the monitor as often;
//! here they gather, and the monitor comes at the first one after a pause, so that its work under load
//! is done in batches and its answer to a first fault is immediate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Fact, Observed};

/// After so many reports others have a turn: less than half a millisecond of work.
const BREATH: u32 = 64;

/// Reports that have gathered, in the order of their arrival.
#[derive(Debug, Default)]
pub struct Batch {
    /// Never dropped.
    pub facts: Vec<Fact>,
    /// At most as many as there is room for.
    pub observed: Vec<Observed>,
}

#[derive(Debug)]
pub(super) struct Mail {
    waiting: Mutex<Batch>,
    bell: Notify,
    capacity: usize,
    dropped: AtomicU64,
}

impl Mail {
    pub(super) fn new(capacity: usize) -> Self {
        Self { waiting: Mutex::default(), bell: Notify::new(), capacity, dropped: AtomicU64::new(0) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Batch> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, fact: Fact) {
        self.lock().facts.push(fact);
        self.bell.notify_one();
    }

    /// Full means dropped and counted.
    pub(super) fn offer(&self, observed: Observed) {
        let mut waiting = self.lock();
        if waiting.observed.len() >= self.capacity {
            drop(waiting);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.observed.push(observed);
        drop(waiting);
        self.bell.notify_one();
    }

    /// Swaps what has gathered for an empty batch, whose memory is used again.
    pub(super) fn take(&self, batch: &mut Batch) {
        std::mem::swap(&mut *self.lock(), batch);
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Ready once something has been put down, at the earliest after `pause`.
    pub(super) async fn arrival(self: Arc<Self>, pause: Duration) {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        self.bell.notified().await;
    }
}

/// A turn for others after every so many reports.
pub(super) async fn breathe(since: &mut u32) {
    *since += 1;
    if (*since).is_multiple_of(BREATH) {
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use super::*;
    use crate::clock::Timestamp;
    use crate::monitor;
    use crate::sample::{Exchange, Signals, Usage};
    use crate::verdict::{FlagSet, Wire};

    fn report() -> Observed {
        Observed::Exchange(Arc::new(Exchange {
            id: "1".into(),
            at: Timestamp::from_millis(1),
            trace_id: "t".into(),
            workflow: None,
            route: "r".into(),
            wire: Wire::Chat,
            attempts: Vec::new(),
            flags: FlagSet::EMPTY,
            signals: Signals::default(),
            usage: Usage::default(),
            cost_usd: None,
            client_status: 200,
            partial: false,
            light: false,
            tier: "0".into(),
            target: None,
            degraded: None,
            ms: 1,
        }))
    }

    #[tokio::test]
    async fn reports_gather_and_none_is_left_behind() {
        let (handle, inbox) = monitor::channel(2);
        (0..5).for_each(|_| handle.observe(report()));
        inbox.arrival(Duration::ZERO).await;
        let mut batch = Batch::default();
        inbox.take(&mut batch);
        assert_eq!((batch.observed.len(), inbox.dropped()), (2, 3));
        batch.observed.clear();
        let mut arrival = pin!(inbox.arrival(Duration::from_millis(1)));
        let pauses = poll_fn(|cx| Poll::Ready(arrival.as_mut().poll(cx).is_pending()));
        assert!(pauses.await);
        handle.observe(report()); // put down during the pause
        arrival.await;
        inbox.take(&mut batch);
        assert_eq!(batch.observed.len(), 1);
    }
}
