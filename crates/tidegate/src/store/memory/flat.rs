//! The flat table: states of one word, side by side with their fingerprints.
//!
//! Two neighbouring cache lines make a *group* of seven slots, guarded by one
//! sequence number: even, the group rests; odd, someone writes. A reader looks,
//! decides, and checks that the number has not moved; a denial is therefore only
//! reads and scales with the cores. A writer moves the number by compare-and-swap
//! from what it saw, so that a grant is decided on exactly the state that it changes.
//!
//! ```text
//!  line 0  | sequence | spilled | fingerprint state | fingerprint state | fingerprint state |
//!  line 1  | fingerprint state | fingerprint state | fingerprint state | fingerprint state |
//! ```
//!
//! A fingerprint is 48 bits of the key's hash, 15 of the limit's version, and a pin. A slot
//! whose state has passed is as good as unused (see [`scale`](crate::algorithm)) and
//! is simply taken over: there is no sweeper. The table never grows and never moves;
//! a key that finds its group full of live ones spills into the [`Shards`](super::shards).

use super::pages::{Pages, Words};
use crate::algorithm::word_at;
use crate::sync::{AtomicU64, Backoff, Ordering, fence};

const GROUP_WORDS: usize = 16;
pub(super) const SLOTS: usize = 7;
const SEQUENCE: usize = 0;
const SPILLED: usize = 1;
const FIRST: usize = 2;

/// A key's place is taken over only so long after its state has passed.
///
/// A thread that holds a lock may have read its clock before it had the lock: reading the
/// processor's counter waits for nothing, so it can run ahead of the instruction that takes
/// the lock, by as long as that one takes to get its cache line. If such a thread finds no
/// state of its key, because somebody took the place over by a later reading, the state must
/// have passed at its own, earlier one as well: otherwise the key would be as good as unused
/// too early. Getting a cache line takes well below a microsecond; no fence is needed.
pub(super) const TAKEN_OVER_AFTER_US: u64 = 8;

const PINNED: u64 = 1;
const FINGERPRINT: u64 = !0xffff;

/// Slots for each key that the table is asked to hold: at 55 % load one key in
/// fifty finds its group full.
const LOAD_PERCENT: usize = 55;

pub(crate) struct Flat {
    words: Words,
    first: usize,
    groups: usize,
}

/// What a fingerprint says of a key: its hash and the version of its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    #[inline]
    pub(crate) fn new(hash: u64, version: u16) -> Self {
        debug_assert!(version > 0 && version < 1 << 15, "zero would look like an empty slot");
        Self((hash << 16) | (u64::from(version) << 1))
    }

    pub(crate) fn version(self) -> u16 {
        (self.0 as u16) >> 1
    }

    pub(super) fn is_key_of(self, hash: u64) -> bool {
        self.version() != 0 && self.0 & FINGERPRINT == hash << 16
    }
}

/// What a reader saw, good as long as the sequence has not moved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    sequence: u64,
    slot: usize,
    pub(crate) word: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct Group<'a>(&'a [AtomicU64; GROUP_WORDS]);

impl Flat {
    pub(crate) fn new(max_keys: usize, pages: Pages) -> Self {
        let groups = (max_keys.saturating_mul(100) / LOAD_PERCENT).div_ceil(SLOTS).max(1);
        let line_words = 2 * GROUP_WORDS;
        let words = Words::zeroed(groups * GROUP_WORDS + line_words, pages);
        // The allocator aligns words only; the first group starts at the first pair of
        // lines within.
        let past = (words.as_ptr() as usize / size_of::<AtomicU64>()) % GROUP_WORDS;
        let first = if cfg!(tidegate_loom) { 0 } else { (GROUP_WORDS - past) % GROUP_WORDS };
        Self { words, first, groups }
    }

    /// The group of a hash: its upper bits choose, its lower ones are the fingerprint.
    #[inline]
    pub(crate) fn index(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.groups as u128) >> 64) as usize
    }

    #[inline]
    pub(crate) fn group(&self, index: usize) -> Group<'_> {
        let at = self.first + index * GROUP_WORDS;
        let (groups, _) = self.words[at..].as_chunks::<GROUP_WORDS>();
        Group(&groups[0])
    }

    /// Asks for both lines of a group, to be there when it is needed.
    #[inline]
    pub(crate) fn touch(&self, index: usize) -> u64 {
        let group = self.group(index);
        group.0[SEQUENCE].load(Ordering::Relaxed) ^ group.0[GROUP_WORDS - 1].load(Ordering::Relaxed)
    }
}

impl<'a> Group<'a> {
    #[inline]
    fn fingerprint(self, slot: usize) -> u64 {
        self.0[(FIRST + 2 * slot) % GROUP_WORDS].load(Ordering::Relaxed)
    }

