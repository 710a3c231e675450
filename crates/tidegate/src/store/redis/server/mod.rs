//! One server: the queues before it, its breaker, and what is known about it.
//!
//! Operations wait in [queues](request_queue), go in [batches](batch) over a
//! [connection], and are answered by their deadline whatever happens to that
//! ([`supervise`]).

pub(crate) mod batch;
pub(crate) mod clock_offset;
pub(crate) mod connection;
mod errors;
pub(crate) mod request_queue;
pub(crate) mod role;
pub(crate) mod supervise;

use super::lock;
use super::store::RedisClient;
use crate::clock::Timestamp;
use clock_offset::ClockOffset;
use request_queue::{QUEUES, RequestQueue};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) struct RedisServer {
    /// Where it was reached last.
    address: Mutex<String>,
    pub(crate) queues: [RequestQueue; QUEUES],
    /// The circuit breaker: while it is open, nobody waits for the server. It opens when the server
    /// does not answer and closes once a connection to it is ready. Between is half-open by
    /// construction: one task [connects](supervise), and callers are answered by the fallback until
    /// that has succeeded.
    breaker_is_open: AtomicBool,
    /// When the server is probed next, on the real clock.
    probe_at_us: AtomicU64,
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
            breaker_is_open: AtomicBool::new(false),
            probe_at_us: AtomicU64::new(0),
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
        lock(&self.address).clone()
    }

    /// Remembers an evicting policy; true if it was another one before.
    pub(crate) fn is_new_policy(&self, policy: &str) -> bool {
        let found = (self.address(), policy.to_string());
        std::mem::replace(&mut *lock(&self.policy), found.clone()) != found
    }

    pub(crate) fn wake_all(&self) {
        self.queues.iter().for_each(|queue| queue.wake.notify_one());
    }

    /// True while the server is there, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        !self.breaker_is_open.load(Ordering::Relaxed)
    }

    /// When whoever had no answer should try again.
    pub(crate) fn retry(&self, client: &RedisClient) -> Duration {
        let probe_at = Timestamp::from_micros(self.probe_at_us.load(Ordering::Relaxed));
        probe_at.since(client.now()).max(Duration::from_millis(1))
    }

    pub(crate) fn open_breaker(&self, client: &RedisClient, pause: Duration, why: &str) {
        self.probe_at_us.store((client.now() + pause).as_micros(), Ordering::Relaxed);
        if !self.breaker_is_open.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = self.address(), why, "Redis does not answer: gates fall back");
        }
        self.fail_all();
    }

    fn fail_all(&self) {
        self.queues.iter().for_each(|queue| drop(queue.take()));
    }

    pub(crate) fn close_breaker(&self) {
        if self.breaker_is_open.swap(false, Ordering::Relaxed) {
            tracing::info!(server = self.address(), "Redis answers again");
        }
    }
}
