//! Traps in counting: merged calls, refusals that write, off by one, races, rounding.

use crate::{FIVE_A_SECOND, gate_at_zero, micros, seconds};
use std::sync::Barrier;
use testkit::{Mode, Model};
use tidegate::Limit;

#[test]
fn two_calls_in_the_same_microsecond_count_as_two() {
    for limit in FIVE_A_SECOND {
        let (clock, gate) = gate_at_zero(limit);
        clock.advance(micros(77));
        let allowed = (0..20).filter(|_| gate.check("ada").is_allowed()).count();
        assert_eq!(allowed, 5, "{limit}");
    }
}

#[test]
fn a_caller_far_over_its_limit_still_gets_its_share() {
    // Refusals that write would push the window on, and lock it out for ever.
    for limit in FIVE_A_SECOND {
        let (clock, gate) = gate_at_zero(limit);
        let mut allowed = 0;
        for _ in 0..60_000 {
            allowed += u32::from(gate.check("steady").is_allowed());
            clock.advance(micros(1_000));
        }
        // Slices count the oldest one whole: a tenth less, or half where there is one.
        let least = if limit.ends_with("slices 1") { 150 } else { 270 };
        assert!((least..=305).contains(&allowed), "`{limit}` let {allowed} through in a minute");
    }
}

#[test]
fn what_is_exactly_one_period_old_no_longer_counts() {
    for limit in ["5/s", "leaky 5/s capacity 5", "5 per 1s fixed-window", "5 per 1s sliding-log"] {
        let (clock, gate) = gate_at_zero(limit);
        assert!(gate.check_cost("ada", 5).is_allowed());
        clock.advance(micros(999_999));
        assert!(!gate.check_cost("ada", 5).is_allowed(), "`{limit}` forgets a microsecond early");
        clock.advance(micros(1));
        assert!(gate.check_cost("ada", 5).is_allowed(), "`{limit}` forgets a microsecond late");
    }
}

#[test]
fn one_more_than_the_limit_is_refused() {
    for limit in FIVE_A_SECOND {
        let (_, gate) = gate_at_zero(limit);
        assert!(!gate.check_cost("whole", 6).is_allowed(), "{limit}");
        assert_eq!(gate.peek_cost("whole", 6).retry_after(), None, "`{limit}`: it never fits");
        assert!(gate.check_cost("whole", 5).is_allowed(), "{limit}");
        assert!(!gate.check("whole").is_allowed(), "{limit}");
    }
}

#[test]
fn a_race_of_threads_gets_exactly_the_limit() {
    for limit in FIVE_A_SECOND.iter().chain(&["500000/s burst 1000", "1000 per 1h sliding-log"]) {
        let (_, gate) = gate_at_zero(limit);
        for (round, by_handle) in [(0, false), (1, true), (2, false), (3, true)] {
            let (key, start) = (format!("hot {round}"), Barrier::new(4));
            let race = || {
                let handle = by_handle.then(|| gate.handle(&key));
                start.wait();
                let once = || handle.as_ref().map_or_else(|| gate.check(&key), tidegate::Handle::check);
                (0..1_500).filter(|_| once().is_allowed()).count() as u64
            };
            let allowed: u64 = std::thread::scope(|scope| {
                let racers: Vec<_> = (0..4).map(|_| scope.spawn(race)).collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).sum()
            });
            assert_eq!(allowed, gate.limit().capacity(), "{limit}");
        }
    }
}

#[test]
fn a_refill_is_never_rounded_for_the_caller_and_nothing_is_lost() {
    // Takes all that is there, at odd times, for days, and often enough that the bucket
    // is never full again: exactly burst + rate · time.
    for (text, rate, burst, step_us, days) in [
        ("7/s burst 3", 7, 3, 280_007, 1),
        ("7/s burst 300", 7, 300, 42_000_013, 300),
        ("3/s burst 2000", 3, 2_000, 655_360_001, 3_000),
        ("999983/s burst 10000000", 999_983, 10_000_000, 9_000_011, 3),
        ("300000007/s burst 1000000000", 300_000_007, 1_000_000_000, 3_331_333, 1),
    ] {
        let (clock, gate) = gate_at_zero(text);
        let mut admitted = 0u128;
        for _ in 0..(days * 86_400_000_000 / step_us).min(40_000) {
            let left = gate.peek("greedy").remaining();
            admitted += u128::from(left);
            assert!(gate.check_cost("greedy", left).is_allowed());
            assert!(!gate.check("greedy").is_allowed(), "one more than what was left");
            let flowed = u128::from(clock.now().as_micros()) * rate / 1_000_000;
            assert_eq!(admitted, burst + flowed, "`{text}` at {:?}", clock.now());
            clock.advance(micros(step_us));
        }
    }
}

#[test]
fn an_honest_retry_after_is_enough_and_not_more_than_needed() {
    for limit in FIVE_A_SECOND.iter().chain(&["7/s burst 3", "3 per 7us", "300000007/s burst 2"]) {
        let (clock, gate) = gate_at_zero(limit);
        for cost in [1, 2, 1, 3, 2, 2, 1, 3] {
            while gate.check("ada").is_allowed() {}
            let Some(retry_after) = gate.peek_cost("ada", cost).retry_after() else { continue };
            clock.advance(retry_after - micros(1));
            assert!(!gate.peek_cost("ada", cost).is_allowed(), "`{limit}`: {retry_after:?} is too long");
            clock.advance(micros(1));
            assert!(gate.check_cost("ada", cost).is_allowed(), "`{limit}`: {retry_after:?} is too short");
        }
    }
}

#[test]
fn a_duration_has_a_unit() {
    // `60 * 1000 * 1000` as a minute cannot be written down.
    for text in ["5 per 60000000", "5 per 60*1000*1000", "5/s wait 60000000", "5/s warmup 1000", "5 every 60"]
    {
        assert!(text.parse::<Limit>().is_err(), "`{text}` has no unit");
    }
    let minute: Limit = "5 per 1min sliding-log".parse().unwrap();
    assert_eq!(minute.period(), seconds(60));
    assert_eq!(minute, Limit::per(5, seconds(60)).sliding_log().build().unwrap());
    assert_eq!("5 per 60000000us sliding-log".parse::<Limit>().unwrap(), minute);
}

#[test]
fn the_model_agrees_that_these_limits_are_five_at_once() {
    for limit in FIVE_A_SECOND {
        let mut model = Model::new(&limit.parse().unwrap());
        assert_eq!((0..9).filter(|_| model.decide(0, b"k", 1, Mode::Check).allowed).count(), 5, "{limit}");
    }
}
