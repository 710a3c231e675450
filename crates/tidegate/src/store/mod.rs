//! The one boundary between the library and the stores that keep its state.
//!
//! Memory is decided inline. Everything else is a [`Store`] behind trait objects: a store opens
//! a [`StoreGate`] for each gate, which decides several checks of one [group](StoreGate::group)
//! together and returns a [`StoreCharge`] for what it charged. Transactions over several groups,
//! waiting, permits and verdicts are the library's, and the same for every store.

pub(crate) mod cancelled;
mod charge;
pub(crate) mod memory;
#[cfg(feature = "redis")]
pub(crate) mod redis;
mod remote;

pub(crate) use charge::{Charge, Correction, Shares};
pub use remote::{GroupDecisions, GroupId, KeySharing, Store, StoreCharge, StoreGate};

pub use crate::algorithm::Mode;
pub use crate::check::OwnedCheck;

use crate::clock::StoreClock;
use crate::decision::{Decision, DecisionOutcome};
use crate::gate::{Gate, GateError};
use crate::limiter::GateOptions;
use crate::pending::Pending;
use crate::{Algorithm, Limit};
use memory::{HashedCheck, MemoryGate, Pages, Spot, Tables};
use std::sync::Arc;

/// Keys that a limiter in memory holds. Default.
const MAX_KEYS: usize = 1_000_000;

/// Where the gates of a limiter are.
pub(crate) enum Backing {
    Memory(Arc<Tables>),
    Remote(Arc<dyn Store>),
}

impl Backing {
    pub(crate) fn in_memory(clock: StoreClock, max_keys: Option<usize>) -> Self {
        Self::Memory(Arc::new(match max_keys {
            Some(keys) => Tables::new(clock, keys, Pages::Huge),
            None => Tables::new(clock, MAX_KEYS, Pages::AsTouched),
        }))
    }

    /// Whether a gate can be opened like this.
    pub(crate) fn accepts(&self, name: &str, limit: &Limit, options: &GateOptions) -> Result<(), GateError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Remote(store) => store.accepts(name, limit, options),
        }
    }

    pub(crate) fn open(&self, id: u32, name: &str, limit: Limit, options: &GateOptions) -> Backend {
        match self {
            Self::Memory(tables) => {
                let own = |keys| Arc::new(Tables::new(tables.clock.clone(), keys, Pages::Huge));
                let tables = options.max_keys.map_or_else(|| tables.clone(), own);
                Backend::Memory(MemoryGate::new(id, limit, tables, options.overflow))
            }
            Self::Remote(store) => Backend::Remote(store.clone().open(name, limit, options)),
        }
    }

    /// Keys that are held outside the flat table, and the most that may be.
    pub(crate) fn long_keys(&self) -> (usize, usize) {
        match self {
            Self::Memory(tables) => (tables.shards.len(), tables.shards.max_entries()),
            Self::Remote(_) => (0, 0),
        }
    }

    #[cfg(feature = "redis")]
    pub(crate) fn redis_stats(&self) -> Option<redis::RedisStats> {
        let Self::Remote(store) = self else { return None };
        let store: &dyn std::any::Any = &**store;
        store.downcast_ref::<redis::RedisStore>().map(redis::RedisStore::stats)
    }
}

/// A gate in its store.
#[expect(clippy::large_enum_variant, reason = "it lives in the gate's one allocation")]
pub(crate) enum Backend {
    Memory(MemoryGate),
    Remote(Arc<dyn StoreGate>),
}

/// A fixed key of a gate that was resolved once.
pub(crate) struct Pinned {
    hash: u64,
    spot: Option<Spot>,
}

/// Keys whose cache lines are fetched together.
const BATCH: usize = 64;

impl Backend {
    #[inline(always)]
    pub(crate) fn memory(&self) -> Option<&MemoryGate> {
        match self {
            Self::Memory(gate) => Some(gate),
            Self::Remote(_) => None,
        }
    }

    pub(crate) fn remote(&self) -> Option<&Arc<dyn StoreGate>> {
        match self {
            Self::Memory(_) => None,
            Self::Remote(gate) => Some(gate),
        }
    }

    #[inline]
    pub(crate) fn check(&self, key: &[u8], cost: u64) -> Decision {
        match self {
            Self::Memory(gate) => gate.check(gate.hash(key), cost),
            Self::Remote(gate) => gate.clone().check(key, cost).blocking(),
        }
    }

    pub(crate) fn check_async(&self, key: &[u8], cost: u64) -> Pending<Decision> {
        match self {
            Self::Memory(_) => Pending::ready(self.check(key, cost)),
            Self::Remote(gate) => gate.clone().check(key, cost),
        }
    }

    pub(crate) fn check_batch<K: AsRef<[u8]>>(&self, keys: &[K], mut each: impl FnMut(usize, Decision)) {
        for (chunk, keys) in keys.chunks(BATCH).enumerate() {
            let first = chunk * BATCH;
            match self {
                Self::Memory(gate) => {
                    gate.check_batch::<BATCH, K>(keys, |at, decision| each(first + at, decision));
                }
                Self::Remote(gate) => {
                    // All are sent before the first is awaited.
                    let send = |key: &K| gate.clone().check(key.as_ref(), 1);
                    let sent: Vec<Pending<Decision>> = keys.iter().map(send).collect();
                    (first..).zip(sent).for_each(|(at, pending)| each(at, pending.blocking()));
                }
            }
        }
    }

