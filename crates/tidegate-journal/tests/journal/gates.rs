//! Replay holds the limit: catching up cannot flood the service behind.

use crate::place::{Crowd, PATIENCE, Place, call, end, seen, status, worker};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::windows::{Edge, busiest};
use tidegate::{Limit, Limiter, ManualClock};
use tidegate_journal::{Go, JobError, Journal, Replay, Running, Status, Worker};
use tokio::sync::Semaphore;
use tokio::time::Instant;

on_both! {
    ten_thousand_pending_reach_the_service_at_the_limit_and_no_faster,
    a_shut_gate_holds_up_its_own_method_only,
    what_a_gate_gives_is_held_until_the_replay_has_ended,
    a_gate_that_panics_is_asked_again,
    one_key_that_has_to_wait_holds_up_no_other,
    one_key_that_has_to_wait_a_moment_holds_up_no_other,
    short_waits_are_asked_in_turn_and_not_in_a_circle,
    a_pass_leaves_to_the_next_what_its_gate_puts_off_for_long,
    a_key_with_more_records_than_the_worker_holds_holds_up_no_other,
    what_stands_aside_runs_in_order_and_within_its_pass,
    what_stands_aside_can_be_cancelled_and_expires,
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

/// By the real clock, in two workers, and with live calls under the same limit.
#[test]
fn replays_and_live_calls_together_hold_the_limit() {
    const LASTS: Duration = Duration::from_secs(2);
    /// From the limiter's word to the start at the service, on a busy machine.
    const SLACK: Duration = Duration::from_millis(250);
    const SHORT: &str = "four who ask wait for 20 ms";
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let journal = place.journal().await;
        let calls = (0..1_000).map(|nth| journal.defer(call("ship", nth)));
        futures_util::future::try_join_all(calls).await.unwrap();
        let limit: Limit = "200/s burst 20 wait 1s".parse().unwrap();
        let gate = Limiter::new().gate("service", limit.clone()).unwrap();
        let begun = Instant::now();
        let starts = Arc::new(Mutex::new(Vec::new()));
        let ship = || {
            let starts = starts.clone();
            move || starts.lock().unwrap().push(begun.elapsed())
        };
        let start = || {
            let (gate, ship) = (gate.clone(), ship());
            worker(&journal)
                .on("ship", move |_: u32| {
                    ship();
                    async { Ok::<_, JobError>(()) }
                })
                .gate(move |_| {
                    let waiting = gate.acquire("ship");
                    async move { Go::now().holding(waiting.await.into_permit().expect(SHORT)) }
                })
                .start()
        };
        let workers = [start(), start()];
        let live = (0..2).map(|_| async {
            let (ship, mut shipped) = (ship(), 0);
            while begun.elapsed() < LASTS {
                let _permit = gate.acquire("ship").await.into_permit().expect(SHORT);
                ship();
                shipped += 1;
            }
            shipped
        });
        let live: usize = futures_util::future::join_all(live).await.into_iter().sum();
        let replays = workers.map(Running::stop);
        let replays = futures_util::future::join_all(replays).await;
        let mut starts = starts.lock().unwrap().clone();
        starts.sort();
        // Between any two starts, whatever their distance.
        for (first, from) in starts.iter().enumerate() {
            for (more, to) in starts[first..].iter().enumerate() {
                let (length, units) = (*to - *from, more as u64 + 1);
                let most = limit.worst_case(length + SLACK, 1);
                assert!(units <= most, "{units} starts within {length:?}, {most} at most");
            }
        }
        let allowed = limit.worst_case(LASTS, 1);
        let replayed: Vec<_> = replays.iter().map(|pass| pass.done).collect();
        println!("{} starts of {allowed}: {live} live, replayed {replayed:?}", starts.len());
        assert!(starts.len() as u64 >= allowed / 2, "{} starts of {allowed}", starts.len());
        assert!(live > 0 && replayed.iter().all(|done| *done > 0), "{live} live, replayed {replayed:?}");
    });
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
            assert!(nth > 0, "on purpose, before there is anything to await");
            async move {
                assert!(nth > 1, "on purpose");
                Go::after(Duration::from_millis(1))
            }
        })
        .run_once()
        .await
        .unwrap();
    assert_eq!((pass.done, status(&journal, &guid).await), (1, Status::Done));
}

