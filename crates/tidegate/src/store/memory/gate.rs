//! One gate in the memory store, and the fast path of a decision.
//!
//! The fast path is for a check by the gate's limit of a key whose state is one word in the flat
//! table. Everything else is the [locked path](super::transaction)'s. Changes of the limit are in
//! [`version`](super::version).

use super::Tables;
use super::flat::{EntryGroup, Fingerprint, Seen};
use super::limit_words::{FastLimit, FastScale, LimitWords};
use super::transaction::{HashedCheck, Write, decide_all, look, with_state};
use super::version::{LimitVersion, Versions};
use crate::Limit;
use crate::algorithm::{Grant, Mode, Plan, State, Stepped, Word};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionOutcome};
use crate::key::KeyHasher;
use crate::limiter::Overflow;
use crate::store::cancelled::Cancelled;
use crate::sync::Backoff;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// One gate's limit in its tables.
pub(crate) struct MemoryGate {
    pub(crate) id: u32,
    pub(crate) tables: Arc<Tables>,
    pub(crate) refuses_untracked: bool,
    /// The hash of the overflow bucket, which untracked keys share.
    pub(crate) overflow_hash: u64,
    hasher: KeyHasher,
    pub(super) limit_words: LimitWords,
    pub(super) versions: Versions,
    /// How many handles pin a key.
    pins: Mutex<HashMap<u64, usize>>,
    /// Grants that were cancelled while others had reserved behind them, with their limit.
    pub(super) cancelled: Cancelled<(u16, Plan, Grant)>,
}

/// Why the fast path did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Miss {
    /// Somebody else writes the group or the limit right now.
    Contended,
    /// The limit counts in another scale, or its states are more than a word.
    OtherScale,
    /// The key is new, its state is more than a word, or the clock has jumped.
    NotHere,
}

/// Where a fixed key was found, so that it is never looked for again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    group: usize,
    entry: usize,
}

impl MemoryGate {
    pub(crate) fn new(id: u32, limit: Limit, tables: Arc<Tables>, overflow: Overflow) -> Self {
        let hasher = KeyHasher::random();
        let version = LimitVersion::new(1, limit, &tables.clock, tables.clock.now().as_micros());
        Self {
            id,
            tables,
            refuses_untracked: overflow == Overflow::Refuse,
            overflow_hash: hasher.hash(b"\xff overflow bucket"),
            hasher,
            limit_words: LimitWords::new(&version),
            versions: Versions::new(version),
            pins: Mutex::default(),
            cancelled: Cancelled::new(),
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    /// Decides now, without a wait.
    #[inline]
    pub(crate) fn check(&self, hash: u64, cost: u64) -> Decision {
        self.try_check::<Word>(|| self.tables.clock.now(), hash, cost)
            .unwrap_or_else(|miss| self.after_miss(miss, hash, cost))
    }

    /// [`check`](Self::check) for a fixed key that has no entry of its own.
    #[inline(never)]
    pub(crate) fn check_unpinned(&self, hash: u64, cost: u64) -> Decision {
        self.check(hash, cost)
    }

    /// [`check`](Self::check) for a key whose entry is known.
    #[inline(always)]
    pub(crate) fn check_spot(&self, spot: Spot, hash: u64, cost: u64) -> Decision {
        let group = self.tables.flat.group(spot.group);
        let read = |fingerprint| {
            let sequence = group.sequence_at_rest().ok_or(Miss::Contended)?;
            group.read_entry(sequence, spot.entry, fingerprint).ok_or(Miss::NotHere)
        };
        self.fast_path::<Word>(self.tables.clock.now(), hash, cost, group, read)
            .unwrap_or_else(|miss| self.after_miss(miss, hash, cost))
    }

    #[inline(always)]
    fn try_check<S: FastScale>(
        &self,
        now: impl FnOnce() -> Timestamp,
        hash: u64,
        cost: u64,
    ) -> Result<Decision, Miss> {
        let group = self.tables.flat.group(self.tables.flat.index(hash));
        // First, so that the wait for memory and the reading of the clock overlap.
        let sequence = group.sequence_at_rest();
        let read =
            |fingerprint| group.read(sequence.ok_or(Miss::Contended)?, fingerprint).ok_or(Miss::NotHere);
        self.fast_path::<S>(now(), hash, cost, group, read)
    }

    /// The fast path: reads the limit and the key's word, decides, and writes by
    /// compare-and-swap. Without a lock, and a denial only reads.
    ///
    /// Compiled for each scale: callers inline it for smooth buckets, which most limits are, and
    /// which need neither multiplication nor division.
    #[inline(always)]
    fn fast_path<S: FastScale>(
        &self,
        now: Timestamp,
        hash: u64,
        cost: u64,
        group: EntryGroup<'_>,
        read: impl Fn(Fingerprint) -> Result<Seen, Miss>,
    ) -> Result<Decision, Miss> {
        let FastLimit { version, capacity, bucket } = self.limit_words.read::<S>()?;
        let seen = read(Fingerprint::new(hash, version))?;
        let (now_us, tat) = (now.as_micros(), bucket.scale.load(seen.word));
        if now >= Timestamp::MAX || bucket.is_ahead(now_us, tat) {
            return Err(Miss::NotHere);
        }
        let (outcome, next, level) = bucket.decide_at(now_us, tat, cost, Mode::Check);
        let is_unchanged = match outcome {
            DecisionOutcome::Allow { .. } if next != tat => group.replace(seen, bucket.scale.store(next)),
            DecisionOutcome::Allow { .. } | DecisionOutcome::Deny(_) => group.is_unchanged(seen),
        };
        if !is_unchanged {
            return Err(Miss::Contended);
        }
        // After the write: what is stored before a compare-and-swap has to leave the store buffer
        // first.
        Ok(Decision { outcome, limit: capacity, gauge: bucket.scale.gauge(level, now_us, capacity) })
    }

    /// Tries again in the other scale, or while others write the same group, instead of taking the
    /// cache line away from each other. Everything else takes the locked path.
    #[inline(never)]
    fn after_miss(&self, mut miss: Miss, hash: u64, cost: u64) -> Decision {
        let mut backoff = Backoff::new();
        let now = || self.tables.clock.now();
        loop {
            let decided = match miss {
                Miss::OtherScale => self.try_check::<Stepped>(now, hash, cost),
                Miss::Contended => {
                    backoff.wait();
                    self.try_check::<Word>(now, hash, cost)
                }
                Miss::NotHere => break,
            };
            match decided {
                Ok(decision) => return decision,
                // The limit is in neither scale.
                Err(Miss::OtherScale) if miss == Miss::OtherScale => break,
                Err(next) => miss = next,
            }
        }
        decide_all(&[HashedCheck::new(self, hash, cost)], Mode::Check)[0].decision
    }

    /// Checks one unit of each of up to `N` keys at one instant, with their cache lines fetched
    /// together.
    pub(crate) fn check_batch<const N: usize, K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut each: impl FnMut(usize, Decision),
    ) {
        let mut hashes = [0; N];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hash(key.as_ref());
        }
        let hashes = &hashes[..keys.len()];
        let flat = &self.tables.flat;
        std::hint::black_box(hashes.iter().fold(0, |all, hash| all ^ flat.touch(flat.index(*hash))));
        let now = self.tables.clock.now();
        for (index, hash) in hashes.iter().enumerate() {
            let decision = self.try_check::<Word>(|| now, *hash, 1);
            each(index, decision.unwrap_or_else(|miss| self.after_miss(miss, *hash, 1)));
        }
    }

