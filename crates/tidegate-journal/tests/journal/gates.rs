//! Replay holds the limit: catching up cannot flood the service behind.

use crate::place::{Crowd, PATIENCE, Place, call, end, status, worker};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::windows::{Edge, busiest};
use tidegate::{Limit, Limiter, ManualClock};
use tidegate_journal::{Go, JobError, Replay, Status};
use tokio::sync::Semaphore;

on_both! {
    ten_thousand_pending_reach_the_service_at_the_limit_and_no_faster,
    a_shut_gate_holds_up_its_own_method_only,
    what_a_gate_gives_is_held_until_the_replay_has_ended,
    a_gate_that_panics_is_asked_again,
}

async fn ten_thousand_pending_reach_the_service_at_the_limit_and_no_faster(place: &Place) {
    const PENDING: usize = 10_000;
    let journal = place.journal().await;
    let calls: Vec<_> = (0..PENDING).map(|nth| journal.defer(call("ship", nth))).collect();
    for outcome in futures_util::future::join_all(calls).await {
        outcome.unwrap();
    }
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).build();
    let limit: Limit = "100/s burst 10 wait 1h".parse().unwrap();
    let gate = limiter.gate("service", limit.clone()).unwrap();
    let (granted, starts) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::with_capacity(PENDING))));
    let (counted, seen, upstream) = (granted.clone(), starts.clone(), clock.clone());
    let running = worker(&journal)
        .concurrency(32)
        .on("ship", move |_: usize| {
            seen.lock().unwrap().push((upstream.now().as_micros(), 1));
            async { Ok::<_, JobError>(()) }
        })
        .gate(move |_| {
            let (waiting, counted) = (gate.acquire("ship"), counted.clone());
            async move {
                let permit = waiting.await.into_permit().expect("an hour is long enough");
                counted.fetch_add(1, Ordering::SeqCst);
                Go::now().holding(permit)
            }
        })
        .start();
    // Time passes only while somebody waits for it, and everybody who was let through has
    // started: as fast as the machine can.
    let started = || starts.lock().unwrap().len();
    let all = async {
        while started() < PENDING {
            if clock.waiting() > 0 && granted.load(Ordering::SeqCst) == started() {
                clock.advance(Duration::from_millis(5));
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(2 * PATIENCE, all).await.expect("all start in time");
    assert_eq!(running.stop().await.done, PENDING as u64);
    let mut starts = starts.lock().unwrap().clone();
    assert_eq!(too_many(&limit, &starts), None);
    let lasted_us = starts[PENDING - 1].0 - starts[0].0;
    assert!(lasted_us >= 99_000_000, "{lasted_us} µs for {PENDING} at 100 a second");
    // The checker can fail: one more at the beginning is one too many.
    starts.push(starts[0]);
    assert!(too_many(&limit, &starts).is_some());
}

/// A window's length, and the starts in it that are more than the limit's worst case.
fn too_many(limit: &Limit, starts: &[(u64, u64)]) -> Option<(Duration, u64)> {
    let lengths = [0, 5, 10, 50, 100, 1_000, 10_000].map(Duration::from_millis);
    lengths.into_iter().find_map(|length| {
        let length_us = u64::try_from(length.as_micros()).unwrap();
        let most = busiest(starts, length_us, Edge::Closed).units;
        (most > limit.worst_case(length, 1)).then_some((length, most))
    })
}

async fn a_shut_gate_holds_up_its_own_method_only(place: &Place) {
    let journal = place.journal().await;
    let mut open = Vec::new();
    for nth in 0..20 {
        journal.defer(call("shut", nth)).await.unwrap();
        open.push(journal.defer(call("open", nth)).await.unwrap());
    }
    let asked = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
    let counted = asked.clone();
    let running = worker(&journal)
        .concurrency(1)
        .on("shut", |_: u32| async { Ok::<_, JobError>(()) })
        .on("open", |_: u32| async { Ok::<_, JobError>(()) })
        .gate(move |replay: Replay| {
            *counted.lock().unwrap().entry(replay.method.to_string()).or_default() += 1;
            async move {
                if &*replay.method == "shut" {
                    std::future::pending::<()>().await;
                }
                Go::now()
            }
        })
        .start();
    for guid in &open {
        assert_eq!(end(&journal, guid).await.status, Status::Done);
    }
    running.stop().await;
    assert_eq!(asked.lock().unwrap()["shut"], 1, "one at a time stands at the gate");
    assert_eq!(place.count("method_name = 'shut' AND status = 0 AND attempts = 0"), 20);
}

async fn what_a_gate_gives_is_held_until_the_replay_has_ended(place: &Place) {
    let journal = place.journal().await;
    for nth in 0..20 {
        journal.defer(call("ship", nth)).await.unwrap();
    }
    let slots = Arc::new(Semaphore::new(3));
    let crowd = Crowd::of(3);
    let inside = crowd.clone();
    let pass = worker(&journal)
        .on("ship", move |_: u32| {
            let inside = inside.clone();
            async move {
                inside.meet().await;
                Ok::<_, JobError>(())
            }
        })
        .gate_of("ship", move |_| {
            let slots = slots.clone();
            async move { Go::now().holding(slots.acquire_owned().await.unwrap()) }
        })
        .run_once()
        .await
        .unwrap();
    assert_eq!((pass.done, crowd.most()), (20, 3));
}

async fn a_gate_that_panics_is_asked_again(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1)).await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let pass = worker(&journal)
        .on("ship", |_: u32| async { Ok::<_, JobError>(()) })
        .gate(move |_| {
            let nth = asked.fetch_add(1, Ordering::SeqCst);
            async move {
                assert!(nth > 0, "on purpose");
                Go::after(Duration::from_millis(1))
            }
        })
        .run_once()
        .await
        .unwrap();
    assert_eq!((pass.done, status(&journal, &guid).await), (1, Status::Done));
}
