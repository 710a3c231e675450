//! The engine of one process and one SQLite file, with nothing installed.
//!
//! A unit is taken in memory ([`shelf`]), under a lock per goods; the order goes to the one
//! thread that writes ([`desk`]), together with everybody else's, and its number is answered
//! after the commit. A start reads memory from the file under a new epoch ([`load`]). Orders
//! are looked up on a thread of their own ([`read`]).
//!
//! An order that the database will not have is answered with its number all the same: it is
//! durable as a dead letter, its state says `failed` and why, and an operator may still have
//! it placed. Where the file cannot be written, everything of that moment is given back, and
//! the buyers are told to try again.

mod accounts;
mod admin;
mod bells;
mod desk;
mod fault;
mod health;
mod ledger;
mod letters;
mod load;
mod migrate;
mod open;
mod place;
mod read;
mod repair;
mod shelf;
#[cfg(test)]
mod tests;
mod ticks;
mod turns;
mod writer;

pub use open::SaleOpenError;

use crate::books::{Audit, Books, DeadLetter, Difference};
use crate::engine::{AdminError, Engine, Fault, Known, Reserve, Turn, Turned};
use crate::goods::GoodsId;
use crate::order::{Order, OrderSn, OrderState};
use crate::refusal::Refusal;
use crate::sale::{Change, Sale};
use crate::sampled::warn_sampled;
use crate::secret::Secret;
use crate::time::now_ms;

use bells::Bells;
use desk::{Desk, Shelves};
use fault::Kind;
use futures_util::future::BoxFuture;
use health::Health;
use ledger::Asked;
use open::Opened;
use read::Reader;
use shelf::Shelf;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use writer::Writer;

pub(crate) struct Embedded {
    parts: Arc<Parts>,
    secret: Secret,
}

/// What the engine and its ticks share.
struct Parts {
    shelves: Arc<Shelves>,
    writer: Writer,
    reader: Reader,
    /// Counts all orders now and then, which may take a while.
    counter: Reader,
    bells: Arc<Bells>,
    health: Arc<Health>,
    is_stopping: AtomicBool,
    #[cfg(test)]
    commits: Arc<std::sync::Mutex<Vec<tests::Commit>>>,
    /// A test's broken variant: numbers are answered before they are durable.
    #[cfg(test)]
    answers_early: AtomicBool,
}

impl Parts {
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }
}

impl Embedded {
    /// Opens the file, or makes it. Every start is a new epoch.
    ///
    /// # Errors
    /// If another process serves it, or it cannot be used; the text says what to do.
    pub(crate) async fn open(path: &Path) -> Result<Self, SaleOpenError> {
        let Opened { path, conn, lock, secret } = Opened::new(path).await?;
        let error = |what: String| SaleOpenError { path: path.clone(), what };
        let (shelves, bells) = (Arc::new(Shelves::default()), Arc::new(Bells::new()));
        let health = Arc::new(Health::default());
        #[cfg(test)]
        let commits = Arc::default();
        let desk = Desk {
            conn,
            shelves: shelves.clone(),
            bells: bells.clone(),
            health: health.clone(),
            versions: RefCell::default(),
            _lock: lock,
            #[cfg(test)]
            commits: Arc::clone(&commits),
        };
        let thread = |name: &str| {
            let conn = open::connect(&path).map_err(error)?;
            Reader::start(conn, name).map_err(|why| error(format!("no thread can be started: {why}")))
        };
        let (reader, counter) = (thread("sale-reader")?, thread("sale-counter")?);
        let (writer, errands) = Writer::new();
        let (loaded, answer) = tokio::sync::oneshot::channel();
        let name = std::thread::Builder::new().name("sale-writer".to_owned());
        let spawned = name.spawn(move || {
            let start = desk.start().map_err(|why| why.to_string());
            let is_loaded = start.is_ok();
            if loaded.send(start).is_ok() && is_loaded {
                desk.serve(errands);
            }
        });
        spawned.map_err(|why| error(format!("no thread can be started: {why}")))?;
        answer.await.map_err(|_| error("the sale's writer has ended".into()))?.map_err(error)?;
        let parts = Arc::new(Parts {
            shelves,
            writer,
            reader,
            counter,
            bells,
            health,
            is_stopping: AtomicBool::new(false),
            #[cfg(test)]
            commits,
            #[cfg(test)]
            answers_early: AtomicBool::new(false),
        });
        tokio::spawn(ticks::run(Arc::downgrade(&parts)));
        Ok(Self { parts, secret })
    }

