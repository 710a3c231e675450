//! Batches: all that has gathered in a queue is sent over one connection, as one call or several
//! in a pipeline, and while it is in flight the next gathers.
//!
//! A call that was sent is never sent again unless it is certain that nothing was done.

use super::RedisServer;
use super::connection::ServerConnection;
use super::request_queue::{QueuedOperation, RequestQueue};
use crate::clock::Timestamp;
use crate::store::redis::gate::accept::ENTRIES_MAX;
use crate::store::redis::request::{
    KeyUpdate, Operation, RequestGroup, RequestMode, ScriptAnswer, UpdateKind,
};
use crate::store::redis::script::answer::Reply;
use crate::store::redis::script::encode::encode;
use crate::store::redis::stats::count;
use crate::store::redis::store::RedisClient;
use redis::Value;
use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
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

/// Why a connection is given up.
pub(super) struct Disconnect {
    pub(super) why: &'static str,
    pub(super) is_silent: bool,
    pub(super) has_answered: bool,
}

pub(super) struct Pipeline<'a> {
    pub(super) client: &'a Arc<RedisClient>,
    pub(super) server: &'a RedisServer,
    connection: ServerConnection,
    /// Batches in a row, of any queue, that were not answered.
    misses: AtomicU32,
    has_answered: AtomicBool,
    disconnect: Mutex<Option<Disconnect>>,
}

/// What became of one call.
pub(super) enum CallOutcome {
    Done,
    /// No answer in time: it may have been done.
    Missed,
    /// The connection is gone, and it may have been done.
    Disconnected,
    /// The server says that it is not the one to use now.
    WrongServer(&'static str),
}

/// What one call carries.
struct Call {
    operations: Vec<Operation>,
    is_ask_redirect: bool,
}

impl<'a> Pipeline<'a> {
    pub(super) fn new(
        client: &'a Arc<RedisClient>,
        server: &'a RedisServer,
        connection: ServerConnection,
    ) -> Self {
        Self {
            client,
            server,
            connection,
            misses: AtomicU32::new(0),
            has_answered: AtomicBool::new(false),
            disconnect: Mutex::default(),
        }
    }

    /// Serves all queues until the connection is given up.
    pub(super) async fn run(&self) -> Disconnect {
        futures_util::future::join_all(self.server.queues.iter().map(|queue| self.run_queue(queue))).await;
        let disconnect = self.disconnect.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (why, is_silent) =
            disconnect.map_or(("it is no longer needed", false), |lost| (lost.why, lost.is_silent));
        Disconnect { why, is_silent, has_answered: self.has_answered.load(Ordering::Relaxed) }
    }

    pub(super) fn give_up(&self, why: &'static str, is_silent: bool) {
        let mut disconnect = self.disconnect.lock().unwrap_or_else(PoisonError::into_inner);
        disconnect.get_or_insert(Disconnect { why, is_silent, has_answered: false }).is_silent |= is_silent;
        drop(disconnect);
        self.server.is_served.store(false, Ordering::Relaxed);
        self.server.unserved.notify_one();
        // The other queues, too, once their batch is over.
        self.server.wake_all();
    }

