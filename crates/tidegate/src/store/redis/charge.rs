//! What a permit holds of a limit in Redis.

use super::gate::RedisGate;
use super::job::{Change, GivenBack, Key, What};
use super::plan::Mark;
use crate::clock::Timestamp;
use crate::store::{Correction, Shares, StoreCharge};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One charge. Giving back is sent, and not waited for.
pub(crate) struct Charge {
    pub(crate) key: Key,
    /// Units still charged.
    pub(crate) cost: u64,
    /// When this limit lets it start, on the server's clock.
    start_us: u64,
    mark: Arc<Mutex<Mark>>,
    holder: Option<Arc<Holder>>,
}

/// A place that is held, renewed as long as its permit lives.
pub(crate) struct Holder {
    pub(crate) key: Key,
    number: u64,
    units: AtomicU64,
    is_lost: AtomicBool,
    /// When the last sign that was heard of was sent, on the local clock.
    renewed_us: AtomicU64,
}

/// A member of the set of holders: whose it is, which, how long its lease is (in whole
/// milliseconds, rounded up), and how many units.
pub(crate) fn member(meter: &RedisGate, number: u64, units: u64) -> String {
    let lease_ms = meter.lease.as_micros().div_ceil(1_000);
    format!("{}.{number}~{lease_ms}:{units}", meter.core().node)
}

impl Charge {
    pub(crate) fn new(
        key: &Key,
        cost: u64,
        start_us: u64,
        mark: Mark,
        place: Option<u64>,
        sent: Timestamp,
    ) -> Self {
        let holder = place.filter(|_| cost > 0).map(|number| {
            let holder = Arc::new(Holder {
                key: key.clone(),
                number,
                units: AtomicU64::new(cost),
                is_lost: AtomicBool::new(false),
                renewed_us: AtomicU64::new(sent.as_micros()),
            });
            key.meter.core().hold(number, &holder);
            holder
        });
        let mark = Arc::new(Mutex::new(mark));
        Self { key: key.clone(), cost, start_us, mark, holder }
    }

    /// Gives back `units` of the `charged` that its key was charged.
    pub(crate) fn give_back(&self, charged: u64, units: u64) {
        match &self.holder {
            _ if units == 0 => {}
            Some(holder) => holder.release(units),
            // A limit that was changed since gives nothing back: its units are others.
            None if !self.key.meter.decides(&self.key.version) => {}
            None => {
                let (start_us, mark) = (self.start_us, self.mark.clone());
                self.key.give_back(Some(GivenBack { cost: charged, start_us, mark, units }));
            }
        }
    }

    /// It cost more than it was charged.
    fn owe(&self, units: u64) {
        if self.holder.is_none() {
            self.key.send(What::Owe { units });
        }
    }

    /// The call does not happen.
    pub(crate) fn cancel(mut self) {
        self.give_back(self.cost, self.cost);
        self.cost = 0;
    }

    fn is_lost(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.is_lost())
    }
}

/// What the checks of one group were charged, key by key.
pub(crate) struct RedisCharge(pub(crate) Vec<(Charge, Shares)>);

impl StoreCharge for RedisCharge {
    fn settle(&mut self, costs: &[u64]) {
        for (charge, shares) in &mut self.0 {
            match shares.correct(costs, charge.holder.is_some()) {
                Correction::Nothing => {}
                Correction::Refund { charged, units } => charge.give_back(charged, units),
                Correction::Debt { units } => charge.owe(units),
            }
            charge.cost = shares.charged();
        }
    }

    fn is_lost(&self) -> bool {
        self.0.iter().any(|(charge, _)| charge.is_lost())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.holder.is_some() {
            self.give_back(self.cost, self.cost);
        }
    }
}

/// Calls that were cancelled earlier and are tried again together.
const RUN_MAX: usize = 16;

impl Key {
    /// Gives back what a caller does, and with it what was cancelled before it while others
    /// had reserved behind. A cancelled call is remembered or on its way, never both: what
    /// was sent and not answered is not sent again.
    pub(crate) fn give_back(&self, own: Option<GivenBack>) {
        let (number, plan) = (self.version.number, &self.version.plan);
        let rank = |(_, given): &(u64, GivenBack)| plan.rank(&given.mark());
        let mut earlier = self.meter.cancelled.take_highest(self.hash, RUN_MAX, rank);
        earlier.retain(|(of, _)| *of == number);
        let has_own = own.is_some();
        let given: Vec<GivenBack> =
            own.into_iter().chain(earlier.into_iter().map(|(_, given)| given)).collect();
        if !given.is_empty() {
            self.send(What::GiveBack { given, has_own });
        }
    }

    /// What came of it, one for each.
    pub(crate) fn gave_back(&self, given: Vec<GivenBack>, is_given: &[bool]) {
        let has_more = is_given.contains(&true) && self.meter.cancelled.has(self.hash);
        let now_us = self.meter.core().clock.now().as_micros();
        let until_us = now_us.saturating_add(self.version.plan.longest_us());
        for (given, is_given) in given.into_iter().zip(is_given) {
            if !is_given && given.units >= given.cost && until_us > now_us {
                self.meter.cancelled.remember(self.hash, (self.version.number, given), now_us, until_us);
            }
        }
        // Cancelled together with the one that made way for them.
        if has_more {
            self.give_back(None);
        }
    }

    /// Has something done to the key, without waiting for it.
    pub(crate) fn send(&self, what: What) {
        self.meter.forget(self.hash);
        let since = self.meter.core().now();
        self.meter.core().change(Change { key: Some(self.clone()), what, since, promise: None });
    }
}

impl GivenBack {
    pub(crate) fn mark(&self) -> Mark {
        *self.mark.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holder {
    pub(crate) fn member(&self) -> String {
        member(&self.key.meter, self.number, self.units.load(Ordering::Relaxed))
    }

    fn release(&self, units: u64) {
        let member = self.member();
        let left = self.units.load(Ordering::Relaxed).saturating_sub(units);
        self.units.store(left, Ordering::Relaxed);
        let left = if left > 0 { self.member() } else { String::new() };
        if left.is_empty() {
            self.key.meter.core().let_go(self.number);
        }
        self.key.send(What::Release { member, left });
    }

    /// A sign of life was answered.
    pub(crate) fn renewed(&self, member: &str, answer: i64, sent: Timestamp) {
        match answer {
            1 => {
                self.renewed_us.fetch_max(sent.as_micros(), Ordering::Relaxed);
            }
            // Part of it was released meanwhile, and it goes by another name.
            0 if self.member() == member => self.is_lost.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    /// True if the place is no longer this holder's, or nobody can say that it is.
    fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed) || self.since() >= self.key.meter.lease
    }

    /// True if it is time for a sign of life, or if `all` are to give one.
    pub(crate) fn is_due(&self, all: bool) -> bool {
        !self.is_lost.load(Ordering::Relaxed) && (all || self.since() >= self.key.meter.lease / 3)
    }

    fn since(&self) -> Duration {
        let now = self.key.meter.core().clock.now();
        now.since(Timestamp::from_micros(self.renewed_us.load(Ordering::Relaxed)))
    }
}
