//! Traps of a table that is full: a refusal that charges some, and a permission that charges none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate::{
    Check, Clock, Decision, Denial, Gate, GateOptions, Limiter, ManualClock, Overflow, Timer, Timestamp,
};

/// A clock that moves on by a microsecond with every reading: whatever is decided in two
/// looks is decided at two times.
#[derive(Clone, Default)]
struct Stepping(Arc<(AtomicU64, Timer)>);

impl Stepping {
    fn at(&self, us: u64) {
        self.0.0.store(us, Ordering::SeqCst);
    }
}

impl Clock for Stepping {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.0.fetch_add(1, Ordering::SeqCst))
    }

    fn timer(&self) -> &Timer {
        &self.0.1
    }
}

/// Fills the gate's tables with keys that are used now; tells how many that took.
fn fill(gate: &Gate, keys: usize) {
    for key in 0..keys {
        let _ = gate.check(&format!("filler {key}"));
    }
}

#[test]
fn a_full_table_whose_entry_is_freed_meanwhile_lets_nobody_in_uncharged() {
    for limit in ["1 per 2s sliding-log", "1 per 2s", "1 per 2s fixed-window", "999983 per 1999966s burst 1"]
    {
        for offset in 0..40 {
            let clock = Stepping::default();
            let limiter = Limiter::builder().clock(clock.clone()).build();
            let options = GateOptions::new().max_keys(1).overflow(Overflow::Refuse);
            let small = limiter.gate_with("small", limit, options).unwrap();
            let wide = limiter.gate("wide", "1000/day").unwrap();
            fill(&small, 400);
            // The first entries are idle from about now on.
            clock.at(2_000_000 - 20 + offset);
            let verdict = limiter.check(&[Check::new(&wide, "ann"), Check::new(&small, "ann")]);
            let used = 1_000 - wide.peek("ann").remaining();
            assert_eq!(
                (verdict.is_allowed(), used),
                (verdict.is_allowed(), u64::from(verdict.is_allowed())),
                "`{limit}` at {offset}: {verdict:?}"
            );
            if !verdict.is_allowed() {
                assert!(verdict.decisions().iter().any(|decision| !decision.is_allowed()), "{verdict:?}");
            }
        }
    }
}

#[test]
fn a_key_without_room_is_told_that_nothing_is_left_and_nobody_else_pays() {
    for limit in crate::FIVE_A_SECOND {
        let limiter = Limiter::builder().clock(ManualClock::new()).build();
        let options = GateOptions::new().max_keys(1).overflow(Overflow::Refuse);
        let small = limiter.gate_with("small", limit, options).unwrap();
        let wide = limiter.gate("wide", "10/s").unwrap();
        fill(&small, 400);
        let verdict = limiter.check(&[Check::new(&wide, "ann"), Check::new(&small, "ann")]);
        assert_eq!(verdict.decision().denial(), Some(Denial::Full), "{limit}");
        assert_eq!(verdict.decisions()[1].remaining(), 0, "{limit}");
        assert!(verdict.decisions()[0].is_allowed());
        let peeked = small.peek("ann");
        assert_eq!((peeked.denial(), peeked.remaining()), (Some(Denial::Full), 0), "{limit}");
        assert_eq!(wide.peek("ann").remaining(), 10, "{limit}");
    }
}

#[test]
fn a_call_that_costs_nothing_is_allowed_even_if_there_is_no_room() {
    for overflow in [Overflow::Share, Overflow::Refuse] {
        for limit in crate::FIVE_A_SECOND {
            let limiter = Limiter::builder().clock(ManualClock::new()).build();
            let options = GateOptions::new().max_keys(1).overflow(overflow);
            let small = limiter.gate_with("small", limit, options).unwrap();
            let other = limiter.gate("other", "10/s").unwrap();
            fill(&small, 400);
            assert!(small.check_cost("ann", 0).is_allowed(), "{limit}");
            assert!(small.peek_cost("ann", 0).is_allowed(), "{limit}");
            assert!(small.reserve_cost("ann", 0).is_allowed(), "{limit}");
            let both = [Check::new(&small, "ann").cost(0), Check::new(&other, "ann")];
            assert!(limiter.check(&both).decisions().iter().all(Decision::is_allowed), "{limit}");
        }
    }
}
