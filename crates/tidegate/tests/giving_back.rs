//! Giving back in memory: nobody starts beside those who wait, and who hangs up loses
//! no more than the limit's promise asks for.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

#[path = "support/giving_back.rs"]
mod cases;

use std::time::Duration;
use testkit::giving_back::{LIMITS, overrun};
use testkit::library::{Clocked, Library, Way};
use testkit::suite::cases;
use tidegate::{Limit, Permit};

#[test]
fn a_settled_call_lets_nobody_into_the_window_of_those_who_wait() {
    cases::a_settled_call_lets_nobody_into_the_window_of_those_who_wait(&Clocked::in_memory());
}

#[test]
fn a_cancelled_call_lets_nobody_start_beside_those_who_wait() {
    cases::a_cancelled_call_lets_nobody_start_beside_those_who_wait(&Clocked::in_memory());
}

#[test]
fn a_cancelled_call_brings_back_the_rest_of_the_window_that_it_skipped() {
    cases::a_cancelled_call_brings_back_the_rest_of_the_window_that_it_skipped(&Clocked::in_memory());
}

#[test]
fn a_cancelled_call_leaves_a_warm_up_as_it_was() {
    cases::a_cancelled_call_leaves_a_warm_up_as_it_was(&Clocked::in_memory());
}

#[test]
fn four_waiters_that_hang_up_together_lose_nothing() {
    cases::four_waiters_that_hang_up_together_lose_nothing(&Clocked::in_memory());
}

#[test]
fn those_who_stay_keep_the_starts_behind_which_they_reserved() {
    cases::those_who_stay_keep_the_starts_behind_which_they_reserved(&Clocked::in_memory());
}

#[test]
fn units_that_flowed_back_before_a_joint_start_do_not_come_back_twice() {
    cases::units_that_flowed_back_before_a_joint_start_do_not_come_back_twice(&Clocked::in_memory());
}

#[test]
fn both_charges_of_one_key_come_back() {
    cases::both_charges_of_one_key_come_back(&Clocked::in_memory());
}

#[test]
fn the_worst_case_holds_whatever_is_given_back() {
    for text in LIMITS {
        let limit: Limit = text.parse().unwrap();
        for seed in 0..150 * cases() {
            let mut key = Library::new(&limit, Way::Key);
            if let Some(over) = overrun(&limit, &mut key, seed, 60) {
                panic!("{over} (seed {seed})");
            }
        }
    }
}

/// What callers who ask for 500 and need 312 of it get done in ten minutes of a thousand a
/// minute, in percent.
fn done_of_the_rate(limit: &str) -> u64 {
    let on = Clocked::in_memory();
    let gate = on.gate(&limit.parse().unwrap());
    let (mut permits, mut needed) = (Vec::<Permit>::new(), 0);
    for _ in 0..600 {
        while let Ok(permit) = gate.reserve_cost("llm", 500).into_permit() {
            permits.push(permit);
        }
        on.clock.advance(Duration::from_secs(1));
        let now = on.clock.now();
        for permit in permits.extract_if(.., |permit| permit.starts_at() <= now) {
            permit.settle(312);
            needed += 312;
        }
    }
    needed * 100 / 10_000
}

#[test]
fn what_is_settled_while_others_always_wait_stays_spent() {
    // The figures of docs/limits.md.
    assert_eq!((done_of_the_rate("1000/min"), done_of_the_rate("1000/min wait 1min")), (106, 68));
}
