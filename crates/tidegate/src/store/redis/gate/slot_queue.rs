//! Queueing for slots of a concurrency limit in Redis.

use super::charge::{GateCharge, member};
use crate::clock::{MonotonicClock, StoreClock};
use crate::sleep::Sleep;
use crate::store::redis::request::{GateKey, UpdateKind};
use crate::store::redis::script::numbers::{QUEUED_HELD, QUEUED_WAITING};
use crate::store::redis::script::replay::ChargeMark;
use std::time::Duration;

/// A waiter asks again after about this time.
const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Queues until the slots are held, the queue is full (none), or the wait is over (none).
pub(super) async fn queue(key: GateKey, units: u64) -> Option<GateCharge> {
    let client = key.gate.client();
    let number = client.numbers(1);
    let member = member(&key.gate, number, units);
    let until = client.clock.now() + key.version.limit.wait();
    let mut in_queue = InQueue { key: &key, member: Some(member.clone()) };
    let mut is_new = true;
    loop {
        let kind = UpdateKind::Queue { member: member.clone(), is_new };
        let sent = client.clock.now();
        let queued = client.send(Some(key.clone()), kind).await.ok();
        match queued.and_then(|numbers| numbers.first().copied()) {
            Some(QUEUED_HELD) => {
                in_queue.member = None;
                return Some(GateCharge::new(&key, units, 0, ChargeMark::default(), Some(number), sent));
            }
            Some(QUEUED_WAITING) => {}
            // No answer: it may be queued or not, and asking again finds out.
            None if !is_new => {}
            _ => return None,
        }
        is_new = false;
        let now = client.clock.now();
        if now >= until {
            return None;
        }
        let left = until.since(now).max(Duration::from_millis(1));
        let pause = ASK_AGAIN.mul_f64(0.75 + client.random() / 2.0).min(left);
        let clock = StoreClock::Monotonic(MonotonicClock::new());
        Sleep::until(clock.clone(), clock.now() + pause).await;
    }
}

/// One who waits for slots. Dropped, it leaves the queue.
struct InQueue<'a> {
    key: &'a GateKey,
    member: Option<String>,
}

impl Drop for InQueue<'_> {
    fn drop(&mut self) {
        if let Some(member) = self.member.take() {
            self.key.send(UpdateKind::Leave(member));
        }
    }
}
