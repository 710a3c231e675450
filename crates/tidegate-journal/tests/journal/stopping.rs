//! Workers that stop, and leases that live for as long as they are needed.

use crate::place::{PATIENCE, Place, call, end, status, until, worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidegate_journal::{Go, JobError, Journal, Status};
use tokio::sync::{Notify, Semaphore};

on_both! {
    stopping_gives_back_what_has_not_started_and_lets_the_rest_finish,
    what_does_not_finish_in_its_grace_is_given_back,
    a_worker_that_is_dropped_gives_back_what_it_holds,
    a_lease_is_kept_alive_for_as_long_as_its_handler_runs,
    a_pass_that_is_cut_short_gives_back_what_has_not_started,
}

async fn stopping_gives_back_what_has_not_started_and_lets_the_rest_finish(place: &Place) {
    let journal = place.journal().await;
    for nth in 0..20 {
        journal.defer(call("ship", nth)).await.unwrap();
    }
    let (began, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (begins, goes_on) = (began.clone(), go_on.clone());
    let running = worker(&journal)
        .concurrency(2)
        .on("ship", move |_: u32| {
            let (begins, goes_on) = (begins.clone(), goes_on.clone());
            async move {
                begins.add_permits(1);
                goes_on.acquire().await.unwrap().forget();
                Ok::<_, JobError>(())
            }
        })
        .start();
    began.acquire_many(2).await.unwrap().forget();
    until("more are in hand", async || (running.stats().held > 2).then_some(())).await;
    let stopping = tokio::spawn(running.stop());
    until("what has not started is back", async || (place.count("lease_owner IS NULL") == 18).then_some(()))
        .await;
    go_on.add_permits(2);
    let pass = stopping.await.unwrap();
    assert_eq!((pass.done, pass.retried, pass.failed), (2, 0, 0));
    assert_eq!(
        place.count("status = 0 AND attempts = 0 AND lease_until IS NULL"),
        18,
        "not counted as attempts"
    );
    assert_eq!(place.count("status = 1"), 2);
    // And at once for others.
    let pass =
        worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) }).run_once().await.unwrap();
    assert_eq!(pass.done, 18);
}

async fn what_does_not_finish_in_its_grace_is_given_back(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1).max_attempts(1)).await.unwrap();
    let suspect = journal.defer(call("ship", 2).max_attempts(1)).await.unwrap();
    place.sql(&format!("UPDATE t_method_limit_log SET lapses = 1 WHERE guid = '{suspect}'"));
    let began = Arc::new(Semaphore::new(0));
    let begins = began.clone();
    let running = worker(&journal)
        .grace(Duration::from_millis(20))
        .on("ship", move |_: u32| {
            begins.add_permits(1);
            async {
                std::future::pending::<()>().await;
                Ok::<_, JobError>(())
            }
        })
        .start();
    began.acquire_many(2).await.unwrap().forget();
    running.stop().await;
    assert_eq!(
        place.count("status = 0 AND attempts = 0 AND lease_owner IS NULL"),
        2,
        "it was not their fault"
    );
    let ship = worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) });
    assert_eq!(ship.run_once().await.unwrap().done, 2);
    assert_eq!(end(&journal, &guid).await.attempts, 1);
}

async fn a_worker_that_is_dropped_gives_back_what_it_holds(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1)).await.unwrap();
    let running = worker(&journal)
        .on("ship", |_: u32| async { Ok::<_, JobError>(()) })
        .gate(|_| async {
            std::future::pending::<()>().await;
            Go::now()
        })
        .start();
    until("it is in hand", async || (status(&journal, &guid).await == Status::Running).then_some(())).await;
    drop(running);
    until("it is back", async || (status(&journal, &guid).await == Status::Pending).then_some(())).await;
    // And nobody takes it up again, while another worker does what it knows.
    let later = journal.defer(call("ship", 2)).await.unwrap();
    let other = worker(&journal).on("other", |_: u32| async { Ok::<_, JobError>(()) }).start();
    for nth in 0..20 {
        let guid = journal.defer(call("other", nth)).await.unwrap();
        assert_eq!(end(&journal, &guid).await.status, Status::Done);
    }
    other.stop().await;
    assert_eq!(status(&journal, &later).await, Status::Pending);
    assert_eq!(place.count("lease_no > 1"), 0);
}

