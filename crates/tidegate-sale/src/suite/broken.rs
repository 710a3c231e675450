//! Engines that are broken on purpose: the checks of this suite must see it.

use crate::books::{Audit, Books, DeadLetter, Difference};
use crate::engine::{AdminError, Engine, Fault, Known, Reserve, Turn, Turned};
use crate::goods::GoodsId;
use crate::order::{Order, OrderSn, OrderState};
use crate::refusal::Refusal;
use crate::sale::{Change, Sale};
use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How it is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Sells what is not there: a number for everybody who comes too late.
    Oversells,
    /// Gives the first number again.
    RepeatsNumbers,
    /// Takes a path as often as it comes.
    ForgetsPaths,
    /// Its books count a returned unit twice.
    ReturnsTwice,
    /// Its books do not know what is on its way or was just sold.
    MiscountsPlaced,
}

pub(crate) struct Broken {
    engine: Arc<dyn Engine>,
    way: Way,
    first: Mutex<Option<OrderSn>>,
}

impl Broken {
    pub(crate) fn over(engine: Arc<dyn Engine>, way: Way) -> Arc<dyn Engine> {
        Arc::new(Self { engine, way, first: Mutex::new(None) })
    }
}

impl Engine for Broken {
    fn known(&self, goods: &GoodsId) -> Option<Arc<Known>> {
        self.engine.known(goods)
    }

    fn all(&self) -> Vec<Arc<Known>> {
        self.engine.all()
    }

    fn reserve(&self, mut reserve: Reserve) -> BoxFuture<'_, Result<OrderSn, Refusal>> {
        Box::pin(async move {
            if self.way == Way::ForgetsPaths {
                reserve.path = crate::path::Path::new(0, 0).unwrap().id;
            }
            let (goods, epoch) = (reserve.goods.clone(), reserve.epoch);
            let answer = self.engine.reserve(reserve).await;
            let first = match &answer {
                Ok(sn) => Some(self.first.lock().unwrap().get_or_insert(sn.clone()).clone()),
                Err(_) => None,
            };
            match (self.way, answer, first) {
                (Way::Oversells, Err(Refusal::SoldOut), _) => Ok(OrderSn::new(goods, epoch, 1_000_000_000)),
                (Way::RepeatsNumbers, Ok(_), Some(first)) => Ok(first),
                (_, answer, _) => answer,
            }
        })
    }

    fn order<'a>(&'a self, sn: &'a OrderSn) -> BoxFuture<'a, Result<Option<Order>, Fault>> {
        self.engine.order(sn)
    }

    fn changed<'a>(
        &'a self,
        sn: &'a OrderSn,
        seen: OrderState,
        at_most: Duration,
    ) -> BoxFuture<'a, Result<Option<Order>, Fault>> {
        self.engine.changed(sn, seen, at_most)
    }

    fn turn<'a>(&'a self, sn: &'a OrderSn, turn: Turn) -> BoxFuture<'a, Result<Turned, Fault>> {
        self.engine.turn(sn, turn)
    }

    fn create<'a>(&'a self, sale: Sale, by: &'a str) -> BoxFuture<'a, Result<Arc<Known>, AdminError>> {
        self.engine.create(sale, by)
    }

    fn change<'a>(
        &'a self,
        goods: &'a GoodsId,
        change: Change,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Known>, AdminError>> {
        self.engine.change(goods, change, by)
    }

    fn books<'a>(&'a self, goods: &'a GoodsId) -> BoxFuture<'a, Result<Option<Books>, Fault>> {
        Box::pin(async move {
            let mut books = self.engine.books(goods).await?;
            if let Some(books) = &mut books {
                match self.way {
                    Way::ReturnsTwice => books.left += books.returned,
                    Way::MiscountsPlaced => books.placed = books.placed.saturating_sub(1),
                    _ => {}
                }
            }
            Ok(books)
        })
    }

    fn difference<'a>(&'a self, goods: &'a GoodsId) -> BoxFuture<'a, Result<Option<Difference>, Fault>> {
        self.engine.difference(goods)
    }

    fn repair<'a>(
        &'a self,
        goods: &'a GoodsId,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Difference, AdminError>> {
        self.engine.repair(goods, by)
    }

    fn audit<'a>(&'a self, goods: &'a GoodsId, at_most: u32) -> BoxFuture<'a, Result<Vec<Audit>, Fault>> {
        self.engine.audit(goods, at_most)
    }

    fn dead<'a>(&'a self, goods: &'a GoodsId) -> BoxFuture<'a, Result<Vec<DeadLetter>, Fault>> {
        self.engine.dead(goods)
    }

    fn bury<'a>(
        &'a self,
        sn: &'a OrderSn,
        again: bool,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Turned, AdminError>> {
        self.engine.bury(sn, again, by)
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        self.engine.stop()
    }
}
