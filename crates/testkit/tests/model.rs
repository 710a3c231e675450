//! The model against what was worked out by hand: the reference needs one too.

use testkit::{Denied, Mode, Model, Seen};

struct Key(Model);

impl Key {
    fn of(text: &str) -> Self {
        Self(Model::new(&text.parse().expect("a limit")))
    }

    fn ask(&mut self, now_us: u64, cost: u64, mode: Mode) -> Seen {
        self.0.decide(now_us, b"k", cost, mode)
    }

    fn check(&mut self, now_us: u64, cost: u64) -> Seen {
        self.ask(now_us, cost, Mode::Check)
    }

    /// The wait of a reservation that is allowed.
    fn wait(&mut self, now_us: u64, cost: u64) -> Option<u64> {
        let seen = self.ask(now_us, cost, Mode::Reserve);
        seen.allowed.then_some(seen.wait_us)
    }
}

fn allowed(remaining: u64, limit: u64, reset_us: u64) -> Seen {
    Seen { allowed: true, wait_us: 0, denial: None, remaining, limit, reset_us }
}

fn denied(why: Denied, remaining: u64, limit: u64, reset_us: u64) -> Seen {
    Seen { allowed: false, wait_us: 0, denial: Some(why), remaining, limit, reset_us }
}

#[test]
fn a_bucket_refills_at_exactly_its_rate() {
    // 3 a second: a unit is 333,333 1/3 us.
    let mut key = Key::of("3/s burst 2");
    assert_eq!(key.check(0, 1), allowed(1, 2, 333_334));
    assert_eq!(key.check(0, 1), allowed(0, 2, 666_667));
    assert_eq!(key.check(0, 1), denied(Denied::Later(333_334), 0, 2, 666_667));
    assert_eq!(key.check(333_333, 1), denied(Denied::Later(1), 0, 2, 333_334));
    assert_eq!(key.check(333_334, 1), allowed(0, 2, 666_666));
    assert_eq!(key.check(333_334, 3), denied(Denied::Never, 0, 2, 666_666));
    assert_eq!(key.check(333_334, 0), allowed(0, 2, 666_666));
    assert_eq!(key.check(1_000_000, 2), allowed(0, 2, 666_667));
}

#[test]
fn a_reservation_waits_for_what_it_takes_and_for_those_before() {
    let mut key = Key::of("10/s burst 1 wait 250ms");
    assert_eq!(key.wait(0, 1), Some(0));
    assert_eq!(key.wait(0, 1), Some(100_000));
    assert_eq!(key.wait(0, 1), Some(200_000));
    assert_eq!(key.ask(0, 1, Mode::Reserve), denied(Denied::Later(50_000), 0, 1, 300_000));
    assert_eq!(key.wait(50_000, 1), Some(250_000));
    assert_eq!(key.ask(0, 4, Mode::Reserve).denial, Some(Denied::Never));
}

#[test]
fn a_queue_lets_one_start_after_the_other() {
    let mut key = Key::of("leaky 10/s queue 2");
    assert_eq!(
        (0..4).map(|_| key.wait(0, 1)).collect::<Vec<_>>(),
        [Some(0), Some(100_000), Some(200_000), None]
    );
}

#[test]
fn a_fixed_window_ends_at_the_multiple_of_its_period() {
    let mut key = Key::of("2 per 1s fixed-window wait 1500ms");
    assert_eq!(key.check(999_999, 2), allowed(0, 2, 1));
    assert_eq!(key.check(1_000_000, 2), allowed(0, 2, 1_000_000));
    assert_eq!(key.wait(1_000_000, 1), Some(1_000_000));
    assert_eq!(key.wait(1_000_000, 2), None, "its window begins after two seconds");
    assert_eq!(key.wait(1_500_000, 2), Some(1_500_000));
}

#[test]
fn a_ticked_bucket_saves_up_to_its_cap() {
    let mut key = Key::of("2 every 1s cap 5");
    assert_eq!(key.check(0, 5), allowed(0, 5, 3_000_000));
    assert_eq!(key.check(999_999, 1), denied(Denied::Later(1), 0, 5, 2_000_001));
    assert_eq!(key.check(2_000_000, 4), allowed(0, 5, 3_000_000));
    assert_eq!(key.check(60_000_000, 5), allowed(0, 5, 3_000_000));
}