    /// What [`check`](Self::check) would decide, with nothing taken.
    pub(crate) fn peek(&self, hash: u64, cost: u64) -> Decision {
        // Slots cannot be checked, only held.
        let is_slots = matches!(self.version().plan, Plan::Slots(_));
        let mode = if is_slots { Mode::Reserve } else { Mode::Check };
        look(HashedCheck::new(self, hash, cost), mode)
    }

    /// Forgets what a key has used. Slots that are held stay held.
    pub(crate) fn reset(&self, hash: u64) {
        self.cancelled.forget(hash);
        with_state(HashedCheck::new(self, hash, 1), |key| {
            if matches!(key.state, State::Slots(_)) {
                return Write::Nothing;
            }
            *key.state = key.version.plan.unused();
            Write::Alone
        });
    }

    /// Resolves a fixed key to its entry and pins it there; `None` if its states are
    /// not single words or its group is full of pinned keys.
    pub(crate) fn pin(&self, hash: u64) -> Option<Spot> {
        let index = self.tables.flat.index(hash);
        let version = self.version();
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let group = self.tables.flat.group(index).lock();
        let now_us = self.tables.clock.now_ordered().as_micros();
        if !version.plan.is_one_word() || group.is_spilled(now_us) || self.is_moving(now_us) {
            return None;
        }
        let entry = match group.find(hash) {
            Some((entry, _)) => entry,
            None => {
                let entry = group.free_entry(now_us)?;
                group.write(entry, Fingerprint::new(hash, version.number), 0);
                entry
            }
        };
        group.set_pinned(entry, true);
        *pins.entry(hash).or_default() += 1;
        Some(Spot { group: index, entry })
    }

    /// Unpins an entry, if this was the last handle on it.
    pub(crate) fn unpin(&self, hash: u64, spot: Spot) {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handles) = pins.get_mut(&hash).filter(|handles| **handles > 1) {
            *handles -= 1;
            return;
        }
        pins.remove(&hash);
        self.tables.flat.group(spot.group).lock().set_pinned(spot.entry, false);
    }
}
