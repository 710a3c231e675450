//! When those who are turned away should come back.
//!
//! A bucket knows when its next unit is free: in a millisecond, and it says so to everyone. They
//! would all come back together, all but one in vain, on top of those who come for the first
//! time. So each is told the turn that they would have if all who were turned away stood in a
//! line that moves at the sale's rate.
//!
//! It is a time to come back and nothing more: no unit is kept for it, and whoever comes earlier
//! is asked about by the same bucket as everybody else. Each process has a line of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate::Limit;

/// The longest that anybody is told: until then most things have changed.
const LONGEST: Duration = Duration::from_secs(30);
/// How often one user may join.
pub(crate) const EACH: &str = "1/30s";

#[derive(Debug, Default)]
pub(crate) struct Line {
    /// When the last one who joined is due, in microseconds since 1970.
    end_us: AtomicU64,
}

/// Where somebody stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) after: Duration,
    /// So many come before.
    pub(crate) ahead: u64,
}

impl Line {
    /// So many more; the turn of the last.
    pub(crate) fn join(&self, now_ms: u64, rate: &Limit, units: u64) -> Turn {
        let now_us = now_ms.saturating_mul(1_000);
        let each_us = rate.period_us().div_ceil(rate.amount().max(1));
        let more_us = each_us.saturating_mul(units);
        // Also where the clock was set back.
        let latest = now_us.saturating_add(u64::try_from(LONGEST.as_micros()).unwrap_or(u64::MAX));
        let turn = |end: u64| end.max(now_us).saturating_add(more_us).min(latest);
        let joined = self.end_us.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |end| Some(turn(end)));
        let after_us = joined.map_or(0, turn) - now_us;
        Turn { after: Duration::from_micros(after_us), ahead: (after_us / each_us.max(1)).saturating_sub(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    fn rate() -> Limit {
        "1000/s burst 1s wait 1s".parse().unwrap()
    }

    fn turn(ms: u64, ahead: u64) -> Turn {
        Turn { after: Duration::from_millis(ms), ahead }
    }

    #[test]
    fn those_who_are_turned_away_come_back_one_after_the_other() {
        let line = Line::default();
        let turns: Vec<_> = (0..5_000).map(|_| line.join(NOW, &rate(), 1)).collect();
        let expected: Vec<_> = (0..5_000).map(|ahead| turn(ahead + 1, ahead)).collect();
        assert_eq!(turns, expected);
        // It moves on by itself, and nobody has to leave it.
        assert_eq!(line.join(NOW + 2_000, &rate(), 1), turn(3_001, 3_000));
        // Who stands in it already is told its end, and makes it no longer.
        assert_eq!(line.join(NOW + 2_000, &rate(), 0), turn(3_001, 3_000));
        assert_eq!(line.join(NOW + 60_000, &rate(), 1), turn(1, 0));
    }

    #[test]
    fn nobody_is_told_to_wait_longer_than_the_longest() {
        let line = Line::default();
        let last = (0..100_000).map(|_| line.join(NOW, &rate(), 1)).last().unwrap();
        assert_eq!(last, turn(30_000, 29_999));
        // Those beyond it do not make it longer.
        assert_eq!(line.join(NOW + 1_000, &rate(), 1), turn(29_001, 29_000));
        let slow: Limit = "1/h".parse().unwrap();
        assert_eq!(Line::default().join(NOW, &slow, 1), turn(30_000, 0));
        // The clock was set back by an hour.
        assert_eq!(line.join(NOW - 3_600_000, &rate(), 1), turn(30_000, 29_999));
    }
}
