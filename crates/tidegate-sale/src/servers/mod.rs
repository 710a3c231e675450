//! The engine for any number of processes: Redis decides, RabbitMQ carries, PostgreSQL keeps.
//!
//! ```text
//!   reserve ─▶ Redis: one script takes stock, gives a number, writes the outbox
//!                │ at once, by the process that reserved; else by whoever finds it
//!                ▼
//!             RabbitMQ: quorum queue, confirmed ─▶ writer ─▶ PostgreSQL: order + stock
//! ```
//!
//! The database owns what is true: definitions, epochs, orders, dead letters, and what is to
//! be given back. Redis is a loading of it, and every loading has an epoch of its own. Until
//! the database has an order, three hold it: Redis, the broker, and the process that published
//! it. Any two of them may lose it.
//!
//! | a process or server ends | what finds it |
//! |---|---|
//! | after the reserve, before the broker | the outbox entry is published by whoever finds it (`relay`) |
//! | after the broker, before the outbox forgets | published again; the writer knows the number (`write`) |
//! | after the commit, before the broker knows | delivered again; likewise |
//! | after units came back, before Redis has them | `sale_returns` keeps them (`returns`) |
//! | after Redis has them, before the database knows | Redis remembers the id of each return |
//! | after a new epoch, before Redis is loaded | the next process begins anew, with another epoch (`rebuild`) |
//! | Redis forgets, goes back, or another takes over | every script names the run that was loaded (`link`) |
//! | PostgreSQL goes back in time | its rows are older than what Redis and the processes know (`history`) |
//! | the broker loses what it has confirmed | Redis has it, and a rebuild writes it (`recover`) |
//! | Redis and the broker lose it | its process has it, and writes it in a rebuild (`kept`) |
//! | all three lose it | a rebuild misses its number, names it and holds the sale (`acked`) |
//! | processes use two Redis servers | no sale is loaded until they agree (`fleet`) |
//! | an answer is lost | the same path is told the same number |

mod config;
mod points;

mod core;
mod db;
mod link;
mod migrate;
mod names;
mod shelf;

mod acked;
mod broker;
mod fleet;
mod kept;
mod lane;
mod letter;
mod relay;
mod write;
mod writer;

mod admin;
mod cut;
mod dead;
mod expire;
mod history;
mod look;
mod orders;
mod rebuild;
mod reconcile;
mod recover;
mod refresh;
mod repair;
mod returns;
mod times;
mod watch;

#[cfg(test)]
mod tests;

pub use config::{AnswerAfter, ServersConfig};

use self::broker::Broker;
use self::core::{Core, FLIGHTS};
use self::db::{Db, DbError, fault};
use self::lane::Ask;
use self::link::Link;
use crate::books::{Audit, Books, DeadLetter, Difference};
use crate::engine::{AdminError, Engine, Fault, Known, Reserve, Turn, Turned};
use crate::goods::GoodsId;
use crate::order::{Order, OrderSn, OrderState};
use crate::refusal::Refusal;
use crate::sale::{Change, Sale, SaleState};
use crate::secret::Secret;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

/// Longer keys are refused: they are kept for as long as the sale lasts.
const KEY_MAX: usize = 200;

/// Connections to the database beside those of the writers: loads, looks, returns, operators,
/// unpaid orders.
const WORK: usize = 8 + expire::EXPIRED_TOGETHER;

/// Connections for what buyers ask.
const ASKS: usize = 8;

/// A sale on Redis, RabbitMQ and PostgreSQL.
pub(crate) struct ServersEngine {
    core: Arc<Core>,
}

/// Why it cannot begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// What was configured cannot be.
    #[error(transparent)]
    Wrong(#[from] Fault),
    /// PostgreSQL does not answer, or not as it should: where, and why.
    #[error("{0}")]
    NoAnswer(String),
}

impl OpenError {
    fn of(error: DbError, db: &Db) -> Self {
        match error {
            DbError::Passing(why) => Self::NoAnswer(format!("PostgreSQL at {}: {why}", db.address)),
            DbError::Refused(_) => Self::Wrong(error.into()),
        }
    }
}

