//! The units of account of a bucket.
//!
//! A bucket's whole state is one number, the time at which it will be empty (its
//! TAT), counted in ticks: with `period / amount` reduced to `cell / drain`, a unit
//! adds `cell` ticks and a microsecond drains `drain`. No rounding anywhere, so no
//! drift. Three ways to write that number:
//!
//! - [`Word`]: microseconds in the upper 50 bits, the ticks within one in the lower
//!   14. Needs `drain <= 2^14`; thirteen years of clock and a drain of ten years fit.
//!   No multiplication and no division on the way of a unit-cost decision.
//! - [`Wide`]: plain ticks in 128 bits, for every other rate.
//! - [`Stepped`]: units that drain a tick's worth at each multiple of the tick in Unix
//!   time; a fixed window is one whose cap is its amount. Kept in one word, too.
//!
//! What words have in common: a key is as good as unused exactly from the time on
//! that its word, read as a [`Word`], has passed. So a table can tell idle slots
//! without knowing their limits.

/// Ticks within a microsecond take this many bits of a word.
const FRACTION_BITS: u32 = 14;
const FRACTION: u64 = (1 << FRACTION_BITS) - 1;

/// Units are converted between limits in millionths, rounded up.
pub(crate) const MILLIONTHS: u64 = 1_000_000;

/// How much finer than in lowest terms ticks are counted, so that a unit has a million of
/// them where the numbers allow it: then a changed limit takes over what was used as exactly.
/// `fits` says whether a factor is still possible.
pub(crate) fn finer(cell: u64, fits: impl Fn(u64) -> bool) -> u64 {
    let mut factor = 1;
    while cell.saturating_mul(factor) < MILLIONTHS && fits(factor * 10) {
        factor *= 10;
    }
    factor
}

/// Millionths of a unit in ticks, rounded up.
fn millionths(ticks: u128, cell: u64) -> u128 {
    (ticks * u128::from(MILLIONTHS)).div_ceil(u128::from(cell))
}

/// The ticks of millionths of a unit, rounded up.
fn ticks_of(millionths: u128, cell: u64) -> u128 {
    millionths.saturating_mul(u128::from(cell)).div_ceil(u128::from(MILLIONTHS))
}

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

/// What a bucket needs from its unit of account.
pub(crate) trait Scale: Copy {
    /// A level, or a point in time.
    type Tat: Copy + Ord + Into<u128> + TryFrom<u128>;

    fn now(self, now_us: u64) -> Self::Tat;
    /// What `units` add; `None` if that is more than [`full`](Self::full).
    fn cost(self, units: u64) -> Option<Self::Tat>;
    fn plus(self, a: Self::Tat, b: Self::Tat) -> Self::Tat;
    /// The time at which `level`, as of now, will be empty.
    #[inline]
    fn after(self, now: Self::Tat, level: Self::Tat) -> Self::Tat {
        self.plus(now, level)
    }
    /// The level after a call: usually [`plus`](Self::plus).
    #[inline]
    fn raised(self, level: Self::Tat, cost: Self::Tat) -> Self::Tat {
        self.plus(level, cost)
    }
    /// `a - b`, for `a >= b`.
    fn minus(self, a: Self::Tat, b: Self::Tat) -> Self::Tat;
    /// The level up to which a call may start.
    fn burst(self) -> Self::Tat;
    /// The level up to which a call may be told to wait.
    fn full(self) -> Self::Tat;
    /// The greatest cost that can ever be granted.
    #[inline]
    fn greatest(self, may_wait: bool) -> Self::Tat {
        if may_wait { self.full() } else { self.burst() }
    }
    /// Microseconds from now until `level` has sunk to the burst, rounded up.
    fn wait_us(self, level: Self::Tat, now_us: u64) -> u64;
    /// Microseconds from now until a call that makes `level` would be let through;
    /// `None` if it is now.
    fn retry_us(self, level: Self::Tat, now_us: u64, may_wait: bool) -> Option<u64>;
    /// Units in a level, rounded up.
    fn units(self, level: Self::Tat) -> u64;
    /// Microseconds from now until `level` is empty, rounded up.
    fn empty_us(self, level: Self::Tat, now_us: u64) -> u64;
    /// Millionths of a unit in a level, rounded up.
    fn millionths(self, level: Self::Tat) -> u128;
    /// The level of so many millionths of a unit, rounded up; at most a full one.
    fn of_millionths(self, millionths: u128) -> Self::Tat;
}

