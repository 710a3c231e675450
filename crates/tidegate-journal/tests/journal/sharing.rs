//! Several workers beside each other: none keeps from the others what it cannot run itself.

use crate::place::{Place, call, end, seen, status, until, worker};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_journal::{Guid, JobError, Journal, Status, Worker};
use tokio::sync::Semaphore;

on_both! {
    a_long_pass_goes_on_telling_what_it_knows,
    a_high_priority_overtakes_what_is_held,
    two_workers_share_slow_work_from_the_beginning,
    handlers_that_hang_do_not_keep_the_others,
    a_pass_whose_handlers_are_slower_than_its_lease_still_runs_all_that_was_due,
    a_pass_that_is_dropped_lets_go_of_what_it_ran,
    what_is_deferred_wakes_every_worker_of_the_process,
    what_ended_without_being_picked_is_counted_by_its_method,
    what_was_tried_and_then_expires_or_is_orphaned_keeps_its_error,
}

async fn defer_all(journal: &Journal, method: &str, records: usize) -> Vec<Guid> {
    let calls: Vec<_> = (0..records).map(|nth| journal.defer(call(method, nth))).collect();
    futures_util::future::join_all(calls).await.into_iter().map(Result::unwrap).collect()
}

/// A handler that waits for a permit for each replay.
fn stalled(open: &Arc<Semaphore>, begun: &Arc<AtomicUsize>) -> impl Fn(usize) -> Stalled + Clone + use<> {
    let (open, begun) = (open.clone(), begun.clone());
    move |_| {
        begun.fetch_add(1, Ordering::SeqCst);
        let open = open.clone();
        Box::pin(async move {
            open.acquire().await.unwrap().forget();
            Ok(())
        })
    }
}

type Stalled = std::pin::Pin<Box<dyn Future<Output = Result<(), JobError>> + Send>>;