/// A worker whose gate lets nobody of `alice` through before it is told to.
fn keyed(journal: &Journal, is_open: &Arc<AtomicBool>) -> Worker {
    keyed_for(journal, is_open, Duration::from_millis(150))
}

fn keyed_for(journal: &Journal, is_open: &Arc<AtomicBool>, wait: Duration) -> Worker {
    let is_open = is_open.clone();
    worker(journal).on("ship", |(_, nth): (String, u32)| async move { Ok::<_, JobError>(nth) }).gate(
        move |replay: Replay| {
            let goes = !replay.params.contains("alice") || is_open.load(Ordering::SeqCst);
            async move { if goes { Go::now() } else { Go::ask_again(wait) } }
        },
    )
}

async fn one_key_that_has_to_wait_holds_up_no_other(place: &Place) {
    let journal = place.journal().await;
    let is_open = Arc::new(AtomicBool::new(false));
    for nth in 0..50 {
        journal.defer(call("ship", ("alice", nth))).await.unwrap();
    }
    let bob = journal.defer(call("ship", ("bob", 1))).await.unwrap();
    let running = keyed(&journal, &is_open).concurrency(1).start();
    assert_eq!(end(&journal, &bob).await.status, Status::Done);
    assert_eq!(place.count("status = 1"), 1, "nobody of Alice");
    is_open.store(true, Ordering::SeqCst);
    seen("Alice's run, too", || running.stats().total.done == 51).await;
    let pass = running.stop().await;
    assert_eq!((pass.picked, pass.retried), (51, 0), "they stayed in hand");
    assert_eq!(place.count("status = 1 AND attempts = 1"), 51);
}

async fn one_key_that_has_to_wait_a_moment_holds_up_no_other(place: &Place) {
    for wait in [Duration::ZERO, Duration::from_millis(10)] {
        let journal = place.journal().await;
        let is_open = Arc::new(AtomicBool::new(false));
        for nth in 0..50 {
            journal.defer(call("ship", ("alice", nth))).await.unwrap();
        }
        let bob = journal.defer(call("ship", ("bob", 1))).await.unwrap();
        let running = keyed_for(&journal, &is_open, wait).concurrency(1).start();
        assert_eq!(end(&journal, &bob).await.status, Status::Done);
        is_open.store(true, Ordering::SeqCst);
        seen("Alice's run, too", || running.stats().total.done == 51).await;
        running.stop().await;
    }
}

async fn short_waits_are_asked_in_turn_and_not_in_a_circle(place: &Place) {
    let journal = place.journal().await;
    for nth in 0..50 {
        journal.defer(call("ship", ("alice", nth))).await.unwrap();
    }
    let bob = journal.defer(call("ship", ("bob", 1))).await.unwrap();
    let (asked, bobs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, bob_counted) = (asked.clone(), bobs.clone());
    let begun = tokio::time::Instant::now();
    // Alice's are always due again, and Bob's is behind them all and has to be asked twice.
    let running = worker(&journal)
        .on("ship", |_: (String, u32)| async { Ok::<_, JobError>(()) })
        .gate(move |replay: Replay| {
            counted.fetch_add(1, Ordering::SeqCst);
            let goes = replay.params.contains("bob") && bob_counted.fetch_add(1, Ordering::SeqCst) > 0;
            async move { if goes { Go::now() } else { Go::ask_again(Duration::ZERO) } }
        })
        .start();
    assert_eq!(end(&journal, &bob).await.status, Status::Done);
    seen("it goes on", || asked.load(Ordering::SeqCst) > 1_000).await;
    let (asked, took) = (asked.load(Ordering::SeqCst), begun.elapsed());
    running.stop().await;
    // 16 in a millisecond; twice that, and some, for those that are asked for the first time.
    let most = 32 * usize::try_from(took.as_millis()).unwrap() + 200;
    assert!(asked <= most, "asked {asked} times within {took:?}");
}

