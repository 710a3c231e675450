//! A smooth bucket in one word: microseconds in the upper 50 bits, the ticks within one in the
//! lower 14.
//!
//! Needs `drain <= 2^14`; thirteen years of clock and a drain of ten years fit. A decision of one
//! unit takes no multiplication and no division.
//!
//! What all words of the flat table have in common, [stepped](super::Stepped) ones too: a key is as
//! good as unused exactly from the time on that its word has passed. So the table can tell idle
//! entries without knowing their limits.

use super::{Gauge, Scale, Wide};

/// Ticks within a microsecond take this many bits of a word.
pub(super) const FRACTION_BITS: u32 = 14;
const FRACTION: u64 = (1 << FRACTION_BITS) - 1;

/// The word of this time: what a word must not exceed to be idle.
#[inline]
pub(crate) fn word_at(now_us: u64) -> u64 {
    now_us << FRACTION_BITS
}

/// Units in a level that is a word.
#[inline]
pub(super) fn units_rounded_up(level: u64, cell: u64, drain: u64) -> u64 {
    let ticks = (level >> FRACTION_BITS) * drain + (level & FRACTION);
    // One, for a key that was unused before: no division for most.
    if (1..=cell).contains(&ticks) { 1 } else { ticks.div_ceil(cell) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) cell: u64,
    pub(crate) drain: u64,
    pub(crate) unit: u64,
    pub(crate) burst: u64,
    pub(crate) full: u64,
}

impl Word {
    /// `None` if the numbers do not fit a word.
    pub(crate) fn new(wide: Wide) -> Option<Self> {
        if wide.drain > FRACTION + 1 {
            return None;
        }
        let Wide { cell, drain, burst, full } = wide.finer(|factor| wide.drain * factor <= FRACTION + 1);
        let word = |ticks: u128| u64::try_from(ticks).ok().map(|ticks| Self::from_ticks(ticks, drain));
        let unit = Self::from_ticks(cell, drain);
        Some(Self { cell, drain, unit, burst: word(burst)?, full: word(full)? })
    }

    fn from_ticks(ticks: u64, drain: u64) -> u64 {
        ((ticks / drain) << FRACTION_BITS) | (ticks % drain)
    }

    #[inline]
    pub(crate) fn us_rounded_up(level: u64) -> u64 {
        (level + FRACTION) >> FRACTION_BITS
    }
}

impl Scale for Word {
    type Tat = u64;

    #[inline]
    fn now(self, now_us: u64) -> u64 {
        word_at(now_us)
    }

    #[inline]
    fn cost(self, units: u64) -> Option<u64> {
        if units == 1 {
            return Some(self.unit);
        }
        let ticks = u128::from(units) * u128::from(self.cell);
        let ticks = u64::try_from(ticks).ok()?;
        // Compared as microseconds first: the word of a greater cost could overflow.
        if ticks / self.drain > self.full >> FRACTION_BITS {
            return None;
        }
        Some(Self::from_ticks(ticks, self.drain)).filter(|cost| *cost <= self.full)
    }

    #[inline]
    fn plus(self, a: u64, b: u64) -> u64 {
        let sum = a + b;
        let fraction = (a & FRACTION) + (b & FRACTION);
        // The fractions count to `drain`, the bits to 2^14: carry by hand.
        if fraction >= self.drain { sum + (FRACTION + 1) - self.drain } else { sum }
    }

    #[inline]
    fn minus(self, a: u64, b: u64) -> u64 {
        let difference = a - b;
        if a & FRACTION < b & FRACTION { difference - ((FRACTION + 1) - self.drain) } else { difference }
    }

    #[inline]
    fn burst(self) -> u64 {
        self.burst
    }

    #[inline]
    fn full(self) -> u64 {
        self.full
    }

    #[inline]
    fn empty_us(self, level: u64, _now_us: u64) -> u64 {
        Self::us_rounded_up(level)
    }

    fn cell(self) -> u64 {
        self.cell
    }

    fn ticks(self, level: u64) -> u128 {
        u128::from((level >> FRACTION_BITS) * self.drain + (level & FRACTION))
    }

    fn of_ticks(self, ticks: u128) -> u64 {
        Self::from_ticks(ticks.min(self.ticks(self.full)) as u64, self.drain)
    }

    fn gauge(self, level: u64, _now_us: u64, _limit: u64) -> Gauge {
        Gauge::Word { level, cell: self.cell, drain: self.drain }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn word_arithmetic_is_tick_arithmetic(
            // Thirteen years of clock and ten of drain are less than both together.
            drain in 1u64..=1 << 14, cell in 1u64..1 << 40, a in 0u64..1 << 49, b in 0u64..1 << 49,
        ) {
            let word = Word { cell, drain, unit: Word::from_ticks(cell, drain), burst: 0, full: 0 };
            let (wa, wb) = (Word::from_ticks(a, drain), Word::from_ticks(b, drain));
            prop_assert_eq!(word.plus(wa, wb), Word::from_ticks(a + b, drain));
            if a >= b {
                prop_assert_eq!(word.minus(wa, wb), Word::from_ticks(a - b, drain));
            }
            prop_assert_eq!(wa.cmp(&wb), a.cmp(&b));
            prop_assert_eq!(Word::us_rounded_up(wa), a.div_ceil(drain));
            prop_assert_eq!(units_rounded_up(wa, cell, drain), a.div_ceil(cell));
        }
    }
}
