//! What a permit holds of limits in memory.

use super::transaction::{CheckResult, HashedCheck, Write, change_slots, with_state};
use crate::Limit;
use crate::algorithm::{Grant, Plan, State, Step};
use crate::gate::Gate;
use crate::store::{Correction, Shares, StoreCharge};
use smallvec::{SmallVec, smallvec};

/// What the checks of one group were charged, key by key.
pub(crate) struct MemoryCharge(SmallVec<[KeyCharge; 1]>);

struct KeyCharge {
    gate: Gate,
    hash: u64,
    /// The check's own limit.
    limit: Option<Box<Limit>>,
    /// The version of the limit that granted it: another one counts other units.
    version: u16,
    /// What is still charged: shrinks as units come back.
    grant: Grant,
    shares: Shares,
}

impl MemoryCharge {
    pub(super) fn new(checks: &[(&Gate, HashedCheck<'_>)], results: &[CheckResult]) -> Self {
        let mut keys: SmallVec<[KeyCharge; 1]> = SmallVec::new();
        for (number, ((gate, check), result)) in checks.iter().zip(results).enumerate() {
            let is_same = |key: &&mut KeyCharge| key.hash == result.hash && key.gate.is_same(gate);
            if let Some(key) = keys.iter_mut().find(is_same) {
                key.grant.cost = key.grant.cost.saturating_add(check.cost);
                key.shares.add(number, check.cost);
                continue;
            }
            // On the clock of its own store.
            let start_us = result.now.as_micros().saturating_add(result.decision.wait_us());
            keys.push(KeyCharge {
                gate: (*gate).clone(),
                hash: result.hash,
                limit: check.limit.cloned().map(Box::new),
                version: result.version,
                grant: Grant { cost: check.cost, start_us, mark: result.step },
                shares: Shares::from_iter([(number, check.cost)]),
            });
        }
        Self(keys)
    }

    /// Slots that were granted by the queue, for several checks of one key.
    pub(super) fn of_slots(gate: Gate, hash: u64, shares: Shares) -> Self {
        let units = shares.charged();
        let grant = Grant { cost: units, start_us: 0, mark: Step::Hold { units } };
        Self(smallvec![KeyCharge { gate, hash, limit: None, version: 0, grant, shares }])
    }
}

impl StoreCharge for MemoryCharge {
    fn settle(&mut self, costs: &[u64]) {
        for key in &mut self.0 {
            match key.shares.correct(costs, key.is_slots()) {
                Correction::Nothing => {}
                Correction::Refund { charged, units } => key.refund(charged, units),
                Correction::Debt { units } => key.charge_debt(units),
            }
            key.grant.cost = key.shares.charged();
        }
    }
}

impl KeyCharge {
    fn is_slots(&self) -> bool {
        matches!(self.grant.mark, Step::Hold { .. })
    }

    /// A check of the key by the limit that granted it.
    fn check(&self) -> Option<HashedCheck<'_>> {
        let gate = self.gate.backend().memory()?;
        Some(HashedCheck { limit: self.limit.as_deref(), ..HashedCheck::new(gate, self.hash, 1) })
    }

    fn refund(&mut self, charged: u64, units: u64) {
        if self.is_slots() {
            return self.release(units);
        }
        let Some(check) = self.check() else { return };
        let (gate, hash) = (check.gate, self.hash);
        let mut grant = Grant { cost: charged, ..self.grant };
        with_state(check, |key| {
            let (version, now_us) = (key.version, key.now_us);
            if version.number != self.version || key.is_taken_over {
                return Write::Nothing;
            }
            let remember = |grant: Grant, state: &State| {
                let until_us = version.plan.idle_at(now_us, state);
                let cancelled = (version.number, version.plan, grant);
                gate.cancelled.remember(hash, cancelled, now_us, until_us);
            };
            if !version.plan.refund(now_us, key.state, &mut grant, units) {
                if units >= charged {
                    remember(grant, key.state);
                }
                return Write::Nothing;
            }
            // Those who were cancelled while this one was in their way.
            let earlier = gate.cancelled.take_highest(hash, usize::MAX, |(_, _, grant)| grant.end());
            let is_same = |(number, plan, _): &(u16, Plan, Grant)| {
                *number == version.number && plan.counts_alike(&version.plan)
            };
            for (_, _, mut grant) in earlier.into_iter().filter(is_same) {
                let units = grant.cost;
                if !version.plan.refund(now_us, key.state, &mut grant, units) {
                    remember(grant, key.state);
                }
            }
            Write::Charged(0)
        });
        self.grant.mark = grant.mark;
    }

    fn charge_debt(&self, units: u64) {
        if let Some(check) = self.check().filter(|_| !self.is_slots()) {
            with_state(check, |key| {
                key.version.plan.charge_debt(key.now_us, key.state, units);
                Write::Charged(units)
            });
        }
    }

    fn release(&self, units: u64) {
        // By the gate's limit: what its waiters may hold is not this check's to say.
        let Some(gate) = self.gate.backend().memory() else { return };
        change_slots(HashedCheck::new(gate, self.hash, 1), |slots, state| slots.release(state, units));
    }
}

impl Drop for KeyCharge {
    fn drop(&mut self) {
        if self.is_slots() {
            self.release(self.grant.cost);
        }
    }
}
