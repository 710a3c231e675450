//! Whether the sale let in more than its rate: judged in windows of several lengths.
//!
//! A path was let out at some moment before its answer came, at most as long before as the
//! slowest of them took. By so much a window may look fuller than it was.
//!
//! The bound is that of a store that answers all the time. Where a sale counts in Redis and Redis
//! is away during the storm, more is let in, and that is told: each process has one path at once
//! and then its share, and Redis, which knows of none of these, starts with a fuller bucket when it
//! is back (docs/redis.md). The one path a process is the least of it, so nothing is added for it:
//! a bound for outages would be too loose to find a sale that lets in too many.

use super::tally::Tally;
use std::time::Duration;
use tidegate::Limit;

const WINDOWS: [Duration; 4] =
    [Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(20)];

/// The windows with more paths than the rate allows.
pub(super) fn overruns(rate: &Limit, tally: &Tally) -> Vec<String> {
    let slack = Duration::from_micros(tally.admissions.max());
    let judged = |window: &Duration| {
        let found = most_within(&tally.admitted_at_us, *window) as u64;
        let most = rate.worst_case(*window + slack, 1);
        (found > most).then(|| format!("let in: {found} within {window:?}, and at {rate} at most {most}"))
    };
    WINDOWS.iter().filter_map(judged).collect()
}

/// The most of these moments, which are in order, within any such window.
pub(super) fn most_within(moments_us: &[u64], window: Duration) -> usize {
    let window_us = u64::try_from(window.as_micros()).unwrap_or(u64::MAX);
    let (mut most, mut begin) = (0, 0);
    for (end, at) in moments_us.iter().enumerate() {
        while moments_us[begin].saturating_add(window_us) <= *at {
            begin += 1;
        }
        most = most.max(end + 1 - begin);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_window_may_begin_anywhere() {
        let within = |moments: &[u64]| most_within(moments, Duration::from_secs(1));
        assert_eq!(within(&[]), 0);
        assert_eq!(within(&[5]), 1);
        // Half a second apart, and three at once across a whole second's boundary.
        assert_eq!(within(&[0, 500_000, 999_999, 1_000_000, 1_000_001, 2_500_000]), 4);
        assert_eq!(within(&[0, 1_000_000, 2_000_000]), 1, "a second's end is not in it");
    }

    #[test]
    fn one_too_many_is_told_and_the_bound_itself_is_not() {
        let rate: Limit = "1000/s burst 10".parse().unwrap();
        let told = |paths: u64| {
            let mut tally = Tally { admitted_at_us: (0..paths).map(|_| 7_000).collect(), ..Tally::default() };
            tally.admissions.record(0, 2_000);
            overruns(&rate, &tally)
        };
        // Ten at once, a hundred in 100 ms, and two in the time that an answer may have taken.
        let most = rate.worst_case(Duration::from_millis(102), 1);
        assert!(most < 120, "{most}");
        assert_eq!(told(most), Vec::<String>::new());
        assert!(told(most + 1)[0].starts_with(&format!("let in: {} within 100ms", most + 1)));
    }
}
