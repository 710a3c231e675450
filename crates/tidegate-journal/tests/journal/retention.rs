//! What ended long ago goes, a little at a time, and nothing else.

use crate::place::{Place, call, until, worker};
use std::time::Duration;
use tidegate_journal::{JobError, Schedule};

on_both! {
    ended_records_go_after_a_day_and_pending_ones_never,
    records_marked_as_deleted_are_not_replayed_and_go_too,
    a_worker_purges_by_its_schedule,
    a_large_purge_does_not_stop_enqueueing,
    times_without_end_are_as_long_as_can_be,
    a_journal_without_workers_expires_and_purges_and_does_nothing_else,
}

const DAY: Duration = Duration::from_secs(86_400);

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
    let rows = 100_000 * crate::place::cases();
    let journal = place.journal().await;
    journal.defer(call("ship", 1)).await.unwrap();
    let old = if place.is_sqlite() {
        format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
                 INSERT INTO t_method_limit_log (guid, method_name, status, create_time, update_time)
                 SELECT 'old-' || i, 'ship', 1, 0, i FROM n"
        )
    } else {
        format!("INSERT INTO t_method_limit_log (guid, method_name, status, create_time, update_time)
                 SELECT 'old-' || i, 'ship', 1, to_timestamp(0), to_timestamp(i) FROM generate_series(1, {rows}) i")
    };
    place.sql(&old);
    let cleaner = place.journal().await;
    let purging = tokio::spawn(async move { worker(&cleaner).run_once().await.unwrap() });
    // Each of these is durable before the next begins; a purge that held a lock for its
    // whole length would let none of them through while rows are left.
    let mut during = 0;
    while !purging.is_finished() {
        journal.defer(call("ship", 2)).await.unwrap();
        during += 1;
    }
    assert_eq!(purging.await.unwrap().purged, rows as u64);
    assert_eq!(place.count("status = 1"), 0);
    assert_eq!(place.count("status = 0"), during + 1);
    assert!(during >= 20, "only {during} calls were recorded while {rows} rows went");
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
