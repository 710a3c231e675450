//! Windows and ticks in Redis begin where those in memory do: on Unix time.

use std::time::Duration;
use testkit::servers::RedisServer;
use tidegate::{Limiter, Redis};

const DAY_US: u64 = 86_400_000_000;
/// The first Monday after 1970-01-01, a Thursday.
const MONDAY_US: u64 = 4 * DAY_US;

#[test]
fn windows_begin_at_the_same_time_in_redis_and_in_memory() {
    let server = RedisServer::start();
    let redis = Redis::at(&server.url()).unwrap().deadline(Duration::from_secs(5));
    let shared = Limiter::builder().redis(redis).build();
    let memory = Limiter::new();
    for (nth, (limit, first_us, period_us)) in [
        ("5/day fixed-window", 0, DAY_US),
        ("5/day fixed-window offset 8h", DAY_US / 3, DAY_US),
        ("5/week fixed-window", MONDAY_US, 7 * DAY_US),
        ("5 every 1week offset 36h", MONDAY_US + 3 * DAY_US / 2, 7 * DAY_US),
        ("5 per 3weeks fixed-window", MONDAY_US, 21 * DAY_US),
        ("5 per 30day fixed-window", 0, 30 * DAY_US),
    ]
    .into_iter()
    .enumerate()
    {
        // Both clocks are the machine's; what a drift or a slow call makes is far less.
        let slack = Duration::from_secs(20);
        let now_us = server.micros();
        let expected = Duration::from_micros(period_us - (now_us - first_us) % period_us);
        if expected < 2 * slack {
            continue; // The edge may pass while the test runs.
        }
        for limiter in [&shared, &memory] {
            let gate = limiter.gate(&format!("gate-{nth}"), limit).unwrap();
            let reset = gate.check("ann").reset_after();
            assert!(reset.abs_diff(expected) < slack, "`{limit}`: {reset:?}, not {expected:?}");
        }
    }
    assert_eq!(shared.redis_stats().unwrap().disagreements, 0);
}

#[test]
fn another_offset_is_another_limit_and_what_was_used_goes_along() {
    let server = RedisServer::start();
    let clock = tidegate::ManualClock::new();
    let redis = Redis::at(&server.url()).unwrap().deadline(Duration::from_secs(5));
    let limiter = Limiter::builder().redis(redis).clock(clock.clone()).build();
    let gate = limiter.gate("gate", "5/day fixed-window offset 8h").unwrap();
    let hours = |hours: u64| Duration::from_secs(3_600 * hours);
    assert!(gate.check_cost("ann", 5).is_allowed());
    assert_eq!(gate.check("ann").retry_after(), Some(hours(8)));
    gate.change("5/day fixed-window offset 7h").unwrap();
    assert_eq!(gate.check("ann").retry_after(), Some(hours(7)), "the five went along");
    clock.advance(hours(7));
    assert!(gate.check_cost("ann", 5).is_allowed());
    assert_eq!(gate.check("ann").retry_after(), Some(hours(24)));
    assert_eq!(limiter.redis_stats().unwrap().disagreements, 0);
}
