//! The memory store decides as the model does: random traces on both, for every
//! algorithm, compared decision by decision.
//!
//! `TIDEGATE_CASES=20` replays twenty times as many.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use proptest::prelude::*;
use std::time::Duration;
use testkit::library::{Gates, Library, Way, as_seen};
use testkit::limits::{CHANGES, FIXED, HELD, LEAKY, LOGS, SMOOTH, TICKED, TOGETHER, WARM, WINDOWS};
use testkit::rng::Rng;
use testkit::suite::conforms;
use testkit::together;
use testkit::trace::{Traffic, YEAR_US};
use testkit::{Mode, Model, Subject};
use tidegate::Limit;

const SEED: u64 = 1;
const TRACES: u64 = 8;

fn assert_conforms(texts: &[&str], traffic: &Traffic, way: Way) {
    for text in texts {
        let limit: Limit = text.parse().unwrap();
        if let Err(mismatch) = conforms(&limit, traffic, SEED, TRACES, &Library::make(way)) {
            panic!("{mismatch}");
        }
    }
}

/// Plain traffic by key and by handle, giving back, and a clock that jumps.
fn assert_conforms_in_all_ways(texts: &[&str]) {
    for begins_us in [0, 1, 123_456_789, 2 * YEAR_US + 7] {
        assert_conforms(texts, &Traffic { begins_us, ..Traffic::plain() }, Way::Key);
    }
    assert_conforms(texts, &Traffic::plain(), Way::Handle);
    assert_conforms(texts, &Traffic { begins_us: 5_000_001, ..Traffic::plain() }, Way::Both);
}

macro_rules! every_algorithm {
    ($($name:ident: $texts:ident),* $(,)?) => {$(
        mod $name {
            use super::*;

            #[test]
            fn decides_as_the_model() {
                assert_conforms_in_all_ways(&$texts);
            }

            #[test]
            fn gives_back_as_the_model() {
                // Not from the clock's zero on: a state has no room before its beginning,
                // and what is given back there may be less.
                for (begins_us, steps) in [(YEAR_US, 120), (YEAR_US + 123_456_789, 15)] {
                    let traffic = Traffic { gives_back: true, begins_us, steps, ..Traffic::plain() };
                    assert_conforms(&$texts, &traffic, Way::Key);
                    assert_conforms(&$texts, &traffic, Way::Both);
                }
            }

            #[test]
            fn survives_a_jumping_clock_as_the_model() {
                for begins_us in [0, 3 * YEAR_US] {
                    let traffic = Traffic { jumps: true, begins_us, ..Traffic::plain() };
                    assert_conforms(&$texts, &traffic, Way::Key);
                    assert_conforms(&$texts, &traffic, Way::Both);
                }
            }
        }
    )*};
}

testkit::for_every_algorithm!(every_algorithm);

#[test]
fn concurrency_without_a_queue_decides_as_the_model() {
    assert_conforms(&HELD, &Traffic::plain(), Way::Key);
    assert_conforms(&HELD, &Traffic::plain(), Way::Both);
}

#[test]
fn a_changed_limit_takes_over_as_the_model() {
    let changes: Vec<Limit> = CHANGES.iter().map(|text| text.parse().unwrap()).collect();
    for way in [Way::Key, Way::Both] {
        for begins_us in [0, 123_456_789] {
            let traffic = Traffic { changes: changes.clone(), begins_us, ..Traffic::plain() };
            assert_conforms(&CHANGES, &traffic, way);
        }
    }
}

#[test]
fn several_limits_are_charged_all_or_none_as_the_models() {
    let limits: Vec<Limit> = TOGETHER.iter().map(|text| text.parse().unwrap()).collect();
    if let Err(split) = together::conforms(&limits, SEED, 300, &|limits| Box::new(Gates::new(limits))) {
        panic!("{split}");
    }
}

#[test]
fn a_batch_decides_as_the_model_one_by_one() {
    for text in [SMOOTH[1], SMOOTH[5], LEAKY[2], TICKED[1], FIXED[0], WINDOWS[0], LOGS[0], WARM[1]] {
        let limit: Limit = text.parse().unwrap();
        let (subject, mut model) = (Library::new(&limit, Way::Key), Model::new(&limit));
        let mut rng = Rng::new(SEED);
        for now_us in (0..40).map(|nth| nth * 77_777) {
            subject.at(now_us);
            let keys: Vec<String> = (0..rng.below(200)).map(|_| format!("user {}", rng.below(30))).collect();
            let mut asked = 0;
            subject.gate().check_batch(&keys, |nth, decision| {
                assert_eq!(nth, asked, "in order");
                asked += 1;
                let expected = model.decide(now_us, keys[nth].as_bytes(), 1, Mode::Check);
                assert_eq!(as_seen(&decision), expected, "`{text}` at {now_us}us, {:?}", keys[nth]);
            });
            assert_eq!(asked, keys.len());
        }
    }
}

