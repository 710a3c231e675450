//! What every decision must be: the reference that stores are compared with.
//!
//! Written for obviousness: 128-bit integers, one plain account a key, nothing
//! shared, nothing reclaimed. Time is in microseconds and given by the caller; it
//! may run backwards. What a decision is made of is the same for every algorithm
//! and stands here; how units are counted stands in one file an algorithm.

mod account;
mod bucket;
mod slices;
mod slots;
mod ticks;
mod warmup;

pub use account::{Account, Grant, State};
pub use bucket::Bucket;
pub use slices::Slices;
pub use slots::Slots;
pub use ticks::Ticks;
pub use warmup::WarmUp;

use crate::{Mode, Seen};
use std::collections::BTreeMap;
use tidegate::Limit;

/// One limit over many keys.
#[derive(Clone, Debug)]
pub struct Model {
    limit: Limit,
    /// Counts the changes of the limit.
    version: u64,
    keys: BTreeMap<Vec<u8>, Kept>,
    grants: Vec<Option<(Vec<u8>, Grant)>>,
}

/// A key's account, and the version that it was kept under: a key that nobody touched
/// since a change is still counted the old way.
#[derive(Clone, Debug)]
struct Kept {
    version: u64,
    state: State,
}

impl Model {
    /// No key is known yet.
    pub fn new(limit: &Limit) -> Self {
        Self { limit: limit.clone(), version: 0, keys: BTreeMap::new(), grants: Vec::new() }
    }

    /// Decides on one call. Also who only looks brings the account up to date: what
    /// was repaired, forgotten or carried over is kept.
    pub fn decide(&mut self, now_us: u64, key: &[u8], cost: u64, mode: Mode) -> Seen {
        let mut state = self.state(now_us, key);
        let (seen, grant) = state.decide(now_us, cost, mode);
        self.keep(key, state);
        if seen.allowed && mode == Mode::Reserve {
            self.grants.push(Some((key.to_vec(), grant)));
        }
        seen
    }

    /// Gives `units` of a grant back.
    pub fn refund(&mut self, now_us: u64, grant: usize, units: u64) {
        let Some((key, mut granted)) = self.end(grant) else { return };
        let mut state = self.state(now_us, &key);
        state.refund(now_us, &mut granted, units);
        self.keep(&key, state);
        self.grants[grant] = Some((key, granted));
    }

    /// Ends a grant at its true cost: less is given back, more is a debt.
    pub fn settle(&mut self, now_us: u64, grant: usize, cost: u64) {
        let Some((key, mut granted)) = self.end(grant) else { return };
        let mut state = self.state(now_us, &key);
        match granted.cost.checked_sub(cost) {
            Some(unused) => state.refund(now_us, &mut granted, unused),
            None => state.owe(now_us, cost - granted.cost),
        }
        self.keep(&key, state);
    }

    /// Ends a grant that was not used: everything is given back.
    pub fn cancel(&mut self, now_us: u64, grant: usize) {
        self.settle(now_us, grant, 0);
    }

    /// Ends a grant that was used. Only held units come back by that.
    pub fn release(&mut self, now_us: u64, grant: usize) {
        let Some((key, mut granted)) = self.end(grant) else { return };
        let mut state = self.state(now_us, &key);
        if let State::Slots(slots) = &mut state {
            slots.refund(i128::from(now_us), &mut granted, i128::MAX);
        }
        self.keep(&key, state);
    }

    /// Forgets what a key has used; what its callers hold stays held.
    pub fn reset(&mut self, key: &[u8]) {
        self.keys.retain(|other, kept| other != key || matches!(kept.state, State::Slots(_)));
    }

    /// Another limit from now on; each key is carried over when it is next touched.
    pub fn change(&mut self, limit: &Limit) {
        if self.limit != *limit {
            self.limit = limit.clone();
            self.version += 1;
        }
    }

    /// The units of a grant that lives.
    pub fn granted(&self, grant: usize) -> Option<u64> {
        self.grants.get(grant)?.as_ref().map(|(_, grant)| grant.cost)
    }

    /// The account of a key, for variants that break it; none for an unknown key.
    pub fn account(&mut self, key: &[u8]) -> Option<&mut State> {
        self.keys.get_mut(key).map(|kept| &mut kept.state)
    }

    fn state(&self, now_us: u64, key: &[u8]) -> State {
        match self.keys.get(key) {
            None => State::new(&self.limit),
            Some(kept) if kept.version == self.version => kept.state.clone(),
            Some(kept) => kept.state.carried_over(now_us, &self.limit),
        }
    }

    fn keep(&mut self, key: &[u8], state: State) {
        self.keys.insert(key.to_vec(), Kept { version: self.version, state });
    }

    fn end(&mut self, grant: usize) -> Option<(Vec<u8>, Grant)> {
        self.grants.get_mut(grant)?.take()
    }
}
