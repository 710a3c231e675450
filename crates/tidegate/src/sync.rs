//! The atomics of the lock-free paths: the standard ones, or loom's under its model.

#[cfg(not(tidegate_loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};

#[cfg(tidegate_loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering, fence},
    thread::yield_now,
};

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
