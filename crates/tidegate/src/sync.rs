//! The atomics of the lock-free paths: the standard ones, or loom's under its model. And the locks
//! of all others.

#[cfg(tidegate_loom)]
use loom as platform;
#[cfg(not(tidegate_loom))]
use std as platform;

pub(crate) use platform::hint::spin_loop;
pub(crate) use platform::sync::atomic::{AtomicU64, Ordering, fence};
pub(crate) use platform::thread::yield_now;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Nothing is left half changed under these locks, so a panic of another thread is no reason to stop.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for another thread that holds a lock for a few instructions: twice as long
/// each time, so that it gets its work done, and then gives the core away, because
/// that thread seems to have lost its own.
pub(crate) struct Backoff(u32);

impl Backoff {
    /// About half a microsecond: a dozen decisions of the other thread.
    const FIRST: u32 = 16;
    const DOUBLINGS: u32 = 4;

    pub(crate) fn new() -> Self {
        Self(0)
    }

    pub(crate) fn wait(&mut self) {
        if cfg!(tidegate_loom) || self.0 > Self::DOUBLINGS {
            return yield_now();
        }
        (0..Self::FIRST << self.0).for_each(|_| spin_loop());
        self.0 += 1;
    }
}
