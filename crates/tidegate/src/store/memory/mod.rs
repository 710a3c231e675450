//! Where the state is and whose clock counts: the memory of this process.
//!
//! A state of one word lives in the [`flat`] table, any other in the [`shards`]; both
//! together are a [`Home`]. A [`Meter`] is one gate's side of it: the numbers of its
//! limit, its secret for hashing, and the way of a decision. The short way (one word,
//! key known) is in [`meter`], every other in [`transaction`].

mod flat;
#[cfg(all(test, tidegate_loom))]
mod loom_tests;
mod meter;
mod numbers;
mod pages;
mod shards;
mod transaction;

#[cfg(feature = "tower")]
pub(crate) use meter::Left;
pub(crate) use meter::{Meter, Spot};
pub(crate) use pages::Pages;
pub(crate) use transaction::{Ask, Told, Write, decide_all, home_of, with_state};

use crate::clock::StoreClock;
use flat::Flat;
use shards::Shards;

/// The most keys that tables are made for: more would be address space that nobody touches.
#[cfg(target_pointer_width = "64")]
const KEYS_MAX: usize = 1 << 30;
#[cfg(not(target_pointer_width = "64"))]
const KEYS_MAX: usize = 1 << 24;

/// The tables that gates share.
pub(crate) struct Home {
    pub(crate) clock: StoreClock,
    flat: Flat,
    shards: Shards,
}

impl Home {
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
