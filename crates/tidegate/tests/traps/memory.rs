//! Traps of memory: keys that are forgotten before their window, or never.

use crate::{FIVE_A_SECOND, gate_at_zero, micros, seconds};
use tidegate::{GateOptions, Limiter, ManualClock, Overflow};

#[test]
fn idle_keys_make_room_for_new_ones() {
    for limit in FIVE_A_SECOND {
        let clock = ManualClock::new();
        let limiter = Limiter::builder().clock(clock.clone()).build();
        let options = GateOptions::new().max_keys(1_000).overflow(Overflow::Refuse);
        let gate = limiter.gate_with("small", limit, options).unwrap();
        for round in 0..20 {
            for key in 0..1_000 {
                let decision = gate.check_cost(&format!("{round} {key}"), 5);
                assert!(decision.is_allowed(), "`{limit}`: key {key} of round {round} got {decision:?}");
            }
            // As long as a full drain, so that all of this round are as good as new.
            clock.advance(seconds(2) + micros(200_000));
        }
    }
}

#[test]
fn a_key_is_not_forgotten_when_its_limit_changes_twice_before_it_comes_back() {
    // The second limit forgets soon; the key is still where the first one left it.
    let (clock, gate) = gate_at_zero("5 per 10s sliding-log");
    assert!(gate.check_cost("ada", 5).is_allowed());
    gate.change("999983/s burst 5").unwrap();
    gate.change("1/s burst 5").unwrap();
    clock.advance(micros(900_000));
    assert!(!gate.check("ada").is_allowed(), "five of five were used, and less than one has flowed back");
}

#[test]
fn a_key_is_not_forgotten_before_its_window_ends() {
    for limit in FIVE_A_SECOND {
        let (clock, gate) = gate_at_zero(limit);
        clock.advance(seconds(7));
        assert!(gate.check_cost("ada", 5).is_allowed());
        for stranger in 0..900 {
            let _ = gate.check(&format!("stranger {stranger}"));
        }
        clock.advance(micros(199_000));
        assert!(!gate.check("ada").is_allowed() || limit.contains("every"), "{limit}");
    }
}

#[test]
fn a_flood_of_strangers_frees_no_limited_key() {
    for overflow in [Overflow::Share, Overflow::Refuse] {
        for limit in FIVE_A_SECOND {
            let clock = ManualClock::new();
            let limiter = Limiter::builder().clock(clock.clone()).build();
            let options = GateOptions::new().max_keys(500).overflow(overflow);
            let gate = limiter.gate_with("small", limit, options).unwrap();
            assert!(gate.check_cost("ada", 5).is_allowed());
            let strangers = || (0..6_000).map(|n| gate.check_cost(&format!("stranger {n}"), 5));
            let allowed = strangers().filter(tidegate::Decision::is_allowed).count();
            // The table is a little larger than asked for, never many times as large.
            assert!((499..2_000).contains(&allowed), "`{limit}`: {allowed} strangers found a place");
            assert!(!gate.check("ada").is_allowed(), "`{limit}`: the flood freed a limited key");
            assert_eq!(strangers().filter(tidegate::Decision::is_allowed).count(), 0, "{limit}");
        }
    }
}

#[test]
fn a_denied_stranger_takes_no_memory() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock).max_keys(1_000).build();
    let gate = limiter.gate("log", "5 per 1s sliding-log").unwrap();
    for stranger in 0..10_000 {
        assert!(!gate.check_cost(&format!("stranger {stranger}"), 6).is_allowed());
    }
    assert_eq!(limiter.long_keys().0, 0);
}

#[test]
fn a_flood_of_one_word_keys_leaves_room_for_longer_states() {
    let limiter = Limiter::builder().clock(ManualClock::new()).max_keys(10_000).build();
    let refuse = || GateOptions::new().overflow(Overflow::Refuse);
    let words = limiter.gate_with("words", "1/h", refuse()).unwrap();
    let logs = limiter.gate_with("logs", "1 per 1h sliding-log", refuse()).unwrap();
    let full = (0..50_000u64).filter(|key| !words.check(&key.to_le_bytes()).is_allowed()).count();
    assert!(full > 25_000, "the flood was too small");
    let held = (0..8_000u64).filter(|key| logs.check(&key.to_le_bytes()).is_allowed()).count();
    assert_eq!(held, 8_000, "the flood of one-word keys took the logs' room");
}

#[test]
fn absurd_numbers_of_keys_mean_the_most_there_can_be() {
    for keys in [0, 1, 1 << 31, 1 << 40, usize::MAX / 100, usize::MAX / 16, usize::MAX - 1, usize::MAX] {
        let limiter = Limiter::builder().clock(ManualClock::new()).max_keys(keys).build();
        let own = GateOptions::new().max_keys(keys);
        for gate in [limiter.gate("shared", "2/h"), limiter.gate_with("own", "2/h", own)] {
            let gate = gate.unwrap();
            assert!(gate.check("ada").is_allowed() && gate.check("ada").is_allowed());
            assert!(!gate.check("ada").is_allowed(), "max_keys({keys})");
        }
        assert!(limiter.gate("log", "1 per 1h sliding-log").unwrap().check("ada").is_allowed());
        assert!(limiter.long_keys().1 <= 1 << 31, "{:?}", limiter.long_keys());
    }
}