#[test]
fn a_log_counts_a_start_for_exactly_one_period() {
    let mut key = Key::of("2 per 10us sliding-log wait 100us");
    assert_eq!(key.check(3, 1), allowed(1, 2, 10));
    assert_eq!(key.check(7, 1), allowed(0, 2, 10));
    assert_eq!(key.check(12, 1), denied(Denied::Later(1), 0, 2, 5));
    assert_eq!(key.check(13, 1), allowed(0, 2, 10));
    assert_eq!(key.wait(13, 2), Some(10), "both must have left");
}

#[test]
fn a_window_counts_its_oldest_slice_whole() {
    // Slices of 3 us, since 10 does not divide by 4; a start counts in five of them.
    let mut key = Key::of("2 per 10us sliding-window slices 4");
    assert_eq!(key.check(2, 2), allowed(0, 2, 13));
    assert_eq!(key.check(14, 1), denied(Denied::Later(1), 0, 2, 1));
    assert_eq!(key.check(15, 1), allowed(1, 2, 15));
}

#[test]
fn a_cold_key_starts_at_a_third_of_its_rate_and_warms_up() {
    let mut key = Key::of("10/s warmup 10s wait 1s");
    assert_eq!(key.wait(0, 1), Some(0));
    // 100 permits stored at cold, 50 of them dear: the second costs nearly three cells.
    let second = key.wait(0, 1).unwrap();
    assert!((290_000..300_000).contains(&second), "{second}");
    let mut now_us = second;
    let mut gaps = Vec::new();
    for _ in 0..120 {
        let wait = key.wait(now_us, 1).unwrap();
        gaps.push(wait);
        now_us += wait;
    }
    assert!(gaps.is_sorted_by(|a, b| a >= b), "{gaps:?}");
    assert_eq!(gaps.last(), Some(&100_000));
    // From cold to warm takes the upper half, which takes twice its permits' plain time.
    let warm: u64 = gaps.iter().filter(|gap| **gap > 101_000).sum();
    assert!((9_000_000..10_100_000).contains(&warm), "{warm}");
}

#[test]
fn a_grant_gives_back_what_has_not_flowed_out() {
    let mut key = Key::of("10/s burst 10");
    key.wait(0, 8);
    key.0.refund(200_000, 0, 3);
    assert_eq!(key.check(200_000, 0).remaining, 7, "8 less 2 flowed out, less 3");
    key.0.refund(200_000, 0, 9);
    assert_eq!(key.check(200_000, 0).remaining, 10);
    key.wait(200_000, 4);
    key.0.settle(200_000, 1, 6);
    assert_eq!(key.check(200_000, 0).remaining, 4);
}

#[test]
fn a_waiting_grant_gives_back_once_nobody_builds_on_it() {
    let mut key = Key::of("10/s burst 1 wait 1s");
    assert_eq!([key.wait(0, 1), key.wait(0, 1), key.wait(0, 1)], [Some(0), Some(100_000), Some(200_000)]);
    key.0.cancel(0, 1);
    assert_eq!(key.check(0, 1).denial, Some(Denied::Later(300_000)));
    key.0.cancel(0, 2);
    assert_eq!(key.check(0, 1).denial, Some(Denied::Later(100_000)));
}

#[test]
fn a_changed_limit_takes_over_what_was_used() {
    let mut key = Key::of("10/s burst 10");
    key.check(0, 7);
    key.0.change(50_000, &"20 per 1s sliding-log".parse().unwrap());
    assert_eq!(key.check(50_000, 0), allowed(13, 20, 1_000_000), "6.5 used, counted as 7");
    key.0.change(60_000, &"1/s burst 5".parse().unwrap());
    assert_eq!(key.check(60_000, 1), denied(Denied::Later(1_000_000), 0, 5, 5_000_000));
}

#[test]
fn a_clock_that_ran_ahead_and_back_locks_out_for_one_drain_at_most() {
    let mut key = Key::of("10/s burst 10");
    key.check(1_000_000_000, 10);
    assert_eq!(key.check(5_000_000, 1), denied(Denied::Later(100_000), 0, 10, 1_000_000));
    assert_eq!(key.check(5_100_000, 1), allowed(0, 10, 1_000_000));
}
