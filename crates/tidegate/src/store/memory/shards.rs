//! Every state that is not one word, and the few words whose group was full.
//!
//! Maps behind locks, chosen by the hash. Each entry says from when on it is as good
//! as unused; every new entry pays for a look at a few old ones, so idle entries go
//! in small steps and nothing ever sweeps.
//!
//! Words that spill may take an eighth of the room: four times what spills of a table that
//! holds as many keys as it is for. Beyond that, a flood of keys of one word would fill the
//! shards, at several times the memory of the table, and leave no room for other states.

use super::flat::TAKEN_OVER_AFTER_US;
use crate::algorithm::{OtherCounts, State};
use hashbrown::HashTable;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Old entries that a new one looks at.
const STEPS: usize = 4;
/// The same when there is no room.
const STEPS_FULL: usize = 32;
/// The part of the entries that words may take whose group was full.
const SPILLED_PART: usize = 8;

/// What a new entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A state that only the shards can hold.
    Long,
    /// A new key of one word whose group was full.
    Spilled,
}

pub(crate) struct Shards {
    shards: Box<[Mutex<MapShard>]>,
    max_entries: usize,
}

#[derive(Default)]
pub(crate) struct MapShard {
    pub(super) entries: HashTable<ShardEntry>,
    /// Hashes of all entries, in the order in which they are looked at.
    order: VecDeque<u64>,
    max_entries: usize,
    /// Entries that were made for spilled words, and the most there may be.
    spilled: usize,
    max_spilled: usize,
}

pub(crate) struct ShardEntry {
    pub(super) hash: u64,
    pub(crate) gate: u32,
    /// The number of the version of the limit that wrote it.
    pub(super) writer: u16,
    pub(super) written_us: u64,
    pub(super) made_for: Use,
    pub(crate) idle_at_us: u64,
    pub(crate) state: State,
    /// The key's counts by other limits than the one that wrote the state.
    pub(crate) others: Option<Box<OtherCounts>>,
}

impl Shards {
    pub(crate) fn new(max_keys: usize) -> Self {
        let shards = (max_keys / 256).next_power_of_two().clamp(1, 256);
        // Hashes do not fall evenly: six standard deviations above the mean.
        let mean = max_keys.div_ceil(shards);
        let above = |mean: usize| mean + 6 * mean.isqrt() + 1;
        let max_entries = above(mean);
        // A handful at least: in a table of few groups one in fifty says little.
        let max_spilled = above(mean / SPILLED_PART).max(8).min(max_entries);
        let shard = || Mutex::new(MapShard { max_entries, max_spilled, ..MapShard::default() });
        Self { shards: (0..shards).map(|_| shard()).collect(), max_entries }
    }

    /// The shard of a hash. The table inside uses the upper and the lowest bits.
    pub(crate) fn index(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.shards.len() - 1)
    }

    pub(crate) fn lock(&self, index: usize) -> MutexGuard<'_, MapShard> {
        // States are changed by assignments that do not panic: whole even if poisoned.
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Entries in all.
    pub(crate) fn len(&self) -> usize {
        (0..self.shards.len()).map(|index| self.lock(index).entries.len()).sum()
    }

    /// The most entries that there may be.
    pub(crate) fn max_entries(&self) -> usize {
        self.max_entries * self.shards.len()
    }

    pub(crate) fn indexes(&self) -> std::ops::Range<usize> {
        0..self.shards.len()
    }
}

impl MapShard {
    pub(crate) fn get(&mut self, gate: u32, hash: u64) -> Option<&mut ShardEntry> {
        self.entries.find_mut(hash, |entry| entry.hash == hash && entry.gate == gate)
    }

    /// Makes room for one more if it can; true if there is some.
    pub(crate) fn has_room(&mut self, now_us: u64, made_for: Use) -> bool {
        if self.is_full(made_for) {
            self.reclaim(now_us, STEPS_FULL);
        }
        !self.is_full(made_for)
    }

    fn is_full(&self, made_for: Use) -> bool {
        let is_spilled_full = made_for == Use::Spilled && self.spilled >= self.max_spilled;
        is_spilled_full || self.entries.len() >= self.max_entries
    }

    /// Keeps what is known of a key. A new entry is added beyond the cap, too: the caller has asked for
    /// room, or may not be refused.
    pub(super) fn put(&mut self, now_us: u64, entry: ShardEntry) {
        match self.get(entry.gate, entry.hash) {
            Some(held) => *held = ShardEntry { made_for: held.made_for, ..entry },
            None => {
                self.reclaim(now_us, STEPS);
                self.order.push_back(entry.hash);
                self.spilled += usize::from(entry.made_for == Use::Spilled);
                self.entries.insert_unique(entry.hash, entry, |entry| entry.hash);
            }
        }
    }

    fn reclaim(&mut self, now_us: u64, steps: usize) {
        for _ in 0..steps.min(self.order.len()) {
            let Some(hash) = self.order.pop_front() else { return };
            match self.entries.find_entry(hash, |entry| entry.hash == hash) {
                // Not at once: see there.
                Ok(found) if found.get().idle_at_us.saturating_add(TAKEN_OVER_AFTER_US) <= now_us => {
                    let (entry, _) = found.remove();
                    self.spilled -= usize::from(entry.made_for == Use::Spilled);
                }
                Ok(_) => self.order.push_back(hash),
                Err(_) => {}
            }
        }
        if self.entries.capacity() > 64 && self.entries.len() < self.entries.capacity() / 8 {
            self.entries.shrink_to(self.entries.len() * 2, |entry| entry.hash);
            self.order.shrink_to(self.entries.len() * 2);
        }
    }
}
