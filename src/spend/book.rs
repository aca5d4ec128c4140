//! Accounts, reservations, settlement.

use std::collections::HashMap;
use std::sync::Arc;

use super::window::{DAY, HOUR, MINUTE_MS, Window};
use super::{Limit, Nano, Params};
use crate::clock::Timestamp;

/// Sub-budgets without limits that are told apart; the rest is charged to their key alone.
const MOST_ACCOUNTS: usize = 1_000;
/// The pace of spending is told from so many minutes.
const PACE: u64 = 10;
/// A denial that only the end of calls under way can lift is worth asking again after this, milliseconds.
const SOON_MS: u64 = 1_000;
/// The account of everything.
const GLOBAL: &str = "global";

/// A sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The last 60 minutes.
    Hour,
    /// The last 24 hours.
    Day,
}

impl Span {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Hour, Self::Day];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    const fn minutes(self) -> u64 {
        match self {
            Self::Hour => HOUR,
            Self::Day => DAY,
        }
    }

    const fn limit(self, limit: &Limit) -> Option<Nano> {
        match self {
            Self::Hour => limit.hour,
            Self::Day => limit.day,
        }
    }
}

/// The accounts that one request is charged to, by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes([Option<u16>; 4]);

impl Scopes {
    fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().flatten().map(usize::from)
    }
}

/// Money set aside for one attempt. Settle it, whatever becomes of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Reservation {
    /// Unique over restarts.
    pub id: u64,
    /// Who pays.
    pub scopes: Scopes,
    /// How much was set aside.
    pub amount: Nano,
}

/// Why no money was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The attempt alone would pass the limit for one request.
    TooExpensive {
        /// What it is expected to cost.
        amount: Nano,
        /// What it may.
        limit: Nano,
    },
    /// A window is spent.
    Spent {
        /// Whose.
        scope: Arc<str>,
        /// Which.
        span: Span,
        /// When it is worth asking again, milliseconds.
        retry_after_ms: u64,
    },
}

/// What an account says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// `global`, `route/NAME`, `key/NAME`, `key/NAME/BUDGET`.
    pub scope: Arc<str>,
    /// Which window.
    pub span: Span,
    /// Spent in the window.
    pub spent: Nano,
    /// Set aside for attempts under way.
    pub reserved: Nano,
    /// The limit, if there is one.
    pub limit: Option<Nano>,
    /// What the clock hour or UTC day will have cost at its end at the present pace.
    pub projected: Nano,
    /// Spent or set aside by all instances that share the limit, where that is known; `projected` is theirs then too.
    pub common: Option<Nano>,
}

/// What one scope spent in one minute, to be kept over restarts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Minute {
    /// Whose.
    pub scope: Arc<str>,
    /// When.
    pub at: Timestamp,
    /// How much.
    pub amount: Nano,
}

#[derive(Clone, Debug)]
struct Entry {
    scope: Arc<str>,
    limit: Limit,
    window: Window,
    reserved: Nano,
}

/// All accounts. See the module.
#[derive(Clone, Debug)]
pub struct Book {
    per_request: Option<Nano>,
    entries: Vec<Entry>,
    places: HashMap<Arc<str>, u16>,
    ids: u64,
}

impl Book {
    /// Empty accounts with these limits. `seed` makes ids unique over restarts.
    #[must_use]
    pub fn new(params: &Params, seed: u64) -> Self {
        // half of the bits for the restart, half for the count; the sign bit stays free for stores
        let ids = (seed & 0x3FFF_FFFF) << 32;
        let mut book = Self { per_request: None, entries: Vec::new(), places: HashMap::new(), ids };
        book.reconfigure(params);
        book
    }

    /// Takes over other limits; what was spent and reserved stays.
    pub fn reconfigure(&mut self, params: &Params) {
        self.per_request = params.per_request();
        for entry in &mut self.entries {
            entry.limit = Limit::default();
        }
        let global = self.place(GLOBAL);
        self.limit(global, params.global());
        for budget in params.budgets() {
            let place = self.place(&budget.scope());
            self.limit(place, budget.limit());
        }
    }

    /// The accounts that a request of this route is charged to.
    pub fn scopes(&mut self, route: &str, key: Option<&str>, name: Option<&str>) -> Scopes {
        let key_place = key.and_then(|key| self.place(&format!("key/{key}")));
        let sub = key.zip(name).and_then(|(key, name)| self.place(&format!("key/{key}/{name}")));
        Scopes([self.place(GLOBAL), self.place(&format!("route/{route}")), key_place, sub])
    }

    /// Whether any of these accounts, or a single request, has a limit.
    #[must_use]
    pub fn is_limited(&self, scopes: Scopes) -> bool {
        self.per_request.is_some() || scopes.iter().any(|i| !self.entries[i].limit.is_none())
    }

    /// Sets money aside.
    ///
    /// # Errors
    /// Where that would pass a limit; nothing is set aside then.
    pub fn reserve(&mut self, now: Timestamp, scopes: Scopes, amount: Nano) -> Result<Reservation, Denied> {
        if let Some(denied) = self.denial(now, scopes, amount) {
            return Err(denied);
        }
        Ok(self.reserve_anyway(scopes, amount))
    }

    /// Why [`Book::reserve`] would be denied, if it would.
    #[must_use]
    pub fn denial(&mut self, now: Timestamp, scopes: Scopes, amount: Nano) -> Option<Denied> {
        self.denial_of_share(now, scopes, amount, 1)
    }

