//! Waiting: for a start, for a slot, under no executor at all; and going away.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use tidegate::{Acquire, Check, Denial, Gate, GateError, Limiter, ManualClock, Verdict};

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(future: &mut Acquire) -> Poll<Verdict> {
    poll_with(future, Waker::noop())
}

fn poll_with(future: &mut Acquire, waker: &Waker) -> Poll<Verdict> {
    pin!(future).poll(&mut Context::from_waker(waker))
}

fn ready(future: &mut Acquire) -> Verdict {
    match poll(future) {
        Poll::Ready(verdict) => verdict,
        Poll::Pending => panic!("still waiting"),
    }
}

fn on_manual_clock() -> (ManualClock, Limiter) {
    let clock = ManualClock::new();
    (clock.clone(), Limiter::builder().clock(clock).max_keys(100).build())
}

fn gate(limit: &str) -> (ManualClock, Limiter, Gate) {
    let (clock, limiter) = on_manual_clock();
    let gate = limiter.gate("gate", limit).expect("a limit");
    (clock, limiter, gate)
}

#[test]
fn an_acquire_is_ready_at_its_start_and_not_before() {
    for (limit, start_ms) in [
        ("1/s burst 1 wait 5s", 1_000),
        ("leaky 1/s queue 5", 1_000),
        ("1 per 1s fixed-window wait 5s", 1_000),
        ("1 per 1s sliding-log wait 5s", 1_000),
        ("1 per 1s sliding-window slices 1 wait 5s", 2_000),
        ("1 every 1s wait 5s", 1_000),
    ] {
        let (clock, _limiter, gate) = gate(limit);
        assert!(ready(&mut gate.acquire("ann")).is_allowed());
        let mut second = gate.acquire("ann");
        assert!(poll(&mut second).is_pending(), "{limit}");
        clock.advance(Duration::from_millis(start_ms) - Duration::from_micros(1));
        assert!(poll(&mut second).is_pending(), "{limit}");
        clock.advance(Duration::from_micros(1));
        assert!(ready(&mut second).is_allowed(), "{limit}");
        assert_eq!(clock.waiting(), 0, "{limit}");
    }
}

#[test]
fn the_waker_of_the_last_poll_is_woken_once_the_time_has_come() {
    let (clock, _limiter, gate) = gate("1/s burst 1 wait 5s");
    assert!(ready(&mut gate.acquire("ann")).is_allowed());
    let (first, last) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
    let mut waiting = gate.acquire("ann");
    assert!(poll_with(&mut waiting, &first.clone().into()).is_pending());
    assert!(poll_with(&mut waiting, &last.clone().into()).is_pending());
    clock.advance(Duration::from_secs(1));
    assert_eq!((first.0.load(Ordering::SeqCst), last.0.load(Ordering::SeqCst)), (0, 1));
    assert!(ready(&mut waiting).is_allowed());
}

#[test]
fn a_waiter_that_goes_away_takes_its_alarm_along() {
    let (clock, _limiter, gate) = gate("1/s burst 1 wait 1h");
    let mut waiting: Vec<Acquire> = (0..100).map(|_| gate.acquire("ann")).collect();
    let pending = waiting.iter_mut().map(poll).filter(Poll::is_pending).count();
    assert_eq!((pending, clock.waiting()), (99, 99));
    waiting.truncate(50);
    assert_eq!(clock.waiting(), 49);
    drop(waiting);
    assert_eq!(clock.waiting(), 0);
}

#[test]
fn starts_never_collide_whoever_goes_away() {
    // One a second: whatever is dropped in between, two starts are a second apart.
    let (clock, _limiter, gate) = gate("leaky 1/s queue 100");
    let mut starts = Vec::new();
    let mut waiting: Vec<Acquire> = Vec::new();
    for step in 0..200u64 {
        let mut next = gate.acquire_cost("ann", 1 + step % 3);
        match poll(&mut next) {
            Poll::Pending => waiting.push(next),
            Poll::Ready(verdict) => starts.extend(verdict.into_permit().map(|permit| permit.starts_at())),
        }
        if step % 4 == 1 && !waiting.is_empty() {
            drop(waiting.swap_remove((step * 7) as usize % waiting.len()));
        }
        clock.advance(Duration::from_millis(400));
        waiting.retain_mut(|w| match poll(w) {
            Poll::Ready(verdict) => {
                let permit = verdict.into_permit().expect("was reserved");
                starts.push(permit.starts_at());
                false
            }
            Poll::Pending => true,
        });
    }
    starts.sort();
    assert!(starts.len() > 15, "{}", starts.len());
    for pair in starts.windows(2) {
        assert!(pair[1].since(pair[0]) >= Duration::from_secs(1), "{pair:?}");
    }
}

