//! The algorithms side by side: a limit's numbers, the state of one key under any of them, and the
//! one place that dispatches.
//!
//! Whoever adds an algorithm adds a file with [`Counting`], a variant here, and follows the
//! compiler: nothing that matches on these has a `_` arm.

use super::{
    Answer, Bucket, Counting, Gauge, Grant, Mode, Scale, SliceState, Slices, SlotState, Slots, Step, Stepped,
    WarmState, WarmUp, Wide, Word, phase_us,
};
use crate::clock::Timestamp;
use crate::decision::DenialReason;
use crate::{Algorithm, Limit};

/// A limit's numbers, exact, in the ticks of lowest terms.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LimitNumbers {
    Smooth(Bucket<Wide>),
    Stepped(Bucket<Stepped>),
    WarmUp(WarmUp),
    Slices(Slices),
    Slots(Slots),
}

impl LimitNumbers {
    /// The numbers on a clock that shows zero at this Unix time.
    pub(crate) fn new(limit: &Limit, unix_us_at_zero: u64) -> Self {
        let (amount, period) = (limit.amount(), limit.period_us());
        let wait_us = limit.wait_us();
        let (cell, drain) = limit.cell_and_drain();
        let smooth = |units: u64, waiting: u128| {
            let burst = u128::from(units) * u128::from(cell);
            Self::Smooth(Bucket { scale: Wide { cell, drain, burst, full: burst + waiting } })
        };
        let stepped = |cap: u64| {
            let phase_us = phase_us(period, limit.offset_us(), unix_us_at_zero);
            let scale = Stepped { amount, tick_us: period, cap, wait_us, phase_us };
            Self::Stepped(Bucket { scale })
        };
        let slices = |slice_us: u64, span: u64| {
            let phase_us = unix_us_at_zero % slice_us;
            Self::Slices(Slices { amount, slice_us, span, wait_us, phase_us })
        };
        match *limit.algorithm() {
            Algorithm::TokenBucket { burst } => smooth(burst, u128::from(wait_us) * u128::from(drain)),
            Algorithm::LeakyBucket { capacity } => smooth(capacity, 0),
            Algorithm::LeakyQueue { queue } => smooth(1, u128::from(queue) * u128::from(cell)),
            Algorithm::Ticked { cap } => stepped(cap),
            Algorithm::FixedWindow => stepped(amount),
            Algorithm::WarmUp { warmup } => {
                let warmup_us = u64::try_from(warmup.as_micros()).unwrap_or(u64::MAX);
                Self::WarmUp(WarmUp { cell, drain, warmup_us, wait_us })
            }
            Algorithm::SlidingWindow { slices: count } => slices(period.div_ceil(count), count),
            Algorithm::SlidingLog => slices(1, period - 1),
            Algorithm::Concurrency { queue } => Self::Slots(Slots { amount, queue }),
        }
    }

    /// The longest time that a charge can matter; zero where charges do not build on each other.
    #[cfg(feature = "redis")]
    pub(crate) fn longest_us(&self) -> u64 {
        match self {
            Self::Smooth(bucket) => bucket.scale.longest_us(),
            Self::Stepped(bucket) => bucket.scale.longest_us(),
            Self::WarmUp(warm) => warm.longest_us(),
            Self::Slices(_) | Self::Slots(_) => 0,
        }
    }
}

/// A limit's numbers, made ready for states in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plan {
    Word(Bucket<Word>),
    Stepped(Bucket<Stepped>),
    Wide(Bucket<Wide>),
    Warm(WarmUp),
    Slices(Slices),
    Slots(Slots),
}

/// What one key has used, under the plan that wrote it.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// One word: of [`Plan::Word`] or [`Plan::Stepped`].
    Word(u64),
    Wide(u128),
    Warm(WarmState),
    Slices(SliceState),
    Slots(SlotState),
}

/// Does something with a plan's algorithm and a state of it. Another plan's state cannot stand with
/// it; what is done if it does follows behind `else`.
macro_rules! dispatch {
    ($plan:expr, $state:expr, |$algorithm:ident, $held:ident| $do:expr, else $otherwise:expr) => {
        match ($plan, $state) {
            (Plan::Word($algorithm), State::Word($held)) => $do,
            (Plan::Stepped($algorithm), State::Word($held)) => $do,
            (Plan::Wide($algorithm), State::Wide($held)) => $do,
            (Plan::Warm($algorithm), State::Warm($held)) => $do,
            (Plan::Slices($algorithm), State::Slices($held)) => $do,
            (Plan::Slots($algorithm), State::Slots($held)) => $do,
            (Plan::Word(_) | Plan::Stepped(_) | Plan::Wide(_), _) => $otherwise,
            (Plan::Warm(_) | Plan::Slices(_) | Plan::Slots(_), _) => $otherwise,
        }
    };
}

impl Plan {
    /// The numbers on a clock that shows zero at this Unix time.
    pub(crate) fn new(limit: &Limit, unix_us_at_zero: u64) -> Self {
        match LimitNumbers::new(limit, unix_us_at_zero) {
            LimitNumbers::Smooth(Bucket { scale }) => match Word::new(scale) {
                Some(scale) => Self::Word(Bucket { scale }),
                None => Self::Wide(Bucket { scale: scale.finer(|_| true) }),
            },
            LimitNumbers::Stepped(bucket) => Self::Stepped(bucket),
            LimitNumbers::WarmUp(warm) => Self::Warm(warm),
            LimitNumbers::Slices(slices) => Self::Slices(slices),
            LimitNumbers::Slots(slots) => Self::Slots(slots),
        }
    }

