//! The account of one key: what a decision is made of, whatever the algorithm.
//!
//! How units are counted is each algorithm's own; that a denial writes nothing, that
//! cost 0 is always allowed, and what a caller is shown, is said once, here.

use super::{Bucket, Slices, Slots, Ticks, WarmUp};
use crate::{Denied, Mode, Seen};
use tidegate::{Algorithm, Limit};

/// How one algorithm counts one key. Times in microseconds.
pub trait Account {
    /// A state that is ahead of `now` by more than a full drain (the clock ran back)
    /// is cut to a full drain, so that nobody is locked out for longer. What no longer
    /// counts is forgotten. Kept even where the call is denied.
    fn repair(&mut self, now: i128);
    /// When a call of this cost would start, or why it is denied. Writes nothing.
    fn ask(&self, now: i128, cost: i128, mode: Mode) -> Result<i128, Denied>;
    /// Counts a call that `ask` let start at `start`.
    fn charge(&mut self, now: i128, cost: i128, start: i128);
    /// What brings the account back if a call of this cost that is charged now, and that
    /// nobody built on, does not happen after all.
    fn before(&self, _now: i128, _cost: i128) -> (i128, i128) {
        (0, 0)
    }
    /// Changes with every charge: a grant whose mark still stands is the last one.
    fn mark(&self) -> i128;
    /// Units that could start now.
    fn remaining(&self, now: i128) -> i128;
    /// Time until the key is as good as new.
    fn reset(&self, now: i128) -> i128;
    /// Takes up to `units` of a grant out of the count again.
    fn refund(&mut self, now: i128, grant: &mut Grant, units: i128);
    /// Counts units that were used beyond what was granted, never more than a full drain.
    fn owe(&mut self, now: i128, units: i128);
    /// Units in use, rounded up: what a changed limit takes over.
    fn used(&self, now: i128) -> i128;
    /// A new account with `units` in use, or as many as it can hold.
    fn hold(&mut self, now: i128, units: i128);
}

/// What a reservation left behind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Units, less what was given back.
    pub cost: u64,
    /// When the call starts: decision plus wait.
    pub start: i128,
    /// The account's mark right after.
    pub mark: i128,
    /// What brings the account back to where it was.
    pub before: (i128, i128),
}

/// The account of one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Token bucket, leaky bucket and leaky queue.
    Bucket(Bucket),
    /// Ticked bucket and fixed window.
    Ticks(Ticks),
    /// Sliding window and sliding log.
    Slices(Slices),
    /// Token bucket with warm-up.
    WarmUp(WarmUp),
    /// Concurrency.
    Slots(Slots),
}

impl State {
    /// The account of an unknown key.
    pub fn new(limit: &Limit) -> Self {
        match limit.algorithm() {
            Algorithm::TokenBucket { .. } | Algorithm::LeakyBucket { .. } | Algorithm::LeakyQueue { .. } => {
                Self::Bucket(Bucket::new(limit))
            }
            Algorithm::Ticked { .. } | Algorithm::FixedWindow => Self::Ticks(Ticks::new(limit)),
            Algorithm::SlidingWindow { .. } | Algorithm::SlidingLog => Self::Slices(Slices::new(limit)),
            Algorithm::WarmUp { warmup } => Self::WarmUp(WarmUp::new(limit, *warmup)),
            Algorithm::Concurrency { .. } => Self::Slots(Slots::new(limit)),
        }
    }

    /// One decision. A denial leaves the account as it was, but for its repair.
    pub fn decide(&mut self, now_us: u64, cost: u64, mode: Mode) -> (Seen, Grant) {
        let (now, units) = (i128::from(now_us), i128::from(cost));
        let account = self.account_mut();
        account.repair(now);
        let answer = if cost == 0 { Ok(now) } else { account.ask(now, units, mode) };
        let before = account.before(now, units);
        if let Ok(start) = answer
            && cost > 0
            && mode != Mode::Peek
        {
            account.charge(now, units, start);
        }
        let seen = Seen {
            allowed: answer.is_ok(),
            wait_us: answer.map_or(0, |start| whole(start - now)),
            denial: answer.err(),
            remaining: whole(account.remaining(now)),
            limit: self.capacity(),
            reset_us: whole(self.account().reset(now)),
        };
        let grant = Grant { cost, start: answer.unwrap_or(now), mark: self.account().mark(), before };
        (seen, grant)
    }

    /// Gives units of a grant back, never more than it has.
    pub fn refund(&mut self, now_us: u64, grant: &mut Grant, units: u64) {
        let units = units.min(grant.cost);
        let account = self.account_mut();
        account.repair(i128::from(now_us));
        account.refund(i128::from(now_us), grant, i128::from(units));
        grant.cost -= units;
    }

    /// Counts what was used beyond the grant.
    pub fn owe(&mut self, now_us: u64, units: u64) {
        let account = self.account_mut();
        account.repair(i128::from(now_us));
        account.owe(i128::from(now_us), i128::from(units));
    }

    /// The same use under another limit.
    pub fn carried_over(&self, now_us: u64, limit: &Limit) -> Self {
        let mut old = self.clone();
        old.account_mut().repair(i128::from(now_us));
        let used = old.account().used(i128::from(now_us));
        let mut new = Self::new(limit);
        new.account_mut().hold(i128::from(now_us), used);
        new
    }

    fn capacity(&self) -> u64 {
        whole(match self {
            Self::Bucket(bucket) => bucket.burst,
            Self::Ticks(ticks) => ticks.cap,
            Self::Slices(slices) => slices.amount,
            Self::WarmUp(_) => 1,
            Self::Slots(slots) => slots.amount,
        })
    }

    fn account(&self) -> &dyn Account {
        match self {
            Self::Bucket(account) => account,
            Self::Ticks(account) => account,
            Self::Slices(account) => account,
            Self::WarmUp(account) => account,
            Self::Slots(account) => account,
        }
    }

    fn account_mut(&mut self) -> &mut dyn Account {
        match self {
            Self::Bucket(account) => account,
            Self::Ticks(account) => account,
            Self::Slices(account) => account,
            Self::WarmUp(account) => account,
            Self::Slots(account) => account,
        }
    }
}

/// `a / b`, rounded up, for `b` above 0.
pub(super) fn ceil(a: i128, b: i128) -> i128 {
    a.div_euclid(b) + i128::from(a.rem_euclid(b) > 0)
}

/// A whole number that a caller can be shown.
pub(super) fn whole(n: i128) -> u64 {
    u64::try_from(n).expect("what a caller is shown is not negative and fits 64 bits")
}
