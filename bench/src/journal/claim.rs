//! Claim, run an empty handler, complete; and the same with very much more pending.

use super::postgres::{Server, Table};
use super::rate;
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Measured, Role, alternate, progress};
use crate::{Fallible, Wanted};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tidegate_journal::{JobError, Worker};
use tokio::runtime::Runtime;
use tokio::sync::Notify;

pub const NAME: &str = "pg.claim";
pub const FLAT: &str = "pg.claim.5m-vs-10k";

/// What is pending at the beginning of a run, and how much of it is worked off.
const PENDING: u64 = 20_000;
const SINGLE: u64 = 2_000;
const FEW: u64 = 10_000;
const TAKEN: u64 = 8_000;
const MANY: u64 = 5_000_000;

const BASE: &str = "load all, then one row at a time";

pub fn run(wanted: &Wanted<'_>, runtime: &Runtime, server: &Server) -> Fallible<Vec<Case>> {
    let mut cases = Vec::new();
    if wanted.case(NAME) {
        cases.push(against_the_loop(wanted, runtime, server)?);
    }
    if wanted.case(FLAT) {
        cases.push(flat(wanted, runtime, server)?);
    }
    Ok(cases)
}

fn against_the_loop(wanted: &Wanted<'_>, runtime: &Runtime, server: &Server) -> Fallible<Case> {
    let table = runtime.block_on(server.table())?;
    let ours = |_| {
        runtime.block_on(async {
            table.empty().await?;
            table.fill(PENDING).await?;
            let value = worked_off(&table, PENDING).await?;
            let wrong = table.count(1).await?.abs_diff(PENDING) as f64 / PENDING as f64;
            Ok(Measured { value, wrong })
        })
    };
    let base = |_| {
        runtime.block_on(async {
            table.empty().await?;
            table.fill(SINGLE).await?;
            let begun = Instant::now();
            one_by_one(&table).await?;
            Ok(Measured { value: rate(SINGLE, begun), wrong: 0.0 })
        })
    };
    let entrants =
        vec![Entrant::new("tidegate-journal", Role::Ours, ours), Entrant::new(BASE, Role::Peer, base)];
    let series = alternate(NAME, entrants, wanted.rounds)?;
    let notes = vec!["claimed, run by an empty handler, completed; fsync=on".to_owned()];
    let plan = Plan { name: NAME, unit: "records/s", better: Better::Higher, base: Base::Peer(BASE), notes };
    Case::new(plan, &series)
}

fn flat(wanted: &Wanted<'_>, runtime: &Runtime, server: &Server) -> Fallible<Case> {
    let many =
        std::env::var("TIDEGATE_BENCH_PENDING").ok().and_then(|text| text.parse().ok()).unwrap_or(MANY);
    if many / TAKEN < wanted.rounds as u64 {
        return Err(
            format!("{FLAT}: {many} pending are too few for {} rounds of {TAKEN}", wanted.rounds).into()
        );
    }
    let (small, large) = runtime.block_on(async {
        let (small, large) = (server.table().await?, server.table().await?);
        progress(FLAT, "filling", "the large table");
        large.fill(many).await?;
        Ok::<_, Box<dyn std::error::Error>>((small, large))
    })?;
    let ratio = |_| {
        runtime.block_on(async {
            small.empty().await?;
            small.fill(FEW).await?;
            // Nothing of what was filled is still on its way to the disk, in neither's run.
            small.client.batch_execute("CHECKPOINT").await?;
            let few = worked_off(&small, TAKEN).await?;
            Ok(Measured { value: worked_off(&large, TAKEN).await? / few, wrong: 0.0 })
        })
    };
    let series = alternate(FLAT, vec![Entrant::new("tidegate-journal", Role::Ours, ratio)], wanted.rounds)?;
    let base = Base::Itself("itself with 10,000 pending");
    let notes = vec![format!("throughput with {many} pending against {FEW} pending; 1 is flat")];
    Case::new(Plan { name: FLAT, unit: "ratio", better: Better::Higher, base, notes }, &series)
}

/// Works until so many have run; records a second.
async fn worked_off(table: &Table, records: u64) -> Fallible<f64> {
    let (ran, enough) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
    let (counted, notifier) = (ran.clone(), enough.clone());
    let worker = Worker::new(&table.journal)
        .buffer(8_192)
        .concurrency(1_024)
        .poll(Duration::from_millis(20))
        .on("call", move |_: serde_json::Value| {
            if counted.fetch_add(1, Ordering::SeqCst) + 1 == records {
                notifier.notify_one();
            }
            async { Ok::<_, JobError>(()) }
        });
    let begun = Instant::now();
    let running = worker.start();
    enough.notified().await;
    // Until every end is entered.
    let done = running.stop().await.done;
    Ok(rate(done, begun))
}

/// The job as the seeds sketch it.
async fn one_by_one(table: &Table) -> Fallible<()> {
    let all = "SELECT guid, method_name, method_params::text FROM t_method_limit_log WHERE status = 0";
    let update = "UPDATE t_method_limit_log SET status = 1, update_time = now() WHERE guid = $1";
    let update = table.client.prepare(update).await?;
    for row in table.client.query(all, &[]).await? {
        let _params: serde_json::Value = serde_json::from_str(row.get(2))?;
        table.client.execute(&update, &[&row.get::<_, String>(0)]).await?;
    }
    Ok(())
}
