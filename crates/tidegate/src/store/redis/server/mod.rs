//! One server: the queues before it, its breaker, and what is known about it.
//!
//! Operations wait in [queues](request_queue), go in [batches](batch) over a
//! [connection], and are answered by their deadline whatever happens to that
//! ([`supervise`]).

pub(crate) mod batch;
pub(crate) mod breaker;
pub(crate) mod clock_offset;
pub(crate) mod connection;
mod errors;
pub(crate) mod request_queue;
pub(crate) mod role;
pub(crate) mod supervise;

use super::request::{Operation, Unanswered};
use super::stats::count;
use super::store::RedisClient;
use crate::clock::Timestamp;
use breaker::Breaker;
use clock_offset::ClockOffset;
use request_queue::{QUEUES, QueuedOperation, RequestQueue};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) struct RedisServer {
    /// Where it was reached last.
    address: Mutex<String>,
    pub(crate) queues: [RequestQueue; QUEUES],
    pub(crate) breaker: Breaker,
    /// No longer part of the Cluster.
    pub(crate) is_retired: AtomicBool,
    /// True while batches are taken from its queues. Otherwise nobody looks at who waits there
    /// but the task that answers those whose deadline passes.
    pub(crate) is_served: AtomicBool,
    pub(crate) unserved: Notify,
    /// Its number, and since when it is known, on the local clock.
    pub(crate) number: usize,
    pub(crate) since: Timestamp,
    pub(crate) clock_offset: Mutex<ClockOffset>,
    /// The address and the evicting policy found there last; an empty one if nothing is evicted.
    policy: Mutex<(String, String)>,
}

impl RedisServer {
    pub(crate) fn new(address: String, number: usize, since: Timestamp) -> Self {
        Self {
            address: Mutex::new(address),
            queues: Default::default(),
            breaker: Breaker::default(),
            is_retired: AtomicBool::new(false),
            is_served: AtomicBool::new(false),
            unserved: Notify::new(),
            number,
            since,
            clock_offset: Mutex::new(ClockOffset::new(since)),
            policy: Mutex::default(),
        }
    }

    pub(crate) fn address(&self) -> String {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_address(&self, address: String) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    /// Remembers an evicting policy; true if it was another one before.
    pub(crate) fn is_new_policy(&self, policy: &str) -> bool {
        let found = (self.address(), policy.to_string());
        let mut policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = *policy != found;
        *policy = found;
        is_new
    }

    pub(crate) fn unanswered(&self, client: &RedisClient) -> Unanswered {
        self.breaker.unanswered(client.now())
    }

    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    /// Something that another server did not do, or this one not yet.
    pub(crate) fn redirect(&self, operation: Operation, is_ask_redirect: bool, not_before: Timestamp) {
        // In its own company: with others, of which only some have moved, it would be sent
        // back again.
        self.push(QueuedOperation { operation, is_alone: true, is_ask_redirect, not_before });
    }

    pub(crate) fn push(&self, queued: QueuedOperation) {
        self.queues[queued.operation.queue()].push(&self.breaker, queued);
    }

    pub(crate) fn wake_all(&self) {
        self.queues.iter().for_each(|queue| queue.wake.notify_one());
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queues.iter().all(RequestQueue::is_empty)
    }

    pub(crate) fn fail_all(&self, unanswered: Unanswered) {
        for queued in self.queues.iter().flat_map(RequestQueue::take) {
            queued.operation.fail(unanswered);
        }
    }

    /// Answers those in the queues whose deadline has passed.
    pub(crate) fn fail_late(&self, client: &RedisClient) {
        let (until, unanswered) = (client.now().before(client.config.deadline), self.unanswered(client));
        let late = self.queues.iter().map(|queue| queue.fail_late(until, unanswered)).sum();
        count(&client.counters.timeouts, late);
    }

    pub(crate) fn open_breaker(&self, client: &RedisClient, pause: Duration, why: &str) {
        if self.breaker.open(client.now() + pause) {
            tracing::warn!(server = self.address(), why, "Redis does not answer: gates fall back");
        }
        self.fail_all(self.unanswered(client));
    }

    pub(crate) fn close_breaker(&self) {
        if self.breaker.close() {
            tracing::info!(server = self.address(), "Redis answers again");
        }
    }
}
