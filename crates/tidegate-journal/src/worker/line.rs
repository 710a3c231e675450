//! What the driver and a method's lane tell each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use tokio::sync::Notify;

pub(super) struct Line {
    pub(super) method: Arc<str>,
    /// Somebody should look through the records of this method in hand: one of them is to stop.
    pub(super) look: Notify,
    started: AtomicU64,
    aside: AtomicU32,
    is_stuck: AtomicBool,
    has_returned: AtomicBool,
}

impl Line {
    pub(super) fn of(method: &Arc<str>) -> Arc<Self> {
        Arc::new(Self {
            method: method.clone(),
            look: Notify::new(),
            started: AtomicU64::new(0),
            aside: AtomicU32::new(0),
            is_stuck: AtomicBool::new(false),
            has_returned: AtomicBool::new(false),
        })
    }

    /// A replay has started.
    pub(super) fn start(&self) {
        self.started.fetch_add(1, SeqCst);
    }

    /// How many replays have started so far.
    pub(super) fn started(&self) -> u64 {
        self.started.load(SeqCst)
    }

    pub(super) fn set_aside(&self, records: usize) {
        self.aside.store(u32::try_from(records).unwrap_or(u32::MAX), SeqCst);
    }

    /// How many were put off by their gate and wait in hand.
    pub(super) fn aside(&self) -> u32 {
        self.aside.load(SeqCst)
    }

    /// Nothing could start for the length of a lease: what was in hand has gone back to where
    /// others find it, and nothing more should be claimed.
    pub(super) fn stick(&self) {
        self.has_returned.store(true, SeqCst);
        self.is_stuck.store(true, SeqCst);
    }

    /// It goes on; answers whether it was stuck.
    pub(super) fn go_on(&self) -> bool {
        self.is_stuck.load(SeqCst) && self.is_stuck.swap(false, SeqCst)
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.is_stuck.load(SeqCst)
    }

    /// Some went back since this was last asked: there may be more than was found before.
    pub(super) fn take_returned(&self) -> bool {
        self.has_returned.load(SeqCst) && self.has_returned.swap(false, SeqCst)
    }
}
