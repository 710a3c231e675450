//! What went wrong once, a test each, named after it.

use std::time::Duration;
use tidegate::{Gate, Limiter, ManualClock};

fn gate(limit: &str) -> (ManualClock, Gate) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).max_keys(1_000).build();
    let gate = limiter.gate("changing", limit).unwrap();
    (clock, gate)
}

/// Units that pass at this instant.
fn takes(gate: &Gate) -> u64 {
    (0..5_000).take_while(|_| gate.check("k").is_allowed()).count() as u64
}

fn millis(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Under the first limit all is used; then the second for a second, and the third. What passes
/// two seconds later, when somebody came under the second limit and when nobody did.
fn passes_after(limits: [&str; 3], comes_between: bool) -> u64 {
    let (clock, gate) = gate(limits[0]);
    assert!(takes(&gate) > 0);
    clock.advance(millis(500));
    gate.change(limits[1]).unwrap();
    clock.advance(millis(500));
    if comes_between {
        let _ = gate.check("k");
    }
    clock.advance(millis(500));
    gate.change(limits[2]).unwrap();
    clock.advance(millis(2_000));
    takes(&gate)
}

#[test]
fn a_day_s_log_that_is_a_second_s_for_a_while_admits_no_second_hundred() {
    let limits = ["100 per 1day sliding-log", "100 per 1s sliding-log", "100 per 1day sliding-log"];
    assert_eq!([passes_after(limits, false), passes_after(limits, true)], [0, 0]);
}

#[test]
fn a_day_s_log_that_is_a_bucket_for_a_while_admits_no_second_hundred() {
    let limits = ["100 per 1day sliding-log", "100/s", "100 per 1day sliding-log"];
    assert_eq!([passes_after(limits, false), passes_after(limits, true)], [0, 0]);
}

#[test]
fn a_day_s_bucket_that_is_a_second_s_for_a_while_admits_no_second_thousand_under_a_wide_rate() {
    let limits = ["1000/day burst 1000", "1000/s burst 1000", "1000003/day burst 1000"];
    // 12 a second flow out by the third, from what the first held when the second came.
    for comes_between in [false, true] {
        let passed = passes_after(limits, comes_between);
        // Half a second at 1000/s may have flowed out before the third; the first holds the rest.
        assert!(passed <= 30, "{passed}");
    }
}

#[test]
fn a_fixed_window_of_a_day_that_is_another_kind_for_a_while_is_still_used_up() {
    for between in [
        "100/s",
        "100 per 1s sliding-log",
        "100 per 1s fixed-window",
        "5 every 1s cap 100",
        "100/s warmup 1s",
    ] {
        let limits = ["100 per 1day fixed-window", between, "100 per 1day fixed-window"];
        assert_eq!([passes_after(limits, false), passes_after(limits, true)], [0, 0], "{between}");
    }
}

/// Starts within ten seconds under a controller that goes to and fro.
fn flips(limits: [&str; 2], every_ms: u64) -> u64 {
    let (clock, gate) = gate(limits[0]);
    let mut passed = takes(&gate);
    for ms in 1..10_000 {
        clock.advance(millis(1));
        if ms % every_ms == 0 {
            let nth = usize::try_from(ms / every_ms % 2).unwrap();
            gate.change(limits[nth]).unwrap();
        }
        passed += takes(&gate);
    }
    passed
}

#[test]
fn a_controller_that_flips_every_90_ms_locks_nobody_out() {
    let passed = flips(["10/s burst 10", "11/s burst 10"], 90);
    assert!((10 + 95..=10 + 110).contains(&passed), "{passed} in ten seconds");
}

#[test]
fn a_controller_that_flips_every_20_ms_admits_no_more_than_the_looser_limit() {
    let passed = flips(["10/s", "11/s"], 20);
    assert!((10 + 95..=121).contains(&passed), "{passed} in ten seconds");
}

#[test]
fn a_denial_and_a_peek_under_another_limit_do_not_use_anything_up() {
    let (clock, gate) = gate("10/s burst 10");
    assert_eq!(takes(&gate), 10);
    for nth in 0..100 {
        clock.advance(millis(3));
        gate.change(["20/s burst 5", "10/s burst 10"][nth % 2]).unwrap();
        assert!(!gate.check_cost("k", 5).is_allowed());
        let _ = gate.peek("k");
    }
    // 300 ms have passed: of ten units at least three have flowed out, whoever looked.
    let left = gate.peek("k").remaining();
    assert!(left >= 2, "{left} left");
}
