//! Where operations wait for the next batch to one server.
//!
//! Requests about the same keys join one group, and the next batch carries all that has gathered.
//! So the busier it is, the fewer calls a request costs, and nobody waits for company.

use super::RedisServer;
use crate::clock::Timestamp;
use crate::store::redis::lock;
use crate::store::redis::request::{GateKey, Operation, Request, RequestGroup};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Mutex;
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

impl RedisServer {
    /// One request. True if it has joined others about the same keys, which have the same
    /// `group_id`.
    pub(crate) fn add(&self, group_id: Option<u64>, keys: &SmallVec<[GateKey; 1]>, request: Request) -> bool {
        let queue = &self.queues[queue_of(&keys[0].bytes)];
        let mut state = lock(&queue.state);
        // Under the lock: whoever opens the breaker fails all that wait here. Behind it, the request
        // is dropped.
        if !self.is_up() {
            return false;
        }
        let open = group_id.and_then(|id| state.open.get(&id).copied());
        if let Some(Operation::Decide(group)) = open.map(|at| &mut state.operations[at].operation)
            && group.requests.len() < REQUESTS_IN_GROUP
            && group.keys == *keys
        {
            // Whoever opened the group has woken the queue.
            group.requests.push(request);
            return true;
        }
        if let Some(id) = group_id {
            let at = state.operations.len();
            state.open.insert(id, at);
        }
        let operation = Operation::Decide(RequestGroup { keys: keys.clone(), requests: vec![request] });
        state.operations.push(QueuedOperation::new(operation, group_id.is_none()));
        drop(state);
        queue.wake.notify_one();
        false
    }

    /// Puts an operation behind all others. Requests that come from now on come after it.
    pub(crate) fn push(&self, queued: QueuedOperation) {
        let queue = &self.queues[queued.operation.queue()];
        let mut state = lock(&queue.state);
        // Otherwise it fails: it is dropped, behind the lock.
        if self.is_up() {
            state.open.clear();
            state.operations.push(queued);
            drop(state);
            queue.wake.notify_one();
        }
    }
}

impl RequestQueue {
    pub(crate) fn take(&self) -> Vec<QueuedOperation> {
        let mut state = lock(&self.state);
        state.open.clear();
        std::mem::take(&mut state.operations)
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.state).operations.is_empty()
    }

    /// True if something waits for its time.
    pub(crate) fn has_postponed(&self) -> bool {
        lock(&self.state).operations.iter().any(|queued| queued.not_before != Timestamp::default())
    }

    /// Leaves those without an answer who began to wait no later than `until`; returns how many
    /// requests that were.
    pub(crate) fn fail_late(&self, until: Timestamp) -> u64 {
        // Dropped without the lock: whoever is woken may come back here.
        let (mut requests, mut updates) = (Vec::new(), Vec::new());
        for queued in &mut lock(&self.state).operations {
            match &mut queued.operation {
                Operation::Decide(group) => {
                    requests.extend(group.requests.extract_if(.., |request| request.since <= until));
                }
                Operation::Update(update) => {
                    updates.extend(update.answer.take_if(|_| update.since <= until));
                }
            }
        }
        requests.len() as u64
    }
}
