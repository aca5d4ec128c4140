//! Words to rows: one batch becomes one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior, params};
use tokio::sync::oneshot;

use super::StoreError;
use super::money::MoneyBatch;
use super::series::Series;
use crate::baseline::Baseline;
use crate::clock::Timestamp;
use crate::event::Event;
use crate::sample::{CheckResult, Exchange, Sample};

/// How the caller of an event learns that it is on disk.
pub(super) type AckSender = oneshot::Sender<Result<u64, StoreError>>;

/// What waits for the next commit.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Each with its ack, until that was answered.
    pub(super) events: Vec<(Event, Option<AckSender>)>,
    /// Latest of each key, with when.
    pub(super) states: BTreeMap<String, (Timestamp, serde_json::Value)>,
    pub(super) baselines: Vec<Baseline>,
    pub(super) samples: Vec<Sample>,
    pub(super) exchanges: Vec<Arc<Exchange>>,
    pub(super) series: Series,
    pub(super) money: MoneyBatch,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
            && self.states.is_empty()
            && self.baselines.is_empty()
            && self.samples.is_empty()
            && self.exchanges.is_empty()
            && self.series.is_empty()
            && self.money.is_empty()
    }

    /// Rows that may be lost; they count against the size of a batch.
    pub(super) fn droppable(&self) -> usize {
        self.samples.len() + self.exchanges.len()
    }
}

/// Writes the whole batch or nothing; the ids under which the events stand, in their order.
pub(super) fn write(connection: &mut Connection, batch: &Batch) -> Result<Vec<u64>, rusqlite::Error> {
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut ids = Vec::with_capacity(batch.events.len());
    if !batch.events.is_empty() {
        let mut insert = tx.prepare(
            "INSERT OR IGNORE INTO events (id, at, kind, target, route, reason, message, data)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        )?;
        for (event, _) in &batch.events {
            let kind = word(&event.kind);
            let data = event.data.to_string();
            let mut put = |id: Option<i64>| {
                insert.execute(params![
                    id,
                    int(event.at.as_millis()),
                    kind,
                    event.target.as_deref(),
                    event.route.as_deref(),
                    event.reason,
                    event.message,
                    data
                ])
            };
            let wanted = (event.id != 0).then(|| int(event.id));
            if put(wanted)? == 0 {
                put(None)?; // the number is taken: a late number is better than a lost event
            }
            ids.push(u64::try_from(tx.last_insert_rowid()).unwrap_or_default());
        }
    }
    for (key, (at, value)) in &batch.states {
        tx.execute(
            "INSERT OR REPLACE INTO state (key, at, body) VALUES (?, ?, ?)",
            params![key, int(at.as_millis()), value.to_string()],
        )?;
    }
    for baseline in &batch.baselines {
        tx.execute(
            "INSERT OR REPLACE INTO baselines (target, made_at, body) VALUES (?, ?, ?)",
            params![&*baseline.target, int(baseline.made_at.as_millis()), json(baseline)],
        )?;
    }
    write_samples(&tx, &batch.samples)?;
    write_exchanges(&tx, &batch.exchanges)?;
    write_series(&tx, &batch.series)?;
    batch.money.write(&tx)?;
    tx.commit()?;
    Ok(ids)
}

fn write_samples(tx: &Connection, samples: &[Sample]) -> Result<(), rusqlite::Error> {
    if samples.is_empty() {
        return Ok(());
    }
    let mut insert = tx.prepare(
        "INSERT INTO samples (at, request_id, route, target, source, wire, status, class, flags, signals,
            usage, timing, request_hash, prompt_id, passed, partial, prompt_text, answer_text)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?;
    for sample in samples {
        let passed = match sample.check {
            Some(CheckResult::Pass) => Some(true),
            Some(CheckResult::Fail) => Some(false),
            Some(CheckResult::NotJudged) | None => None,
        };
        insert.execute(params![
            int(sample.at.as_millis()),
            &*sample.request_id,
            &*sample.route,
            &*sample.target,
            sample.source.as_str(),
            sample.wire.as_str(),
            sample.status,
            sample.class.map(|class| class.as_str()),
            sample.flags.to_string(),
            json(&sample.signals),
            json(&sample.usage),
            json(&sample.timing),
            sample.request_hash.cast_signed(),
            sample.prompt_id.as_deref(),
            passed,
            sample.partial,
            sample.prompt_text,
            sample.answer_text,
        ])?;
    }
    Ok(())
}

fn write_exchanges(tx: &Connection, exchanges: &[Arc<Exchange>]) -> Result<(), rusqlite::Error> {
    if exchanges.is_empty() {
        return Ok(());
    }
    let mut insert =
        tx.prepare("INSERT INTO exchanges (request_id, at, workflow, body) VALUES (?, ?, ?, ?)")?;
    for exchange in exchanges {
        insert.execute(params![
            &*exchange.id,
            int(exchange.at.as_millis()),
            exchange.workflow.as_deref(),
            json(&**exchange)
        ])?;
    }
    Ok(())
}

fn write_series(tx: &Connection, series: &Series) -> Result<(), rusqlite::Error> {
    if series.is_empty() {
        return Ok(());
    }
    let mut add = tx.prepare(
        "INSERT INTO series (target, signal, minute, count, sum, min, max) VALUES (?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (target, signal, minute) DO UPDATE SET count = count + excluded.count,
            sum = sum + excluded.sum, min = min(min, excluded.min), max = max(max, excluded.max)",
    )?;
    for (key, minute) in series.iter() {
        add.execute(params![
            &*key.target,
            key.signal,
            int(key.minute),
            int(minute.count),
            minute.sum,
            minute.min,
            minute.max
        ])?;
    }
    Ok(())
}

/// SQLite's integers are signed; no moment or count of ours comes near the bound.
pub(super) fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// A word of a closed vocabulary as its contract spelling.
pub(super) fn word<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Our own types always serialise; numbers that are not finite become null.
pub(super) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}
