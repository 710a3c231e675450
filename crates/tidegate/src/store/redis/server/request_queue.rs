//! Where operations wait for the next batch to one server.
//!
//! Requests about the same keys join one group, and the next batch carries all that has gathered.
//! So the busier it is, the fewer calls a request costs, and nobody waits for company.

use super::breaker::Breaker;
use crate::clock::Timestamp;
use crate::store::redis::request::{GateKey, Operation, Request, RequestGroup, Unanswered};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Batches that can be in flight to a server at once, each about other subjects: while the server
/// decides one, the next is encoded and the last is read.
pub(crate) const QUEUES: usize = 2;

/// The queue of a subject.
pub(crate) fn queue_of(key: &[u8]) -> usize {
    let mixed = key.iter().fold(0u8, |mixed, byte| mixed.rotate_left(3) ^ byte);
    usize::from(mixed ^ (mixed >> 4) ^ (mixed >> 2)) % QUEUES
}

/// Requests that share a group.
const REQUESTS_IN_GROUP: usize = 1024;

/// Batches of one queue go one after the other.
#[derive(Default)]
pub(crate) struct RequestQueue {
    state: Mutex<QueueState>,
    pub(crate) wake: Notify,
}

#[derive(Default)]
struct QueueState {
    operations: Vec<QueuedOperation>,
    /// The groups that others can still join.
    open: HashMap<u64, usize>,
}

pub(crate) struct QueuedOperation {
    pub(crate) operation: Operation,
    /// Sent in a call of its own.
    pub(crate) is_alone: bool,
    /// The hash slot is being moved, and this server is where it goes to.
    pub(crate) is_ask_redirect: bool,
    pub(crate) not_before: Timestamp,
}

impl QueuedOperation {
    pub(crate) fn new(operation: Operation, is_alone: bool) -> Self {
        Self { operation, is_alone, is_ask_redirect: false, not_before: Timestamp::default() }
    }
}

impl RequestQueue {
    /// One request. `is_same` says whether a group is about the same keys; `keys` is only called
    /// if there is none to join. True if it has joined one.
    pub(crate) fn add(
        &self,
        breaker: &Breaker,
        group_id: Option<u64>,
        is_same: impl Fn(&[GateKey]) -> bool,
        keys: impl FnOnce() -> SmallVec<[GateKey; 1]>,
        request: Request,
    ) -> bool {
        let mut state = self.lock();
        // Under the lock: whoever opens the breaker answers all that wait here.
        if !breaker.is_closed() {
            drop(state);
            drop(request);
            return false;
        }
        if let Some(group) = group_id.and_then(|id| state.joinable(id))
            && is_same(&group.keys)
        {
            // Whoever opened the group has woken the queue.
            group.requests.push(request);
            return true;
        }
        if let Some(id) = group_id {
            let at = state.operations.len();
            state.open.insert(id, at);
        }
        let operation = Operation::Decide(RequestGroup { keys: keys(), requests: vec![request] });
        state.operations.push(QueuedOperation::new(operation, group_id.is_none()));
        drop(state);
        self.wake.notify_one();
        false
    }

    /// Puts an operation behind all others. Requests that come from now on come after it.
    pub(crate) fn push(&self, breaker: &Breaker, queued: QueuedOperation) {
        let mut state = self.lock();
        if !breaker.is_closed() {
            drop(state);
            return queued.operation.fail(Unanswered::default());
        }
        state.open.clear();
        state.operations.push(queued);
        drop(state);
        self.wake.notify_one();
    }

    pub(crate) fn take(&self) -> Vec<QueuedOperation> {
        let mut state = self.lock();
        state.open.clear();
        std::mem::take(&mut state.operations)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().operations.is_empty()
    }

    /// True if something waits for its time.
    pub(crate) fn has_postponed(&self) -> bool {
        self.lock().operations.iter().any(|queued| queued.not_before != Timestamp::default())
    }

    /// Answers those who began to wait no later than `until`; returns how many requests that were.
    pub(crate) fn fail_late(&self, until: Timestamp, unanswered: Unanswered) -> u64 {
        let (mut requests, mut updates) = (Vec::new(), Vec::new());
        for queued in &mut self.lock().operations {
            match &mut queued.operation {
                Operation::Decide(group) => {
                    requests.extend(group.requests.extract_if(.., |request| request.since <= until));
                }
                Operation::Update(update) => {
                    updates.extend(update.answer.take_if(|_| update.since <= until));
                }
            }
        }
        // Without the lock: whoever is woken may come back here.
        for sender in updates {
            let _ = sender.send(Err(unanswered));
        }
        let late = requests.len() as u64;
        for mut request in requests {
            request.answer(Err(unanswered));
        }
        late
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    fn joinable(&mut self, group_id: u64) -> Option<&mut RequestGroup> {
        let at = *self.open.get(&group_id)?;
        match &mut self.operations[at].operation {
            Operation::Decide(group) if group.requests.len() < REQUESTS_IN_GROUP => Some(group),
            Operation::Decide(_) | Operation::Update(_) => None,
        }
    }
}
