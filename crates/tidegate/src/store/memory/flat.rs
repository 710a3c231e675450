//! The flat table: states of one word, side by side with their fingerprints.
//!
//! Two neighbouring cache lines make a *group* of seven entries, guarded by one sequence number:
//! even, nobody writes; odd, someone does. A reader reads, decides, and then checks that the
//! number has not changed; so a denial only reads, and scales with the cores. A writer changes
//! the number by compare-and-swap from what it read, so that a grant is decided on exactly the
//! state that it changes.
//!
//! ```text
//!  line 0  | sequence | spilled | fingerprint state | fingerprint state | fingerprint state |
//!  line 1  | fingerprint state | fingerprint state | fingerprint state | fingerprint state |
//! ```
//!
//! A fingerprint is 48 bits of the key's hash, 15 of the limit's version, and a pin. An entry
//! whose state has passed is as good as unused (see [`scale`](crate::algorithm)) and is simply
//! taken over: there is no sweeper. The table never grows and never moves; a key that finds its
//! group full of live ones spills into the [`Shards`](super::shards).
//!
//! Nothing here knows what a word means: limits and their versions are the gate's.

use super::pages::{Pages, Words};
use super::version::UNNUMBERED;
use crate::algorithm::word_at;
use crate::sync::{AtomicU64, Backoff, Ordering, fence};

const GROUP_WORDS: usize = 16;
pub(super) const ENTRIES: usize = 7;
const SEQUENCE: usize = 0;
const SPILLED: usize = 1;
const FIRST: usize = 2;

/// A key's entry is taken over only so long after its state has passed.
///
/// A thread that holds a lock may have read its clock before it had the lock: reading the
/// processor's counter waits for nothing, so it can run ahead of the instruction that takes
/// the lock, by as long as that one takes to get its cache line. If such a thread finds no
/// state of its key, because another one took the entry over by a later reading, the state must
/// have passed at its own, earlier one as well: otherwise the key would be as good as unused
/// too early. Getting a cache line takes well below a microsecond; no fence is needed.
pub(super) const TAKEN_OVER_AFTER_US: u64 = 8;

const PINNED: u64 = 1;
const FINGERPRINT: u64 = !0xffff;

/// Keys that the table holds, of a hundred entries: at this load one key in fifty finds its
/// group full.
const LOAD_PERCENT: usize = 55;

pub(crate) struct Flat {
    words: Words,
    first: usize,
    groups: usize,
}

/// What an entry keeps of its key: a part of its hash, and the version of its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    #[inline]
    pub(crate) fn new(hash: u64, version: u16) -> Self {
        debug_assert!(version > 0 && version < 1 << 15, "zero would look like an empty entry");
        Self((hash << 16) | (u64::from(version) << 1))
    }

    pub(crate) fn version(self) -> u16 {
        (self.0 as u16) >> 1
    }

    pub(super) fn is_key_of(self, hash: u64) -> bool {
        self.version() != 0 && self.0 & FINGERPRINT == hash << 16
    }
}

/// What a reader read, good as long as the sequence number has not changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    sequence: u64,
    entry: usize,
    pub(crate) word: u64,
}

#[derive(Clone, Copy)]
pub(crate) struct EntryGroup<'a>(&'a [AtomicU64; GROUP_WORDS]);

impl Flat {
    pub(crate) fn new(max_keys: usize, pages: Pages) -> Self {
        let groups = (max_keys.saturating_mul(100) / LOAD_PERCENT).div_ceil(ENTRIES).max(1);
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
    pub(crate) fn group(&self, index: usize) -> EntryGroup<'_> {
        let at = self.first + index * GROUP_WORDS;
        let (groups, _) = self.words[at..].as_chunks::<GROUP_WORDS>();
        EntryGroup(&groups[0])
    }

    /// Reads from both lines of a group, so that they are in the cache when they are needed.
    #[inline]
    pub(crate) fn touch(&self, index: usize) -> u64 {
        let group = self.group(index);
        group.0[SEQUENCE].load(Ordering::Relaxed) ^ group.0[GROUP_WORDS - 1].load(Ordering::Relaxed)
    }
}

impl<'a> EntryGroup<'a> {
    #[inline]
    fn fingerprint(self, entry: usize) -> u64 {
        self.0[(FIRST + 2 * entry) % GROUP_WORDS].load(Ordering::Relaxed)
    }

