//! What an allowed caller holds.

#![cfg_attr(
    not(feature = "redis"),
    allow(irrefutable_let_patterns, reason = "there is one kind of charge then")
)]

use crate::algorithm::{Grant, Plan, State, Step};
use crate::ask::MemoryAsk;
use crate::clock::Timestamp;
use crate::store::memory::{Meter, Told, Write, with_state};
#[cfg(feature = "redis")]
use crate::store::redis;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What an allowed caller holds: the right to start after [`wait`](Self::wait).
///
/// Dropping it gives places of a concurrency limit back and leaves everything else
/// charged. A call that did not happen is taken back with [`cancel`](Self::cancel)
/// or [`refund`](Self::refund), one that cost something else than asked is put right
/// with [`settle`](Self::settle).
///
/// ```
/// use tidegate::{Limiter, ManualClock};
/// # let limiter = Limiter::builder().clock(ManualClock::new()).build();
/// let tokens = limiter.gate("llm-tokens", "1000/min")?;
/// let permit = tokens.reserve_cost("user:42", 500).into_permit()?;
/// // the model used 312 of them
/// permit.settle(312);
/// assert_eq!(tokens.peek("user:42").remaining(), 688);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a concurrency limit gives the place back as soon as the permit is dropped"]
pub struct Permit {
    charges: SmallVec<[Charge; 1]>,
    decided: Timestamp,
    wait: Duration,
}

/// One charge of a permit.
pub(crate) enum Charge {
    Memory(MemoryCharge),
    #[cfg(feature = "redis")]
    Redis {
        /// The place of its check in the request.
        index: usize,
        charge: redis::Charge,
    },
}

/// One charge on a key in memory.
pub(crate) struct MemoryCharge {
    meter: Arc<Meter>,
    hash: u64,
    /// The place of its check in the request.
    index: usize,
    /// The version of the limit that granted it: another one counts other units.
    version: u16,
    /// When it was charged, on the clock of its own store.
    decided: Timestamp,
    /// What is still charged: shrinks as units come back.
    grant: Grant,
}

impl Permit {
    pub(crate) fn new(mut charges: SmallVec<[Charge; 1]>, decided: Timestamp, wait: Duration) -> Self {
        // All start together, after the longest wait; each knows that on its own clock.
        for charge in &mut charges {
            if let Charge::Memory(charge) = charge {
                charge.grant.start_us = (charge.decided + wait).as_micros();
            }
        }
        Self { charges, decided, wait }
    }

    /// How long to wait for the start, as of the decision.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// When the call may start, on the store's clock: of a request that mixes limiters, the
    /// one of its first check that is not for a place.
    pub fn starts_at(&self) -> Timestamp {
        self.decided + self.wait
    }

    /// Takes the whole charge back, as far as it still counts.
    ///
    /// Before the start: everything, if nobody reserved after it; nothing otherwise,
    /// as later starts were promised on top of it. After the start: at most what has
    /// not flowed back by itself (`cost − rate·elapsed`); in windows, only while the
    /// start is still counted. A leaky queue takes nothing back while others wait, and
    /// a limit that was changed since takes nothing back at all.
    pub fn refund(mut self) {
        self.refund_units(u64::MAX);
    }

    /// The call does not happen: the same as [`refund`](Self::refund).
    pub fn cancel(self) {
        self.refund();
    }

    /// Takes some units of each charge back.
    pub fn refund_units(&mut self, units: u64) {
        for at in 0..self.charges.len() {
            self.charges[at].give_back(units);
            self.share_mark(at);
        }
    }

    /// The true cost, known afterwards, of every check in the permit.
    ///
    /// Less than asked is refunded as by [`refund`](Self::refund). More is debt: it
    /// is charged in full, without asking, up to a full key. So one call exceeds the
    /// limit by at most what it did not ask for, and locks its key for at most one
    /// full drain.
    pub fn settle(mut self, true_cost: u64) {
        for at in 0..self.charges.len() {
            self.charges[at].settle(true_cost);
            self.share_mark(at);
        }
    }

    /// [`settle`](Self::settle) with a true cost for each check, in their order.
    /// Checks without one keep their charge.
    pub fn settle_each(mut self, true_costs: &[u64]) {
        for at in 0..self.charges.len() {
            if let Some(cost) = true_costs.get(self.charges[at].index()) {
                self.charges[at].settle(*cost);
                self.share_mark(at);
            }
        }
    }

    /// False as long as the places that it holds are its own. A place of a limit in
    /// Redis is held by lease: a holder that could not renew it in time must not rely on
    /// it any more, as somebody else may hold it now. Always false for other limits.
    pub fn lost(&self) -> bool {
        self.charges.iter().any(|charge| match charge {
            Charge::Memory(_) => false,
            #[cfg(feature = "redis")]
            Charge::Redis { charge, .. } => charge.is_lost(),
        })
    }

