//! Code that is not async: it waits on its thread, and holds its place for as long as it runs.

use crate::place::{Place, call, end, seen, worker};
use crate::shop::Shop;
use std::time::Duration;
use tidegate_journal::{Call, DeferError, Journal, Status};

on_both! {
    many_calls_within_one_task_do_not_use_up_its_turn,
    a_call_that_cannot_wait_is_counted_as_failed,
    a_replay_that_nobody_waits_for_any_more_keeps_its_place_until_it_ends,
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

async fn a_replay_that_nobody_waits_for_any_more_keeps_its_place_until_it_ends(place: &Place) {
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
        .max_attempts(1)
        .replay_max(Duration::from_millis(50))
        .with(Shop::weigh_deferred(shop.clone()))
        .start();
    shop.open.add_permits(1);
    live.await.unwrap().unwrap();
    let record = end(&shop.journal, &guid).await;
    assert_eq!(record.status, Status::Failed);
    assert!(record.last_error.unwrap().contains("longer than"));
    // Its thread is still inside: there is no place for anybody else.
    assert_eq!(shop.weighing(), 1);
    refused().await.unwrap_err().guid();
    shop.open.add_permits(2);
    running.stop().await;
    seen("its thread has ended", || shop.weighing() == 0).await;
    assert_eq!(shop.most.load(std::sync::atomic::Ordering::SeqCst), 1);
}
