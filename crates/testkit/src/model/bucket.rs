//! Token bucket, leaky bucket and leaky queue: a bucket with a hole.
//!
//! A call pours its units in; what is in flows out at the rate. Exact, because the
//! water is measured in ticks: a unit is `unit` ticks, a microsecond drains `drain`, in
//! lowest terms times what the store has room for ([`Store::finer`]).

use super::account::{Account, Grant, MILLION, ceil, in_lowest_terms, whole};
use super::store::Store;
use crate::{Denied, Mode};
use tidegate::{Algorithm, Limit};

/// One key's bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Ticks that a unit is.
    pub unit: i128,
    /// Ticks that flow out in a microsecond.
    pub drain: i128,
    /// Units that may start at once.
    pub burst: i128,
    /// The most ticks that the bucket can hold, waiting calls included.
    pub full: i128,
    /// True for the leaky queue, which never lets two calls start together.
    pub is_queue: bool,
    /// The instant, in ticks, at which the bucket is empty if nobody comes.
    pub empty_at: i128,
}

impl Bucket {
    /// An empty bucket, from which `burst` units may start at once.
    pub fn new(store: Store, limit: &Limit) -> Self {
        let (unit, drain) = in_lowest_terms(whole_us(limit.period()), i128::from(limit.amount()));
        let wait = whole_us(limit.wait());
        let (burst, full, is_queue) = match *limit.algorithm() {
            Algorithm::LeakyQueue { queue } => (1, (1 + i128::from(queue)) * unit, true),
            _ => (i128::from(limit.capacity()), i128::from(limit.capacity()) * unit + wait * drain, false),
        };
        let k = store.finer(unit, drain, full);
        Self { unit: unit * k, drain: drain * k, burst, full: full * k, is_queue, empty_at: 0 }
    }

    /// Ticks that are in it.
    pub fn level(&self, now: i128) -> i128 {
        (self.empty_at - now * self.drain).max(0)
    }

    fn room(&self, mode: Mode) -> i128 {
        match mode {
            Mode::Check | Mode::Peek => self.burst * self.unit,
            Mode::Reserve => self.full,
        }
    }
}

impl Account for Bucket {
    fn repair(&mut self, now: i128) {
        self.empty_at = self.empty_at.min(now * self.drain + self.full);
    }

    fn ask(&self, now: i128, cost: i128, mode: Mode) -> Result<i128, Denied> {
        let room = self.room(mode);
        let poured = self.level(now) + cost * self.unit;
        if cost * self.unit > room {
            Err(Denied::Never)
        } else if poured > room {
            Err(Denied::Later(whole(ceil(poured - room, self.drain))))
        } else {
            // It starts once everything in the bucket, itself included, is within the burst.
            let above = (poured - self.burst * self.unit).max(0);
            Ok(now + ceil(above, self.drain))
        }
    }

    fn charge(&mut self, now: i128, cost: i128, _start: i128) {
        self.empty_at = now * self.drain + self.level(now) + cost * self.unit;
    }

    fn mark(&self) -> i128 {
        self.empty_at
    }

    fn remaining(&self, now: i128) -> i128 {
        (self.burst * self.unit - self.level(now)).max(0) / self.unit
    }

    fn reset(&self, now: i128) -> i128 {
        ceil(self.level(now), self.drain)
    }

    fn refund(&mut self, now: i128, grant: &mut Grant, units: i128) {
        let is_last = self.empty_at == grant.mark;
        let back = if now < grant.start {
            // Later calls start where this one ends: taking it away would let two collide.
            if is_last { units * self.unit } else { 0 }
        } else if self.is_queue && !is_last && self.level(now) > self.unit {
            0
        } else {
            let left_in = i128::from(grant.cost) * self.unit - (now - grant.start) * self.drain;
            (units * self.unit).min(left_in.max(0))
        };
        self.empty_at -= back;
        if is_last {
            grant.mark = self.empty_at;
        }
    }

    fn owe(&mut self, now: i128, units: i128) {
        let level = self.level(now);
        let owed = (level + units * self.unit).min(self.full.max(level));
        self.empty_at = now * self.drain + owed;
    }

    fn used(&self, at: i128) -> i128 {
        ceil(self.level(at) * MILLION, self.unit)
    }

    fn hold(&mut self, at: i128, used: i128) {
        self.empty_at = at * self.drain + ceil(used * self.unit, MILLION).min(self.full);
    }
}

/// A duration of a limit in whole microseconds.
pub(super) fn whole_us(duration: std::time::Duration) -> i128 {
    i128::try_from(duration.as_micros()).expect("a limit's durations fit")
}
