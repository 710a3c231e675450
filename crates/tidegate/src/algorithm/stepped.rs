//! A bucket that drains in steps: a tick's worth of units at each multiple of the tick in Unix time.
//!
//! A fixed window is one whose cap is its amount. Kept in one [word](super::Word), too.

use super::Scale;
use super::word::FRACTION_BITS;

/// Drain of `amount` units each `tick_us`, the first time `tick_us - phase_us` after the
/// clock's zero: that is how ticks come to sit on Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stepped {
    pub(crate) amount: u64,
    pub(crate) tick_us: u64,
    pub(crate) cap: u64,
    pub(crate) wait_us: u64,
    /// How far the tick at the clock's zero has gone on by then: less than a tick.
    pub(crate) phase_us: u64,
}

/// The first Monday of Unix time, which began on a Thursday.
const MONDAY_US: u64 = 4 * 86_400_000_000;
const WEEK_US: u64 = 7 * 86_400_000_000;

/// How far the tick of this length is at the zero of a clock whose zero is this Unix time.
/// Ticks begin at multiples of their length since 1970, those of whole weeks on Monday, and
/// all of them `offset_us` later.
pub(crate) fn phase_us(tick_us: u64, offset_us: u64, unix_us_at_zero: u64) -> u64 {
    let first = if tick_us.is_multiple_of(WEEK_US) { MONDAY_US } else { 0 } + offset_us;
    (unix_us_at_zero % tick_us + tick_us - first % tick_us) % tick_us
}

impl Stepped {
    /// Bits by which the time in a word is coarser, to make room for the units
    /// within a tick. Less than a tick, as no rate exceeds 1,000 units a microsecond.
    fn coarse_bits(self) -> u32 {
        (u64::BITS - (self.amount - 1).leading_zeros()).saturating_sub(FRACTION_BITS)
    }

    pub(crate) fn tick(self, now_us: u64) -> u64 {
        (now_us + self.phase_us) / self.tick_us
    }

    /// When a tick begins; the clock's zero for the one that has begun by then.
    pub(crate) fn begins_us(self, tick: u64) -> u64 {
        (tick * self.tick_us).saturating_sub(self.phase_us)
    }
}

impl Scale for Stepped {
    type Tat = u64;

    #[inline]
    fn load(self, word: u64) -> u64 {
        if word == 0 {
            return 0;
        }
        let coarse = self.coarse_bits();
        let bits = FRACTION_BITS + coarse;
        let time = ((word - 1) >> bits) + 1;
        let missing = (time << bits) - word;
        let empty_tick = self.tick((time - 1) << coarse);
        (empty_tick * self.amount).saturating_sub(missing)
    }

    /// The tick at which it is empty, rounded up and one more, so that the word never seems idle
    /// too early, less what is missing to that tick.
    #[inline]
    fn store(self, tat: u64) -> u64 {
        let coarse = self.coarse_bits();
        let empty_tick = tat.div_ceil(self.amount);
        let missing = empty_tick * self.amount - tat;
        let time = self.begins_us(empty_tick).div_ceil(1 << coarse) + 1;
        (time << (FRACTION_BITS + coarse)) - missing
    }

    #[inline]
    fn now(self, now_us: u64) -> u64 {
        self.tick(now_us) * self.amount
    }

    /// A window's units start in that window: what does not fit starts whole in the next one.
    /// Saved-up tokens (a cap other than the amount) may come from several ticks.
    #[inline]
    fn raised(self, level: u64, cost: u64) -> u64 {
        let in_window = level % self.amount;
        if self.cap == self.amount && in_window + cost > self.amount {
            return level - in_window + self.amount + cost;
        }
        level + cost
    }

    #[inline]
    fn burst(self) -> u64 {
        self.cap
    }

    #[inline]
    fn greatest(self, _may_wait: bool) -> u64 {
        // More would start at one instant than the cap promises.
        self.cap
    }

    #[inline]
    fn full(self) -> u64 {
        self.cap + self.amount * self.wait_us.div_ceil(self.tick_us)
    }

    #[inline]
    fn retry_us(self, level: u64, now_us: u64, may_wait: bool) -> Option<u64> {
        let wait_us = self.wait_us(level, now_us);
        let longest_us = if may_wait { self.wait_us } else { 0 };
        if wait_us <= longest_us { None } else { Some(wait_us - longest_us) }
    }

    fn empty_us(self, level: u64, now_us: u64) -> u64 {
        if level == 0 {
            return 0;
        }
        self.begins_us(self.tick(now_us) + level.div_ceil(self.amount)) - now_us
    }

    /// Counts in units.
    #[inline]
    fn cell(self) -> u64 {
        1
    }

    /// From the beginning of a tick on.
    fn longest_us(self) -> u64 {
        self.full().div_ceil(self.amount) * self.tick_us
    }
}

#[cfg(test)]
mod tests {
    use super::super::word_at;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_stepped_word_keeps_its_units_and_is_never_idle_early(
            amount in 1u64..=1_000_000_000_000, tick in 1u64..=315_576_000_000_000,
            ticks_on in 0u64..1 << 48, level in 1u64..1 << 40, phase in 0u64..1 << 49,
        ) {
            prop_assume!(amount / 1_000 <= tick && amount <= 1_000 * tick);
            let phase_us = phase % tick;
            let stepped = Stepped { amount, tick_us: tick, cap: amount, wait_us: 0, phase_us };
            let now_us = ticks_on.min(0x1_8000_0000_0000);
            let tat = stepped.now(now_us) + level;
            let empty = tat.div_ceil(amount);
            prop_assume!(u128::from(empty) * u128::from(tick) < 740_000_000_000_000);
            let word = stepped.store(tat);
            prop_assert_eq!(stepped.load(word), tat);
            let ends_us = empty * tick - phase_us;
            prop_assert!(word > word_at(ends_us - 1), "idle before its tick");
            prop_assert_eq!(stepped.empty_us(level, now_us), ends_us - now_us);
        }

        #[test]
        fn ticks_begin_at_multiples_of_their_length_in_unix_time(
            tick in 1u64..=315_576_000_000_000, offset in 0u64..1 << 49, zero in 0u64..1 << 51,
            now_us in 0u64..1 << 48,
        ) {
            let offset = offset % tick;
            let phase_us = phase_us(tick, offset, zero);
            prop_assert!(phase_us < tick);
            let stepped = Stepped { amount: 1, tick_us: tick, cap: 1, wait_us: 0, phase_us };
            let edge = zero + stepped.begins_us(stepped.tick(now_us) + 1);
            let week = if tick % WEEK_US == 0 { MONDAY_US } else { 0 };
            prop_assert_eq!(edge % tick, (week + offset) % tick);
            prop_assert!(zero + now_us < edge && edge <= zero + now_us + tick);
        }
    }
}