#[test]
fn places_come_back_with_the_permit_even_through_a_panic() {
    let (_clock, _limiter, gate) = gate("2 concurrent");
    let first = gate.reserve("db").into_permit().unwrap();
    let panicked = std::thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _permit = gate.reserve("db").into_permit().unwrap();
            assert_eq!(gate.reserve("db").decision().denial(), Some(Denial::Busy));
            panic!("the handler broke");
        });
        holder.join().is_err()
    });
    assert!(panicked);
    assert_eq!(gate.peek("db").remaining(), 1);
    drop(first);
    assert_eq!(gate.peek("db").remaining(), 2);
}

#[test]
fn a_checked_place_is_refused_because_nobody_would_hold_it() {
    let (_clock, _limiter, gate) = gate("2 concurrent");
    assert_eq!(gate.check("db").denial(), Some(Denial::NeedsPermit));
    assert_eq!(gate.peek("db").remaining(), 2);
}

#[test]
fn the_queue_is_bounded_in_calls_and_in_time_and_first_come_first_served() {
    let (clock, _limiter, gate) = gate("1 concurrent queue 2 wait 2s");
    let held = ready(&mut gate.acquire("db")).into_permit().unwrap();
    let (mut second, mut third) = (gate.acquire("db"), gate.acquire("db"));
    assert!(poll(&mut second).is_pending() && poll(&mut third).is_pending());
    assert!(!ready(&mut gate.acquire("db")).is_allowed(), "the queue is full");
    assert!(!gate.reserve("db").is_allowed(), "nobody overtakes");
    drop(held);
    assert!(poll(&mut third).is_pending(), "first come, first served");
    let held = ready(&mut second).into_permit().unwrap();
    clock.advance(Duration::from_secs(2));
    let late = ready(&mut third);
    assert_eq!(late.decision().denial(), Some(Denial::Busy), "waited too long");
    drop(held);
    assert_eq!(gate.peek("db").remaining(), 1);
}

#[test]
fn a_waiter_that_was_given_a_place_and_went_away_hands_it_on() {
    let (_clock, _limiter, gate) = gate("1 concurrent queue 9 wait 2s");
    let held = ready(&mut gate.acquire("db")).into_permit().unwrap();
    let mut waiting: Vec<Acquire> = (0..3).map(|_| gate.acquire("db")).collect();
    assert!(waiting.iter_mut().all(|w| poll(w).is_pending()));
    drop(held); // goes to the first, which never looks
    drop(waiting.remove(0));
    assert!(ready(&mut waiting[0]).is_allowed());
}

#[test]
fn a_place_and_a_rate_are_taken_together_or_not_at_all() {
    let (clock, limiter) = on_manual_clock();
    let places = limiter.gate("places", "1 concurrent queue 5 wait 10s").unwrap();
    let rate = limiter.gate("rate", "1/s burst 1").unwrap();
    let both = || limiter.acquire(&[Check::new(&places, "db"), Check::new(&rate, "ann")]);
    let held = ready(&mut both()).into_permit().unwrap();

    // Denied by the rate: no place is queued for or kept.
    assert!(!ready(&mut both()).is_allowed());
    clock.advance(Duration::from_secs(1));

    // Only the place is missing: queue for it, pay the rate when it comes.
    let mut waiting = both();
    assert!(poll(&mut waiting).is_pending());
    assert_eq!(rate.peek("ann").remaining(), 1, "not charged while waiting for a slot");
    drop(held);
    let held = ready(&mut waiting).into_permit().unwrap();
    assert_eq!((places.peek("db").remaining(), rate.peek("ann").remaining()), (0, 0));

    // The place comes but the rate is gone by then: the place goes back.
    clock.advance(Duration::from_secs(1));
    let mut waiting = both();
    assert!(poll(&mut waiting).is_pending());
    assert!(rate.check("ann").is_allowed());
    drop(held);
    assert_eq!(ready(&mut waiting).bound_by(), "rate");
    assert_eq!(places.peek("db").remaining(), 1);
}

#[test]
fn more_places_by_a_changed_limit_reach_those_who_wait() {
    let (_clock, _limiter, gate) = gate("1 concurrent queue 5 wait 10s");
    let _held = ready(&mut gate.acquire("db")).into_permit().unwrap();
    let mut waiting = gate.acquire("db");
    assert!(poll(&mut waiting).is_pending());
    gate.change("2 concurrent queue 5 wait 10s").unwrap();
    assert!(ready(&mut waiting).is_allowed());
    assert!(matches!(gate.change("5/s"), Err(GateError::OtherKind { .. })));
}

