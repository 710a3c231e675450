//! What a worker does with records, and what it leaves alone.

use crate::place::{Crowd, Place, call, end, seen, status, until, worker};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate_journal::{Cancelled, Filter, JobError, Page, Retried, Status};
use tokio::sync::Notify;

on_both! {
    errors_that_may_pass_are_repeated_and_then_the_record_fails_with_the_reason,
    permanent_errors_bad_parameters_and_unwritable_results_are_not_repeated,
    a_panic_counts_as_an_error_and_harms_nobody_else,
    a_poison_record_does_not_hold_others_up,
    methods_whose_handlers_hang_hold_up_no_other,
    the_highest_priority_goes_first_then_the_oldest,
    a_method_with_many_records_does_not_starve_one_with_few,
    a_delayed_record_waits_for_its_time,
    a_running_record_is_cancelled_and_its_result_is_not_entered,
    a_record_whose_cancelled_run_goes_on_can_be_tried_again_and_only_the_new_run_counts,
    two_workers_share_the_work_and_do_each_record_once,
    concurrency_is_bounded,
    a_replay_that_takes_too_long_is_dropped_and_repeated,
    a_pass_takes_each_record_once,
}

async fn errors_that_may_pass_are_repeated_and_then_the_record_fails_with_the_reason(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1).max_attempts(4)).await.unwrap();
    let good = journal.defer(call("ship", 2)).await.unwrap();
    let running = worker(&journal)
        .on_replay("ship", |replay, n: u32| async move {
            if n == 2 && replay.attempt == 3 {
                Ok(n)
            } else {
                Err(JobError::retry(format!("try {}", replay.attempt)))
            }
        })
        .start();
    let record = end(&journal, &guid).await;
    assert_eq!((record.status, record.attempts), (Status::Failed, 4));
    assert_eq!(record.last_error.as_deref(), Some("gave up after 4 attempts: try 4"));
    let record = end(&journal, &good).await;
    assert_eq!((record.status, record.attempts), (Status::Done, 3));
    let pass = running.stop().await;
    assert_eq!((pass.done, pass.failed, pass.retried, pass.picked), (1, 1, 5, 7));
}

