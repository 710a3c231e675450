//! What the parts of the engine share.

use super::broker::Broker;
use super::config::ServersConfig;
use super::db::Db;
use super::link::Link;
use super::shelf::{Row, Shelf};
use super::watch::Watchers;
use super::{lane, names};
use crate::engine::Known;
use crate::goods::GoodsId;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

/// Outbox entries that this process is publishing at once.
pub(super) const FLIGHTS: u32 = 1024;

/// Each holds two connections to the database, and all orders of its sale.
pub(super) const LOADS: usize = 3;

pub(super) struct Core {
    pub(super) config: ServersConfig,
    /// For what has to go on: writing, loading, giving back, and what operators do.
    pub(super) db: Db,
    /// For what buyers ask, however many of them.
    pub(super) asks: Db,
    pub(super) link: Link,
    pub(super) broker: Broker,
    pub(super) shards: u16,
    /// Who this process is, to others.
    pub(super) owner: String,
    pub(super) is_stopping: AtomicBool,
    /// The database answered when it was asked last.
    pub(super) has_database: AtomicBool,
    pub(super) flights: Arc<Semaphore>,
    /// Sales that this process loads at once, and those of them that are over.
    pub(super) loads: Semaphore,
    pub(super) closed_loads: Semaphore,
    /// Something is to be given back to Redis.
    pub(super) returned: Notify,
    /// What is known here may be wrong.
    pub(super) doubted: Notify,
    pub(super) watchers: Watchers,
    shelves: RwLock<BTreeMap<GoodsId, Arc<Shelf>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Core {
    pub(super) fn new(
        config: ServersConfig,
        [db, asks]: [Db; 2],
        link: Link,
        broker: Broker,
        shards: u16,
    ) -> Self {
        Self {
            config,
            db,
            asks,
            link,
            broker,
            shards,
            owner: format!("{:016x}", fastrand::u64(..)),
            is_stopping: AtomicBool::new(false),
            has_database: AtomicBool::new(true),
            flights: Arc::new(Semaphore::new(FLIGHTS as usize)),
            loads: Semaphore::new(LOADS),
            closed_loads: Semaphore::new(1),
            returned: Notify::new(),
            doubted: Notify::new(),
            watchers: Watchers::default(),
            shelves: RwLock::default(),
            tasks: Mutex::default(),
        }
    }

    /// Ends with the engine.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    /// Ends all of them where they are.
    pub(super) fn abort(&self) {
        self.tasks().abort_all();
    }

    fn tasks(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shelf(&self, goods: &GoodsId) -> Option<Arc<Shelf>> {
        self.shelves.read().unwrap_or_else(PoisonError::into_inner).get(goods).cloned()
    }

    pub(super) fn shelves(&self) -> Vec<Arc<Shelf>> {
        self.shelves.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// What the database says of a sale is known here from now on.
    pub(super) fn learn(self: &Arc<Self>, row: &Row) -> Arc<Shelf> {
        let goods = &row.sale.goods;
        if let Some(shelf) = self.shelf(goods) {
            shelf.learn(row);
            return shelf;
        }
        let mut shelves = self.shelves.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(shelf) = shelves.get(goods) {
            return Arc::clone(shelf);
        }
        let keys = names::Keys::new(&self.config.prefix, goods);
        let (shelf, asks) = Shelf::new(row, keys, names::shard(goods, self.shards));
        let shelf = Arc::new(shelf);
        shelves.insert(goods.clone(), Arc::clone(&shelf));
        drop(shelves);
        self.spawn(lane::serve(Arc::clone(self), Arc::clone(&shelf), asks));
        shelf
    }

    pub(super) fn known(&self, goods: &GoodsId) -> Option<Arc<Known>> {
        self.shelf(goods).map(|shelf| shelf.known())
    }

    pub(super) fn news(&self) -> String {
        names::news(&self.config.prefix)
    }
}
