//! Where windows and ticks begin, and what becomes of a clock at the end of its range.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tidegate::{Clock, Denial, Limit, Limiter, ManualClock, Timer, Timestamp};

const DAY: Duration = Duration::from_secs(86_400);

#[expect(clippy::disallowed_methods, reason = "compares the limiter's anchor with the wall clock")]
fn unix_now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

fn past_the_day(unix: Duration) -> Duration {
    Duration::from_micros(u64::try_from(unix.as_micros() % DAY.as_micros()).unwrap())
}

#[test]
fn a_day_in_memory_begins_at_midnight_utc_and_not_with_the_process() {
    for limit in ["5/day fixed-window", "5 every 1day"] {
        let gate = Limiter::new().gate("daily", limit).unwrap();
        let before = past_the_day(unix_now());
        let reset = gate.check("ann").reset_after();
        let after = past_the_day(unix_now());
        if after < before {
            continue; // Midnight passed meanwhile: either day is right.
        }
        let slack = Duration::from_secs(10);
        assert!(reset <= DAY - before + slack && reset + slack >= DAY - after, "`{limit}`: {reset:?}");
    }
}

#[test]
fn weeks_begin_on_monday_and_other_periods_at_multiples_since_1970() {
    // The clock stands at 1970-01-01, a Thursday.
    for (limit, days) in [
        ("5/week fixed-window", 4),
        ("5 every 1week cap 5", 4),
        ("5 per 2weeks fixed-window", 4),
        ("5/day fixed-window", 1),
        ("5 per 8day fixed-window", 8),
    ] {
        let clock = ManualClock::new();
        let gate = Limiter::builder().clock(clock.clone()).build().gate("gate", limit).unwrap();
        assert_eq!(gate.check("ann").reset_after(), days * DAY, "{limit}");
        assert!(gate.check_cost("ann", 4).is_allowed());
        clock.advance(days * DAY - Duration::from_micros(1));
        assert_eq!(gate.check("ann").retry_after(), Some(Duration::from_micros(1)), "{limit}");
        clock.advance(Duration::from_micros(1));
        assert!(gate.check_cost("ann", 5).is_allowed(), "{limit}");
    }
}

#[test]
fn a_clock_that_says_unix_time_is_refused_when_the_limiter_is_built() {
    let clock = ManualClock::at(Timestamp::from_micros(1_790_000_000_000_000));
    let built = catch_unwind(AssertUnwindSafe(|| Limiter::builder().clock(clock).build()));
    let panic = built.expect_err("it would let one of twenty through").downcast::<String>().unwrap();
    assert!(panic.contains("Timestamp::MAX") && panic.contains("unix_us_at_zero"), "{panic}");
}

/// Limits of every kind that counts starts, each of five at most.
const KINDS: [&str; 8] = [
    "5/s",
    "999983 per 199996s burst 5",
    "5 every 1s",
    "5 per 1s fixed-window",
    "5 per 1s sliding-window",
    "5 per 1s sliding-log",
    "leaky 5/s capacity 5",
    "5/s warmup 1s",
];

#[test]
fn a_used_key_is_not_promised_a_time_that_never_comes_when_the_clock_has_run_out() {
    for limit in KINDS {
        let clock = ManualClock::at(Timestamp::from_micros(Timestamp::MAX.as_micros() - 1_000));
        let gate = Limiter::builder().clock(clock.clone()).build().gate("gate", limit).unwrap();
        let five = (0..9).filter(|_| gate.check("ann").is_allowed()).count();
        assert!((1..=5).contains(&five), "{limit}");
        clock.advance(Duration::from_secs(3_600));
        for key in ["ann", "ben"] {
            let denials =
                [gate.check(key).denial(), gate.check_cost(key, 2).denial(), gate.peek(key).denial()];
            for denial in denials {
                assert!(matches!(denial, Some(Denial::Unavailable(_))), "`{limit}`, {key}: {denial:?}");
            }
            let reserved = gate.reserve(key);
            assert!(!reserved.is_allowed(), "`{limit}`: a start that never comes");
        }
    }
}

