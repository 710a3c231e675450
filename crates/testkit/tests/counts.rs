//! Limits that change and nodes that differ, in the model: cases worked out by hand, and what
//! the limits promise together, counted on the model alone.

use std::time::Duration;
use testkit::hot::{Crowd, crowd};
use testkit::model::{Flaw, State, Store};
use testkit::rng::Rng;
use testkit::suite::cases;
use testkit::windows::{Edge, busiest};
use testkit::{Mode, Model};
use tidegate::Limit;

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;

fn limit(text: &str) -> Limit {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn limits(texts: &[&str]) -> Vec<Limit> {
    texts.iter().map(|text| limit(text)).collect()
}

fn nodes(store: Store, texts: &[&str]) -> Model {
    Model::on(store, &limits(texts))
}

/// Units of one that pass at this instant.
fn takes(model: &mut Model, node: usize, now_us: u64) -> usize {
    model.turn_to(node);
    (0..10_000).take_while(|_| model.decide(now_us, b"k", 1, Mode::Check).allowed).count()
}

/// Until the next unit passes.
fn waits(model: &mut Model, node: usize, now_us: u64) -> u64 {
    model.turn_to(node);
    match model.decide(now_us, b"k", 1, Mode::Peek).denial {
        None => 0,
        Some(testkit::Denied::Later(us)) => us,
        other => panic!("no time told: {other:?}"),
    }
}

#[test]
fn ticks_are_as_fine_as_the_store_has_room_for() {
    // 10/s: 100,000 ticks a unit; a millionth of a unit is a tenth of a tick.
    assert_eq!(Store::Memory.finer(100_000, 1, 1_000_000), 10);
    assert_eq!(Store::Redis.finer(100_000, 1, 1_000_000), 10);
    // 1/s: a tick is a millionth already.
    assert_eq!(Store::Redis.finer(1_000_000, 1, 1_000_000), 1);
    // 1000/s: memory has room for 10,000 times as many, and 1,000 do.
    assert_eq!(Store::Memory.finer(1_000, 1, 1_000_000), 1_000);
    // 16,384 ticks a microsecond fill a word; wide ones and doubles have more room.
    assert_eq!(Store::Memory.finer(16_381, 16_384, 49_143), 1);
    assert_eq!(Store::Memory.finer(16_384, 16_385, 49_152), 100);
    assert_eq!(Store::Redis.finer(16_381, 16_384, 49_143), 100);
    // A full key of 2^40 ticks leaves room for three digits in a double.
    assert_eq!(Store::Redis.finer(10, 1, 1 << 40), 1_000);
}

#[test]
fn what_was_used_goes_along_to_a_millionth_of_a_unit() {
    for store in [Store::Memory, Store::Redis] {
        let mut model = nodes(store, &["10/s burst 10"]);
        assert_eq!(takes(&mut model, 0, 0), 10);
        // Half a unit has flowed out; then 9.5 flow out at 20 a second.
        model.change(50_000, &limit("20/s burst 10"));
        assert_eq!(waits(&mut model, 0, 50_000), 25_000, "{store:?}");
        assert_eq!(waits(&mut model, 0, 60_000), 15_000, "{store:?}");
        assert_eq!(takes(&mut model, 0, 75_000), 1, "{store:?}");
        // 3/s has 333,333 1/3 us a unit. The tenth of a unit that is left is told to the microsecond.
        let mut model = nodes(store, &["3/s burst 10"]);
        assert_eq!(takes(&mut model, 0, 0), 10);
        model.change(300_000, &limit("1/s burst 10"));
        assert_eq!(waits(&mut model, 0, 300_000), 100_000, "{store:?}: 9.1 are used, 9 may be");
    }
}

#[test]
fn a_denial_and_a_peek_write_nothing() {
    let mut model = nodes(Store::Redis, &["10/s burst 10", "20/s burst 5", "5 per 1s sliding-log"]);
    assert!(!denials_write(&mut model));
    assert!(denials_write(&mut model.broken(Flaw::WritesOnDenial)));
}

fn denials_write(model: &mut Model) -> bool {
    model.reset(b"k");
    assert_eq!(takes(model, 0, 0), 10);
    let before = model.kept(b"k").cloned();
    for now_us in (0..400_000).step_by(1_000) {
        for node in [1, 2] {
            model.turn_to(node);
            assert!(!model.decide(now_us, b"k", 6, Mode::Check).allowed);
            model.decide(now_us, b"k", 1, Mode::Peek);
            model.decide(now_us, b"k", 0, Mode::Check);
        }
    }
    model.kept(b"k").cloned() != before
}

#[test]
fn a_limit_that_comes_back_finds_what_it_had_counted() {
    let log = limit("100 per 1day sliding-log");
    for between in ["100 per 1s sliding-log", "100/s", "100 per 1s fixed-window", "5 every 1s"] {
        let mut model = Model::new(&log);
        assert_eq!(takes(&mut model, 0, 0), 100);
        model.change(SECOND, &limit(between));
        model.change(3 * SECOND, &log);
        assert_eq!(takes(&mut model, 0, 5 * SECOND), 0, "{between}, nobody came");
        model.change(6 * SECOND, &limit(between));
        assert!(takes(&mut model, 0, 8 * SECOND) > 0, "{between} has a shorter memory");
        model.change(9 * SECOND, &log);
        assert_eq!(takes(&mut model, 0, DAY - 1), 0, "{between}, after grants");
        assert_eq!(takes(&mut model, 0, 2 * DAY), 100, "{between}");
    }
}

#[test]
fn a_longer_memory_starts_from_what_the_one_before_it_still_held() {
    let mut model = Model::new(&limit("10/s burst 10"));
    assert_eq!(takes(&mut model, 0, 0), 10);
    model.change(500_000, &limit("10/day burst 10"));
    // Half has flowed out by then, and more when the key is next touched.
    assert_eq!(takes(&mut model, 0, 900_000), 5);
}

#[test]
fn a_key_of_which_nothing_counts_any_more_is_unknown() {
    let mut model = Model::new(&limit("10/s burst 10"));
    assert_eq!(takes(&mut model, 0, 0), 10);
    model.change(500_000, &limit("10/day burst 10"));
    assert_eq!(takes(&mut model, 0, SECOND), 10);
}

#[test]
fn more_than_four_limits_are_merged() {
    let mut model = Model::new(&limit("100 per 1day sliding-log"));
    assert_eq!(takes(&mut model, 0, 0), 100);
    for (nth, text) in ["100/s", "101/s", "102/s", "103/s", "104/s", "105/s"].iter().enumerate() {
        let now_us = 10 * SECOND * (nth as u64 + 1);
        model.change(now_us, &limit(text));
        assert!(takes(&mut model, 0, now_us + 5 * SECOND) > 0, "{text}");
        let kept = model.kept(b"k").cloned();
        assert!(kept.as_ref().is_some_and(|key| key.others() <= 3), "{text}: {kept:?}");
    }
    assert!(model.kept(b"k").is_some_and(testkit::model::Key::has_merged));
    // The day's log has the longest to go, so it is the last to be merged.
    model.change(100 * SECOND, &limit("100 per 1day sliding-log"));
    assert_eq!(takes(&mut model, 0, 101 * SECOND), 0);
}

#[test]
fn what_was_merged_counts_for_a_limit_that_is_new() {
    let mut model = Model::new(&limit("50 per 20s fixed-window"));
    assert_eq!(takes(&mut model, 0, 0), 50);
    for (nth, text) in ["1000/day burst 200", "999/day burst 200", "998/day burst 200"].iter().enumerate() {
        let now_us = SECOND * (nth as u64 + 1);
        model.change(now_us, &limit(text));
        model.decide(now_us, b"k", 1, Mode::Check);
    }
    model.change(5 * SECOND, &limit("997/day burst 200"));
    assert!(model.decide(5 * SECOND, b"k", 1, Mode::Check).allowed, "149 are left: 51 to 53 are used");
    assert!(model.kept(b"k").is_some_and(testkit::model::Key::has_merged));
}

#[test]
fn limits_that_count_alike_share_one_count() {
    let like = |a: &str, b: &str| State::new(&limit(a)).is_like(&State::new(&limit(b)));
    assert!(
        like("10/s burst 10", "leaky 10/s capacity 10") && like("10/s burst 10", "leaky 20 per 2s queue 9")
    );
    assert!(!like("10/s burst 10", "10/s burst 11") && !like("10/s burst 10", "11/s burst 10"));
    assert!(
        like("5 per 1s fixed-window", "5 every 1s cap 5")
            && like("5 per 1s sliding-log", "9 per 1s sliding-log")
    );
    // A log keeps its entries to the microsecond, and another amount looks at the same.
    let mut model = Model::new(&limit("5 per 1s sliding-log"));
    assert!([0, 300_000].iter().all(|at_us| model.decide(*at_us, b"k", 2, Mode::Check).allowed));
    model.change(400_000, &limit("3 per 1s sliding-log"));
    assert_eq!(waits(&mut model, 0, 999_999), 1);
    assert_eq!(takes(&mut model, 0, SECOND), 1);
}

#[test]
fn a_refund_goes_to_the_limit_that_granted_and_only_while_it_is_in_force() {
    let mut model = Model::new(&limit("10/s burst 10"));
    assert!(model.decide(0, b"k", 8, Mode::Reserve).allowed);
    model.refund(0, 0, 2);
    assert_eq!(model.decide(0, b"k", 1, Mode::Peek).remaining, 4);
    model.change(0, &limit("20/s burst 10"));
    model.refund(0, 0, 2);
    assert_eq!(model.decide(0, b"k", 1, Mode::Peek).remaining, 4, "its limit is not in force any more");
    model.settle(0, 0, 7);
    assert_eq!(model.decide(0, b"k", 1, Mode::Peek).remaining, 1, "a debt is one under any limit");
}

#[test]
fn a_clock_that_ran_back_behind_a_change_gives_nothing_away() {
    let mut model = Model::new(&limit("10/day burst 10"));
    assert_eq!(takes(&mut model, 0, 1_000 * DAY), 10);
    model.change(2_000 * DAY, &limit("11/day burst 10"));
    // The change is a thousand days ahead of now: it counts as one of now.
    assert_eq!(takes(&mut model, 0, 1_000 * DAY), 0);
}

#[test]
fn a_log_beside_the_main_count_is_coarse_and_counts_for_longer() {
    let State::Slices(mut log) = State::new(&limit("100 per 64us sliding-log")) else { panic!("a log") };
    // Pieces of two slices: an entry counts as one of the odd slice.
    log.starts = [(0, 1), (1, 2), (2, 3), (7, 4)].into();
    log.coarsen(7);
    assert_eq!(log.starts, [(1, 3), (3, 3), (7, 4)].into());
}

/// What the model makes of a mixture in half a minute, and the limits of it.
fn of_a_random_mixture(from: &[&str], seed: u64, flaw: Option<Flaw>) -> (Crowd, String) {
    let mut rng = Rng::new(seed);
    let texts: Vec<&str> = (0..rng.between(2, 4)).map(|_| *rng.pick(from)).collect();
    let limits = limits(&texts);
    let every_us = *rng.pick(&[0, 0, 3_000, 20_000, 90_000, 300_000, 1_700_000]);
    let step_us = *rng.pick(&[1_000, 3_333, 7_777]);
    let begin = if every_us == 0 { limits.clone() } else { vec![limits[0].clone()] };
    let model = Model::on(*rng.pick(&[Store::Memory, Store::Redis]), &begin);
    let mut model = flaw.map_or(model.clone(), |flaw| model.broken(flaw));
    let mut last = 0;
    let mut seen = crowd(&mut model, &begin, step_us, 30 * SECOND, &mut |now_us| {
        if every_us == 0 || now_us / every_us == last {
            return Vec::new();
        }
        last = now_us / every_us;
        vec![(0, rng.pick(&limits).clone())]
    });
    seen.limits = limits;
    (seen, format!("{texts:?} changed every {every_us}us, asked every {step_us}us, seed {seed}"))
}

const BUCKETS: [&str; 9] = [
    "10/s burst 10",
    "11/s burst 10",
    "20/s burst 10",
    "10/s burst 30",
    "7/s burst 3",
    "leaky 11/s capacity 5",
    "100/s burst 5",
    "1/s burst 100",
    "12/s burst 40",
];
const KINDS: [&str; 10] = [
    "10/s burst 10",
    "20/s burst 5",
    "10 per 1s fixed-window",
    "12 per 1s sliding-log",
    "20 per 2s sliding-log",
    "10 per 1s sliding-window",
    "5 every 1s cap 30",
    "100 per 10s fixed-window",
    "leaky 10/s queue 5",
    "10/s warmup 5s",
];
const WINDOWS_US: [u64; 9] = [0, 1, 1_000, 50_000, 100_000, 500_000, SECOND, 3 * SECOND, 10 * SECOND];

/// Buckets keep all promises: what is broken of them, if something is.
fn broken_by(seen: &Crowd) -> Option<String> {
    if seen.flowed() * 100 < seen.least_flow() * 95 {
        return Some(format!("{} of {} of the strictest", seen.flowed(), seen.least_flow()));
    }
    if seen.locked_out_us > 0 {
        return Some(format!("locked out for {}us", seen.locked_out_us));
    }
    seen.worst_window(&WINDOWS_US).map(|worst| format!("{worst:?}: window, units, bound"))
}

#[test]
fn buckets_that_differ_and_change_keep_both_bounds() {
    for seed in 0..60 * cases() {
        let (seen, what) = of_a_random_mixture(&BUCKETS, seed, None);
        assert_eq!(broken_by(&seen), None, "{what}");
    }
}

#[test]
fn each_flaw_breaks_a_bound_of_buckets() {
    for flaw in [Flaw::ConvertsAtEachLook, Flaw::ForgetsOthers, Flaw::ChargesItsOwn] {
        let is_caught = |seed| broken_by(&of_a_random_mixture(&BUCKETS, seed, Some(flaw)).0).is_some();
        assert!((0..60).any(is_caught), "{flaw:?}");
    }
}

#[test]
fn kinds_together_start_no_more_than_the_sum_of_their_worst_cases() {
    for seed in 0..60 * cases() {
        let (seen, what) = of_a_random_mixture(&KINDS, seed, None);
        for window_us in WINDOWS_US {
            let units = busiest(&seen.starts, window_us, Edge::Closed).units;
            let each = seen.limits.iter().map(|one| one.worst_case(Duration::from_micros(window_us + 1), 1));
            let bound: u64 = each.sum();
            assert!(units <= bound, "{units} in {window_us}us, at most {bound}: {what}");
        }
        // A log that was kept beside the main count counts for up to a 32nd longer.
        let spared_us =
            seen.limits.iter().map(|one| u64::try_from(one.period().as_micros()).unwrap_or(0) / 32 + 1).max();
        assert!(seen.locked_out_us <= spared_us.unwrap_or(0), "{}us: {what}", seen.locked_out_us);
        let (units, least) = (seen.units(), seen.least_flow());
        assert!(units * 3 >= least * 2, "{units}, less than two thirds of {least}: {what}");
    }
}