async fn permanent_errors_bad_parameters_and_unwritable_results_are_not_repeated(place: &Place) {
    let journal = place.journal().await;
    let wrong = journal.defer(call("ship", "no number")).await.unwrap();
    let never = journal.defer(call("ship", 0)).await.unwrap();
    let large = journal.defer(call("ship", 100_000)).await.unwrap();
    let nul = journal.defer(call("ship", 1)).await.unwrap();
    let running = worker(&journal)
        .on("ship", |n: usize| async move {
            if n == 0 { Err(JobError::permanent("not this one\0")) } else { Ok("\0".repeat(n)) }
        })
        .start();
    let record = end(&journal, &wrong).await;
    assert_eq!((record.status, record.attempts), (Status::Failed, 1));
    let reason = record.last_error.unwrap();
    assert!(reason.starts_with("the parameters do not fit `ship`: invalid type"), "{reason}");
    let record = end(&journal, &never).await;
    assert_eq!(
        (record.status, record.attempts, record.last_error.as_deref()),
        (Status::Failed, 1, Some("not this one"))
    );
    let record = end(&journal, &large).await;
    assert_eq!((record.status, record.result), (Status::Done, None));
    assert!(record.last_error.unwrap().contains("was not kept"));
    assert_eq!(end(&journal, &nul).await.result.as_deref(), Some(r#""\u0000""#));
    running.stop().await;
}

async fn a_panic_counts_as_an_error_and_harms_nobody_else(place: &Place) {
    let journal = place.journal().await;
    let bad = journal.defer(call("ship", 0).max_attempts(2)).await.unwrap();
    let good = journal.defer(call("ship", 1)).await.unwrap();
    let running = worker(&journal)
        .on("ship", |n: u32| async move {
            assert!(n > 0, "nothing to ship");
            Ok::<_, JobError>(n)
        })
        .start();
    let record = end(&journal, &bad).await;
    assert_eq!((record.status, record.attempts), (Status::Failed, 2));
    assert_eq!(
        record.last_error.as_deref(),
        Some("gave up after 2 attempts: the handler panicked: nothing to ship")
    );
    assert_eq!(end(&journal, &good).await.status, Status::Done);
    running.stop().await;
}

async fn a_poison_record_does_not_hold_others_up(place: &Place) {
    let journal = place.journal().await;
    let poison = journal.defer(call("ship", 0).priority(9)).await.unwrap();
    let others = journal.defer(call("bill", 0)).await.unwrap();
    let mut guids = Vec::new();
    for nth in 1..50 {
        guids.push(journal.defer(call("ship", nth)).await.unwrap());
    }
    let running = worker(&journal)
        .concurrency(3)
        .on("ship", |n: u32| async move {
            if n == 0 {
                std::future::pending::<()>().await;
            }
            Ok::<_, JobError>(n)
        })
        .on("bill", |n: u32| async move { Ok::<_, JobError>(n) })
        .grace(Duration::ZERO)
        .start();
    for guid in guids.iter().chain([&others]) {
        assert_eq!(end(&journal, guid).await.status, Status::Done);
    }
    assert_eq!(status(&journal, &poison).await, Status::Running);
    running.stop().await;
    assert_eq!(status(&journal, &poison).await, Status::Pending, "given back");
}

async fn methods_whose_handlers_hang_hold_up_no_other(place: &Place) {
    let journal = place.journal().await;
    for nth in 0..20 {
        journal.defer(call("ship", nth)).await.unwrap();
        journal.defer(call("pack", nth)).await.unwrap();
    }
    let begun = Arc::new(AtomicUsize::new(0));
    let hang = || {
        let begun = begun.clone();
        move |_: u32| {
            begun.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<Result<(), JobError>>()
        }
    };
    let running = worker(&journal)
        .concurrency(8)
        .on("ship", hang())
        .on("pack", hang())
        .on("bill", |_: u32| async { Ok::<_, JobError>(()) })
        .grace(Duration::ZERO)
        .start();
    seen("all places but one hang", || begun.load(Ordering::SeqCst) >= 7).await;
    for nth in 0..5 {
        let bill = journal.defer(call("bill", nth)).await.unwrap();
        assert_eq!(end(&journal, &bill).await.status, Status::Done);
    }
    assert_eq!(begun.load(Ordering::SeqCst), 7);
    running.stop().await;
}

async fn the_highest_priority_goes_first_then_the_oldest(place: &Place) {
    let journal = place.journal().await;
    for (nth, priority) in [5, 0, 9, 5, 9, 0].into_iter().enumerate() {
        journal.defer(call("ship", nth).priority(priority)).await.unwrap();
    }
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = order.clone();
    let ship = move |nth: usize| {
        seen.lock().unwrap().push(nth);
        async { Ok::<_, JobError>(()) }
    };
    worker(&journal).concurrency(1).on("ship", ship).run_once().await.unwrap();
    assert_eq!(*order.lock().unwrap(), [2, 4, 0, 3, 1, 5]);
    // A worker with room for one takes them in the same order.
    for (nth, priority) in [5, 0, 9].into_iter().enumerate() {
        journal.defer(call("ship", nth).priority(priority)).await.unwrap();
    }
    order.lock().unwrap().clear();
    let seen = order.clone();
    let ship = move |nth: usize| {
        seen.lock().unwrap().push(nth);
        async { Ok::<_, JobError>(()) }
    };
    worker(&journal).buffer(1).on("ship", ship).run_once().await.unwrap();
    assert_eq!(*order.lock().unwrap(), [2, 0, 1]);
}

async fn a_method_with_many_records_does_not_starve_one_with_few(place: &Place) {
    let journal = place.journal().await;
    let calls: Vec<_> = (0..400u32).map(|nth| journal.defer(call("many", nth).priority(9))).collect();
    futures_util::future::join_all(calls).await;
    let few = journal.defer(call("few", 0).priority(0)).await.unwrap();
    let (before, count) = (Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(0)));
    let (seen, counted) = (before.clone(), count.clone());
    let pass = worker(&journal)
        .buffer(20)
        .concurrency(1)
        .on("many", move |_: u32| {
            counted.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, JobError>(()) }
        })
        .on("few", move |_: u32| {
            *seen.lock().unwrap() = Some(count.load(Ordering::SeqCst));
            async { Ok::<_, JobError>(()) }
        })
        .run_once()
        .await
        .unwrap();
    assert_eq!((pass.done, status(&journal, &few).await), (401, Status::Done));
    let before = before.lock().unwrap().unwrap();
    assert!(before < 40, "{before} of the others came first");
}

