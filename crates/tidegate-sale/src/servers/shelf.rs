//! One goods as this process knows it.

use super::acked::Acked;
use super::db::{Db, DbError};
use super::kept::Kept;
use super::lane::Ask;
use super::names::Keys;
use crate::engine::Known;
use crate::goods::GoodsId;
use crate::sale::{Sale, SaleState};
use arc_swap::ArcSwap;
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc;

/// Buyers who wait for their turn.
const WAITING_MAX: usize = 4096;

/// A sale as the database has it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) sale: Sale,
    pub(super) state: SaleState,
    pub(super) rev: i64,
    /// Grows with every change.
    pub(super) version: i64,
    pub(super) epoch: u32,
    /// The run of the Redis server that was loaded.
    pub(super) run: String,
    /// Why it is held while it is rebuilt.
    pub(super) held: Option<String>,
    /// The books did not balance: it is loaded again before it goes on.
    pub(super) is_doubted: bool,
    /// Names the loading that was begun last.
    pub(super) round: i64,
}

pub(super) const ROW: &str =
    "goods, definition, state, rev, version, epoch, redis_run, held, is_doubted, round";

impl Row {
    pub(super) fn read(row: &tokio_postgres::Row) -> Result<Self, DbError> {
        let wrong = |what: &str, error: serde_json::Error| {
            DbError::Refused(format!("`{what}` of `{}` in sale_goods: {error}", row.get::<_, &str>("goods")))
        };
        let epoch: i32 = row.get("epoch");
        Ok(Self {
            sale: serde_json::from_str(row.get("definition")).map_err(|error| wrong("definition", error))?,
            state: serde_json::from_str(row.get("state")).map_err(|error| wrong("state", error))?,
            rev: row.get("rev"),
            version: row.get("version"),
            epoch: u32::try_from(epoch).unwrap_or(0),
            run: row.get("redis_run"),
            held: row.get("held"),
            is_doubted: row.get("is_doubted"),
            round: row.get("round"),
        })
    }

    /// One that cannot be read, as a newer release may write it, takes no other with it.
    pub(super) async fn all(db: &Db) -> Result<Vec<Self>, DbError> {
        let rows = db.ask(&format!("SELECT {ROW} FROM sale_goods ORDER BY goods"), &[]).await?;
        let read =
            |row| Self::read(row).inspect_err(|error| tracing::error!(%error, "a sale is left out")).ok();
        Ok(rows.iter().filter_map(read).collect())
    }

    pub(super) async fn find(db: &Db, goods: &GoodsId) -> Result<Option<Self>, DbError> {
        let sql = format!("SELECT {ROW} FROM sale_goods WHERE goods = $1");
        db.ask(&sql, &[&goods.as_str()]).await?.first().map(Self::read).transpose()
    }

    /// Grows with every change, through all epochs.
    pub(super) fn stamp(&self) -> Stamp {
        (self.epoch, self.version)
    }

    /// What buyers meet.
    pub(super) fn shown(&self) -> SaleState {
        match (&self.held, &self.state) {
            (Some(reason), state @ (SaleState::Warm | SaleState::Open)) => state.held(reason),
            (_, state) => state.clone(),
        }
    }

    /// As the scripts know it, field by field.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let state = match self.state {
            SaleState::Draft => "draft",
            SaleState::Warm => "warm",
            SaleState::Open => "open",
            SaleState::Paused { .. } => "paused",
            SaleState::Closed => "closed",
        };
        let time = |at: Option<u64>| at.map(|at| at.to_string()).unwrap_or_default();
        vec![
            ("state", state.to_owned()),
            ("opens", time(self.sale.opens_at)),
            ("closes", time(self.sale.closes_at)),
            ("quota", self.sale.per_user.to_string()),
            ("single", u8::from(self.sale.one_each).to_string()),
        ]
    }
}

pub(super) struct Shelf {
    pub(super) goods: GoodsId,
    pub(super) keys: Keys,
    pub(super) shard: u16,
    pub(super) asks: mpsc::Sender<Ask>,
    /// This process is about to load it again.
    pub(super) is_rebuilding: AtomicBool,
    /// What this process has published and PostgreSQL may not have.
    pub(super) kept: Kept,
    /// The last round of which this process has said that its own orders are written.
    pub(super) reported_round: AtomicI64,
    pub(super) is_reporting: AtomicBool,
    known: ArcSwap<Known>,
    newest: Mutex<Newest>,
    acked: Mutex<Acked>,
}

