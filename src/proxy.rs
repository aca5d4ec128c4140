//! The proxy listener: choose, forward, hold, tap, fall back.
//!
//! ```text
//! server ── service ─┬─ inference ─┬─ shadow ───────────────┐
//!  (connections)     │  (read,     └─ enforce ── hold ──────┼─▶ tap ──▶ caller
//!                    │   route)        (plan, retry, cache) │    │ pieces
//!                    └─ pages                               └ ledger ─▶ judge ─▶ monitor
//!                       (models, passthrough)
//! ```
//!
//! Two rules come first. *Forward first, judge a copy*: what the analysis does, or fails to do, never touches
//! an answer in shadow mode. *Commit late*: in enforce mode nothing is handed over until the answer has begun
//! well, and after that nothing is taken back. Inference calls are served by hyper directly, since a
//! router and its boxed bodies cost as much as the forwarding itself; everything else goes through axum.

mod admission;
mod aim;
mod analysis;
mod bill;
mod body;
mod consequence;
mod cors;
mod cutter;
mod enforce;
mod flow;
mod hold;
mod inference;
mod inject;
mod injecting;
mod keep;
mod keys;
mod ledger;
mod live;
mod members;
mod money;
mod omit;
mod pages;
mod params;
mod pool;
mod postmortem;
mod recall;
mod refusal;
mod request;
mod running;
mod server;
mod service;
mod shadow;
mod splice;
mod tap;
mod trim;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

pub use flow::FlowView;
pub use keys::KeyError;
pub use live::{Live, Setup, SetupError};
pub use params::{HoldParams, KeyParams, ParamsError, ProxyParams, Until};
pub use server::serve;

use crate::cache::Cache;
use crate::clock::Clock;
use crate::embed::EmbedHandle;
use crate::monitor::MonitorHandle;
use crate::retry::Workflows;
use crate::shared::Shared;
use crate::stats::Bucket;
use crate::store::Store;
use money::Money;

/// Tiers that have a word of their own without being made anew.
const TIER_WORDS: usize = 16;

/// What all connections share, across reloads of the configuration.
#[derive(Debug)]
pub struct Proxy {
    live: ArcSwap<Live>,
    has_cors: AtomicBool,
    monitor: MonitorHandle,
    clock: Clock,
    cache: Arc<Cache>,
    bucket: Mutex<Bucket>,
    workflows: Mutex<Workflows>,
    money: Money,
    embedder: Option<EmbedHandle>,
    shared: Option<Shared>,
    pool: analysis::Pool,
    allowance: ArcSwap<analysis::Allowance>,
    words: Words,
}

/// What a proxy may use, where it is there.
#[derive(Debug, Default)]
pub struct Parts {
    /// What is spent is written there, and taken up from there.
    pub store: Option<Arc<Store>>,
    /// Embeds in place of a target that cannot.
    pub embedder: Option<EmbedHandle>,
    /// What several instances share.
    pub shared: Option<Shared>,
}

/// Words that every report repeats.
#[derive(Debug)]
struct Words {
    none: Arc<str>,
    cache: Arc<str>,
    passthrough: Arc<str>,
    empty: Arc<str>,
    tiers: Vec<Arc<str>>,
}

impl Words {
    fn new() -> Self {
        Self {
            none: "none".into(),
            cache: "cache".into(),
            passthrough: "passthrough".into(),
            empty: "".into(),
            tiers: (0..TIER_WORDS).map(|i| i.to_string().into()).collect(),
        }
    }

    fn tier(&self, index: usize) -> &Arc<str> {
        self.tiers.get(index).unwrap_or(&self.none)
    }
}

impl Proxy {
    /// Ready to serve this configuration.
    ///
    /// # Errors
    /// If the threads for large answers cannot be started.
    pub fn new(live: Live, monitor: MonitorHandle, clock: Clock) -> std::io::Result<Arc<Self>> {
        Self::with(live, monitor, clock, Parts::default())
    }

