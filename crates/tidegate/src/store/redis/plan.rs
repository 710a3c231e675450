//! A limit's numbers as the script takes them, and the answers that follow from what
//! the script found.
//!
//! The script only moves the state. What a caller is told is computed here, from the
//! state that the script found, by the same functions as in memory.

use super::accept::entries;
use crate::algorithm::{
    Answer, Bucket, Gauge, Mode, OTHERS_MAX, Scale, SliceState, Slices, SlotState, Slots, Step, Stepped,
    WarmState, WarmUp, Wide, phase_us,
};
use crate::clock::Timestamp;
use crate::decision::Refused;
use crate::{Algorithm, Limit};
use smallvec::SmallVec;
use std::sync::Arc;
use std::time::Duration;

/// A limit in force, with its numbers.
pub(crate) struct Version {
    pub(crate) number: u64,
    pub(crate) limit: Limit,
    pub(crate) plan: Plan,
    pub(crate) numbers: Arc<ScriptLimit>,
    /// Those of the limits that were in force here before, oldest first.
    pub(crate) before: SmallVec<[Arc<ScriptLimit>; OTHERS_MAX]>,
    /// The longest list that a call about one key may have to read.
    pub(crate) entries: u64,
}

/// What the script takes of a limit.
pub(crate) struct ScriptLimit {
    /// The kind and five numbers.
    pub(crate) plan: [u64; 6],
    /// Written behind every state, so that another limit can tell whose it is.
    pub(crate) tag: String,
    /// When it came into force here, on the local clock.
    pub(crate) since: Timestamp,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Plan {
    Smooth(Bucket<Wide>),
    Stepped(Bucket<Stepped>),
    Warm(WarmUp),
    Slices(Slices),
    Slots(Slots),
}

/// What Redis's Lua computes exactly.
const EXACT: u128 = 1 << 52;

/// How long a waiter in a queue is taken to be alive without a sign.
const WAITER_ALIVE: Duration = Duration::from_secs(2);

impl Version {
    /// `lease` is how long a place is held without a sign of its holder. The clock that
    /// counts shows zero at `unix_us_at_zero`: the server's at 0.
    pub(crate) fn new(
        number: u64,
        limit: Limit,
        lease: Duration,
        since: Timestamp,
        unix_us_at_zero: u64,
    ) -> Self {
        let (amount, period, wait) = (limit.amount(), limit.period_us(), limit.wait_us());
        let (cell, drain) = limit.cell_and_drain();
        let wide = |burst: u128, full: u128| {
            // As in decide.lua, which works it out from the tag of another limit's state.
            let full_units = full / u128::from(cell);
            let fits = |factor: u64| (full_units + 1) * u128::from(cell) * u128::from(factor) < EXACT;
            Plan::Smooth(Bucket { scale: Wide::new(cell, drain, burst, full, fits) })
        };
        let stepped = |cap: u64| {
            let phase_us = phase_us(period, limit.offset_us(), unix_us_at_zero);
            let scale = Stepped { amount, tick_us: period, cap, wait_us: wait, phase_us };
            Plan::Stepped(Bucket { scale })
        };
        let unit = u128::from(cell);
        let plan = match *limit.algorithm() {
            Algorithm::TokenBucket { burst } => {
                let burst = u128::from(burst) * unit;
                wide(burst, burst + u128::from(wait) * u128::from(drain))
            }
            Algorithm::LeakyBucket { capacity } => {
                wide(u128::from(capacity) * unit, u128::from(capacity) * unit)
            }
            Algorithm::LeakyQueue { queue } => wide(unit, unit * (u128::from(queue) + 1)),
            Algorithm::Ticked { cap } => stepped(cap),
            Algorithm::FixedWindow => stepped(amount),
            Algorithm::WarmUp { warmup } => {
                let warmup_us = u64::try_from(warmup.as_micros()).unwrap_or(u64::MAX);
                Plan::Warm(WarmUp { cell, drain, warmup_us, wait_us: wait })
            }
            Algorithm::SlidingWindow { slices } => Plan::Slices(Slices {
                amount,
                slice_us: period.div_ceil(slices),
                span: slices,
                wait_us: wait,
                phase_us: 0,
            }),
            Algorithm::SlidingLog => {
                Plan::Slices(Slices { amount, slice_us: 1, span: period - 1, wait_us: wait, phase_us: 0 })
            }
            Algorithm::Concurrency { queue } => Plan::Slots(Slots { amount, queue }),
        };
        let narrow = |ticks: u128| u64::try_from(ticks).unwrap_or(u64::MAX);
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (numbers, tag) = match plan {
            Plan::Smooth(Bucket { scale: s }) => {
                // In lowest terms: the finer ticks follow from these.
                let rest = narrow(s.full % u128::from(s.cell)) / (s.cell / cell);
                let mut numbers = vec![cell, s.full_units()];
                if (drain, rest) != (1, 0) {
                    numbers.push(drain);
                }
                if rest != 0 {
                    numbers.push(rest);
                }
                ([1, s.cell, s.drain, narrow(s.burst), narrow(s.full), 0], tag('b', numbers))
            }
            Plan::Stepped(Bucket { scale: s, .. }) => {
                let phase = (s.phase_us != 0).then_some(s.phase_us);
                (
                    [2, s.amount, s.tick_us, s.cap, s.wait_us, s.phase_us],
                    tag('t', [s.amount, s.tick_us, s.full()].into_iter().chain(phase)),
                )
            }
            Plan::Warm(w) => (
                [3, w.cell, w.drain, w.warmup_us, w.wait_us, 0],
                tag('w', [w.cell, w.drain, w.warmup_us, w.wait_us]),
            ),
            Plan::Slices(s) => {
                ([4, s.amount, s.slice_us, s.span, s.wait_us, 0], tag('l', [s.slice_us, s.span, s.wait_us]))
            }
            Plan::Slots(s) => ([5, s.amount, s.queue, us(lease), us(WAITER_ALIVE), 0], String::new()),
        };
        let numbers = Arc::new(ScriptLimit { plan: numbers, tag, since });
        let entries = entries(&limit);
        Self { number, limit, plan, numbers, before: SmallVec::new(), entries }
    }

