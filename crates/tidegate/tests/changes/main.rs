//! Limits that change while keys are in use, in memory: what a key has used goes along, comes
//! back with a limit that comes back, and locks nobody out. Over Redis: `redis/changes.rs`.
//!
//! `TIDEGATE_CASES=20` replays twenty times as many.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod bounds;
mod named;

use testkit::library::{Library, Way};
use testkit::limits::{ALIKE, MIXED};
use testkit::rng::Rng;
use testkit::suite::{cases, conforms, conforms_once};
use testkit::trace::{Traffic, some_of};
use tidegate::Limit;

/// Random changes between some of the limits, compared with the model.
fn assert_changes_conform(change_percent: u64, gives_back: bool, seed: u64, traces: u64) {
    let all: Vec<Limit> = MIXED.iter().map(|text| text.parse().unwrap()).collect();
    for nth in 0..traces * cases() {
        let mut rng = Rng::new(seed + nth);
        let changes = some_of(&all, &mut rng);
        let first = rng.pick(&changes).clone();
        let way = *rng.pick(&[Way::Key, Way::Both]);
        let begins_us = *rng.pick(&[0, 123_456_789, 365 * 86_400 * 1_000_000]);
        let traffic = Traffic { changes, change_percent, gives_back, begins_us, ..Traffic::plain() };
        if let Err(mismatch) = conforms_once(&first, &traffic, seed + nth, &Library::make(way)) {
            panic!("{mismatch}");
        }
    }
}

#[test]
fn limits_that_change_now_and_then_decide_as_the_model() {
    assert_changes_conform(5, false, 1, 300);
}

#[test]
fn limits_that_change_all_the_time_decide_as_the_model() {
    assert_changes_conform(40, false, 1_000_000, 300);
}

#[test]
fn limits_that_change_while_units_are_given_back_decide_as_the_model() {
    assert_changes_conform(10, true, 2_000_000, 300);
}

#[test]
fn limits_that_count_alike_share_a_count_as_the_model() {
    let changes: Vec<Limit> = ALIKE.iter().map(|text| text.parse().unwrap()).collect();
    let traffic = Traffic { changes: changes.clone(), change_percent: 15, ..Traffic::plain() };
    for first in &changes {
        if let Err(mismatch) = conforms(first, &traffic, 5, 10, &Library::make(Way::Key)) {
            panic!("{mismatch}");
        }
    }
}

#[test]
fn each_limit_changes_to_each_and_back_as_the_model() {
    let all: Vec<Limit> = MIXED.iter().map(|text| text.parse().unwrap()).collect();
    for (nth, first) in all.iter().enumerate() {
        for other in &all {
            let changes = vec![first.clone(), other.clone()];
            let traffic = Traffic { changes, change_percent: 15, steps: 60, ..Traffic::plain() };
            if let Err(mismatch) = conforms(first, &traffic, nth as u64, 1, &Library::make(Way::Key)) {
                panic!("{mismatch}");
            }
        }
    }
}
