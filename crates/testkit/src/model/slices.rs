//! Sliding window and sliding log: the history of starts, by slice.
//!
//! Slices sit at multiples of their length since 1970. A start is counted from its own slice to `span` slices later. A log is the same
//! with slices of one microsecond, so that a start counts for exactly one period.

use super::account::{Account, Grant, MILLION, ceil, whole};
use super::bucket::whole_us;
use crate::{Denied, Mode};
use std::collections::BTreeMap;
use tidegate::{Algorithm, Limit};

/// One key's starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slices {
    /// Units in any window.
    pub amount: i128,
    /// Length of a slice.
    pub length: i128,
    /// A start in slice s is counted in slices s to s + span.
    pub span: i128,
    /// The longest wait.
    pub wait: i128,
    /// Units by the slice that they start in; waiting calls start in later ones.
    pub starts: BTreeMap<i128, i128>,
}

impl Slices {
    /// No starts.
    pub fn new(limit: &Limit) -> Self {
        let period = whole_us(limit.period());
        let (length, span) = match *limit.algorithm() {
            Algorithm::SlidingWindow { slices } => (ceil(period, i128::from(slices)), i128::from(slices)),
            _ => (1, period - 1),
        };
        let wait = whole_us(limit.wait());
        Self { amount: i128::from(limit.amount()), length, span, wait, starts: BTreeMap::new() }
    }

    fn slice(&self, now: i128) -> i128 {
        now.div_euclid(self.length)
    }

    /// Units that are still counted, waiting ones included.
    pub fn counted(&self, now: i128) -> i128 {
        self.starts.range(self.slice(now) - self.span..).map(|(_, units)| units).sum()
    }

    /// The last slice that somebody starts in, if it is still counted.
    fn last(&self, now: i128) -> Option<i128> {
        self.starts.range(self.slice(now) - self.span..).map(|(slice, _)| *slice).next_back()
    }

    /// The same starts in at most 33 pieces: what is kept beside a key's main count.
    /// Each start is taken to be in the last slice of its piece, so it counts for longer.
    pub fn coarsen(&mut self, now: i128) {
        let piece = ceil(self.span + 1 + ceil(self.wait, self.length), 32);
        let current = self.slice(now);
        let mut coarse = BTreeMap::new();
        for (slice, units) in &self.starts {
            let last = slice.div_euclid(piece) * piece + piece - 1;
            // What has started does not seem to start later.
            let last = if *slice <= current { last.min(current) } else { last };
            *coarse.entry(last).or_default() += units;
        }
        self.starts = coarse;
    }

    /// The first slice, from now and from the last start on, where the units fit.
    fn first_fit(&self, now: i128, cost: i128) -> i128 {
        let earliest = self.slice(now).max(self.last(now).unwrap_or(i128::MIN));
        let leaving = self.starts.keys().map(|slice| slice + self.span + 1);
        let mut candidates: Vec<i128> = leaving.filter(|slice| *slice > earliest).chain([earliest]).collect();
        candidates.sort_unstable();
        let fits = |at: &i128| {
            let others: i128 = self.starts.range(at - self.span..=*at).map(|(_, units)| units).sum();
            others + cost <= self.amount
        };
        candidates.into_iter().find(fits).expect("when all have left, a cost within the amount fits")
    }
}

impl Account for Slices {
    fn repair(&mut self, now: i128) {
        let furthest = self.slice(now) + ceil(self.wait, self.length);
        let too_far: i128 = self.starts.split_off(&(furthest + 1)).values().sum();
        if too_far > 0 {
            *self.starts.entry(furthest).or_default() += too_far;
        }
        self.starts = self.starts.split_off(&(self.slice(now) - self.span));
    }

    fn ask(&self, now: i128, cost: i128, mode: Mode) -> Result<i128, Denied> {
        if cost > self.amount {
            return Err(Denied::Never);
        }
        let longest = match mode {
            Mode::Check | Mode::Peek => 0,
            Mode::Reserve => self.wait,
        };
        let fit = self.first_fit(now, cost);
        let start = if fit == self.slice(now) { now } else { fit * self.length };
        if start - now <= longest { Ok(start) } else { Err(Denied::Later(whole(start - longest - now))) }
    }

    fn charge(&mut self, _now: i128, cost: i128, start: i128) {
        *self.starts.entry(self.slice(start)).or_default() += cost;
    }

    /// Starts never build on each other here: what is given back leaves its own slice.
    fn mark(&self) -> i128 {
        0
    }

    /// What could start now: nothing, if somebody starts later.
    fn remaining(&self, now: i128) -> i128 {
        let is_ahead = self.last(now).is_some_and(|last| last > self.slice(now));
        if is_ahead { 0 } else { (self.amount - self.counted(now)).max(0) }
    }

    fn reset(&self, now: i128) -> i128 {
        self.last(now).map_or(0, |last| (last + self.span + 1) * self.length - now)
    }

    fn refund(&mut self, now: i128, grant: &mut Grant, units: i128) {
        let slice = self.slice(grant.start);
        if slice >= self.slice(now) - self.span
            && let Some(there) = self.starts.get_mut(&slice)
        {
            *there -= units.min(*there);
            if *there == 0 {
                self.starts.remove(&slice);
            }
        }
    }

    fn owe(&mut self, now: i128, units: i128) {
        let room = (self.amount - self.counted(now)).max(0);
        if units.min(room) > 0 {
            let slice = self.slice(now).max(self.last(now).unwrap_or(i128::MIN));
            *self.starts.entry(slice).or_default() += units.min(room);
        }
    }

    fn used(&self, at: i128) -> i128 {
        self.counted(at) * MILLION
    }

    fn hold(&mut self, at: i128, used: i128) {
        let units = ceil(used, MILLION).min(self.amount);
        self.starts = if units > 0 { BTreeMap::from([(self.slice(at), units)]) } else { BTreeMap::new() };
    }
}