    /// The version that comes after this one.
    pub(crate) fn next(&self, limit: Limit, lease: Duration, since: Timestamp, unix_us_at_zero: u64) -> Self {
        let mut next = Self::new(self.number + 1, limit, lease, since, unix_us_at_zero);
        next.before = self.before.clone();
        if next.numbers.tag == self.numbers.tag {
            // One that counts alike goes on with the same counts.
            let ScriptLimit { plan, tag, .. } = &*next.numbers;
            let (plan, tag, since) = (*plan, tag.clone(), self.numbers.since);
            next.numbers = Arc::new(ScriptLimit { plan, tag, since });
            return next;
        }
        if next.before.len() == OTHERS_MAX {
            next.before.remove(0);
        }
        next.before.push(self.numbers.clone());
        next
    }

    /// True if both count alike, so that a call of one can be counted with a call of the other.
    pub(crate) fn counts_like(&self, other: &Self) -> bool {
        self.numbers.plan == other.numbers.plan
    }

    pub(crate) fn is_place(&self) -> bool {
        matches!(self.plan, Plan::Slots(_))
    }

    pub(crate) fn is_bucket(&self) -> bool {
        matches!(self.plan, Plan::Smooth(_))
    }
}

/// The numbers of a limit in base 36, short as they stand behind every state.
fn tag(kind: char, numbers: impl IntoIterator<Item = u64>) -> String {
    let digits = |mut number: u64| {
        let mut digits = Vec::new();
        loop {
            digits.push(char::from_digit((number % 36) as u32, 36).unwrap_or('0'));
            number /= 36;
            if number == 0 {
                return digits.into_iter().rev().collect::<String>();
            }
        }
    };
    let parts: Vec<String> = numbers.into_iter().map(digits).collect();
    format!("{kind}{}", parts.join("/"))
}

/// What the script found of one key, at `at_us` on the server's clock.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    at_us: u64,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Ticks that are in a bucket.
    Level(u64),
    /// Units in use since the tick of `at_us`.
    Units(u64),
    Warm(WarmState),
    /// Slices, of which the first `known` are single ones and the rest is summed up.
    Slices {
        state: SliceState,
        known: usize,
    },
    Slots(SlotState),
}

impl Found {
    /// When it was found, on the server's clock.
    pub(crate) fn at_us(&self) -> u64 {
        self.at_us
    }
}

/// Where a charge stands, for the script to find it again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    /// Where it ended: microseconds and ticks, a tick and units, or a slice.
    pub(crate) end: (u64, u64),
    /// How far it moved the state, in ticks or units.
    pub(crate) span: u64,
    /// Permits that a warm-up had in store before it, in ticks.
    pub(crate) stored: u64,
}

impl Plan {
    /// Reads what the script tells of a key; `None` if it makes no sense.
    pub(crate) fn read(&self, at_us: u64, told: &mut impl Iterator<Item = i64>) -> Option<Found> {
        let mut next = || told.next();
        let state = match self {
            Self::Smooth(_) => State::Level(natural(next()?)?),
            Self::Stepped(_) => State::Units(natural(next()?)?),
            Self::Warm(warm) => {
                let (used, base, stored) = (next()? != 0, next()?, natural(next()?)?);
                State::Warm(warm.state(at_us, used, base, stored))
            }
            Self::Slices(_) => {
                let (_total, known, entries) = (next()?, natural(next()?)?, natural(next()?)?);
                let mut read = Vec::new();
                for _ in 0..entries {
                    read.push((natural(next()?)?, natural(next()?)?));
                }
                let known = usize::try_from(known).ok()?;
                State::Slices { state: SliceState::of(read.into_iter()), known }
            }
            Self::Slots(_) => State::Slots(SlotState::of(natural(next()?)?, natural(next()?)?)),
        };
        Some(Found { at_us, state })
    }

