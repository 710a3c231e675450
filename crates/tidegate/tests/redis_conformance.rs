//! The Redis store decides as the model does: the suite of the memory store, unchanged.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::library::{Clocked, Gates, Library, Way};
use testkit::limits::{CHANGES, FIXED, HELD, LEAKY, LOGS, SMOOTH, TICKED, TOGETHER, WARM, WINDOWS};
use testkit::suite::conforms;
use testkit::together;
use testkit::trace::{Traffic, YEAR_US};
use tidegate::{Limit, Redis};

fn redis() -> Redis {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let nth = MADE.fetch_add(1, Ordering::Relaxed);
    let url = std::env::var("TG_URL").unwrap_or("redis://127.0.0.1:7999".into());
    Redis::at(&url).unwrap().prefix(&format!("suite-{}-{nth}", std::process::id())).unwrap()
}

fn assert_conforms(texts: &[&str], traffic: &Traffic, way: Way, traces: u64) {
    let clocked = Clocked::in_redis(redis());
    for text in texts {
        let limit: Limit = text.parse().unwrap();
        let make = |limit: &Limit| Box::new(Library::on(&clocked, limit, way)) as Box<dyn testkit::Subject>;
        if let Err(mismatch) = conforms(&limit, traffic, 1, traces, &make) {
            panic!("{mismatch}");
        }
    }
    let stats = clocked.limiter.redis_stats().unwrap();
    assert_eq!(stats.disagreements, 0, "{stats:?}");
    assert_eq!(stats.degraded, 0, "{stats:?}");
}

macro_rules! every_algorithm {
    ($($name:ident: $texts:ident),* $(,)?) => {$(
        mod $name {
            use super::*;

            #[test]
            fn decides_as_the_model() {
                for begins_us in [0, 1, 123_456_789, 2 * YEAR_US + 7] {
                    assert_conforms(&$texts, &Traffic { begins_us, ..Traffic::plain() }, Way::Key, 1);
                }
            }

            #[test]
            fn gives_back_as_the_model() {
                for (begins_us, steps) in [(YEAR_US, 120), (YEAR_US + 123_456_789, 15)] {
                    let traffic = Traffic { gives_back: true, begins_us, steps, ..Traffic::plain() };
                    assert_conforms(&$texts, &traffic, Way::Both, 2);
                }
            }

            #[test]
            fn survives_a_jumping_clock_as_the_model() {
                for begins_us in [0, 3 * YEAR_US] {
                    let traffic = Traffic { jumps: true, begins_us, ..Traffic::plain() };
                    assert_conforms(&$texts, &traffic, Way::Key, 2);
                }
            }
        }
    )*};
}

every_algorithm! {
    a_smooth_bucket: SMOOTH,
    a_leaky_bucket: LEAKY,
    a_ticked_bucket: TICKED,
    a_fixed_window: FIXED,
    a_sliding_window: WINDOWS,
    a_sliding_log: LOGS,
    a_warm_up: WARM,
}

#[test]
fn concurrency_without_a_queue_decides_as_the_model() {
    assert_conforms(&HELD, &Traffic::plain(), Way::Both, 4);
}

#[test]
fn a_changed_limit_takes_over_as_the_model() {
    let changes: Vec<Limit> = CHANGES.iter().map(|text| text.parse().unwrap()).collect();
    for begins_us in [0, 123_456_789] {
        let traffic = Traffic { changes: changes.clone(), begins_us, ..Traffic::plain() };
        assert_conforms(&CHANGES, &traffic, Way::Key, 2);
    }
}

#[test]
fn several_limits_are_charged_all_or_none_as_the_models() {
    let limits: Vec<Limit> = TOGETHER.iter().map(|text| text.parse().unwrap()).collect();
    let clocked = Clocked::in_redis(redis());
    if let Err(split) = together::conforms(&limits, 1, 60, &|limits| Box::new(Gates::on(&clocked, limits))) {
        panic!("{split}");
    }
}
