//! Sliding window and sliding log are one mechanism: units counted by slice.
//!
//! A window of some slices counts the oldest one whole, so that no period holds more
//! than the amount; a log is the same with slices of a microsecond. Only slices with
//! units in them are kept. A reservation is counted in the slice where it starts,
//! which may lie ahead; starts never go back, so who came first starts first.

use super::{Answer, Counting, Gauge, Grant, MILLIONTHS, Mode, Step};
use crate::decision::DenialReason;
use std::collections::VecDeque;

/// Pieces that a period is divided into where a count is kept beside another limit's.
const PIECES: u64 = 32;

/// A sliding window's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slices {
    pub(crate) amount: u64,
    pub(crate) slice_us: u64,
    /// How many slices before a slice still count with it.
    pub(crate) span: u64,
    pub(crate) wait_us: u64,
    /// How far the slice at the clock's zero has gone on by then: slices sit on Unix time.
    pub(crate) phase_us: u64,
}

/// What one key has used: units by slice, oldest first, and their sum.
#[derive(Clone, Debug, Default)]
pub(crate) struct SliceState {
    counted: VecDeque<CountedSlice>,
    pub(crate) total: u64,
}

impl SliceState {
    /// Counts units in the last slice of all.
    pub(crate) fn add(&mut self, slice: u64, units: u64) {
        self.total += units;
        match self.counted.back_mut() {
            Some(last) if last.slice == slice => last.units += units,
            _ => self.counted.push_back(CountedSlice { slice, units }),
        }
    }

    /// Units of the first `entries`.
    #[cfg(feature = "redis")]
    pub(crate) fn units_of_first(&self, entries: usize) -> u64 {
        self.counted.iter().take(entries).map(|entry| entry.units).sum()
    }
}

#[derive(Clone, Copy, Debug)]
struct CountedSlice {
    slice: u64,
    units: u64,
}

impl Counting for Slices {
    type State = SliceState;

    fn decide(&self, now_us: u64, state: &mut SliceState, cost: u64, mode: Mode, _limit: u64) -> Answer {
        self.tidy(now_us, state);
        if cost == 0 {
            return Answer::allowed(0, self.gauge(now_us, state), Step::Keep);
        }
        if cost > self.amount {
            return Answer::denied(DenialReason::Never, self.gauge(now_us, state));
        }
        let slice = self.earliest(now_us, state, cost);
        let wait_us = (slice * self.slice_us).saturating_sub(now_us + self.phase_us);
        let longest_us = if mode == Mode::Reserve { self.wait_us } else { 0 };
        if wait_us > longest_us {
            let retry_us = wait_us - longest_us;
            return Answer::denied(DenialReason::Later { retry_us }, self.gauge(now_us, state));
        }
        let gauge = self.gauge_after(now_us, slice, state.total + cost);
        Answer::allowed(wait_us, gauge, Step::Slice { slice, units: cost })
    }

    fn apply(&self, state: &mut SliceState, step: Step) {
        if let Step::Slice { slice, units } = step {
            state.add(slice, units);
        }
    }

    /// Whatever is still counted comes back: starts do not build on each other.
    fn refund(&self, now_us: u64, state: &mut SliceState, grant: &mut Grant, units: u64) -> bool {
        let Step::Slice { slice, .. } = grant.mark else { return true };
        self.tidy(now_us, state);
        let Ok(at) = state.counted.binary_search_by_key(&slice, |entry| entry.slice) else { return true };
        let entry = &mut state.counted[at];
        let back = units.min(grant.cost).min(entry.units);
        entry.units -= back;
        if entry.units == 0 {
            state.counted.remove(at);
        }
        state.total -= back;
        true
    }

    fn charge_debt(&self, now_us: u64, state: &mut SliceState, units: u64) {
        self.tidy(now_us, state);
        let owed = units.min(self.amount.saturating_sub(state.total));
        if owed > 0 {
            let now = self.slice(now_us);
            state.add(state.counted.back().map_or(now, |last| last.slice.max(now)), owed);
        }
    }

