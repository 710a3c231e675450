//! What a decision says is left is what a check can take now, and two decisions that differ
//! in anything a caller can see are not equal.

use crate::gate_at_zero;
use std::time::Duration;
use tidegate::{Gate, ManualClock, Permit};

/// A small generator: the same sequence in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

const LIMITS: [&str; 12] = [
    "5/s burst 5 wait 3s",
    "999985 per 199997s burst 5 wait 3s",
    "leaky 5/s capacity 5",
    "leaky 5/s queue 4",
    "5/s warmup 3s wait 3s",
    "3 every 1s cap 7 wait 3s",
    "5 every 1s cap 5 wait 3s",
    "5 per 1s fixed-window wait 3s",
    "5 per 1s sliding-window wait 3s",
    "5 per 1s sliding-window slices 1 wait 3s",
    "5 per 1s sliding-log wait 3s",
    "5 concurrent queue 5 wait 3s",
];

fn holds(limit: &str, gate: &Gate, what: &str) {
    let left = gate.peek("ann").remaining();
    let takes = gate.peek_cost("ann", left);
    assert!(takes.is_allowed(), "`{limit}` after {what}: {left} are left, but {takes:?}");
    // What is told with a denial is the same number.
    let denied = gate.peek_cost("ann", left + 1);
    assert!(!denied.is_allowed() || limit.contains("wait"), "`{limit}` after {what}: {denied:?}");
    assert_eq!(denied.remaining(), left, "`{limit}` after {what}");
}

#[test]
fn what_is_left_can_be_taken_now_whatever_was_reserved_and_given_back() {
    for limit in LIMITS {
        for seed in 0..60 {
            let (clock, gate) = gate_at_zero(limit);
            let mut dice = Dice(seed);
            let mut permits: Vec<Permit> = Vec::new();
            for _ in 0..60 {
                let what = step(&mut dice, &clock, &gate, &mut permits);
                holds(limit, &gate, &what);
            }
        }
    }
}

fn step(dice: &mut Dice, clock: &ManualClock, gate: &Gate, permits: &mut Vec<Permit>) -> String {
    match dice.below(6) {
        0 => {
            let us = dice.below(400_000);
            clock.advance(Duration::from_micros(us));
            format!("{us} us")
        }
        1 | 2 => {
            let cost = 1 + dice.below(5);
            permits.extend(gate.reserve_cost("ann", cost).into_permit());
            format!("a reservation of {cost}")
        }
        3 => {
            let cost = dice.below(4);
            let _ = gate.check_cost("ann", cost);
            format!("a check of {cost}")
        }
        _ if permits.is_empty() => "nothing".into(),
        4 => {
            permits.swap_remove(dice.below(permits.len() as u64) as usize).cancel();
            "a cancellation".into()
        }
        _ => {
            let cost = dice.below(6);
            permits.swap_remove(dice.below(permits.len() as u64) as usize).settle(cost);
            format!("a settling to {cost}")
        }
    }
}

#[test]
fn one_free_place_is_not_left_while_somebody_waits_for_two() {
    use std::future::Future;
    let (_clock, gate) = gate_at_zero("2 concurrent queue 5 wait 1min");
    let _held = gate.reserve("ann").into_permit().unwrap();
    let mut waiting = std::pin::pin!(gate.acquire_cost("ann", 2));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    assert!(!gate.reserve("ann").is_allowed());
    assert_eq!(gate.peek("ann").remaining(), 0);
}
