//! A limit's numbers made ready, and the state of one key under any of them.

use super::bucket::Bucket;
use super::scale::{MILLIONTHS, Scale, Stepped, Wide, Word, phase_us};
use super::slices::{SliceState, Slices};
use super::slots::{SlotState, Slots};
use super::warmup::{WarmState, WarmUp};
use super::{Answer, Gauge, Grant, Mode, Step};
use crate::clock::Timestamp;
use crate::decision::{Outcome, Refused};
use crate::{Algorithm, Limit};

/// A limit's numbers, made ready once.
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
    /// One word: of [`Plan::Word`], or [`Plan::Stepped`] in its encoded form.
    Word(u64),
    Wide(u128),
    Warm(WarmState),
    Slices(SliceState),
    Slots(SlotState),
}

impl Plan {
    /// The numbers on a clock that shows zero at this Unix time.
    pub(crate) fn new(limit: &Limit, unix_us_at_zero: u64) -> Self {
        let (amount, period) = (limit.amount(), limit.period_us());
        let wait_us = limit.wait_us();
        let (cell, drain) = limit.cell_and_drain();
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
            Algorithm::TokenBucket { burst } => {
                let burst = u128::from(burst) * u128::from(cell);
                let full = burst + u128::from(wait_us) * u128::from(drain);
                Self::smooth(cell, drain, burst, full)
            }
            Algorithm::LeakyBucket { capacity } => {
                let full = u128::from(capacity) * u128::from(cell);
                Self::smooth(cell, drain, full, full)
            }
            Algorithm::LeakyQueue { queue } => {
                let unit = u128::from(cell);
                Self::smooth(cell, drain, unit, unit * (u128::from(queue) + 1))
            }
            Algorithm::Ticked { cap } => stepped(cap),
            Algorithm::FixedWindow => stepped(amount),
            Algorithm::WarmUp { warmup } => {
                let warmup_us = u64::try_from(warmup.as_micros()).unwrap_or(u64::MAX);
                Self::Warm(WarmUp { cell, drain, warmup_us, wait_us })
            }
            Algorithm::SlidingWindow { slices: count } => slices(period.div_ceil(count), count),
            Algorithm::SlidingLog => slices(1, period - 1),
            Algorithm::Concurrency { queue } => Self::Slots(Slots { amount, queue }),
        }
    }

    fn smooth(cell: u64, drain: u64, burst: u128, full: u128) -> Self {
        match Word::new(cell, drain, burst, full) {
            Some(scale) => Self::Word(Bucket { scale }),
            None => Self::Wide(Bucket { scale: Wide::new(cell, drain, burst, full, |_| true) }),
        }
    }

    /// True if the state is one word, and so lives in the flat table.
    pub(crate) fn is_one_word(&self) -> bool {
        matches!(self, Self::Word(_) | Self::Stepped(_))
    }

    /// The state of an unused key.
    pub(crate) fn fresh(&self) -> State {
        match self {
            Self::Word(_) | Self::Stepped(_) => State::Word(0),
            Self::Wide(_) => State::Wide(0),
            Self::Warm(warm) => State::Warm(warm.fresh()),
            Self::Slices(_) => State::Slices(SliceState::default()),
            Self::Slots(_) => State::Slots(SlotState::default()),
        }
    }

    /// Decides. Touches the state only to forget what no longer counts, and to
    /// repair what a clock that has been ahead left behind.
    pub(crate) fn answer(&self, now_us: u64, state: &mut State, cost: u64, mode: Mode, limit: u64) -> Answer {
        let answer = self.answer_within_range(now_us, state, cost, mode, limit);
        let wait_us = match answer.outcome {
            Outcome::Allow { wait_us } => wait_us,
            Outcome::Deny(_) => 0,
        };
        // Also a start beyond the end never comes, or all of them would come at the end.
        let has_ended = now_us.saturating_add(wait_us) >= Timestamp::MAX.as_micros();
        if has_ended && cost > 0 && !matches!(self, Self::Slots(_)) {
            return Answer::clock_ran_out();
        }
        answer
    }

    fn answer_within_range(
        &self,
        now_us: u64,
        state: &mut State,
        cost: u64,
        mode: Mode,
        limit: u64,
    ) -> Answer {
        self.repair(now_us, state);
        match (self, state) {
            (Self::Word(bucket), State::Word(word)) => {
                let (outcome, next, level) = bucket.decide(now_us, *word, cost, mode);
                let gauge = Gauge::of_word(level, bucket.scale);
                let answer = Answer { outcome, gauge, step: Step::Keep };
                let taken = answer.is_allowed() && cost > 0;
                let step = Step::Tat { before: (*word).into(), after: next.into() };
                Answer { step: if taken { step } else { Step::Keep }, ..answer }
            }
            (Self::Stepped(bucket), State::Word(word)) => {
                bucket.answer(now_us, bucket.scale.tat(*word), cost, mode, limit)
            }
            (Self::Wide(bucket), State::Wide(tat)) => bucket.answer(now_us, *tat, cost, mode, limit),
            (Self::Warm(warm), State::Warm(state)) => warm.answer(now_us, *state, cost, mode),
            (Self::Slices(slices), State::Slices(state)) => slices.answer(now_us, state, cost, mode),
            (Self::Slots(slots), State::Slots(state)) => slots.answer(state, cost, mode),
            // Another plan's state cannot stand here; if it does, nobody gets through.
            _ => Answer::denied(Refused::Busy, Gauge::Plain { remaining: 0, reset_us: 0 }),
        }
    }

    /// Takes what an answer granted.
    pub(crate) fn apply(&self, state: &mut State, step: Step) {
        match (self, state, step) {
            (Self::Word(_), State::Word(word), Step::Tat { after, .. }) => *word = narrow(after),
            (Self::Stepped(bucket), State::Word(word), Step::Tat { after, .. }) => {
                *word = bucket.scale.word(narrow(after));
            }
            (Self::Wide(_), State::Wide(held), Step::Tat { after, .. }) => *held = after,
            (Self::Warm(_), State::Warm(held), Step::Warm { after, .. }) => *held = after,
            (Self::Slices(_), State::Slices(held), Step::Slice { slice, units }) => {
                Slices::apply(held, slice, units);
            }
            (Self::Slots(_), State::Slots(held), Step::Hold { units }) => Slots::apply(held, units),
            _ => {}
        }
    }

    pub(super) fn repair(&self, now_us: u64, state: &mut State) {
        match (self, state) {
            (Self::Word(bucket), State::Word(word)) => *word = bucket.repaired(now_us, *word),
            (Self::Stepped(bucket), State::Word(word)) => {
                let tat = bucket.scale.tat(*word);
                if bucket.is_ahead(now_us, tat) {
                    *word = bucket.scale.word(bucket.repaired(now_us, tat));
                }
            }
            (Self::Wide(bucket), State::Wide(tat)) => *tat = bucket.repaired(now_us, *tat),
            (Self::Warm(warm), State::Warm(state)) => *state = warm.repaired(now_us, *state),
            _ => {}
        }
    }

    /// Gives `units` of a grant back; false if nothing can come back now, because others
    /// built on it.
    pub(crate) fn give_back(&self, now_us: u64, state: &mut State, grant: &mut Grant, units: u64) -> bool {
        self.repair(now_us, state);
        let next = match (self, &mut *state) {
            (Self::Word(bucket), State::Word(word)) => {
                bucket.give_back(now_us, *word, grant, units).map(State::Word)
            }
            (Self::Stepped(bucket), State::Word(word)) => {
                let tat = bucket.give_back(now_us, bucket.scale.tat(*word), grant, units);
                tat.map(|tat| State::Word(bucket.scale.word(tat)))
            }
            (Self::Wide(bucket), State::Wide(tat)) => {
                bucket.give_back(now_us, *tat, grant, units).map(State::Wide)
            }
            (Self::Warm(warm), State::Warm(state)) => warm.give_back(*state, grant, units).map(State::Warm),
            (Self::Slices(slices), State::Slices(state)) => {
                slices.give_back(now_us, state, grant, units);
                return true;
            }
            _ => return true,
        };
        let is_given = next.is_some();
        if let Some(next) = next {
            *state = next;
        }
        is_given
    }

    /// Charges units that were used beyond a grant: in full, up to a full key.
    pub(crate) fn owe(&self, now_us: u64, state: &mut State, units: u64) {
        self.repair(now_us, state);
        match (self, state) {
            (Self::Word(bucket), State::Word(word)) => *word = bucket.owe(now_us, *word, units),
            (Self::Stepped(bucket), State::Word(word)) => {
                let tat = bucket.owe(now_us, bucket.scale.tat(*word), units);
                *word = bucket.scale.word(tat);
            }
            (Self::Wide(bucket), State::Wide(tat)) => *tat = bucket.owe(now_us, *tat, units),
            (Self::Warm(warm), State::Warm(state)) => *state = warm.owe(now_us, *state, units),
            (Self::Slices(slices), State::Slices(state)) => slices.owe(now_us, state, units),
            _ => {}
        }
    }

    /// Millionths of a unit in use, rounded up: what goes along when the limit changes.
    pub(crate) fn used(&self, now_us: u64, state: &State) -> u128 {
        match (self, state) {
            (Self::Word(bucket), State::Word(word)) => bucket.used(now_us, *word),
            (Self::Stepped(bucket), State::Word(word)) => bucket.used(now_us, bucket.scale.tat(*word)),
            (Self::Wide(bucket), State::Wide(tat)) => bucket.used(now_us, *tat),
            (Self::Warm(warm), State::Warm(state)) => warm.used(now_us, *state),
            (Self::Slices(slices), State::Slices(state)) => {
                u128::from(slices.used(now_us, state)) * u128::from(MILLIONTHS)
            }
            _ => 0,
        }
    }

    /// The state of a key that has used so many millionths of a unit; at most a full key, so
    /// nobody is locked out for longer.
    pub(crate) fn with_used(&self, now_us: u64, millionths: u128) -> State {
        match self {
            Self::Word(bucket) => State::Word(bucket.with_used(now_us, millionths)),
            Self::Stepped(bucket) => State::Word(bucket.scale.word(bucket.with_used(now_us, millionths))),
            Self::Wide(bucket) => State::Wide(bucket.with_used(now_us, millionths)),
            Self::Warm(warm) => State::Warm(warm.with_used(now_us, millionths)),
            Self::Slices(slices) => {
                let units = millionths.div_ceil(u128::from(MILLIONTHS));
                State::Slices(slices.with_used(now_us, u64::try_from(units).unwrap_or(u64::MAX)))
            }
            Self::Slots(_) => State::Slots(SlotState::default()),
        }
    }

    /// The state of a key that is full.
    pub(crate) fn used_up(&self, now_us: u64) -> State {
        self.with_used(now_us, u128::from(u64::MAX))
    }

    /// True if both count alike, so that one's state is the other's as it is.
    pub(crate) fn counts_alike(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Word(Bucket { scale: a, .. }), Self::Word(Bucket { scale: b, .. })) => {
                (a.cell, a.drain, a.full) == (b.cell, b.drain, b.full)
            }
            (Self::Wide(Bucket { scale: a, .. }), Self::Wide(Bucket { scale: b, .. })) => {
                (a.cell, a.drain, a.full) == (b.cell, b.drain, b.full)
            }
            (Self::Stepped(Bucket { scale: a, .. }), Self::Stepped(Bucket { scale: b, .. })) => {
                (Stepped { cap: 0, wait_us: 0, ..*a }, a.full())
                    == (Stepped { cap: 0, wait_us: 0, ..*b }, b.full())
            }
            (Self::Warm(a), Self::Warm(b)) => a == b,
            (Self::Slices(a), Self::Slices(b)) => Slices { amount: 0, ..*a } == Slices { amount: 0, ..*b },
            (Self::Slots(_), Self::Slots(_)) => true,
            _ => false,
        }
    }

    /// True if units stay in use until an edge in time, and do not drain steadily.
    pub(crate) fn drains_in_steps(&self) -> bool {
        matches!(self, Self::Stepped(_) | Self::Slices(_))
    }

    /// From when on the key is as good as unused; `u64::MAX` while someone holds a place.
    pub(crate) fn idle_at_us(&self, now_us: u64, state: &State) -> u64 {
        let rest_us = match (self, state) {
            (Self::Word(bucket), State::Word(word)) => bucket.empty_us(now_us, *word),
            (Self::Stepped(bucket), State::Word(word)) => bucket.empty_us(now_us, bucket.scale.tat(*word)),
            (Self::Wide(bucket), State::Wide(tat)) => bucket.empty_us(now_us, *tat),
            (Self::Warm(warm), State::Warm(state)) => warm.empty_us(now_us, *state),
            (Self::Slices(slices), State::Slices(state)) => slices.empty_us(now_us, state),
            (_, State::Slots(state)) if !state.is_idle() => return u64::MAX,
            _ => 0,
        };
        now_us.saturating_add(rest_us)
    }

    /// The longest time that a state can matter without being touched.
    pub(crate) fn longest_us(&self) -> u64 {
        match self {
            Self::Word(bucket) => bucket.scale.empty_us(bucket.scale.full(), 0),
            Self::Stepped(bucket) => bucket.scale.longest_us(),
            Self::Wide(bucket) => bucket.scale.empty_us(bucket.scale.full(), 0),
            Self::Warm(warm) => warm.wait_us + 4 * warm.warmup_us + 3 * warm.cell.div_ceil(warm.drain),
            Self::Slices(slices) => slices.wait_us + (slices.span + 2) * slices.slice_us,
            Self::Slots(_) => u64::MAX,
        }
    }
}

/// A TAT that came out of a 64-bit scale.
fn narrow(tat: u128) -> u64 {
    u64::try_from(tat).unwrap_or(u64::MAX)
}
