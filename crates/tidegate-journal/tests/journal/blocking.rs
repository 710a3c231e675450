//! Code that is not async: it waits on its thread, and holds its place for as long as it runs.

use crate::place::{Place, call, end, seen, status, worker};
use crate::shop::Shop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tidegate_journal::{Call, DeferError, JobError, Journal, Status};

on_both! {
    many_calls_within_one_task_do_not_use_up_its_turn,
    a_call_that_cannot_wait_is_counted_as_failed,
    a_replay_on_a_thread_keeps_its_place_and_its_record_until_it_ends,
    a_thread_can_ask_whether_its_record_was_cancelled,
}

/// More than tokio lets be ready in one turn of a task.
const MANY: u32 = 200;

fn defer_many(journal: &Journal) -> usize {
    (0..MANY).filter(|nth| journal.defer_blocking(call("ship", nth)).is_ok()).count()
}

async fn many_calls_within_one_task_do_not_use_up_its_turn(place: &Place) {
    let journal = place.journal().await;
    let within = journal.clone();
    assert_eq!(tokio::spawn(async move { defer_many(&within) }).await.unwrap(), MANY as usize);
    if place.is_sqlite() {
        let within = journal.clone();
        let one = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async { tokio::spawn(async move { defer_many(&within) }).await.unwrap() })
        });
        assert_eq!(one.await.unwrap(), MANY as usize);
    }
}

async fn a_call_that_cannot_wait_is_counted_as_failed(place: &Place) {
    let journal = place.journal().await;
    let within = journal.clone();
    let one = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { within.defer_blocking(Call::new("ship", &1).unwrap()) })
    });
    let deferred = one.await.unwrap();
    let stats = journal.stats().await.unwrap();
    if place.is_sqlite() {
        assert!(deferred.is_ok() && (stats.deferred, stats.failed) == (1, 0), "{deferred:?} {stats:?}");
    } else {
        assert!(matches!(deferred, Err(DeferError::OneThread)), "{deferred:?}");
        assert_eq!((stats.deferred, stats.failed), (0, 1));
    }
}

/// A thread cannot be stopped. Its record went back when its time was over, and ran beside it.
async fn a_replay_on_a_thread_keeps_its_place_and_its_record_until_it_ends(place: &Place) {
    let shop = Shop::new(place.journal().await);
    let live = tokio::task::spawn_blocking({
        let shop = shop.clone();
        move || shop.weigh(1)
    });
    seen("the only place is taken", || shop.weighing() == 1).await;
    let refused = || {
        let shop = shop.clone();
        async { tokio::task::spawn_blocking(move || shop.weigh(2)).await.unwrap() }
    };
    let guid = refused().await.unwrap_err().guid();
    let running = worker(&shop.journal)
        .max_attempts(2)
        .replay_max(Duration::from_millis(50))
        .with(Shop::weigh_deferred(shop.clone()))
        .start();
    shop.open.add_permits(1);
    live.await.unwrap().unwrap();
    seen("its time is over, as it can tell", || shop.is_stale.load(SeqCst)).await;
    // Its thread is still inside: there is no place for anybody else, and nobody else has its record.
    assert_eq!((shop.weighing(), status(&shop.journal, &guid).await), (1, Status::Running));
    refused().await.unwrap_err().guid();
    assert_eq!((shop.weighing(), place.count("attempts > 0")), (1, 0));
    shop.open.add_permits(9);
    end(&shop.journal, &guid).await;
    running.stop().await;
    seen("its thread has ended", || shop.weighing() == 0).await;
    assert!(place.count("attempts > 1") > 0, "it was late, and tried again");
    assert_eq!(shop.most.load(SeqCst), 1);
}

async fn a_thread_can_ask_whether_its_record_was_cancelled(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1)).await.unwrap();
    let [works, has_stopped] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let (begins, ends) = (works.clone(), has_stopped.clone());
    let running = worker(&journal)
        .on_replay("ship", move |replay, _: u32| {
            let (begins, ends) = (begins.clone(), ends.clone());
            async move {
                let work = move || {
                    while replay.lease_holds() {
                        begins.store(true, SeqCst);
                        std::thread::yield_now();
                    }
                    ends.store(true, SeqCst);
                };
                tokio::task::spawn_blocking(work).await.map_err(JobError::retry)
            }
        })
        .start();
    seen("it works", || works.load(SeqCst)).await;
    journal.cancel(&guid).await.unwrap();
    seen("it has stopped by itself", || has_stopped.load(SeqCst)).await;
    running.stop().await;
    assert_eq!(status(&journal, &guid).await, Status::Cancelled);
}
