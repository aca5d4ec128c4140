//! SQLite on a thread of its own: transitions, findings, samples, baselines, state.
//!
//! ```text
//! monitor, proxy ──▶ queue ──▶ writer thread ──▶ WAL      admin ──▶ blocking thread ──▶ reader
//! ```
//!
//! An event is acknowledged only when its commit is on disk, and with it everything that was handed
//! over before it; samples, exchanges and history follow within a second. Nobody waits for the disk:
//! a full queue drops samples and counts them, a disk that fails turns the store into bounded memory
//! until it works again. A file that is damaged, foreign or made by a newer version is refused by name
//! and left as it is.

mod error;
mod money;
mod params;
mod query;
mod queue;
mod rate;
mod retention;
mod ring;
mod rows;
mod schema;
mod series;
mod writer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::sync::oneshot;

use crate::baseline::Baseline;
use crate::clock::{Clock, Timestamp};
use crate::event::Event;
use crate::sample::{Exchange, Sample};
use crate::verdict::Source;
pub use error::StoreError;
pub use money::MoneyRow;
pub use params::{Params, ParamsError};
pub use query::{EventQuery, HistoryQuery, Point, Reader, SampleRow, Tally};
use queue::Feed;
use rate::Rate;
use ring::Ring;
use writer::{Command, Writer};

/// Beyond this samples and exchanges are dropped.
const MAX_QUEUED_SAMPLES: usize = 8_192;

/// Beyond this events are refused; the monitor makes a few a minute.
const MAX_QUEUED: usize = 65_536;

/// How long an event's maker waits for the disk.
const ACK_TIMEOUT: Duration = Duration::from_secs(5);

/// Time between two attempts at a file that failed.
const RETRY_EVERY: Duration = Duration::from_secs(2);

/// How long a start waits for the daemon before it to let the file go.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);

/// Whether the store works, for `/v1/health` and the metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreHealth {
    /// `ok`, or `memory_only` while the file cannot be written.
    pub state: &'static str,
    /// Why it cannot be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The file.
    pub path: PathBuf,
    /// Batches that could not be written since the start.
    pub write_failures: u64,
    /// Samples, exchanges and events lost since the start.
    pub dropped: u64,
    /// Samples and exchanges left out because there were more than `max_samples_per_second`.
    pub spared: u64,
    /// Commands that wait for the writer.
    pub queued: usize,
}

/// What handles and writer share.
#[derive(Debug)]
struct Shared {
    path: PathBuf,
    queued: AtomicUsize,
    dropped: AtomicU64,
    failures: AtomicU64,
    /// Why the file cannot be written; `None` while it can.
    trouble: Mutex<Option<String>>,
    /// Events that are in no file yet because it cannot be written.
    unsaved: Mutex<Vec<Event>>,
    ring: Mutex<Ring>,
    rate: Mutex<Rate>,
    spared: AtomicU64,
}

impl Shared {
    fn unavailable(&self) -> StoreError {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        StoreError::Unavailable { path: self.path.clone(), reason: trouble.clone().unwrap_or_default() }
    }

    fn failed(&self, error: &StoreError) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let reason = match error {
            StoreError::Unavailable { reason, .. } | StoreError::Corrupt { reason, .. } => reason.clone(),
            other => other.to_string(),
        };
        let before = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).replace(reason);
        if before.is_none() {
            tracing::warn!(%error, "store cannot be written, keeping events in memory");
        }
    }

    fn recovered(&self) {
        if self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            tracing::info!(path = %self.path.display(), "store can be written again");
        }
    }
}

/// The promise that an event will be on disk.
#[derive(Debug)]
pub struct Ack(oneshot::Receiver<Result<u64, StoreError>>);

