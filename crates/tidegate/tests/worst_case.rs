//! Each algorithm's published worst case, by brute force: callers that take all they
//! can get, in the ways that get most, and every window of many lengths looked at.
//!
//! What the limiter decides is the suite's business; here only starts are counted.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::time::Duration;
use testkit::giving_back::{edge, windows};
use testkit::library::{Library, Way};
use testkit::rng::Rng;
use testkit::windows::{Edge, busiest};
use testkit::{Denied, Mode, Subject};
use tidegate::Limit;

/// Starts of one key: when, and how many units.
type Starts = Vec<(u64, u64)>;

/// A caller who wants all: at every instant it asks until it is refused, and comes
/// back when it was told to, or at its own times.
struct Attack {
    mode: Mode,
    /// Costs, asked for in turns.
    costs: &'static [u64],
    /// When it comes back after a refusal.
    pace: Pace,
}

#[derive(Clone, Copy, Debug)]
enum Pace {
    /// As soon as it may.
    Told,
    /// Rests for a long time first, then as soon as it may, and again.
    Bursts,
    /// Just before and just at each multiple of the period.
    Straddles,
    /// At random times.
    Random(u64),
}

const ASKS: usize = 2_000;

impl Attack {
    fn on(&self, limit: &Limit) -> Starts {
        let mut key = Library::new(limit, Way::Key);
        let period_us = micros(limit.period());
        let mut rng = Rng::new(7);
        let mut starts = Starts::new();
        let mut now_us = 0;
        for (nth, cost) in self.costs.iter().cycle().take(ASKS).enumerate() {
            let seen = key.decide(now_us, b"k", *cost, self.mode);
            if seen.allowed {
                starts.push((now_us + seen.wait_us, *cost));
                continue;
            }
            let told_us = match seen.denial {
                Some(Denied::Later(us)) => us,
                _ => seen.reset_us.clamp(1, period_us),
            };
            now_us += match self.pace {
                Pace::Told => told_us,
                Pace::Bursts if nth % 50 == 0 => seen.reset_us + 3,
                Pace::Bursts => told_us,
                Pace::Straddles if (now_us + 1) % period_us == 0 => 1,
                Pace::Straddles => period_us - 1 - now_us % period_us,
                Pace::Random(longest_us) => rng.between(1, longest_us),
            };
        }
        starts
    }
}

/// All ways to ask for these costs.
fn attacks(limit: &Limit, costs: &'static [u64], modes: &[Mode]) -> Vec<Starts> {
    let period_us = micros(limit.period());
    let paces = [
        Pace::Told,
        Pace::Bursts,
        Pace::Straddles,
        Pace::Random(3),
        Pace::Random(period_us.div_ceil(limit.amount())),
        Pace::Random(period_us),
    ];
    let one = |mode: &Mode, pace: Pace| Attack { mode: *mode, costs, pace }.on(limit);
    modes.iter().flat_map(|mode| paces.map(|pace| one(mode, pace))).collect()
}

/// Looks at every window of every attack: the bound holds. The windows in which it
/// is reached are given back.
fn reached(text: &str, costs: &'static [u64], modes: &[Mode]) -> Vec<u64> {
    let limit: Limit = text.parse().unwrap();
    let largest = *costs.iter().max().unwrap();
    let mut reached = Vec::new();
    let attacks = attacks(&limit, costs, modes);
    for window_us in windows(&limit) {
        let bound = limit.worst_case(Duration::from_micros(window_us), largest);
        for starts in &attacks {
            let most = busiest(starts, window_us, edge(&limit));
            assert!(most.units <= bound, "`{text}`: {most:?} in a window of {window_us}us, at most {bound}");
            if most.units == bound {
                reached.push(window_us);
            }
        }
    }
    reached.dedup();
    reached
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap()
}

const NOW: &[Mode] = &[Mode::Check];
const BOTH: &[Mode] = &[Mode::Check, Mode::Reserve];
const ONES: &[u64] = &[1];
const MIXED: &[u64] = &[1, 3, 1, 2, 7, 1, 1];

#[test]
fn a_token_bucket_admits_its_burst_and_what_flows() {
    for text in ["7/s burst 3", "1000/s", "999983/s burst 50", "3 per 7us", "1/day burst 2"] {
        let all = reached(text, ONES, NOW);
        assert!(all.len() > 5, "`{text}` reaches its bound only in {all:?}");
    }
    for text in ["7/s burst 9", "1000/s burst 20", "3 per 70us burst 8"] {
        assert!(!reached(text, MIXED, NOW).is_empty(), "{text}");
    }
}

#[test]
fn a_token_bucket_with_waits_admits_no_more() {
    for text in ["10/s burst 3 wait 2s", "1000/s burst 20 wait 1s", "10 per 70us burst 8 wait 100us"] {
        assert!(!reached(text, ONES, BOTH).is_empty(), "{text}");
        assert!(!reached(text, MIXED, BOTH).is_empty(), "{text}");
    }
    // A call greater than the burst starts whole, after its wait.
    assert!(!reached("10/s burst 1 wait 2s", &[9, 1], BOTH).is_empty());
}

