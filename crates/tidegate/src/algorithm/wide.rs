//! A smooth bucket in plain ticks of 128 bits, for every rate that does not fit a [word](super::Word).

use super::{MILLIONTHS, Scale};

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
}

impl Scale for Wide {
    type Tat = u128;

    fn now(self, now_us: u64) -> u128 {
        u128::from(now_us) * u128::from(self.drain)
    }

    fn burst(self) -> u128 {
        self.burst
    }

    fn full(self) -> u128 {
        self.full
    }

    fn empty_us(self, level: u128, _now_us: u64) -> u64 {
        u64::try_from(level.div_ceil(u128::from(self.drain))).unwrap_or(u64::MAX)
    }

    fn cell(self) -> u64 {
        self.cell
    }
}
