//! The units of account of a bucket.
//!
//! A bucket's whole state is one number, the time at which it will be empty (its TAT), counted in
//! ticks: with `period / amount` reduced to `cell / drain`, a unit adds `cell` ticks and a
//! microsecond drains `drain`. No rounding anywhere, so no drift. [`Word`](super::Word) and
//! [`Wide`](super::Wide) count like this; [`Stepped`](super::Stepped) counts units that drain at
//! each multiple of a tick.

use super::Gauge;
use std::ops::{Add, Sub};

/// Units are converted between limits in millionths, rounded up.
pub(crate) const MILLIONTHS: u64 = 1_000_000;

/// Millionths of a unit in ticks, rounded up.
pub(super) fn millionths_of(ticks: u128, cell: u64) -> u128 {
    (ticks * u128::from(MILLIONTHS)).div_ceil(u128::from(cell))
}

/// The ticks of millionths of a unit, rounded up.
pub(super) fn ticks_of(millionths: u128, cell: u64) -> u128 {
    millionths.saturating_mul(u128::from(cell)).div_ceil(u128::from(MILLIONTHS))
}

/// What a bucket needs from its unit of account.
pub(crate) trait Scale: Copy {
    /// A level, or a point in time.
    type Tat: Copy + Ord + Add<Output = Self::Tat> + Sub<Output = Self::Tat> + Into<u128> + TryFrom<u128>;

    /// A point in time from how it is kept, where zero is long past. Default: as it is.
    #[inline]
    fn load(self, kept: Self::Tat) -> Self::Tat {
        kept
    }
    /// How a point in time is kept.
    #[inline]
    fn store(self, tat: Self::Tat) -> Self::Tat {
        tat
    }

    fn now(self, now_us: u64) -> Self::Tat;
    /// What `units` add; `None` if that is more than [`full`](Self::full).
    #[inline]
    fn cost(self, units: u64) -> Option<Self::Tat> {
        let cost = Self::Tat::try_from(u128::from(units) * u128::from(self.cell())).ok();
        cost.filter(|cost| *cost <= self.full())
    }
    #[inline]
    fn plus(self, a: Self::Tat, b: Self::Tat) -> Self::Tat {
        a + b
    }
    /// `a - b`, for `a >= b`.
    #[inline]
    fn minus(self, a: Self::Tat, b: Self::Tat) -> Self::Tat {
        a - b
    }
    /// The time at which `level`, as of now, will be empty. The clock shows whole microseconds:
    /// there is nothing to carry.
    #[inline]
    fn after(self, now: Self::Tat, level: Self::Tat) -> Self::Tat {
        now + level
    }
    /// The level after a call: usually [`plus`](Self::plus).
    #[inline]
    fn raised(self, level: Self::Tat, cost: Self::Tat) -> Self::Tat {
        self.plus(level, cost)
    }
    /// The level up to which a call may start.
    fn burst(self) -> Self::Tat;
    /// The level up to which a call may be told to wait.
    fn full(self) -> Self::Tat;
    /// The greatest cost that can ever be granted.
    #[inline]
    fn greatest(self, may_wait: bool) -> Self::Tat {
        if may_wait { self.full() } else { self.burst() }
    }
    /// Microseconds from now until `level` is empty, rounded up.
    fn empty_us(self, level: Self::Tat, now_us: u64) -> u64;
    /// Microseconds from now until `level` has sunk to the burst, rounded up.
    #[inline]
    fn wait_us(self, level: Self::Tat, now_us: u64) -> u64 {
        if level <= self.burst() { 0 } else { self.empty_us(self.minus(level, self.burst()), now_us) }
    }
    /// Microseconds from now until a call that makes `level` would be let through;
    /// `None` if it is now.
    #[inline]
    fn retry_us(self, level: Self::Tat, now_us: u64, may_wait: bool) -> Option<u64> {
        let cap = self.greatest(may_wait);
        if level <= cap { None } else { Some(self.empty_us(self.minus(level, cap), now_us)) }
    }
    /// The ticks that a unit adds.
    fn cell(self) -> u64;
    /// A level in ticks.
    #[inline]
    fn ticks(self, level: Self::Tat) -> u128 {
        level.into()
    }
    /// The level of so many ticks; at most a full one.
    fn of_ticks(self, ticks: u128) -> Self::Tat {
        Self::Tat::try_from(ticks).map_or(self.full(), |level| level.min(self.full()))
    }
    /// What is left at a level of a limit that holds `limit` units.
    fn gauge(self, level: Self::Tat, now_us: u64, limit: u64) -> Gauge {
        let used = u64::try_from(self.ticks(level).div_ceil(self.cell().into())).unwrap_or(u64::MAX);
        Gauge::Plain { remaining: limit.saturating_sub(used), reset_us: self.empty_us(level, now_us) }
    }
    /// The longest that a full bucket takes to drain.
    fn longest_us(self) -> u64 {
        self.empty_us(self.full(), 0)
    }
}
