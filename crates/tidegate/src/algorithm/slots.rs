//! Concurrency: units held at the same time, and a bounded queue for more.
//!
//! First in, first out: nobody overtakes who waits. A slot that comes back is granted to
//! the first waiters that fit before their tasks even run, so that nobody takes it in between; what
//! was granted to a waiter that has gone away goes to the next.

use super::{Answer, Counting, Gauge, Grant, Mode, Step};
use crate::decision::DenialReason;
use crate::sync::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// A concurrency limit's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) amount: u64,
    pub(crate) queue: u64,
}

/// What one key holds, and who waits for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotState {
    pub(crate) held: u64,
    pub(crate) queue: VecDeque<Arc<Waiter>>,
    /// Waiters in the queue that have not gone away.
    pub(crate) waiting: u64,
}

/// One who waits for slots.
#[derive(Debug)]
pub(crate) struct Waiter {
    units: u64,
    state: Mutex<WaiterState>,
}

#[derive(Debug)]
enum WaiterState {
    Waiting(Waker),
    Granted,
    Gone,
}

impl Waiter {
    pub(crate) fn new(units: u64) -> Arc<Self> {
        Arc::new(Self { units, state: Mutex::new(WaiterState::Waiting(Waker::noop().clone())) })
    }

    /// True once the slots are held; otherwise `waker` is woken when it is.
    pub(crate) fn is_granted(&self, waker: &Waker) -> bool {
        let waker = waker.clone();
        let replaced = match &mut *lock(&self.state) {
            WaiterState::Waiting(held) => std::mem::replace(held, waker),
            WaiterState::Granted | WaiterState::Gone => waker,
        };
        // Without the lock: it may own anything, even the slots that this one waits for.
        drop(replaced);
        matches!(*lock(&self.state), WaiterState::Granted)
    }
}

impl Counting for Slots {
    type State = SlotState;

    fn decide(&self, _now_us: u64, state: &mut SlotState, cost: u64, mode: Mode, _limit: u64) -> Answer {
        let refused = if cost == 0 {
            return Answer::allowed(0, self.gauge(state, 0), Step::Keep);
        } else if cost > self.amount {
            DenialReason::Never
        } else if mode == Mode::Check {
            DenialReason::NeedsPermit
        } else if state.waiting > 0 || state.held + cost > self.amount {
            DenialReason::Busy
        } else {
            return Answer::allowed(0, self.gauge(state, cost), Step::Hold { units: cost });
        };
        Answer::denied(refused, self.gauge(state, 0))
    }

    fn apply(&self, state: &mut SlotState, step: Step) {
        if let Step::Hold { units } = step {
            state.held += units;
        }
    }

    /// Slots are [released](Slots::release), and waiters woken.
    fn refund(&self, _now_us: u64, _state: &mut SlotState, _grant: &mut Grant, _units: u64) -> bool {
        true
    }

    /// More slots than were free cannot be held.
    fn charge_debt(&self, _now_us: u64, _state: &mut SlotState, _units: u64) {}

    /// Slots are held for a limit, and not carried over to another one.
    fn used(&self, _now_us: u64, _state: &SlotState) -> u128 {
        0
    }

    fn convert(&self, _now_us: u64, _millionths: u128) -> SlotState {
        SlotState::default()
    }

    /// Never while somebody holds or waits.
    fn empty_us(&self, _now_us: u64, state: &SlotState) -> u64 {
        if state.held == 0 && state.waiting == 0 { 0 } else { u64::MAX }
    }
}

impl Slots {
    /// Puts a waiter at the end of the queue; false if it is full.
    pub(crate) fn enqueue(&self, state: &mut SlotState, waiter: &Arc<Waiter>) -> bool {
        if state.waiting >= self.queue || waiter.units > self.amount {
            return false;
        }
        state.waiting += 1;
        state.queue.push_back(waiter.clone());
        true
    }

    /// Takes `units` back and grants them to waiters; the wakers are for after the lock.
    pub(crate) fn release(&self, state: &mut SlotState, units: u64) -> Vec<Waker> {
        state.held = state.held.saturating_sub(units);
        self.grant_waiters(state)
    }

    /// A waiter goes away. What it had been granted goes to the next.
    pub(crate) fn leave(&self, state: &mut SlotState, waiter: &Waiter) -> Vec<Waker> {
        let left = std::mem::replace(&mut *lock(&waiter.state), WaiterState::Gone);
        match left {
            WaiterState::Granted => self.release(state, waiter.units),
            WaiterState::Waiting(_) => {
                state.waiting = state.waiting.saturating_sub(1);
                // Those who left are skipped when their turn comes; they must not
                // pile up in front of one who never gets a slot either.
                if state.queue.len() as u64 > 2 * state.waiting + 16 {
                    state.queue.retain(|w| matches!(*lock(&w.state), WaiterState::Waiting(_)));
                }
                self.grant_waiters(state)
            }
            WaiterState::Gone => Vec::new(),
        }
    }

    /// Grants what is free to the first in the queue, as far as it fits.
    pub(crate) fn grant_waiters(&self, state: &mut SlotState) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(first) = state.queue.front() {
            let mut waiter = lock(&first.state);
            if let WaiterState::Waiting(waker) = &mut *waiter {
                if state.held + first.units > self.amount {
                    break;
                }
                wakers.push(std::mem::replace(waker, Waker::noop().clone()));
                *waiter = WaiterState::Granted;
                state.held += first.units;
                state.waiting -= 1;
            }
            drop(waiter);
            state.queue.pop_front();
        }
        wakers
    }

    /// What is left once `taken` more are held. Nobody overtakes who waits, so a slot that
    /// is free for the first in the queue is free for nobody else.
    fn gauge(&self, state: &SlotState, taken: u64) -> Gauge {
        let free = self.amount.saturating_sub(state.held + taken);
        Gauge::Plain { remaining: if state.waiting > 0 { 0 } else { free }, reset_us: 0 }
    }
}