impl Ack {
    /// Waits, at most some seconds, until the event is on disk; its number there.
    ///
    /// # Errors
    /// When it is only in memory, or it is not known whether it is on disk.
    pub async fn durable(self) -> Result<u64, StoreError> {
        match tokio::time::timeout(ACK_TIMEOUT, self.0).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(StoreError::Closed),
            Err(_) => Err(StoreError::Late),
        }
    }

    /// The same where there is no runtime.
    ///
    /// # Errors
    /// When it is only in memory.
    pub fn durable_blocking(self) -> Result<u64, StoreError> {
        self.0.blocking_recv().unwrap_or(Err(StoreError::Closed))
    }
}

/// The store's handle. Clones share it; the writer ends after the last one is gone.
#[derive(Clone, Debug)]
pub struct Store {
    shared: Arc<Shared>,
    feed: Arc<Feed>,
    reader: Reader,
}

impl Store {
    /// Opens the file, or makes it. What may pass by itself (no room, no permission, another process)
    /// is no error: the store then lives in memory, says so, and tries again. Blocks.
    ///
    /// # Errors
    /// When the file is damaged, foreign or newer.
    pub fn open(path: impl Into<PathBuf>, params: &Params, clock: Clock) -> Result<Self, StoreError> {
        Self::open_with(path.into(), params, clock, LOCK_PATIENCE, RETRY_EVERY)
    }

