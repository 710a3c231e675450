//! Traps of clocks: backward steps, jumps of a year, and a thread that read the time
//! and then slept.

use crate::{FIVE_A_SECOND, gate_at_zero, micros, seconds};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tidegate::{Clock, Gate, GateOptions, Limiter, ManualClock, Timer, Timestamp};

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

#[test]
fn a_clock_that_steps_back_gives_nothing_away() {
    for limit in FIVE_A_SECOND {
        for back in [micros(1), micros(400_000), seconds(1), seconds(10), YEAR] {
            let (clock, gate) = gate_at_zero(limit);
            clock.advance(YEAR + seconds(100));
            assert!(gate.check_cost("ada", 5).is_allowed());
            clock.set(Timestamp::from_micros(
                (clock.now().since(Timestamp::default()) - back).as_micros() as u64
            ));
            assert!(!gate.check("ada").is_allowed(), "`{limit}` after a step of {back:?} back");
        }
    }
}

#[test]
fn a_clock_that_jumped_ahead_and_came_back_locks_nobody_out_for_longer_than_one_drain() {
    for limit in FIVE_A_SECOND {
        let (clock, gate) = gate_at_zero(limit);
        clock.advance(YEAR);
        assert!(gate.check_cost("ada", 5).is_allowed());
        clock.set(Timestamp::from_micros(5_000_000));
        assert!(!gate.check("ada").is_allowed(), "{limit}");
        // One full drain; a window of one slice counts that slice and the one before.
        clock.advance(seconds(if limit.ends_with("slices 1") { 2 } else { 1 }) + micros(200_000));
        assert!(gate.check_cost("ada", 5).is_allowed(), "`{limit}` locks out after the clock came back");
    }
}

#[test]
fn a_clock_that_stands_still_refills_nothing() {
    for limit in FIVE_A_SECOND {
        let (_, gate) = gate_at_zero(limit);
        assert_eq!((0..10_000).filter(|_| gate.check("ada").is_allowed()).count(), 5, "{limit}");
    }
}

#[test]
fn a_year_without_a_call_saves_up_no_more_than_the_burst() {
    for limit in FIVE_A_SECOND {
        let (clock, gate) = gate_at_zero(limit);
        assert!(gate.check("ada").is_allowed());
        clock.advance(YEAR);
        assert_eq!((0..100).filter(|_| gate.check("ada").is_allowed()).count(), 5, "{limit}");
    }
}

/// A clock whose reader can be held up: it gets the time of before, and meanwhile an
/// hour passes and others take all there is.
struct HeldUp {
    now_us: AtomicU64,
    is_next_held_up: AtomicBool,
    others: Arc<OnceLock<Gate>>,
    timer: Timer,
}

#[derive(Clone)]
struct Shared(Arc<HeldUp>);

impl Clock for Shared {
    fn now(&self) -> Timestamp {
        let read = Timestamp::from_micros(self.0.now_us.load(Ordering::SeqCst));
        if self.0.is_next_held_up.swap(false, Ordering::SeqCst)
            && let Some(others) = self.0.others.get()
        {
            self.0.now_us.fetch_add(3_600_000_000, Ordering::SeqCst);
            assert_eq!((0..9).filter(|_| others.check("ada").is_allowed()).count(), 5);
        }
        read
    }

    fn timer(&self) -> &Timer {
        &self.0.timer
    }
}

#[test]
fn a_thread_that_read_the_clock_an_hour_ago_gives_nothing_away() {
    // Its old time must not pass for a clock that came back, or it would cut the
    // others' use to what was right an hour ago, and they would start anew.
    for limit in ["5/s", "5 every 1s cap 5", "5 per 1s fixed-window"] {
        let others = Arc::new(OnceLock::new());
        let held_up = HeldUp {
            now_us: AtomicU64::new(10_000_000),
            is_next_held_up: AtomicBool::new(false),
            others: others.clone(),
            timer: Timer::new(),
        };
        let clock = Shared(Arc::new(held_up));
        let limiter = Limiter::builder().clock(clock.clone()).max_keys(100).build();
        let gate = others.get_or_init(|| limiter.gate("trap", limit).unwrap());
        assert!(gate.check("ada").is_allowed());
        clock.0.is_next_held_up.store(true, Ordering::SeqCst);
        assert!(!gate.check("ada").is_allowed(), "`{limit}`: all had been taken meanwhile");
        assert!(!clock.0.is_next_held_up.load(Ordering::SeqCst), "it was held up");
        assert_eq!((0..9).filter(|_| gate.check("ada").is_allowed()).count(), 0, "{limit}");
    }
}

#[test]
fn a_reading_of_the_clock_made_too_early_makes_no_key_unused_too_early() {
    for limit in ["1 per 1ms", "999983 per 999983ms burst 1", "1 per 1ms sliding-log"] {
        for early in 0..=8 {
            let clock = ManualClock::new();
            let limiter = Limiter::builder().clock(clock.clone()).build();
            // One group of seven slots, and as few entries beside it.
            let gate = limiter.gate_with("small", limit, GateOptions::new().max_keys(1)).unwrap();
            let start = Timestamp::from_micros(1_000_000);
            clock.set(start);
            assert!(gate.check("ada").is_allowed());
            for key in 0..20 {
                clock.advance(micros(1));
                let _ = gate.check(&format!("other {key}"));
            }
            // Somebody whose reading is right may have her place.
            clock.set(start + micros(1_000));
            for key in 0..20 {
                let _ = gate.check(&format!("later {key}"));
            }
            // She comes after that, with a reading that was made a little before.
            clock.set(start + micros(1_000 - early));
            let is_allowed = gate.check("ada").is_allowed();
            assert_eq!(is_allowed, early == 0, "`{limit}`, {early} us too early");
        }
    }
}