#[test]
fn an_offset_moves_the_edges_to_a_later_time() {
    let hours = |hours: u64| Duration::from_secs(3_600 * hours);
    // From 1970-01-01 00:00, a Thursday, to the first edge.
    for (limit, first) in [
        ("5/day fixed-window offset 8h", hours(8)),
        ("5 every 1day offset 8h", hours(8)),
        ("5/week fixed-window offset 6h", 4 * DAY + hours(6)),
        ("5/week fixed-window offset 5day", 2 * DAY),
    ] {
        let clock = ManualClock::new();
        let gate = Limiter::builder().clock(clock.clone()).build().gate("gate", limit).unwrap();
        assert!(gate.check_cost("ann", 5).is_allowed());
        assert_eq!(gate.check("ann").retry_after(), Some(first), "{limit}");
        clock.advance(first);
        assert!(gate.check_cost("ann", 5).is_allowed(), "{limit}");
        let period = gate.limit().period();
        assert_eq!(gate.check("ann").retry_after(), Some(period), "{limit}");
    }
}

#[test]
fn an_offset_that_means_nothing_is_refused_with_what_to_write() {
    for (text, what) in [
        ("100/day offset 8h", "`offset` does not go with a token bucket"),
        ("5 per 10s sliding-log offset 1s", "`offset` does not go with a sliding log"),
        ("10 concurrent offset 1s", "`offset` does not go with a concurrency limit"),
        ("100/day fixed-window offset 1day", "an `offset` of 1day is not less than the period of 1day"),
        ("100/day fixed-window offset 8", "has no unit"),
    ] {
        let error = text.parse::<Limit>().unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        assert_eq!(error.example(), "100/day fixed-window offset 8h", "{error}");
    }
}

#[test]
fn nobody_is_told_a_start_beyond_the_end_of_the_clock() {
    for limit in ["1/s wait 10s", "1 per 1s fixed-window wait 10s", "1 per 1s sliding-log wait 10s"] {
        let clock = ManualClock::at(Timestamp::from_micros(Timestamp::MAX.as_micros() - 2_500_000));
        let gate = Limiter::builder().clock(clock.clone()).build().gate("gate", limit).unwrap();
        let starts: Vec<_> = (0..9).filter_map(|_| gate.reserve("ann").into_permit().ok()).collect();
        // Else all the others would wake at the end, at once.
        assert!((3..=4).contains(&starts.len()), "{limit}: {}", starts.len());
        assert!(starts.iter().all(|permit| permit.starts_at() < Timestamp::MAX), "{limit}");
    }
}

/// A clock that began at some Unix time.
struct Began {
    at: Duration,
    manual: ManualClock,
}

impl Clock for Began {
    fn now(&self) -> Timestamp {
        self.manual.now()
    }

    fn unix_us_at_zero(&self) -> u64 {
        u64::try_from(self.at.as_micros()).unwrap()
    }

    fn timer(&self) -> &Timer {
        self.manual.timer()
    }
}

/// Saturday, 2026-01-03 13:00 UTC.
const SATURDAY: Duration = Duration::from_secs(1_767_445_200);

#[test]
fn a_clock_that_begins_with_the_process_says_where_unix_time_is() {
    for (limit, hours) in [
        ("5/day fixed-window", 11),
        ("5/day fixed-window offset 14h", 1),
        ("5/week fixed-window", 35),
        ("5 every 1week", 35),
        ("5/week fixed-window offset 12h", 47),
        ("5 per 4h sliding-window slices 2", 5), // to 14:00, and both slices after that
    ] {
        let manual = ManualClock::new();
        let clock = Began { at: SATURDAY, manual: manual.clone() };
        let gate = Limiter::builder().clock(clock).build().gate("gate", limit).unwrap();
        let hours = Duration::from_secs(hours * 3_600);
        assert!(gate.check_cost("ann", 5).is_allowed());
        assert_eq!(gate.check("ann").retry_after(), Some(hours), "{limit}");
        manual.advance(hours - Duration::from_micros(1));
        assert!(!gate.check("ann").is_allowed(), "{limit}");
        manual.advance(Duration::from_micros(1));
        assert!(gate.check_cost("ann", 5).is_allowed(), "{limit}");
    }
}

#[test]
fn places_do_not_depend_on_the_clock_and_outlast_it() {
    let clock = ManualClock::new();
    let gate = Limiter::builder().clock(clock.clone()).build().gate("slots", "1 concurrent").unwrap();
    clock.set(Timestamp::MAX);
    let held = gate.reserve("ann").into_permit().unwrap();
    assert!(!gate.reserve("ann").is_allowed());
    drop(held);
    assert!(gate.reserve("ann").is_allowed());
}