/// What is left, as Redis said.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) epoch: u32,
    /// Grows with every change of it.
    pub(super) tick: i64,
    pub(super) units: i64,
}

/// Epoch and version: which of two rows is newer.
pub(super) type Stamp = (u32, i64);

/// What came late must not overwrite what is newer.
#[derive(Debug)]
struct Newest {
    row: Stamp,
    /// What the database has had, though not all of it was read.
    seen: Stamp,
    /// The highest epoch of all, also if the database has forgotten it.
    epoch: u32,
    left: (u32, i64),
}

impl Shelf {
    pub(super) fn new(row: &Row, keys: Keys, shard: u16) -> (Self, mpsc::Receiver<Ask>) {
        let (asks, receiver) = mpsc::channel(WAITING_MAX);
        let known = ArcSwap::from_pointee(known_of(row, None));
        let newest = Newest { row: row.stamp(), seen: row.stamp(), epoch: row.epoch, left: (0, 0) };
        let goods = row.sale.goods.clone();
        (
            Self {
                goods,
                keys,
                shard,
                asks,
                is_rebuilding: AtomicBool::new(false),
                kept: Kept::default(),
                reported_round: AtomicI64::new(0),
                is_reporting: AtomicBool::new(false),
                known,
                newest: Mutex::new(newest),
                acked: Mutex::default(),
            },
            receiver,
        )
    }

    pub(super) fn known(&self) -> Arc<Known> {
        self.known.load_full()
    }

    /// The highest acknowledged number that this process has heard of.
    pub(super) fn acked(&self) -> Acked {
        *self.acked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hear(&self, acked: Acked) {
        self.acked.lock().unwrap_or_else(PoisonError::into_inner).raise(acked);
    }

    pub(super) fn learn(&self, row: &Row) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if row.stamp() < newest.row {
            return;
        }
        self.believe(&mut newest, row);
    }

    /// The same of a row that is older than what was known: the database went back in time.
    pub(super) fn learn_older(&self, row: &Row) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        self.believe(&mut newest, row);
    }

    /// What had to be done about that is done: it need not be noticed again.
    pub(super) fn accept_older(&self, row: &Row) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.seen = row.stamp();
        self.believe(&mut newest, row);
    }

    /// The database has committed this.
    pub(super) fn note(&self, stamp: Stamp) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.seen = newest.seen.max(stamp);
    }

    fn believe(&self, newest: &mut Newest, row: &Row) {
        newest.row = row.stamp();
        newest.seen = newest.seen.max(newest.row);
        newest.epoch = newest.epoch.max(row.epoch);
        let known = self.known.load();
        self.known.store(Arc::new(known_of(row, known.left.filter(|_| known.epoch == row.epoch))));
    }

    /// What the database has had: whatever is asked for from now on is as new.
    pub(super) fn stamp(&self) -> Stamp {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).seen
    }

    /// The highest epoch that this process has ever known.
    pub(super) fn epoch_max(&self) -> u32 {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).epoch
    }

    /// The database does not have it any more. False if that was known.
    pub(super) fn lose(&self, why: &str) -> bool {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.seen == Stamp::default() {
            return false;
        }
        (newest.row, newest.seen) = Default::default();
        let known = Known::clone(&self.known.load());
        let state = known.state.held(why);
        self.known.store(Arc::new(Known { state, left: None, ..known }));
        true
    }

    /// What Redis said; none if it says nothing.
    pub(super) fn learn_left(&self, left: Option<Left>) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = left.map_or((0, 0), |left| (left.epoch, left.tick));
        if left.is_some() && stamp < newest.left {
            return;
        }
        newest.left = stamp;
        let left = left.map(|left| u64::try_from(left.units).unwrap_or(0));
        let known = self.known.load();
        if known.left != left {
            self.known.store(Arc::new(Known { left, ..Known::clone(&known) }));
        }
    }
}

fn known_of(row: &Row, left: Option<u64>) -> Known {
    Known { sale: row.sale.clone(), state: row.shown(), epoch: row.epoch, left }
}