    #[inline]
    fn word(self, entry: usize) -> &'a AtomicU64 {
        // An entry is less than ENTRIES; the remainder only spares the bounds check.
        &self.0[(FIRST + 1 + 2 * entry) % GROUP_WORDS]
    }

    /// The state under this fingerprint. The caller must have read an even
    /// [sequence number](Self::sequence_at_rest).
    #[inline]
    pub(crate) fn read(self, sequence: u64, fingerprint: Fingerprint) -> Option<Seen> {
        let entry = (0..ENTRIES).find(|entry| self.fingerprint(*entry) & !PINNED == fingerprint.0)?;
        Some(Seen { sequence, entry, word: self.word(entry).load(Ordering::Relaxed) })
    }

    /// [`read`](Self::read) of an entry that is known.
    #[inline]
    pub(crate) fn read_entry(self, sequence: u64, entry: usize, fingerprint: Fingerprint) -> Option<Seen> {
        if self.fingerprint(entry) & !PINNED != fingerprint.0 {
            return None;
        }
        Some(Seen { sequence, entry, word: self.word(entry).load(Ordering::Relaxed) })
    }

    /// The sequence number; `None` while someone writes.
    #[inline]
    pub(crate) fn sequence_at_rest(self) -> Option<u64> {
        let sequence = self.0[SEQUENCE].load(Ordering::Acquire);
        (sequence & 1 == 0).then_some(sequence)
    }

    /// True if everything that was read was there at the same time.
    #[inline]
    pub(crate) fn is_unchanged(self, seen: Seen) -> bool {
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
        self.word(seen.entry).store(word, Ordering::Relaxed);
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

    /// Locks the group for this thread alone.
    pub(crate) fn lock(self) -> LockedGroup<'a> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(sequence) = self.sequence_at_rest()
                && self.begin(sequence)
            {
                return LockedGroup { group: self, sequence };
            }
            backoff.wait();
        }
    }
}

/// A group that only this thread may read and write, until it is dropped.
pub(crate) struct LockedGroup<'a> {
    group: EntryGroup<'a>,
    sequence: u64,
}

impl LockedGroup<'_> {
    /// The entry of a key, whatever the version of its limit.
    pub(crate) fn find(&self, hash: u64) -> Option<(usize, Fingerprint)> {
        self.fingerprints().enumerate().find(|(_, fingerprint)| fingerprint.is_key_of(hash))
    }

    /// Those of all entries, in their order.
    pub(crate) fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        (0..ENTRIES).map(|entry| Fingerprint(self.group.fingerprint(entry)))
    }

    pub(crate) fn word(&self, entry: usize) -> u64 {
        self.group.word(entry).load(Ordering::Relaxed)
    }

    /// Keeps a word in the entry of its key, or in a [free one](Self::free_entry).
    pub(crate) fn write(&self, entry: usize, fingerprint: Fingerprint, word: u64) {
        let pin = self.group.fingerprint(entry) & PINNED;
        self.group.0[FIRST + 2 * entry].store(fingerprint.0 | pin, Ordering::Relaxed);
        self.group.word(entry).store(word, Ordering::Relaxed);
    }

    /// An entry that may be taken over: an empty one, or else the one whose state has
    /// passed longest ago, and no less than [`TAKEN_OVER_AFTER_US`] ago.
    pub(crate) fn free_entry(&self, now_us: u64) -> Option<usize> {
        let idle_word = word_at(now_us.saturating_sub(TAKEN_OVER_AFTER_US));
        let unpinned = (0..ENTRIES).filter(|entry| self.group.fingerprint(*entry) & PINNED == 0);
        unpinned.min_by_key(|entry| self.word(*entry)).filter(|entry| self.word(*entry) <= idle_word)
    }

    /// Empties the entry of a key whose state is in the shards from now on. A pinned entry stays
    /// the key's, and says so by a version that nobody reads it by.
    pub(crate) fn clear(&self, entry: usize, hash: u64) {
        let is_pinned = self.group.fingerprint(entry) & PINNED != 0;
        let left = if is_pinned { Fingerprint::new(hash, UNNUMBERED).0 | PINNED } else { 0 };
        self.group.0[FIRST + 2 * entry].store(left, Ordering::Relaxed);
        self.group.word(entry).store(0, Ordering::Relaxed);
    }

    /// A pinned entry is never taken over.
    pub(crate) fn set_pinned(&self, entry: usize, pinned: bool) {
        let fingerprint = self.group.fingerprint(entry) & !PINNED;
        self.group.0[FIRST + 2 * entry].store(fingerprint | u64::from(pinned), Ordering::Relaxed);
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
