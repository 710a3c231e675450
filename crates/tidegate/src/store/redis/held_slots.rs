//! The slots that this node holds, and their renewal: a slot whose holder gives no sign of life is
//! free again when its lease ends.

use super::gate::charge::SlotHolder;
use super::request::UpdateKind;
use super::store::RedisClient;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How often is looked which slots are due.
const PERIOD: Duration = Duration::from_millis(100);
/// Holders that are renewed by one operation.
const RENEWED_TOGETHER: usize = 64;

#[derive(Default)]
pub(super) struct HeldSlots {
    holders: Mutex<HashMap<u64, Weak<SlotHolder>>>,
    last_number: AtomicU64,
    /// Set when all of them are to be renewed at once.
    renews_all: AtomicBool,
    wake: Notify,
}

impl HeldSlots {
    /// The first of so many numbers for holders.
    pub(super) fn numbers(&self, count: u64) -> u64 {
        self.last_number.fetch_add(count, Ordering::Relaxed) + 1
    }

    pub(super) fn add(&self, number: u64, holder: &Arc<SlotHolder>) {
        self.lock().insert(number, Arc::downgrade(holder));
    }

    pub(super) fn remove(&self, number: u64) {
        self.lock().remove(&number);
    }

    /// Has every slot renewed now: the server may not know them.
    pub(super) fn renew_all(&self) {
        self.renews_all.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    fn due(&self) -> Vec<Arc<SlotHolder>> {
        let all = self.renews_all.swap(false, Ordering::Relaxed);
        let mut holders = self.lock();
        holders.retain(|_, holder| holder.strong_count() > 0);
        holders.values().filter_map(Weak::upgrade).filter(|holder| holder.is_due(all)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Weak<SlotHolder>>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) async fn run(client: Arc<RedisClient>) {
    while !client.is_closed() {
        let _ = timeout(PERIOD, client.held_slots.wake.notified()).await;
        let mut by_key: HashMap<(u32, u64), Vec<Arc<SlotHolder>>> = HashMap::new();
        for holder in client.held_slots.due() {
            by_key.entry((holder.key.gate.id, holder.key.hash)).or_default().push(holder);
        }
        for holders in by_key.values().flat_map(|holders| holders.chunks(RENEWED_TOGETHER)) {
            let named = |holder: &Arc<SlotHolder>| (holder.clone(), holder.member());
            let kind = UpdateKind::Renew { holders: holders.iter().map(named).collect() };
            client.send(Some(holders[0].key.clone()), kind, None);
        }
    }
}