    /// The same where this is one of so many instances that share the limits and cannot ask each other.
    #[must_use]
    pub fn denial_of_share(
        &mut self,
        now: Timestamp,
        scopes: Scopes,
        amount: Nano,
        instances: u32,
    ) -> Option<Denied> {
        if let Some(limit) = self.per_request.filter(|limit| amount > *limit) {
            return Some(Denied::TooExpensive { amount, limit });
        }
        for i in scopes.iter() {
            let entry = &mut self.entries[i];
            if entry.limit.is_none() {
                continue;
            }
            entry.window.tick(now);
            for span in Span::ALL {
                let Some(limit) = span.limit(&entry.limit) else { continue };
                let limit = Nano(limit.0 / u64::from(instances.max(1)));
                let spent = entry.window.sum(now, span.minutes());
                let wanted = spent.plus(entry.reserved).plus(amount);
                if wanted > limit {
                    let over = wanted.minus(limit);
                    let frees = entry.window.frees_ms(now, span.minutes(), over);
                    let retry_after_ms = match frees {
                        Some(ms) if entry.reserved == Nano::ZERO => ms.max(SOON_MS),
                        Some(ms) => ms.clamp(SOON_MS, MINUTE_MS), // what is under way may cost less
                        None => MINUTE_MS,
                    };
                    return Some(Denied::Spent { scope: Arc::clone(&entry.scope), span, retry_after_ms });
                }
            }
        }
        None
    }

    /// Sets money aside whatever the limits say (shadow mode).
    pub fn reserve_anyway(&mut self, scopes: Scopes, amount: Nano) -> Reservation {
        for i in scopes.iter() {
            let entry = &mut self.entries[i];
            entry.reserved = entry.reserved.plus(amount);
        }
        self.ids += 1;
        Reservation { id: self.ids, scopes, amount }
    }

    /// The attempt has ended and cost this much; what is to be kept over restarts.
    #[must_use]
    pub fn settle(&mut self, now: Timestamp, reservation: Reservation, cost: Nano) -> Vec<Minute> {
        for i in reservation.scopes.iter() {
            let entry = &mut self.entries[i];
            entry.reserved = entry.reserved.minus(reservation.amount);
        }
        self.charge(now, reservation.scopes, cost)
    }

    /// Money spent without a reservation (the daemon's own probes).
    #[must_use]
    pub fn charge(&mut self, now: Timestamp, scopes: Scopes, cost: Nano) -> Vec<Minute> {
        if cost == Nano::ZERO {
            return Vec::new();
        }
        let minute = |entry: &mut Entry| {
            entry.window.add(now, cost);
            let at = Timestamp::from_millis(now.as_millis() / MINUTE_MS * MINUTE_MS);
            Minute { scope: Arc::clone(&entry.scope), at, amount: cost }
        };
        scopes.iter().map(|i| minute(&mut self.entries[i])).collect()
    }

    /// Puts back what was spent before a restart; what lies in the future is counted as just now.
    pub fn restore(&mut self, now: Timestamp, minutes: impl IntoIterator<Item = Minute>) {
        for minute in minutes {
            if let Some(place) = self.place(&minute.scope) {
                self.entries[usize::from(place)].window.restore(minute.at.min(now), minute.amount);
            }
        }
    }

    /// What one attempt may be expected to cost at most, if that is limited.
    #[must_use]
    pub const fn per_request(&self) -> Option<Nano> {
        self.per_request
    }

    /// Names and limits of these accounts.
    pub fn limits(&self, scopes: Scopes) -> impl Iterator<Item = (&Arc<str>, &Limit)> {
        scopes.iter().map(|i| (&self.entries[i].scope, &self.entries[i].limit))
    }

    /// Names of these accounts, for the record of a reservation.
    #[must_use]
    pub fn names(&self, scopes: Scopes) -> Vec<Arc<str>> {
        scopes.iter().map(|i| Arc::clone(&self.entries[i].scope)).collect()
    }

    /// Both windows of every account.
    #[must_use]
    pub fn accounts(&self, now: Timestamp) -> Vec<Account> {
        let of = |entry: &Entry, span: Span| Account {
            scope: Arc::clone(&entry.scope),
            span,
            spent: entry.window.sum(now, span.minutes()),
            reserved: entry.reserved,
            limit: span.limit(&entry.limit),
            projected: projected(&entry.window, now, span),
            common: None,
        };
        self.entries.iter().flat_map(|entry| Span::ALL.map(|span| of(entry, span))).collect()
    }

    fn limit(&mut self, place: Option<u16>, limit: Limit) {
        if let Some(place) = place {
            self.entries[usize::from(place)].limit = limit;
        }
    }

    /// The account of this name, made if need be and if there is room.
    fn place(&mut self, scope: &str) -> Option<u16> {
        if let Some(place) = self.places.get(scope) {
            return Some(*place);
        }
        let place = u16::try_from(self.entries.len()).ok().filter(|_| self.entries.len() < MOST_ACCOUNTS)?;
        let name: Arc<str> = scope.into();
        self.places.insert(Arc::clone(&name), place);
        let (limit, window, reserved) = (Limit::default(), Window::default(), Nano::ZERO);
        self.entries.push(Entry { scope: name, limit, window, reserved });
        Some(place)
    }
}

/// What the present clock hour or UTC day will have cost at its end, if the last minutes' pace goes on.
fn projected(window: &Window, now: Timestamp, span: Span) -> Nano {
    let length = span.minutes() * MINUTE_MS;
    let begin = Timestamp::from_millis(now.as_millis() / length * length);
    let pace = window.sum(now, PACE - 1).0 as f64 / (PACE * MINUTE_MS) as f64;
    let left_ms = length - now.ms_since(begin);
    window.since(begin).plus(Nano((pace * left_ms as f64) as u64))
}
