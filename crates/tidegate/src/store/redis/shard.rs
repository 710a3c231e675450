//! One server: who waits for it, and whether it answers.
//!
//! Questions gather in its lanes ([`lane`](super::lane)), fly from there
//! ([`flight`](super::flight)), and are looked after whatever happens to the connection
//! ([`serve`](super::serve)).

use super::core::Core;
use super::job::{Fault, Job, Key, Request};
use super::lane::{LANES, Lane, Waiting};
use super::lead::Lead;
use super::stats::count;
use crate::clock::Timestamp;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

pub(crate) struct Shard {
    /// Where it is, as far as it is known.
    address: Mutex<String>,
    pub(super) lanes: [Lane; LANES],
    /// False while it does not answer: then nobody is made to wait for it.
    pub(super) is_up: AtomicBool,
    /// When it is tried again, on the real clock.
    retry_at_us: AtomicU64,
    pub(super) is_retired: AtomicBool,
    /// True while its lanes are flown. Otherwise nobody looks at who waits in them but
    /// the one who answers those whose deadline passes.
    pub(super) is_served: AtomicBool,
    pub(super) unserved: Notify,
    /// Which one it is, and since when it is known, on the local clock.
    pub(crate) number: usize,
    pub(crate) since: Timestamp,
    pub(super) lead: Mutex<Lead>,
    /// The server and its evicting policy, as last seen; empty if it evicts nothing.
    policy: Mutex<(String, String)>,
}

impl Shard {
    pub(crate) fn new(address: String, number: usize, since: Timestamp) -> Self {
        Self {
            is_served: AtomicBool::new(false),
            unserved: Notify::new(),
            number,
            since,
            lead: Mutex::new(Lead::new(since)),
            policy: Mutex::default(),
            address: Mutex::new(address),
            lanes: Default::default(),
            is_up: AtomicBool::new(true),
            retry_at_us: AtomicU64::new(0),
            is_retired: AtomicBool::new(false),
        }
    }

    pub(crate) fn address(&self) -> String {
        self.address.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_at(&self, address: String) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    /// Takes note of an evicting policy; true if it was another one before.
    pub(super) fn is_new_policy(&self, policy: &str) -> bool {
        let found = (self.address(), policy.to_string());
        let mut known = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = *known != found;
        *known = found;
        is_new
    }

    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    /// What to tell those whom it does not answer.
    pub(crate) fn fault(&self, core: &Core) -> Fault {
        let now_us = core.now().as_micros();
        Fault { retry_us: self.retry_at_us.load(Ordering::Relaxed).saturating_sub(now_us).max(1_000) }
    }

    /// No longer part of the Cluster.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
        self.wake_all();
    }

    /// One request. `is_same` says whether a group is about the same keys; `keys` is only
    /// called if none is gathering.
    pub(crate) fn ask(
        &self,
        lane: usize,
        hash: u64,
        joins: bool,
        is_same: impl Fn(&[Key]) -> bool,
        keys: impl FnOnce() -> SmallVec<[Key; 1]>,
        request: Request,
    ) {
        let lane = &self.lanes[lane];
        let mut gathered = lane.lock();
        // Looked at under the lock: whoever takes the server down answers all in the lane.
        if !self.is_up() {
            drop(gathered);
            request.promise.keep(Err(Fault::default()));
            return;
        }
        if joins
            && let Some(group) = gathered.joinable(hash)
            && is_same(&group.keys)
        {
            count(&group.keys[0].meter.core().counters.coalesced, 1);
            group.requests.push(request);
            // Whoever opened the group has woken the lane.
            return;
        }
        gathered.open(hash, keys(), request, joins);
        drop(gathered);
        lane.wake.notify_one();
    }

    /// Something that another server did not do.
    pub(super) fn redirect(&self, job: Job, is_asking: bool, not_before: Timestamp) {
        // In its own company: with others, of which only some have moved, it would be sent
        // back again.
        self.put(Waiting { job, is_alone: true, is_asking, not_before });
    }

    /// Puts something behind what has gathered. What is asked from now on comes after it.
    pub(super) fn put(&self, waiting: Waiting) {
        let lane = &self.lanes[waiting.job.lane()];
        let mut gathered = lane.lock();
        if !self.is_up() {
            drop(gathered);
            return waiting.job.fail(Fault::default());
        }
        gathered.open.clear();
        gathered.jobs.push(waiting);
        drop(gathered);
        lane.wake.notify_one();
    }

    pub(super) fn wake_all(&self) {
        self.lanes.iter().for_each(|lane| lane.wake.notify_one());
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.lanes.iter().all(|lane| lane.lock().jobs.is_empty())
    }

    pub(super) fn fail_all(&self, core: &Core) {
        let fault = self.fault(core);
        for waiting in self.lanes.iter().flat_map(Lane::take) {
            waiting.job.fail(fault);
        }
    }

    /// Answers those in the lanes whose deadline has passed.
    pub(super) fn fail_late(&self, core: &Core) {
        let (until, fault) = (core.now().before(core.config.deadline), self.fault(core));
        for lane in &self.lanes {
            let mut late = Vec::new();
            let mut gathered = lane.lock();
            for waiting in &mut gathered.jobs {
                if let Job::Decide(group) = &mut waiting.job {
                    late.extend(group.requests.extract_if(.., |request| request.since <= until));
                } else {
                    waiting.job.fail_until(until, fault);
                }
            }
            drop(gathered);
            count(&core.counters.timeouts, late.len() as u64);
            for request in late {
                request.promise.keep(Err(fault));
            }
        }
    }

    pub(super) fn goes_down(&self, core: &Core, pause: Duration, why: &str) {
        let retry_at = core.now() + pause;
        self.retry_at_us.store(retry_at.as_micros(), Ordering::Relaxed);
        if self.is_up.swap(false, Ordering::Relaxed) {
            tracing::warn!(server = self.address(), why, "Redis does not answer: gates fall back");
        }
        self.fail_all(core);
    }

    pub(super) fn comes_up(&self) {
        if !self.is_up.swap(true, Ordering::Relaxed) {
            tracing::info!(server = self.address(), "Redis answers again");
        }
    }
}
