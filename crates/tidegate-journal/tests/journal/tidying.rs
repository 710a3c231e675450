//! What never gets to run: methods that nobody knows, and deadlines that pass. They end all the
//! same, whatever else has to be tidied.

use crate::place::{Place, call, end, status, until, worker};
use std::sync::Arc;
use std::time::Duration;
use tidegate_journal::{Go, JobError, Retried, Schedule, Status};
use tokio::sync::Semaphore;

on_both! {
    a_worker_leaves_methods_alone_that_it_does_not_know,
    a_method_that_nobody_knows_fails_after_its_time_and_a_known_one_does_not,
    a_method_that_nobody_knows_fails_by_rare_passes_too,
    a_purge_without_end_keeps_nothing_else_from_being_tidied,
    intervals_without_end_stop_no_worker,
    a_deadline_expires_what_has_not_started_also_at_the_gate,
}

async fn a_worker_leaves_methods_alone_that_it_does_not_know(place: &Place) {
    let journal = place.journal().await;
    let strange = journal.defer(call("strange", 1)).await.unwrap();
    let known = journal.defer(call("known", 1)).await.unwrap();
    let pass =
        worker(&journal).on("known", |_: u32| async { Ok::<_, JobError>(()) }).run_once().await.unwrap();
    assert_eq!((pass.picked, pass.failed), (1, 0));
    assert_eq!(status(&journal, &known).await, Status::Done);
    let record = journal.find(&strange).await.unwrap().unwrap();
    assert_eq!((record.status, record.attempts), (Status::Pending, 0));
}

async fn a_method_that_nobody_knows_fails_after_its_time_and_a_known_one_does_not(place: &Place) {
    let journal = place.journal().await;
    let strange = journal.defer(call("strange", 1)).await.unwrap();
    let later = journal.defer(call("strange", 2).delay(Duration::from_secs(3_600))).await.unwrap();
    let elsewhere = journal.defer(call("elsewhere", 1)).await.unwrap();
    let hour = Duration::from_millis(300);
    let stalled = Arc::new(Semaphore::new(0));
    let busy = stalled.clone();
    // Another node knows this method, and is busy with it.
    let other = worker(&journal).orphan_after(hour).grace(Duration::ZERO).on("elsewhere", move |_: u32| {
        let busy = busy.clone();
        async move {
            busy.acquire().await.unwrap().forget();
            Ok::<_, JobError>(())
        }
    });
    let other = other.start();
    let running =
        worker(&journal).orphan_after(hour).on("known", |_: u32| async { Ok::<_, JobError>(()) }).start();
    let record = end(&journal, &strange).await;
    assert_eq!(record.status, Status::Failed);
    let reason = record.last_error.unwrap();
    assert!(reason.starts_with("no worker knows this method, and none did for 300ms"), "{reason}");
    assert_eq!(status(&journal, &later).await, Status::Pending, "its time has not come");
    assert_eq!(status(&journal, &elsewhere).await, Status::Running);
    assert_eq!(journal.retry(&strange).await.unwrap(), Retried::Pending);
    stalled.add_permits(1);
    assert_eq!(end(&journal, &elsewhere).await.status, Status::Done);
    // Whichever of them looked first.
    let failed = || other.stats().total.failed + running.stats().total.failed;
    until("it is counted", async || (failed() >= 1).then_some(())).await;
    other.stop().await;
    running.stop().await;
}

async fn a_method_that_nobody_knows_fails_by_rare_passes_too(place: &Place) {
    let journal = place.journal().await;
    let strange = journal.defer(call("strange", 1)).await.unwrap();
    let elsewhere = journal.defer(call("elsewhere", 1)).await.unwrap();
    let hour = Duration::from_secs(3_600);
    let pass = async |method: &str| {
        let ship = |_: u32| async { Err::<(), _>(JobError::retry("not now")) };
        worker(&journal)
            .orphan_after(hour)
            .backoff(2 * hour, 2 * hour)
            .on(method, ship)
            .run_once()
            .await
            .unwrap()
    };
    // Two jobs take turns, each less often than once in that time, and each knows one method.
    assert_eq!(pass("known").await.failed, 0, "missed for the first time");
    assert_eq!(pass("elsewhere").await.failed, 0);
    place.age(&["next_time"], 2 * hour);
    let older = if place.is_sqlite() { "- 7200000000" } else { "- interval '2 hours'" };
    for column in ["seen_time", "missed_since", "missed_time"] {
        place.sql(&format!("UPDATE t_method_limit_log_method SET {column} = {column} {older}"));
    }
    assert_eq!(pass("known").await.failed, 1, "missed again; the other was known in between");
    let record = journal.find(&strange).await.unwrap().unwrap();
    assert_eq!(record.status, Status::Failed);
    assert!(record.last_error.unwrap().starts_with("no worker knows this method"));
    assert_eq!(status(&journal, &elsewhere).await, Status::Pending);
}