#[test]
fn the_widest_limits_and_costs_neither_overflow_nor_let_too_much_through() {
    let widest = [
        "1000000000000 per 3650day",
        "999999999999 per 3650day burst 999999999999",
        "1 per 3650day",
        "1000000000/s burst 1000000000000 wait 3649day",
        "999999999/s burst 1000000000000 wait 3649day",
        "leaky 999999999/s queue 1000000000000",
        "999999999999 every 3650day",
        "1000 every 1us cap 1000000000000 wait 3649day",
        "1000000000000 per 3650day fixed-window wait 3650day",
        "1000000000000 per 3650day sliding-window wait 3650day",
        "1000 per 1us sliding-window wait 100ms",
        "100000 per 3650day sliding-log wait 3650day",
        "999999999/s warmup 76min wait 3650day",
        "1 per 3650day warmup 3650day wait 3650day",
    ];
    for text in widest {
        let limit: Limit = text.parse().unwrap_or_else(|error| panic!("{error}"));
        // No start is told beyond the end of the clock, after thirteen years.
        let latest_us = if limit.wait() > Duration::from_secs(3_600) { 3 * YEAR_US } else { 12 * YEAR_US };
        for begins_us in [0, 1, YEAR_US, latest_us] {
            let mut subject = Library::new(&limit, Way::Both);
            for cost in
                [1, 2, limit.capacity(), limit.capacity() + 1, 1 << 40, 1 << 60, u64::MAX - 1, u64::MAX]
            {
                for mode in [Mode::Peek, Mode::Check, Mode::Reserve] {
                    let seen = subject.decide(begins_us, b"wide", cost, mode);
                    assert!(
                        seen.wait_us <= 10 * YEAR_US + YEAR_US / 10,
                        "`{text}` {mode:?} {cost}: {seen:?}"
                    );
                    assert!(seen.remaining <= seen.limit, "`{text}` {mode:?} {cost}: {seen:?}");
                    assert!(!(seen.allowed && cost >= 1 << 60), "`{text}` {mode:?} {cost}: {seen:?}");
                }
            }
        }
    }
}

/// Any limit that the builder takes, with a taste for small numbers.
fn any_limit() -> impl Strategy<Value = Limit> {
    let amount = prop_oneof![1u64..20, 1u64..100_000, 1u64..20_000_000];
    let period = prop_oneof![1u64..50, 1u64..2_000_000, Just(1_000_000), 1u64..100_000_000_000];
    let wait = prop_oneof![2 => Just(0u64), 1 => 1u64..50, 1 => 1u64..5_000_000];
    (amount, period, wait, 0..8u8, 1..50u64).prop_filter_map(
        "a sound limit",
        |(amount, period, wait, kind, n)| {
            let wait = Duration::from_micros(wait);
            let rate = Limit::per(amount, Duration::from_micros(period));
            match kind {
                0 => rate.burst(n).wait(wait),
                1 => rate.leaky().capacity(n),
                2 => rate.leaky().queue(n),
                3 => Limit::every(amount, Duration::from_micros(period)).cap(n).wait(wait),
                4 => rate.fixed_window().wait(wait),
                5 => rate.sliding_window().slices(n).wait(wait),
                6 => rate.sliding_log().wait(wait),
                _ => rate.warmup(Duration::from_micros(n * n * n * n * 7)).wait(wait),
            }
            .build()
            .ok()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300 * u32::try_from(testkit::suite::cases()).unwrap_or(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_limit_decides_as_the_model(
        limit in any_limit(), seed: u64, jumps: bool, gives_back: bool, begins_us in 0..YEAR_US,
    ) {
        let traffic = Traffic { jumps, gives_back: gives_back && !jumps, begins_us, ..Traffic::plain() };
        if let Err(mismatch) = conforms(&limit, &traffic, seed, 1, &Library::make(Way::Both)) {
            prop_assert!(false, "{}", mismatch);
        }
    }
}