async fn a_delayed_record_waits_for_its_time(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1).delay(Duration::from_secs(3_600))).await.unwrap();
    let ship = || worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) });
    assert_eq!(ship().run_once().await.unwrap().picked, 0);
    assert_eq!(status(&journal, &guid).await, Status::Pending);
    place.age(&["next_time"], Duration::from_secs(3_601));
    assert_eq!(ship().run_once().await.unwrap().done, 1);
}

async fn a_running_record_is_cancelled_and_its_result_is_not_entered(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1)).await.unwrap();
    let (began, dropped) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (begins, drops) = (began.clone(), dropped.clone());
    let running = worker(&journal)
        .on("ship", move |_: u32| {
            let (begins, drops) = (begins.clone(), OnDrop(drops.clone()));
            async move {
                let _drops = drops;
                begins.notify_one();
                std::future::pending::<()>().await;
                Ok::<_, JobError>(())
            }
        })
        .start();
    began.notified().await;
    assert_eq!(status(&journal, &guid).await, Status::Running);
    assert_eq!(journal.list(Filter::all().status(Status::Running), Page::first(9)).await.unwrap().len(), 1);
    assert_eq!(journal.cancel(&guid).await.unwrap(), Cancelled::Running);
    until("its handler stops", async || (dropped.load(Ordering::SeqCst) == 1).then_some(())).await;
    until("nothing is held", async || (running.stats().held == 0).then_some(())).await;
    assert_eq!(running.stats().lost, 1);
    assert_eq!(status(&journal, &guid).await, Status::Cancelled);
    assert_eq!(running.stop().await.done, 0);
}

struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