    fn used(&self, now_us: u64, state: &SliceState) -> u128 {
        let now = self.slice(now_us);
        let gone = state.counted.iter().take_while(|entry| entry.slice + self.span < now);
        let used = state.total - gone.map(|entry| entry.units).sum::<u64>();
        u128::from(used) * u128::from(MILLIONTHS)
    }

    fn convert(&self, now_us: u64, millionths: u128) -> SliceState {
        let units = millionths.div_ceil(u128::from(MILLIONTHS)).min(u128::from(self.amount)) as u64;
        let mut state = SliceState::default();
        if units > 0 {
            state.add(self.slice(now_us), units);
        }
        state
    }

    fn empty_us(&self, now_us: u64, state: &SliceState) -> u64 {
        state.counted.back().map_or(0, |last| self.gone_us(last.slice, now_us))
    }
}

impl Slices {
    pub(super) fn longest_us(&self) -> u64 {
        self.wait_us + (self.span + 2) * self.slice_us
    }

    /// The first slice, not before the last one taken, in which `cost` fits.
    fn earliest(&self, now_us: u64, state: &SliceState, cost: u64) -> u64 {
        let now = self.slice(now_us);
        let mut earliest = state.counted.back().map_or(now, |last| last.slice.max(now));
        // What must leave first: entries go in order, each one span after its slice.
        let mut excess = (state.total + cost).saturating_sub(self.amount);
        for entry in &state.counted {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(entry.units);
            earliest = earliest.max(entry.slice + self.span + 1);
        }
        earliest
    }

    /// Forgets what no longer counts, and brings back what a clock that has been
    /// ahead put further on than any wait could.
    fn tidy(&self, now_us: u64, state: &mut SliceState) {
        let now = self.slice(now_us);
        let furthest = now + self.wait_us.div_ceil(self.slice_us);
        let mut ahead = 0;
        while let Some(last) = state.counted.pop_back_if(|last| last.slice > furthest) {
            ahead += last.units;
        }
        if ahead > 0 {
            state.total -= ahead;
            state.add(furthest, ahead);
        }
        while let Some(first) = state.counted.pop_front_if(|first| first.slice + self.span < now) {
            state.total -= first.units;
        }
    }

    /// The same count in at most about [`PIECES`] entries, for one that is kept beside another
    /// limit's: units count until the youngest of their piece would have gone.
    pub(crate) fn coarse(&self, now_us: u64, state: &SliceState) -> SliceState {
        let piece = (self.span + 1 + self.wait_us.div_ceil(self.slice_us)).div_ceil(PIECES);
        let now = self.slice(now_us);
        let mut coarse = SliceState::default();
        for entry in &state.counted {
            let last = entry.slice / piece * piece + piece - 1;
            // What has started must not seem to start later: others would wait for it.
            let slice = if entry.slice <= now { last.min(now) } else { last };
            coarse.add(slice, entry.units);
        }
        coarse
    }

    fn gauge(&self, now_us: u64, state: &SliceState) -> Gauge {
        let nothing = Gauge::Plain { remaining: self.amount, reset_us: 0 };
        state.counted.back().map_or(nothing, |last| self.gauge_after(now_us, last.slice, state.total))
    }

    /// What is left of `total` units of which the last start in the slice `last`. Nobody starts
    /// before them, whatever others have given back.
    fn gauge_after(&self, now_us: u64, last: u64, total: u64) -> Gauge {
        let is_now = last <= self.slice(now_us);
        let remaining = if is_now { self.amount.saturating_sub(total) } else { 0 };
        Gauge::Plain { remaining, reset_us: self.gone_us(last, now_us) }
    }

    /// Microseconds until `slice` no longer counts.
    fn gone_us(&self, slice: u64, now_us: u64) -> u64 {
        ((slice + self.span + 1) * self.slice_us).saturating_sub(now_us + self.phase_us)
    }

    fn slice(&self, now_us: u64) -> u64 {
        (now_us + self.phase_us) / self.slice_us
    }
}
