//! Batches: all that has gathered in a queue is sent over one connection, as one call or several
//! in a pipeline, and while it is in flight the next gathers.
//!
//! A call that was sent is never sent again unless it is certain that nothing was done.

use super::RedisServer;
use super::connection::ServerConnection;
use super::request_queue::{QueuedOperation, RequestQueue};
use crate::clock::Timestamp;
use crate::store::redis::gate::accept::ENTRIES_MAX;
use crate::store::redis::lock;
use crate::store::redis::request::{
    KeyUpdate, Operation, RequestGroup, RequestMode, ScriptAnswer, UpdateKind,
};
use crate::store::redis::script::answer::Reply;
use crate::store::redis::script::encode::encode;
use crate::store::redis::stats::count;
use crate::store::redis::store::RedisClient;
use redis::Value;
use smallvec::{SmallVec, smallvec};
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Groups that share a call: some hundred microseconds of the server's time.
const GROUPS_IN_CALL: usize = 64;
/// Entries of windows and logs that the groups of a call may have to read together, at half a
/// microsecond each: below the deadline at its worst.
const ENTRIES_IN_CALL: u64 = 2 * ENTRIES_MAX;
/// Batches in a row that may go unanswered before the breaker opens.
const MISSES: u32 = 3;
/// A hash slot that is being moved is tried again after this time.
pub(super) const TRY_AGAIN: Duration = Duration::from_millis(2);

pub(super) struct Pipeline<'a> {
    pub(super) client: &'a Arc<RedisClient>,
    pub(super) server: &'a RedisServer,
    connection: ServerConnection,
    /// Batches in a row, of any queue, that were not answered.
    misses: AtomicU32,
    pub(super) has_answered: AtomicBool,
    disconnect: Mutex<Option<Disconnect>>,
}

/// Why a connection is given up.
pub(super) struct Disconnect {
    pub(super) why: &'static str,
    /// The server is left alone for a while.
    pub(super) is_silent: bool,
}

impl Disconnect {
    pub(super) fn silent(why: &'static str) -> Self {
        Self { why, is_silent: true }
    }

    /// A connection can be made anew at once.
    pub(super) fn closed(why: &'static str) -> Self {
        Self { why, is_silent: false }
    }
}

/// What became of one call.
pub(super) enum CallOutcome {
    Done,
    /// No answer in time: it may have been done.
    Missed,
    GivenUp(Disconnect),
}

/// What one call carries.
struct Call {
    operations: Vec<Operation>,
    /// Entries of lists that it may have to read.
    entries: u64,
    is_ask_redirect: bool,
}

impl<'a> Pipeline<'a> {
    pub(super) fn new(
        client: &'a Arc<RedisClient>,
        server: &'a RedisServer,
        connection: ServerConnection,
    ) -> Self {
        let (misses, has_answered) = (AtomicU32::new(0), AtomicBool::new(false));
        Self { client, server, connection, misses, has_answered, disconnect: Mutex::default() }
    }

    /// Serves all queues until the connection is given up.
    pub(super) async fn run(&self) -> Disconnect {
        futures_util::future::join_all(self.server.queues.iter().map(|queue| self.run_queue(queue))).await;
        lock(&self.disconnect).take().unwrap_or(Disconnect::closed("it is no longer needed"))
    }

    pub(super) fn give_up(&self, Disconnect { why, is_silent }: Disconnect) {
        lock(&self.disconnect).get_or_insert(Disconnect::closed(why)).is_silent |= is_silent;
        self.server.is_served.store(false, Ordering::Relaxed);
        self.server.unserved.notify_one();
        // The other queues, too, once their batch is over.
        self.server.wake_all();
    }

