//! One of several checks that are decided together.

use crate::gate::Gate;
use crate::key::Key;
use crate::store::StoreGate;
use smallvec::SmallVec;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// One check: gate, key, cost.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) key: Key<'a>,
    pub(crate) cost: u64,
}

impl<'a> Check<'a> {
    /// One unit of `key` at `gate`.
    pub fn new<K: AsRef<[u8]> + ?Sized>(gate: &'a Gate, key: &'a K) -> Self {
        Self { gate, key: Key::new(key), cost: 1 }
    }

    /// `cost` units instead.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }
}

/// A check that outlives the call that made it.
#[derive(Clone)]
pub struct OwnedCheck {
    pub(crate) gate: Gate,
    // Most keys are short enough to be kept without an allocation.
    key: SmallVec<[u8; 24]>,
    cost: u64,
}

impl OwnedCheck {
    pub(crate) fn new(gate: &Gate, key: &[u8], cost: u64) -> Self {
        Self { gate: gate.clone(), key: SmallVec::from_slice(key), cost }
    }

    /// The key, as it was given.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The units that are asked for.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// The gate as its store made it; none if another type of store did.
    pub fn store_gate<G: StoreGate>(&self) -> Option<Arc<G>> {
        let gate: Arc<dyn Any + Send + Sync> = self.gate.backend().remote()?.clone();
        gate.downcast().ok()
    }
}

impl fmt::Debug for OwnedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} at {:?}", self.cost, Key::new(self.key()), self.gate)
    }
}

pub(crate) fn owned(checks: &[Check<'_>]) -> Vec<OwnedCheck> {
    checks.iter().map(|check| OwnedCheck::new(check.gate, check.key.as_bytes(), check.cost)).collect()
}
