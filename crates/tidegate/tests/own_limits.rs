//! Checks that bring a limit of their own along, in memory and over another store: decided as if
//! it were the gate's, and beside others as nodes that disagree.
//!
//! `TIDEGATE_CASES=20` replays twenty times as many.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::time::Duration;
use testkit::hot::crowd;
use testkit::library::Clocked;
use testkit::limits::{FIXED, LEAKY, LOGS, MIXED, SMOOTH, TICKED, WARM, WINDOWS};
use testkit::own_limits::OwnLimits;
use testkit::rng::Rng;
use testkit::suite::{cases, conforms, mixtures_conform};
use testkit::trace::{Traffic, YEAR_US};
use tidegate::{Check, GateError, GateOptions, Limit, Limiter, ManualClock, Overflow, Verdict};

const SECOND_US: u64 = 1_000_000;

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

/// A limiter in memory and one over a wire.
fn on_both_stores(test: impl Fn(&Clocked)) {
    test(&Clocked::in_memory());
    test(&Clocked::over_a_wire().0);
}

macro_rules! every_algorithm {
    ($($name:ident: $texts:ident),* $(,)?) => {$(
        #[test]
        fn $name() {
            let traffics = [
                Traffic { begins_us: 123_456_789, ..Traffic::plain() },
                Traffic { gives_back: true, begins_us: YEAR_US, ..Traffic::plain() },
                Traffic { jumps: true, ..Traffic::plain() },
            ];
            let stores = [Clocked::in_memory as fn() -> Clocked, || Clocked::over_a_wire().0];
            for (clocked, traffic) in stores.iter().flat_map(|store| traffics.iter().map(move |traffic| (store, traffic))) {
                for text in $texts {
                    let clocked = clocked();
                    let make = |limit: &Limit| {
                        Box::new(OwnLimits::on(&clocked, std::slice::from_ref(limit))) as Box<dyn testkit::Subject>
                    };
                    if let Err(mismatch) = conforms(&limit(text), traffic, 1, 2, &make) {
                        panic!("{mismatch}");
                    }
                }
            }
        }
    )*};
}

every_algorithm! {
    smooth_limits_of_checks_decide_as_the_model: SMOOTH,
    leaky_limits_of_checks_decide_as_the_model: LEAKY,
    ticked_limits_of_checks_decide_as_the_model: TICKED,
    fixed_windows_of_checks_decide_as_the_model: FIXED,
    sliding_windows_of_checks_decide_as_the_model: WINDOWS,
    logs_of_checks_decide_as_the_model: LOGS,
    warm_ups_of_checks_decide_as_the_model: WARM,
}

#[test]
fn limits_of_checks_that_disagree_let_through_what_nodes_that_disagree_do() {
    const BUCKETS: [&str; 8] = [
        "10/s burst 10",
        "11/s burst 10",
        "20/s burst 10",
        "10/s burst 30",
        "7/s burst 3",
        "leaky 11/s capacity 5",
        "100/s burst 5",
        "1/s burst 100",
    ];
    const WINDOWS_US: [u64; 8] = [0, 1, 1_000, 50_000, 500_000, SECOND_US, 3 * SECOND_US, 10 * SECOND_US];
    for seed in 0..20 * cases() {
        let mut rng = Rng::new(seed);
        let texts: Vec<&str> = (0..rng.between(2, 4)).map(|_| *rng.pick(&BUCKETS)).collect();
        let limits: Vec<Limit> = texts.iter().map(|text| limit(text)).collect();
        let step_us = *rng.pick(&[1_000, 3_333, 7_777]);
        let mut subject = OwnLimits::on(&Clocked::in_memory(), &limits);
        let seen = crowd(&mut subject, &limits, step_us, 30 * SECOND_US, &mut |_| Vec::new());
        let (units, least) = (seen.flowed(), seen.least_flow());
        assert!(units * 100 >= least * 95, "{units} of {least}: {texts:?}, seed {seed}");
        assert_eq!(seen.worst_window(&WINDOWS_US), None, "window, units, bound: {texts:?}, seed {seed}");
        assert_eq!(seen.locked_out_us, 0, "{texts:?}, seed {seed}");
    }
}

#[test]
fn limits_of_checks_are_decided_as_nodes_of_the_model_that_disagree() {
    let all: Vec<Limit> = MIXED.iter().map(|text| limit(text)).collect();
    let clocked = Clocked::in_memory();
    let make = |limits: &[Limit]| Box::new(OwnLimits::on(&clocked, limits)) as Box<dyn testkit::Subject>;
    let traffic = Traffic { changes: all, change_percent: 0, begins_us: 123_456_789, ..Traffic::plain() };
    if let Err(mismatch) = mixtures_conform(&traffic, 1, 300, &make) {
        panic!("{mismatch}");
    }
}

/// The gate's limit and two others, of three kinds.
const GATE: &str = "10/min";
const TIERS: [&str; 2] = ["20/min", "30 per 1min sliding-log"];

