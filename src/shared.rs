//! What several instances share, over Redis or Valkey: retry tokens, money, who probes, and which breakers are open.
//!
//! Embedded is the default and everything works in one process. With `[shared] url` a small part of the state
//! becomes common: a global retry bucket and money in atomic scripts, a lease with an owner's token for the one
//! instance that probes a target, and published breaker states, so that a trip that one instance saw is known to
//! all within a second. All moments are the server's, and absolute.
//!
//! Nothing that a caller waits for waits longer than `timeout_ms` for Redis, and after one such wait nobody waits
//! until the link has proven itself again. While it is lost each instance goes on with its local share (a limit
//! divided by the instances that were there last), keeps what it owes the common accounts, and pays when the
//! link is back; that takes no restart.

mod link;
mod scripts;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, mpsc};

use crate::clock::{Clock, Timestamp};
use crate::units::Ms;
use scripts::Scripts;

/// A caller hardly notices it; a Redis in the same network answers in one.
const TIMEOUT_MS: u64 = 20;
/// Keys of several deployments in one Redis are told apart by it.
const PREFIX: &str = "touchstone:";
/// An instance that has died is replaced as a prober within this time.
const LEASE: Ms = Ms::from_secs(5);

/// `[shared]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawParams", into = "RawParams")]
pub struct Params(RawParams);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawParams {
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url_env: Option<String>,
    prefix: String,
    timeout_ms: u64,
    lease: Ms,
}

impl Default for RawParams {
    fn default() -> Self {
        Self { url: None, url_env: None, prefix: PREFIX.to_owned(), timeout_ms: TIMEOUT_MS, lease: LEASE }
    }
}

/// Why `[shared]` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamsError {
    /// Not a Redis URL.
    #[error("url: must begin with redis:// and name a host, as in redis://127.0.0.1:6379/0")]
    Url,
    /// A secret in the file.
    #[error("url: must not hold a password; put the URL into a variable and name it with url_env")]
    Secret,
    /// Two sources of one URL.
    #[error("url_env: give either url or url_env")]
    TwoUrls,
    /// Nothing can be waited for.
    #[error("{0}: must be more than nothing")]
    Zero(&'static str),
    /// The variable is not set, or holds no URL.
    #[error("url_env: the variable `{0}` is not set or holds no redis:// URL")]
    Variable(String),
}

fn is_url(url: &str) -> bool {
    url.starts_with("redis://") && url.len() > "redis://".len() && redis::Client::open(url).is_ok()
}

impl TryFrom<RawParams> for Params {
    type Error = ParamsError;

    fn try_from(raw: RawParams) -> Result<Self, ParamsError> {
        if let Some(url) = &raw.url {
            if !is_url(url) {
                return Err(ParamsError::Url);
            }
            if url.contains('@') {
                return Err(ParamsError::Secret);
            }
        }
        if raw.url.is_some() && raw.url_env.is_some() {
            return Err(ParamsError::TwoUrls);
        }
        if raw.timeout_ms == 0 {
            return Err(ParamsError::Zero("timeout_ms"));
        }
        if raw.lease < Ms::from_secs(1) {
            return Err(ParamsError::Zero("lease"));
        }
        Ok(Self(raw))
    }
}

impl From<Params> for RawParams {
    fn from(params: Params) -> Self {
        params.0
    }
}

impl Params {
    /// Whether anything is shared.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.0.url.is_some() || self.0.url_env.is_some()
    }

    fn url(&self) -> Result<String, ParamsError> {
        if let Some(url) = &self.0.url {
            return Ok(url.clone());
        }
        let name = self.0.url_env.clone().unwrap_or_default();
        let url = std::env::var(&name).unwrap_or_default();
        if is_url(&url) { Ok(url) } else { Err(ParamsError::Variable(name)) }
    }
}

/// A breaker's state as another instance published it; moments on this machine's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Which target.
    pub target: Arc<str>,
    /// Open, else closed.
    pub open: bool,
    /// When the open breaker is due.
    pub due: Option<Timestamp>,
    /// Why, in a closed word.
    pub cause: String,
    /// Why, in words and numbers.
    pub message: String,
}

/// One scope's limits, billionths of a dollar; 0 is no limit.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Name of the account.
    pub name: Arc<str>,
    /// In any hour.
    pub hour: u64,
    /// In any day.
    pub day: u64,
}

/// What all instances together have spent or set aside of one scope, billionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Within the last hour.
    pub hour: u64,
    /// Within the last day.
    pub day: u64,
    /// What the clock hour will have cost at its end, at the present pace.
    pub hour_projected: u64,
    /// What the UTC day will have cost at its end, at the present pace.
    pub day_projected: u64,
}

