//! The memory store: the state is in this process.
//!
//! A check goes from [`gate`] (the fast path: one word, and the key has an entry) to
//! [`transaction`] (the locked path: everything else), which finds and keeps the [`state`] of each
//! key. States of one word are in the [`flat`] table, others in the [`shards`]; both together are
//! [`Tables`]. [`version`] has the limits by which states were written, [`limit_words`] the one in
//! force for readers without a lock. [`charge`] gives back, [`queue`] waits for slots.

mod charge;
mod flat;
mod gate;
mod limit_words;
#[cfg(all(test, tidegate_loom))]
mod loom_tests;
mod pages;
mod queue;
mod shards;
mod state;
mod transaction;
mod version;

pub(crate) use charge::MemoryCharge;
pub(crate) use gate::{MemoryGate, Spot};
pub(crate) use pages::Pages;
pub(crate) use queue::queue;
pub(crate) use transaction::{HashedCheck, look, tracked_hash};
#[cfg(feature = "redis")]
pub(crate) use transaction::{Write, with_state};

use crate::clock::{StoreClock, Timestamp};
use crate::decision::Decision;
use crate::gate::Gate;
use crate::store::Mode;
use flat::Flat;
use shards::Shards;
use smallvec::SmallVec;
use transaction::decide_all;

/// The most keys that tables are made for: more would be address space that nobody touches.
const KEYS_MAX: usize = if cfg!(target_pointer_width = "64") { 1 << 30 } else { 1 << 24 };

/// The tables that gates share.
pub(crate) struct Tables {
    pub(crate) clock: StoreClock,
    flat: Flat,
    pub(crate) shards: Shards,
}

impl Tables {
    pub(crate) fn new(clock: StoreClock, max_keys: usize, pages: Pages) -> Self {
        let max_keys = max_keys.min(KEYS_MAX);
        Self { clock, flat: Flat::new(max_keys, pages), shards: Shards::new(max_keys) }
    }
}

/// What memory decided.
pub(crate) struct MemoryDecided {
    pub(crate) decisions: SmallVec<[Decision; 2]>,
    /// What was charged, if everything was allowed.
    pub(crate) charge: Option<MemoryCharge>,
    /// When, on the clock of the first check.
    pub(crate) now: Timestamp,
}

/// Decides checks at one instant, each beside its gate, and charges all or none.
pub(crate) fn decide(checks: &[(&Gate, HashedCheck<'_>)], mode: Mode) -> MemoryDecided {
    let hashed: SmallVec<[HashedCheck<'_>; 2]> = checks.iter().map(|(_, check)| *check).collect();
    let results = decide_all(&hashed, mode);
    let is_allowed = results.iter().all(|result| result.decision.is_allowed());
    MemoryDecided {
        charge: is_allowed.then(|| MemoryCharge::new(checks, &results)),
        now: results.first().map_or(Timestamp::default(), |result| result.now),
        decisions: results.iter().map(|result| result.decision).collect(),
    }
}
