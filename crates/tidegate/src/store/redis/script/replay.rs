//! The state that the script found of a key, and the same decisions on it once more.
//!
//! The functions are those of [`algorithm`](crate::algorithm), as in memory: one mathematics.

use crate::algorithm::{
    Answer, Bucket, Counting, LimitNumbers, Mode, Scale, SliceState, Slices, SlotState, Slots, Step, Stepped,
    WarmState, WarmUp, Wide,
};
use crate::store::redis::gate::gate_limit::GateLimit;

/// What the script found of one key.
#[derive(Clone, Debug)]
pub(crate) struct FoundState {
    /// When, on the server's clock.
    pub(crate) at_us: u64,
    /// Units that its limit holds.
    pub(crate) capacity: u64,
    counted: Counted,
}

#[derive(Clone, Debug)]
enum Counted {
    /// The time when it will be empty, in ticks.
    Smooth(Bucket<Wide>, u128),
    /// The same, in units.
    Stepped(Bucket<Stepped>, u64),
    WarmUp(WarmUp, WarmState),
    /// Slices, of which so many first are single ones and the rest is summed up.
    Slices(Slices, SliceState, usize),
    Slots(Slots, SlotState),
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
        version: &GateLimit,
        at_us: u64,
        reply: &mut impl Iterator<Item = i64>,
    ) -> Option<Self> {
        let mut natural = || reply.next().and_then(|number| u64::try_from(number).ok());
        let counted = match version.numbers {
            LimitNumbers::Smooth(bucket) => {
                Counted::Smooth(bucket, bucket.scale.now(at_us) + u128::from(natural()?))
            }
            LimitNumbers::Stepped(bucket) => Counted::Stepped(bucket, bucket.scale.now(at_us) + natural()?),
            LimitNumbers::WarmUp(warm) => {
                let used = natural()? != 0;
                let (base, stored) = (reply.next()?, u64::try_from(reply.next()?).ok()?);
                Counted::WarmUp(warm, warm.state(at_us, used, base, stored))
            }
            LimitNumbers::Slices(slices) => {
                let (_total, single, entries) = (natural()?, natural()?, natural()?);
                let mut state = SliceState::default();
                for _ in 0..entries {
                    state.add(natural()?, natural()?);
                }
                Counted::Slices(slices, state, usize::try_from(single).ok()?)
            }
            LimitNumbers::Slots(slots) => Counted::Slots(
                slots,
                SlotState { held: natural()?, waiting: natural()?, ..SlotState::default() },
            ),
        };
        Some(Self { at_us, capacity: version.limit.capacity(), counted })
    }

    /// The state of an unused key: for answers that do not depend on the state.
    pub(crate) fn unused(version: &GateLimit) -> Self {
        Self::read(version, 0, &mut std::iter::repeat(0)).unwrap_or_else(|| unreachable!("zeros make sense"))
    }

    /// Decides at `now_us`, which is the state's own time or a little later.
    pub(crate) fn decide(&mut self, now_us: u64, cost: u64, mode: Mode) -> Answer {
        let capacity = self.capacity;
        match &mut self.counted {
            Counted::Smooth(bucket, tat) => bucket.answer(now_us, *tat, cost, mode, capacity),
            Counted::Stepped(bucket, tat) => bucket.answer(now_us, *tat, cost, mode, capacity),
            Counted::WarmUp(warm, state) => warm.decide(now_us, state, cost, mode, capacity),
            Counted::Slices(slices, state, _) => slices.decide(now_us, state, cost, mode, capacity),
            Counted::Slots(slots, state) => slots.decide(now_us, state, cost, mode, capacity),
        }
    }

    /// Decides with nothing taken: how full the key is says so.
    pub(crate) fn look(&mut self, now_us: u64, cost: u64, mode: Mode) -> Answer {
        let gauge = self.decide(now_us, 0, mode).gauge;
        Answer { gauge, ..self.decide(now_us, cost, mode) }
    }

    /// Takes what an answer at the state's own time granted; returns where that stands.
    pub(crate) fn apply(&mut self, step: Step) -> ChargeMark {
        let mark = |end, span| ChargeMark { end, span: narrow(span), stored: 0 };
        match (&mut self.counted, step) {
            (Counted::Smooth(bucket, tat), Step::Tat { before, after }) => {
                *tat = after;
                let drain = u128::from(bucket.scale.drain);
                mark((narrow(after / drain), narrow(after % drain)), after - before)
            }
            (Counted::Stepped(bucket, tat), Step::Tat { before, after }) => {
                *tat = narrow(after);
                let units = tat.saturating_sub(bucket.scale.now(self.at_us));
                mark((bucket.scale.tick(self.at_us), units), after - before)
            }
            (Counted::WarmUp(warm, state), Step::Warm { before, after }) => {
                *state = after;
                let span = after.last_start.saturating_sub(before.last_start);
                ChargeMark { stored: narrow(before.stored), ..mark(warm.last_start(after), span) }
            }
            (Counted::Slices(slices, state, _), Step::Slice { slice, .. }) => {
                slices.apply(state, step);
                mark((slice, 0), 0)
            }
            (Counted::Slots(slots, state), step) => {
                slots.apply(state, step);
                mark((0, 0), 0)
            }
            // Nothing was taken.
            (Counted::Smooth(..) | Counted::Stepped(..), _) => mark((0, 0), 0),
            (Counted::WarmUp(..) | Counted::Slices(..), _) => mark((0, 0), 0),
        }
    }

    /// True if it says enough about a call of this cost.
    pub(crate) fn covers(&self, cost: u64) -> bool {
        match &self.counted {
            Counted::Smooth(..) | Counted::Stepped(..) | Counted::WarmUp(..) => true,
            Counted::Slices(slices, state, single) => {
                let excess = state.total.saturating_add(cost).saturating_sub(slices.amount);
                excess <= state.units_of_first(*single)
            }
            Counted::Slots(..) => false,
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
