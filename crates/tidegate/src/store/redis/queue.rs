//! Queueing for slots of a concurrency limit in Redis.

use super::charge::{Charge, member};
use super::gate::RedisGate;
use super::job::{Change, Key, What};
use super::plan::Mark;
use super::promise::promise;
use crate::clock::{MonotonicClock, StoreClock};
use crate::sleep::Sleep;
use std::sync::Arc;
use std::time::Duration;

/// A waiter asks again after about this time.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Queues until the slots are held, the queue is full (none), or the wait is over (none).
pub(super) async fn queue(gate: Arc<RedisGate>, key: Key, units: u64) -> Option<Charge> {
    let core = gate.core().clone();
    let number = core.numbers(1);
    let member = member(&gate, number, units);
    let until = core.clock.now() + key.version.limit.wait();
    let mut in_queue = InQueue { key: key.clone(), member: Some(member.clone()) };
    let mut is_new = true;
    loop {
        let (promise, awaited) = promise();
        let what = What::Queue { member: member.clone(), is_new };
        let (since, sent) = (core.now(), core.clock.now());
        core.change(Change { key: Some(key.clone()), what, since, promise: Some(promise) });
        let state = awaited.await.and_then(Result::ok).and_then(|told| told.first().copied());
        match state {
            Some(1) => {
                in_queue.member = None;
                return Some(Charge::new(&key, units, 0, Mark::default(), Some(number), sent));
            }
            Some(0) => {}
            // No answer: it may be queued or not, and asking again finds out.
            None if !is_new => {}
            _ => return None,
        }
        is_new = false;
        let now = core.clock.now();
        if now >= until {
            return None;
        }
        let pause =
            ASK_AGAIN.mul_f64(0.75 + core.random() / 2.0).min(until.since(now).max(Duration::from_millis(1)));
        let clock = StoreClock::Monotonic(MonotonicClock::new());
        let wake = clock.now() + pause;
        Sleep::until(clock, wake).await;
    }
}

/// One who waits for slots. Dropped, it leaves the queue.
struct InQueue {
    key: Key,
    member: Option<String>,
}

impl Drop for InQueue {
    fn drop(&mut self) {
        if let Some(member) = self.member.take() {
            self.key.send(What::Leave { member });
        }
    }
}