    /// The same, with what it may use.
    ///
    /// # Errors
    /// If the threads for large answers cannot be started.
    pub fn with(
        live: Live,
        monitor: MonitorHandle,
        clock: Clock,
        parts: Parts,
    ) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            has_cors: AtomicBool::new(!live.proxy.cors().is_empty()),
            cache: Arc::new(Cache::new(live.cache)),
            bucket: Mutex::new(live.retry.bucket(clock.now())),
            workflows: Mutex::default(),
            money: Money::new(&live.cost, parts.store, parts.shared.clone(), clock.clone()),
            shared: parts.shared,
            embedder: parts.embedder,
            pool: analysis::Pool::new()?,
            allowance: ArcSwap::new(analysis::Allowance::new(live.proxy.max_analysis_cpu_share())),
            words: Words::new(),
            live: ArcSwap::from_pointee(live),
            monitor,
            clock,
        }))
    }

    /// The configuration in force.
    #[must_use]
    pub fn live(&self) -> Arc<Live> {
        self.live.load_full()
    }

    /// Puts another configuration in force for requests to come. Cached answers and retry tokens stay.
    pub fn swap(&self, live: Live) {
        if live.proxy != self.live.load().proxy {
            self.allowance.store(analysis::Allowance::new(live.proxy.max_analysis_cpu_share()));
        }
        self.cache.reconfigure(live.cache);
        self.money.reconfigure(&live.cost);
        let (refill, burst) = live.retry.shared();
        self.lock_bucket().reconfigure(refill, burst, self.clock.now());
        self.has_cors.store(!live.proxy.cors().is_empty(), Ordering::Release);
        self.live.store(Arc::new(live));
    }

    /// Answers that passed quality.
    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Retry tokens in the common bucket, that of all instances where there is one.
    #[must_use]
    pub fn retry_tokens(&self) -> f64 {
        if let Some(level) = self.shared.as_ref().and_then(Shared::retry_level) {
            return level.min(self.live.load().retry.shared().1);
        }
        self.lock_bucket().level_at(self.clock.now())
    }

    /// Whether the monitor has been silent so long that its published states are not believed.
    #[must_use]
    pub fn is_gate_stale(&self) -> bool {
        self.live.load().gate().is_stale(self.clock.now())
    }

    fn allowance(&self) -> Arc<analysis::Allowance> {
        self.allowance.load_full()
    }

    /// Every target's flow in numbers: permits, queue, refusals, further tries.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowView> {
        self.live.load().flows(self.clock.now())
    }

    /// Money of every scope; empty where nothing has a price or a limit.
    #[must_use]
    pub fn accounts(&self) -> Vec<crate::spend::Account> {
        if self.live.load().counts_money { self.money.accounts(self.clock.now()) } else { Vec::new() }
    }

    fn workflow_left(&self, id: &str, most: u32) -> u32 {
        self.lock_workflows().left(id, most, self.clock.now())
    }

    fn take_workflow(&self, id: &Arc<str>, most: u32) -> bool {
        self.lock_workflows().take(id, most, self.clock.now())
    }

    fn lock_workflows(&self) -> std::sync::MutexGuard<'_, Workflows> {
        self.workflows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_cors(&self) -> bool {
        self.has_cors.load(Ordering::Acquire)
    }

    fn has_retry_token(&self) -> bool {
        if let Some(shared) = self.shared.as_ref().filter(|s| s.is_up()) {
            return shared.has_retry_token();
        }
        self.lock_bucket().has_at(self.clock.now())
    }

    /// One token out of the bucket of all instances; where that is out of reach, out of this one's share.
    async fn take_retry_token(&self) -> bool {
        let now = self.clock.now();
        let (refill, burst) = self.live.load().retry.shared();
        let Some(shared) = &self.shared else { return self.lock_bucket().take(now) };
        if let Some(taken) = shared.take_retry(refill, burst).await {
            return taken;
        }
        let n = f64::from(shared.instances());
        let mut bucket = self.lock_bucket();
        bucket.reconfigure(refill / n, burst / n, now);
        bucket.take(now)
    }

    fn lock_bucket(&self) -> std::sync::MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
