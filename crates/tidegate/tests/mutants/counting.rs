//! Variants that count wrong: too much, too little, or for too long.

use crate::{BUCKETS, EVERY, decides_wrong};
use std::collections::BTreeMap;
use testkit::model::{Account, State};
use testkit::{Denied, Mode, Model};
use tidegate::Limit;

/// The true model under another limit, shown as if it were the right one.
fn counts_as(text: &str, other: &str, shown_less: u64) -> bool {
    let other: Limit = other.parse().unwrap();
    let mut wrong = Model::new(&other);
    decides_wrong(text, move |_, question| {
        let mut seen = question.ask(&mut wrong);
        seen.limit -= shown_less;
        seen.remaining = seen.remaining.saturating_sub(shown_less);
        seen
    })
}

#[test]
fn a_refill_rounded_up_is_caught() {
    for text in BUCKETS {
        assert!(
            decides_wrong(text, |model, question| {
                if let Some(State::Bucket(bucket)) = model.account(question.key) {
                    let now = i128::from(question.now_us);
                    bucket.empty_at = now * bucket.drain + bucket.level(now) / bucket.unit * bucket.unit;
                }
                question.ask(model)
            }),
            "{text}"
        );
    }
}

#[test]
fn a_fraction_of_a_unit_that_is_lost_at_each_call_is_caught() {
    for text in BUCKETS {
        assert!(
            decides_wrong(text, |model, question| {
                if let Some(State::Bucket(bucket)) = model.account(question.key) {
                    let now = i128::from(question.now_us);
                    let units = (bucket.level(now) + bucket.unit - 1) / bucket.unit;
                    bucket.empty_at = now * bucket.drain + units * bucket.unit;
                }
                question.ask(model)
            }),
            "{text}"
        );
    }
}

#[test]
fn an_interval_cut_to_whole_microseconds_is_caught() {
    assert!(counts_as("7/s burst 3", "1 per 142857us burst 3", 0));
    assert!(counts_as("300000/s burst 3", "1 per 3us burst 3", 0));
}

#[test]
fn a_refusal_that_writes_is_caught() {
    for text in EVERY {
        assert!(
            decides_wrong(text, |model, question| {
                let seen = question.ask(model);
                if let (Some(Denied::Later(_)), Mode::Check) = (seen.denial, question.mode) {
                    let now = i128::from(question.now_us);
                    match model.account(question.key) {
                        Some(State::Bucket(account)) => account.charge(now, 1, now),
                        Some(State::Ticks(account)) => account.charge(now, 1, now),
                        Some(State::Slices(account)) => account.charge(now, 1, now),
                        Some(State::WarmUp(account)) => account.charge(now, 1, now),
                        _ => {}
                    }
                }
                seen
            }),
            "{text}"
        );
    }
}

#[test]
fn greater_instead_of_greater_or_equal_is_caught() {
    assert!(counts_as("7/s burst 3", "7/s burst 4", 1));
    assert!(counts_as("5 every 1s cap 8", "5 every 1s cap 9", 1));
    assert!(counts_as("5 per 1s fixed-window", "6 per 1s fixed-window", 1));
    assert!(counts_as("5 per 1s sliding-log", "6 per 1s sliding-log", 1));
    assert!(counts_as("5 per 1s sliding-window slices 4", "6 per 1s sliding-window slices 4", 1));
    assert!(counts_as("leaky 7/s queue 4", "leaky 7/s queue 5", 0));
}

#[test]
fn windows_that_begin_elsewhere_are_caught() {
    assert!(counts_as("5 per 1s fixed-window", "5 per 1s fixed-window offset 1us", 0));
    assert!(counts_as("5 every 1s cap 8 offset 300ms", "5 every 1s cap 8", 0));
    // Thursday instead of Monday.
    assert!(counts_as("5/week fixed-window", "5/week fixed-window offset 3day", 0));
}

#[test]
fn a_period_that_is_a_microsecond_off_is_caught() {
    for wrong in ["1000001us", "999999us"] {
        assert!(counts_as("5 per 1s sliding-log", &format!("5 per {wrong} sliding-log"), 0));
        assert!(counts_as("5 per 1s fixed-window", &format!("5 per {wrong} fixed-window"), 0));
        assert!(counts_as("7/s burst 3", &format!("7 per {wrong} burst 3"), 0));
        assert!(counts_as("7/s warmup 3s", &format!("7 per {wrong} warmup 3s"), 0));
        let longest = format!("5 per 1s sliding-log wait {wrong}");
        assert!(counts_as("5 per 1s sliding-log wait 1s", &longest, 0));
    }
}

#[test]
fn a_key_that_expires_before_its_window_is_caught() {
    for text in EVERY {
        let mut touched: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        assert!(
            decides_wrong(text, move |model, question| {
                let last = touched.insert(question.key.to_vec(), question.now_us).unwrap_or(0);
                if question.now_us - last > 400_000 {
                    model.reset(question.key);
                }
                question.ask(model)
            }),
            "{text}"
        );
    }
}

#[test]
fn the_oldest_slice_left_out_is_caught() {
    assert!(decides_wrong("5 per 1s sliding-window slices 4", |model, question| {
        if let Some(State::Slices(account)) = model.account(question.key) {
            account.span = 3;
        }
        question.ask(model)
    }));
}

#[test]
fn a_window_that_begins_with_its_first_call_is_caught() {
    let mut began = None;
    assert!(decides_wrong("5 per 1s fixed-window", move |model, question| {
        let now_us = question.now_us - *began.get_or_insert(question.now_us);
        model.decide(now_us, question.key, question.cost, question.mode)
    }));
}

#[test]
fn a_warmup_that_never_cools_is_caught() {
    assert!(decides_wrong("7/s warmup 3s wait 1s", |model, question| {
        let seen = question.ask(model);
        if let Some(State::WarmUp(account)) = model.account(question.key)
            && let Some((_, stored)) = &mut account.last
        {
            *stored = 0;
        }
        seen
    }));
}
