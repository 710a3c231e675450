//! What every decision must be: the reference that stores are compared with.
//!
//! Written for obviousness: 128-bit integers, one plain account a key, nothing
//! shared, nothing reclaimed. Time is in microseconds and given by the caller; it
//! may run backwards. What a decision is made of is the same for every algorithm
//! and stands here; how units are counted stands in one file an algorithm. Limits that
//! change, and nodes whose limits differ, are in `counts`.

mod account;
mod bucket;
mod counts;
mod slices;
mod slots;
mod store;
mod ticks;
mod warmup;

pub use account::{Account, Grant, MILLION, State};
pub use bucket::Bucket;
pub use counts::{Flaw, Key, Look, ModelNode};
pub use slices::Slices;
pub use slots::Slots;
pub use store::Store;
pub use ticks::Ticks;
pub use warmup::WarmUp;

use crate::{Mode, Seen};
use std::collections::BTreeMap;
use tidegate::Limit;

/// One or more nodes over the same keys, each with a limit of its own that may change.
#[derive(Clone, Debug)]
pub struct Model {
    store: Store,
    flaw: Option<Flaw>,
    nodes: Vec<ModelNode>,
    /// The node that is asked.
    node: usize,
    keys: BTreeMap<Vec<u8>, Key>,
    grants: Vec<Option<Granted>>,
}

/// A grant that lives.
#[derive(Clone, Debug)]
struct Granted {
    key: Vec<u8>,
    grant: Grant,
    /// Who gave it, under which of its limits.
    node: usize,
    version: u64,
}

impl Model {
    /// One node, in memory. No key is known yet.
    pub fn new(limit: &Limit) -> Self {
        Self::on(Store::Memory, std::slice::from_ref(limit))
    }

    /// Nodes with these limits over one store, since its clock began. The first is asked.
    pub fn on(store: Store, limits: &[Limit]) -> Self {
        let nodes = limits.iter().map(|limit| ModelNode::new(limit, 0)).collect();
        Self { store, flaw: None, nodes, node: 0, keys: BTreeMap::new(), grants: Vec::new() }
    }

    /// The same, done wrong in one way.
    #[must_use]
    pub fn broken(self, flaw: Flaw) -> Self {
        Self { flaw: Some(flaw), ..self }
    }

    /// Which node is asked from now on.
    pub fn turn_to(&mut self, node: usize) {
        self.node = node;
    }

    /// Decides on one call. Only a grant writes, and what a clock that ran back left to repair.
    pub fn decide(&mut self, now_us: u64, key: &[u8], cost: u64, mode: Mode) -> Seen {
        let mut look = self.look(now_us, key);
        let (seen, grant) = look.own.decide(now_us, cost, mode);
        if seen.allowed && cost > 0 && mode != Mode::Peek {
            self.keys.insert(key.to_vec(), look.written(now_us, cost));
        } else if Flaw::WritesOnDenial.is(self.flaw) && !seen.allowed {
            self.keys.insert(key.to_vec(), look.written(now_us, 0));
        }
        if seen.allowed && mode == Mode::Reserve {
            let (node, version) = (self.node, self.nodes[self.node].version());
            self.grants.push(Some(Granted { key: key.to_vec(), grant, node, version }));
        }
        seen
    }

    /// Gives `units` of a grant back.
    pub fn refund(&mut self, now_us: u64, grant: usize, units: u64) {
        let Some(mut granted) = self.end(grant) else { return };
        self.give_back(now_us, &mut granted, units);
        self.grants[grant] = Some(granted);
    }

    /// Ends a grant at its true cost: less is given back, more is a debt.
    pub fn settle(&mut self, now_us: u64, grant: usize, cost: u64) {
        let Some(mut granted) = self.end(grant) else { return };
        match granted.grant.cost.checked_sub(cost) {
            Some(0) => {}
            Some(unused) => self.give_back(now_us, &mut granted, unused),
            None => {
                let more = cost - granted.grant.cost;
                self.node = granted.node;
                let mut look = self.look(now_us, &granted.key);
                look.own.owe(now_us, more);
                self.keys.insert(granted.key, look.written(now_us, more));
            }
        }
    }

    /// Ends a grant that was not used: everything is given back.
    pub fn cancel(&mut self, now_us: u64, grant: usize) {
        self.settle(now_us, grant, 0);
    }

    /// Ends a grant that was used. Only held units come back by that.
    pub fn release(&mut self, now_us: u64, grant: usize) {
        let Some(mut granted) = self.end(grant) else { return };
        if self.keys.get(&granted.key).is_some_and(Key::is_held) {
            self.give_back(now_us, &mut granted, u64::MAX);
        }
    }

    /// Forgets what a key has used; what its callers hold stays held.
    pub fn reset(&mut self, key: &[u8]) {
        self.keys.retain(|other, kept| other != key || kept.is_held());
    }

    /// Another limit from now on, at the node that is asked.
    pub fn change(&mut self, now_us: u64, limit: &Limit) {
        if self.nodes[self.node].limit() != limit {
            self.keys.values_mut().for_each(Key::forget_cancelled);
        }
        self.nodes[self.node].change(now_us, limit);
    }

    /// The node that is asked ends, and another one takes its place under this limit.
    pub fn restart(&mut self, now_us: u64, limit: &Limit) {
        let version = self.nodes[self.node].version();
        self.nodes[self.node] = ModelNode::new(limit, now_us).after(version);
    }

    /// The limit in force at the node that is asked.
    pub fn limit(&self) -> &Limit {
        self.nodes[self.node].limit()
    }

    /// The units of a grant that lives.
    pub fn granted(&self, grant: usize) -> Option<u64> {
        self.grants.get(grant)?.as_ref().map(|granted| granted.grant.cost)
    }

    /// The main count of a key, for variants that break it; none for an unknown key.
    pub fn account(&mut self, key: &[u8]) -> Option<&mut State> {
        self.keys.get_mut(key).map(Key::main)
    }

    /// What is kept of a key, to see what was written.
    pub fn kept(&self, key: &[u8]) -> Option<&Key> {
        self.keys.get(key)
    }

    fn look(&mut self, now_us: u64, key: &[u8]) -> Look {
        if let Some(kept) = self.keys.get_mut(key) {
            kept.repair(now_us);
            kept.forget(self.store, &self.nodes[self.node], now_us);
        }
        Look::at(self.store, self.flaw, &self.nodes[self.node], self.keys.get(key), now_us)
    }

    /// Only where the limit that granted is still in force, and only to its own count.
    fn give_back(&mut self, now_us: u64, granted: &mut Granted, units: u64) {
        let units = units.min(granted.grant.cost);
        let node = &self.nodes[granted.node];
        let is_held = self.keys.get(&granted.key).is_some_and(Key::is_held);
        if let Some(key) = self.keys.get_mut(&granted.key)
            && (node.version() == granted.version || is_held)
        {
            key.repair(now_us);
            key.forget(self.store, node, now_us);
            let mut grant = granted.grant.clone();
            key.give_back(self.store, node.limit(), now_us, |state| state.refund(now_us, &mut grant, units));
            granted.grant.mark = grant.mark;
        }
        granted.grant.cost -= units;
    }

    fn end(&mut self, grant: usize) -> Option<Granted> {
        self.grants.get_mut(grant)?.take()
    }
}
