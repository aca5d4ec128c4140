//! The one thread that writes.
//!
//! It gathers what arrives into a batch and commits it within a second, at once when an event is in
//! it. When the file cannot be written (full disk, lock, lost folder) it says so, keeps events, states
//! and history in bounded memory, drops and counts the rest, and tries again every few seconds.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rusqlite::ErrorCode;
use tokio::sync::oneshot;

use super::money::{self, MoneyRow};
use super::queue::Intake;
use super::rows::{self, AckSender, Batch};
use super::schema::{self, Opened};
use super::{Params, Shared, StoreError, retention};
use crate::baseline::Baseline;
use crate::clock::{Clock, Stopwatch, Timestamp};
use crate::event::Event;
use crate::sample::{Exchange, Sample};

/// Rows gather for so long: each is on disk about a second after it came.
const BATCH_AGE: Duration = Duration::from_millis(900);

/// Events kept in memory while the file cannot be written; the oldest go first.
const MAX_UNSAVED_EVENTS: usize = 10_000;

/// Time between two rounds of retention.
const RETENTION_EVERY: Duration = Duration::from_secs(60);

/// Time until the next round when one left something to do.
const RETENTION_SOON: Duration = Duration::from_secs(2);

/// What the handles ask for.
#[derive(Debug)]
pub(super) enum Command {
    Event(Event, AckSender),
    State(String, serde_json::Value),
    Baseline(Box<Baseline>),
    Sample(Box<Sample>),
    Exchange(Arc<Exchange>),
    Point {
        target: Arc<str>,
        signal: String,
        at: Timestamp,
        value: f64,
    },
    /// Money is set aside; with an ack it is committed at once.
    OpenMoney(u64, money::Opened, Option<AckSender>),
    SettleMoney(u64, Vec<MoneyRow>),
    /// Commit now; answered when it is done or has failed.
    Flush(oneshot::Sender<()>),
}

impl Command {
    /// Whether someone waits for it to be on disk.
    pub(super) const fn is_urgent(&self) -> bool {
        matches!(self, Self::Event(..) | Self::Baseline(_) | Self::Flush(_) | Self::OpenMoney(_, _, Some(_)))
    }

    /// Whether it is not to wait for company as long as others do: money.
    pub(super) const fn is_soon(&self) -> bool {
        matches!(self, Self::OpenMoney(..) | Self::SettleMoney(..))
    }
}

pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) params: Params,
    pub(super) clock: Clock,
    /// `None` while the file cannot be opened.
    pub(super) file: Option<Opened>,
    /// Time between two attempts at a file that failed.
    pub(super) retry_every: Duration,
    batch: Batch,
    flushes: Vec<oneshot::Sender<()>>,
    failed: Option<Stopwatch>,
    retention: Stopwatch,
    retention_after: Duration,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        params: Params,
        clock: Clock,
        file: Option<Opened>,
        retry_every: Duration,
    ) -> Self {
        let failed = file.is_none().then(Stopwatch::start);
        Self {
            shared,
            params,
            clock,
            file,
            retry_every,
            batch: Batch::default(),
            flushes: Vec::new(),
            failed,
            retention: Stopwatch::start(),
            retention_after: RETENTION_SOON,
        }
    }

    /// Works until the last handle is gone, then commits what is left.
    pub(super) fn run(mut self, intake: &Intake) {
        loop {
            let (commands, open) = intake.take(self.patience(), BATCH_AGE);
            let fresh = !commands.is_empty();
            commands.into_iter().for_each(|command| self.take(command));
            if !open {
                break;
            }
            if fresh || self.failed.as_ref().is_some_and(|since| since.elapsed() >= self.retry_every) {
                self.commit();
            }
            self.retain();
        }
        self.failed = None; // the last chance waits for nothing
        self.commit();
        if let Some(file) = &self.file {
            let _ = file.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)"); // only tidiness
        }
    }

    fn patience(&self) -> Duration {
        let retry = self.failed.as_ref().map(|since| self.retry_every.saturating_sub(since.elapsed()));
        retry.unwrap_or(RETENTION_SOON).max(Duration::from_millis(1))
    }

    fn take(&mut self, command: Command) {
        self.shared.queued.fetch_sub(1, Ordering::AcqRel);
        match command {
            Command::Event(event, ack) => {
                self.batch.events.push((event, Some(ack)));
            }
            Command::State(key, value) => {
                self.batch.states.insert(key, (self.clock.now(), value));
            }
            Command::Baseline(baseline) => {
                self.batch.baselines.push(*baseline);
            }
            Command::Sample(mut sample) => {
                if !self.params.keep_text {
                    sample.prompt_text = None;
                    sample.answer_text = None;
                }
                self.batch.series.add_sample(&sample);
                self.batch.samples.push(*sample);
            }
            Command::Exchange(exchange) => self.batch.exchanges.push(exchange),
            Command::Point { target, signal, at, value } => {
                self.batch.series.add(&target, signal, at, value);
            }
            Command::OpenMoney(id, opened, ack) => {
                self.batch.money.open(id, opened);
                self.batch.money.acks.extend(ack);
            }
            Command::SettleMoney(id, rows) => self.batch.money.settle(id, rows),
            Command::Flush(done) => {
                self.flushes.push(done);
            }
        }
    }

    /// Writes the batch; while the file is failing only when another attempt is due.
    fn commit(&mut self) {
        let waits = self.failed.as_ref().is_some_and(|since| since.elapsed() < self.retry_every);
        let result = if waits { Err(self.shared.unavailable()) } else { self.try_commit() };
        match result {
            Ok(ids) => {
                self.failed = None;
                self.shared.recovered();
                for ((_, ack), id) in self.batch.events.drain(..).zip(ids) {
                    if let Some(ack) = ack {
                        let _ = ack.send(Ok(id)); // nobody waits any more
                    }
                }
                for ack in self.batch.money.acks.drain(..) {
                    let _ = ack.send(Ok(0)); // nobody waits any more
                }
                self.batch = Batch::default();
                self.shared.unsaved.lock().unwrap_or_else(PoisonError::into_inner).clear();
            }
            Err(error) => {
                if !waits {
                    self.failed = Some(Stopwatch::start());
                    self.shared.failed(&error);
                }
                self.keep_what_matters(&error);
            }
        }
        for done in self.flushes.drain(..) {
            let _ = done.send(());
        }
    }

    fn try_commit(&mut self) -> Result<Vec<u64>, StoreError> {
        if self.batch.is_empty() && self.failed.is_none() {
            return Ok(Vec::new());
        }
        let path = &self.shared.path;
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(schema::open(path)?),
        };
        rows::write(&mut file.connection, &self.batch).map_err(|error| {
            let passing = [ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked, ErrorCode::DiskFull];
            if !error.sqlite_error_code().is_some_and(|code| passing.contains(&code)) {
                self.file = None; // looked at afresh before the next attempt
            }
            StoreError::of_file(path, &error)
        })
    }

    fn keep_what_matters(&mut self, error: &StoreError) {
        let lost = self.batch.droppable();
        self.batch.samples.clear();
        self.batch.exchanges.clear();
        let events = &mut self.batch.events;
        for (_, ack) in events.iter_mut() {
            if let Some(ack) = ack.take() {
                let _ = ack.send(Err(StoreError::Unavailable {
                    path: self.shared.path.clone(),
                    reason: error.to_string(),
                }));
            }
        }
        for ack in self.batch.money.acks.drain(..) {
            let _ = ack.send(Err(self.shared.unavailable()));
        }
        let surplus = events.len().saturating_sub(MAX_UNSAVED_EVENTS);
        events.drain(..surplus);
        self.shared.dropped.fetch_add((lost + surplus) as u64, Ordering::Relaxed);
        let mut unsaved = self.shared.unsaved.lock().unwrap_or_else(PoisonError::into_inner);
        unsaved.clear();
        unsaved.extend(events.iter().map(|(event, _)| event.clone()));
    }

    fn retain(&mut self) {
        if self.failed.is_some() || self.retention.elapsed() < self.retention_after {
            return;
        }
        let Some(file) = &self.file else { return };
        let max_bytes = self.params.max_mb.saturating_mul(1 << 20);
        let round = retention::run(&file.connection, self.clock.now(), self.params.retention.0, max_bytes);
        let more = round.unwrap_or_else(|error| {
            tracing::warn!(%error, "store retention failed");
            false
        });
        self.retention = Stopwatch::start();
        self.retention_after = if more { RETENTION_SOON } else { RETENTION_EVERY };
    }
}
