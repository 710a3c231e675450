//! The state that the script found of a key, and the same decisions on it once more.
//!
//! The functions are those of [`algorithm`](crate::algorithm), as in memory: one mathematics.

use crate::algorithm::{
    Answer, Bucket, Counting, LimitNumbers, Mode, Scale, SliceState, Slices, SlotState, Slots, Step, Stepped,
    WarmState, WarmUp, Wide,
};

/// What the script found of one key, at `at_us` on the server's clock.
#[derive(Clone, Debug)]
pub(crate) struct FoundState {
    at_us: u64,
    counted: Counted,
}

#[derive(Clone, Debug)]
enum Counted {
    /// Ticks that are in a bucket.
    Smooth {
        bucket: Bucket<Wide>,
        level: u64,
    },
    /// Units in use since the tick of `at_us`.
    Stepped {
        bucket: Bucket<Stepped>,
        units: u64,
    },
    WarmUp {
        warm: WarmUp,
        state: WarmState,
    },
    /// Slices, of which the first `single` are single ones and the rest is summed up.
    Slices {
        slices: Slices,
        state: SliceState,
        single: usize,
    },
    Slots {
        slots: Slots,
        state: SlotState,
    },
}

/// Where a charge stands, for the script to find it again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChargeMark {
    /// Where it ended: microseconds and ticks, a tick and units, or a slice.
    pub(crate) end: (u64, u64),
    /// How far it moved the state, in ticks or units.
    pub(crate) span: u64,
    /// Permits that a warm-up had in store before it, in ticks.
    pub(crate) stored: u64,
}

impl FoundState {
    /// Reads what the script replies of a key; `None` if it makes no sense.
    pub(crate) fn read(
        numbers: &LimitNumbers,
        at_us: u64,
        reply: &mut impl Iterator<Item = i64>,
    ) -> Option<Self> {
        let mut natural = || reply.next().and_then(|number| u64::try_from(number).ok());
        let counted = match *numbers {
            LimitNumbers::Smooth(bucket) => Counted::Smooth { bucket, level: natural()? },
            LimitNumbers::Stepped(bucket) => Counted::Stepped { bucket, units: natural()? },
            LimitNumbers::WarmUp(warm) => {
                let used = natural()? != 0;
                let (base, stored) = (reply.next()?, u64::try_from(reply.next()?).ok()?);
                Counted::WarmUp { warm, state: warm.state(at_us, used, base, stored) }
            }
            LimitNumbers::Slices(slices) => {
                let (_total, single, entries) = (natural()?, natural()?, natural()?);
                let mut state = SliceState::default();
                for _ in 0..entries {
                    state.add(natural()?, natural()?);
                }
                Counted::Slices { slices, state, single: usize::try_from(single).ok()? }
            }
            LimitNumbers::Slots(slots) => {
                let (held, waiting) = (natural()?, natural()?);
                Counted::Slots { slots, state: SlotState { held, waiting, ..SlotState::default() } }
            }
        };
        Some(Self { at_us, counted })
    }

    /// The state of an unused key: for answers that do not depend on the state.
    pub(crate) fn unused(numbers: &LimitNumbers) -> Option<Self> {
        Self::read(numbers, 0, &mut std::iter::repeat(0))
    }

    /// When it was found, on the server's clock.
    pub(crate) fn at_us(&self) -> u64 {
        self.at_us
    }

    /// Decides at `now_us`, which is the state's own time or a little later.
    pub(crate) fn decide(&mut self, now_us: u64, cost: u64, mode: Mode, limit: u64) -> Answer {
        match &mut self.counted {
            Counted::Smooth { bucket, level } => {
                let since_us = now_us.saturating_sub(self.at_us);
                bucket.answer(since_us, u128::from(*level), cost, mode, limit)
            }
            Counted::Stepped { bucket, units } => {
                let tat = bucket.scale.now(self.at_us) + *units;
                bucket.answer(now_us, tat, cost, mode, limit)
            }
            Counted::WarmUp { warm, state } => warm.decide(now_us, state, cost, mode, limit),
            Counted::Slices { slices, state, .. } => slices.decide(now_us, state, cost, mode, limit),
            Counted::Slots { slots, state } => slots.decide(now_us, state, cost, mode, limit),
        }
    }

    /// Takes what an answer at the state's own time granted; returns where that stands.
    pub(crate) fn apply(&mut self, step: Step) -> ChargeMark {
        match &mut self.counted {
            Counted::Smooth { bucket, level } => {
                let Step::Tat { before, after } = step else { return ChargeMark::default() };
                *level = narrow(after);
                let end = (self.at_us + *level / bucket.scale.drain, *level % bucket.scale.drain);
                ChargeMark { end, span: narrow(after - before), stored: 0 }
            }
            Counted::Stepped { bucket, units } => {
                let Step::Tat { before, after } = step else { return ChargeMark::default() };
                *units = narrow(after).saturating_sub(bucket.scale.now(self.at_us));
                let end = (bucket.scale.tick(self.at_us), *units);
                ChargeMark { end, span: narrow(after - before), stored: 0 }
            }
            Counted::WarmUp { warm, state } => {
                warm.apply(state, step);
                let Step::Warm { before, after } = step else { return ChargeMark::default() };
                let span = narrow(after.last_start.saturating_sub(before.last_start));
                ChargeMark { end: warm.last_start(after), span, stored: narrow(before.stored) }
            }
            Counted::Slices { slices, state, .. } => {
                slices.apply(state, step);
                let Step::Slice { slice, .. } = step else { return ChargeMark::default() };
                ChargeMark { end: (slice, 0), ..ChargeMark::default() }
            }
            Counted::Slots { slots, state } => {
                slots.apply(state, step);
                ChargeMark::default()
            }
        }
    }

    /// True if it says enough about a call of this cost.
    pub(crate) fn covers(&self, cost: u64) -> bool {
        match &self.counted {
            Counted::Smooth { .. } | Counted::Stepped { .. } | Counted::WarmUp { .. } => true,
            Counted::Slices { slices, state, single } => {
                let excess = state.total.saturating_add(cost).saturating_sub(slices.amount);
                excess <= state.units_of_first(*single)
            }
            Counted::Slots { .. } => false,
        }
    }
}

impl ChargeMark {
    /// Orders the charges of one key by where they ended.
    pub(crate) fn rank(&self, numbers: &LimitNumbers) -> u128 {
        let part_of_whole = match numbers {
            LimitNumbers::Smooth(bucket) => bucket.scale.drain,
            LimitNumbers::Stepped(bucket) => bucket.scale.amount,
            LimitNumbers::WarmUp(warm) => warm.drain,
            LimitNumbers::Slices(_) | LimitNumbers::Slots(_) => 1,
        };
        u128::from(self.end.0) * u128::from(part_of_whole) + u128::from(self.end.1)
    }
}

fn narrow(ticks: u128) -> u64 {
    u64::try_from(ticks).unwrap_or(u64::MAX)
}
