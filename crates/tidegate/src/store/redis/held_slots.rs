//! The slots that this node holds, and their renewal: a slot whose holder gives no sign of life is
//! free again when its lease ends.

use super::gate::charge::SlotHolder;
use super::lock;
use super::request::UpdateKind;
use super::store::RedisClient;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How often is looked which slots are due.
const PERIOD: Duration = Duration::from_millis(100);
/// Holders that are renewed by one operation.
const RENEWED_TOGETHER: usize = 64;

#[derive(Default)]
pub(super) struct HeldSlots {
    /// Those that were given up, too, until it is looked next.
    holders: Mutex<Vec<Weak<SlotHolder>>>,
    renew_all: Notify,
}

impl HeldSlots {
    pub(super) fn add(&self, holder: &Arc<SlotHolder>) {
        lock(&self.holders).push(Arc::downgrade(holder));
    }

    /// Has every slot renewed now: the server may not know them.
    pub(super) fn renew_all(&self) {
        self.renew_all.notify_one();
    }

    fn due(&self, all: bool) -> Vec<Arc<SlotHolder>> {
        let mut holders = lock(&self.holders);
        holders.retain(|holder| holder.strong_count() > 0);
        holders.iter().filter_map(Weak::upgrade).filter(|holder| holder.is_due(all)).collect()
    }
}

pub(super) async fn run(client: Arc<RedisClient>) {
    while !client.is_closed() {
        let all = timeout(PERIOD, client.held_slots.renew_all.notified()).await.is_ok();
        let mut by_key: HashMap<(u32, u64), Vec<Arc<SlotHolder>>> = HashMap::new();
        for holder in client.held_slots.due(all) {
            by_key.entry((holder.key.gate.id, holder.key.hash)).or_default().push(holder);
        }
        for holders in by_key.values().flat_map(|holders| holders.chunks(RENEWED_TOGETHER)) {
            let named = |holder: &Arc<SlotHolder>| (holder.clone(), holder.member());
            let kind = UpdateKind::Renew(holders.iter().map(named).collect());
            drop(client.send(Some(holders[0].key.clone()), kind));
        }
    }
}
