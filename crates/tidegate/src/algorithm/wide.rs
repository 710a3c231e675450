//! A smooth bucket in plain ticks of 128 bits, for every rate that does not fit a [word](super::Word).

use super::MILLIONTHS;
use super::scale::{Scale, millionths_of, ticks_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wide {
    pub(crate) cell: u64,
    pub(crate) drain: u64,
    pub(crate) burst: u128,
    pub(crate) full: u128,
}

impl Wide {
    /// The same in finer ticks, so that a unit has a million of them where the numbers allow it:
    /// then a changed limit takes over what was used as exactly. `fits` says whether a factor is
    /// still possible.
    pub(crate) fn finer(self, fits: impl Fn(u64) -> bool) -> Self {
        let mut factor = 1;
        while self.cell.saturating_mul(factor) < MILLIONTHS && fits(factor * 10) {
            factor *= 10;
        }
        let (cell, drain, fine) = (self.cell * factor, self.drain * factor, u128::from(factor));
        Self { cell, drain, burst: self.burst * fine, full: self.full * fine }
    }

    /// Units of a full bucket, rounded down.
    #[cfg(feature = "redis")]
    pub(crate) fn full_units(self) -> u64 {
        u64::try_from(self.full / u128::from(self.cell)).unwrap_or(u64::MAX)
    }

    fn us(self, ticks: u128) -> u64 {
        u64::try_from(ticks.div_ceil(u128::from(self.drain))).unwrap_or(u64::MAX)
    }
}

impl Scale for Wide {
    type Tat = u128;
    type Stored = u128;

    fn load(self, tat: u128) -> u128 {
        tat
    }

    fn store(self, tat: u128) -> u128 {
        tat
    }

    fn now(self, now_us: u64) -> u128 {
        u128::from(now_us) * u128::from(self.drain)
    }

    fn cost(self, units: u64) -> Option<u128> {
        Some(u128::from(units) * u128::from(self.cell)).filter(|cost| *cost <= self.full)
    }

    fn burst(self) -> u128 {
        self.burst
    }

    fn full(self) -> u128 {
        self.full
    }

    fn units(self, level: u128) -> u64 {
        u64::try_from(level.div_ceil(u128::from(self.cell))).unwrap_or(u64::MAX)
    }

    fn empty_us(self, level: u128, _now_us: u64) -> u64 {
        self.us(level)
    }

    fn millionths(self, level: u128) -> u128 {
        millionths_of(level, self.cell)
    }

    fn of_millionths(self, millionths: u128) -> u128 {
        ticks_of(millionths, self.cell).min(self.full)
    }

    fn counts_like(self, other: Self) -> bool {
        (self.cell, self.drain, self.full) == (other.cell, other.drain, other.full)
    }
}
