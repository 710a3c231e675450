//! Ticked bucket and fixed window: `amount` tokens come at every multiple of the
//! period since 1970 (weeks on Monday, and `offset` later), `cap` can be saved up. A
//! fixed window is one that saves up one window.

use super::account::{self, Account, Grant, MILLION, ceil, whole};
use super::bucket::whole_us;
use crate::{Denied, Mode};
use tidegate::Limit;

/// One key's tokens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticks {
    /// Tokens that come at a tick.
    pub amount: i128,
    /// Time from tick to tick.
    pub period: i128,
    /// The first tick that comes after 1970-01-01 00:00 UTC, or at it.
    pub first: i128,
    /// Tokens that can be saved up.
    pub cap: i128,
    /// The longest wait.
    pub wait: i128,
    /// Tokens missing from a full bucket as of tick 0, the one before `first`: those of tick
    /// k, and k ticks' worth.
    pub taken: i128,
    /// Calls that were cancelled while others had reserved behind them.
    pub cancelled: Vec<Grant>,
}

impl Ticks {
    /// A full bucket.
    pub fn new(limit: &Limit) -> Self {
        let period = whole_us(limit.period());
        let day = 86_400_000_000;
        // 1970 began on a Thursday, so the first Monday came four days later.
        let monday = if period % (7 * day) == 0 { 4 * day } else { 0 };
        Self {
            amount: i128::from(limit.amount()),
            period,
            first: (monday + whole_us(limit.offset())).rem_euclid(period),
            cap: i128::from(limit.capacity()),
            wait: whole_us(limit.wait()),
            taken: 0,
            cancelled: Vec::new(),
        }
    }

    fn tick(&self, now: i128) -> i128 {
        (now - self.first).div_euclid(self.period) + 1
    }

    /// When a tick comes.
    fn comes(&self, tick: i128) -> i128 {
        self.first + (tick - 1) * self.period
    }

    /// Tokens that are missing now; more than `cap` where calls wait for coming ticks.
    pub fn level(&self, now: i128) -> i128 {
        (self.taken - self.tick(now) * self.amount).max(0)
    }

    /// Tokens that are missing once a call has taken `cost`. What can save up only one
    /// tick's worth is a window, and a call takes all its units from one window.
    fn after(&self, now: i128, cost: i128) -> i128 {
        let level = self.level(now);
        let in_its_window = level % self.amount;
        let is_window = self.cap == self.amount;
        if is_window && in_its_window + cost > self.amount {
            let next_window = level - in_its_window + self.amount;
            next_window + cost
        } else {
            level + cost
        }
    }

    /// When a call starts that makes this many missing.
    fn start(&self, now: i128, missing: i128) -> i128 {
        match ceil((missing - self.cap).max(0), self.amount) {
            0 => now,
            ticks => self.comes(self.tick(now) + ticks),
        }
    }

    /// Takes `units` of a grant out again; false if they have to stay.
    fn give_back(&mut self, now: i128, grant: &mut Grant, units: i128) -> bool {
        let is_last = self.taken == grant.mark;
        let back = if now < grant.start {
            if !is_last {
                return false;
            }
            if units == i128::from(grant.cost) {
                // With the rest of the window that it skipped.
                self.taken - grant.before.0
            } else if self.start(now, self.level(now) - units) < grant.start {
                return false;
            } else {
                units
            }
        } else if self.level(now) > self.cap {
            // Somebody waits, and was promised a start on top of this.
            return false;
        } else {
            let come_since = (self.tick(now) - self.tick(grant.start)) * self.amount;
            let left_in = i128::from(grant.cost) - come_since;
            let left_in = left_in.min(grant.mark - self.tick(now) * self.amount);
            if left_in <= 0 {
                return false;
            }
            units.min(left_in)
        };
        self.taken -= back;
        grant.mark -= back;
        true
    }

    /// The most that can be missing: all, and all that come within the longest wait.
    pub fn full(&self) -> i128 {
        self.cap + self.amount * ceil(self.wait, self.period)
    }
}

impl Account for Ticks {
    fn repair(&mut self, now: i128) {
        self.taken = self.taken.min(self.tick(now) * self.amount + self.full());
    }

    fn ask(&self, now: i128, cost: i128, mode: Mode) -> Result<i128, Denied> {
        let longest = match mode {
            Mode::Check | Mode::Peek => 0,
            Mode::Reserve => self.wait,
        };
        if cost > self.cap {
            return Err(Denied::Never);
        }
        let start = self.start(now, self.after(now, cost));
        if start - now <= longest { Ok(start) } else { Err(Denied::Later(whole(start - longest - now))) }
    }

    fn charge(&mut self, now: i128, cost: i128, _start: i128) {
        self.taken = self.tick(now) * self.amount + self.after(now, cost);
    }

    fn before(&self, _now: i128, _cost: i128) -> (i128, i128) {
        (self.taken, 0)
    }

    fn mark(&self) -> i128 {
        self.taken
    }

    fn remaining(&self, now: i128) -> i128 {
        (self.cap - self.level(now)).max(0)
    }

    fn reset(&self, now: i128) -> i128 {
        match ceil(self.level(now), self.amount) {
            0 => 0,
            ticks => self.comes(self.tick(now) + ticks) - now,
        }
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
        let owed = (level + units).min(self.full().max(level));
        self.taken = self.tick(now) * self.amount + owed;
    }

    fn used(&self, at: i128) -> i128 {
        self.level(at) * MILLION
    }

    fn hold(&mut self, at: i128, used: i128) {
        self.taken = self.tick(at) * self.amount + ceil(used, MILLION).min(self.full());
    }
}