async fn a_purge_without_end_keeps_nothing_else_from_being_tidied(place: &Place) {
    let journal = place.journal().await;
    // For each record that goes, another old one comes.
    place.sql(if place.is_sqlite() {
        "CREATE TRIGGER endless AFTER DELETE ON t_method_limit_log
         BEGIN INSERT INTO t_method_limit_log (guid, status, create_time, update_time)
           VALUES (lower(hex(randomblob(16))), 1, 0, 0); END;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)
         INSERT INTO t_method_limit_log (guid, status, create_time, update_time) SELECT 'old-' || i, 1, 0, 0 FROM n"
    } else {
        "CREATE FUNCTION endless() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN INSERT INTO t_method_limit_log (guid, status, create_time, update_time)
                VALUES (md5(random()::text), 1, to_timestamp(0), to_timestamp(0)); RETURN NULL; END $$;
         CREATE TRIGGER endless AFTER DELETE ON t_method_limit_log FOR EACH ROW EXECUTE FUNCTION endless();
         INSERT INTO t_method_limit_log (guid, status, create_time, update_time)
           SELECT 'old-' || i, 1, to_timestamp(0), to_timestamp(0) FROM generate_series(1, 1500) i"
    });
    let running = worker(&journal)
        .orphan_after(Duration::from_millis(300))
        .purge(Schedule::every(Duration::from_millis(1)))
        .on("known", |_: u32| async { Ok::<_, JobError>(()) })
        .start();
    let is_under_way = async || (place.count("guid LIKE 'old-%'") < 1_500).then_some(());
    until("the purge is under way", is_under_way).await;
    let strange = journal.defer(call("strange", 1)).await.unwrap();
    let late = journal.defer(call("strange", 2).deadline_in(Duration::ZERO)).await.unwrap();
    assert_eq!(end(&journal, &late).await.status, Status::Expired);
    assert_eq!(end(&journal, &strange).await.status, Status::Failed);
    running.stop().await;
}

async fn intervals_without_end_stop_no_worker(place: &Place) {
    let journal = place.journal().await;
    let running = worker(&journal)
        .poll(Duration::MAX)
        .purge(Schedule::every(Duration::MAX))
        .orphan_after(Duration::from_millis(300))
        .on("ship", |_: u32| async { Ok::<_, JobError>(()) })
        .start();
    let guid = journal.defer(call("ship", 1)).await.unwrap();
    assert_eq!(end(&journal, &guid).await.status, Status::Done);
    let late = journal.defer(call("strange", 1).deadline_in(Duration::ZERO)).await.unwrap();
    assert_eq!(end(&journal, &late).await.status, Status::Expired, "it is tidied, too");
    assert_eq!(running.stop().await.done, 1);
}

async fn a_deadline_expires_what_has_not_started_also_at_the_gate(place: &Place) {
    let journal = place.journal().await;
    let at_gate = journal.defer(call("ship", 1).deadline_in(Duration::from_millis(300))).await.unwrap();
    let behind = journal.defer(call("ship", 2).deadline_in(Duration::from_millis(300))).await.unwrap();
    let unknown = journal.defer(call("strange", 1).deadline_in(Duration::ZERO)).await.unwrap();
    let running = worker(&journal)
        .on("ship", |_: u32| async { Ok::<_, JobError>(()) })
        .gate(|_| async { Go::ask_again(Duration::from_millis(10)) })
        .start();
    for guid in [&at_gate, &behind, &unknown] {
        let record = end(&journal, guid).await;
        assert_eq!(record.status, Status::Expired);
        assert_eq!(record.last_error.as_deref(), Some("its deadline passed before it could start"));
    }
    let pass = running.stop().await;
    assert_eq!((pass.expired, pass.done), (3, 0));
    assert_eq!(journal.stats().await.unwrap().pending, 0);
}
