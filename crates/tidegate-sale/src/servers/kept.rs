//! What this process has published, until PostgreSQL has it.
//!
//! Redis and the broker have it too. If both lose it, this process writes it itself: while its
//! goods are counted again, before the count, and after that as an order of an older epoch.
//!
//! A process that ends loses what it keeps; Redis and the broker still have that.

use super::acked::Acked;
use super::core::Core;
use super::db::{DbError, Param};
use super::letter::{Body, Letter, Sent};
use super::shelf::{Row, Shelf};
use super::watch;
use super::write::{Arrival, write};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Orders of one goods that a process keeps. It takes no more while PostgreSQL takes none.
const KEPT_MAX: usize = 500_000;

/// Entries that PostgreSQL is asked about at once.
const TOGETHER: usize = 5000;

/// An entry's epoch and last number. PostgreSQL writes the orders of a message one after the
/// other, so whoever finds the last finds all.
type Last = (u32, u64);

/// Messages of one goods, each with the orders of one outbox entry.
#[derive(Default)]
pub(super) struct Kept {
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    by_last: BTreeMap<Last, Arc<Letter>>,
    orders: usize,
}

impl Kept {
    pub(super) fn is_full(&self) -> bool {
        self.entries().orders >= KEPT_MAX
    }

    /// Keeps the orders of a message, before it is published.
    pub(super) fn keep(&self, letter: &Arc<Letter>) {
        let Some(last) = letter.last() else { return };
        let mut entries = self.entries();
        if entries.by_last.insert(last, Arc::clone(letter)).is_none() {
            entries.orders += orders(letter).len();
        }
    }

    fn drop_all(&self, written: &[Last]) {
        let mut entries = self.entries();
        for last in written {
            if let Some(letter) = entries.by_last.remove(last) {
                entries.orders -= orders(&letter).len();
            }
        }
    }

    /// All that are of an epoch before this one.
    fn before(&self, epoch: u32) -> Vec<(Last, Arc<Letter>)> {
        let entries = self.entries();
        entries.by_last.range(..(epoch, 0)).map(|(last, letter)| (*last, Arc::clone(letter))).collect()
    }

    pub(super) fn lasts(&self) -> Vec<Last> {
        self.entries().by_last.keys().copied().collect()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn orders(letter: &Letter) -> &[Sent] {
    match &letter.body {
        Body::Orders(orders) => &orders.orders,
        Body::Barrier { .. } => &[],
    }
}

/// Drops what PostgreSQL has, again and again. Ends with its task.
pub(super) async fn keep_checking(core: Arc<Core>) {
    loop {
        tokio::time::sleep(core.config.refresh).await;
        for shelf in core.shelves() {
            if let Err(error) = check(&core, &shelf).await {
                tracing::warn!(%error, goods = %shelf.goods, "orders that PostgreSQL may not have are kept");
            }
        }
    }
}

async fn check(core: &Core, shelf: &Shelf) -> Result<(), DbError> {
    for some in shelf.kept.lasts().chunks(TOGETHER) {
        let name = |(epoch, nth): &Last| format!("{}-{epoch}-{nth}", shelf.goods);
        let names: Vec<String> = some.iter().map(name).collect();
        let states = watch::states(core, &names).await?;
        let written = some.iter().zip(&names).filter(|(_, name)| states.contains_key(*name));
        shelf.kept.drop_all(&written.map(|(last, _)| *last).collect::<Vec<_>>());
    }
    // Its goods were counted without this process, which did not answer in time.
    write_before(core, shelf, shelf.known().epoch).await
}

/// Writes what is kept of the epochs before this one.
async fn write_before(core: &Core, shelf: &Shelf, epoch: u32) -> Result<(), DbError> {
    let kept = shelf.kept.before(epoch);
    let arrivals: Vec<Arrival> = kept.iter().flat_map(|(_, letter)| Arrival::all(letter, 0)).collect();
    for some in arrivals.chunks(core.config.batch_max) {
        // What even the dead letters cannot take was logged.
        write(core, some).await?;
    }
    shelf.kept.drop_all(&kept.iter().map(|(last, _)| *last).collect::<Vec<_>>());
    Ok(())
}

/// All that this process keeps of all goods, before it ends.
pub(super) async fn write_all(core: &Core) {
    for shelf in core.shelves() {
        if let Err(error) = write_before(core, &shelf, u32::MAX).await {
            tracing::warn!(%error, goods = %shelf.goods, "orders are left to Redis and the broker");
        }
    }
}

/// In the background: the goods are being counted, and this process writes its own before.
pub(super) fn answer(core: &Arc<Core>, shelf: &Arc<Shelf>, row: &Row) {
    let reported = &shelf.reported_round;
    if row.held.is_none() || reported.load(Ordering::SeqCst) == row.round {
        return;
    }
    if shelf.is_reporting.swap(true, Ordering::SeqCst) {
        return;
    }
    let (task, shelf, round) = (Arc::clone(core), Arc::clone(shelf), row.round);
    core.spawn(async move {
        match report(&task, &shelf, round).await {
            Ok(()) => shelf.reported_round.store(round, Ordering::SeqCst),
            // The next look tries again.
            Err(error) => tracing::warn!(%error, goods = %shelf.goods, "own orders are not written yet"),
        }
        shelf.is_reporting.store(false, Ordering::SeqCst);
    });
}

/// Writes its own orders, then says so, with the highest number that it has heard of.
pub(super) async fn report(core: &Core, shelf: &Shelf, round: i64) -> Result<(), DbError> {
    write_before(core, shelf, u32::MAX).await?;
    let sql = "INSERT INTO sale_reports (goods, owner, round, epoch, acked, sure) VALUES ($1, $2, $3, $4, $5, $6)
               ON CONFLICT (goods, owner) DO UPDATE
               SET round = excluded.round, epoch = excluded.epoch, acked = excluded.acked, sure = excluded.sure";
    // An epoch in which nothing was acknowledged must not be given out again either.
    let mut acked = shelf.acked();
    acked.raise(Acked { epoch: shelf.epoch_max(), ..Acked::default() });
    let Acked { epoch, highest, sure } = acked;
    let epoch = i32::try_from(epoch).unwrap_or(i32::MAX);
    let params: &[Param<'_>] = &[&shelf.goods.as_str(), &core.owner, &round, &epoch, &highest, &sure];
    core.db.ask(sql, params).await?;
    Ok(())
}