/// Smooth drain, one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) cell: u64,
    pub(crate) drain: u64,
    pub(crate) unit: u64,
    pub(crate) burst: u64,
    pub(crate) full: u64,
}

impl Word {
    /// `None` if the numbers do not fit a word. `burst` and `full` are in ticks.
    pub(crate) fn new(cell: u64, drain: u64, burst: u128, full: u128) -> Option<Self> {
        if drain > FRACTION + 1 {
            return None;
        }
        let factor = finer(cell, |factor| drain * factor <= FRACTION + 1);
        let (cell, drain) = (cell * factor, drain * factor);
        let (burst, full) = (burst * u128::from(factor), full * u128::from(factor));
        let ticks = |t: u128| u64::try_from(t).ok().map(|t| Self::from_ticks(t, drain));
        Some(Self {
            cell,
            drain,
            unit: Self::from_ticks(cell, drain),
            burst: ticks(burst)?,
            full: ticks(full)?,
        })
    }

    fn from_ticks(ticks: u64, drain: u64) -> u64 {
        ((ticks / drain) << FRACTION_BITS) | (ticks % drain)
    }

    fn ticks(self, level: u64) -> u64 {
        (level >> FRACTION_BITS) * self.drain + (level & FRACTION)
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
    fn after(self, now: u64, level: u64) -> u64 {
        // The clock shows whole microseconds: nothing to carry.
        now + level
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
    fn wait_us(self, level: u64, _now_us: u64) -> u64 {
        if level <= self.burst { 0 } else { Self::us_rounded_up(self.minus(level, self.burst)) }
    }

    #[inline]
    fn retry_us(self, level: u64, _now_us: u64, may_wait: bool) -> Option<u64> {
        let cap = if may_wait { self.full } else { self.burst };
        if level <= cap { None } else { Some(Self::us_rounded_up(self.minus(level, cap))) }
    }

    fn units(self, level: u64) -> u64 {
        units_rounded_up(level, self.cell, self.drain)
    }

    fn empty_us(self, level: u64, _now_us: u64) -> u64 {
        Self::us_rounded_up(level)
    }

    fn millionths(self, level: u64) -> u128 {
        millionths(u128::from(self.ticks(level)), self.cell)
    }

    fn of_millionths(self, millionths: u128) -> u64 {
        let ticks = ticks_of(millionths, self.cell);
        if ticks >= u128::from(self.ticks(self.full)) {
            self.full
        } else {
            Self::from_ticks(ticks as u64, self.drain)
        }
    }
}

/// Smooth drain in plain ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wide {
    pub(crate) cell: u64,
    pub(crate) drain: u64,
    pub(crate) burst: u128,
    pub(crate) full: u128,
}

impl Wide {
    /// `burst` and `full` are in ticks; `fits` says by how much those may be finer.
    pub(crate) fn new(cell: u64, drain: u64, burst: u128, full: u128, fits: impl Fn(u64) -> bool) -> Self {
        let factor = finer(cell, fits);
        let fine = u128::from(factor);
        Self { cell: cell * factor, drain: drain * factor, burst: burst * fine, full: full * fine }
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

    fn now(self, now_us: u64) -> u128 {
        u128::from(now_us) * u128::from(self.drain)
    }

    fn cost(self, units: u64) -> Option<u128> {
        Some(u128::from(units) * u128::from(self.cell)).filter(|cost| *cost <= self.full)
    }

    fn plus(self, a: u128, b: u128) -> u128 {
        a + b
    }

    fn minus(self, a: u128, b: u128) -> u128 {
        a - b
    }

    fn burst(self) -> u128 {
        self.burst
    }

    fn full(self) -> u128 {
        self.full
    }

    fn wait_us(self, level: u128, _now_us: u64) -> u64 {
        self.us(level.saturating_sub(self.burst))
    }

    fn retry_us(self, level: u128, _now_us: u64, may_wait: bool) -> Option<u64> {
        let cap = if may_wait { self.full } else { self.burst };
        if level <= cap { None } else { Some(self.us(level - cap)) }
    }

    fn units(self, level: u128) -> u64 {
        u64::try_from(level.div_ceil(u128::from(self.cell))).unwrap_or(u64::MAX)
    }

    fn empty_us(self, level: u128, _now_us: u64) -> u64 {
        self.us(level)
    }

    fn millionths(self, level: u128) -> u128 {
        millionths(level, self.cell)
    }

    fn of_millionths(self, millionths: u128) -> u128 {
        ticks_of(millionths, self.cell).min(self.full)
    }
}

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

/// A window's units start in that window: what does not fit starts whole in the next
/// one. Saved-up tokens (a cap other than the amount) may come from several ticks.
impl Stepped {
    #[inline]
    fn is_window(self) -> bool {
        self.cap == self.amount
    }