async fn a_record_whose_cancelled_run_goes_on_can_be_tried_again_and_only_the_new_run_counts(place: &Place) {
    let (here, there) = (place.journal().await, place.journal().await);
    let guid = here.defer(call("ship", 1)).await.unwrap();
    let (began, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, goes_on) = (began.clone(), go_on.clone());
    // Another process's worker, which does not hear of the cancellation before its next beat.
    let old = worker(&there)
        .lease(Duration::from_secs(3_600))
        .on_replay("ship", move |replay, _: u32| {
            let (begins, goes_on) = (begins.clone(), goes_on.clone());
            async move {
                begins.notify_one();
                goes_on.notified().await;
                Ok::<_, JobError>(format!("lease {}", replay.lease))
            }
        })
        .start();
    began.notified().await;
    assert_eq!(here.cancel(&guid).await.unwrap(), Cancelled::Running);
    assert_eq!(here.retry(&guid).await.unwrap(), Retried::Pending);
    // The old run ends now, and must not be taken for the new one.
    go_on.notify_one();
    until("the old run was refused", async || (old.stats().lost == 1).then_some(())).await;
    let record = here.find(&guid).await.unwrap().unwrap();
    assert!(!record.status.has_ended() && record.result.is_none(), "{record:?}");
    go_on.notify_one();
    let record = end(&here, &guid).await;
    assert_eq!((record.status, record.result.as_deref()), (Status::Done, Some(r#""lease 4""#)));
    old.stop().await;
}

async fn two_workers_share_the_work_and_do_each_record_once(place: &Place) {
    let (here, there) = (place.journal().await, place.journal().await);
    let calls: Vec<_> = (0..600u32).map(|nth| here.defer(call("ship", nth))).collect();
    futures_util::future::join_all(calls).await;
    let runs: Arc<Vec<AtomicUsize>> = Arc::new((0..600).map(|_| AtomicUsize::new(0)).collect());
    // Nobody goes on before both have begun.
    let begun: Arc<[AtomicUsize; 2]> = Arc::default();
    let start = |journal, which: usize| {
        let (runs, begun) = (runs.clone(), begun.clone());
        worker(journal)
            .buffer(16)
            .on("ship", move |nth: usize| {
                runs[nth].fetch_add(1, Ordering::SeqCst);
                let begun = begun.clone();
                async move {
                    begun[which].fetch_add(1, Ordering::SeqCst);
                    let has_begun = || begun.iter().all(|begun| begun.load(Ordering::SeqCst) > 0);
                    seen("both have begun", has_begun).await;
                    Ok::<_, JobError>(())
                }
            })
            .start()
    };
    let (one, other) = (start(&here, 0), start(&there, 1));
    until("all is done", async || (here.stats().await.unwrap().pending == 0).then_some(())).await;
    let (one, other) = (one.stop().await, other.stop().await);
    assert_eq!(one.done + other.done, 600);
    assert!(runs.iter().all(|runs| runs.load(Ordering::SeqCst) == 1));
    assert!(one.done > 0 && other.done > 0, "{one}; {other}");
}

async fn concurrency_is_bounded(place: &Place) {
    let journal = place.journal().await;
    for nth in 0..60 {
        journal.defer(call("ship", nth)).await.unwrap();
    }
    let crowd = Crowd::of(5);
    let inside = crowd.clone();
    let ship = move |_: u32| {
        let inside = inside.clone();
        async move {
            inside.meet().await;
            Ok::<_, JobError>(())
        }
    };
    let pass = worker(&journal).concurrency(5).on("ship", ship).run_once().await.unwrap();
    assert_eq!(pass.done, 60);
    assert_eq!(crowd.most(), 5, "all that is allowed, and no more");
}

async fn a_replay_that_takes_too_long_is_dropped_and_repeated(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1).max_attempts(2)).await.unwrap();
    let running = worker(&journal)
        .replay_max(Duration::from_millis(10))
        .on("ship", |_: u32| async {
            std::future::pending::<()>().await;
            Ok::<_, JobError>(())
        })
        .start();
    let record = end(&journal, &guid).await;
    assert_eq!((record.status, record.attempts), (Status::Failed, 2));
    assert_eq!(record.last_error.as_deref(), Some("gave up after 2 attempts: it took longer than 10ms"));
    running.stop().await;
}

async fn a_pass_takes_each_record_once(place: &Place) {
    let journal = place.journal().await;
    for nth in 0..30 {
        journal.defer(call("ship", nth)).await.unwrap();
    }
    let worker = worker(&journal)
        .backoff(Duration::ZERO, Duration::ZERO)
        .max_attempts(2)
        .on("ship", |n: u32| async move {
            if n.is_multiple_of(3) { Err(JobError::retry("odd")) } else { Ok(()) }
        });
    let pass = worker.run_once().await.unwrap();
    assert_eq!((pass.picked, pass.done, pass.retried, pass.failed), (30, 20, 10, 0));
    assert_eq!(pass.to_string(), "picked 30, done 20, failed 0, retried 10, expired 0, purged 0");
    let pass = worker.run_once().await.unwrap();
    assert_eq!((pass.picked, pass.failed), (10, 10));
    assert_eq!(worker.run_once().await.unwrap().picked, 0);
    assert_eq!(worker.stats().total.picked, 40);
}

#[test]
#[should_panic(expected = "two handlers for `ship`: give each method a name of its own")]
fn a_second_handler_of_the_same_name_is_refused() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let ship = |_: u32| async { Ok::<_, JobError>(()) };
        let _ = worker(&place.journal().await).on("ship", ship).on("ship", ship);
    });
}
