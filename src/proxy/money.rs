//! Money at the edge: set aside before a call, settled after it, written down so that a restart forgets none.
//!
//! The decisions are those of [`crate::spend`]. What is set aside and what is settled goes to the store in the
//! order in which it happened; an attempt that was under way when the process died is charged there, at the next
//! start, with what had been set aside for it. Where a limit applies in enforce mode the call waits until its
//! reservation is on disk (a few milliseconds), so that not even `kill -9` between the two loses money; a store
//! that cannot write does not stop traffic. Elsewhere nothing waits.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, Timestamp};
use crate::spend::{Account, Book, Denied, Nano, Params, Reservation, Scopes};
use crate::store::{MoneyRow, Store};

/// A disk that takes longer is no reason to keep a caller waiting.
const DISK_PATIENCE: Duration = Duration::from_millis(250);

/// All accounts, and where they are written down. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Money(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    book: Mutex<Book>,
    store: Option<Arc<Store>>,
    clock: Clock,
}

impl Money {
    /// Takes up what was spent before.
    pub(super) fn new(params: &Params, store: Option<Arc<Store>>, clock: Clock) -> Self {
        let mut book = Book::new(params, fastrand::u64(..));
        if let Some(store) = &store {
            book.restore(clock.now(), store.money_blocking().into_iter().map(minute));
        }
        Self(Arc::new(Inner { book: Mutex::new(book), store, clock }))
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
        let (reservation, names, limited) = {
            let mut book = self.lock();
            let reservation = book.reserve(now, scopes, amount)?;
            (reservation, book.names(scopes), book.is_limited(scopes))
        };
        let purchase = self.purchase(reservation);
        if let Some(store) = &self.0.store {
            let ack = store.open_money(reservation.id, now, target.into(), names, amount.0, limited);
            if let Some(ack) = ack {
                // a store that cannot write says so itself
                let _ = tokio::time::timeout(DISK_PATIENCE, ack.durable()).await;
            }
        }
        Ok(purchase)
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
        self.lock().accounts(now)
    }

    fn purchase(&self, reservation: Reservation) -> Purchase {
        Purchase { money: self.clone(), reservation: Some(reservation) }
    }

    fn settle(&self, reservation: Reservation, cost: Nano) {
        let minutes = self.lock().settle(self.0.clock.now(), reservation, cost);
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
}

impl Purchase {
    /// The attempt has cost this much.
    pub(super) fn settle(mut self, cost: Nano) {
        if let Some(reservation) = self.reservation.take() {
            self.money.settle(reservation, cost);
        }
    }
}

impl Drop for Purchase {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.money.settle(reservation, reservation.amount);
        }
    }
}