impl ServersEngine {
    /// Makes the tables, learns the sales, and begins to work. The database has to be there;
    /// Redis and RabbitMQ are connected to as soon as they are.
    pub(crate) async fn open(config: ServersConfig) -> Result<Self, OpenError> {
        if config.shards == 0 {
            return Err(fault("`shards`: at least 1").into());
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if config.prefix.is_empty() || config.prefix.len() > 64 || !config.prefix.bytes().all(is_plain) {
            return Err(fault("`prefix`: 1 to 64 letters, digits or any of `._-`").into());
        }
        let db = Db::new(&config.postgres, usize::from(config.shards) + WORK)?;
        let link = Link::new(&config.redis)?;
        let (broker, parcels) = Broker::new(&config.amqp)?;
        let failed = |error| OpenError::of(error, &db);
        migrate::migrate(&db).await.map_err(failed)?;
        let kept = migrate::setting(&db, "shards", &config.shards.to_string()).await.map_err(failed)?;
        let rows = shelf::Row::all(&db).await.map_err(failed)?;
        let shards = kept.parse().map_err(|_| fault("`shards` in sale_settings is no number"))?;
        if shards != config.shards {
            tracing::warn!(shards, "the first process decided how many shards there are");
        }
        let asks = Db::new(&config.postgres, ASKS)?;
        let core = Arc::new(Core::new(config, [db, asks], link, broker, shards));
        for row in &rows {
            core.learn(row);
        }
        let task = || Arc::clone(&core);
        let linked = task();
        core.spawn(async move { linked.link.maintain().await });
        core.spawn(broker::maintain(task(), parcels));
        core.spawn(writer::maintain(task()));
        core.spawn(refresh::keep_fresh(task()));
        core.spawn(refresh::listen(task()));
        core.spawn(relay::sweep(task()));
        core.spawn(watch::look(task()));
        core.spawn(returns::give_back(task()));
        core.spawn(expire::expire(task()));
        core.spawn(reconcile::keep_checking(task()));
        core.spawn(kept::keep_checking(task()));
        core.spawn(fleet::keep_alive(task()));
        Ok(Self { core })
    }

    /// What all processes sign with, if none was given to them: made once, kept in the database.
    pub(crate) async fn secret(&self) -> Result<Secret, OpenError> {
        let db = &self.core.db;
        let hex = migrate::secret(db).await.map_err(|error| OpenError::of(error, db))?;
        Ok(Secret::from_hex(&hex).ok_or_else(|| fault("the secret in `sale_settings` is none"))?)
    }
}

impl Drop for ServersEngine {
    fn drop(&mut self) {
        self.core.abort();
    }
}

impl Engine for ServersEngine {
    fn known(&self, goods: &GoodsId) -> Option<Arc<Known>> {
        self.core.known(goods)
    }

    fn all(&self) -> Vec<Arc<Known>> {
        self.core.shelves().iter().map(|shelf| shelf.known()).collect()
    }

    fn reserve(&self, reserve: Reserve) -> BoxFuture<'_, Result<OrderSn, Refusal>> {
        Box::pin(async move {
            let core = &self.core;
            let shelf = core.shelf(&reserve.goods).ok_or(Refusal::UnknownGoods)?;
            let known = shelf.known();
            if known.state == SaleState::Draft {
                return Err(Refusal::NotOpenYet { opens_at: known.sale.opens_at });
            }
            if reserve.key.as_ref().is_some_and(|key| key.len() > KEY_MAX || key.contains('\0')) {
                return Err(Refusal::BadRequest(
                    "`Idempotency-Key`: at most 200 bytes, none of them 0".into(),
                ));
            }
            // What could not be told or kept is not taken.
            let can_confirm = core.config.answers_before_broker() || core.broker.is_up();
            let can_answer = can_confirm && core.link.live().is_ok() && !shelf.kept.is_full();
            if core.is_stopping.load(Ordering::SeqCst) || !can_answer {
                return Err(Refusal::Busy);
            }
            let (told, answer) = oneshot::channel();
            shelf.asks.try_send(Ask { reserve, told }).map_err(|_| Refusal::Busy)?;
            match tokio::time::timeout(core.config.deadline, answer).await {
                Ok(Ok(answer)) => answer,
                _ => Err(Refusal::Busy),
            }
        })
    }