async fn a_lease_is_kept_alive_for_as_long_as_its_handler_runs(place: &Place) {
    let (here, there) = (place.journal().await, place.journal().await);
    let guid = here.defer(call("ship", 1)).await.unwrap();
    let runs = Arc::new(AtomicUsize::new(0));
    // Long enough for a busy machine to prolong it in time.
    let lease = Duration::from_secs(2);
    let start = |journal| {
        let runs = runs.clone();
        worker(journal)
            .lease(lease)
            .on("ship", move |_: u32| {
                runs.fetch_add(1, Ordering::SeqCst);
                async move {
                    tokio::time::sleep(2 * lease).await;
                    Ok::<_, JobError>(())
                }
            })
            .start()
    };
    let workers = [start(&here), start(&there)];
    let record = end(&here, &guid).await;
    assert_eq!((record.status, record.attempts, runs.load(Ordering::SeqCst)), (Status::Done, 1, 1));
    for worker in workers {
        worker.stop().await;
    }
}

async fn a_pass_that_is_cut_short_gives_back_what_has_not_started(place: &Place) {
    let journal = place.journal().await;
    for nth in 0..20 {
        journal.defer(call("ship", nth)).await.unwrap();
    }
    let (began, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes_on) = (began.clone(), go_on.clone());
    let ship = worker(&journal).concurrency(1).on("ship", move |_: u32| {
        let (begins, goes_on) = (begins.clone(), goes_on.clone());
        async move {
            begins.notify_one();
            goes_on.notified().await;
            Ok::<_, JobError>(())
        }
    });
    let pass = tokio::spawn(async move { ship.run_once_until(began.notified()).await.unwrap() });
    until("what has not started is back", async || {
        (place.count("lease_owner IS NULL AND lease_no = 1") > 0 && place.count("lease_owner IS NULL") == 19)
            .then_some(())
    })
    .await;
    go_on.notify_one();
    let pass = pass.await.unwrap();
    assert_eq!((pass.done, pass.retried), (1, 0));
    assert_eq!(pass.picked, place.count("lease_no = 1"));
    assert_eq!(place.count("status = 0 AND attempts = 0 AND lease_until IS NULL"), 19);
}

/// Somebody else has the record by then: it would run twice at once.
#[test]
fn a_handler_does_not_outlive_its_lease_when_the_database_is_away() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let journal = place.open(Journal::builder().patience(PATIENCE)).await.unwrap();
        let guid = journal.defer(call("ship", 1)).await.unwrap();
        let (began, held) = (Arc::new(Notify::new()), Arc::new(()));
        let (begins, holds) = (began.clone(), held.clone());
        let running = worker(&journal)
            .lease(Duration::from_millis(300))
            .on("ship", move |_: u32| {
                let (begins, holds) = (begins.clone(), holds.clone());
                async move {
                    begins.notify_one();
                    std::future::pending::<()>().await;
                    drop(holds);
                    Ok::<_, JobError>(())
                }
            })
            .start();
        began.notified().await;
        // From now on no sign of life gets through, nor an answer that it does not.
        let other = rusqlite::Connection::open(place.path()).unwrap();
        other.busy_timeout(PATIENCE).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        until("it is stopped", async || (Arc::strong_count(&held) == 2).then_some(())).await;
        assert_eq!(running.stats().lost, 1);
        other.execute_batch("ROLLBACK").unwrap();
        journal.cancel(&guid).await.unwrap();
        running.stop().await;
    });
}