    /// What paths and tokens are signed with: made once, kept in the file.
    pub(crate) fn secret(&self) -> &Secret {
        &self.secret
    }

    fn shelf(&self, goods: &GoodsId) -> Option<Arc<Shelf>> {
        self.parts.shelves.load().get(goods).cloned()
    }

    /// The order that a path or a key has, of a sale that is over.
    async fn had(&self, ask: Reserve) -> Result<OrderSn, Refusal> {
        match self.parts.reader.look(move |conn| read::had(conn, &ask)).await {
            Ok(had) => had.unwrap_or(Err(Refusal::Closed)),
            Err(fault) => {
                warn_sampled!(error = %fault, "an order of a closed sale could not be looked up");
                Err(Refusal::Busy)
            }
        }
    }

    async fn find(&self, sn: &OrderSn) -> Result<Option<Order>, Fault> {
        let sn = sn.clone();
        self.parts.reader.look(move |conn| read::order(conn, &sn)).await
    }
}

impl Desk {
    /// A new epoch for everything, and memory as the file has it.
    fn start(&self) -> rusqlite::Result<()> {
        self.conn.execute("UPDATE sale_goods SET epoch = epoch + 1", [])?;
        let mut all = self.conn.prepare("SELECT goods FROM sale_goods")?;
        let all = all.query_map([], |row| load::read(row, 0, str::parse::<GoodsId>))?;
        let mut shelves = HashMap::new();
        for goods in all {
            let goods = goods?;
            let ledger = self.load(&goods)?;
            shelves.insert(goods, Arc::new(Shelf::new(ledger)));
        }
        self.shelves.store(Arc::new(shelves));
        Ok(())
    }
}

impl Engine for Embedded {
    fn known(&self, goods: &GoodsId) -> Option<Arc<Known>> {
        self.parts.shelves.load().get(goods).map(|shelf| shelf.known())
    }

    fn all(&self) -> Vec<Arc<Known>> {
        self.parts.shelves.load().values().map(|shelf| shelf.known()).collect()
    }