fn check_by(clocked: &Clocked, gate: &tidegate::Gate, key: &str, cost: u64, text: &str) -> Verdict {
    clocked.limiter.check(&[Check::new(gate, key).cost(cost).limit(&limit(text)).unwrap()])
}

#[test]
fn what_one_limit_lets_start_is_used_under_every_other() {
    on_both_stores(|clocked| {
        let gate = clocked.gate(&limit(GATE));
        assert!(gate.check_cost("ann", 8).is_allowed());
        for tier in TIERS {
            let verdict = check_by(clocked, &gate, "ann", 4, tier);
            assert!(verdict.is_allowed(), "{tier}");
        }
        // 16 are used: by each of the limits.
        assert_eq!(gate.peek("ann").remaining(), 0);
        assert_eq!(check_by(clocked, &gate, "ann", 0, TIERS[0]).decision().remaining(), 4);
        assert_eq!(check_by(clocked, &gate, "ann", 0, TIERS[1]).decision().remaining(), 14);
        assert_eq!(check_by(clocked, &gate, "ann", 0, TIERS[0]).decision().limit(), 20);
        assert_eq!(gate.limit(), limit(GATE), "the gate's limit stays in force");
        // By its own limit, each drains at its own rate.
        clocked.clock.advance(Duration::from_secs(30));
        assert_eq!(check_by(clocked, &gate, "ann", 0, TIERS[0]).decision().remaining(), 14);
        assert_eq!(check_by(clocked, &gate, "ann", 0, TIERS[1]).decision().remaining(), 14);
    });
}

#[test]
fn keys_that_are_checked_by_the_gates_limit_alone_are_undisturbed() {
    on_both_stores(|clocked| {
        let gate = clocked.gate(&limit(GATE));
        let handle = gate.handle("ben");
        assert!(gate.check_cost("ben", 3).is_allowed());
        for _ in 0..100 {
            assert!(check_by(clocked, &gate, "ann", 0, TIERS[0]).is_allowed());
            let _ = check_by(clocked, &gate, "ann", 1, TIERS[1]);
        }
        assert_eq!((gate.peek("ben").remaining(), handle.peek().remaining()), (7, 7));
    });
}

#[test]
fn a_pinned_key_counts_what_a_checks_own_limit_lets_start() {
    on_both_stores(|clocked| {
        let gate = clocked.gate(&limit(GATE));
        let handle = gate.handle("ann");
        assert!(handle.check_cost(2).is_allowed());
        assert!(check_by(clocked, &gate, "ann", 5, TIERS[1]).is_allowed());
        assert_eq!(handle.peek().remaining(), 3);
        assert!(handle.check_cost(3).is_allowed() && !handle.check().is_allowed());
        assert_eq!(check_by(clocked, &gate, "ann", 0, TIERS[1]).decision().remaining(), 20);
        clocked.clock.advance(Duration::from_secs(3 * 60));
        assert_eq!(handle.peek().remaining(), 10);
        assert!(handle.check_cost(10).is_allowed() && !handle.check().is_allowed());
        drop(handle);
        let again = gate.handle("ann");
        assert!(!again.check().is_allowed() && !gate.check("ann").is_allowed());
    });
}

#[test]
fn a_denial_by_a_checks_own_limit_writes_nothing() {
    on_both_stores(|clocked| {
        let gate = clocked.gate(&limit(GATE));
        assert!(gate.check_cost("ann", 6).is_allowed());
        let before = gate.peek("ann");
        for _ in 0..50 {
            assert!(!check_by(clocked, &gate, "ann", 1, "6/min").is_allowed());
        }
        assert_eq!(gate.peek("ann"), before);
        assert!(gate.check_cost("ann", 4).is_allowed());
    });
}

#[test]
fn units_come_back_to_the_limit_that_granted_them_unless_another_one_wrote_since() {
    on_both_stores(|clocked| {
        let gate = clocked.gate(&limit(GATE));
        let tier = limit(TIERS[0]);
        let reserve = |cost| {
            let check = Check::new(&gate, "ann").cost(cost).limit(&tier).unwrap();
            clocked.limiter.reserve(&[check]).into_permit().unwrap()
        };
        let left = || check_by(clocked, &gate, "ann", 0, TIERS[0]).decision().remaining();
        reserve(8).cancel();
        assert_eq!(left(), 20);
        reserve(8).settle(3);
        assert_eq!(left(), 17);
        reserve(2).settle(7);
        assert_eq!(left(), 10);
        let permit = reserve(1);
        assert!(check_by(clocked, &gate, "ann", 1, TIERS[1]).is_allowed());
        permit.cancel();
        assert_eq!(left(), 8, "the log's count stands on it");
        let permit = reserve(1);
        permit.settle(3);
        assert_eq!(check_by(clocked, &gate, "ann", 0, TIERS[1]).decision().remaining(), 15);
        gate.reset("ann");
        assert_eq!((left(), gate.peek("ann").remaining()), (20, 10));
    });
}

