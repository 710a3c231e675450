//! Records whose workers died, and may be why: watched, and no burden to the others.

use crate::place::{PATIENCE, Place, call, end, seen, status, worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tidegate_journal::{Go, JobError, Journal, Status};
use tokio::sync::{Notify, Semaphore};

on_both! {
    a_suspect_waits_for_nobody_and_holds_nobody_up,
    suspects_run_one_at_a_time_and_let_others_of_their_method_pass,
    a_suspect_without_a_place_holds_up_no_other_suspect,
    a_suspect_that_its_gate_puts_off_is_not_counted_and_stays_suspect,
}

/// As a record looks after two workers died that had begun it.
const SUSPECT: &str = "UPDATE t_method_limit_log SET lapses = 2, attempts = 1";

/// What was delayed, and is in nobody's hands.
fn make_due(place: &Place, method: &str) {
    let delayed = format!("method_name = '{method}' AND lease_owner IS NULL");
    place.sql(&format!("UPDATE t_method_limit_log SET next_time = create_time WHERE {delayed}"));
}

async fn a_suspect_waits_for_nobody_and_holds_nobody_up(place: &Place) {
    let journal = place.journal().await;
    let hour = Duration::from_secs(3_600);
    let suspect = journal.defer(call("ship", 1).delay(hour)).await.unwrap();
    place.sql(SUSPECT);
    let slow = journal.defer(call("slow", 1)).await.unwrap();
    let began = Arc::new(Notify::new());
    let begins = began.clone();
    let running = worker(&journal)
        .concurrency(4)
        .grace(Duration::ZERO)
        .on("slow", move |_: u32| {
            begins.notify_one();
            async {
                std::future::pending::<()>().await;
                Ok::<_, JobError>(())
            }
        })
        .on("ship", |_: u32| async { Ok::<_, JobError>(()) })
        .start();
    began.notified().await;
    make_due(place, "ship");
    assert_eq!(end(&journal, &suspect).await.status, Status::Done);
    let other = journal.defer(call("ship", 2)).await.unwrap();
    assert_eq!(end(&journal, &other).await.status, Status::Done);
    assert_eq!(status(&journal, &slow).await, Status::Running);
    running.stop().await;
}

async fn suspects_run_one_at_a_time_and_let_others_of_their_method_pass(place: &Place) {
    let journal = place.journal().await;
    for _ in 0..3 {
        journal.defer(call("ship", "suspect").priority(9)).await.unwrap();
    }
    place.sql(SUSPECT);
    let plain = journal.defer(call("ship", "plain")).await.unwrap();
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let go_on = Arc::new(Semaphore::new(0));
    let (counted, busiest, goes_on) = (inside.clone(), most.clone(), go_on.clone());
    let running = worker(&journal)
        .on("ship", move |kind: String| {
            let (inside, most, go_on) = (counted.clone(), busiest.clone(), goes_on.clone());
            async move {
                if kind == "suspect" {
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    go_on.acquire().await.unwrap().forget();
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
                Ok::<_, JobError>(())
            }
        })
        .start();
    seen("one has begun", || inside.load(Ordering::SeqCst) > 0).await;
    assert_eq!(end(&journal, &plain).await.status, Status::Done);
    go_on.add_permits(3);
    seen("all are done", || running.stats().total.done == 4).await;
    running.stop().await;
    assert_eq!(most.load(Ordering::SeqCst), 1);
    assert_eq!(place.count("status = 1 AND attempts = 2 AND lapses = 0"), 3);
}

async fn a_suspect_without_a_place_holds_up_no_other_suspect(place: &Place) {
    let journal = place.journal().await;
    let hour = Duration::from_secs(3_600);
    journal.defer(call("ship", 1).delay(hour)).await.unwrap();
    let bill = journal.defer(call("bill", 1).delay(hour)).await.unwrap();
    place.sql(SUSPECT);
    journal.defer(call("ship", 0)).await.unwrap();
    let running = worker(&journal)
        .concurrency(2)
        .grace(Duration::ZERO)
        .on("ship", |_: u32| std::future::pending::<Result<(), JobError>>())
        .on("bill", |_: u32| async { Ok::<_, JobError>(()) })
        .start();
    seen("the only place of `ship` is taken", || running.stats().held == 1).await;
    make_due(place, "ship");
    seen("its suspect waits", || running.stats().held == 2).await;
    make_due(place, "bill");
    assert_eq!(end(&journal, &bill).await.status, Status::Done);
    running.stop().await;
}

async fn a_suspect_that_its_gate_puts_off_is_not_counted_and_stays_suspect(place: &Place) {
    let journal = place.journal().await;
    for nth in 0..10 {
        journal.defer(call("ship", nth)).await.unwrap();
    }
    place.sql(SUSPECT);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    // Half of what it holds stands aside, and the rest goes back.
    let running = worker(&journal)
        .buffer(4)
        .on("ship", |_: u32| async { Ok::<_, JobError>(()) })
        .gate(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Go::ask_again(Duration::from_millis(30)) }
        })
        .start();
    seen("they are asked again", || asked.load(Ordering::SeqCst) > 20).await;
    seen("some went back", || running.stats().total.picked > 4).await;
    running.stop().await;
    assert_eq!(place.count("status = 0 AND attempts = 1 AND lapses = 2 AND lease_owner IS NULL"), 10);
}

/// What the gate let through has started by the time that it is asked again: no crowd gathers
/// behind it while the database stands still, to start all at once.
#[test]
fn a_suspect_that_the_gate_lets_through_starts_whatever_the_database_does() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let journal = place.open(Journal::builder().patience(PATIENCE)).await.unwrap();
        for nth in 0..20 {
            journal.defer(call("ship", nth)).await.unwrap();
        }
        place.sql("UPDATE t_method_limit_log SET lapses = 1; SELECT 1");
        let open = Arc::new(Semaphore::new(0));
        let (asked, granted) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let started = Arc::new(AtomicUsize::new(0));
        let (opens, asks, grants, starts) = (open.clone(), asked.clone(), granted.clone(), started.clone());
        let running = worker(&journal)
            .on("ship", move |_: u32| {
                starts.fetch_add(1, Ordering::SeqCst);
                async { Ok::<_, JobError>(()) }
            })
            .gate(move |_| {
                let (open, granted) = (opens.clone(), grants.clone());
                asks.fetch_add(1, Ordering::SeqCst);
                async move {
                    open.acquire().await.unwrap().forget();
                    granted.fetch_add(1, Ordering::SeqCst);
                    Go::now()
                }
            })
            .start();
        seen("one is at the gate", || asked.load(Ordering::SeqCst) == 1).await;
        let other = rusqlite::Connection::open(place.path()).unwrap();
        other.busy_timeout(PATIENCE).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        open.add_permits(20);
        seen("it has started", || started.load(Ordering::SeqCst) > 0).await;
        assert_eq!(granted.load(Ordering::SeqCst), 1, "the others are not counted yet, so not asked");
        other.execute_batch("ROLLBACK").unwrap();
        seen("all are done", || running.stats().total.done == 20).await;
        running.stop().await;
        assert_eq!(place.count("status = 1 AND attempts = 1 AND lapses = 0"), 20);
    });
}
