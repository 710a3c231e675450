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
    /// What is still charged: shrinks as units come back.
    grant: Grant,
}

impl Permit {
    pub(crate) fn new(charges: SmallVec<[Charge; 1]>, decided: Timestamp, wait: Duration) -> Self {
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
    /// Everything, if nobody came after it: then the key is as if it had never asked.
    /// While others wait who reserved after it nothing comes back, as their starts were
    /// promised on top of it; if they are cancelled too, in this process, all of it does.
    /// If others came after it and nobody waits, at most what has not flowed back by itself
    /// (`cost − rate·elapsed`). Sliding windows and logs give back while the start is still
    /// counted. A limit that was changed since takes nothing back at all.
    pub fn refund(mut self) {
        self.refund_units(u64::MAX);
    }

    /// The call does not happen: the same as [`refund`](Self::refund).
    pub fn cancel(self) {
        self.refund();
    }

    /// Takes some units of each charge back.
    pub fn refund_units(&mut self, units: u64) {
        self.put_right(|charge| Some(charge.cost().saturating_sub(units)));
    }

    /// The true cost, known afterwards, of every check in the permit.
    ///
    /// Less than asked is refunded as by [`refund`](Self::refund). More is debt: it
    /// is charged in full, without asking, up to a full key. So one call exceeds the
    /// limit by at most what it did not ask for, and locks its key for at most one
    /// full drain.
    pub fn settle(mut self, true_cost: u64) {
        self.put_right(|_| Some(true_cost));
    }

    /// [`settle`](Self::settle) with a true cost for each check, in their order.
    /// Checks without one keep their charge.
    pub fn settle_each(mut self, true_costs: &[u64]) {
        self.put_right(|charge| true_costs.get(charge.index()).copied());
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

    /// Charges what each check truly cost; those without a true cost keep their charge.
    ///
    /// Charges of one key were taken in one step, so they are put right in one.
    fn put_right(&mut self, true_cost: impl Fn(&Charge) -> Option<u64>) {
        for at in 0..self.charges.len() {
            let (done, rest) = self.charges.split_at_mut(at);
            if done.iter().any(|earlier| earlier.is_same_key(&rest[0])) {
                continue;
            }
            let (mut charged, mut cost) = (0u64, 0u64);
            for charge in rest.iter().filter(|other| other.is_same_key(&rest[0])) {
                charged = charged.saturating_add(charge.cost());
                cost = cost.saturating_add(true_cost(charge).unwrap_or(charge.cost()));
            }
            if cost < charged {
                rest[0].give_back(charged, charged - cost);
            } else {
                rest[0].owe(cost - charged);
            }
            let (first, others) = rest.split_at_mut(1);
            for other in others.iter_mut().filter(|other| other.is_same_key(&first[0])) {
                other.stand_as(&first[0]);
                let kept = true_cost(other).map_or(other.cost(), |cost| cost.min(other.cost()));
                other.keep(kept);
            }
            let kept = true_cost(&first[0]).map_or(first[0].cost(), |cost| cost.min(first[0].cost()));
            first[0].keep(kept);
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
        // On the clock of its own store.
        let start_us = told.now.as_micros().saturating_add(told.decision.wait_us());
        let of = MemoryCharge::of(ask, told.mark, told.version, start_us);
        Self::Memory(MemoryCharge { hash: told.hash, ..of })
    }

    /// A place that was handed over by the queue.
    pub(crate) fn of_place(ask: &MemoryAsk) -> Self {
        Self::Memory(MemoryCharge::of(ask, Step::Hold { units: ask.cost }, 0, 0))
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

    fn cost(&self) -> u64 {
        match self {
            Self::Memory(charge) => charge.grant.cost,
            #[cfg(feature = "redis")]
            Self::Redis { charge, .. } => charge.cost,
        }
    }

    /// True for charges that were taken in one step. Places are held one by one.
    fn is_same_key(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Memory(a), Self::Memory(b)) => {
                let is_same = Arc::ptr_eq(&a.meter, &b.meter) && a.hash == b.hash && !a.is_place();
                is_same || std::ptr::eq(a, b)
            }
            #[cfg(feature = "redis")]
            (Self::Redis { charge: a, .. }, Self::Redis { charge: b, .. }) => {
                a.is_same_key(b) || std::ptr::eq(a, b)
            }
            #[cfg(feature = "redis")]
            (Self::Memory(_), Self::Redis { .. }) | (Self::Redis { .. }, Self::Memory(_)) => false,
        }
    }

    /// Gives back `units` of the `charged` that this key was charged.
    fn give_back(&mut self, charged: u64, units: u64) {
        match self {
            Self::Memory(charge) => charge.give_back(charged, units),
            #[cfg(feature = "redis")]
            Self::Redis { charge, .. } => charge.give_back(charged, units),
        }
    }

    fn owe(&mut self, units: u64) {
        match self {
            _ if units == 0 => {}
            Self::Memory(charge) => charge.owe(units),
            #[cfg(feature = "redis")]
            Self::Redis { charge, .. } => charge.owe(units),
        }
    }

    /// What is still charged.
    fn keep(&mut self, units: u64) {
        match self {
            Self::Memory(charge) => charge.grant.cost = units,
            #[cfg(feature = "redis")]
            Self::Redis { charge, .. } => charge.cost = units,
        }
    }

    /// Where another charge of the same step stands now. (Those in Redis share that.)
    fn stand_as(&mut self, first: &Self) {
        if let (Self::Memory(charge), Self::Memory(first)) = (self, first) {
            charge.grant.mark = first.grant.mark;
        }
    }
}

impl MemoryCharge {
    fn of(ask: &MemoryAsk, mark: Step, version: u16, start_us: u64) -> Self {
        let grant = Grant { cost: ask.cost, start_us, mark };
        Self { meter: ask.meter.clone(), hash: ask.hash, index: ask.index, version, grant }
    }

    fn give_back(&mut self, charged: u64, units: u64) {
        if self.is_place() {
            release(&self.meter, self.hash, units);
            return;
        }
        let (meter, hash) = (&self.meter, self.hash);
        let mut grant = Grant { cost: charged, ..self.grant };
        with_state(meter, hash, |version, now_us, state| {
            if version.number != self.version {
                return ((), Write::Nothing);
            }
            let remember = |grant: Grant, state: &State| {
                let until_us = version.plan.idle_at_us(now_us, state);
                meter.cancelled.remember(hash, (version.number, grant), now_us, until_us);
            };
            if !version.plan.give_back(now_us, state, &mut grant, units) {
                if units >= charged {
                    remember(grant, state);
                }
                return ((), Write::Nothing);
            }
            // Those who were cancelled while it was in their way.
            let earlier = meter.cancelled.take_highest(hash, usize::MAX, |(_, grant)| grant.end());
            for (_, mut grant) in earlier.into_iter().filter(|(of, _)| *of == version.number) {
                let units = grant.cost;
                if !version.plan.give_back(now_us, state, &mut grant, units) {
                    remember(grant, state);
                }
            }
            ((), Write::Charged(0))
        });
        self.grant.mark = grant.mark;
    }

    fn owe(&mut self, units: u64) {
        if !self.is_place() {
            with_state(&self.meter, self.hash, |version, now_us, state| {
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