    async fn run_queue(&self, queue: &RequestQueue) {
        while self.server.is_served.load(Ordering::Relaxed) {
            let waiting = queue.take();
            if waiting.is_empty() {
                if self.server.is_retired.load(Ordering::Relaxed) || self.client.is_closed() {
                    return self.give_up(Disconnect::closed("it is no longer needed"));
                }
                queue.wake.notified().await;
                continue;
            }
            let in_flight = self.calls(waiting).into_iter().map(|call| self.send(call));
            let outcomes = futures_util::future::join_all(in_flight).await;
            if outcomes.is_empty() {
                // Everyone was answered, or what is left has to wait for its time.
                if queue.has_postponed() {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                continue;
            }
            if outcomes.iter().any(|outcome| matches!(outcome, CallOutcome::Done)) {
                self.misses.store(0, Ordering::Relaxed);
                self.has_answered.store(true, Ordering::Relaxed);
            } else if self.misses.fetch_add(1, Ordering::Relaxed) + 1 >= MISSES {
                return self.give_up(Disconnect::silent("it does not answer in time"));
            }
            for outcome in outcomes {
                if let CallOutcome::GivenUp(disconnect) = outcome {
                    return self.give_up(disconnect);
                }
            }
        }
    }

    /// Puts operations into calls: all together on one server, by hash slot in a Cluster.
    fn calls(&self, waiting: Vec<QueuedOperation>) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        // The call that is being filled.
        let mut by_hash_slot: HashMap<u16, usize> = HashMap::new();
        let mut marks: HashSet<usize> = HashSet::new();
        let now = self.client.now();
        for mut queued in waiting {
            if queued.not_before > now {
                self.server.push(queued);
                continue;
            }
            if let Operation::Decide(group) = &mut queued.operation {
                self.thin_out(group, now);
                if group.requests.is_empty() {
                    continue;
                }
            }
            // A charge that is refunded twice: where it stands then is not known yet.
            if let Operation::Update(KeyUpdate {
                kind: UpdateKind::Refund { charges, has_own: true }, ..
            }) = &queued.operation
                && !marks.insert(Arc::as_ptr(&charges[0].mark).addr())
            {
                self.server.push(queued);
                continue;
            }
            let QueuedOperation { operation, is_alone, is_ask_redirect, .. } = queued;
            let hash_slot = if self.client.map.is_cluster() { operation.hash_slot() } else { 0 };
            let entries = operation.entries();
            let has_room = |at: &&usize| {
                let call: &Call = &calls[**at];
                call.operations.len() < GROUPS_IN_CALL && call.entries + entries <= ENTRIES_IN_CALL
            };
            if let Some(at) = by_hash_slot.get(&hash_slot).filter(has_room).filter(|_| !is_alone) {
                calls[*at].entries += entries;
                calls[*at].operations.push(operation);
                continue;
            }
            if !is_alone {
                by_hash_slot.insert(hash_slot, calls.len());
            }
            calls.push(Call { operations: vec![operation], entries, is_ask_redirect });
        }
        calls
    }

    /// Takes out who went away and those whose deadline has passed, and answers those whose denial
    /// is known by now.
    fn thin_out(&self, group: &mut RequestGroup, now: Timestamp) {
        let until = now.before(self.client.config.deadline);
        let RequestGroup { keys, requests } = group;
        requests.retain_mut(|request| {
            if request.since <= until || request.answer.as_ref().is_none_or(oneshot::Sender::is_closed) {
                return false;
            }
            let ([key], RequestMode::Take(mode)) = (keys.as_slice(), request.mode) else { return true };
            let Some(denial) = key.as_ref().cached_denial(request.costs[0], mode) else { return true };
            let (decisions, charges) = (smallvec![denial], SmallVec::new());
            if let Some(answer) = request.answer.take() {
                let _ = answer.send(ScriptAnswer { decisions, now_us: 0, charges });
            }
            false
        });
    }

    async fn send(&self, Call { mut operations, is_ask_redirect, .. }: Call) -> CallOutcome {
        let client = self.client;
        let sent = client.clock.now();
        let encoded = encode(client, &operations);
        let requests = operations.iter().map(|operation| match operation {
            Operation::Decide(group) => group.requests.len() as u64,
            Operation::Update(_) => 0,
        });
        count(&client.counters.calls, 1);
        count(&client.counters.decisions, requests.sum());
        let call = self.connection.call(client, &encoded, is_ask_redirect);
        match self.in_time(&mut operations, call).await {
            Some(Ok(Value::Array(values))) => {
                let now_us = if let Some(Value::Int(now)) = values.first() { *now } else { 0 };
                let now_us = u64::try_from(now_us).unwrap_or(0);
                let done = lock(&self.server.clock_offset).earliest(sent, now_us);
                let reply = Reply { client, server: self.server, sent, done };
                self.check_errors(&reply.read(operations, &values))
            }
            Some(Ok(_)) => {
                operations.iter().for_each(Operation::release_slots);
                CallOutcome::GivenUp(Disconnect::silent("it answers something else than a script's result"))
            }
            Some(Err(error)) => self.refused(&error, operations),
            None => {
                operations.iter().for_each(Operation::release_slots);
                CallOutcome::Missed
            }
        }
    }

    /// Waits for the answer as long as anyone does. Whose deadline passes is left without one by
    /// then, and the call goes on for the others.
    async fn in_time<T>(&self, operations: &mut [Operation], call: impl Future<Output = T>) -> Option<T> {
        let (client, deadline) = (self.client, self.client.config.deadline);
        let mut call = std::pin::pin!(call);
        // What nobody waits for is given one deadline from now.
        let mut until =
            operations.iter().filter_map(Operation::since).min().unwrap_or(client.now()) + deadline;
        loop {
            if let Ok(answer) = timeout(until.since(client.now()), call.as_mut()).await {
                return Some(answer);
            }
            let late = client.now().before(deadline);
            let failed = operations.iter_mut().map(|operation| operation.fail_until(late));
            count(&client.counters.timeouts, failed.sum());
            until = operations.iter().filter_map(Operation::since).min()? + deadline;
        }
    }
}
