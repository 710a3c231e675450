//! The one thread that writes, and the transaction that everything in its queue shares.
//!
//! While a transaction commits, further jobs gather; the next transaction takes them all. So
//! a crowd of buyers pays for one `fsync` together, and a single one waits for nobody. Stock
//! is taken once for all of them, with the version check.
//!
//! Where a transaction fails for one of them, halves are tried, and halves of those: the one
//! at fault fails alone.

use super::bells::Bells;
use super::fault::{Kind, WriteFault};
use super::health::Health;
use super::ledger::Ledger;
use super::shelf::Shelf;
use super::writer::{Errand, Job};
use super::{admin, load};
use crate::goods::GoodsId;
use crate::sale::{Change, SaleState};
use crate::time::now_ms;
use arc_swap::ArcSwap;
use rusqlite::{Connection, OptionalExtension as _, params};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Jobs that share a transaction at most.
const BATCH_MAX: usize = 1024;

/// All goods, in memory.
pub(super) type Shelves = ArcSwap<HashMap<GoodsId, Arc<Shelf>>>;

/// What the thread owns.
pub(super) struct Desk {
    pub(super) conn: Connection,
    pub(super) shelves: Arc<Shelves>,
    pub(super) bells: Arc<Bells>,
    pub(super) health: Arc<Health>,
    /// The version of each stock as this process left it.
    pub(super) versions: RefCell<HashMap<GoodsId, i64>>,
    /// Held as long as this thread lives: no other process serves the file.
    pub(super) _lock: std::fs::File,
    /// What a test wants the next commits to end in.
    #[cfg(test)]
    pub(super) commits: Arc<std::sync::Mutex<Vec<super::tests::Commit>>>,
}

impl Desk {
    /// Until nobody can ask any more.
    pub(super) fn serve(self, errands: mpsc::Receiver<Errand>) {
        let _watch = Watch(self.shelves.clone());
        // Closed before the watch looks.
        let mut errands = errands;
        let mut batch = Vec::with_capacity(BATCH_MAX);
        let mut stop = None;
        while stop.is_none() && errands.blocking_recv_many(&mut batch, BATCH_MAX) > 0 {
            let (mut jobs, mut looks) = (Vec::new(), Vec::new());
            for errand in batch.drain(..) {
                match errand {
                    Errand::Write(job) => jobs.push(job),
                    Errand::Look(look) => looks.push(look),
                    Errand::Stop(reply) => stop = Some(reply),
                }
            }
            if !jobs.is_empty() {
                self.settle(jobs);
            }
            looks.into_iter().for_each(|look| look(&self));
        }
        // Nothing was answered for what is still queued: nothing of it was promised.
        errands.close();
        while let Ok(errand) = errands.try_recv() {
            if let Errand::Write(job) = errand {
                job.end(&self, Err(WriteFault::stopped()));
            }
        }
        // The lock is gone before anybody hears that it has ended.
        drop(self);
        if let Some(reply) = stop {
            let _ = reply.send(());
        }
    }

    pub(super) fn shelf(&self, goods: &GoodsId) -> Option<Arc<Shelf>> {
        self.shelves.load().get(goods).cloned()
    }

    /// Runs jobs and ends them, together or, where one is at fault, apart.
    pub(super) fn settle(&self, mut jobs: Vec<Box<dyn Job>>) {
        let tx =
            Tx { conn: &self.conn, now: now_ms(), touched: RefCell::default(), entries: RefCell::default() };
        let outcome = self.transact(&tx, &mut jobs);
        if jobs.len() > 1 && outcome.as_ref().is_err_and(WriteFault::is_of_one) {
            let rest = jobs.split_off(jobs.len() / 2);
            self.settle(jobs);
            self.settle(rest);
            return;
        }
        let touched = tx.touched.into_inner();
        match outcome.as_ref().map_err(|fault| (&fault.kind, fault)) {
            Err((Kind::Unknown, fault)) => {
                let reason = fault.unknown();
                touched.iter().for_each(|goods| self.doubt(goods, &reason));
            }
            Err((Kind::Moved(goods), fault)) => self.pause(goods, &fault.what),
            _ => {}
        }
        for job in jobs {
            job.end(self, outcome.clone());
        }
        for shelf in touched.iter().filter_map(|goods| self.shelf(goods)) {
            shelf.publish();
        }
    }

    fn transact(&self, tx: &Tx<'_>, jobs: &mut [Box<dyn Job>]) -> Result<(), WriteFault> {
        let versions = self.transaction(|| {
            jobs.iter_mut().try_for_each(|job| job.run(tx))?;
            self.enter(tx)
        })?;
        self.versions.borrow_mut().extend(versions);
        Ok(())
    }

