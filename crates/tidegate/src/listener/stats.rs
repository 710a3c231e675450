//! What a listener counts, and how it is woken when a connection was closed.

use super::proxy_protocol::HeaderError;
use futures_util::task::AtomicWaker;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a [`Listener`](super::Listener) has counted so far. A live view: it stays current
/// after the listener was given to a server. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ListenerStats(pub(super) Arc<Counts>);

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) accepted: AtomicU64,
    pub(super) closed: AtomicU64,
    pub(super) waited: AtomicU64,
    pub(super) untrusted: AtomicU64,
    pub(super) accept_errors: AtomicU64,
    pub(super) idle: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) undecided: AtomicU64,
    pub(super) bad_headers: AtomicU64,
    pub(super) late_headers: AtomicU64,
    last_bad_header: Mutex<Option<(SocketAddr, HeaderError)>>,
    /// The listener, while it waits for a slot.
    pub(super) listener: AtomicWaker,
}

impl ListenerStats {
    /// Connections that are open, including those whose PROXY header is being read.
    pub fn open(&self) -> u64 {
        // In this order, so that it is never negative.
        let closed = self.0.closed.load(Ordering::Acquire);
        self.accepted() - closed
    }

    /// Connections that got a slot in all.
    pub fn accepted(&self) -> u64 {
        self.0.accepted.load(Ordering::Acquire)
    }

    /// Connections that had to wait for a slot in all. Those behind them in the system's queue are
    /// not counted.
    pub fn waited(&self) -> u64 {
        self.0.waited.load(Ordering::Relaxed)
    }

    /// Connections that were closed because their client had as many as it may have.
    pub fn refused(&self) -> u64 {
        self.0.refused.load(Ordering::Relaxed)
    }

    /// Connections that were closed because the store did not respond, or has no room for another
    /// client: how many their client had is not known.
    pub fn undecided(&self) -> u64 {
        self.0.undecided.load(Ordering::Relaxed)
    }

    /// Connections that timed out: no first byte came, or they were silent for too long.
    pub fn idle(&self) -> u64 {
        self.0.idle.load(Ordering::Relaxed)
    }

    /// Connections that were closed because a PROXY header is expected, and their peer may not
    /// send one.
    pub fn untrusted(&self) -> u64 {
        self.0.untrusted.load(Ordering::Relaxed)
    }

    /// Connections that were closed because they did not begin with a PROXY header, or
    /// ended within it.
    pub fn bad_headers(&self) -> u64 {
        self.0.bad_headers.load(Ordering::Relaxed)
    }

    /// The peer that sent the last malformed PROXY header, and what was wrong with it.
    pub fn last_bad_header(&self) -> Option<String> {
        self.0.last_bad_header().map(|(peer, error)| format!("{peer}: {error}"))
    }

    /// Connections that were closed because their PROXY header did not come in time.
    pub fn late_headers(&self) -> u64 {
        self.0.late_headers.load(Ordering::Relaxed)
    }

    /// Errors of the system's `accept`, such as too many open files.
    pub fn accept_errors(&self) -> u64 {
        self.0.accept_errors.load(Ordering::Relaxed)
    }
}

impl Counts {
    pub(super) fn last_bad_header(&self) -> MutexGuard<'_, Option<(SocketAddr, HeaderError)>> {
        self.last_bad_header.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