#[test]
fn on_the_real_clock_a_thread_can_wait_without_an_executor() {
    let gate = Limiter::new().gate("gate", "50/s burst 1 wait 10s").unwrap();
    let starts: Vec<_> = (0..5)
        .map(|_| gate.acquire("ann").blocking().into_permit().expect("within ten seconds").starts_at())
        .collect();
    for pair in starts.windows(2) {
        assert!(pair[1].since(pair[0]) >= Duration::from_millis(20), "{pair:?}");
    }
}

#[test]
fn a_debt_is_paid_before_the_next_call() {
    let (clock, _limiter, gate) = gate("100/s burst 1000");
    gate.reserve_cost("llm", 500).into_permit().unwrap().settle(900);
    assert_eq!(gate.peek("llm").remaining(), 100);
    gate.reserve_cost("llm", 100).into_permit().unwrap().settle(u64::MAX);
    assert_eq!(gate.peek("llm").retry_after(), Some(Duration::from_millis(10)), "a full key, not more");
    clock.advance(Duration::from_secs(10));
    assert_eq!(gate.peek("llm").remaining(), 1000);
}

#[test]
fn true_costs_reach_their_checks_also_after_queueing_for_a_place() {
    let (_clock, limiter) = on_manual_clock();
    let places = limiter.gate("places", "1 concurrent queue 5 wait 10s").unwrap();
    let tokens = limiter.gate("tokens", "1000/h").unwrap();
    let held = ready(&mut places.acquire("model")).into_permit().unwrap();
    let mut waiting = limiter.acquire(&[Check::new(&places, "model"), Check::new(&tokens, "ann").cost(500)]);
    assert!(poll(&mut waiting).is_pending());
    drop(held);
    ready(&mut waiting).into_permit().unwrap().settle_each(&[1, 312]);
    assert_eq!(tokens.peek("ann").remaining(), 688);
    assert_eq!(places.peek("model").remaining(), 1);
}

#[test]
fn places_stay_held_however_often_the_limit_changes() {
    let (_clock, _limiter, gate) = gate("2 concurrent");
    let held = gate.reserve_cost("db", 2).into_permit().unwrap();
    for places in 0..3_000 {
        gate.change(format!("{} concurrent", 2 + places % 2)).unwrap();
    }
    gate.change("2 concurrent").unwrap();
    assert!(!gate.reserve("db").is_allowed());
    drop(held);
    assert_eq!(gate.peek("db").remaining(), 2);
}

#[test]
fn a_permit_from_before_a_change_gives_nothing_back_of_what_others_took() {
    let (clock, _limiter, gate) = gate("1000/min");
    let old = gate.reserve_cost("ann", 500).into_permit().unwrap();
    clock.advance(Duration::from_secs(300));
    gate.change("1000/day").unwrap();
    assert!(gate.check_cost("ann", 1000).is_allowed());
    old.settle(312);
    assert_eq!(gate.peek("ann").remaining(), 0);
}

#[test]
fn both_charges_of_one_key_come_back() {
    let (_clock, limiter, gate) = gate("1/s burst 2 wait 10s");
    let verdict = limiter.reserve(&[Check::new(&gate, "ann").cost(2), Check::new(&gate, "ann").cost(3)]);
    assert_eq!(verdict.wait(), Duration::from_secs(3));
    verdict.into_permit().unwrap().cancel();
    assert_eq!(gate.peek("ann").remaining(), 2);
}

#[test]
fn callers_that_hang_up_do_not_make_a_warm_up_wait_longer() {
    let (_clock, _limiter, gate) = gate("100/s warmup 30s wait 1s");
    for key in ["dropped", "calm"] {
        assert!(ready(&mut gate.acquire(key)).is_allowed());
    }
    for _ in 0..40 {
        assert!(poll(&mut gate.acquire("dropped")).is_pending());
    }
    assert_eq!(gate.reserve("dropped").wait(), gate.reserve("calm").wait());
}

#[test]
fn a_crowd_that_hangs_up_together_leaves_its_starts_to_others() {
    for limit in ["1/s burst 1 wait 1h", "leaky 1/s queue 1000", "1/s warmup 10s wait 1h"] {
        let (_clock, _limiter, gate) = gate(limit);
        for key in ["crowded", "calm"] {
            assert!(ready(&mut gate.acquire(key)).is_allowed());
        }
        let mut crowd: Vec<Acquire> = (0..500).map(|_| gate.acquire("crowded")).collect();
        assert!(crowd.iter_mut().all(|waiting| poll(waiting).is_pending()));
        drop(crowd);
        assert_eq!(gate.reserve("crowded").wait(), gate.reserve("calm").wait(), "{limit}");
    }
}