#[test]
fn a_reserved_start_that_is_rounded_to_a_microsecond_keeps_the_bound() {
    // 9.1 us a unit: starts at 0, 10 (9.1) and 19 (18.2).
    reached("10 per 91us burst 1 wait 1ms", ONES, BOTH);
    reached("leaky 10 per 91us queue 9", ONES, BOTH);
    reached("10 per 91us warmup 1us wait 1ms", ONES, BOTH);
}

#[test]
fn a_leaky_bucket_admits_its_capacity_and_what_flows() {
    for text in ["leaky 7/s capacity 3", "leaky 1000/s capacity 40"] {
        assert!(reached(text, ONES, NOW).len() > 5, "{text}");
        reached(text, MIXED, NOW);
    }
}

#[test]
fn a_leaky_queue_lets_out_one_by_one() {
    for text in ["leaky 10/s queue 5", "leaky 1000/s queue 100", "leaky 1 per 7us queue 9"] {
        assert!(reached(text, ONES, BOTH).len() > 5, "{text}");
        reached(text, MIXED, BOTH);
    }
}

#[test]
fn a_ticked_bucket_admits_its_cap_and_each_tick() {
    for text in ["5 every 1s cap 8", "20 every 1s", "3 every 7us cap 10"] {
        assert!(!reached(text, ONES, BOTH).is_empty(), "{text}");
    }
    for text in ["5 every 1s cap 8", "3 every 7us cap 10", "4 every 1s cap 7 wait 3s"] {
        reached(text, MIXED, BOTH);
    }
    reached("4 every 1s cap 1 wait 3s", ONES, BOTH);
}

#[test]
fn a_waiting_call_greater_than_the_cap_keeps_the_bound() {
    reached("4 every 1s cap 1 wait 3s", &[7, 1], BOTH);
    reached("5 per 1s fixed-window wait 3s", &[15, 1], BOTH);
}

#[test]
fn no_fixed_window_admits_more_than_its_amount() {
    for costs in [ONES, MIXED, &[1, 10]] {
        let limit: Limit = "10 per 1s fixed-window wait 1s".parse().unwrap();
        for starts in attacks(&limit, costs, BOTH) {
            let mut by_window = std::collections::BTreeMap::new();
            starts
                .iter()
                .for_each(|(at_us, units)| *by_window.entry(at_us / 1_000_000).or_insert(0) += units);
            let over = by_window.iter().find(|(_, units)| **units > 10);
            assert_eq!(over, None, "costs {costs:?}, from {:?}", &starts[..starts.len().min(4)]);
        }
    }
}

#[test]
fn a_fixed_window_admits_twice_its_amount_around_a_boundary_and_no_more() {
    for text in ["5 per 1s fixed-window", "40 per 7ms fixed-window", "5 per 1s fixed-window wait 2500ms"] {
        let limit: Limit = text.parse().unwrap();
        let all = reached(text, ONES, BOTH);
        assert!(all.contains(&micros(limit.period())), "`{text}` reaches its bound only in {all:?}");
        reached(text, MIXED, BOTH);
    }
}

#[test]
fn a_sliding_window_never_admits_more_than_its_amount_in_a_period() {
    for text in [
        "5 per 1s sliding-window",
        "5 per 1s sliding-window slices 1",
        "9 per 10us sliding-window slices 4",
        "9 per 1s sliding-window slices 7 wait 1500ms",
    ] {
        let limit: Limit = text.parse().unwrap();
        let all = reached(text, ONES, BOTH);
        assert!(all.contains(&micros(limit.period())), "`{text}` reaches its bound only in {all:?}");
        reached(text, MIXED, BOTH);
    }
}

#[test]
fn a_sliding_log_never_admits_more_than_its_amount_in_a_period() {
    for text in ["5 per 1s sliding-log", "9 per 10us sliding-log", "9 per 1s sliding-log wait 1500ms"] {
        let limit: Limit = text.parse().unwrap();
        let (period_us, all) = (micros(limit.period()), reached(text, ONES, BOTH));
        // One microsecond more holds twice the amount: the promise is exact.
        assert!(all.contains(&period_us) && all.contains(&(period_us + 1)), "`{text}`: {all:?}");
        reached(text, MIXED, BOTH);
    }
}

#[test]
fn a_warm_up_admits_no_more_than_its_rate() {
    for text in ["10/s warmup 2s", "10/s warmup 2s wait 1s", "1000/s warmup 10ms wait 5ms"] {
        reached(text, MIXED, BOTH);
        assert!(!reached(text, ONES, BOTH).is_empty(), "{text}");
    }
}

#[test]
fn a_bound_that_is_one_too_low_would_be_exceeded() {
    // The check of the check: one unit less, or one unit more let through, shows.
    let limit: Limit = "7/s burst 3".parse().unwrap();
    let starts = Attack { mode: Mode::Check, costs: ONES, pace: Pace::Told }.on(&limit);
    let more =
        Attack { mode: Mode::Check, costs: ONES, pace: Pace::Told }.on(&"7/s burst 4".parse().unwrap());
    for window_us in windows(&limit) {
        let bound = limit.worst_case(Duration::from_micros(window_us), 1);
        assert!(busiest(&starts, window_us, Edge::Closed).units > bound - 1);
        assert!(busiest(&more, window_us, Edge::Closed).units > bound);
    }
}
