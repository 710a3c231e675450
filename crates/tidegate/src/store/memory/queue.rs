//! Queueing for slots of a concurrency limit.

use super::charge::MemoryCharge;
use super::transaction::{HashedCheck, change_slots};
use crate::algorithm::Waiter;
use crate::gate::Gate;
use crate::sleep::Sleep;
use crate::store::Shares;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Queues for slots until they are held, the queue is full (none), or the limit's wait is over
/// (none). Each cost is a check of its own in the charge. Dropped before, it leaves the queue.
pub(crate) async fn queue(gate: &Gate, hash: u64, costs: &[u64]) -> Option<MemoryCharge> {
    let memory = gate.backend().memory()?;
    let mut sleep = Sleep::until(gate.clock().clone(), gate.clock().now() + memory.version().limit.wait());
    let shares: Shares = costs.iter().copied().enumerate().collect();
    let waiter = Waiter::new(shares.charged());
    let mut is_queued = false;
    change_slots(HashedCheck::new(memory, hash, 1), |slots, state| {
        is_queued = slots.enqueue(state, &waiter);
        // A slot may have come back between the check and the queue.
        slots.grant_waiters(state)
    });
    if !is_queued {
        return None;
    }
    let mut queued = Queued { gate: gate.clone(), hash, waiter, is_over: false };
    let is_granted = poll_fn(|context| {
        if queued.waiter.is_granted(context.waker()) {
            return Poll::Ready(true);
        }
        Pin::new(&mut sleep).poll(context).map(|()| false)
    });
    queued.is_over = is_granted.await;
    queued.is_over.then(|| MemoryCharge::of_slots(gate.clone(), hash, shares))
}

/// One who waits in a queue. Dropped, it leaves.
struct Queued {
    gate: Gate,
    hash: u64,
    waiter: Arc<Waiter>,
    /// The slots are held.
    is_over: bool,
}

impl Drop for Queued {
    fn drop(&mut self) {
        let Some(memory) = self.gate.backend().memory().filter(|_| !self.is_over) else { return };
        // Its waker may own anything, and must not be dropped under the key's lock.
        self.waiter.is_granted(Waker::noop());
        change_slots(HashedCheck::new(memory, self.hash, 1), |slots, state| slots.leave(state, &self.waiter));
    }
}
