//! Money at the edge: set aside before a call, settled after it, written down so that a restart forgets none.
//!
//! The decisions are those of [`crate::spend`]. What is set aside and what is settled goes to the store in the
//! order in which it happened; an attempt that was under way when the process died is charged there, at the next
//! start, with what had been set aside for it. Where a limit applies in enforce mode the call waits until its
//! reservation is on disk (a few milliseconds), so that not even `kill -9` between the two loses money; a store
//! that cannot write does not stop traffic. Elsewhere nothing waits.
//!
//! Where instances share their limits, the common accounts decide; while they are out of reach, this instance's
//! share of each limit does, and what it spends is told to the common accounts later.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, Timestamp};
use crate::shared::{Reserved, Scope, Shared};
use crate::spend::{Account, Book, Denied, Nano, Params, Reservation, Scopes, Span};
use crate::store::{MoneyRow, Store};

/// A disk that takes longer is no reason to keep a caller waiting.
const DISK_PATIENCE: Duration = Duration::from_millis(250);
/// When common money that is spent is worth asking for again, milliseconds.
const COMMON_RETRY_MS: u64 = 60_000;

/// All accounts, and where they are written down. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Money(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    book: Mutex<Book>,
    store: Option<Arc<Store>>,
    shared: Option<Shared>,
    clock: Clock,
}

impl Money {
    /// Takes up what was spent before.
    pub(super) fn new(
        params: &Params,
        store: Option<Arc<Store>>,
        shared: Option<Shared>,
        clock: Clock,
    ) -> Self {
        let mut book = Book::new(params, fastrand::u64(..));
        if let Some(store) = &store {
            book.restore(clock.now(), store.money_blocking().into_iter().map(minute));
        }
        Self(Arc::new(Inner { book: Mutex::new(book), store, shared, clock }))
    }

    pub(super) fn reconfigure(&self, params: &Params) {
        self.lock().reconfigure(params);
    }

    /// Who pays for a request.
    pub(super) fn scopes(&self, route: &str, key: Option<&str>, budget: Option<&str>) -> Scopes {
        self.lock().scopes(route, key, budget)
    }

    /// Sets money aside; on disk when this returns, where a limit applies.
    pub(super) async fn reserve(
        &self,
        scopes: Scopes,
        target: &str,
        amount: Nano,
    ) -> Result<Purchase, Denied> {
        let now = self.0.clock.now();
        let limited = self.lock().is_limited(scopes);
        let common = if limited { self.reserve_common(scopes, amount).await? } else { None };
        let (reservation, names) = {
            let mut book = self.lock();
            if common.is_none()
                && let Some(denied) = book.denial_of_share(now, scopes, amount, self.instances())
            {
                return Err(denied);
            }
            (book.reserve_anyway(scopes, amount), book.names(scopes))
        };
        let mut purchase = self.purchase(reservation);
        purchase.common = common;
        if let Some(store) = &self.0.store {
            let ack = store.open_money(reservation.id, now, target.into(), names, amount.0, limited);
            if let Some(ack) = ack {
                // a store that cannot write says so itself
                let _ = tokio::time::timeout(DISK_PATIENCE, ack.durable()).await;
            }
        }
        Ok(purchase)
    }

    /// Sets money aside in the common accounts; when, or `None` where there are none within reach.
    async fn reserve_common(&self, scopes: Scopes, amount: Nano) -> Result<Option<u64>, Denied> {
        let Some(shared) = &self.0.shared else { return Ok(None) };
        let wanted: Vec<Scope> = {
            let book = self.lock();
            if let Some(limit) = book.per_request().filter(|limit| amount > *limit) {
                return Err(Denied::TooExpensive { amount, limit });
            }
            let nano = |limit: Option<Nano>| limit.map_or(0, |l| l.0);
            let scope = |(name, limit): (&Arc<str>, &crate::spend::Limit)| Scope {
                name: Arc::clone(name),
                hour: nano(limit.hour),
                day: nano(limit.day),
            };
            book.limits(scopes).map(scope).collect()
        };
        match shared.reserve(&wanted, amount.0).await {
            None => Ok(None),
            Some(Reserved::At(at)) => Ok(Some(at)),
            Some(Reserved::Denied(place, day)) => Err(Denied::Spent {
                scope: wanted.get(place).map_or_else(|| "global".into(), |s| Arc::clone(&s.name)),
                span: if day { Span::Day } else { Span::Hour },
                retry_after_ms: COMMON_RETRY_MS,
            }),
        }
    }

    /// Sets money aside whatever the limits say, without waiting; whether it would have been denied.
    pub(super) fn observe(&self, scopes: Scopes, target: &str, amount: Nano) -> (Purchase, bool) {
        let now = self.0.clock.now();
        let (reservation, names, denied) = {
            let mut book = self.lock();
            let denied = book.denial(now, scopes, amount).is_some();
            (book.reserve_anyway(scopes, amount), book.names(scopes), denied)
        };
        if let Some(store) = &self.0.store {
            let _ = store.open_money(reservation.id, now, target.into(), names, amount.0, false);
        }
        (self.purchase(reservation), denied)
    }

    pub(super) fn accounts(&self, now: Timestamp) -> Vec<Account> {
        let mut accounts = self.lock().accounts(now);
        if let Some(shared) = &self.0.shared {
            for account in &mut accounts {
                let Some(spent) = shared.spent(&account.scope) else { continue };
                let (common, projected) = match account.span {
                    Span::Hour => (spent.hour, spent.hour_projected),
                    Span::Day => (spent.day, spent.day_projected),
                };
                (account.common, account.projected) = (Some(Nano(common)), Nano(projected));
            }
        }
        accounts
    }

    fn instances(&self) -> u32 {
        self.0.shared.as_ref().map_or(1, Shared::instances)
    }

    fn purchase(&self, reservation: Reservation) -> Purchase {
        Purchase { money: self.clone(), reservation: Some(reservation), common: None }
    }

    fn settle(&self, reservation: Reservation, common: Option<u64>, cost: Nano) {
        let (minutes, names) = {
            let mut book = self.lock();
            let names = self.0.shared.as_ref().map(|_| book.names(reservation.scopes));
            (book.settle(self.0.clock.now(), reservation, cost), names)
        };
        if let (Some(shared), Some(names)) = (&self.0.shared, names) {
            let signed = |n: Nano| i64::try_from(n.0).unwrap_or(i64::MAX);
            let before = common.map_or(0, |_| signed(reservation.amount));
            shared.settle(&names, common, signed(cost) - before);
        }
        if let Some(store) = &self.0.store {
            let rows = minutes.into_iter().map(|m| MoneyRow { scope: m.scope, at: m.at, nano: m.amount.0 });
            store.settle_money(reservation.id, rows.collect());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn minute(row: MoneyRow) -> crate::spend::Minute {
    crate::spend::Minute { scope: row.scope, at: row.at, amount: Nano(row.nano) }
}

/// Money set aside for one attempt. Dropped unsettled it costs what was set aside: it is not known to have
/// cost less.
#[derive(Debug)]
pub(super) struct Purchase {
    money: Money,
    reservation: Option<Reservation>,
    /// When it was set aside in the common accounts, on their server's clock.
    common: Option<u64>,
}

impl Purchase {
    /// The attempt has cost this much.
    pub(super) fn settle(mut self, cost: Nano) {
        if let Some(reservation) = self.reservation.take() {
            self.money.settle(reservation, self.common, cost);
        }
    }
}

impl Drop for Purchase {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.money.settle(reservation, self.common, reservation.amount);
        }
    }
}
