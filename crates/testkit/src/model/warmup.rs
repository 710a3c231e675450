//! Token bucket with warm-up: Guava's trapezoid, cold factor 3, in exact integers.
//!
//! An idle key stores permits up to `warmup`'s worth. Stored permits below half of
//! that cost their plain time; above it, time climbs linearly to three times that.
//! Each call pays its own wait, so the call after it never pays for this one.

use super::account::{self, Account, Grant, MILLION, ceil, in_lowest_terms, whole};
use super::bucket::whole_us;
use crate::{Denied, Mode};
use std::time::Duration;
use tidegate::Limit;

/// One key's warmth. Ticks as in a bucket, but in lowest terms, because the price of
/// cold permits is rounded up to whole ticks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WarmUp {
    /// Ticks that a unit is.
    pub unit: i128,
    /// Ticks in a microsecond.
    pub drain: i128,
    /// Ticks stored by a cold key.
    pub cold: i128,
    /// The longest wait, in ticks.
    pub wait: i128,
    /// The last start in ticks and the ticks stored then; none for a new key.
    pub last: Option<(i128, i128)>,
    /// Calls that were cancelled while others had reserved behind them.
    pub cancelled: Vec<Grant>,
}

/// What a call would do.
struct Plan {
    is_rested: bool,
    stored: i128,
    start: i128,
}

impl WarmUp {
    /// A cold key.
    pub fn new(limit: &Limit, warmup: Duration) -> Self {
        let (unit, drain) = in_lowest_terms(whole_us(limit.period()), i128::from(limit.amount()));
        Self {
            unit,
            drain,
            cold: whole_us(warmup) * drain,
            wait: whole_us(limit.wait()) * drain,
            last: None,
            cancelled: Vec::new(),
        }
    }

    /// Ticks that it takes to spend `ticks` from `stored`.
    pub fn time(&self, stored: i128, ticks: i128) -> i128 {
        let upper_half = ceil(self.cold, 2);
        let above = (stored - (self.cold - upper_half)).max(0);
        let slow = ticks.min(above);
        ticks + ceil(slow * (2 * above - slow), upper_half)
    }

    /// As if no more than the rest of the grant had been asked for; false if others have
    /// started, or will, on top of it.
    fn give_back(&mut self, grant: &mut Grant, units: i128) -> bool {
        if self.last.is_none_or(|(last, _)| last != grant.mark) {
            return false;
        }
        let kept = (i128::from(grant.cost) - units) * self.unit;
        let (last, stored) = grant.before;
        grant.mark = last + self.time(stored, kept);
        self.last = Some((grant.mark, (stored - kept).max(0)));
        true
    }

    fn plan(&self, now: i128, cost: i128) -> Plan {
        let now = now * self.drain;
        let rested = |stored: i128| {
            let extra = self.time(stored, cost * self.unit) - self.time(stored, self.unit);
            Plan { is_rested: true, stored, start: now + extra }
        };
        let Some((last, stored)) = self.last else { return rested(self.cold) };
        let (idle, first) = ((now - last).max(0), self.time(stored, self.unit));
        if idle >= first {
            rested((stored + idle - first).min(self.cold))
        } else {
            Plan { is_rested: false, stored, start: last + self.time(stored, cost * self.unit) }
        }
    }
}

impl Account for WarmUp {
    fn repair(&mut self, now: i128) {
        if let Some((last, _)) = &mut self.last {
            *last = (*last).min(now * self.drain + self.wait + self.cold);
        }
    }

    fn ask(&self, now: i128, cost: i128, mode: Mode) -> Result<i128, Denied> {
        let longest = match mode {
            Mode::Check | Mode::Peek => 0,
            Mode::Reserve => self.wait,
        };
        if (cost - 1) * self.unit > longest {
            return Err(Denied::Never);
        }
        let plan = self.plan(now, cost);
        let ahead = plan.start - now * self.drain;
        if ahead <= longest {
            return Ok(now + ceil(ahead, self.drain));
        }
        let extra = self.time(plan.stored, cost * self.unit) - self.time(plan.stored, self.unit);
        if plan.is_rested || extra > longest {
            Err(Denied::Unknown)
        } else {
            Err(Denied::Later(whole(ceil(ahead - longest, self.drain))))
        }
    }

    fn charge(&mut self, now: i128, cost: i128, _start: i128) {
        let plan = self.plan(now, cost);
        self.last = Some((plan.start, (plan.stored - cost * self.unit).max(0)));
    }

    /// The last start and what was stored then, as of now: rest has paid for one unit.
    fn before(&self, now: i128, cost: i128) -> (i128, i128) {
        let plan = self.plan(now, cost);
        (plan.start - self.time(plan.stored, cost * self.unit), plan.stored)
    }

    fn mark(&self) -> i128 {
        self.last.map_or(0, |(last, _)| last)
    }

    fn remaining(&self, now: i128) -> i128 {
        i128::from(self.ask(now, 1, Mode::Check).is_ok())
    }

    fn reset(&self, now: i128) -> i128 {
        let Some((last, stored)) = self.last else { return 0 };
        let cold_again = last + self.time(stored, self.unit) + self.cold - stored;
        ceil((cold_again - now * self.drain).max(0), self.drain)
    }

    /// Only the last start can be taken back: later ones stand on it.
    fn refund(&mut self, _now: i128, grant: &mut Grant, units: i128) {
        account::refund(self, grant, units, |state| &mut state.cancelled, Self::give_back);
    }

    /// The next start moves on by it. What rest has cooled stays cold.
    fn owe(&mut self, now: i128, units: i128) {
        let (stored, now) = (self.plan(now, 1).stored, now * self.drain);
        let last = self.last.map_or(now, |(last, _)| last);
        let owed = (last.max(now) + units * self.unit).min(now + self.wait + self.cold);
        self.last = Some((owed.max(last), stored));
    }

    /// How far away the next start is.
    fn used(&self, at: i128) -> i128 {
        let Some((last, stored)) = self.last else { return 0 };
        ceil((last + self.time(stored, self.unit) - at * self.drain).max(0) * MILLION, self.unit)
    }

    /// The first unit is the last start's own, what is beyond it moves that start on.
    fn hold(&mut self, at: i128, used: i128) {
        let ahead = ceil((used - MILLION).max(0) * self.unit, MILLION).min(self.wait + self.cold);
        self.last = (used > 0).then_some((at * self.drain + ahead, self.cold));
    }
}
