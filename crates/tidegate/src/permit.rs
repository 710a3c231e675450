//! What an allowed caller holds.

use crate::clock::Timestamp;
use crate::store::Charge;
use smallvec::SmallVec;
use std::fmt;
use std::time::Duration;

/// What an allowed caller holds: the right to start after [`wait`](Self::wait).
///
/// Dropping it gives slots of a concurrency limit back and leaves everything else
/// charged. A call that did not happen is taken back with [`cancel`](Self::cancel)
/// or [`refund`](Self::refund), one with another true cost is corrected with
/// [`settle`](Self::settle).
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
#[must_use = "a concurrency limit gives the slot back as soon as the permit is dropped"]
pub struct Permit {
    pub(crate) groups: SmallVec<[GroupCharge; 1]>,
    /// What each check is still charged.
    pub(crate) costs: SmallVec<[u64; 2]>,
    pub(crate) decided: Timestamp,
    pub(crate) wait: Duration,
}

/// What checks were charged that were decided together.
pub(crate) struct GroupCharge {
    /// Their indexes in the transaction.
    pub(crate) checks: SmallVec<[usize; 2]>,
    pub(crate) charge: Charge,
}

impl GroupCharge {
    /// Charges what each check truly cost, by its index in the transaction.
    fn settle(&mut self, cost: impl Fn(usize) -> u64) {
        let costs: SmallVec<[u64; 2]> = self.checks.iter().map(|check| cost(*check)).collect();
        self.charge.settle(&costs);
    }
}

impl Permit {
    /// How long to wait for the start, as of the decision.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// When the call may start, on the store's clock: of a transaction over several limiters, on
    /// the clock of its first check that is not for a slot.
    pub fn starts_at(&self) -> Timestamp {
        self.decided + self.wait
    }

    /// Takes the whole charge back, as far as it still counts.
    ///
    /// Everything, if nothing was charged after it: then the key is as if it had never been
    /// charged. While others wait who reserved after it nothing comes back, as their starts were
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

    /// Takes some units of each check back.
    pub fn refund_units(&mut self, units: u64) {
        let costs: SmallVec<[u64; 2]> = self.costs.iter().map(|cost| cost.saturating_sub(units)).collect();
        self.set_costs(&costs);
    }

    /// The true cost, known afterwards, of every check in the permit.
    ///
    /// Less than charged is refunded as by [`refund`](Self::refund). More is debt: it is charged
    /// in full, without a decision, up to a full key. So one call exceeds the limit by at most
    /// the difference, and blocks its key for at most one full drain.
    pub fn settle(mut self, true_cost: u64) {
        self.groups.iter_mut().for_each(|group| group.settle(|_| true_cost));
    }

    /// [`settle`](Self::settle) with a true cost for each check, in their order.
    /// Checks without one keep their charge.
    pub fn settle_each(mut self, true_costs: &[u64]) {
        self.set_costs(true_costs);
    }

    /// [`settle_each`](Self::settle_each) by a caller that goes on: slots stay held, and other
    /// costs can follow.
    pub fn set_costs(&mut self, true_costs: &[u64]) {
        for group in &mut self.groups {
            group.settle(|check| true_costs.get(check).copied().unwrap_or(self.costs[check]));
        }
        for (held, true_cost) in self.costs.iter_mut().zip(true_costs) {
            *held = (*held).min(*true_cost);
        }
    }

    /// True if slots that it holds may be held by another caller by now. A slot of a limit in
    /// Redis is held by lease: a holder that could not renew it in time must not rely on it any
    /// more. Always false for other limits.
    pub fn is_lost(&self) -> bool {
        self.groups.iter().any(|group| group.charge.is_lost())
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("costs", &self.costs).field("wait", &self.wait).finish()
    }
}

/// What was charged for a transaction that may still be denied. Dropped, it goes back.
#[derive(Default)]
pub(crate) struct Uncommitted(pub(crate) SmallVec<[GroupCharge; 1]>);

impl Uncommitted {
    /// True if it is charged for the check of this index.
    pub(crate) fn holds(&self, check: usize) -> bool {
        self.0.iter().any(|group| group.checks.contains(&check))
    }

    pub(crate) fn commit(mut self) -> SmallVec<[GroupCharge; 1]> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Uncommitted {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|group| group.settle(|_| 0));
    }
}