    pub(crate) fn peek_async(&self, key: &[u8], cost: u64) -> Pending<Decision> {
        match self {
            Self::Memory(gate) => Pending::ready(gate.peek(gate.hash(key), cost)),
            Self::Remote(gate) => gate.clone().peek(key, cost),
        }
    }

    pub(crate) fn reset_async(&self, key: &[u8]) -> Pending<bool> {
        match self {
            Self::Memory(gate) => {
                gate.reset(gate.hash(key));
                Pending::ready(true)
            }
            Self::Remote(gate) => gate.clone().reset(key),
        }
    }

    pub(crate) fn pin(&self, key: &[u8]) -> Pinned {
        let hash = self.memory().map_or(0, |gate| gate.hash(key));
        Pinned { hash, spot: self.memory().and_then(|gate| gate.pin(hash)) }
    }

    pub(crate) fn unpin(&self, pinned: &Pinned) {
        if let (Some(spot), Self::Memory(gate)) = (pinned.spot, self) {
            gate.unpin(pinned.hash, spot);
        }
    }

    #[inline(always)]
    pub(crate) fn check_pinned(&self, pinned: &Pinned, key: &[u8], cost: u64) -> Decision {
        match (self, pinned.spot) {
            (Self::Memory(gate), Some(spot)) => gate.check_spot(spot, pinned.hash, cost),
            (Self::Memory(gate), None) => gate.check_unpinned(pinned.hash, cost),
            (Self::Remote(_), _) => self.check(key, cost),
        }
    }

    /// The limit in force.
    pub(crate) fn limit(&self) -> Limit {
        match self {
            Self::Memory(gate) => gate.version().limit.clone(),
            Self::Remote(gate) => gate.limit(),
        }
    }

    pub(crate) fn accepts(&self, limit: &Limit) -> Result<(), GateError> {
        self.remote().map_or(Ok(()), |gate| gate.accepts(limit))
    }

    pub(crate) fn change(&self, limit: Limit) {
        match self {
            Self::Memory(gate) => gate.change(limit),
            Self::Remote(gate) => gate.change(limit),
        }
    }

    /// What a check would be answered beside the denial of another one, with nothing taken: at
    /// this cost, which is what the whole request takes of its key. None if that is not known.
    pub(crate) fn look(&self, check: &OwnedCheck, cost: u64, mode: Mode) -> Pending<Option<Decision>> {
        match self {
            Self::Memory(gate) => {
                Pending::ready(Some(memory::look(HashedCheck { cost, ..hashed(gate, check) }, mode)))
            }
            Self::Remote(gate) => gate.clone().look(check, cost, mode),
        }
    }

    /// What a queue for slots counts a key by: untracked keys in memory share one number. None
    /// if the key cannot be queued for.
    pub(crate) fn queue_key(&self, check: &OwnedCheck) -> Option<u64> {
        match self {
            Self::Memory(gate) => memory::tracked_hash(hashed(gate, check)),
            Self::Remote(_) => Some(crate::key::digest(check.key())),
        }
    }

    /// The decision about a check whose slots were queued for and are held.
    pub(crate) fn decision_of_queued(&self, check: &OwnedCheck) -> Decision {
        match self {
            Self::Memory(gate) => gate.peek(gate.hash(check.key()), 0),
            Self::Remote(gate) => {
                Decision::plain(DecisionOutcome::Allow { wait_us: 0 }, gate.limit().capacity(), 0)
            }
        }
    }
}

fn hashed<'a>(gate: &'a MemoryGate, check: &'a OwnedCheck) -> HashedCheck<'a> {
    HashedCheck { limit: check.limit(), ..HashedCheck::new(gate, gate.hash(check.key()), check.cost()) }
}

/// The check by the hash of its key, if its gate is in memory.
pub(crate) fn hashed_in_memory(check: &OwnedCheck) -> Option<(&Gate, HashedCheck<'_>)> {
    Some((&check.gate, hashed(check.gate.backend().memory()?, check)))
}

/// Queues for slots of a check's key, for several checks together, until they are held, the queue
/// is full or the limit's wait is over. Dropped before, it leaves the queue.
pub(crate) async fn queue(check: &OwnedCheck, queue_key: u64, costs: &[u64]) -> Option<Charge> {
    match check.gate.backend() {
        Backend::Memory(_) => memory::queue(&check.gate, queue_key, costs).await.map(Charge::Memory),
        Backend::Remote(remote) => remote.clone().queue(check.key(), costs).await.map(Charge::Remote),
    }
}

/// True for a limit of slots that are held.
pub(crate) fn holds_slots(limit: &Limit) -> bool {
    matches!(limit.algorithm(), Algorithm::Concurrency { .. })
}
