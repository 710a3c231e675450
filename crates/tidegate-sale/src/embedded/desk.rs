//! The one thread that writes, and the transaction that everything in its queue shares.
//!
//! While a transaction commits, further jobs gather; the next transaction takes them all. So
//! a crowd of buyers pays for one `fsync` together, and a single one waits for nobody. Stock
//! is taken once for all of them, with the version check.
//!
//! Where a transaction fails for one of them, halves are tried, and halves of those: the one
//! at fault fails alone.

use super::admin;
use super::bells::Bells;
use super::fault::{Kind, WriteFault};
use super::ledger::Ledger;
use super::shelf::Shelf;
use super::writer::{Errand, Job};
use crate::goods::GoodsId;
use crate::sale::{Change, SaleState};
use crate::time::now_ms;
use arc_swap::ArcSwap;
use rusqlite::{Connection, params};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
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
        let tx = Tx { conn: &self.conn, now: now_ms(), entries: RefCell::default() };
        let outcome = self.transact(&tx, &mut jobs);
        if jobs.len() > 1 && outcome.as_ref().is_err_and(WriteFault::is_of_one) {
            let rest = jobs.split_off(jobs.len() / 2);
            self.settle(jobs);
            self.settle(rest);
            return;
        }
        let touched = tx.entries.into_inner();
        match outcome.as_ref().map_err(|fault| (&fault.kind, fault)) {
            Err((Kind::Unknown, fault)) => {
                let reason = format!("the file may not have taken what was written: {}", fault.what);
                touched.keys().for_each(|goods| self.pause(goods, &reason));
            }
            Err((Kind::Moved(goods), fault)) => self.pause(goods, &fault.what),
            _ => {}
        }
        for job in jobs {
            job.end(self, outcome.clone());
        }
        for shelf in touched.keys().filter_map(|goods| self.shelf(goods)) {
            shelf.publish();
        }
    }

    fn transact(&self, tx: &Tx<'_>, jobs: &mut [Box<dyn Job>]) -> Result<(), WriteFault> {
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        let worked = jobs.iter_mut().try_for_each(|job| job.run(tx)).and_then(|()| self.enter(tx));
        let outcome = worked.and_then(|versions| self.commit(tx).map(|()| versions));
        match outcome {
            Ok(versions) => {
                self.versions.borrow_mut().extend(versions);
                Ok(())
            }
            Err(fault) => {
                if !self.conn.is_autocommit() {
                    // It fails where the failure itself has rolled back.
                    let _ = self.conn.execute_batch("ROLLBACK");
                }
                Err(fault)
            }
        }
    }

    fn commit(&self, tx: &Tx<'_>) -> Result<(), WriteFault> {
        #[cfg(test)]
        if !tx.entries.borrow().is_empty()
            && let Some(commit) = self.commits.lock().unwrap().pop()
        {
            return commit.end(tx.conn);
        }
        tx.conn.execute_batch("COMMIT").map_err(|error| WriteFault::of_commit(&error))
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

    /// Holds a sale whose memory and file may differ: in memory at once, in the file if it
    /// takes it. Going on reads the file again; until then, the first reason stands.
    pub(super) fn pause(&self, goods: &GoodsId, reason: &str) {
        let Some(shelf) = self.shelf(goods) else { return };
        if shelf.with(|ledger| ledger.is_in_doubt) {
            return;
        }
        tracing::error!(%goods, reason, "the sale is paused");
        let state = shelf.with(|ledger| {
            ledger.is_in_doubt = true;
            if ledger.state == SaleState::Closed {
                return None;
            }
            ledger.state = ledger.state.paused(reason.to_owned());
            Some(ledger.state.clone())
        });
        shelf.publish();
        let Some(state) = state else { return };
        let change = Change::Pause { reason: reason.to_owned() };
        let write = || -> Result<(), WriteFault> {
            self.conn.execute_batch("BEGIN IMMEDIATE")?;
            admin::write_state(&self.conn, goods, &state)?;
            admin::audit(&self.conn, goods, "tidegate", &change, now_ms())?;
            Ok(self.conn.execute_batch("COMMIT")?)
        };
        if let Err(fault) = write() {
            if !self.conn.is_autocommit() {
                let _ = self.conn.execute_batch("ROLLBACK");
            }
            tracing::error!(%goods, error = %fault.what, "that it is paused could not be written");
        }
    }
}

/// A transaction that several jobs share.
pub(super) struct Tx<'a> {
    pub(super) conn: &'a Connection,
    pub(super) now: u64,
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
        enter(self.entries.borrow_mut().entry(goods.clone()).or_default());
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
