//! Calls that were cancelled while others had reserved behind them.
//!
//! What they had been granted cannot come back then: those behind were promised their
//! starts on top of it. When those go away too, as waiters of one process that hang up
//! together do, the last of them finds the others here and gives theirs back with its own.
//! Bounded: what finds no room stays spent.

use crate::sync::{AtomicU64, Ordering, lock};
use std::collections::HashMap;
use std::sync::Mutex;

/// The most that one gate remembers, over all keys.
const CANCELLED_MAX: u64 = 1_024;

/// What one gate remembers, by the hash of the key.
pub(crate) struct Cancelled<T> {
    by_key: Mutex<HashMap<u64, Vec<CancelledCall<T>>>>,
    /// How many there are: nearly always none, and then the lock is not taken.
    count: AtomicU64,
}

struct CancelledCall<T> {
    value: T,
    /// From then on it has flowed back by itself.
    until_us: u64,
}

impl<T> Cancelled<T> {
    pub(crate) fn new() -> Self {
        Self { by_key: Mutex::default(), count: AtomicU64::new(0) }
    }

    /// Remembers one until `until_us`, if there is room.
    pub(crate) fn remember(&self, hash: u64, value: T, now_us: u64, until_us: u64) {
        let mut by_key = lock(&self.by_key);
        if self.count.load(Ordering::Relaxed) >= CANCELLED_MAX {
            by_key.retain(|_, entries| {
                entries.retain(|entry| entry.until_us > now_us);
                !entries.is_empty()
            });
            let left: usize = by_key.values().map(Vec::len).sum();
            self.count.store(left as u64, Ordering::Release);
        }
        if self.count.load(Ordering::Relaxed) < CANCELLED_MAX {
            by_key.entry(hash).or_default().push(CancelledCall { value, until_us });
            self.count.fetch_add(1, Ordering::Release);
        }
    }

    /// Takes out up to `most` of a key, those with the highest rank, highest first.
    pub(crate) fn take_highest<R: Ord>(&self, hash: u64, most: usize, rank: impl Fn(&T) -> R) -> Vec<T> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut by_key = lock(&self.by_key);
        let Some(mut entries) = by_key.remove(&hash) else { return Vec::new() };
        entries.sort_by_key(|entry| rank(&entry.value));
        let taken = entries.split_off(entries.len().saturating_sub(most));
        if !entries.is_empty() {
            by_key.insert(hash, entries);
        }
        self.count.fetch_sub(taken.len() as u64, Ordering::Release);
        taken.into_iter().rev().map(|entry| entry.value).collect()
    }

    /// True if there is one of this key.
    #[cfg(feature = "redis")]
    pub(crate) fn has(&self, hash: u64) -> bool {
        !self.is_empty() && lock(&self.by_key).contains_key(&hash)
    }

    /// Forgets a key.
    pub(crate) fn forget(&self, hash: u64) {
        drop(self.take_highest(hash, usize::MAX, |_| ()));
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
}
