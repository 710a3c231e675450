//! Token bucket, leaky bucket and leaky queue: a bucket with a hole.
//!
//! A call pours its units in; what is in flows out at the rate. Exact, because the
//! water is measured in ticks: a unit is `unit` ticks, a microsecond drains `drain`, in
//! lowest terms times what the store has room for ([`Store::finer`]).

use super::account::{self, Account, Grant, MILLION, ceil, in_lowest_terms, whole};
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
    /// Calls that were cancelled while others had reserved behind them.
    pub cancelled: Vec<Grant>,
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
        let (unit, drain, full) = (unit * k, drain * k, full * k);
        Self { unit, drain, burst, full, is_queue, empty_at: 0, cancelled: Vec::new() }
    }

    /// Ticks that are in it.
    pub fn level(&self, now: i128) -> i128 {
        (self.empty_at - now * self.drain).max(0)
    }

    /// Takes `units` of a grant out again; false if they have to stay.
    fn give_back(&mut self, now: i128, grant: &mut Grant, units: i128) -> bool {
        let is_last = self.empty_at == grant.mark;
        let burst = self.burst * self.unit;
        let back = if now < grant.start {
            // Later calls start where this one ends: taking it away would let two collide.
            if !is_last {
                return false;
            }
            if units == i128::from(grant.cost) {
                self.empty_at - grant.before.0
            } else {
                // The rest of it must still start when it does.
                let above = (self.level(now) - units * self.unit - burst).max(0);
                if now + ceil(above, self.drain) < grant.start {
                    return false;
                }
                units * self.unit
            }
        } else if self.level(now) > burst {
            // Somebody waits, and was promised a start on top of this.
            return false;
        } else {
            let left_in = i128::from(grant.cost) * self.unit - (now - grant.start) * self.drain;
            let left_in = left_in.min(grant.mark - now * self.drain);
            if left_in <= 0 {
                return false;
            }
            (units * self.unit).min(left_in)
        };
        self.empty_at -= back;
        grant.mark -= back;
        true
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

    fn before(&self, _now: i128, _cost: i128) -> (i128, i128) {
        (self.empty_at, 0)
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
        account::refund(
            self,
            grant,
            units,
            |state| &mut state.cancelled,
            |state, grant, units| state.give_back(now, grant, units),
        );
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