async fn a_long_pass_goes_on_telling_what_it_knows(place: &Place) {
    let journal = place.journal().await;
    let guids = defer_all(&journal, "slow", 20).await;
    let hour = Duration::from_secs(1);
    let (open, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let slow =
        worker(&journal).orphan_after(hour).concurrency(1).buffer(2).on("slow", stalled(&open, &begun));
    let pass = tokio::spawn(async move { slow.run_once().await.unwrap() });
    seen("it has begun", || begun.load(Ordering::SeqCst) == 1).await;
    let other = worker(&journal).orphan_after(hour).on("other", |_: usize| async { Ok::<_, JobError>(()) });
    let other = other.start();
    // Looks that would miss it, had it been silent: an unknown method has failed twice by then.
    for _ in 0..2 {
        let strange = journal.defer(call("strange", 1)).await.unwrap();
        assert_eq!(end(&journal, &strange).await.status, Status::Failed);
    }
    open.add_permits(20);
    let pass = pass.await.unwrap();
    assert_eq!((pass.picked, pass.done, other.stop().await.failed), (20, 20, 2));
    for guid in &guids {
        assert_eq!(status(&journal, guid).await, Status::Done);
    }
}

async fn a_high_priority_overtakes_what_is_held(place: &Place) {
    let journal = place.journal().await;
    defer_all(&journal, "ship", 1_000).await;
    let (open, begun) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let order = Arc::new(Mutex::new(Vec::new()));
    let (noted, ship) = (order.clone(), stalled(&open, &begun));
    let running = Worker::new(&journal)
        .grace(Duration::ZERO)
        .on("ship", move |nth: usize| {
            noted.lock().unwrap().push(nth);
            ship(nth)
        })
        .start();
    seen("all places are taken", || begun.load(Ordering::SeqCst) == 64).await;
    let urgent = journal.defer(call("ship", 7_777).priority(9)).await.unwrap();
    open.add_permits(1);
    until("it is in hand", async || (status(&journal, &urgent).await != Status::Pending).then_some(())).await;
    // It is dealt a moment after the database says so: a few may still come before it, not all.
    for nth in 66..72 {
        open.add_permits(1);
        seen("the next has begun", || begun.load(Ordering::SeqCst) == nth).await;
    }
    assert!(order.lock().unwrap().contains(&7_777), "behind all that are held");
    running.stop().await;
}

async fn two_workers_share_slow_work_from_the_beginning(place: &Place) {
    let journal = place.journal().await;
    defer_all(&journal, "ship", 1_000).await;
    let open = Arc::new(Semaphore::new(0));
    let begun = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
    let start = |nth: usize| {
        Worker::new(&journal).grace(Duration::ZERO).on("ship", stalled(&open, &begun[nth])).start()
    };
    let first = start(0);
    seen("the first is busy", || begun[0].load(Ordering::SeqCst) == 64).await;
    let second = start(1);
    seen("the second is busy", || begun[1].load(Ordering::SeqCst) == 64).await;
    let held = first.stats().held;
    assert!(held < 200, "{held} records in the hands of one that runs 64");
    open.add_permits(1_000);
    until("all are done", async || (place.count("status = 1") == 1_000).then_some(())).await;
    let done = [first.stop().await.done, second.stop().await.done];
    assert_eq!(done[0] + done[1], 1_000);
    assert!(done.iter().all(|done| *done >= 64), "{done:?}");
}

async fn handlers_that_hang_do_not_keep_the_others(place: &Place) {
    let journal = place.journal().await;
    defer_all(&journal, "ship", 60).await;
    let begun = Arc::new(AtomicUsize::new(0));
    let hangs = || Worker::new(&journal).lease(Duration::from_secs(2)).grace(Duration::ZERO).concurrency(8);
    let hanging = hangs().on("ship", stalled(&Arc::new(Semaphore::new(0)), &begun)).start();
    seen("all its places hang", || begun.load(Ordering::SeqCst) == 8).await;
    until("it holds more than it runs", async || (hanging.stats().held > 8).then_some(())).await;
    // Nobody else is there yet, and still it lets go of them.
    until("they are given back", async || (hanging.stats().held == 8).then_some(())).await;
    let healthy = hangs().on("ship", |_: usize| async { Ok::<_, JobError>(()) }).start();
    until("all others are done", async || (place.count("status = 1") == 52).then_some(())).await;
    assert_eq!((begun.load(Ordering::SeqCst), hanging.stats().held), (8, 8));
    healthy.stop().await;
    hanging.stop().await;
    assert_eq!(place.count("status = 0 AND attempts = 0 AND lapses = 0"), 8);
}

async fn a_pass_whose_handlers_are_slower_than_its_lease_still_runs_all_that_was_due(place: &Place) {
    let journal = place.journal().await;
    defer_all(&journal, "ship", 5).await;
    // Long enough for a busy machine to prolong it in time.
    let slow = worker(&journal).lease(Duration::from_secs(3)).concurrency(2);
    let slow = slow.on("ship", |_: usize| async {
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        Ok::<_, JobError>(())
    });
    let pass = slow.run_once().await.unwrap();
    assert_eq!((pass.done, place.count("status = 1 AND attempts = 1")), (5, 5));
    assert!(pass.picked > 5, "some went back, and were taken up again: {pass}");
}

async fn a_pass_that_is_dropped_lets_go_of_what_it_ran(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1)).await.unwrap();
    let begun = Arc::new(AtomicUsize::new(0));
    let alive = Arc::new(());
    let (noted, held) = (begun.clone(), alive.clone());
    let hanging = worker(&journal).lease(Duration::from_millis(300)).on("ship", move |_: usize| {
        let held = held.clone();
        noted.fetch_add(1, Ordering::SeqCst);
        async move {
            let _held = held;
            std::future::pending::<Result<(), JobError>>().await
        }
    });
    tokio::select! {
        pass = hanging.run_once() => panic!("it hangs: {pass:?}"),
        () = seen("it has begun", || begun.load(Ordering::SeqCst) == 1) => {}
    }
    drop(hanging);
    seen("its handler is dropped", || Arc::strong_count(&alive) == 1).await;
    let running = worker(&journal).on("ship", |_: usize| async { Ok::<_, JobError>(()) }).start();
    assert_eq!(end(&journal, &guid).await.status, Status::Done);
    running.stop().await;
}