    /// True if the state is one word, and so lives in the flat table.
    pub(crate) fn is_one_word(&self) -> bool {
        match self {
            Self::Word(_) | Self::Stepped(_) => true,
            Self::Wide(_) | Self::Warm(_) | Self::Slices(_) | Self::Slots(_) => false,
        }
    }

    /// The state of an unused key.
    pub(crate) fn unused(&self) -> State {
        self.convert(0, 0)
    }

    /// Decides. Touches the state only to forget what no longer counts, and to repair what a clock
    /// that has been ahead left behind.
    pub(crate) fn decide(&self, now_us: u64, state: &mut State, cost: u64, mode: Mode, limit: u64) -> Answer {
        let answer = dispatch!(self, state, |algorithm, held| algorithm.decide(now_us, held, cost, mode, limit),
            else Answer::denied(DenialReason::Busy, Gauge::Plain { remaining: 0, reset_us: 0 }));
        // The clock stands still at the end of its range: nothing flows back any more, so every time
        // in an answer would be false. A start beyond the end never comes, or all would come at it.
        let start_us = now_us.saturating_add(answer.decision(limit).wait_us());
        if start_us >= Timestamp::MAX.as_micros() && cost > 0 && !matches!(self, Self::Slots(_)) {
            let retry_us = 60_000_000;
            let gauge = Gauge::Plain { remaining: 0, reset_us: retry_us };
            return Answer::denied(DenialReason::Unavailable { retry_us }, gauge);
        }
        answer
    }

    /// Takes what an answer granted.
    pub(crate) fn apply(&self, state: &mut State, step: Step) {
        dispatch!(self, state, |algorithm, held| algorithm.apply(held, step), else ());
    }

    /// Gives `units` of a grant back; false if nothing can come back now, because others
    /// built on it.
    pub(crate) fn refund(&self, now_us: u64, state: &mut State, grant: &mut Grant, units: u64) -> bool {
        dispatch!(self, state, |algorithm, held| algorithm.refund(now_us, held, grant, units), else true)
    }

    /// Charges units that were used beyond a grant: in full, up to a full key.
    pub(crate) fn charge_debt(&self, now_us: u64, state: &mut State, units: u64) {
        dispatch!(self, state, |algorithm, held| algorithm.charge_debt(now_us, held, units), else ());
    }

    /// Millionths of a unit in use, rounded up: what goes along when the limit changes.
    pub(crate) fn used(&self, now_us: u64, state: &State) -> u128 {
        dispatch!(self, state, |algorithm, held| algorithm.used(now_us, held), else 0)
    }

    /// The state of a key that has used so many millionths of a unit; at most a full key, so
    /// nobody is locked out for longer.
    pub(crate) fn convert(&self, now_us: u64, millionths: u128) -> State {
        match self {
            Self::Word(bucket) => State::Word(bucket.convert(now_us, millionths)),
            Self::Stepped(bucket) => State::Word(bucket.convert(now_us, millionths)),
            Self::Wide(bucket) => State::Wide(bucket.convert(now_us, millionths)),
            Self::Warm(warm) => State::Warm(warm.convert(now_us, millionths)),
            Self::Slices(slices) => State::Slices(slices.convert(now_us, millionths)),
            Self::Slots(slots) => State::Slots(slots.convert(now_us, millionths)),
        }
    }

    /// True if both count alike, so that one's state is the other's as it is.
    pub(crate) fn counts_alike(&self, other: &Self) -> bool {
        let ticks = |s: &Stepped| (s.amount, s.tick_us, s.phase_us, s.full());
        match (self, other) {
            (Self::Word(a), Self::Word(b)) => Word { burst: 0, ..a.scale } == Word { burst: 0, ..b.scale },
            (Self::Wide(a), Self::Wide(b)) => Wide { burst: 0, ..a.scale } == Wide { burst: 0, ..b.scale },
            (Self::Stepped(a), Self::Stepped(b)) => ticks(&a.scale) == ticks(&b.scale),
            (Self::Warm(a), Self::Warm(b)) => a == b,
            (Self::Slices(a), Self::Slices(b)) => Slices { amount: 0, ..*a } == Slices { amount: 0, ..*b },
            (Self::Slots(_), Self::Slots(_)) => true,
            (Self::Word(_) | Self::Wide(_) | Self::Stepped(_), _) => false,
            (Self::Warm(_) | Self::Slices(_) | Self::Slots(_), _) => false,
        }
    }

    /// True if units stay in use until an edge in time, and do not drain steadily.
    pub(crate) fn drains_in_steps(&self) -> bool {
        match self {
            Self::Stepped(_) | Self::Slices(_) => true,
            Self::Word(_) | Self::Wide(_) | Self::Warm(_) | Self::Slots(_) => false,
        }
    }

    /// From when on the key is as good as unused; `u64::MAX` while someone holds a slot.
    pub(crate) fn idle_at(&self, now_us: u64, state: &State) -> u64 {
        let empty_us = dispatch!(self, state, |algorithm, held| algorithm.empty_us(now_us, held), else 0);
        now_us.saturating_add(empty_us)
    }

    /// The longest time that a state can matter without being touched.
    pub(crate) fn longest_us(&self) -> u64 {
        match self {
            Self::Word(bucket) => bucket.scale.longest_us(),
            Self::Stepped(bucket) => bucket.scale.longest_us(),
            Self::Wide(bucket) => bucket.scale.longest_us(),
            Self::Warm(warm) => warm.longest_us(),
            Self::Slices(slices) => slices.longest_us(),
            Self::Slots(_) => u64::MAX,
        }
    }
}
