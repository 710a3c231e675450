//! What a permit holds of a limit in Redis.

use super::job::{Change, Key, What};
use super::meter::Meter;
use super::plan::Mark;
use crate::clock::Timestamp;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One charge. Giving back is sent, and not waited for.
pub(crate) struct Charge {
    pub(crate) key: Key,
    /// Units still charged.
    pub(crate) cost: u64,
    /// The decision and the start, on the server's clock.
    decided_us: u64,
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
pub(crate) fn member(meter: &Meter, number: u64, units: u64) -> String {
    let lease_ms = meter.lease.as_micros().div_ceil(1_000);
    format!("{}.{number}~{lease_ms}:{units}", meter.core().node)
}

impl Charge {
    pub(crate) fn new(
        key: &Key,
        cost: u64,
        decided_us: u64,
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
        Self { key: key.clone(), cost, decided_us, start_us: decided_us, mark, holder }
    }

    /// All charges of a request start together, after its longest wait.
    pub(crate) fn starts_after(&mut self, wait_us: u64) {
        self.start_us = self.decided_us.saturating_add(wait_us);
    }

    /// Splits `units` off: several checks of one request were about one key.
    pub(crate) fn part(&mut self, units: u64) -> Self {
        let units = units.min(self.cost);
        self.cost -= units;
        Self {
            key: self.key.clone(),
            cost: units,
            decided_us: self.decided_us,
            start_us: self.start_us,
            mark: self.mark.clone(),
            holder: self.holder.clone(),
        }
    }

    pub(crate) fn give_back(&mut self, units: u64) {
        let units = units.min(self.cost);
        if units == 0 {
            return;
        }
        match &self.holder {
            Some(holder) => holder.release(units),
            None => {
                let mark = self.mark.clone();
                let what = What::GiveBack { cost: self.cost, start_us: self.start_us, mark, units };
                self.key.send(what);
            }
        }
        self.cost -= units;
    }

    pub(crate) fn settle(&mut self, true_cost: u64) {
        if true_cost <= self.cost {
            self.give_back(self.cost - true_cost);
        } else if self.holder.is_none() {
            self.key.send(What::Owe { units: true_cost - self.cost });
        }
    }

    /// The call does not happen.
    pub(crate) fn cancel(mut self) {
        self.give_back(u64::MAX);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.is_lost())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.holder.is_some() {
            self.give_back(u64::MAX);
        }
    }
}

impl Key {
    /// Has something done to the key, without waiting for it.
    pub(crate) fn send(&self, what: What) {
        self.meter.forget(self.hash);
        let since = self.meter.core().now();
        self.meter.core().change(Change { key: Some(self.clone()), what, since, promise: None });
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