    fn order<'a>(&'a self, sn: &'a OrderSn) -> BoxFuture<'a, Result<Option<Order>, Fault>> {
        Box::pin(orders::find(&self.core, sn))
    }

    fn changed<'a>(
        &'a self,
        sn: &'a OrderSn,
        seen: OrderState,
        at_most: Duration,
    ) -> BoxFuture<'a, Result<Option<Order>, Fault>> {
        Box::pin(orders::changed(&self.core, sn, seen, at_most))
    }

    fn turn<'a>(&'a self, sn: &'a OrderSn, turn: Turn) -> BoxFuture<'a, Result<Turned, Fault>> {
        Box::pin(orders::turn(&self.core, sn, turn))
    }

    fn create<'a>(&'a self, sale: Sale, by: &'a str) -> BoxFuture<'a, Result<Arc<Known>, AdminError>> {
        Box::pin(admin::create(&self.core, sale, by))
    }

    fn change<'a>(
        &'a self,
        goods: &'a GoodsId,
        change: Change,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Known>, AdminError>> {
        Box::pin(admin::change(&self.core, goods, change, by))
    }

    fn books<'a>(&'a self, goods: &'a GoodsId) -> BoxFuture<'a, Result<Option<Books>, Fault>> {
        Box::pin(async move {
            match self.core.shelf(goods) {
                Some(shelf) => cut::books(&self.core, &shelf).await,
                None => Ok(None),
            }
        })
    }

    fn difference<'a>(&'a self, goods: &'a GoodsId) -> BoxFuture<'a, Result<Option<Difference>, Fault>> {
        Box::pin(repair::difference(&self.core, goods))
    }

    fn repair<'a>(
        &'a self,
        goods: &'a GoodsId,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Difference, AdminError>> {
        Box::pin(repair::repair(&self.core, goods, by))
    }

    fn audit<'a>(&'a self, goods: &'a GoodsId, at_most: u32) -> BoxFuture<'a, Result<Vec<Audit>, Fault>> {
        Box::pin(admin::audit(&self.core, goods, at_most))
    }

    fn dead<'a>(&'a self, goods: &'a GoodsId) -> BoxFuture<'a, Result<Vec<DeadLetter>, Fault>> {
        Box::pin(dead::list(&self.core, goods))
    }

    fn bury<'a>(
        &'a self,
        sn: &'a OrderSn,
        again: bool,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Turned, AdminError>> {
        Box::pin(dead::bury(&self.core, sn, again, by))
    }

    fn ready(&self) -> Result<(), String> {
        let (redis, rabbit) = (self.core.link.live().is_ok(), self.core.broker.is_up());
        let postgres = self.core.has_database.load(Ordering::Relaxed);
        let core = &self.core;
        if !redis {
            Err(format!("Redis at {} does not answer", core.link.address()))
        } else if !rabbit {
            Err(format!("RabbitMQ at {} does not answer", core.broker.address()))
        } else if !postgres {
            Err(format!("PostgreSQL at {} does not answer", core.db.address))
        } else {
            Ok(())
        }
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.core.is_stopping.store(true, Ordering::SeqCst);
            // Whatever is on its way has landed, or its entry stays for others to publish.
            let landed = self.core.flights.acquire_many(FLIGHTS);
            let _ = tokio::time::timeout(self.core.config.deadline, landed).await;
            self.core.abort();
            let _ = tokio::time::timeout(self.core.config.deadline, async {
                kept::write_all(&self.core).await;
                fleet::leave(&self.core).await;
            })
            .await;
            self.core.db.close();
            self.core.asks.close();
        })
    }
}