    /// Charges of one key were taken in one step: what one gives back is no reason
    /// for the others to think that somebody built on them. (Those in Redis share where
    /// they stand from the beginning.)
    fn share_mark(&mut self, at: usize) {
        let Charge::Memory(charge) = &self.charges[at] else { return };
        let mark = charge.grant.mark;
        let (meter, hash) = (charge.meter.clone(), charge.hash);
        for other in &mut self.charges {
            if let Charge::Memory(other) = other
                && Arc::ptr_eq(&other.meter, &meter)
                && other.hash == hash
                && !other.is_place()
            {
                other.grant.mark = mark;
            }
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn into_charges(mut self) -> SmallVec<[Charge; 1]> {
        std::mem::take(&mut self.charges)
    }

    /// Adds places that another permit holds. It starts when this one does, or at once if
    /// there is nothing in this one.
    pub(crate) fn join(mut self, mut places: Self) -> Self {
        let starts = if self.charges.is_empty() { &places } else { &self };
        let (decided, wait) = (starts.decided, starts.wait);
        let charges = std::mem::take(&mut self.charges).into_iter();
        Self { charges: charges.chain(std::mem::take(&mut places.charges)).collect(), decided, wait }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for charge in self.charges.drain(..) {
            // Those in Redis do so themselves.
            if let Charge::Memory(charge) = charge
                && charge.is_place()
            {
                release(&charge.meter, charge.hash, charge.grant.cost);
            }
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.charges.iter().map(Charge::name).collect();
        f.debug_struct("Permit").field("gates", &names).field("wait", &self.wait).finish()
    }
}

impl Charge {
    pub(crate) fn new(ask: &MemoryAsk, told: &Told) -> Self {
        let of = MemoryCharge::of(ask, told.mark, told.version);
        Self::Memory(MemoryCharge { hash: told.hash, decided: told.now, ..of })
    }

    /// A place that was handed over by the queue.
    pub(crate) fn of_place(ask: &MemoryAsk) -> Self {
        Self::Memory(MemoryCharge::of(ask, Step::Hold { units: ask.cost }, 0))
    }

    fn index(&self) -> usize {
        match self {
            Self::Memory(charge) => charge.index,
            #[cfg(feature = "redis")]
            Self::Redis { index, .. } => *index,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Memory(charge) => &charge.meter.name,
            #[cfg(feature = "redis")]
            Self::Redis { charge, .. } => &charge.key.meter.name,
        }
    }

    fn give_back(&mut self, units: u64) {
        match self {
            Self::Memory(charge) => charge.give_back(units),
            #[cfg(feature = "redis")]
            Self::Redis { charge, .. } => charge.give_back(units),
        }
    }

    fn settle(&mut self, true_cost: u64) {
        match self {
            Self::Memory(charge) => charge.settle(true_cost),
            #[cfg(feature = "redis")]
            Self::Redis { charge, .. } => charge.settle(true_cost),
        }
    }
}

impl MemoryCharge {
    fn of(ask: &MemoryAsk, mark: Step, version: u16) -> Self {
        let grant = Grant { cost: ask.cost, start_us: 0, mark };
        let (meter, decided) = (ask.meter.clone(), Timestamp::default());
        Self { meter, hash: ask.hash, index: ask.index, version, decided, grant }
    }

    fn give_back(&mut self, units: u64) {
        let units = units.min(self.grant.cost);
        if units == 0 {
            return;
        }
        if self.is_place() {
            release(&self.meter, self.hash, units);
        } else {
            with_state(&self.meter, self.hash, |version, now_us, state| {
                if version.number != self.version {
                    return ((), Write::Nothing);
                }
                version.plan.give_back(now_us, state, &mut self.grant, units);
                ((), Write::Charged(0))
            });
        }
        self.grant.cost -= units;
    }

    fn settle(&mut self, true_cost: u64) {
        if true_cost <= self.grant.cost {
            self.give_back(self.grant.cost - true_cost);
        } else if !self.is_place() {
            with_state(&self.meter, self.hash, |version, now_us, state| {
                let units = true_cost - self.grant.cost;
                version.plan.owe(now_us, state, units);
                ((), Write::Charged(units))
            });
        }
    }

    fn is_place(&self) -> bool {
        matches!(self.grant.mark, Step::Hold { .. })
    }
}

fn release(meter: &Meter, hash: u64, units: u64) {
    let wakers = with_state(meter, hash, |version, _, state| match (&version.plan, state) {
        (Plan::Slots(slots), State::Slots(state)) => (slots.release(state, units), Write::Charged(0)),
        _ => (Vec::new(), Write::Nothing),
    });
    wakers.into_iter().for_each(std::task::Waker::wake);
}
