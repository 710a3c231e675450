//! Those who wait for an order to change. One question for all of them, every so often, and
//! none while nobody waits: a thousand watchers cost what one does.

use super::core::Core;
use super::db::DbError;
use crate::order::{OrderSn, OrderState};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

const EVERY: Duration = Duration::from_millis(50);

/// Orders in one question.
const TOGETHER: usize = 5000;

#[derive(Default)]
pub(super) struct Watchers {
    waiting: Mutex<Vec<Watcher>>,
    came: Notify,
}

struct Watcher {
    sn: String,
    seen: OrderState,
    changed: oneshot::Sender<()>,
}

impl Watchers {
    /// Ends once the database has it in another state than `seen`.
    pub(super) async fn watch(&self, sn: &OrderSn, seen: OrderState) {
        let (changed, told) = oneshot::channel();
        self.waiting().push(Watcher { sn: sn.to_string(), seen, changed });
        self.came.notify_one();
        let _ = told.await;
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Orders that are waited for, without those whose watchers have gone.
    fn orders(&self) -> Vec<String> {
        let mut waiting = self.waiting();
        waiting.retain(|watcher| !watcher.changed.is_closed());
        let mut orders: Vec<String> = waiting.iter().map(|watcher| watcher.sn.clone()).collect();
        orders.sort_unstable();
        orders.dedup();
        orders
    }

    fn tell(&self, states: &HashMap<String, OrderState>) {
        let is_changed =
            |watcher: &mut Watcher| states.get(&watcher.sn).is_some_and(|now| *now != watcher.seen);
        let changed: Vec<Watcher> = self.waiting().extract_if(.., is_changed).collect();
        for watcher in changed {
            // It may have gone away.
            let _ = watcher.changed.send(());
        }
    }
}

/// Ends with its task.
pub(super) async fn look(core: Arc<Core>) {
    loop {
        let orders = core.watchers.orders();
        if orders.is_empty() {
            core.watchers.came.notified().await;
            continue;
        }
        for some in orders.chunks(TOGETHER) {
            match states(&core, some).await {
                Ok(states) => core.watchers.tell(&states),
                Err(error) => tracing::warn!(%error, "watchers wait"),
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}

pub(super) async fn states(core: &Core, orders: &[String]) -> Result<HashMap<String, OrderState>, DbError> {
    let sql = "SELECT order_sn, state FROM sale_orders WHERE order_sn = ANY($1)
               UNION ALL
               SELECT order_sn, 5::int2 FROM sale_dead WHERE order_sn = ANY($1)";
    let rows = core.asks.ask(sql, &[&orders]).await?;
    let state = |row: &tokio_postgres::Row| Some((row.get(0), OrderState::of_code(row.get(1))?));
    Ok(rows.iter().filter_map(state).collect())
}
