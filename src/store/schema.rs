//! Opening the file: whose it is, whether it is whole, and how old its tables are.
//!
//! Everything is looked at before anything is written, so that a damaged, foreign or newer file is
//! refused as it is. A lock file beside it keeps a second daemon from restoring and writing the same
//! states; the system takes the lock back when the process dies, however it dies.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::StoreError;

/// "TOUC": tells our files from other SQLite databases.
const APPLICATION_ID: i64 = 0x544F_5543;

/// How long a statement waits for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// Larger files are not read through at start; damage shows when a query meets it.
const QUICK_CHECK_BYTES: u64 = 64 << 20;

/// Append-only: entry n leads from `user_version` n to n + 1. Never edit an entry that was released.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, kind TEXT NOT NULL, target TEXT,
        route TEXT, reason TEXT NOT NULL, message TEXT NOT NULL, data TEXT NOT NULL);
    CREATE INDEX events_at ON events (at);
    CREATE INDEX events_target ON events (target, id);
    CREATE TABLE samples (
        id INTEGER PRIMARY KEY, at INTEGER NOT NULL, request_id TEXT NOT NULL, route TEXT NOT NULL,
        target TEXT NOT NULL, source TEXT NOT NULL, wire TEXT NOT NULL, status INTEGER, class TEXT,
        flags TEXT NOT NULL, signals TEXT NOT NULL, usage TEXT NOT NULL, timing TEXT NOT NULL,
        request_hash INTEGER NOT NULL, prompt_id TEXT, passed INTEGER, partial INTEGER NOT NULL,
        prompt_text TEXT, answer_text TEXT);
    CREATE INDEX samples_at ON samples (at);
    CREATE TABLE exchanges (
        id INTEGER PRIMARY KEY, request_id TEXT NOT NULL, at INTEGER NOT NULL, workflow TEXT,
        body TEXT NOT NULL);
    CREATE INDEX exchanges_request ON exchanges (request_id);
    CREATE INDEX exchanges_at ON exchanges (at);
    CREATE INDEX exchanges_workflow ON exchanges (workflow, at) WHERE workflow IS NOT NULL;
    CREATE TABLE baselines (
        target TEXT NOT NULL, made_at INTEGER NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY (target, made_at)) WITHOUT ROWID;
    CREATE TABLE state (key TEXT PRIMARY KEY, at INTEGER NOT NULL, body TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE series (
        target TEXT NOT NULL, signal TEXT NOT NULL, minute INTEGER NOT NULL, count INTEGER NOT NULL,
        sum REAL NOT NULL, min REAL NOT NULL, max REAL NOT NULL,
        PRIMARY KEY (target, signal, minute)) WITHOUT ROWID;
    CREATE INDEX series_minute ON series (minute);
",
    "
    CREATE TABLE money (
        scope TEXT NOT NULL, minute INTEGER NOT NULL, nano INTEGER NOT NULL,
        PRIMARY KEY (scope, minute)) WITHOUT ROWID;
    CREATE INDEX money_minute ON money (minute);
    CREATE TABLE money_open (
        id INTEGER PRIMARY KEY, at INTEGER NOT NULL, target TEXT NOT NULL, scopes TEXT NOT NULL,
        nano INTEGER NOT NULL);
",
];

/// An open file that is ours to write.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) connection: Connection,
    _lock: File,
}

/// Opens for writing, creates what is missing, migrates. [`StoreError::Unavailable`] may pass by
/// itself; every other error needs a person.
pub(super) fn open(path: &Path) -> Result<Opened, StoreError> {
    let lock = lock(path)?;
    let mut connection =
        Connection::open_with_flags(path, OpenFlags::default()).map_err(|e| StoreError::of_file(path, &e))?;
    prepare(path, &mut connection).map_err(|refused| match refused {
        Refused::Store(error) => error,
        Refused::Sqlite(error) => StoreError::of_file(path, &error),
    })?;
    Ok(Opened { connection, _lock: lock })
}

/// Opens for reading only.
pub(super) fn open_read_only(path: &Path) -> Result<Connection, rusqlite::Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let unavailable = |reason: String| StoreError::Unavailable { path: path.to_owned(), reason };
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent)
            .map_err(|e| unavailable(format!("its folder cannot be made: {e}")))?;
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(PathBuf::from(name))
        .map_err(|e| unavailable(format!("its folder cannot be written: {e}")))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(unavailable("another process uses it".to_owned())),
        Err(TryLockError::Error(e)) => Err(unavailable(format!("it cannot be locked: {e}"))),
    }
}

enum Refused {
    Store(StoreError),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

fn prepare(path: &Path, connection: &mut Connection) -> Result<(), Refused> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let version = pragma(connection, "user_version")?;
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))?;
    let empty = tables == 0 && version == 0;
    if !empty && pragma(connection, "application_id")? != APPLICATION_ID {
        return Err(Refused::Store(StoreError::Foreign { path: path.to_owned() }));
    }
    if version > known {
        return Err(Refused::Store(StoreError::Newer { path: path.to_owned(), found: version, known }));
    }
    if !empty
        && pragma(connection, "page_count")? * pragma(connection, "page_size")? <= QUICK_CHECK_BYTES as i64
    {
        let found: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        if found != "ok" {
            return Err(Refused::Store(StoreError::Corrupt { path: path.to_owned(), reason: found }));
        }
    }
    if empty {
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?; // before the first table
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?; // a commit outlives a power cut
    connection.pragma_update(None, "journal_size_limit", 16 << 20)?;
    migrate(connection, version)?;
    Ok(())
}

fn migrate(connection: &mut Connection, version: i64) -> Result<(), rusqlite::Error> {
    for (from, step) in (0_i64..).zip(MIGRATIONS).filter(|(from, _)| *from >= version) {
        let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        tx.execute_batch(step)?;
        tx.pragma_update(None, "user_version", from + 1)?;
        tx.commit()?;
    }
    Ok(())
}

/// An integer pragma.
pub(super) fn pragma(connection: &Connection, name: &str) -> Result<i64, rusqlite::Error> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

impl StoreError {
    /// What an error of SQLite says about the whole file.
    pub(super) fn of_file(path: &Path, error: &rusqlite::Error) -> Self {
        let (path, reason) = (path.to_owned(), error.to_string());
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Self::Corrupt { path, reason },
            _ => Self::Unavailable { path, reason },
        }
    }
}
