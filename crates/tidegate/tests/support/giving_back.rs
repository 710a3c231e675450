//! What went wrong when units were given back, on whatever store a limiter has.

use std::time::Duration;
use testkit::library::Clocked;
use testkit::servers::wait_until;
use tidegate::{Check, Gate, Permit};

fn gate(on: &Clocked, limit: &str) -> Gate {
    on.clock.set(tidegate::Timestamp::from_micros(1_000_000_000));
    on.gate(&limit.parse().unwrap())
}

fn reserve(gate: &Gate, units: u64) -> Permit {
    gate.reserve_cost("k", units).into_permit().unwrap()
}

pub(crate) fn a_settled_call_lets_nobody_into_the_window_of_those_who_wait(on: &Clocked) {
    let gate = gate(on, "5 per 10s fixed-window wait 10s");
    let (first, second) = (reserve(&gate, 5), reserve(&gate, 5));
    assert_eq!(second.wait(), Duration::from_secs(10));
    first.settle(1);
    assert!(!gate.peek("k").is_allowed(), "a store that is told later has been told by now");
    on.clock.advance(Duration::from_secs(10));
    assert!(!gate.check_cost("k", 4).is_allowed(), "nine would start in one window");
}

pub(crate) fn a_cancelled_call_lets_nobody_start_beside_those_who_wait(on: &Clocked) {
    for (limit, units) in [("5 every 1s cap 10 wait 3s", 10), ("10/s burst 10 wait 3s", 10)] {
        let gate = gate(on, limit);
        let (first, second) = (reserve(&gate, units), reserve(&gate, units));
        first.cancel();
        let third = gate.reserve_cost("k", units).into_permit();
        let together = third.is_ok_and(|third| third.wait() == second.wait());
        assert!(!together, "`{limit}`: {} units at one instant", 2 * units);
    }
}

pub(crate) fn a_cancelled_call_brings_back_the_rest_of_the_window_that_it_skipped(on: &Clocked) {
    let gate = gate(on, "5 per 10s fixed-window wait 10s");
    assert!(gate.check_cost("k", 3).is_allowed());
    reserve(&gate, 4).cancel();
    assert_eq!(gate.peek("k").remaining(), 2);
}

pub(crate) fn a_cancelled_call_leaves_a_warm_up_as_it_was(on: &Clocked) {
    let gate = gate(on, "1/s warmup 10s wait 1h");
    let _first = reserve(&gate, 1);
    let wait = reserve(&gate, 1).wait();
    let waits: Vec<Duration> = (0..4)
        .map(|_| {
            let permit = reserve(&gate, 1);
            let wait = permit.wait();
            permit.cancel();
            wait
        })
        .collect();
    assert!(waits.iter().all(|again| *again == waits[0]), "after {wait:?}: {waits:?}");

    let (one, other) =
        (self::gate(on, "100/s warmup 30s wait 1s"), self::gate(on, "100/s warmup 30s wait 1s"));
    let (_started, _too) = (reserve(&one, 1), reserve(&other, 1));
    (0..40).for_each(|_| reserve(&one, 1).cancel());
    assert_eq!(reserve(&one, 1).wait(), reserve(&other, 1).wait(), "after forty that hung up");
}

/// All orders of four.
fn orders() -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for nth in 0..256 {
        let order = [nth / 64, nth / 16 % 4, nth / 4 % 4, nth % 4];
        if (0..4).all(|of| order.contains(&of)) {
            orders.push(order);
        }
    }
    orders
}

