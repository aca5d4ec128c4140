//! Composition root: configuration → parts → tasks; readiness; ordered drain with a deadline.
//!
//! Everything that can be refused is refused before anything binds. What runs is stopped in the order in
//! which it depends on others: callers first, then the prober, then the monitor, which saves all states, then
//! the admin surface, so that the drain itself can be watched.

mod budgets;
mod greeting;
mod port;
mod probing;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch as channel};
use tokio::task::JoinHandle;

use crate::admin::{self, Surface, guard};
use crate::clock::Clock;
use crate::config::{Config, ConfigError};
use crate::embed::{EmbedError, EmbedHandle};
use crate::event::{Event, EventKind};
use crate::gate::Gate;
use crate::golden::GoldenError;
use crate::metrics::Metrics;
use crate::monitor;
use crate::monitor::board::Board;
use crate::monitor::orders::Report;
use crate::monitor::run::{Lane, Monitor, Outlets};
use crate::proxy::{self, Live, Proxy, SetupError};
use crate::store::{Store, StoreError};

pub use greeting::introduce;

use greeting::greeting;
use probing::Probing;
pub use watch::{ConfigFile, reload_on_change};

/// Observations that wait for the monitor; about ten seconds of heavy traffic.
const OBSERVED_CAPACITY: usize = 4_096;
/// Reports of probers that wait for the monitor.
const REPORT_CAPACITY: usize = 64;
/// Answers under way get so long to end after the daemon was told to stop.
pub const DRAIN: Duration = Duration::from_secs(30);

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is faulty.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Targets or routes cannot be set up.
    #[error("{0}")]
    Setup(#[from] SetupError),
    /// A golden set is broken.
    #[error("golden set: {0}")]
    Golden(#[from] GoldenError),
    /// The sentence model cannot be loaded.
    #[error("embed.model: {0}")]
    Embed(#[from] EmbedError),
    /// The database cannot be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The shared state's URL cannot be had.
    #[error("shared.{0}")]
    Shared(#[from] crate::shared::ParamsError),
    /// The admin token cannot be had.
    #[error("{0}")]
    Token(#[from] guard::TokenError),
    /// The data directory cannot be made.
    #[error("data_dir: {path}: {source}")]
    DataDir {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An address cannot be bound.
    #[error("{what} cannot listen on {addr}: {why}")]
    Bind {
        /// Which listener.
        what: &'static str,
        /// Where.
        addr: SocketAddr,
        /// Why, and who holds it.
        why: String,
    },
    /// A thread cannot be started.
    #[error("a thread cannot be started: {0}")]
    Thread(std::io::Error),
}

impl StartError {
    /// Whether the fault lies in what the operator wrote.
    #[must_use]
    pub const fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::Config(_)
                | Self::Shared(_)
                | Self::Setup(_)
                | Self::Golden(_)
                | Self::Embed(_)
                | Self::Token(_)
        )
    }
}

/// The daemon, running.
#[derive(Debug)]
pub struct Running {
    /// Where the proxy listens.
    pub proxy_addr: SocketAddr,
    /// Where the admin surface listens.
    pub admin_addr: SocketAddr,
    /// The admin token.
    pub token: String,
    /// What is shown of the state.
    pub board: Board,
    /// What the start printed: signals, costs, mode.
    pub greeting: String,
    shared: Arc<Shared>,
    stops: Stops,
}

/// What outlives a reload.
#[derive(Debug)]
struct Shared {
    proxy: Arc<Proxy>,
    store: Arc<Store>,
    clock: Clock,
    embedder: Option<EmbedHandle>,
    shared: Option<crate::shared::Shared>,
    monitor: monitor::MonitorHandle,
    reports: mpsc::Sender<Report>,
    config: std::sync::Mutex<Config>,
    probing: std::sync::Mutex<Probing>,
}

#[derive(Debug)]
struct Stops {
    callers: channel::Sender<bool>,
    monitor: channel::Sender<bool>,
    admin: channel::Sender<bool>,
    proxy_task: JoinHandle<()>,
    monitor_task: JoinHandle<()>,
    admin_task: JoinHandle<()>,
}

/// Starts the daemon.
///
/// # Errors
/// [`StartError`]; nothing is left running or bound then.
pub async fn start(config: Config, clock: Clock) -> Result<Running, StartError> {
    let parts = probing::read_golden(&config)?;
    let data_dir = config.data_dir();
    std::fs::create_dir_all(&data_dir)
        .map_err(|source| StartError::DataDir { path: data_dir.clone(), source })?;
    let token = guard::token(config.sections.admin.token_env(), &data_dir)?;
    let gate = Gate::new(config.targets.iter().map(|t| Arc::clone(t.name())));
    let live = Live::new(&config.proxy_setup(), gate.clone(), None)?;
    let embed = config.sections.embed.clone();
    let embedder = match tokio::task::spawn_blocking(move || EmbedHandle::start(&embed)).await {
        Ok(loaded) => Some(loaded?),
        Err(_) => None,
    };
    let store = Arc::new(Store::open(config.store_file(), &config.sections.store, clock.clone())?);
    let proxy_listener = bind("the proxy", config.sections.proxy.listen()).await?;
    let admin_listener = bind("the admin surface", config.sections.admin.listen()).await?;
    let metrics_listener = match config.sections.admin.metrics_listen() {
        Some(addr) => Some(bind("the metrics listener", addr).await?),
        None => None,
    };
    let (proxy_addr, admin_addr) = (addr_of(&proxy_listener), addr_of(&admin_listener));

    let metrics = Metrics::new(&config.sections.metrics);
    let board = Board::default();
    let (handle, inbox) = monitor::channel(OBSERVED_CAPACITY);
    let (reports, reports_in) = mpsc::channel(REPORT_CAPACITY);
    let lanes = lanes(&config);
    let shared = share(&config, &clock, &handle)?;
    let proxy = {
        let (store, embedder, shared) = (Some(Arc::clone(&store)), embedder.clone(), shared.clone());
        let parts = proxy::Parts { store, embedder, shared };
        Proxy::with(live, handle.clone(), clock.clone(), parts).map_err(StartError::Thread)?
    };
    let seed = seed();
    let mut probing = Probing::new(seed, shared.clone());
    let greeting = greeting(&config, &parts, proxy_addr, admin_addr);
    let starts = probing.begin(&config, &proxy.live(), parts, embedder.as_ref(), (&reports, &handle), &clock);
    let outlets = Outlets {
        gate: gate.clone(),
        board: board.clone(),
        store: Arc::clone(&store),
        metrics: metrics.clone(),
        cache: Arc::clone(proxy.cache()),
        embedder: embedder.clone(),
        clock: clock.clone(),
        seed,
        shared: shared.clone(),
    };
    let monitor = Monitor::new(starts, lanes, outlets);

    let (callers, callers_stop) = channel::channel(false);
    let (monitor_stop_out, monitor_stop) = channel::channel(false);
    let (admin_stop_out, admin_stop) = channel::channel(false);
    let monitor_task = tokio::spawn(monitor.run(inbox, reports_in, monitor_stop));
    let proxy_task = tokio::spawn(proxy::serve(proxy_listener, Arc::clone(&proxy), stopped(callers_stop)));
    board.set_listening();
    let surface = Surface {
        board: board.clone(),
        store: Arc::clone(&store),
        metrics: metrics.clone(),
        gate,
        monitor: handle.clone(),
        budgets: budgets::report(&proxy),
        cache: Arc::clone(proxy.cache()),
        shared: shared.clone(),
        clock: clock.clone(),
    };
    let guard = guard::Guard::new(&token, admin_addr, config.sections.admin.allowed_hosts());
    let admin_task = tokio::spawn(serve_admin(admin_listener, metrics_listener, surface, guard, admin_stop));
    tokio::spawn(budgets::upkeep(metrics, Arc::downgrade(&proxy), shared.clone()));

    let said = format!("started in {} mode", config.mode);
    tell(&board, &store, lifecycle(&clock, "started", said));
    let shared = Shared {
        proxy,
        store,
        clock,
        embedder,
        shared,
        monitor: handle,
        reports,
        config: std::sync::Mutex::new(config),
        probing: std::sync::Mutex::new(probing),
    };
    Ok(Running {
        proxy_addr,
        admin_addr,
        token,
        board,
        greeting,
        shared: Arc::new(shared),
        stops: Stops {
            callers,
            monitor: monitor_stop_out,
            admin: admin_stop_out,
            proxy_task,
            monitor_task,
            admin_task,
        },
    })
}

impl Running {
    /// Puts another configuration in force; listeners, store and sentence model stay as they are.
    ///
    /// # Errors
    /// What is wrong with it; the old one stays in force.
    pub async fn reload(&self, config: Config) -> Result<(), StartError> {
        self.shared.reload(config).await
    }

    /// Tells of a reload, or of one that was refused, as an event.
    fn tell_reload(&self, reason: &str, message: String) {
        let mut event = lifecycle(&self.shared.clock, reason, message);
        event.kind = EventKind::Config;
        tell(&self.board, &self.shared.store, event);
    }

    /// Stops: no new callers, answers under way end within `deadline`, then everything is saved.
    pub async fn drain(self, deadline: Duration) {
        let Stops { callers, monitor, admin, mut proxy_task, monitor_task, admin_task } = self.stops;
        self.board.set_draining();
        callers.send_replace(true);
        if tokio::time::timeout(deadline, &mut proxy_task).await.is_err() {
            tracing::warn!("the drain's deadline passed; answers under way are cut");
            proxy_task.abort();
        }
        if let Ok(mut probing) = self.shared.probing.lock() {
            probing.stop();
        }
        let said = "stopped in order".to_owned();
        let _ =
            self.shared.store.record_event(lifecycle(&self.shared.clock, "stopped", said)).durable().await;
        monitor.send_replace(true);
        let _ = tokio::time::timeout(Duration::from_secs(10), monitor_task).await; // a dead disk
        admin.send_replace(true);
        let _ = tokio::time::timeout(Duration::from_secs(2), admin_task).await; // followers of the event stream
    }
}

impl Shared {
    async fn reload(&self, config: Config) -> Result<(), StartError> {
        let parts = probing::read_golden(&config)?;
        let before = self.proxy.live();
        let gate = before.gate().with_targets(config.targets.iter().map(|t| Arc::clone(t.name())));
        let live = Live::new(&config.proxy_setup(), gate.clone(), Some(&before))?;
        self.proxy.swap(live);
        if let Some(shared) = &self.shared {
            shared.set_targets(config.targets.iter().map(|t| Arc::clone(t.name())));
        }
        let starts = match self.probing.lock() {
            Ok(mut probing) => {
                probing.stop();
                let live = self.proxy.live();
                let doors = (&self.reports, &self.monitor);
                probing.begin(&config, &live, parts, self.embedder.as_ref(), doors, &self.clock)
            }
            Err(_) => return Ok(()),
        };
        let command = monitor::Command::Reload { starts, lanes: lanes(&config), gate };
        let _ = self.monitor.command(command).await; // a monitor that is gone is told by gate_stale
        if let Ok(mut kept) = self.config.lock() {
            *kept = config;
        }
        Ok(())
    }
}

/// Links this instance to the others, where that is configured; what they publish goes to the monitor.
fn share(
    config: &Config,
    clock: &Clock,
    monitor: &monitor::MonitorHandle,
) -> Result<Option<crate::shared::Shared>, StartError> {
    if !config.sections.shared.is_on() {
        return Ok(None);
    }
    let targets = config.targets.iter().map(|t| Arc::clone(t.name()));
    let (shared, mut states) = crate::shared::Shared::start(&config.sections.shared, targets, clock.clone())?;
    let monitor = monitor.clone();
    tokio::spawn(async move {
        while let Some(remote) = states.recv().await {
            if monitor.command(monitor::Command::Adopt(remote)).await.is_err() {
                return; // the monitor is gone
            }
        }
    });
    Ok(Some(shared))
}

fn lanes(config: &Config) -> Vec<Lane> {
    config
        .routes
        .iter()
        .map(|route| Lane {
            name: Arc::clone(route.name()),
            mode: route.mode().unwrap_or(config.mode),
            tiers: route.tiers().iter().map(|t| t.iter().map(|n| Arc::from(n.as_str())).collect()).collect(),
        })
        .collect()
}

async fn serve_admin(
    listener: TcpListener,
    metrics: Option<TcpListener>,
    surface: Surface,
    guard: guard::Guard,
    stop: channel::Receiver<bool>,
) {
    if let Some(listener) = metrics {
        tokio::spawn(admin::serve_metrics(listener, surface.clone(), stopped(stop.clone())));
    }
    if let Err(error) = admin::serve(listener, surface, guard, stopped(stop)).await {
        tracing::error!(%error, "the admin surface ended");
    }
}

async fn stopped(mut stop: channel::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await; // a sender that is gone means stop too
}

async fn bind(what: &'static str, addr: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(addr).await.map_err(|e| {
        let holder = (e.kind() == std::io::ErrorKind::AddrInUse).then(|| port::holder(addr)).flatten();
        let why = holder.map_or_else(|| e.to_string(), |who| format!("{e}; it is held by {who}"));
        StartError::Bind { what, addr, why }
    })
}

fn addr_of(listener: &TcpListener) -> SocketAddr {
    listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)))
}

fn seed() -> u64 {
    let mut bytes = [0_u8; 8];
    let _ = getrandom::fill(&mut bytes); // without randomness instances are spread less, no more
    u64::from_le_bytes(bytes)
}

/// Records an event, and tells those who follow once it can be read back: a follower finds it in the past
/// or hears of it.
fn tell(board: &Board, store: &Store, mut event: Event) {
    let (board, ack) = (board.clone(), store.record_event(event.clone()));
    tokio::spawn(async move {
        if let Ok(id) = ack.durable().await {
            event.id = id; // otherwise it is kept in memory without a number
        }
        board.tell(Arc::new(event));
    });
}

fn lifecycle(clock: &Clock, reason: &str, message: String) -> Event {
    Event {
        id: 0,
        at: clock.now(),
        kind: EventKind::Lifecycle,
        target: None,
        route: None,
        reason: reason.to_owned(),
        message,
        data: serde_json::json!({ "version": env!("CARGO_PKG_VERSION") }),
    }
}
