//! How each limit counts: pure functions of (numbers, state, now, cost).
//!
//! Each algorithm is a file that implements [`Counting`]; [`Plan`] is any of them with a limit's
//! numbers, and dispatches. Deciding gives an [`Answer`] with the [`Step`] that would take the
//! units. The step is applied apart, so that several limits are decided first and then written all
//! or none. Nothing here reads a clock, takes a lock or knows a key.

mod bucket;
mod counts;
mod plan;
mod scale;
mod slices;
mod slots;
mod stepped;
mod warmup;
mod wide;
mod word;

pub(crate) use bucket::Bucket;
pub(crate) use counts::{Count, InForce, KEPT_AT_LEAST_US, OTHERS_MAX, OtherCounts, Start};
#[cfg(feature = "redis")]
pub(crate) use plan::LimitNumbers;
pub(crate) use plan::{Plan, State};
pub(crate) use scale::{MILLIONTHS, Scale};
pub(crate) use slices::{SliceState, Slices};
pub(crate) use slots::{SlotState, Slots, Waiter};
pub(crate) use stepped::{Stepped, phase_us};
pub(crate) use warmup::{WarmState, WarmUp};
pub(crate) use wide::Wide;
pub(crate) use word::{Word, word_at};

use crate::decision::{Decision, DecisionOutcome, DenialReason};

/// How checks are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Now, without a wait; slots cannot be held.
    Check,
    /// Now, without a wait; slots are held.
    Hold,
    /// Now or after a wait up to the limit's; slots are held.
    Reserve,
}

/// What every algorithm does. A state is one key's.
pub(crate) trait Counting {
    type State;

    /// Decides, and may forget what no longer counts. After the clock has run back, the state
    /// becomes at most a full key's, so that it drains from now on. `limit` is the units that the
    /// limit holds.
    fn decide(&self, now_us: u64, state: &mut Self::State, cost: u64, mode: Mode, limit: u64) -> Answer;
    /// Takes what an answer granted.
    fn apply(&self, state: &mut Self::State, step: Step);
    /// Gives `units` of a grant back; false if nothing can come back now, because others built on
    /// it.
    fn refund(&self, now_us: u64, state: &mut Self::State, grant: &mut Grant, units: u64) -> bool;
    /// Charges units that were used beyond a grant: in full, up to a full key.
    fn charge_debt(&self, now_us: u64, state: &mut Self::State, units: u64);
    /// Millionths of a unit in use, rounded up.
    fn used(&self, now_us: u64, state: &Self::State) -> u128;
    /// The state of a key that has used so many millionths of a unit; at most a full one. Of none,
    /// it is the same at any time.
    fn convert(&self, now_us: u64, millionths: u128) -> Self::State;
    /// Microseconds until the key is as good as unused.
    fn empty_us(&self, now_us: u64, state: &Self::State) -> u64;
}

/// What an answer would change, to be applied only if all limits agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Denied, or nothing to take.
    Keep,
    /// A bucket's level before and after, as the time (in its scale) at which it will be
    /// empty.
    Tat { before: u128, after: u128 },
    /// A warm-up's state before, brought up to the decision, and after.
    Warm { before: WarmState, after: WarmState },
    /// Units that start in this slice.
    Slice { slice: u64, units: u64 },
    /// Slots taken.
    Hold { units: u64 },
}

/// A decision that has not been written yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) outcome: DecisionOutcome,
    pub(crate) gauge: Gauge,
    pub(crate) step: Step,
}

impl Answer {
    pub(crate) fn is_allowed(&self) -> bool {
        matches!(self.outcome, DecisionOutcome::Allow { .. })
    }

    fn allowed(wait_us: u64, gauge: Gauge, step: Step) -> Self {
        Self { outcome: DecisionOutcome::Allow { wait_us }, gauge, step }
    }

    pub(crate) fn denied(refused: DenialReason, gauge: Gauge) -> Self {
        Self { outcome: DecisionOutcome::Deny(refused), gauge, step: Step::Keep }
    }

    pub(crate) fn decision(&self, limit: u64) -> Decision {
        Decision { outcome: self.outcome, limit, gauge: self.gauge }
    }
}

/// What a permit remembers of one charge, to give it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) cost: u64,
    /// When this limit lets it start; others of the same request may do so later.
    pub(crate) start_us: u64,
    /// What the charge did to the state: where it still stands so, nobody built on it.
    pub(crate) mark: Step,
}

impl Grant {
    /// Where the charge ended, in a form that can be compared and searched for; none for
    /// limits under which starts do not build on each other.
    pub(crate) fn end(&self) -> Option<u128> {
        match self.mark {
            Step::Tat { after, .. } => Some(after),
            Step::Warm { after, .. } => Some(after.last_start),
            Step::Keep | Step::Slice { .. } | Step::Hold { .. } => None,
        }
    }
}

/// How full a key is, in a form that costs nothing to make.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gauge {
    /// Units left, and how long until the key is as good as unused.
    Plain { remaining: u64, reset_us: u64 },
    /// A level in the scale of [`Word`], with the scale's numbers.
    Word { level: u64, cell: u64, drain: u64 },
    /// Decided without the store, which did not answer.
    Degraded { remaining: u64, reset_us: u64 },
    /// Not checked, because another check of the request was denied already.
    Unchecked,
}

impl Gauge {
    #[inline]
    pub(crate) fn remaining(&self, limit: u64) -> u64 {
        match self {
            Self::Plain { remaining, .. } | Self::Degraded { remaining, .. } => *remaining,
            Self::Unchecked => 0,
            Self::Word { level, cell, drain } => {
                limit.saturating_sub(word::units_rounded_up(*level, *cell, *drain))
            }
        }
    }

    #[inline]
    pub(crate) fn reset_us(&self) -> u64 {
        match self {
            Self::Plain { reset_us, .. } | Self::Degraded { reset_us, .. } => *reset_us,
            Self::Unchecked => 0,
            Self::Word { level, .. } => Word::us_rounded_up(*level),
        }
    }
}
