//! Makes the tables, or takes over one that others made.
//!
//! Versioned, in one transaction under the write lock: run twice or by several processes at
//! once, the second finds its work done. Columns are only ever added, rows never lost.

use super::fault::meaning;
use super::foreign;
use super::sql::{HOLDS_KEY, Sql};
use crate::builder::Settings;
use crate::clock::Micros;
use crate::{JournalError, Opened};
use rusqlite::{Connection, OptionalExtension as _};

/// What this release writes and reads.
const VERSION: i64 = 4;

pub(super) fn migrate(
    conn: &Connection,
    settings: &Settings,
    sql: &Sql,
    now: Micros,
) -> Result<Opened, JournalError> {
    let (failed, t) = (|error: rusqlite::Error| meaning(&error), &settings.table);
    match version(conn, t).map_err(failed)? {
        Some(VERSION) => return Ok(Opened::Found),
        Some(older) if older < VERSION && settings.must_exist => {
            return Err(settings.older(older, VERSION));
        }
        _ => {}
    }
    conn.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    let outcome = steps(conn, t, sql, now);
    let end = if outcome.is_ok() { "COMMIT" } else { "ROLLBACK" };
    conn.execute_batch(end).map_err(failed)?;
    outcome
}

fn steps(conn: &Connection, table: &str, sql: &Sql, now: Micros) -> Result<Opened, JournalError> {
    let failed = |error: rusqlite::Error| meaning(&error);
    let found = version(conn, table).map_err(failed)?.unwrap_or(0);
    if found > VERSION {
        return Err(JournalError::Open(format!(
            "`{table}` has version {found}, and this program knows {VERSION}: use a newer program"
        )));
    }
    let opened = match found {
        VERSION => Opened::Found,
        0 if exists(conn, table).map_err(failed)? => Opened::TakenOver,
        0 => Opened::Made,
        _ => Opened::Upgraded,
    };
    if found < 1 {
        first(conn, table, now).map_err(failed)?;
    }
    if found < 2 {
        second(conn, table, now).map_err(failed)?;
    }
    if found < VERSION {
        fourth(conn, table, sql, now).map_err(failed)?;
    }
    Ok(opened)
}

/// Whether a journal was ever made here under this name.
pub(super) fn is_journal(conn: &Connection, table: &str) -> rusqlite::Result<bool> {
    exists(conn, &format!("{table}_version"))
}

fn version(conn: &Connection, table: &str) -> rusqlite::Result<Option<i64>> {
    if !is_journal(conn, table)? {
        return Ok(None);
    }
    let sql = format!("SELECT max(version) FROM {table}_version");
    conn.query_row(&sql, [], |row| row.get(0))
}

fn exists(conn: &Connection, name: &str) -> rusqlite::Result<bool> {
    let found =
        conn.query_row("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1", [name], |_| Ok(()));
    Ok(found.optional()?.is_some())
}

/// The columns of the original table, which another program may have made. Programs that know no
/// others may leave out what has a default.
const ORIGINAL: &str = "
    is_delete boolean NOT NULL DEFAULT false,
    update_time integer NOT NULL DEFAULT CURRENT_TIMESTAMP,
    create_time integer NOT NULL DEFAULT CURRENT_TIMESTAMP,
    method_name varchar(64),
    method_params text,
    guid varchar(32) NOT NULL PRIMARY KEY,
    status smallint DEFAULT 0";

/// Ours.
const ADDED: [&str; 12] = [
    "attempts integer NOT NULL DEFAULT 0",
    "max_attempts integer",
    "lapses integer NOT NULL DEFAULT 0",
    "priority integer NOT NULL DEFAULT 5",
    "next_time integer NOT NULL DEFAULT 0",
    "deadline integer",
    "lease_owner varchar(64)",
    "lease_until integer",
    "lease_no integer NOT NULL DEFAULT 0",
    "idempotency_key varchar(128)",
    "last_error text",
    "result text",
];

fn first(conn: &Connection, t: &str, now: Micros) -> rusqlite::Result<()> {
    let is_taken_over = exists(conn, t)?;
    if !is_taken_over {
        conn.execute_batch(&format!("CREATE TABLE {t} ({ORIGINAL})"))?;
    }
    for column in ADDED {
        conn.execute_batch(&format!("ALTER TABLE {t} ADD COLUMN {column}"))?;
    }
    conn.execute_batch(&format!(
        "CREATE TABLE {t}_clock (now integer NOT NULL); INSERT INTO {t}_clock VALUES ({now});"
    ))?;
    if is_taken_over {
        // As text, such as CURRENT_TIMESTAMP wrote; without a status; and whatever else.
        conn.execute_batch(&foreign::all(t))?;
        conn.execute_batch(&format!(
            "UPDATE {t} SET status = 4, last_error = 'it was marked as deleted' WHERE status = 0 AND is_delete;"
        ))?;
    }
    conn.execute_batch(&format!(
        "CREATE TABLE {t}_count (method_name text PRIMARY KEY, pending integer NOT NULL) WITHOUT ROWID;
         CREATE TABLE {t}_method (method_name text PRIMARY KEY, seen_time integer NOT NULL DEFAULT 0,
                                  missed_since integer, missed_time integer) WITHOUT ROWID;
         CREATE TABLE {t}_version (version integer PRIMARY KEY, applied_time integer NOT NULL);
         INSERT INTO {t}_version VALUES (1, {now});
         CREATE INDEX IF NOT EXISTS idx_{t}_ctime ON {t} (create_time);
         CREATE INDEX IF NOT EXISTS idx_{t}_utime ON {t} (update_time);
         CREATE INDEX idx_{t}_due ON {t} (method_name, priority, next_time) WHERE status = 0 AND is_delete = 0;
         CREATE INDEX idx_{t}_ended ON {t} (update_time) WHERE (status <> 0 OR is_delete);
         CREATE INDEX idx_{t}_deadline ON {t} (deadline) WHERE status = 0 AND is_delete = 0 AND deadline IS NOT NULL;
         CREATE UNIQUE INDEX uk_{t}_key ON {t} (method_name, idempotency_key) WHERE idempotency_key IS NOT NULL;"
    ))
}

/// What ended in vain or was marked as deleted no longer holds its key. How old the oldest pending
/// record is can be told without looking at all of them.
fn second(conn: &Connection, t: &str, now: Micros) -> rusqlite::Result<()> {
    conn.execute_batch(&format!(
        "DROP INDEX uk_{t}_key;
         CREATE UNIQUE INDEX uk_{t}_key ON {t} (method_name, idempotency_key)
           WHERE idempotency_key IS NOT NULL AND {HOLDS_KEY};
         CREATE INDEX idx_{t}_oldest ON {t} (method_name, create_time) WHERE status = 0 AND is_delete = 0;
         INSERT INTO {t}_version VALUES (2, {now});"
    ))
}

/// Rows that others insert later are set right as they come, and those that came already. The third
/// version did so, too, but let rows wait whose `create_time` is in the future.
fn fourth(conn: &Connection, t: &str, sql: &Sql, now: Micros) -> rusqlite::Result<()> {
    conn.execute_batch(&format!(
        "UPDATE {t}_clock SET now = max(now, {now});
         DROP TRIGGER IF EXISTS tr_{t}_foreign;
         DROP TRIGGER IF EXISTS tr_{t}_no_status;
         {}
         UPDATE {t} SET next_time = {now} WHERE status = 0 AND next_time > {now} AND next_time = create_time;
         {}
         INSERT INTO {t}_version VALUES (4, {now});",
        foreign::all(t),
        foreign::triggers(t)
    ))?;
    conn.execute_batch(&sql.recount)
}
