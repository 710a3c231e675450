//! Concurrency without its queue: units held at the same time.
//!
//! Who waits, and in what order, is not modelled: that needs tasks, not traces.

use super::account::{Account, Grant, MILLION, ceil};
use crate::{Denied, Mode};
use tidegate::Limit;

/// What one key's callers hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slots {
    /// Units that can be held.
    pub amount: i128,
    /// Units that are held.
    pub held: i128,
}

impl Slots {
    /// Nothing is held.
    pub fn new(limit: &Limit) -> Self {
        Self { amount: i128::from(limit.amount()), held: 0 }
    }
}

impl Account for Slots {
    fn repair(&mut self, _now: i128) {}

    fn ask(&self, now: i128, cost: i128, mode: Mode) -> Result<i128, Denied> {
        match mode {
            _ if cost > self.amount => Err(Denied::Never),
            Mode::Check => Err(Denied::NeedsPermit),
            // Of held units one can only ask whether they could be held.
            Mode::Peek | Mode::Reserve if self.held + cost <= self.amount => Ok(now),
            Mode::Peek | Mode::Reserve => Err(Denied::Unknown),
        }
    }

    fn charge(&mut self, _now: i128, cost: i128, _start: i128) {
        self.held += cost;
    }

    fn mark(&self) -> i128 {
        0
    }

    fn remaining(&self, _now: i128) -> i128 {
        (self.amount - self.held).max(0)
    }

    fn reset(&self, _now: i128) -> i128 {
        0
    }

    fn refund(&mut self, _now: i128, grant: &mut Grant, units: i128) {
        self.held -= units.min(i128::from(grant.cost));
    }

    fn owe(&mut self, _now: i128, units: i128) {
        self.held = (self.held + units).min(self.amount);
    }

    fn used(&self, _at: i128) -> i128 {
        self.held * MILLION
    }

    fn hold(&mut self, _at: i128, used: i128) {
        self.held = ceil(used, MILLION);
    }
}
