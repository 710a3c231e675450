//! What a permit holds of limits in memory.

use super::HashedCheck;
use super::gate::MemoryGate;
use super::transaction::{Told, Write, with_state};
use crate::algorithm::{Grant, Plan, State, Step};
use crate::gate::Gate;
use crate::store::{Correction, Shares, StoreCharge};
use smallvec::{SmallVec, smallvec};
use std::task::Waker;

/// What the checks of one group were charged, key by key.
pub(crate) struct MemoryCharge {
    keys: SmallVec<[KeyCharge; 1]>,
}

struct KeyCharge {
    gate: Gate,
    hash: u64,
    /// The version of the limit that granted it: another one counts other units.
    version: u16,
    /// What is still charged: shrinks as units come back.
    grant: Grant,
    shares: Shares,
}

impl MemoryCharge {
    pub(super) fn new(checks: &[HashedCheck<'_>], tolds: &[Told]) -> Self {
        let mut keys: SmallVec<[KeyCharge; 1]> = SmallVec::new();
        for (number, (check, told)) in checks.iter().zip(tolds).enumerate() {
            let is_same = |key: &&mut KeyCharge| key.hash == told.hash && key.gate.is_same(check.gate);
            if let Some(key) = keys.iter_mut().find(is_same) {
                key.grant.cost = key.grant.cost.saturating_add(check.cost);
                key.shares.add(number, check.cost);
                continue;
            }
            // On the clock of its own store.
            let start_us = told.now.as_micros().saturating_add(told.decision.wait_us());
            keys.push(KeyCharge {
                gate: check.gate.clone(),
                hash: told.hash,
                version: told.version,
                grant: Grant { cost: check.cost, start_us, mark: told.mark },
                shares: Shares::new(number, check.cost),
            });
        }
        Self { keys }
    }

    /// Slots that were granted by the queue, for several checks of one key.
    pub(super) fn of_slots(gate: Gate, hash: u64, costs: &[u64]) -> Self {
        let units = costs.iter().fold(0u64, |sum, cost| sum.saturating_add(*cost));
        let mut shares = Shares::new(0, costs.first().copied().unwrap_or(0));
        for (number, cost) in costs.iter().enumerate().skip(1) {
            shares.add(number, *cost);
        }
        let grant = Grant { cost: units, start_us: 0, mark: Step::Hold { units } };
        Self { keys: smallvec![KeyCharge { gate, hash, version: 0, grant, shares }] }
    }
}

impl StoreCharge for MemoryCharge {
    fn settle(&mut self, costs: &[u64]) {
        for key in &mut self.keys {
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

    fn refund(&mut self, charged: u64, units: u64) {
        let Some(gate) = self.gate.backend().memory() else { return };
        if self.is_slots() {
            return release(gate, self.hash, units);
        }
        let hash = self.hash;
        let mut grant = Grant { cost: charged, ..self.grant };
        with_state(gate, hash, |version, now_us, state| {
            if version.number != self.version {
                return ((), Write::Nothing);
            }
            let remember = |grant: Grant, state: &State| {
                let until_us = version.plan.idle_at(now_us, state);
                gate.cancelled.remember(hash, (version.number, grant), now_us, until_us);
            };
            if !version.plan.refund(now_us, state, &mut grant, units) {
                if units >= charged {
                    remember(grant, state);
                }
                return ((), Write::Nothing);
            }
            // Those who were cancelled while this one was in their way.
            let earlier = gate.cancelled.take_highest(hash, usize::MAX, |(_, grant)| grant.end());
            for (_, mut grant) in earlier.into_iter().filter(|(of, _)| *of == version.number) {
                let units = grant.cost;
                if !version.plan.refund(now_us, state, &mut grant, units) {
                    remember(grant, state);
                }
            }
            ((), Write::Charged(0))
        });
        self.grant.mark = grant.mark;
    }

    fn charge_debt(&self, units: u64) {
        if let Some(gate) = self.gate.backend().memory().filter(|_| !self.is_slots()) {
            with_state(gate, self.hash, |version, now_us, state| {
                version.plan.charge_debt(now_us, state, units);
                ((), Write::Charged(units))
            });
        }
    }
}

impl Drop for KeyCharge {
    fn drop(&mut self) {
        if let Some(gate) = self.gate.backend().memory().filter(|_| self.is_slots()) {
            release(gate, self.hash, self.grant.cost);
        }
    }
}

fn release(gate: &MemoryGate, hash: u64, units: u64) {
    let wakers = with_state(gate, hash, |version, _, state| match (&version.plan, state) {
        (Plan::Slots(slots), State::Slots(state)) => (slots.release(state, units), Write::Charged(0)),
        _ => (Vec::new(), Write::Nothing),
    });
    wakers.into_iter().for_each(Waker::wake);
}
