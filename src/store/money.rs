//! What was spent, by scope and minute, and what is set aside for attempts under way.
//!
//! A reservation is a row until it is settled. Rows that a dead process left are charged at the next start with what
//! they had set aside: nobody knows that they cost less. An attempt that begins and ends within one batch never
//! becomes a row.

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior, params};

use super::rows::{AckSender, int, json};
use super::series::MINUTE_MS;
use crate::clock::Timestamp;

/// Longer than any window that is looked at.
const KEEP_MS: u64 = 3 * 24 * 3_600_000;

/// What one scope spent in one minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoneyRow {
    /// `global`, `route/NAME`, `key/NAME`, …
    pub scope: Arc<str>,
    /// When.
    pub at: Timestamp,
    /// Billionths of a US dollar.
    pub nano: u64,
}

/// Money set aside for one attempt.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) at: Timestamp,
    pub(super) target: Arc<str>,
    pub(super) scopes: Vec<Arc<str>>,
    pub(super) nano: u64,
}

/// What waits for the next commit.
#[derive(Debug, Default)]
pub(super) struct MoneyBatch {
    opened: BTreeMap<u64, Opened>,
    settled: Vec<u64>,
    spent: BTreeMap<(Arc<str>, u64), u64>,
    pub(super) acks: Vec<AckSender>,
}

impl MoneyBatch {
    pub(super) fn is_empty(&self) -> bool {
        self.opened.is_empty() && self.settled.is_empty() && self.spent.is_empty() && self.acks.is_empty()
    }

    pub(super) fn open(&mut self, id: u64, opened: Opened) {
        self.opened.insert(id, opened);
    }

    pub(super) fn settle(&mut self, id: u64, rows: Vec<MoneyRow>) {
        if self.opened.remove(&id).is_none() {
            self.settled.push(id);
        }
        for row in rows {
            let sum = self.spent.entry((row.scope, row.at.as_millis() / MINUTE_MS)).or_default();
            *sum = sum.saturating_add(row.nano);
        }
    }

    pub(super) fn write(&self, tx: &Connection) -> Result<(), rusqlite::Error> {
        if !self.opened.is_empty() {
            let mut insert = tx.prepare(
                "INSERT OR REPLACE INTO money_open (id, at, target, scopes, nano) VALUES (?, ?, ?, ?, ?)",
            )?;
            for (id, o) in &self.opened {
                let at = int(o.at.as_millis());
                insert.execute(params![int(*id), at, &*o.target, json(&o.scopes), int(o.nano)])?;
            }
        }
        if !self.settled.is_empty() {
            let mut delete = tx.prepare("DELETE FROM money_open WHERE id = ?")?;
            for id in &self.settled {
                delete.execute([int(*id)])?;
            }
        }
        for ((scope, minute), nano) in &self.spent {
            add(tx, scope, *minute, *nano)?;
        }
        Ok(())
    }
}

fn add(tx: &Connection, scope: &str, minute: u64, nano: u64) -> Result<(), rusqlite::Error> {
    let mut upsert = tx.prepare(
        "INSERT INTO money (scope, minute, nano) VALUES (?1, ?2, ?3)
         ON CONFLICT (scope, minute) DO UPDATE SET nano = nano + ?3",
    )?;
    upsert.execute(params![scope, int(minute), int(nano)])?;
    Ok(())
}

/// Charges what a dead process had set aside; how many attempts, and how much.
pub(super) fn recover(db: &mut Connection) -> Result<(usize, u64), rusqlite::Error> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let left: Vec<(i64, String, i64)> = {
        let mut statement = tx.prepare("SELECT at, scopes, nano FROM money_open")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.collect::<Result<_, _>>()?
    };
    let mut sum = 0_u64;
    for (at, scopes, nano) in &left {
        let nano = nano.unsigned_abs();
        sum = sum.saturating_add(nano);
        for scope in serde_json::from_str::<Vec<String>>(scopes).unwrap_or_default() {
            add(&tx, &scope, at.unsigned_abs() / MINUTE_MS, nano)?;
        }
    }
    tx.execute("DELETE FROM money_open", [])?;
    tx.commit()?;
    Ok((left.len(), sum))
}

/// What was spent lately, oldest first.
pub(super) fn spent(db: &Connection) -> Result<Vec<MoneyRow>, rusqlite::Error> {
    let mut statement = db.prepare("SELECT scope, minute, nano FROM money ORDER BY minute")?;
    let rows = statement.query_map([], |row| {
        let (scope, minute, nano): (String, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let at = Timestamp::from_millis(minute.unsigned_abs().saturating_mul(MINUTE_MS));
        Ok(MoneyRow { scope: scope.into(), at, nano: nano.unsigned_abs() })
    })?;
    rows.collect()
}

/// Forgets what no window holds any more.
pub(super) fn forget(db: &Connection, now: Timestamp) -> Result<(), rusqlite::Error> {
    db.execute("DELETE FROM money WHERE minute < ?", [int(now.minus_ms(KEEP_MS).as_millis() / MINUTE_MS)])?;
    Ok(())
}
