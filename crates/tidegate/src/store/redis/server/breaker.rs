//! The circuit breaker of one server: while it is open, nobody waits for the server.
//!
//! It opens when the server does not answer and closes once a connection to it is ready. Between
//! is half-open by construction: one task [connects](super::supervise), and callers are answered
//! by the fallback until that has succeeded.

use crate::clock::Timestamp;
use crate::store::redis::request::Unanswered;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Breaker {
    is_open: AtomicBool,
    /// When the server is probed next, on the real clock.
    probe_at_us: AtomicU64,
}

impl Breaker {
    pub(crate) fn is_closed(&self) -> bool {
        !self.is_open.load(Ordering::Relaxed)
    }

    /// True if it was closed.
    pub(crate) fn open(&self, probe_at: Timestamp) -> bool {
        self.probe_at_us.store(probe_at.as_micros(), Ordering::Relaxed);
        !self.is_open.swap(true, Ordering::Relaxed)
    }

    /// True if it was open.
    pub(crate) fn close(&self) -> bool {
        self.is_open.swap(false, Ordering::Relaxed)
    }

    /// For those whom the server does not answer.
    pub(crate) fn unanswered(&self, now: Timestamp) -> Unanswered {
        let probe_at_us = self.probe_at_us.load(Ordering::Relaxed);
        Unanswered { retry_us: probe_at_us.saturating_sub(now.as_micros()).max(1_000) }
    }
}