    fn is_given_up(&self) -> bool {
        self.disconnect.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    async fn run_queue(&self, queue: &RequestQueue) {
        while !self.is_given_up() {
            let waiting = queue.take();
            if waiting.is_empty() {
                if self.server.is_retired.load(Ordering::Relaxed) || self.client.is_closed() {
                    return self.give_up("it is no longer needed", false);
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
                return self.give_up("it does not answer in time", true);
            }
            for outcome in outcomes {
                match outcome {
                    CallOutcome::Done | CallOutcome::Missed => {}
                    CallOutcome::Disconnected => return self.give_up("the connection was closed", false),
                    CallOutcome::WrongServer(why) => return self.give_up(why, true),
                }
            }
        }
    }

    /// Puts operations into calls: all together on one server, by hash slot in a Cluster.
    fn calls(&self, waiting: Vec<QueuedOperation>) -> Vec<Call> {
        let mut calls: Vec<Call> = Vec::new();
        // The call that is being filled, and the entries that it may have to read.
        let mut by_hash_slot: HashMap<u16, (usize, u64)> = HashMap::new();
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
            if is_alone {
                calls.push(Call { operations: vec![operation], is_ask_redirect });
                continue;
            }
            let hash_slot = if self.client.map.is_cluster() { operation.hash_slot() } else { 0 };
            let entries = operation.entries();
            match by_hash_slot.get_mut(&hash_slot) {
                Some((at, sum))
                    if calls[*at].operations.len() < GROUPS_IN_CALL && *sum + entries <= ENTRIES_IN_CALL =>
                {
                    *sum += entries;
                    calls[*at].operations.push(operation);
                }
                _ => {
                    by_hash_slot.insert(hash_slot, (calls.len(), entries));
                    calls.push(Call { operations: vec![operation], is_ask_redirect: false });
                }
            }
        }
        calls
    }

    /// Takes out who went away, and answers those whose deadline has passed or whose denial is
    /// known by now.
    fn thin_out(&self, group: &mut RequestGroup, now: Timestamp) {
        let until = now.before(self.client.config.deadline);
        let RequestGroup { keys, requests } = group;
        requests.retain_mut(|request| {
            if request.is_over() {
                return false;
            }
            if request.since <= until {
                request.answer(Err(self.server.unanswered(self.client)));
                return false;
            }
            let ([key], RequestMode::Take(mode)) = (keys.as_slice(), request.mode) else { return true };
            let denial = key.gate.cached_denial(key.hash, &key.version, request.costs[0], mode);
            let Some(denial) = denial else { return true };
            request.answer(Ok(ScriptAnswer::denied(denial)));
            false
        });
    }

    async fn send(&self, Call { mut operations, is_ask_redirect }: Call) -> CallOutcome {
        let client = self.client;
        let sent = client.clock.now();
        let encoded = encode(client, &operations);
        let requests: usize = operations
            .iter()
            .map(|operation| match operation {
                Operation::Decide(group) => group.requests.len(),
                Operation::Update(_) => 0,
            })
            .sum();
        count(&client.counters.calls, 1);
        count(&client.counters.decisions, requests as u64);
        let call = self.connection.call(client, &encoded, is_ask_redirect);
        match self.in_time(&mut operations, call).await {
            Some(Ok(Value::Array(values))) => {
                let now_us = if let Some(Value::Int(now)) = values.first() { *now } else { 0 };
                let mut clock_offset =
                    self.server.clock_offset.lock().unwrap_or_else(PoisonError::into_inner);
                let done = clock_offset.earliest(sent, u64::try_from(now_us).unwrap_or(0));
                drop(clock_offset);
                let reply = Reply { client, server: self.server, sent, done };
                self.check_errors(&reply.read(operations, &values))
            }
            Some(Ok(_)) => {
                self.give_up_operations(operations);
                CallOutcome::WrongServer("it answers something else than a script's result")
            }
            Some(Err(error)) => self.refused(&error, operations),
            None => {
                self.give_up_operations(operations);
                CallOutcome::Missed
            }
        }
    }

    /// Waits for the answer as long as anyone does. Whose deadline passes is answered by then, and
    /// the call goes on for the others.
    async fn in_time<T>(&self, operations: &mut [Operation], call: impl Future<Output = T>) -> Option<T> {
        let (client, deadline) = (self.client, self.client.config.deadline);
        let sent = client.now();
        let mut call = std::pin::pin!(call);
        let mut answered_until = Timestamp::default();
        loop {
            // What nobody waits for is given one deadline from now.
            let next = operations.iter().filter_map(|operation| operation.next_since(answered_until)).min();
            let until = next.unwrap_or(sent) + deadline;
            if let Ok(answer) = timeout(until.since(client.now()), call.as_mut()).await {
                return Some(answer);
            }
            answered_until = client.now().before(deadline);
            let unanswered = self.server.unanswered(client);
            let late =
                operations.iter_mut().map(|operation| operation.fail_until(answered_until, unanswered));
            count(&client.counters.timeouts, late.sum());
            if operations.iter().all(|operation| operation.next_since(answered_until).is_none()) {
                return None;
            }
        }
    }

    /// What was sent may have been done: it counts as spent, and is not sent again.
    pub(super) fn give_up_operations(&self, operations: Vec<Operation>) {
        let unanswered = self.server.unanswered(self.client);
        for operation in operations {
            if let Operation::Decide(group) = &operation {
                group.release_slots();
            }
            operation.fail(unanswered);
        }
    }
}
