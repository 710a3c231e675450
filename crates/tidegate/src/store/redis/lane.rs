//! Where questions gather for the next flight.
//!
//! Those about the same keys become one group, and the next flight carries them all. So
//! the busier it is, the fewer calls a question costs, and nobody waits for company.

use super::job::{Group, Job, Key, Request};
use crate::clock::Timestamp;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Calls that can be on their way to a server at once, each about other subjects: while
/// the server decides one, the next is written and the last is read.
pub(crate) const LANES: usize = 2;

/// The lane of a subject.
pub(crate) fn lane(key: &[u8]) -> usize {
    let mixed = key.iter().fold(0u8, |mixed, byte| mixed.rotate_left(3) ^ byte);
    usize::from(mixed ^ (mixed >> 4) ^ (mixed >> 2)) % LANES
}

/// Requests that share a group.
const REQUESTS_IN_GROUP: usize = 1024;

/// Flights about some subjects, one after the other.
#[derive(Default)]
pub(super) struct Lane {
    gathered: Mutex<Gathered>,
    pub(super) wake: Notify,
}

#[derive(Default)]
pub(super) struct Gathered {
    pub(super) jobs: Vec<Waiting>,
    /// The groups that others can still join.
    pub(super) open: HashMap<u64, usize>,
}

pub(super) struct Waiting {
    pub(super) job: Job,
    /// Sent in a call of its own.
    pub(super) is_alone: bool,
    /// The slot is being moved, and this server is where it goes to.
    pub(super) is_asking: bool,
    pub(super) not_before: Timestamp,
}

impl Lane {
    pub(super) fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self) -> Vec<Waiting> {
        let mut gathered = self.lock();
        gathered.open.clear();
        std::mem::take(&mut gathered.jobs)
    }
}

impl Waiting {
    pub(super) fn new(job: Job, is_alone: bool) -> Self {
        Self { job, is_alone, is_asking: false, not_before: Timestamp::default() }
    }
}

impl Gathered {
    pub(super) fn joinable(&mut self, hash: u64) -> Option<&mut Group> {
        let at = *self.open.get(&hash)?;
        match &mut self.jobs[at].job {
            Job::Decide(group) if group.requests.len() < REQUESTS_IN_GROUP => Some(group),
            _ => None,
        }
    }

    pub(super) fn open(&mut self, hash: u64, keys: SmallVec<[Key; 1]>, request: Request, joins: bool) {
        if joins {
            self.open.insert(hash, self.jobs.len());
        }
        self.jobs.push(Waiting::new(Job::Decide(Group { keys, requests: vec![request] }), !joins));
    }
}
