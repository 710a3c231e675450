//! What ended long ago goes, a little at a time, and nothing else.

use crate::place::{Place, call, until, worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tidegate_journal::{JobError, Journal, Schedule};
use tokio::sync::Notify;
use tokio::time::Instant;

on_both! {
    ended_records_go_after_a_day_and_pending_ones_never,
    records_marked_as_deleted_are_not_replayed_and_go_too,
    a_record_marked_as_deleted_while_it_runs_may_end_before_it_goes,
    a_worker_purges_by_its_schedule,
    a_large_purge_does_not_stop_enqueueing,
    a_large_purge_from_elsewhere_does_not_stop_enqueueing,
    times_without_end_are_as_long_as_can_be,
    a_journal_without_workers_expires_and_purges_and_does_nothing_else,
}

const DAY: Duration = Duration::from_secs(86_400);

const CALLERS: usize = 16;

/// A caller waits for a batch or two, tens of milliseconds; the rest is slack for busy machines.
const SLOWEST: Duration = Duration::from_secs(3);

async fn ended_records_go_after_a_day_and_pending_ones_never(place: &Place) {
    let journal = place.journal().await;
    let pending = journal.defer(call("other", 1)).await.unwrap();
    for nth in 0..4 {
        journal.defer(call("ship", nth)).await.unwrap();
    }
    let cancelled = journal.defer(call("ship", 9)).await.unwrap();
    journal.cancel(&cancelled).await.unwrap();
    journal.defer(call("ship", 9).deadline_in(Duration::ZERO)).await.unwrap();
    let ship = || {
        worker(&journal)
            .orphan_after(10 * DAY)
            .on("ship", |n: u32| async move { if n > 0 { Ok(n) } else { Err(JobError::permanent("no")) } })
    };
    let pass = ship().run_once().await.unwrap();
    assert_eq!((pass.done, pass.failed, pass.expired, pass.purged), (3, 1, 1, 0));
    // The end counts, not the beginning.
    place.age(&["create_time"], 2 * DAY);
    assert_eq!(ship().run_once().await.unwrap().purged, 0);
    place.age(&["update_time", "next_time"], DAY - Duration::from_secs(60));
    assert_eq!(ship().run_once().await.unwrap().purged, 0);
    place.age(&["update_time"], Duration::from_secs(61));
    assert_eq!(ship().run_once().await.unwrap().purged, 6);
    assert_eq!(place.sql("SELECT guid FROM t_method_limit_log"), pending.as_str());
}

async fn records_marked_as_deleted_are_not_replayed_and_go_too(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1)).await.unwrap();
    place.sql("UPDATE t_method_limit_log SET is_delete = true");
    let ship = || worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) });
    assert_eq!(ship().run_once().await.unwrap().picked, 0);
    assert_eq!(journal.status(&guid).await.unwrap(), None);
    assert_eq!(journal.stats().await.unwrap().pending, 0);
    place.age(&["update_time"], 2 * DAY);
    assert_eq!(ship().run_once().await.unwrap().purged, 1);
}

async fn a_record_marked_as_deleted_while_it_runs_may_end_before_it_goes(place: &Place) {
    let journal = place.journal().await;
    journal.defer(call("ship", 1)).await.unwrap();
    place.age(&["update_time"], 2 * DAY);
    let (began, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes_on) = (began.clone(), go_on.clone());
    let running = worker(&journal)
        .on("ship", move |_: u32| {
            let (begins, goes_on) = (begins.clone(), goes_on.clone());
            async move {
                begins.notify_one();
                goes_on.notified().await;
                Ok::<_, JobError>(())
            }
        })
        .start();
    began.notified().await;
    place.sql("UPDATE t_method_limit_log SET is_delete = true");
    assert_eq!(journal.purge(DAY, drop).await.unwrap(), 0);
    go_on.notify_one();
    until("its end is entered", async || (place.count("status = 1") == 1).then_some(())).await;
    running.stop().await;
    place.age(&["update_time"], 2 * DAY);
    assert_eq!(journal.purge(DAY, drop).await.unwrap(), 1);
}

async fn a_worker_purges_by_its_schedule(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1)).await.unwrap();
    let running = worker(&journal)
        .on("ship", |_: u32| async { Ok::<_, JobError>(()) })
        .keep(Duration::ZERO)
        .purge(Schedule::every(Duration::from_millis(20)))
        .start();
    until("it is gone", async || journal.status(&guid).await.unwrap().is_none().then_some(())).await;
    until("it is counted", async || (running.stats().total.purged == 1).then_some(())).await;
    running.stop().await;
}

async fn a_large_purge_does_not_stop_enqueueing(place: &Place) {
    let (journal, rows) = (place.journal().await, old_rows(place).await);
    let purge = async |told: &dyn Fn(u64)| journal.purge(DAY, told).await.unwrap();
    let meanwhile = enqueue_during(&journal, purge).await;
    meanwhile.assert_goes_on(place, rows);
}

/// Where two share a file, nobody queues for both: they meet at its lock.
async fn a_large_purge_from_elsewhere_does_not_stop_enqueueing(place: &Place) {
    let (journal, rows) = (place.journal().await, old_rows(place).await);
    let elsewhere = place.journal().await;
    let purge = async |told: &dyn Fn(u64)| elsewhere.purge(DAY, told).await.unwrap();
    let meanwhile = enqueue_during(&journal, purge).await;
    meanwhile.assert_goes_on(place, rows);
}