/// What the common accounts say to a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// Set aside at this moment of the server, milliseconds.
    At(u64),
    /// It would pass a limit: the place of the scope, and whether it is the day's.
    Denied(usize, bool),
}

/// The handle. Clones share it.
#[derive(Clone)]
pub struct Shared(Arc<Inner>);

struct Inner {
    params: RawParams,
    client: redis::Client,
    instance: String,
    clock: Clock,
    scripts: Scripts,
    connection: ArcSwapOption<MultiplexedConnection>,
    up: AtomicBool,
    instances: AtomicU32,
    /// What the server's clock is ahead of this machine's, milliseconds.
    ahead_ms: AtomicI64,
    retry_level: AtomicU64,
    leases: Mutex<HashMap<Arc<str>, bool>>,
    outgoing: Mutex<Outgoing>,
    /// What the common accounts said of the scopes that somebody asked for.
    spent: Mutex<HashMap<Arc<str>, Option<Spent>>>,
    wake: Notify,
}

#[derive(Default)]
struct Outgoing {
    /// Latest state of each target.
    states: HashMap<Arc<str>, Remote>,
    /// What is owed to the common accounts, by scope and slice of time.
    money: HashMap<(Arc<str>, u64), i64>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("up", &self.is_up()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Begins to keep the link; what other instances publish comes out of the receiver. The link's task ends with
    /// the last handle.
    ///
    /// # Errors
    /// If the URL cannot be had.
    pub fn start(
        params: &Params,
        targets: impl IntoIterator<Item = Arc<str>>,
        clock: Clock,
    ) -> Result<(Self, mpsc::UnboundedReceiver<Remote>), ParamsError> {
        let client = redis::Client::open(params.url()?).map_err(|_| ParamsError::Url)?;
        let inner = Inner {
            params: params.0.clone(),
            client,
            instance: format!("{:016x}", fastrand::u64(..)),
            clock,
            scripts: Scripts::default(),
            connection: ArcSwapOption::empty(),
            up: AtomicBool::new(false),
            instances: AtomicU32::new(1),
            ahead_ms: AtomicI64::new(0),
            retry_level: AtomicU64::new(f64::INFINITY.to_bits()),
            leases: Mutex::new(targets.into_iter().map(|name| (name, false)).collect()),
            outgoing: Mutex::default(),
            spent: Mutex::default(),
            wake: Notify::new(),
        };
        let shared = Self(Arc::new(inner));
        let (out, states) = mpsc::unbounded_channel();
        tokio::spawn(link::keep(Arc::downgrade(&shared.0), out));
        Ok((shared, states))
    }

    /// Whether the common state is reachable.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.0.up.load(Ordering::Acquire)
    }

    /// Instances that were there when the link was last alive; at least 1.
    #[must_use]
    pub fn instances(&self) -> u32 {
        self.0.instances.load(Ordering::Relaxed).max(1)
    }

    /// Takes other targets (a reload).
    pub fn set_targets(&self, targets: impl IntoIterator<Item = Arc<str>>) {
        let mut leases = self.0.lock_leases();
        let before = std::mem::take(&mut *leases);
        *leases = targets
            .into_iter()
            .map(|name| {
                let held = before.get(&name).copied().unwrap_or(false);
                (name, held)
            })
            .collect();
    }

    /// Whether this instance is the one that probes the target. While the link is lost every instance is, because
    /// a target that nobody probes would stay out.
    #[must_use]
    pub fn may_probe(&self, target: &str) -> bool {
        !self.is_up() || self.0.lock_leases().get(target).copied().unwrap_or(true)
    }

    /// Whether the common bucket held a token when it was last looked at.
    #[must_use]
    pub fn has_retry_token(&self) -> bool {
        f64::from_bits(self.0.retry_level.load(Ordering::Relaxed)) >= 1.0
    }

    /// Takes one token out of the common bucket; `None` where the link is lost, and the local share decides.
    pub async fn take_retry(&self, refill_per_second: f64, burst: f64) -> Option<bool> {
        let mut call = self.0.scripts.retry.prepare_invoke();
        call.key(self.0.key("retry")).arg(refill_per_second).arg(burst);
        let (taken, level): (u8, String) = self.ask(&call).await?;
        self.0.retry_level.store(level.parse().unwrap_or(0.0_f64).to_bits(), Ordering::Relaxed);
        Some(taken == 1)
    }

