//! What is old goes; when the file is too large, the oldest goes first: samples and exchanges, then
//! the history, events last.

use rusqlite::Connection;

use super::rows::int;
use super::schema::pragma;
use super::series::MINUTE_MS;
use crate::clock::Timestamp;

/// Rows deleted in one transaction, so that the writer is never away for long.
const STEP_ROWS: i64 = 5_000;

/// Transactions of one round.
const MAX_STEPS: u32 = 20;

/// Pages given back to the system in one round.
const VACUUM_PAGES: i64 = 4_000;

/// One round; whether more is left to do.
pub(super) fn run(
    connection: &Connection,
    now: Timestamp,
    keep_ms: u64,
    max_bytes: u64,
) -> Result<bool, rusqlite::Error> {
    let oldest = now.minus_ms(keep_ms).as_millis();
    let mut more = false;
    for (table, column, bound) in
        [("samples", "at", int(oldest)), ("exchanges", "at", int(oldest)), ("events", "at", int(oldest))]
    {
        let sql = format!(
            "DELETE FROM {table} WHERE id IN
                (SELECT id FROM {table} WHERE {column} < ? ORDER BY {column} LIMIT {STEP_ROWS})"
        );
        more |= connection.execute(&sql, [bound])? == usize::try_from(STEP_ROWS).unwrap_or(usize::MAX);
    }
    connection.execute("DELETE FROM series WHERE minute < ?", [int(oldest / MINUTE_MS)])?;
    super::money::forget(connection, now)?;
    let mut steps = 0;
    while used_bytes(connection)? > int(max_bytes) {
        if steps == MAX_STEPS {
            return Ok(true);
        }
        if !delete_oldest(connection)? {
            break;
        }
        steps += 1;
    }
    // Each page given back is a step of the statement.
    let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
    let mut pages = vacuum.query([])?;
    while pages.next()?.is_some() {}
    Ok(more)
}

/// Bytes of pages that hold something.
pub(super) fn used_bytes(connection: &Connection) -> Result<i64, rusqlite::Error> {
    let pages = pragma(connection, "page_count")? - pragma(connection, "freelist_count")?;
    Ok(pages.saturating_mul(pragma(connection, "page_size")?))
}

/// Deletes a step of the least valuable rows; whether there was one.
fn delete_oldest(connection: &Connection) -> Result<bool, rusqlite::Error> {
    let mut gone = 0;
    for table in ["samples", "exchanges"] {
        gone += connection.execute(
            &format!(
                "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} ORDER BY id LIMIT {STEP_ROWS})"
            ),
            [],
        )?;
    }
    if gone == 0 {
        gone = connection
            .execute("DELETE FROM series WHERE minute < (SELECT min(minute) FROM series) + 60", [])?;
    }
    if gone == 0 {
        gone = connection.execute(
            &format!("DELETE FROM events WHERE id IN (SELECT id FROM events ORDER BY id LIMIT {STEP_ROWS})"),
            [],
        )?;
    }
    Ok(gone > 0)
}
