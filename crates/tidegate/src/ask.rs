//! One question that outlives the call that asked it, and how several are decided.

use crate::Limit;
use crate::algorithm::Mode;
use crate::clock::Timestamp;
use crate::decision::Decision;
use crate::permit::Charge;
use crate::store::memory::{Ask, Meter, decide_all};
#[cfg(feature = "redis")]
use crate::store::redis;
use crate::verdict::Verdict;
use smallvec::SmallVec;
use std::sync::Arc;

/// A gate's side of the store that it lives in.
#[derive(Clone)]
pub(crate) enum Side {
    Memory(Arc<Meter>),
    #[cfg(feature = "redis")]
    Redis(Arc<redis::Meter>),
}

impl Side {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Memory(meter) => &meter.name,
            #[cfg(feature = "redis")]
            Self::Redis(meter) => &meter.name,
        }
    }

    /// If it is in the memory of this process.
    #[cfg(feature = "tower")]
    #[inline(always)]
    pub(crate) fn in_memory(&self) -> Option<&Arc<Meter>> {
        match self {
            Self::Memory(meter) => Some(meter),
            #[cfg(feature = "redis")]
            Self::Redis(_) => None,
        }
    }

    /// The limit in force.
    pub(crate) fn limit(&self) -> Limit {
        match self {
            Self::Memory(meter) => meter.version().limit.clone(),
            #[cfg(feature = "redis")]
            Self::Redis(meter) => meter.version().limit.clone(),
        }
    }

    /// The time on its clock.
    #[cfg(feature = "macros")]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Memory(meter) => meter.home.clock.now(),
            #[cfg(feature = "redis")]
            Self::Redis(meter) => meter.core().clock.now(),
        }
    }

    /// The limit that it was defined with.
    pub(crate) fn defined(&self) -> &Limit {
        match self {
            Self::Memory(meter) => &meter.defined,
            #[cfg(feature = "redis")]
            Self::Redis(meter) => &meter.defined,
        }
    }
}

/// One question of a request.
#[derive(Clone)]
pub(crate) enum OwnedAsk {
    Memory(MemoryAsk),
    #[cfg(feature = "redis")]
    Redis(redis::RedisAsk),
}

/// One question to a gate in memory.
#[derive(Clone)]
pub(crate) struct MemoryAsk {
    pub(crate) meter: Arc<Meter>,
    pub(crate) hash: u64,
    /// For people: the store knows only the hash.
    pub(crate) key: KeyBytes,
    pub(crate) cost: u64,
    /// Its place in the request.
    pub(crate) index: usize,
}

/// Most keys are short enough to travel without an allocation.
pub(crate) type KeyBytes = SmallVec<[u8; 24]>;

impl MemoryAsk {
    pub(crate) fn is_same_key(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.meter, &other.meter) && self.hash == other.hash
    }
}

impl OwnedAsk {
    pub(crate) fn at(mut self, index: usize) -> Self {
        match &mut self {
            Self::Memory(ask) => ask.index = index,
            #[cfg(feature = "redis")]
            Self::Redis(ask) => ask.index = index,
        }
        self
    }
}

/// The questions, if all of them are to memory.
pub(crate) fn all_in_memory(asks: Vec<OwnedAsk>) -> Result<Vec<MemoryAsk>, Vec<OwnedAsk>> {
    if asks.iter().all(|ask| matches!(ask, OwnedAsk::Memory(_))) {
        let memory = |ask| match ask {
            OwnedAsk::Memory(ask) => Some(ask),
            #[cfg(feature = "redis")]
            OwnedAsk::Redis(_) => None,
        };
        Ok(asks.into_iter().filter_map(memory).collect())
    } else {
        Err(asks)
    }
}

/// Decides all questions together; an allowed verdict holds the permit. Waits on this
/// thread for a store that is not in memory.
pub(crate) fn decide(asks: Vec<OwnedAsk>, mode: Mode) -> Verdict {
    match all_in_memory(asks) {
        Ok(mut asks) => in_memory(&mut asks, mode),
        #[cfg(feature = "redis")]
        Err(asks) => crate::acquire::block_on(crate::parts::decide(asks, mode)),
        #[cfg(not(feature = "redis"))]
        Err(_) => in_memory(&mut [], mode),
    }
}

/// Decides questions to memory. A key for which there was no room is the strangers'
/// one from then on.
pub(crate) fn in_memory(asks: &mut [MemoryAsk], mode: Mode) -> Verdict {
    let told = decide_in_memory(asks, mode);
    for (ask, hash) in asks.iter_mut().zip(told.hashes) {
        ask.hash = hash;
    }
    let sides = asks.iter().map(|ask| Side::Memory(ask.meter.clone())).collect();
    Verdict::new(sides, told.decisions, told.charges, told.now).of_key(|at| &asks[at].key)
}

/// What memory said.
pub(crate) struct MemoryTold {
    pub(crate) decisions: SmallVec<[Decision; 2]>,
    /// What was charged, if everything was allowed; to be dropped otherwise.
    pub(crate) charges: SmallVec<[Charge; 1]>,
    /// The hashes that were charged.
    hashes: SmallVec<[u64; 2]>,
    pub(crate) now: Timestamp,
}

pub(crate) fn decide_in_memory(asks: &[MemoryAsk], mode: Mode) -> MemoryTold {
    let borrowed: SmallVec<[Ask<'_>; 2]> =
        asks.iter().map(|ask| Ask { meter: &ask.meter, hash: ask.hash, cost: ask.cost }).collect();
    let (tolds, now) = decide_all(&borrowed, mode);
    let is_allowed = tolds.iter().all(|told| told.decision.is_allowed());
    let charges = if is_allowed {
        asks.iter().zip(&tolds).map(|(ask, told)| Charge::new(ask, told, now)).collect()
    } else {
        SmallVec::new()
    };
    MemoryTold {
        decisions: tolds.iter().map(|told| told.decision).collect(),
        charges,
        hashes: tolds.iter().map(|told| told.hash).collect(),
        now,
    }
}
