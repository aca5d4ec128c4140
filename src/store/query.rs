//! What can be asked of the file. Readers never wait for the writer: WAL gives each its own view.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;

use super::money::{self, MoneyRow};
use super::rows::{int, word};
use super::series::MINUTE_MS;
use super::{StoreError, schema};
use crate::baseline::Baseline;
use crate::clock::Timestamp;
use crate::event::{Event, EventKind};
use crate::sample::{Exchange, Signals, Timing};
use crate::verdict::{FaultClass, Flag, FlagSet, Source};

/// Open connections kept for the next question.
const MAX_IDLE: usize = 4;

/// Which events are wanted; everything `None` means the latest ones.
#[derive(Clone, Debug, Default)]
pub struct EventQuery {
    /// Only later numbers.
    pub after_id: Option<u64>,
    /// Only from this moment on.
    pub since: Option<Timestamp>,
    /// Only of this target.
    pub target: Option<String>,
    /// Only of this kind.
    pub kind: Option<EventKind>,
    /// At most so many; 0 means 1,000. With `after_id` or `since` the oldest of them, else the newest.
    pub limit: u32,
}

/// Which stretch of a history is wanted.
#[derive(Clone, Debug)]
pub struct HistoryQuery {
    /// Target name.
    pub target: String,
    /// Signal name as rules know it (`drift` means `drift_cosine`); probes under `canary.` and `burst.`.
    pub signal: String,
    /// From this moment on.
    pub since: Timestamp,
    /// Up to this moment.
    pub until: Timestamp,
    /// Length of a point, milliseconds; at least a minute.
    pub step_ms: u64,
}

/// One point of a history.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Start of the step.
    pub at: Timestamp,
    /// Values in it.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// One stored sample: what an attempt showed, without any text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SampleRow {
    /// When the attempt ended.
    pub at: Timestamp,
    /// The daemon's id of the exchange.
    pub request_id: String,
    /// Route name.
    pub route: String,
    /// Target name.
    pub target: String,
    /// Where it came from.
    pub source: Source,
    /// Upstream status.
    pub status: Option<u16>,
    /// Whose fault.
    pub class: Option<FaultClass>,
    /// All flags.
    pub flags: FlagSet,
    /// Measured meaning.
    pub signals: Signals,
    /// Durations.
    pub timing: Timing,
    /// The golden prompt, if it was one.
    pub prompt_id: Option<String>,
    /// Whether its check passed.
    pub passed: Option<bool>,
}

/// Calls of one target in one stretch of time, as far as their samples were kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Callers' calls.
    pub live: u64,
    /// Of them, failed or unusable.
    pub bad: u64,
    /// Canaries.
    pub canaries: u64,
}

