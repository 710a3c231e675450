//! Giving back over Redis: as in memory.

#[path = "../support/giving_back.rs"]
mod cases;

use std::sync::LazyLock;
use testkit::giving_back::{LIMITS, overrun};
use testkit::library::{Clocked, Library, Way};
use testkit::servers::RedisServer;
use testkit::suite::cases;
use tidegate::{Limit, Redis};

/// A limiter under a name of its own.
fn on_redis(name: &str) -> Clocked {
    static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);
    Clocked::in_redis(Redis::at(&SERVER.url()).unwrap().prefix(&format!("back-{name}")).unwrap())
}

#[test]
fn a_settled_call_lets_nobody_into_the_window_of_those_who_wait() {
    cases::a_settled_call_lets_nobody_into_the_window_of_those_who_wait(&on_redis("settled"));
}

#[test]
fn a_cancelled_call_lets_nobody_start_beside_those_who_wait() {
    cases::a_cancelled_call_lets_nobody_start_beside_those_who_wait(&on_redis("cancelled"));
}

#[test]
fn a_cancelled_call_brings_back_the_rest_of_the_window_that_it_skipped() {
    cases::a_cancelled_call_brings_back_the_rest_of_the_window_that_it_skipped(&on_redis("skipped"));
}

#[test]
fn a_cancelled_call_leaves_a_warm_up_as_it_was() {
    cases::a_cancelled_call_leaves_a_warm_up_as_it_was(&on_redis("warm"));
}

#[test]
fn four_waiters_that_hang_up_together_lose_nothing() {
    cases::four_waiters_that_hang_up_together_lose_nothing(&on_redis("four"));
}

#[test]
fn those_who_stay_keep_the_starts_behind_which_they_reserved() {
    cases::those_who_stay_keep_the_starts_behind_which_they_reserved(&on_redis("stay"));
}

#[test]
fn units_that_flowed_back_before_a_joint_start_do_not_come_back_twice() {
    cases::units_that_flowed_back_before_a_joint_start_do_not_come_back_twice(&on_redis("joint"));
}

#[test]
fn both_charges_of_one_key_come_back() {
    cases::both_charges_of_one_key_come_back(&on_redis("both"));
}

#[test]
fn the_worst_case_holds_whatever_is_given_back() {
    let on = on_redis("worst");
    for text in LIMITS {
        let limit: Limit = text.parse().unwrap();
        for seed in 0..6 * cases() {
            let mut key = Library::on(&on, &limit, Way::Key);
            if let Some(over) = overrun(&limit, &mut key, seed, 60) {
                panic!("{over} (seed {seed})");
            }
        }
    }
}