    /// Does it and commits, or leaves nothing of it.
    pub(super) fn transaction<T>(
        &self,
        work: impl FnOnce() -> Result<T, WriteFault>,
    ) -> Result<T, WriteFault> {
        let begun = self.conn.execute_batch("BEGIN IMMEDIATE").map_err(WriteFault::from);
        let outcome = begun.and_then(|()| work()).and_then(|done| self.commit().map(|()| done));
        if let Err(fault) = &outcome {
            self.health.note(fault);
        }
        if outcome.is_err() && !self.conn.is_autocommit() {
            // It fails where the failure itself has rolled back.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
        outcome
    }

    fn commit(&self) -> Result<(), WriteFault> {
        #[cfg(test)]
        if let Some(commit) = self.commits.lock().unwrap().pop() {
            return commit.end(&self.conn);
        }
        self.conn.execute_batch("COMMIT").map_err(|error| WriteFault::of_commit(&error))
    }

    /// Writes what all jobs moved, once for each kind of goods: only if the stock is as this
    /// process left it, and never below zero. Tells the new versions.
    fn enter(&self, tx: &Tx<'_>) -> Result<Vec<(GoodsId, i64)>, WriteFault> {
        let versions = self.versions.borrow();
        let mut next = Vec::new();
        for (goods, entry) in tx.entries.borrow().iter() {
            let version = versions.get(goods).copied().unwrap_or(0);
            let mut update = tx.conn.prepare_cached(
                "UPDATE sale_goods SET total = total + ?3, stock = stock + ?3 + ?4 - ?5,
                        placed = placed + ?5 - ?4, orders = orders + ?6, returned = returned + ?4 + ?7,
                        version = version + 1
                 WHERE goods = ?1 AND version = ?2 AND stock >= ?5",
            )?;
            let Entry { taken, given, dropped, added, orders } = *entry;
            if update.execute(params![goods.as_str(), version, added, given, taken, orders, dropped])? != 1 {
                return Err(WriteFault::moved(goods));
            }
            next.push((goods.clone(), version + 1));
        }
        Ok(next)
    }

    /// Nobody knows whether the file has taken what was written about these goods.
    fn doubt(&self, goods: &GoodsId, reason: &str) {
        if self.shelf(goods).is_some() {
            return self.pause(goods, reason);
        }
        if let Err(error) = self.adopt(goods) {
            tracing::error!(%goods, %error, "it is unknown whether the sale was created; `create` it again");
        }
    }

    /// Serves a sale that the file has and memory does not: whether it was created was unknown.
    pub(super) fn adopt(&self, goods: &GoodsId) -> rusqlite::Result<()> {
        if self.shelf(goods).is_some() {
            return Ok(());
        }
        if let Some(ledger) = self.load(goods).optional()? {
            self.add(ledger);
        }
        Ok(())
    }

    /// A new one in memory.
    pub(super) fn add(&self, ledger: Ledger) {
        let shelf = Arc::new(Shelf::new(ledger));
        let mut shelves: HashMap<GoodsId, Arc<Shelf>> = self.shelves.load().as_ref().clone();
        shelves.insert(shelf.goods.clone(), shelf);
        self.shelves.store(Arc::new(shelves));
    }

    /// Holds a sale whose memory and file may differ: in memory at once, in the file if it
    /// takes it. Going on reads the file again; until then, the first reason stands.
    pub(super) fn pause(&self, goods: &GoodsId, reason: &str) {
        let Some(shelf) = self.shelf(goods) else { return };
        if shelf.with(|ledger| ledger.is_in_doubt) {
            return;
        }
        tracing::error!(%goods, reason, "the sale is paused");
        shelf.with(|ledger| {
            ledger.is_in_doubt = true;
            ledger.state = ledger.state.held(reason);
        });
        shelf.publish();
        // From where the file stands: it may know of a change that memory does not.
        let written = self.transaction(|| {
            let state = load::goods(&self.conn, goods)?.state.held(reason);
            if state != SaleState::Closed {
                admin::write_state(&self.conn, goods, &state)?;
                let change = Change::Pause { reason: reason.to_owned() };
                admin::audit(&self.conn, goods, "tidegate", &change, now_ms())?;
            }
            Ok(state)
        });
        match written {
            Ok(state) => {
                shelf.with(|ledger| ledger.state = state);
                shelf.publish();
            }
            Err(fault) => {
                tracing::error!(%goods, error = %fault.what, "that it is paused could not be written");
            }
        }
    }
}

/// A transaction that several jobs share.
pub(super) struct Tx<'a> {
    pub(super) conn: &'a Connection,
    pub(super) now: u64,
    /// Goods of which something is written that memory knows, too.
    touched: RefCell<BTreeSet<GoodsId>>,
    entries: RefCell<BTreeMap<GoodsId, Entry>>,
}

/// What a transaction moves of one kind of goods.
#[derive(Clone, Copy, Default)]
pub(super) struct Entry {
    pub(super) taken: i64,
    /// Given up: back in stock.
    pub(super) given: i64,
    /// Dropped dead letters: they were never out of the file's stock.
    pub(super) dropped: i64,
    pub(super) added: i64,
    pub(super) orders: i64,
}

impl Tx<'_> {
    /// Enters what is moved; it is written once for all jobs of the transaction.
    pub(super) fn entry(&self, goods: &GoodsId, enter: impl FnOnce(&mut Entry)) {
        self.touch(goods);
        enter(self.entries.borrow_mut().entry(goods.clone()).or_default());
    }

    /// If the outcome of this transaction is unknown, memory and file may differ about these.
    pub(super) fn touch(&self, goods: &GoodsId) {
        self.touched.borrow_mut().insert(goods.clone());
    }
}

/// If the thread panics, nobody is left waiting for it.
struct Watch(Arc<Shelves>);

impl Drop for Watch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for shelf in self.0.load().values() {
                shelf.with(Ledger::abandon);
            }
        }
    }
}