/// Reads a store's file; also one that no daemon holds. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Reader {
    path: Arc<PathBuf>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Reader {
    /// Of this file; it is opened by the first question.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: Arc::new(path.into()), idle: Arc::default() }
    }

    /// What was spent lately, by scope and minute, oldest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn money(&self) -> Result<Vec<MoneyRow>, StoreError> {
        self.with(money::spent)
    }

    /// Events in the order of their numbers, newest last.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn events(&self, query: &EventQuery) -> Result<Vec<Event>, StoreError> {
        self.with(|db| {
            let newest = query.after_id.is_none() && query.since.is_none();
            let sql = format!(
                "SELECT id, at, kind, target, route, reason, message, data FROM events
                 WHERE id > ?1 AND at >= ?2 AND (?3 IS NULL OR target = ?3) AND (?4 IS NULL OR kind = ?4)
                 ORDER BY id {} LIMIT ?5",
                if newest { "DESC" } else { "ASC" }
            );
            let mut statement = db.prepare(&sql)?;
            let rows = statement.query_map(
                params![
                    int(query.after_id.unwrap_or(0)),
                    int(query.since.unwrap_or_default().as_millis()),
                    query.target,
                    query.kind.as_ref().map(word),
                    limit(query.limit),
                ],
                event,
            )?;
            let mut events = rows.collect::<Result<Vec<_>, _>>()?;
            if newest {
                events.reverse();
            }
            Ok(events)
        })
    }

    /// The largest number of an event; 0 if there is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last_event_id(&self) -> Result<u64, StoreError> {
        // The sequence outlives the events that retention took, so numbers are never used twice.
        self.with(|db| {
            let sql = "SELECT max(coalesce((SELECT max(id) FROM events), 0),
                                  coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0))";
            db.query_row(sql, [], |row| unsigned(row, 0))
        })
    }

    /// A signal's history, oldest first; steps without values are left out.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn history(&self, query: &HistoryQuery) -> Result<Vec<Point>, StoreError> {
        let step = int((query.step_ms / MINUTE_MS).max(1));
        let signal = if query.signal == "drift" { "drift_cosine" } else { &query.signal };
        self.with(|db| {
            let mut statement = db.prepare(
                "SELECT minute / ?1 * ?1, sum(count), sum(sum) / sum(count), min(min), max(max) FROM series
                 WHERE target = ?2 AND signal = ?3 AND minute >= ?4 AND minute <= ?5
                 GROUP BY minute / ?1 ORDER BY 1",
            )?;
            let rows = statement.query_map(
                params![
                    step,
                    query.target,
                    signal,
                    int(query.since.as_millis() / MINUTE_MS),
                    int(query.until.as_millis() / MINUTE_MS)
                ],
                |row| {
                    Ok(Point {
                        at: Timestamp::from_millis(unsigned(row, 0)?.saturating_mul(MINUTE_MS)),
                        count: unsigned(row, 1)?,
                        mean: row.get(2)?,
                        min: row.get(3)?,
                        max: row.get(4)?,
                    })
                },
            )?;
            rows.collect()
        })
    }

    /// Names of the signals that the target has a history of.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn signals(&self, target: &str) -> Result<Vec<String>, StoreError> {
        self.with(|db| {
            let mut statement =
                db.prepare("SELECT DISTINCT signal FROM series WHERE target = ? ORDER BY 1")?;
            statement.query_map([target], |row| row.get(0))?.collect()
        })
    }

    /// One exchange by the daemon's id.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn exchange(&self, id: &str) -> Result<Option<Exchange>, StoreError> {
        self.with(|db| {
            db.query_row("SELECT body FROM exchanges WHERE request_id = ? LIMIT 1", [id], |row| body(row, 0))
                .optional()
        })
    }

    /// The exchanges of one workflow in the order of their arrival.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn workflow(&self, id: &str) -> Result<Vec<Exchange>, StoreError> {
        self.with(|db| {
            let mut statement =
                db.prepare("SELECT body FROM exchanges WHERE workflow = ? ORDER BY at LIMIT 1000")?;
            statement.query_map([id], |row| body(row, 0))?.collect()
        })
    }

    /// Samples of a target (or of all) from a moment on, oldest first.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn samples(
        &self,
        target: Option<&str>,
        since: Timestamp,
        most: u32,
    ) -> Result<Vec<SampleRow>, StoreError> {
        self.with(|db| {
            let mut statement = db.prepare(
                "SELECT at, request_id, route, target, source, status, class, flags, signals, timing,
                    prompt_id, passed FROM samples
                 WHERE at >= ?1 AND (?2 IS NULL OR target = ?2) ORDER BY at, id LIMIT ?3",
            )?;
            statement.query_map(params![int(since.as_millis()), target, limit(most)], sample)?.collect()
        })
    }

    /// Calls of a target in `from..to`.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn tally(&self, target: &str, from: Timestamp, to: Timestamp) -> Result<Tally, StoreError> {
        self.with(|db| {
            db.query_row(
                "SELECT count(*) FILTER (WHERE source IN ('live', 'observe')),
                    count(*) FILTER (WHERE source IN ('live', 'observe')
                        AND class IN ('quality_hard', 'upstream', 'slow')),
                    count(*) FILTER (WHERE source = 'canary')
                 FROM samples WHERE target = ?1 AND at >= ?2 AND at < ?3",
                params![target, int(from.as_millis()), int(to.as_millis())],
                |row| {
                    Ok(Tally { live: unsigned(row, 0)?, bad: unsigned(row, 1)?, canaries: unsigned(row, 2)? })
                },
            )
        })
    }

    /// The latest baseline of a target.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn baseline(&self, target: &str) -> Result<Option<Baseline>, StoreError> {
        self.with(|db| {
            db.query_row(
                "SELECT body FROM baselines WHERE target = ? ORDER BY made_at DESC LIMIT 1",
                [target],
                |row| body(row, 0),
            )
            .optional()
        })
    }

    /// Every saved state by its key.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn states(&self) -> Result<BTreeMap<String, serde_json::Value>, StoreError> {
        self.with(|db| {
            let mut statement = db.prepare("SELECT key, body FROM state")?;
            statement.query_map([], |row| Ok((row.get(0)?, body(row, 1)?)))?.collect()
        })
    }

    /// Asks on an idle connection or a new one; a connection that erred is not used again.
    fn with<T>(&self, ask: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let answer = match idle {
            Some(connection) => Ok(connection),
            None => schema::open_read_only(&self.path),
        }
        .and_then(|connection| Ok((ask(&connection)?, connection)));
        let (answer, connection) = answer.map_err(|e| StoreError::of_file(&self.path, &e))?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
        Ok(answer)
    }
}

const fn limit(wanted: u32) -> u32 {
    match wanted {
        0 => 1_000,
        some => some,
    }
}

fn unsigned(row: &Row<'_>, index: usize) -> Result<u64, rusqlite::Error> {
    Ok(u64::try_from(row.get::<_, i64>(index)?).unwrap_or(0))
}

fn body<T: serde::de::DeserializeOwned>(row: &Row<'_>, index: usize) -> Result<T, rusqlite::Error> {
    let text: String = row.get(index)?;
    serde_json::from_str(&text).map_err(|e| unreadable(index, e))
}

fn unreadable(index: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, rusqlite::types::Type::Text, Box::new(error))
}

fn event(row: &Row<'_>) -> Result<Event, rusqlite::Error> {
    let kind = serde_json::Value::String(row.get(2)?);
    Ok(Event {
        id: unsigned(row, 0)?,
        at: Timestamp::from_millis(unsigned(row, 1)?),
        kind: serde_json::from_value(kind).map_err(|e| unreadable(2, e))?,
        target: row.get::<_, Option<String>>(3)?.map(Into::into),
        route: row.get::<_, Option<String>>(4)?.map(Into::into),
        reason: row.get(5)?,
        message: row.get(6)?,
        data: body(row, 7)?,
    })
}

fn sample(row: &Row<'_>) -> Result<SampleRow, rusqlite::Error> {
    let source: String = row.get(4)?;
    let class: Option<String> = row.get(6)?;
    let flags: String = row.get(7)?;
    Ok(SampleRow {
        at: Timestamp::from_millis(unsigned(row, 0)?),
        request_id: row.get(1)?,
        route: row.get(2)?,
        target: row.get(3)?,
        source: Source::parse(&source).unwrap_or(Source::Live),
        status: row.get(5)?,
        class: class.as_deref().and_then(FaultClass::parse),
        flags: flags.split(',').filter_map(Flag::parse).collect(),
        signals: body(row, 8)?,
        timing: body(row, 9)?,
        prompt_id: row.get(10)?,
        passed: row.get(11)?,
    })
}
