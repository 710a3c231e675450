//! Ticked bucket and fixed window: `amount` tokens come at every multiple of the
//! period since 1970 (weeks on Monday, and `offset` later), `cap` can be saved up. A
//! fixed window is one that saves up one window.

use super::account::{Account, Grant, MILLION, ceil, whole};
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
        let missing = self.after(now, cost) - self.cap;
        let start = match ceil(missing.max(0), self.amount) {
            0 => now,
            ticks => self.comes(self.tick(now) + ticks),
        };
        if start - now <= longest { Ok(start) } else { Err(Denied::Later(whole(start - longest - now))) }
    }

    fn charge(&mut self, now: i128, cost: i128, _start: i128) {
        self.taken = self.tick(now) * self.amount + self.after(now, cost);
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
        let is_last = self.taken == grant.mark;
        let back = if now < grant.start {
            if is_last { units } else { 0 }
        } else {
            let come_since = (self.tick(now) - self.tick(grant.start)) * self.amount;
            units.min((i128::from(grant.cost) - come_since).max(0))
        };
        self.taken -= back;
        if is_last {
            grant.mark = self.taken;
        }
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