pub(crate) fn four_waiters_that_hang_up_together_lose_nothing(on: &Clocked) {
    for limit in [
        "1/s burst 1 wait 1h",
        "leaky 1/s queue 9",
        "5 every 1s cap 5 wait 1h",
        "3 per 10s fixed-window wait 1h",
        "3 per 10s sliding-window wait 1h",
        "3 per 10s sliding-log wait 1h",
        "1/s warmup 10s wait 1h",
    ] {
        for order in orders() {
            let gate = gate(on, limit);
            let units = |nth: u64| if limit.starts_with("leaky") { 1 } else { 1 + nth % 2 };
            let _holds = reserve(&gate, 1);
            let (before, wait) = (gate.peek("k"), reserve_wait(&gate));
            let mut waiting: Vec<Option<Permit>> =
                (0..4).map(|nth| Some(reserve(&gate, units(nth)))).collect();
            for nth in order {
                waiting[nth].take().unwrap().cancel();
            }
            let is_as_before = || {
                let after = gate.peek("k");
                (after.remaining(), after.reset_after()) == (before.remaining(), before.reset_after())
            };
            comes_true(&format!("`{limit}` {order:?} is as before"), is_as_before);
            assert_eq!(reserve_wait(&gate), wait, "`{limit}` {order:?}");
        }
    }
}

/// Waits for something that follows soon: over Redis, those before the last who hung up go
/// back with the answer to it.
#[track_caller]
fn comes_true(what: &str, is_true: impl Fn() -> bool) {
    wait_until(what, Duration::from_secs(10), is_true);
}

/// The wait of the next one, who then hangs up.
fn reserve_wait(gate: &Gate) -> Duration {
    let next = reserve(gate, 1);
    let wait = next.wait();
    next.cancel();
    wait
}

pub(crate) fn those_who_stay_keep_the_starts_behind_which_they_reserved(on: &Clocked) {
    // Of five who wait the first, second and fourth hang up: the fifth stays, so that
    // nothing comes back; when it goes too, its own unit and the fourth's do.
    let gate = gate(on, "1/s burst 1 wait 1h");
    let _holds = reserve(&gate, 1);
    let mut waiting: Vec<Option<Permit>> = (0..5).map(|_| Some(reserve(&gate, 1))).collect();
    for nth in [0, 1, 3] {
        waiting[nth].take().unwrap().cancel();
    }
    let resets_in = |seconds: u64| gate.peek("k").reset_after() == Duration::from_secs(seconds);
    assert!(resets_in(6));
    waiting[4].take().unwrap().cancel();
    comes_true("the fourth and fifth are back", || resets_in(4));
    waiting[2].take().unwrap().cancel();
    comes_true("all five are back", || resets_in(1));
}

pub(crate) fn units_that_flowed_back_before_a_joint_start_do_not_come_back_twice(on: &Clocked) {
    let fast = gate(on, "1/s burst 5");
    let slow = on.gate(&"1 per 100s burst 1 wait 200s".parse().unwrap());
    assert!(slow.check("k").is_allowed());
    // It starts when the slow one lets it, and the fast one's units have long flowed back.
    let checks = [Check::new(&fast, "k").cost(5), Check::new(&slow, "k")];
    let both = on.limiter.reserve(&checks).into_permit().unwrap();
    assert_eq!(both.wait(), Duration::from_secs(100));
    on.clock.advance(Duration::from_secs(100));
    assert!(fast.check_cost("k", 5).is_allowed());
    both.refund();
    assert_eq!(fast.peek("k").remaining(), 0);
}

pub(crate) fn both_charges_of_one_key_come_back(on: &Clocked) {
    for limit in ["1/s burst 2 wait 10s", "4 per 10s fixed-window wait 10s", "1/s warmup 2s wait 1h"] {
        let gate = gate(on, limit);
        let _holds = reserve(&gate, 1);
        let before = gate.peek("k");
        let checks = [Check::new(&gate, "k").cost(2), Check::new(&gate, "k").cost(2)];
        on.limiter.reserve(&checks).into_permit().unwrap().cancel();
        let after = gate.peek("k");
        assert_eq!(after.remaining(), before.remaining(), "{limit}");
        assert_eq!(after.reset_after(), before.reset_after(), "{limit}");
    }
}