    fn open_with(
        path: PathBuf,
        params: &Params,
        clock: Clock,
        patience: Duration,
        retry_every: Duration,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared {
            path: path.clone(),
            queued: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            trouble: Mutex::new(None),
            unsaved: Mutex::new(Vec::new()),
            ring: Mutex::new(Ring::default()),
            rate: Mutex::new(Rate::new(params.max_samples_per_second)),
            spared: AtomicU64::new(0),
        });
        let waited = crate::clock::Stopwatch::start();
        let file = loop {
            match schema::open(&path) {
                Ok(file) => break Some(file),
                Err(StoreError::Unavailable { .. }) if path.is_file() && waited.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(error @ StoreError::Unavailable { .. }) => {
                    shared.failed(&error);
                    break None;
                }
                Err(error) => return Err(error),
            }
        };
        let mut file = file;
        if let Some(file) = &mut file {
            match money::recover(&mut file.connection) {
                Ok((0, _)) => {}
                Ok((attempts, nano)) => tracing::warn!(
                    attempts,
                    usd = nano as f64 / 1e9,
                    "attempts were under way when the last process died; they are charged with what was set aside"
                ),
                Err(error) => shared.failed(&StoreError::of_file(&path, &error)),
            }
        }
        let (feed, intake) = queue::queue();
        let writer = Writer::new(Arc::clone(&shared), params.clone(), clock, file, retry_every);
        let thread = std::thread::Builder::new().name("store-writer".to_owned());
        if let Err(e) = thread.spawn(move || writer.run(&intake)) {
            return Err(StoreError::Unavailable { path, reason: format!("no thread for its writer: {e}") });
        }
        Ok(Self { shared, feed: Arc::new(feed), reader: Reader::new(path) })
    }

    /// Hands over an event; the answer comes when it is on disk, and with it all that was handed over
    /// before it. A number of 0 is replaced by the next free one.
    pub fn record_event(&self, event: Event) -> Ack {
        let (ack, answer) = oneshot::channel();
        if self.shared.queued.load(Ordering::Acquire) >= MAX_QUEUED {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            let _ = ack.send(Err(StoreError::Overloaded)); // the receiver is in our hands
        } else {
            self.send(Command::Event(event, ack));
        }
        Ack(answer)
    }

    /// Saves the state of a target (or of another owner) under its key, replacing the former one: on
    /// disk with the next event, at the latest within a second.
    pub fn save_state(&self, key: impl Into<String>, value: serde_json::Value) {
        self.send_bounded(Command::State(key.into(), value), MAX_QUEUED);
    }

    /// Writes down that money is set aside for an attempt. The answer comes when it is on disk, `at_once`; otherwise
    /// within milliseconds and without an answer.
    pub fn open_money(
        &self,
        id: u64,
        at: Timestamp,
        target: Arc<str>,
        scopes: Vec<Arc<str>>,
        nano: u64,
        at_once: bool,
    ) -> Option<Ack> {
        let (ack, answer) = oneshot::channel();
        let opened = money::Opened { at, target, scopes, nano };
        self.send(Command::OpenMoney(id, opened, at_once.then_some(ack)));
        at_once.then_some(Ack(answer))
    }

    /// Writes down what an attempt has cost its scopes. Never dropped.
    pub fn settle_money(&self, id: u64, rows: Vec<MoneyRow>) {
        self.send(Command::SettleMoney(id, rows));
    }

    /// What was spent lately; blocks, for the start. Empty where the file cannot be read.
    #[must_use]
    pub fn money_blocking(&self) -> Vec<MoneyRow> {
        self.reader.money().unwrap_or_else(|error| {
            tracing::warn!(%error, "what was spent cannot be read");
            Vec::new()
        })
    }

    /// Keeps a frozen baseline beside the former ones.
    pub fn record_baseline(&self, baseline: Baseline) {
        self.send_bounded(Command::Baseline(Box::new(baseline)), MAX_QUEUED);
    }

    /// Offers a sample, and its signals to the history; a full queue drops and counts it, and so does
    /// `max_samples_per_second`. Its texts are stored only where `keep_text` says so.
    pub fn record_sample(&self, sample: Box<Sample>) {
        let live = matches!(sample.source, Source::Live | Source::Observe);
        if live && !self.admits(|rate| rate.admits_sample(sample.at, sample.class.is_some())) {
            return;
        }
        self.send_bounded(Command::Sample(sample), MAX_QUEUED_SAMPLES);
    }

    /// Offers an exchange; it can be asked for at once. A full queue, or more than
    /// `max_samples_per_second`, keeps it in memory only.
    pub fn record_exchange(&self, exchange: Arc<Exchange>) {
        self.shared.ring.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&exchange));
        let failed = exchange.client_status >= 400 || exchange.degraded.is_some();
        if self.admits(|rate| rate.admits_exchange(exchange.at, failed || !exchange.flags.is_empty())) {
            self.send_bounded(Command::Exchange(exchange), MAX_QUEUED_SAMPLES);
        }
    }

    fn admits(&self, ask: impl FnOnce(&mut Rate) -> bool) -> bool {
        let admitted = ask(&mut self.shared.rate.lock().unwrap_or_else(PoisonError::into_inner));
        self.shared.spared.fetch_add(u64::from(!admitted), Ordering::Relaxed);
        admitted
    }

    /// Adds one value to the history of a signal that is in no sample (accuracy, statistics).
    pub fn record_point(&self, target: Arc<str>, signal: impl Into<String>, at: Timestamp, value: f64) {
        let command = Command::Point { target, signal: signal.into(), at, value };
        self.send_bounded(command, MAX_QUEUED_SAMPLES);
    }

    /// Waits until all that was handed over so far is on disk or has failed to get there.
    pub async fn flush(&self) {
        let (done, answer) = oneshot::channel();
        self.send(Command::Flush(done));
        let _ = tokio::time::timeout(ACK_TIMEOUT, answer).await; // a dead disk must not stop a drain
    }

    /// How the store does.
    #[must_use]
    pub fn health(&self) -> StoreHealth {
        let reason = self.shared.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        StoreHealth {
            state: if reason.is_some() { "memory_only" } else { "ok" },
            reason,
            path: self.shared.path.clone(),
            write_failures: self.shared.failures.load(Ordering::Relaxed),
            dropped: self.shared.dropped.load(Ordering::Relaxed),
            spared: self.shared.spared.load(Ordering::Relaxed),
            queued: self.shared.queued.load(Ordering::Relaxed),
        }
    }

    /// Questions that block; for a thread of one's own. They see the file only.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }

    /// Events, newest last, those in memory included while the file cannot be written.
    ///
    /// # Errors
    /// When the file cannot be read although it can be written.
    pub async fn events(&self, query: EventQuery) -> Result<Vec<Event>, StoreError> {
        let asked = query.clone();
        let in_file = self.ask(move |reader| reader.events(&asked)).await;
        let unsaved = self.shared.unsaved.lock().unwrap_or_else(PoisonError::into_inner);
        if unsaved.is_empty() && self.health().state == "ok" {
            return in_file;
        }
        let mut events = in_file.unwrap_or_default();
        events.extend(unsaved.iter().filter(|event| query.wants(event)).cloned());
        Ok(events)
    }

    /// The largest number of an event so far; blocks, for the start.
    #[must_use]
    pub fn last_event_id_blocking(&self) -> u64 {
        self.reader.last_event_id().unwrap_or(0)
    }

    /// Every saved state by its key; blocks, for the start. Empty where the file cannot be read.
    #[must_use]
    pub fn states_blocking(&self) -> BTreeMap<String, serde_json::Value> {
        self.reader.states().unwrap_or_else(|error| {
            tracing::warn!(%error, "saved states cannot be read");
            BTreeMap::new()
        })
    }

    /// A signal's history.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn history(&self, query: HistoryQuery) -> Result<Vec<Point>, StoreError> {
        self.ask(move |reader| reader.history(&query)).await
    }

    /// Names of the signals that the target has a history of.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn signals(&self, target: String) -> Result<Vec<String>, StoreError> {
        self.ask(move |reader| reader.signals(&target)).await
    }

    /// One exchange by the daemon's id, from memory or file.
    ///
    /// # Errors
    /// When it is not in memory and the file cannot be read.
    pub async fn exchange(&self, id: String) -> Result<Option<Arc<Exchange>>, StoreError> {
        if let Some(found) = self.shared.ring.lock().unwrap_or_else(PoisonError::into_inner).find(&id) {
            return Ok(Some(found));
        }
        Ok(self.ask(move |reader| reader.exchange(&id)).await?.map(Arc::new))
    }

    /// The exchanges of one workflow in the order of their arrival, from memory and file.
    ///
    /// # Errors
    /// When none is in memory and the file cannot be read.
    pub async fn workflow(&self, id: String) -> Result<Vec<Arc<Exchange>>, StoreError> {
        let mut found = self.shared.ring.lock().unwrap_or_else(PoisonError::into_inner).workflow(&id);
        match self.ask(move |reader| reader.workflow(&id)).await {
            Ok(stored) => {
                let fresh: std::collections::HashSet<Arc<str>> =
                    found.iter().map(|exchange| Arc::clone(&exchange.id)).collect();
                found.extend(stored.into_iter().filter(|e| !fresh.contains(&e.id)).map(Arc::new));
            }
            Err(error) if found.is_empty() => return Err(error),
            Err(_) => {}
        }
        found.sort_by_key(|exchange| exchange.at);
        Ok(found)
    }

    /// The latest baseline of a target.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn baseline(&self, target: String) -> Result<Option<Baseline>, StoreError> {
        self.ask(move |reader| reader.baseline(&target)).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let reader = self.reader.clone();
        tokio::task::spawn_blocking(move || question(&reader)).await.unwrap_or(Err(StoreError::Closed))
    }

    fn send_bounded(&self, command: Command, most: usize) {
        if self.shared.queued.load(Ordering::Acquire) >= most {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        } else {
            self.send(command);
        }
    }

    fn send(&self, command: Command) {
        self.shared.queued.fetch_add(1, Ordering::AcqRel);
        self.feed.push(command);
    }
}

impl EventQuery {
    /// Whether the event is among those asked for, the limit aside.
    #[must_use]
    pub fn wants(&self, event: &Event) -> bool {
        self.after_id.is_none_or(|id| event.id > id || event.id == 0)
            && self.since.is_none_or(|since| event.at >= since)
            && self.target.as_deref().is_none_or(|target| event.target.as_deref() == Some(target))
            && self.kind.is_none_or(|kind| event.kind == kind)
    }
}

#[cfg(test)]
mod tests;
