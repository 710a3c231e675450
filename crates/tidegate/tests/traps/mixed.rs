//! Traps of requests that are put together oddly: no checks at all, checks of several
//! limiters, and futures that nobody awaits.

use crate::seconds;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tidegate::{Check, Limiter, ManualClock, Timestamp};

#[test]
fn a_request_without_checks_is_allowed_and_holds_nothing() {
    let limiter = Limiter::new();
    for verdict in [limiter.check(&[]), limiter.reserve(&[]), limiter.acquire(&[]).blocking()] {
        assert!(verdict.is_allowed() && verdict.wait().is_zero() && verdict.retry_after().is_none());
        assert_eq!((verdict.bound_by(), verdict.key(), verdict.decisions().len()), ("", "", 0));
        verdict.into_permit().unwrap().cancel();
    }
    let mut later = pin!(limiter.reserve_async(&[]));
    let Poll::Ready(verdict) = later.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("memory answers at once");
    };
    assert!(verdict.is_allowed());
}

#[test]
fn a_future_that_is_dropped_unawaited_has_charged_nothing() {
    let limiter = Limiter::builder().clock(ManualClock::new()).build();
    let rate = limiter.gate("rate", "2/s wait 1min").unwrap();
    let places = limiter.gate("places", "2 concurrent").unwrap();
    let both = [Check::new(&rate, "ann"), Check::new(&places, "ann")];
    let dropped = limiter.reserve_async(&both);
    // Somebody comes after it: what it would have reserved could not be taken back then.
    drop(rate.reserve("ann").into_permit().unwrap());
    drop(dropped);
    drop(rate.reserve_async("ann"));
    drop(limiter.check_async(&[Check::new(&rate, "ann")]));
    assert_eq!((rate.peek("ann").remaining(), places.peek("ann").remaining()), (1, 2));
}

/// Two limiters, each with a clock that shows another time.
fn two_clocks() -> [(ManualClock, Limiter); 2] {
    [0, 3_600_000_000].map(|us| {
        let clock = ManualClock::at(Timestamp::from_micros(us));
        (clock.clone(), Limiter::builder().clock(clock).max_keys(100).build())
    })
}

#[test]
fn gates_of_two_limiters_give_back_what_each_ones_own_clock_says() {
    for order in [[0, 1], [1, 0]] {
        for limit in [
            "10 per 100s",
            "10 per 100s sliding-log",
            "10 per 100s fixed-window",
            "999985 per 9999850s burst 10",
        ] {
            let nodes = two_clocks();
            let gates = nodes.each_ref().map(|(_, limiter)| limiter.gate("both", limit).unwrap());
            let checks = order.map(|at| Check::new(&gates[at], "ann").cost(5));
            let permit = nodes[0].1.reserve(&checks).into_permit().unwrap();
            permit.refund();
            let left = gates.each_ref().map(|gate| gate.peek("ann").remaining());
            assert_eq!(left, [10, 10], "`{limit}`, {order:?}");
        }
    }
}

#[test]
fn a_refund_long_after_the_start_gives_nothing_back_on_either_clock() {
    let nodes = two_clocks();
    let gates = nodes.each_ref().map(|(_, limiter)| limiter.gate("both", "10 per 100s").unwrap());
    let checks = gates.each_ref().map(|gate| Check::new(gate, "ann").cost(5));
    let permit = nodes[0].1.reserve(&checks).into_permit().unwrap();
    for (clock, _) in &nodes {
        clock.advance(seconds(50));
    }
    for gate in &gates {
        assert!(gate.check_cost("ann", 10).is_allowed());
    }
    permit.refund();
    assert_eq!(gates.each_ref().map(|gate| gate.peek("ann").remaining()), [0, 0]);
}

#[test]
fn an_acquire_over_two_limiters_waits_for_a_place_on_the_clock_of_the_place() {
    let [(early, first), (late, second)] = two_clocks();
    let rate = first.gate("rate", "10/s").unwrap();
    let places = second.gate("places", "1 concurrent queue 5 wait 10s").unwrap();
    let held = places.acquire("db").blocking().into_permit().unwrap();
    let checks = [Check::new(&rate, "ann"), Check::new(&places, "db")];
    let mut waiting = pin!(first.acquire(&checks));
    let mut poll = |woken: &str| {
        let polled = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        (woken.to_string(), polled.map(|verdict| verdict.is_allowed()))
    };
    assert_eq!(poll("at once").1, Poll::Pending);
    // The other clock has nothing to say about this wait.
    early.advance(seconds(7_200));
    assert_eq!(poll("after two hours on the rate's clock").1, Poll::Pending);
    late.advance(seconds(9));
    assert_eq!(poll("after 9 s on the places' clock").1, Poll::Pending);
    late.advance(seconds(1));
    assert_eq!(poll("after 10 s on the places' clock").1, Poll::Ready(false));
    drop(held);
    assert_eq!(places.peek("db").remaining(), 1);
}
