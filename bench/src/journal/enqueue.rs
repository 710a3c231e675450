//! Durable enqueue: how many calls a second are acknowledged, each after its own commit.

use super::postgres::Server;
use super::rate;
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Measured, Role, alternate};
use crate::{Fallible, Wanted};
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tidegate_journal::{Call, Journal};
use tokio::runtime::Runtime;

pub const SQLITE: &str = "sqlite.enqueue";
pub const PG: &str = "pg.enqueue";

const CALLERS: u64 = 256;
/// What each caller records in a run.
const EACH: u64 = 100;
/// What the base records in a run: enough for a second or so.
const SINGLE: u64 = 2_000;

const OURS: &str = "tidegate-journal";
const BASE: &str = "one connection, one transaction a record";

pub fn sqlite(wanted: &Wanted<'_>, runtime: &Runtime) -> Fallible<Option<Case>> {
    if !wanted.case(SQLITE) {
        return Ok(None);
    }
    let ours = |_| {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("journal.db");
        runtime.block_on(async {
            let journal = Journal::sqlite(&path).await?;
            let value = record_concurrently(&journal).await?;
            let pending = journal.stats().await?.pending;
            Ok(Measured { value, wrong: wrong(pending) })
        })
    };
    let base = |_| {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("journal.db");
        // The same table with the same indexes.
        runtime.block_on(async { Journal::sqlite(&path).await.map(drop) })?;
        Ok(Measured { value: one_by_one(&path)?, wrong: 0.0 })
    };
    let entrants = vec![Entrant::new(OURS, Role::Ours, ours), Entrant::new(BASE, Role::Peer, base)];
    let series = alternate(SQLITE, entrants, wanted.rounds)?;
    Ok(Some(Case::new(plan(SQLITE, "synchronous=FULL, WAL, one file"), &series)?))
}

pub fn postgres(wanted: &Wanted<'_>, runtime: &Runtime, server: &Server) -> Fallible<Option<Case>> {
    if !wanted.case(PG) {
        return Ok(None);
    }
    let table = runtime.block_on(server.table())?;
    let ours = |_| {
        runtime.block_on(async {
            table.empty().await?;
            let value = record_concurrently(&table.journal).await?;
            Ok(Measured { value, wrong: wrong(table.count(0).await?) })
        })
    };
    let base = |_| {
        runtime.block_on(async {
            table.empty().await?;
            let sql = "INSERT INTO t_method_limit_log (guid, method_name, method_params, status)
                       VALUES (md5($1::int8::text), 'call', '{\"task\": 17}', 0)";
            let statement = table.client.prepare(sql).await?;
            let begun = Instant::now();
            for nth in 0..i64::try_from(SINGLE)? {
                table.client.execute(&statement, &[&nth]).await?;
            }
            Ok(Measured { value: rate(SINGLE, begun), wrong: 0.0 })
        })
    };
    let entrants = vec![Entrant::new(OURS, Role::Ours, ours), Entrant::new(BASE, Role::Peer, base)];
    let series = alternate(PG, entrants, wanted.rounds)?;
    Ok(Some(Case::new(plan(PG, "fsync=on, synchronous_commit=on, server on the same machine"), &series)?))
}

fn plan(name: &'static str, setting: &str) -> Plan {
    let notes = vec![format!("{CALLERS} callers, each acknowledged after its own commit; {setting}")];
    Plan { name, unit: "records/s", better: Better::Higher, base: Base::Peer(BASE), notes }
}

/// All callers at once, each recording one call after the other.
async fn record_concurrently(journal: &Journal) -> Fallible<f64> {
    let begun = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let journal = journal.clone();
            tokio::spawn(async move {
                for _ in 0..EACH {
                    let call = Call::new("call", &serde_json::json!({ "task": caller }));
                    let call = call.map_err(|error| error.to_string())?;
                    journal.defer(call).await.map_err(|error| format!("{error}: {error:?}"))?;
                }
                Ok::<_, String>(())
            })
        })
        .collect();
    for caller in callers {
        caller.await??;
    }
    Ok(rate(CALLERS * EACH, begun))
}

/// Share of what was acknowledged that is not there, or there twice.
fn wrong(pending: u64) -> f64 {
    pending.abs_diff(CALLERS * EACH) as f64 / (CALLERS * EACH) as f64
}

fn one_by_one(path: &Path) -> Fallible<f64> {
    let conn = rusqlite::Connection::open(path)?;
    conn.execute_batch("PRAGMA synchronous = FULL")?;
    // As we write them, so that no trigger has to set them right.
    let sql = "INSERT INTO t_method_limit_log
           (guid, method_name, method_params, status, create_time, update_time, next_time)
         VALUES (lower(hex(randomblob(16))), 'call', '{\"task\": 17}', 0, ?1, ?1, ?1)";
    let mut statement = conn.prepare(sql)?;
    let since_1970_us = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?;
    let begun = Instant::now();
    for nth in 0..SINGLE {
        statement.execute([since_1970_us + i64::try_from(nth)?])?;
    }
    Ok(rate(SINGLE, begun))
}
