//! The account of one key: what a decision is made of, whatever the algorithm.
//!
//! How units are counted is each algorithm's own; that a denial writes nothing, that
//! cost 0 is always allowed, and what a caller is shown, is said once, here.

use super::{Bucket, Slices, Slots, Store, Ticks, WarmUp};
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
    /// Millionths of a unit in use at that time, rounded up: what another limit takes over.
    fn used(&self, at: i128) -> i128;
    /// Starts anew with so many millionths in use at that time, or as many as it can hold.
    fn hold(&mut self, at: i128, used: i128);
}

/// What a unit is where units go from one limit to another.
pub const MILLION: i128 = 1_000_000;

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
    /// The account of an unknown key in memory.
    pub fn new(limit: &Limit) -> Self {
        Self::on(Store::Memory, limit)
    }

    /// The account of an unknown key in a store.
    pub fn on(store: Store, limit: &Limit) -> Self {
        match limit.algorithm() {
            Algorithm::TokenBucket { .. } | Algorithm::LeakyBucket { .. } | Algorithm::LeakyQueue { .. } => {
                Self::Bucket(Bucket::new(store, limit))
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

    /// Millionths of a unit in use at that time.
    pub fn used(&self, at: i128) -> i128 {
        self.account().used(at)
    }

    /// Starts anew with so many millionths in use at that time.
    pub fn hold(&mut self, at: i128, used: i128) {
        self.account_mut().hold(at, used);
    }

    /// From when on the key is as good as unused.
    pub fn idle_at(&self, now: i128) -> i128 {
        now + self.account().reset(now)
    }

    /// Cuts what only a clock that ran back can have left behind.
    pub fn repair(&mut self, now: i128) {
        self.account_mut().repair(now);
    }

    /// True if limits with these accounts count alike, and so share one count of a key.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bucket(a), Self::Bucket(b)) => (a.unit, a.drain, a.full) == (b.unit, b.drain, b.full),
            (Self::Ticks(a), Self::Ticks(b)) => {
                (a.amount, a.period, a.full(), a.first) == (b.amount, b.period, b.full(), b.first)
            }
            (Self::Slices(a), Self::Slices(b)) => (a.length, a.span, a.wait) == (b.length, b.span, b.wait),
            (Self::WarmUp(a), Self::WarmUp(b)) => {
                (a.unit, a.drain, a.cold, a.wait) == (b.unit, b.drain, b.cold, b.wait)
            }
            _ => false,
        }
    }

    /// Forgets calls that were cancelled: a process remembers those of the limit in force only.
    pub fn forget_cancelled(&mut self) {
        match self {
            Self::Bucket(account) => account.cancelled.clear(),
            Self::Ticks(account) => account.cancelled.clear(),
            Self::WarmUp(account) => account.cancelled.clear(),
            Self::Slices(_) | Self::Slots(_) => {}
        }
    }

    /// What was counted, under the numbers of a limit that counts alike.
    #[must_use]
    pub fn under(&self, limit: &Self) -> Self {
        match (self, limit.clone()) {
            (Self::Bucket(old), Self::Bucket(new)) => {
                Self::Bucket(Bucket { empty_at: old.empty_at, cancelled: old.cancelled.clone(), ..new })
            }
            (Self::Ticks(old), Self::Ticks(new)) => {
                Self::Ticks(Ticks { taken: old.taken, cancelled: old.cancelled.clone(), ..new })
            }
            (Self::Slices(old), Self::Slices(new)) => {
                Self::Slices(Slices { starts: old.starts.clone(), ..new })
            }
            (Self::WarmUp(old), Self::WarmUp(new)) => {
                Self::WarmUp(WarmUp { last: old.last, cancelled: old.cancelled.clone(), ..new })
            }
            (_, new) => new,
        }
    }

    /// True where what is used stays used until it is all forgotten, or a tick's worth of it.
    pub fn is_steady(&self) -> bool {
        matches!(self, Self::Ticks(_) | Self::Slices(_))
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

/// Both without their common factors.
pub(super) fn in_lowest_terms(a: i128, b: i128) -> (i128, i128) {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor, b / divisor)
}

/// Gives units of a grant back, and then what was cancelled while that was in its way. A whole
/// grant that cannot come back now is kept for later.
pub(super) fn refund<A>(
    account: &mut A,
    grant: &mut Grant,
    units: i128,
    cancelled: impl Fn(&mut A) -> &mut Vec<Grant>,
    give_back: impl Fn(&mut A, &mut Grant, i128) -> bool,
) {
    if units == 0 {
        return;
    }
    if !give_back(account, grant, units) {
        if units == i128::from(grant.cost) {
            cancelled(account).push(grant.clone());
        }
        return;
    }
    let mut earlier = std::mem::take(cancelled(account));
    earlier.sort_by_key(|grant| -grant.mark);
    for mut grant in earlier {
        let units = i128::from(grant.cost);
        if !give_back(account, &mut grant, units) {
            cancelled(account).push(grant);
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
