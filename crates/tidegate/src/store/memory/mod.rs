//! The memory of this process.
//!
//! A state of one word lives in the [`flat`] table, any other in the [`shards`]; both
//! together are [`Tables`]. A [`MemoryGate`] is one gate in them: the words of its limit, its
//! secret for hashing, and the fast path (one word, key known). Every other check takes the
//! locked path in [`transaction`].

mod charge;
mod flat;
mod gate;
mod limit_words;
#[cfg(all(test, tidegate_loom))]
mod loom_tests;
mod pages;
mod queue;
mod shards;
mod transaction;

pub(crate) use charge::MemoryCharge;
pub(crate) use gate::{MemoryGate, Spot};
pub(crate) use pages::Pages;
pub(crate) use queue::queue;
pub(crate) use transaction::{Ask, decide_all, tracked_hash};
#[cfg(feature = "redis")]
pub(crate) use transaction::{Write, with_state};

use crate::clock::{StoreClock, Timestamp};
use crate::decision::Decision;
use crate::gate::Gate;
use crate::store::Mode;
use flat::Flat;
use shards::Shards;
use smallvec::SmallVec;

/// The most keys that tables are made for: more would be address space that nobody touches.
#[cfg(target_pointer_width = "64")]
const KEYS_MAX: usize = 1 << 30;
#[cfg(not(target_pointer_width = "64"))]
const KEYS_MAX: usize = 1 << 24;

/// The tables that gates share.
pub(crate) struct Tables {
    pub(crate) clock: StoreClock,
    flat: Flat,
    shards: Shards,
}

impl Tables {
    pub(crate) fn new(clock: StoreClock, max_keys: usize, pages: Pages) -> Self {
        let max_keys = max_keys.min(KEYS_MAX);
        Self { clock, flat: Flat::new(max_keys, pages), shards: Shards::new(max_keys) }
    }

    /// Entries outside the flat table.
    pub(crate) fn shard_entries(&self) -> usize {
        self.shards.len()
    }

    /// The most entries that the shards hold.
    pub(crate) fn shard_entries_max(&self) -> usize {
        self.shards.max_entries()
    }
}

/// A check of a gate in memory, by the hash of its key.
pub(crate) struct HashedCheck<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) hash: u64,
    pub(crate) cost: u64,
}

/// What memory decided.
pub(crate) struct MemoryDecided {
    pub(crate) decisions: SmallVec<[Decision; 2]>,
    /// What was charged, if everything was allowed.
    pub(crate) charge: Option<MemoryCharge>,
    /// When, on the clock of the first check.
    pub(crate) now: Timestamp,
}

/// Decides checks of gates in memory at one instant, and charges all or none.
pub(crate) fn decide(checks: &[HashedCheck<'_>], mode: Mode) -> MemoryDecided {
    let mut asks: SmallVec<[Ask<'_>; 2]> = SmallVec::new();
    for HashedCheck { gate, hash, cost } in checks {
        let Some(gate) = gate.backend().memory() else { unreachable!("checks in memory were chosen") };
        asks.push(Ask { gate, hash: *hash, cost: *cost });
    }
    let (tolds, now) = decide_all(&asks, mode);
    let is_allowed = tolds.iter().all(|told| told.decision.is_allowed());
    let charge = is_allowed.then(|| MemoryCharge::new(checks, &tolds));
    MemoryDecided { decisions: tolds.iter().map(|told| told.decision).collect(), charge, now }
}