    fn reserve(&self, reserve: Reserve) -> BoxFuture<'_, Result<OrderSn, Refusal>> {
        Box::pin(async move {
            let shelf = self.shelf(&reserve.goods).ok_or(Refusal::UnknownGoods)?;
            if self.parts.is_stopping() {
                return Err(Refusal::Busy);
            }
            #[cfg(test)]
            let path = reserve.path;
            let asked = match shelf.ask(reserve.clone(), &self.parts.writer, now_ms()) {
                Err(Refusal::Closed) => return self.had(reserve).await,
                asked => asked?,
            };
            match asked {
                Asked::Told(sn) => Ok(sn),
                #[cfg(test)]
                Asked::Waits(_) if self.parts.answers_early.load(Ordering::Relaxed) => {
                    shelf.with(|ledger| ledger.number(&path)).ok_or(Refusal::Busy)
                }
                Asked::Waits(answer) => answer.await.unwrap_or(Err(Refusal::Busy)),
            }
        })
    }

    fn order<'a>(&'a self, sn: &'a OrderSn) -> BoxFuture<'a, Result<Option<Order>, Fault>> {
        Box::pin(self.find(sn))
    }

    fn changed<'a>(
        &'a self,
        sn: &'a OrderSn,
        seen: OrderState,
        at_most: Duration,
    ) -> BoxFuture<'a, Result<Option<Order>, Fault>> {
        Box::pin(async move {
            let change = async {
                loop {
                    let mut rung = std::pin::pin!(self.parts.bells.of(sn).notified());
                    // From here on no ring is missed.
                    rung.as_mut().enable();
                    match self.find(sn).await? {
                        Some(order) if order.state == seen => rung.await,
                        other => return Ok(other),
                    }
                }
            };
            match tokio::time::timeout(at_most, change).await {
                Ok(changed) => changed,
                Err(_) => self.find(sn).await,
            }
        })
    }

    fn turn<'a>(&'a self, sn: &'a OrderSn, turn: Turn) -> BoxFuture<'a, Result<Turned, Fault>> {
        Box::pin(async move { Ok(turns::turn(&self.parts.writer, sn.clone(), turn).await?) })
    }

    fn create<'a>(&'a self, sale: Sale, by: &'a str) -> BoxFuture<'a, Result<Arc<Known>, AdminError>> {
        Box::pin(admin::create(&self.parts.writer, sale, by))
    }

    fn change<'a>(
        &'a self,
        goods: &'a GoodsId,
        change: Change,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Known>, AdminError>> {
        Box::pin(async move {
            let shelf = self.shelf(goods).ok_or(AdminError::Unknown)?;
            admin::change(&self.parts.writer, shelf, change, by).await
        })
    }

    fn books<'a>(&'a self, goods: &'a GoodsId) -> BoxFuture<'a, Result<Option<Books>, Fault>> {
        Box::pin(async move { Ok(self.shelf(goods).map(|shelf| shelf.books())) })
    }

    fn difference<'a>(&'a self, goods: &'a GoodsId) -> BoxFuture<'a, Result<Option<Difference>, Fault>> {
        Box::pin(async move {
            let Some(shelf) = self.shelf(goods) else { return Ok(None) };
            self.parts.counter.look(move |conn| repair::difference(conn, &shelf.goods)).await.map(Some)
        })
    }

    fn repair<'a>(
        &'a self,
        goods: &'a GoodsId,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Difference, AdminError>> {
        Box::pin(async move {
            let shelf = self.shelf(goods).ok_or(AdminError::Unknown)?;
            let by = by.to_owned();
            let repaired = self.parts.writer.look(move |desk| desk.repair(&shelf, &by)).await;
            repaired.and_then(|done| done).map_err(admin::fault)?.map_err(AdminError::Refused)
        })
    }

    fn audit<'a>(&'a self, goods: &'a GoodsId, at_most: u32) -> BoxFuture<'a, Result<Vec<Audit>, Fault>> {
        let goods = goods.clone();
        Box::pin(self.parts.reader.look(move |conn| read::audit(conn, &goods, at_most)))
    }

    fn dead<'a>(&'a self, goods: &'a GoodsId) -> BoxFuture<'a, Result<Vec<DeadLetter>, Fault>> {
        let goods = goods.clone();
        Box::pin(self.parts.reader.look(move |conn| read::dead(conn, &goods)))
    }

    fn bury<'a>(
        &'a self,
        sn: &'a OrderSn,
        again: bool,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Turned, AdminError>> {
        Box::pin(async move {
            match letters::bury(&self.parts.writer, sn.clone(), again, by).await {
                Err(fault) if fault.kind == Kind::One => Err(AdminError::still_dead(&fault.what)),
                buried => buried.map_err(admin::fault),
            }
        })
    }

    fn ready(&self) -> Result<(), String> {
        if !self.parts.writer.is_open() {
            return Err("the sale's writer has ended".into());
        }
        match self.parts.health.fault() {
            Some(fault) => Err(format!("the sale's file cannot be written: {fault}")),
            None => Ok(()),
        }
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.parts.is_stopping.store(true, Ordering::Relaxed);
            self.parts.writer.stop().await;
        })
    }
}