    #[inline]
    fn word(self, slot: usize) -> &'a AtomicU64 {
        // A slot is less than SLOTS; the remainder only spares the bounds check.
        &self.0[(FIRST + 1 + 2 * slot) % GROUP_WORDS]
    }

    /// The state under this fingerprint, for who has seen the group [at rest](Self::rested).
    #[inline]
    pub(crate) fn read(self, sequence: u64, fingerprint: Fingerprint) -> Option<Seen> {
        let slot = (0..SLOTS).find(|slot| self.fingerprint(*slot) & !PINNED == fingerprint.0)?;
        Some(Seen { sequence, slot, word: self.word(slot).load(Ordering::Relaxed) })
    }

    /// The same for a slot that is known.
    #[inline]
    pub(crate) fn read_slot(self, sequence: u64, slot: usize, fingerprint: Fingerprint) -> Option<Seen> {
        if self.fingerprint(slot) & !PINNED != fingerprint.0 {
            return None;
        }
        Some(Seen { sequence, slot, word: self.word(slot).load(Ordering::Relaxed) })
    }

    /// The sequence number; `None` if someone writes.
    #[inline]
    pub(crate) fn rested(self) -> Option<u64> {
        let sequence = self.0[SEQUENCE].load(Ordering::Acquire);
        (sequence & 1 == 0).then_some(sequence)
    }

    /// True if what was seen stood there all at the same time.
    #[inline]
    pub(crate) fn confirms(self, seen: Seen) -> bool {
        fence(Ordering::Acquire);
        self.0[SEQUENCE].load(Ordering::Relaxed) == seen.sequence
    }

    /// Writes `word` if nothing has moved since `seen`.
    #[inline]
    pub(crate) fn replace(self, seen: Seen, word: u64) -> bool {
        fence(Ordering::Acquire);
        if !self.begin(seen.sequence) {
            return false;
        }
        self.word(seen.slot).store(word, Ordering::Relaxed);
        self.0[SEQUENCE].store(seen.sequence + 2, Ordering::Release);
        true
    }

    #[inline]
    fn begin(self, sequence: u64) -> bool {
        let writing = sequence + 1;
        let began =
            self.0[SEQUENCE].compare_exchange(sequence, writing, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        // Readers that see any of the stores to come must also see the odd number.
        fence(Ordering::Release);
        began
    }

    /// The group to oneself.
    pub(crate) fn lock(self) -> LockedGroup<'a> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(sequence) = self.rested()
                && self.begin(sequence)
            {
                return LockedGroup { group: self, sequence };
            }
            backoff.wait();
        }
    }
}

/// A group that this thread alone may read and write, until dropped.
pub(crate) struct LockedGroup<'a> {
    group: Group<'a>,
    sequence: u64,
}

impl LockedGroup<'_> {
    /// The slot of a key, whatever the version of its limit.
    pub(crate) fn find(&self, hash: u64) -> Option<(usize, Fingerprint)> {
        (0..SLOTS)
            .map(|slot| (slot, Fingerprint(self.group.fingerprint(slot))))
            .find(|(_, fingerprint)| fingerprint.is_key_of(hash))
    }

    #[cfg(all(test, tidegate_loom))]
    pub(crate) fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        (0..SLOTS).map(|slot| Fingerprint(self.group.fingerprint(slot)))
    }

    pub(crate) fn word(&self, slot: usize) -> u64 {
        self.group.word(slot).load(Ordering::Relaxed)
    }

    pub(crate) fn write(&self, slot: usize, fingerprint: Fingerprint, word: u64) {
        let pin = self.group.fingerprint(slot) & PINNED;
        self.group.0[FIRST + 2 * slot].store(fingerprint.0 | pin, Ordering::Relaxed);
        self.group.word(slot).store(word, Ordering::Relaxed);
    }

    /// A slot that may be taken over: an empty one, or else the one whose state has
    /// passed longest ago, and no less than [`TAKEN_OVER_AFTER_US`] ago.
    pub(crate) fn free_slot(&self, now_us: u64) -> Option<usize> {
        let idle_word = word_at(now_us.saturating_sub(TAKEN_OVER_AFTER_US));
        let unpinned = (0..SLOTS).filter(|slot| self.group.fingerprint(*slot) & PINNED == 0);
        unpinned.min_by_key(|slot| self.word(*slot)).filter(|slot| self.word(*slot) <= idle_word)
    }

    /// Takes a free slot over for a new key.
    pub(crate) fn claim(&self, slot: usize, fingerprint: Fingerprint, word: u64) {
        self.group.0[FIRST + 2 * slot].store(0, Ordering::Relaxed);
        self.write(slot, fingerprint, word);
    }

    /// Makes a slot empty; a pinned one only its state.
    pub(crate) fn clear(&self, slot: usize) {
        if self.group.fingerprint(slot) & PINNED == 0 {
            self.group.0[FIRST + 2 * slot].store(0, Ordering::Relaxed);
        }
        self.group.word(slot).store(0, Ordering::Relaxed);
    }

    /// A pinned slot is never taken over.
    pub(crate) fn set_pinned(&self, slot: usize, pinned: bool) {
        let fingerprint = self.group.fingerprint(slot) & !PINNED;
        self.group.0[FIRST + 2 * slot].store(fingerprint | u64::from(pinned), Ordering::Relaxed);
    }

    /// True if a live key of this group may be in the shards.
    pub(crate) fn is_spilled(&self, now_us: u64) -> bool {
        self.group.0[SPILLED].load(Ordering::Relaxed) > now_us
    }

    /// A key of this group is in the shards, and matters until then.
    pub(crate) fn set_spilled(&self, until_us: u64) {
        let until_us = until_us.max(self.group.0[SPILLED].load(Ordering::Relaxed));
        self.group.0[SPILLED].store(until_us, Ordering::Relaxed);
    }
}

impl Drop for LockedGroup<'_> {
    fn drop(&mut self) {
        self.group.0[SEQUENCE].store(self.sequence + 2, Ordering::Release);
    }
}