    /// Decides at `now_us`, which is `found`'s own time or a little later.
    pub(crate) fn answer(&self, now_us: u64, found: &mut Found, cost: u64, mode: Mode, limit: u64) -> Answer {
        let since_us = now_us.saturating_sub(found.at_us);
        match (self, &mut found.state) {
            (Self::Smooth(bucket), State::Level(level)) => {
                bucket.answer(since_us, u128::from(*level), cost, mode, limit)
            }
            (Self::Stepped(bucket), State::Units(units)) => {
                let tat = bucket.scale.tick(found.at_us) * bucket.scale.amount + *units;
                bucket.answer(now_us, tat, cost, mode, limit)
            }
            (Self::Warm(warm), State::Warm(state)) => warm.answer(now_us, *state, cost, mode),
            (Self::Slices(slices), State::Slices { state, .. }) => slices.answer(now_us, state, cost, mode),
            (Self::Slots(slots), State::Slots(state)) => slots.answer(state, cost, mode),
            _ => Answer::denied(Refused::Busy, Gauge::Plain { remaining: 0, reset_us: 0 }),
        }
    }

    /// What an unused key would be told: which of its answers do not depend on the state.
    pub(crate) fn answer_unused(&self, cost: u64, mode: Mode, limit: u64) -> Answer {
        let state = match self {
            Self::Smooth(_) => State::Level(0),
            Self::Stepped(_) => State::Units(0),
            Self::Warm(warm) => State::Warm(warm.fresh()),
            Self::Slices(_) => State::Slices { state: SliceState::default(), known: 0 },
            Self::Slots(_) => State::Slots(SlotState::default()),
        };
        self.answer(0, &mut Found { at_us: 0, state }, cost, mode, limit)
    }

    /// Takes what an answer at `found`'s own time granted, and tells where it stands.
    pub(crate) fn apply(&self, found: &mut Found, step: Step) -> Mark {
        match (self, &mut found.state, step) {
            (Self::Smooth(bucket), State::Level(level), Step::Tat { before, after }) => {
                *level = narrow(after);
                let end = (found.at_us + *level / bucket.scale.drain, *level % bucket.scale.drain);
                Mark { end, span: narrow(after - before), stored: 0 }
            }
            (Self::Stepped(bucket), State::Units(units), Step::Tat { before, after }) => {
                let tick = bucket.scale.tick(found.at_us);
                *units = narrow(after).saturating_sub(tick * bucket.scale.amount);
                Mark { end: (tick, *units), span: narrow(after - before), stored: 0 }
            }
            (Self::Warm(warm), State::Warm(state), Step::Warm { before, after }) => {
                *state = after;
                let span = narrow(after.last_start().saturating_sub(before.last_start()));
                Mark { end: warm.last_start(after), span, stored: narrow(before.stored()) }
            }
            (Self::Slices(_), State::Slices { state, .. }, Step::Slice { slice, units }) => {
                Slices::apply(state, slice, units);
                Mark { end: (slice, 0), ..Mark::default() }
            }
            (Self::Slots(_), State::Slots(state), Step::Hold { units }) => {
                Slots::apply(state, units);
                Mark::default()
            }
            _ => Mark::default(),
        }
    }

    /// Orders charges of one key by where they ended.
    pub(crate) fn rank(&self, mark: &Mark) -> u128 {
        let (whole, part) = (u128::from(mark.end.0), u128::from(mark.end.1));
        whole
            * u128::from(match self {
                Self::Smooth(bucket) => bucket.scale.drain,
                Self::Stepped(bucket) => bucket.scale.amount,
                Self::Warm(warm) => warm.drain,
                Self::Slices(_) | Self::Slots(_) => 1,
            })
            + part
    }

    /// The longest time that a charge can matter.
    pub(crate) fn longest_us(&self) -> u64 {
        match self {
            Self::Smooth(bucket) => bucket.scale.empty_us(bucket.scale.full(), 0),
            Self::Stepped(bucket) => bucket.scale.empty_us(bucket.scale.full(), 0),
            Self::Warm(warm) => warm.wait_us + 4 * warm.warmup_us + 3 * warm.cell.div_ceil(warm.drain),
            Self::Slices(_) | Self::Slots(_) => 0,
        }
    }

    /// True if `found` says enough about a call of this cost.
    pub(crate) fn knows(&self, found: &Found, cost: u64) -> bool {
        match (self, &found.state) {
            (Self::Slices(slices), State::Slices { state, known }) => {
                let excess = state.total().saturating_add(cost).saturating_sub(slices.amount);
                excess <= state.units_of_first(*known)
            }
            (Self::Slots(_), _) => false,
            _ => true,
        }
    }
}

fn narrow(ticks: u128) -> u64 {
    u64::try_from(ticks).unwrap_or(u64::MAX)
}

fn natural(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}