async fn what_is_deferred_wakes_every_worker_of_the_process(place: &Place) {
    let journal = place.journal().await;
    let long = Duration::from_secs(86_400);
    let start = |method: &str| {
        Worker::new(&journal).poll(long).on(method, |_: usize| async { Ok::<_, JobError>(()) }).start()
    };
    let all = [start("ship"), start("pack"), start("bill")];
    for _ in 0..5 {
        for method in ["bill", "pack", "ship"] {
            let guid = journal.defer(call(method, 1)).await.unwrap();
            assert_eq!(end(&journal, &guid).await.status, Status::Done);
        }
    }
    for running in all {
        running.stop().await;
    }
}

async fn what_ended_without_being_picked_is_counted_by_its_method(place: &Place) {
    let journal = place.journal().await;
    let ship = |worker: Worker| worker.on("ship", |_: usize| async { Ok::<_, JobError>(()) });
    journal.defer(call("ship", 1)).await.unwrap();
    journal.defer(call("ship", 2).deadline_in(Duration::ZERO)).await.unwrap();
    let passes = ship(worker(&journal));
    passes.run_once().await.unwrap();
    let stats = passes.stats();
    let shipped = stats.methods["ship"];
    assert_eq!((shipped.picked, shipped.done, shipped.expired), (1, 1, 1), "{stats:?}");

    journal.defer(call("strange", 1)).await.unwrap();
    journal.defer(call("late", 1).deadline_in(Duration::ZERO)).await.unwrap();
    let running = ship(worker(&journal)).orphan_after(Duration::from_millis(200)).start();
    until("both are counted", async || {
        let methods = running.stats().methods;
        let is_counted = methods.get("strange").is_some_and(|pass| pass.failed == 1)
            && methods.get("late").is_some_and(|pass| pass.expired == 1);
        is_counted.then_some(())
    })
    .await;
    running.stop().await;
}

async fn what_was_tried_and_then_expires_or_is_orphaned_keeps_its_error(place: &Place) {
    let journal = place.journal().await;
    let expiring = journal.defer(call("ship", 1).deadline_in(Duration::from_secs(3_600))).await.unwrap();
    let orphan = journal.defer(call("ship", 2)).await.unwrap();
    let untried = journal.defer(call("other", 3).deadline_in(Duration::ZERO)).await.unwrap();
    let long = Duration::from_secs(3_600);
    let tries = worker(&journal)
        .backoff(long, long)
        .on("ship", |_: usize| async { Err::<(), _>(JobError::retry("the service is down")) });
    assert_eq!(tries.run_once().await.unwrap().retried, 2);
    place.age(&["deadline", "next_time"], 2 * long);
    journal.expire().await.unwrap();
    let error = |record: tidegate_journal::Record| record.last_error.unwrap();
    assert_eq!(
        error(end(&journal, &expiring).await),
        "its deadline passed before it could start again; last error: the service is down"
    );
    assert_eq!(error(end(&journal, &untried).await), "its deadline passed before it could start");
    let looks = worker(&journal).orphan_after(Duration::from_millis(200));
    let looks = looks.on("known", |_: usize| async { Ok::<_, JobError>(()) }).start();
    let record = end(&journal, &orphan).await;
    assert_eq!(record.status, Status::Failed);
    let error = error(record);
    assert!(error.starts_with("no worker knows this method"), "{error}");
    assert!(error.ends_with("; last error: the service is down"), "{error}");
    looks.stop().await;
}
