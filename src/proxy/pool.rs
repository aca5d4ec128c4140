//! Permits of one GPU or account, and who waits for them.
//!
//! The pure [`Pool`] decides; here it gets its lock, and each waiter a channel of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::clock::Timestamp;
use crate::permits::{self, Answer, Ask, Member, Pool, Rate, Shed, Ticket};
use crate::upstream::TargetParams;

/// Permits of one GPU or account.
#[derive(Debug)]
pub(super) struct SharedPool {
    pub(super) name: Arc<str>,
    state: Mutex<PoolState>,
}

#[derive(Debug)]
pub(super) struct PoolState {
    pub(super) pool: Pool,
    members: Vec<(Arc<str>, Member)>,
    granted: HashMap<Ticket, oneshot::Sender<u32>>,
}

impl PoolState {
    /// Lets all go ahead that may.
    pub(super) fn wake(&mut self) {
        while let Some((ticket, member, weight)) = self.pool.admit_next() {
            let sent = self.granted.remove(&ticket).map(|sender| sender.send(weight));
            if sent != Some(Ok(())) {
                self.pool.give_back(member, weight); // it left in this very moment
            }
        }
    }
}

impl SharedPool {
    pub(super) fn new(name: &Arc<str>) -> Arc<Self> {
        let pool = Pool::new(1, &permits::Params::default(), &[], Timestamp::ZERO);
        let state = PoolState { pool, members: Vec::new(), granted: HashMap::new() };
        Arc::new(Self { name: Arc::clone(name), state: Mutex::new(state) })
    }

    pub(super) fn configure<'t>(
        &self,
        limit: u32,
        queue: &permits::Params,
        targets: impl Iterator<Item = &'t TargetParams>,
    ) {
        let mut state = self.lock();
        for target in targets {
            let member = Member {
                cap: target.permits().unwrap_or(limit),
                tokens_per_permit: target.tokens_per_permit(),
                rate: target
                    .rate()
                    .map(|r| Rate { capacity: r.capacity, refill_per_second: r.refill_per_second }),
            };
            match state.members.iter_mut().find(|(name, _)| name == target.name()) {
                Some((_, known)) => *known = member,
                None => state.members.push((Arc::clone(target.name()), member)),
            }
        }
        let members: Vec<Member> = state.members.iter().map(|(_, member)| *member).collect();
        // Full buckets: their moment is the epoch, and the first look refills them.
        state.pool.reconfigure(limit, queue, &members, Timestamp::ZERO);
        state.wake();
    }

    pub(super) fn place_of(&self, target: &str) -> usize {
        self.lock().members.iter().position(|(name, _)| **name == *target).unwrap_or(0)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Permits for the ask, after waiting for them if need be.
    ///
    /// # Errors
    /// Why there are none, and when it is worth asking again, milliseconds.
    pub(super) async fn acquire(&self, ask: &Ask, now: Timestamp) -> Result<u32, (Shed, u64)> {
        let (mut waiting, patience_ms) = {
            let mut state = self.lock();
            match state.pool.acquire(ask, now) {
                Answer::Granted { weight } => return Ok(weight),
                Answer::Refused { why, retry_after_ms } => return Err((why, retry_after_ms)),
                Answer::Queued { ticket, patience_ms } => {
                    let (sender, granted) = oneshot::channel();
                    state.granted.insert(ticket, sender);
                    (Waiting { pool: self, member: ask.member, ticket, granted: Some(granted) }, patience_ms)
                }
            }
        };
        match waiting.granted_within(patience_ms).await {
            Some(weight) => Ok(weight),
            None => Err((Shed::Late, self.lock().pool.retry_after_ms())),
        }
    }
}

/// A place in the queue; left when dropped.
struct Waiting<'p> {
    pool: &'p SharedPool,
    member: usize,
    ticket: Ticket,
    granted: Option<oneshot::Receiver<u32>>,
}

impl Waiting<'_> {
    async fn granted_within(&mut self, patience_ms: u64) -> Option<u32> {
        let granted = self.granted.as_mut()?;
        let weight = tokio::time::timeout(Duration::from_millis(patience_ms), granted).await.ok()?.ok()?;
        self.granted = None;
        Some(weight)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(mut granted) = self.granted.take() else { return };
        let mut state = self.pool.lock();
        state.granted.remove(&self.ticket);
        if !state.pool.cancel(self.ticket)
            && let Ok(weight) = granted.try_recv()
        {
            state.pool.give_back(self.member, weight); // granted in the very moment of leaving
        }
        state.wake(); // it may have stood before one that fits
    }
}
