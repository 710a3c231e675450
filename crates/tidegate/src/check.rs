//! One check: a key at a gate, what it costs, and the limit that decides it.

use crate::Limit;
use crate::gate::{Gate, GateError};
use crate::key::Key;
use crate::store::{StoreGate, holds_slots};
use smallvec::SmallVec;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// One of several checks that are decided together: gate, key, cost, and the limit.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) key: Key<'a>,
    pub(crate) cost: u64,
    limit: Option<&'a Limit>,
}

impl<'a> Check<'a> {
    /// One unit of `key` at `gate`, by the gate's limit.
    pub fn new<K: AsRef<[u8]> + ?Sized>(gate: &'a Gate, key: &'a K) -> Self {
        Self { gate, key: Key::new(key), cost: 1, limit: None }
    }

    /// `cost` units instead.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    /// By this limit instead of the gate's: a tier, an override, or a limit that comes with the
    /// request.
    ///
    /// Keys are the gate's, whatever limit decides. Each limit that has granted a key something
    /// counts all that the key is granted, as when nodes disagree about a limit (`docs/limits.md`):
    /// what a key has used by one limit is used by the other. A key that finds no room is counted
    /// in the overflow bucket, by the gate's limit.
    ///
    /// ```
    /// use tidegate::{Check, Limit, Limiter};
    ///
    /// let limiter = Limiter::new();
    /// let calls = limiter.gate("calls", "10/min")?;
    /// let premium: Limit = "1000/min".parse()?;
    /// let verdict = limiter.check(&[Check::new(&calls, "user:42").limit(&premium)?]);
    /// assert_eq!(verdict.decision().limit(), 1000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the gate's limit or this one is a concurrency limit, whose slots are held by the gate's
    /// own limit. If the store cannot keep it, as for [`Gate::change`].
    pub fn limit(mut self, limit: &'a Limit) -> Result<Self, GateError> {
        let now = self.gate.limit();
        if holds_slots(&now) || holds_slots(limit) {
            let (name, limit) = (self.gate.name().into(), limit.clone().into());
            return Err(GateError::CheckLimit { name, now: now.into(), limit });
        }
        self.gate.backend().accepts(limit)?;
        self.limit = Some(limit);
        Ok(self)
    }
}

/// A check that outlives the call that made it.
#[derive(Clone)]
pub struct OwnedCheck {
    pub(crate) gate: Gate,
    // Most keys are short enough to be kept without an allocation.
    key: SmallVec<[u8; 24]>,
    cost: u64,
    limit: Option<Arc<Limit>>,
}

impl OwnedCheck {
    pub(crate) fn new(gate: &Gate, key: &[u8], cost: u64) -> Self {
        Self { gate: gate.clone(), key: SmallVec::from_slice(key), cost, limit: None }
    }

    /// The key, as it was given.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The units that it takes.
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// The limit that decides it instead of the gate's, if it has one of its own.
    pub fn limit(&self) -> Option<&Limit> {
        self.limit.as_deref()
    }

    /// The limit that decides it: its own, or the one in force at the gate.
    pub(crate) fn deciding_limit(&self) -> Limit {
        self.limit().cloned().unwrap_or_else(|| self.gate.limit())
    }

    /// The gate as its store made it; none if another type of store did.
    pub fn store_gate<G: StoreGate>(&self) -> Option<Arc<G>> {
        let gate: Arc<dyn Any + Send + Sync> = self.gate.backend().remote()?.clone();
        gate.downcast().ok()
    }
}

impl fmt::Debug for OwnedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} at {:?}", self.cost, Key::new(self.key()), self.gate)?;
        self.limit().map_or(Ok(()), |limit| write!(f, " by {limit}"))
    }
}

pub(crate) fn owned(checks: &[Check<'_>]) -> Vec<OwnedCheck> {
    let owned = |check: &Check<'_>| {
        let limit = check.limit.map(|limit| Arc::new(limit.clone()));
        OwnedCheck { limit, ..OwnedCheck::new(check.gate, check.key.as_bytes(), check.cost) }
    };
    checks.iter().map(owned).collect()
}
