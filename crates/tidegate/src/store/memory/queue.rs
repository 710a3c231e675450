//! Queueing for slots of a concurrency limit.

use super::charge::MemoryCharge;
use super::transaction::{HashedCheck, Write, with_state};
use crate::algorithm::{Plan, State, Waiter};
use crate::clock::Timestamp;
use crate::gate::Gate;
use crate::sleep::Sleep;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Queues for slots until they are held, the queue is full (none), or the limit's wait is over
/// (none). Each cost is a check of its own in the charge. Dropped before, it leaves the queue.
pub(crate) async fn queue(gate: &Gate, hash: u64, costs: &[u64]) -> Option<MemoryCharge> {
    let units = costs.iter().fold(0u64, |sum, cost| sum.saturating_add(*cost));
    let (mut queued, until) = Queued::enter(gate, hash, units)?;
    let mut sleep = Sleep::until(gate.clock().clone(), until);
    let is_granted = poll_fn(|context| {
        if queued.waiter.is_granted(context.waker()) {
            return Poll::Ready(true);
        }
        Pin::new(&mut sleep).poll(context).map(|()| false)
    });
    if !is_granted.await {
        return None;
    }
    queued.is_over = true;
    Some(MemoryCharge::of_slots(gate.clone(), hash, costs))
}

/// One who waits in a queue. Dropped, it leaves.
struct Queued {
    gate: Gate,
    hash: u64,
    waiter: Arc<Waiter>,
    /// The slots are held.
    is_over: bool,
}

impl Queued {
    /// None if the queue is full. Also until when to wait.
    fn enter(gate: &Gate, hash: u64, units: u64) -> Option<(Self, Timestamp)> {
        let memory = gate.backend().memory()?;
        let waiter = Waiter::new(units);
        let check = HashedCheck::new(memory, hash, units);
        let entered = with_state(check, |key| match (&key.version.plan, key.state) {
            (Plan::Slots(slots), State::Slots(state)) => {
                let until = Timestamp::from_micros(key.now_us) + key.version.limit.wait();
                // A slot may have come back between the check and the queue.
                let entered = slots.enqueue(state, &waiter).then(|| (until, slots.grant_waiters(state)));
                (entered, Write::Charged(0))
            }
            _ => (None, Write::Nothing),
        });
        let (until, wakers) = entered?;
        wakers.into_iter().for_each(Waker::wake);
        Some((Self { gate: gate.clone(), hash, waiter, is_over: false }, until))
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let Some(memory) = self.gate.backend().memory().filter(|_| !self.is_over) else { return };
        // Its waker may own anything, and must not be dropped under the key's lock.
        self.waiter.is_granted(Waker::noop());
        let wakers =
            with_state(HashedCheck::new(memory, self.hash, 1), |key| match (&key.version.plan, key.state) {
                (Plan::Slots(slots), State::Slots(state)) => {
                    (slots.leave(state, &self.waiter), Write::Charged(0))
                }
                _ => (Vec::new(), Write::Nothing),
            });
        wakers.into_iter().for_each(Waker::wake);
    }
}