#[test]
fn two_limits_on_one_key_are_charged_both_or_none() {
    on_both_stores(|clocked| {
        let gate = clocked.gate(&limit(GATE));
        let tier = limit("4/min");
        let both = |cost| {
            let own = Check::new(&gate, "ann").cost(cost).limit(&tier).unwrap();
            clocked.limiter.check(&[Check::new(&gate, "ann").cost(cost), own])
        };
        assert!(both(2).is_allowed());
        let denied = both(1);
        assert!(!denied.is_allowed(), "the first check's units are used under the second's limit");
        assert_eq!(denied.into_permit().unwrap_err().limit(), &tier);
        assert_eq!(gate.peek("ann").remaining(), 6, "denied means that nothing was spent");
    });
}

#[test]
fn two_limits_on_one_key_are_decided_in_the_order_of_the_checks() {
    on_both_stores(|clocked| {
        let gate = clocked.gate(&limit(GATE));
        let tier = limit(TIERS[0]);
        let both = [Check::new(&gate, "ann").cost(6), Check::new(&gate, "ann").cost(6).limit(&tier).unwrap()];
        assert!(clocked.limiter.check(&both).is_allowed(), "by the gate's limit 6 of 10, then 12 of 20");
        assert!(!clocked.limiter.check(&both).is_allowed());
        assert_eq!(check_by(clocked, &gate, "ann", 0, TIERS[0]).decision().remaining(), 8);
    });
}

#[test]
fn a_change_of_the_gates_limit_takes_what_checks_have_used_along() {
    on_both_stores(|clocked| {
        let gate = clocked.gate(&limit(GATE));
        assert!(check_by(clocked, &gate, "ann", 15, TIERS[0]).is_allowed());
        clocked.clock.advance(Duration::from_millis(1));
        gate.change("40/min").unwrap();
        assert_eq!(gate.peek("ann").remaining(), 25);
        gate.change(TIERS[0]).unwrap();
        assert_eq!(gate.peek("ann").remaining(), 5);
        assert_eq!(check_by(clocked, &gate, "ann", 0, TIERS[0]).decision().remaining(), 5);
    });
}

#[test]
fn a_clock_that_runs_back_locks_nobody_out_for_longer_than_a_full_key() {
    let clocked = Clocked::in_memory();
    let gate = clocked.gate(&limit(GATE));
    let begin = clocked.clock.now();
    clocked.clock.advance(Duration::from_secs(1_000_000));
    assert!(gate.check("ann").is_allowed() && check_by(&clocked, &gate, "ben", 1, TIERS[0]).is_allowed());
    clocked.clock.set(begin);
    for key in ["ann", "ben"] {
        // Full, as of the first look by each limit.
        assert!(!check_by(&clocked, &gate, key, 1, "8/min").is_allowed());
        assert!(!gate.check(key).is_allowed());
    }
    clocked.clock.advance(Duration::from_secs(61));
    for key in ["ann", "ben"] {
        assert!(check_by(&clocked, &gate, key, 1, "8/min").is_allowed(), "{key}");
        assert!(gate.check(key).is_allowed(), "{key}");
    }
}

#[test]
fn a_key_that_finds_no_room_is_counted_by_the_gates_limit_or_refused() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).max_keys(64).build();
    let shared = limiter.gate("shared", "5/day").unwrap();
    let tier = limit("1000/day");
    let started = |gate: &tidegate::Gate, keys: std::ops::Range<u32>| {
        let is_allowed = |key: &u32| {
            let key = key.to_le_bytes();
            limiter.check(&[Check::new(gate, &key).limit(&tier).unwrap()]).is_allowed()
        };
        keys.filter(is_allowed).count()
    };
    let (_, most) = limiter.long_keys();
    let tracked = started(&shared, 0..10_000);
    assert!(tracked > most / 2 && tracked <= most + 5, "{tracked} of {most}");
    assert_eq!(started(&shared, 10_000..20_000), 0, "the overflow bucket is used up");
    let (held, _) = limiter.long_keys();
    assert!(held <= most + 1);

    let options = GateOptions::new().max_keys(64).overflow(Overflow::Refuse);
    let refusing = limiter.gate_with("refusing", "5/day", options).unwrap();
    let tracked = started(&refusing, 0..10_000);
    let denied = limiter.check(&[Check::new(&refusing, "new").limit(&tier).unwrap()]);
    assert!(tracked > 0 && denied.decision().denial() == Some(tidegate::Denial::Full));
    assert!(refusing.check(&0_u32.to_le_bytes()).is_allowed(), "a known key goes on");
}

#[test]
fn slots_are_held_by_the_gates_own_limit() {
    on_both_stores(|clocked| {
        let (slots, rate) = (clocked.gate(&limit("3 concurrent")), clocked.gate(&limit(GATE)));
        for (gate, text) in [(&slots, "5 concurrent"), (&slots, "5/s"), (&rate, "5 concurrent")] {
            let error = Check::new(gate, "ann").limit(&limit(text)).map(drop).unwrap_err();
            assert!(matches!(error, GateError::CheckLimit { .. }), "{error}");
        }
    });
}
