//! What is promised of limits that change, by counting starts: neither too few nor too many,
//! nobody locked out, and no more memory than before.

use testkit::hot::{Crowd, crowd};
use testkit::library::{Library, Way};
use testkit::rng::Rng;
use testkit::suite::cases;
use tidegate::{Limit, Limiter, ManualClock};

const SECOND: u64 = 1_000_000;
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
const WINDOWS_US: [u64; 9] = [0, 1, 1_000, 50_000, 100_000, 500_000, SECOND, 3 * SECOND, 10 * SECOND];

/// A hot key under a controller that picks one of up to four limits every so often.
fn watched(seed: u64) -> (Crowd, String) {
    let mut rng = Rng::new(seed);
    let texts: Vec<&str> = (0..rng.between(2, 4)).map(|_| *rng.pick(&BUCKETS)).collect();
    let limits: Vec<Limit> = texts.iter().map(|text| text.parse().unwrap()).collect();
    let every_us = *rng.pick(&[3_000, 20_000, 90_000, 300_000, 1_700_000]);
    let step_us = *rng.pick(&[1_000, 3_333, 7_777]);
    let mut subject = Library::new(&limits[0], Way::Key);
    let mut last = 0;
    let mut seen = crowd(&mut subject, &limits[..1], step_us, 30 * SECOND, &mut |now_us| {
        if now_us / every_us == last {
            return Vec::new();
        }
        last = now_us / every_us;
        vec![(0, rng.pick(&limits).clone())]
    });
    seen.limits = limits;
    (seen, format!("{texts:?} changed every {every_us}us, asked every {step_us}us, seed {seed}"))
}

#[test]
fn changing_buckets_let_through_95_percent_of_the_strictest_and_no_more_than_the_loosest() {
    for seed in 0..40 * cases() {
        let (seen, what) = watched(seed);
        let (units, least) = (seen.flowed(), seen.least_flow());
        assert!(units * 100 >= least * 95, "{units} of {least}: {what}");
        assert_eq!(seen.worst_window(&WINDOWS_US), None, "window, units, bound: {what}");
        assert_eq!(seen.locked_out_us, 0, "beyond a full key of the limit in force: {what}");
    }
}

#[test]
fn many_changes_take_no_more_memory_than_the_cap_says() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).max_keys(500).build();
    let gate = limiter.gate("changing", "100/day burst 3").unwrap();
    let (_, most) = limiter.long_keys();
    for nth in 0..400_u64 {
        clock.advance(std::time::Duration::from_millis(7));
        let amount = nth % 9 + 1;
        let text = match nth % 4 {
            0 => format!("{amount}/day burst 3"),
            1 => format!("{amount} per 1day sliding-log"),
            2 => format!("{amount}/s burst {amount}"),
            _ => format!("{amount} per 1h fixed-window"),
        };
        gate.change(&*text).unwrap();
        for key in 0..40 {
            let _ = gate.check(&format!("user {}", (nth * 13 + key) % 300));
        }
        let (held, _) = limiter.long_keys();
        assert!(held <= most + 1, "{held} long keys of at most {most}, one more for all others");
    }
}