/// The broken variant: as many batches, in one transaction.
#[test]
#[should_panic(expected = "calls were recorded")]
fn a_purge_in_one_transaction_stops_enqueueing_and_is_noticed() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let (journal, rows) = (place.journal().await, old_rows(place).await);
        let conn = rusqlite::Connection::open(place.path()).unwrap();
        conn.busy_timeout(crate::place::PATIENCE).unwrap();
        let purge = async |told: &dyn Fn(u64)| {
            conn.execute_batch("BEGIN IMMEDIATE").unwrap();
            let mut gone = 0;
            while gone < rows {
                let batch = "DELETE FROM t_method_limit_log WHERE rowid IN
                               (SELECT rowid FROM t_method_limit_log WHERE status = 1 LIMIT 1000)";
                gone += tokio::task::block_in_place(|| conn.execute(batch, [])).unwrap() as u64;
                told(gone);
                tokio::task::yield_now().await;
            }
            conn.execute_batch("COMMIT").unwrap();
            gone
        };
        let meanwhile = enqueue_during(&journal, purge).await;
        meanwhile.assert_goes_on(place, rows);
    });
}

/// Records that ended long ago: so many that their purge takes a while.
async fn old_rows(place: &Place) -> u64 {
    let rows = 100_000 * crate::place::cases();
    place.journal().await;
    // Guids as ours are: in the order of time.
    let (numbers, time) = if place.is_sqlite() {
        let numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})";
        (numbers.replace("{rows}", &rows.to_string()), "i")
    } else {
        (format!("WITH n AS (SELECT generate_series(1, {rows}) AS i)"), "to_timestamp(i)")
    };
    place.sql(&format!(
        "{numbers}
         INSERT INTO t_method_limit_log (guid, method_name, method_params, status, create_time, update_time)
         SELECT 'old-' || (10000000 + i), 'ship', '{{\"order\":17}}', 1, {time}, {time} FROM n"
    ));
    rows as u64
}

/// What callers met while a purge was under way.
struct Meanwhile {
    purged: u64,
    took: Duration,
    recorded: u64,
    /// Those that began and ended between the first batch and the last.
    between: u64,
    slowest: Duration,
}

/// Callers that never pause; each of their calls is durable before the next begins.
async fn enqueue_during(journal: &Journal, purge: impl AsyncFnOnce(&dyn Fn(u64)) -> u64) -> Meanwhile {
    let (gone, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let caller = |_| {
        let (journal, gone, is_over) = (journal.clone(), gone.clone(), is_over.clone());
        tokio::spawn(async move {
            let mut calls = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                let (before, begun) = (gone.load(Ordering::SeqCst), Instant::now());
                journal.defer(call("ship", 2)).await.unwrap();
                calls.push((before, gone.load(Ordering::SeqCst), begun.elapsed()));
            }
            calls
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(caller).collect();
    let begun = Instant::now();
    let purged = purge(&|so_far| gone.store(so_far, Ordering::SeqCst)).await;
    let took = begun.elapsed();
    is_over.store(true, Ordering::SeqCst);
    let calls = futures_util::future::try_join_all(callers).await.unwrap().concat();
    Meanwhile {
        purged,
        took,
        recorded: calls.len() as u64,
        between: calls.iter().filter(|(before, after, _)| *before > 0 && *after < purged).count() as u64,
        slowest: calls.iter().map(|(.., time)| *time).max().unwrap_or_default(),
    }
}

impl Meanwhile {
    fn assert_goes_on(&self, place: &Place, rows: u64) {
        let Self { purged, took, recorded, between, slowest } = self;
        let said = format!(
            "while {rows} rows went in {took:.1?}, {between} calls were recorded, the slowest within {slowest:.1?}"
        );
        println!("{said}");
        assert_eq!((*purged, place.count("status = 1")), (rows, 0));
        assert_eq!(place.count("status = 0"), *recorded);
        assert!(*between >= 10 * CALLERS as u64, "{said}");
        assert!(*slowest < SLOWEST, "{said}");
    }
}

async fn times_without_end_are_as_long_as_can_be(place: &Place) {
    let journal = place.journal().await;
    journal.defer(call("ship", 1)).await.unwrap();
    journal.defer(call("other", 1)).await.unwrap();
    let fails = |_: u32| async { Err::<(), _>(JobError::retry("no")) };
    let ship = || {
        worker(&journal).keep(Duration::MAX).orphan_after(Duration::MAX).backoff(Duration::MAX, Duration::MAX)
    };
    let pass = ship().on("ship", fails).run_once().await.unwrap();
    assert_eq!((pass.retried, pass.failed, pass.purged), (1, 0, 0));
    assert_eq!(ship().on("ship", fails).run_once().await.unwrap().picked, 0, "in a century at most");
    assert_eq!(journal.purge(Duration::MAX, |_| ()).await.unwrap(), 0);
}

async fn a_journal_without_workers_expires_and_purges_and_does_nothing_else(place: &Place) {
    let journal = place.journal().await;
    let pending = journal.defer(call("ship", 1)).await.unwrap();
    let late = (0..1_500).map(|nth| journal.defer(call("ship", nth).deadline_in(Duration::ZERO)));
    futures_util::future::try_join_all(late).await.unwrap();
    assert_eq!(journal.expire().await.unwrap(), 1_500);
    assert_eq!((journal.expire().await.unwrap(), place.count("status = 3")), (0, 1_500));
    let mut told = Vec::new();
    assert_eq!(journal.purge(DAY, |so_far| told.push(so_far)).await.unwrap(), 0);
    assert_eq!(journal.purge(Duration::ZERO, |so_far| told.push(so_far)).await.unwrap(), 1_500);
    assert_eq!(told, [0, 1_000, 1_500]);
    assert_eq!(place.sql("SELECT guid FROM t_method_limit_log"), pending.as_str());
    // Looking is not working: a method that no worker knows does not become an orphan by it.
    assert_eq!(place.sql("SELECT count(*) FROM t_method_limit_log_method"), "0");
}