    /// Bits by which the time in a word is coarser, to make room for the units
    /// within a tick. Less than a tick, as no rate exceeds 1,000 units a microsecond.
    fn coarse_bits(self) -> u32 {
        (u64::BITS - (self.amount - 1).leading_zeros()).saturating_sub(FRACTION_BITS)
    }

    /// The word of a TAT: the tick at which it is empty, rounded up and one more, so
    /// that the word never seems idle too early, less what is missing to that tick.
    #[inline]
    pub(crate) fn word(self, tat: u64) -> u64 {
        let coarse = self.coarse_bits();
        let empty_tick = tat.div_ceil(self.amount);
        let missing = empty_tick * self.amount - tat;
        let time = self.begins_us(empty_tick).div_ceil(1 << coarse) + 1;
        (time << (FRACTION_BITS + coarse)) - missing
    }

    #[inline]
    pub(crate) fn tat(self, word: u64) -> u64 {
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

    pub(crate) fn tick(self, now_us: u64) -> u64 {
        (now_us + self.phase_us) / self.tick_us
    }

    /// When a tick begins; the clock's zero for the one that has begun by then.
    pub(crate) fn begins_us(self, tick: u64) -> u64 {
        (tick * self.tick_us).saturating_sub(self.phase_us)
    }

    /// The longest that a full key takes to drain: from the beginning of a tick on.
    pub(crate) fn longest_us(self) -> u64 {
        self.full().div_ceil(self.amount) * self.tick_us
    }
}

impl Scale for Stepped {
    type Tat = u64;

    #[inline]
    fn now(self, now_us: u64) -> u64 {
        self.tick(now_us) * self.amount
    }

    #[inline]
    fn cost(self, units: u64) -> Option<u64> {
        Some(units).filter(|units| *units <= self.full())
    }

    #[inline]
    fn plus(self, a: u64, b: u64) -> u64 {
        a + b
    }

    #[inline]
    fn minus(self, a: u64, b: u64) -> u64 {
        a - b
    }

    #[inline]
    fn raised(self, level: u64, cost: u64) -> u64 {
        let in_window = level % self.amount;
        if self.is_window() && in_window + cost > self.amount {
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
    fn wait_us(self, level: u64, now_us: u64) -> u64 {
        if level <= self.cap { 0 } else { self.empty_us(level - self.cap, now_us) }
    }

    #[inline]
    fn retry_us(self, level: u64, now_us: u64, may_wait: bool) -> Option<u64> {
        let wait_us = self.wait_us(level, now_us);
        let longest_us = if may_wait { self.wait_us } else { 0 };
        if wait_us <= longest_us { None } else { Some(wait_us - longest_us) }
    }

    fn units(self, level: u64) -> u64 {
        level
    }

    fn empty_us(self, level: u64, now_us: u64) -> u64 {
        if level == 0 {
            return 0;
        }
        self.begins_us(self.tick(now_us) + level.div_ceil(self.amount)) - now_us
    }

    fn millionths(self, level: u64) -> u128 {
        u128::from(level) * u128::from(MILLIONTHS)
    }

    fn of_millionths(self, millionths: u128) -> u64 {
        let units = millionths.div_ceil(u128::from(MILLIONTHS));
        u64::try_from(units).unwrap_or(u64::MAX).min(self.full())
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
            prop_assert_eq!(word.units(wa), a.div_ceil(cell));
        }

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
            let word = stepped.word(tat);
            prop_assert_eq!(stepped.tat(word), tat);
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
