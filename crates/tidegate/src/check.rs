//! One of several questions that are decided together.

use crate::ask::OwnedAsk;
use crate::gate::Gate;

/// One question: gate, key, cost.
#[derive(Clone, Copy, Debug)]
pub struct Check<'a> {
    gate: &'a Gate,
    key: crate::Key<'a>,
    cost: u64,
}

impl<'a> Check<'a> {
    /// Asks `gate` for one unit of `key`.
    pub fn new<K: AsRef<[u8]> + ?Sized>(gate: &'a Gate, key: &'a K) -> Self {
        Self { gate, key: crate::Key::new(key), cost: 1 }
    }

    /// Asks for `cost` units instead.
    #[must_use]
    pub fn cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }
}

pub(crate) fn owned(checks: &[Check<'_>]) -> Vec<OwnedAsk> {
    let own =
        |(index, check): (usize, &Check<'_>)| check.gate.owned(check.key.as_bytes(), check.cost).at(index);
    checks.iter().enumerate().map(own).collect()
}