async fn a_pass_leaves_to_the_next_what_its_gate_puts_off_for_long(place: &Place) {
    let journal = place.journal().await;
    let hours = Duration::from_secs(3 * 3_600);
    journal.defer(call("ship", ("alice", 1))).await.unwrap();
    journal.defer(call("ship", ("bob", 1))).await.unwrap();
    let is_open = Arc::new(AtomicBool::new(false));
    let pass = async || keyed_for(&journal, &is_open, hours).run_once().await.unwrap();
    let first = tokio::time::timeout(PATIENCE, pass()).await.expect("it does not wait for hours");
    assert_eq!((first.picked, first.done, first.retried), (2, 1, 0));
    assert_eq!(place.count("status = 0 AND attempts = 0 AND lease_owner IS NULL"), 1);
    is_open.store(true, Ordering::SeqCst);
    assert_eq!(pass().await.picked, 0, "not before its gate said");
    place.age(&["next_time"], hours);
    assert_eq!(pass().await.done, 1);
}

async fn a_key_with_more_records_than_the_worker_holds_holds_up_no_other(place: &Place) {
    let journal = place.journal().await;
    let is_open = Arc::new(AtomicBool::new(false));
    for nth in 0..50 {
        journal.defer(call("ship", ("alice", nth))).await.unwrap();
    }
    let bob = journal.defer(call("ship", ("bob", 1))).await.unwrap();
    let running = keyed(&journal, &is_open).buffer(20).start();
    assert_eq!(end(&journal, &bob).await.status, Status::Done);
    // Going back is not an attempt, and goes at a measured pace.
    assert_eq!(place.count("status = 0 AND attempts = 0 AND last_error IS NULL"), 50);
    assert!(running.stats().total.picked < 500, "{:?}", running.stats());
    is_open.store(true, Ordering::SeqCst);
    seen("Alice's run, too", || running.stats().total.done == 51).await;
    running.stop().await;
    assert_eq!(place.count("status = 1 AND attempts = 1 AND lapses = 0"), 51);
}

async fn what_stands_aside_runs_in_order_and_within_its_pass(place: &Place) {
    let journal = place.journal().await;
    for nth in 0..30 {
        journal.defer(call("ship", nth)).await.unwrap();
    }
    let gate = Limiter::new().gate("service", "1 per 25ms").unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let ran = order.clone();
    let pass = worker(&journal)
        .buffer(10)
        .on("ship", |_: u32| async { Ok::<_, JobError>(()) })
        .gate(move |replay: Replay| {
            let (gate, ran) = (gate.clone(), ran.clone());
            async move {
                let decision = gate.check("ship");
                if decision.is_allowed() {
                    ran.lock().unwrap().push(replay.params.parse::<u32>().unwrap());
                    return Go::now();
                }
                // Long enough to step aside.
                Go::ask_again(decision.retry_after().unwrap().max(Duration::from_millis(21)))
            }
        })
        .run_once()
        .await
        .unwrap();
    assert_eq!((pass.picked, pass.done, pass.retried), (30, 30, 0));
    let order = order.lock().unwrap();
    // Nobody is passed by more than stand aside at once.
    for (at, nth) in order.iter().enumerate() {
        assert!(at.abs_diff(*nth as usize) <= 10, "{order:?}");
    }
}

async fn what_stands_aside_can_be_cancelled_and_expires(place: &Place) {
    let journal = place.journal().await;
    let shut = Arc::new(AtomicBool::new(false));
    let cancelled = journal.defer(call("ship", ("alice", 1))).await.unwrap();
    let late =
        journal.defer(call("ship", ("alice", 2)).deadline_in(Duration::from_millis(400))).await.unwrap();
    let left = journal.defer(call("ship", ("alice", 3))).await.unwrap();
    let running = keyed(&journal, &shut).start();
    seen("all are in hand", || running.stats().held == 3).await;
    journal.cancel(&cancelled).await.unwrap();
    assert_eq!(end(&journal, &late).await.status, Status::Expired);
    seen("one is left", || running.stats().held == 1).await;
    running.stop().await;
    let record = journal.find(&left).await.unwrap().unwrap();
    assert_eq!((record.status, record.attempts), (Status::Pending, 0), "given back");
}