    /// Sets money aside in the common accounts; `None` where the link is lost, and the local share decides.
    pub async fn reserve(&self, scopes: &[Scope], nano: u64) -> Option<Reserved> {
        let mut call = self.0.scripts.reserve.prepare_invoke();
        for scope in scopes {
            call.key(self.0.money_key(&scope.name));
        }
        call.arg(nano);
        for scope in scopes {
            call.arg(scope.hour).arg(scope.day);
        }
        let (ok, place, day, now): (u8, usize, u8, u64) = self.ask(&call).await?;
        Some(if ok == 1 { Reserved::At(now) } else { Reserved::Denied(place.saturating_sub(1), day == 1) })
    }

    /// What all instances together have spent of a scope, as the common accounts said within the last second or two;
    /// `None` while they are out of reach, and where nobody has asked before.
    #[must_use]
    pub fn spent(&self, scope: &Arc<str>) -> Option<Spent> {
        let known = self.0.lock_spent().entry(Arc::clone(scope)).or_default().as_ref().copied();
        known.filter(|_| self.is_up())
    }

    /// Tokens in the common bucket when it was last looked at; `None` while it is out of reach.
    #[must_use]
    pub fn retry_level(&self) -> Option<f64> {
        self.is_up().then(|| f64::from_bits(self.0.retry_level.load(Ordering::Relaxed)))
    }

    /// What an attempt has cost more (or less) than was set aside at that moment; without a moment, now. Told to the
    /// common accounts as soon as the link allows, and kept until then.
    pub fn settle(&self, scopes: &[Arc<str>], at: Option<u64>, delta: i64) {
        if delta == 0 {
            return;
        }
        let at = at.unwrap_or_else(|| self.0.server_ms(self.0.clock.now()));
        let slice = at / scripts::SLICE_MS * scripts::SLICE_MS;
        let mut outgoing = self.0.lock_outgoing();
        for scope in scopes {
            *outgoing.money.entry((Arc::clone(scope), slice)).or_default() += delta;
        }
        drop(outgoing);
        self.0.wake.notify_one();
    }

    /// Tells the others what this instance's breaker of the target came to.
    pub fn publish(&self, state: Remote) {
        self.0.lock_outgoing().states.insert(Arc::clone(&state.target), state);
        self.0.wake.notify_one();
    }

    /// One question that a caller waits for.
    async fn ask<T: redis::FromRedisValue>(&self, call: &redis::ScriptInvocation<'_>) -> Option<T> {
        if !self.is_up() {
            return None;
        }
        let mut connection = MultiplexedConnection::clone(&*self.0.connection.load_full()?);
        let limit = Duration::from_millis(self.0.params.timeout_ms);
        match tokio::time::timeout(limit, call.invoke_async(&mut connection)).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the shared state refused");
                self.0.doubt();
                None
            }
            Err(_) => {
                self.0.doubt();
                None
            }
        }
    }
}

impl Inner {
    /// Nobody waits any more until the link has proven itself again.
    fn doubt(&self) {
        self.up.store(false, Ordering::Release);
        self.wake.notify_one();
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.params.prefix)
    }

    fn money_key(&self, scope: &str) -> String {
        format!("{}money:{scope}", self.params.prefix)
    }

    fn server_ms(&self, local: Timestamp) -> u64 {
        local.as_millis().saturating_add_signed(self.ahead_ms.load(Ordering::Relaxed))
    }

    fn local(&self, server_ms: u64) -> Timestamp {
        let ahead = self.ahead_ms.load(Ordering::Relaxed);
        Timestamp::from_millis(server_ms.saturating_add_signed(ahead.saturating_neg()))
    }

    fn lock_leases(&self) -> MutexGuard<'_, HashMap<Arc<str>, bool>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_spent(&self) -> MutexGuard<'_, HashMap<Arc<str>, Option<Spent>>> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_nonsense_are_refused_by_name() {
        for (text, key) in [
            ("url = \"http://h\"", "url"),
            ("url = \"redis://\"", "url"),
            ("url = \"redis://:hunter2@h:6379\"", "url_env"),
            ("url = \"redis://h\"\nurl_env = \"X\"", "url_env"),
            ("timeout_ms = 0", "timeout_ms"),
            ("lease = \"10ms\"", "lease"),
        ] {
            let fault = toml::from_str::<Params>(text).expect_err(text).message().to_owned();
            assert!(fault.contains(key) && !fault.contains("hunter2"), "{text}: {fault}");
        }
        assert!(!Params::default().is_on());
        let on: Params = toml::from_str("url = \"redis://127.0.0.1:6379/0\"").expect("reads");
        assert!(on.is_on());
    }
}
