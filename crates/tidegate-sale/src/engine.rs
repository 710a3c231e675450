//! What counts units and keeps orders: the boundary between the sale and its servers.
//!
//! An engine decides what has to be decided in one place: who gets which unit, under which
//! number, and whether that is durable. Everything before it (who are you, may you come in,
//! is the path right) and after it (how is it shown) is the same for all engines.

use crate::books::{Audit, Books, DeadLetter, Difference};
use crate::goods::{GoodsId, UserId};
use crate::order::{Order, OrderSn, OrderState};
use crate::path::PathId;
use crate::refusal::Refusal;
use crate::sale::{Change, Sale, SaleState};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// What this process knows of a sale, without asking anybody. At most a moment old.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) sale: Sale,
    pub(crate) state: SaleState,
    /// Paths of any other epoch are refused.
    pub(crate) epoch: u32,
    /// Units that nobody had when this process heard of it last; none if it never has.
    pub(crate) left: Option<u64>,
}

/// A buyer with a path that is right.
#[derive(Clone, Debug)]
pub(crate) struct Reserve {
    pub(crate) goods: GoodsId,
    pub(crate) user: UserId,
    pub(crate) quantity: u32,
    /// Asked again with the same one, the answer is the same order.
    pub(crate) path: PathId,
    pub(crate) epoch: u32,
    /// True if the path is too old for a new order; one that it already has is told.
    pub(crate) is_expired: bool,
    /// What the buyer calls this order; likewise.
    pub(crate) key: Option<Arc<str>>,
}

/// What happens to a placed order. Each is a compare-and-set: once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Pay,
    Cancel,
}

/// What a turn found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turned {
    /// It is so now, by this call or one before it.
    Done(Order),
    /// It stands where that cannot be.
    Refused(Order),
    Unknown,
}

/// Something behind did not answer, or answered what it should not.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct Fault {
    pub(crate) what: String,
}

/// A change that an operator cannot have.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AdminError {
    #[error("no such sale")]
    Unknown,
    /// The sentence says why.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl AdminError {
    /// A dead letter that was tried again in vain, or cannot be dropped.
    pub(crate) fn still_dead(why: &str) -> Self {
        Self::Refused(format!("it stays a dead letter: {why}"))
    }
}

pub(crate) trait Engine: Send + Sync + 'static {
    /// What is known here and now. Costs next to nothing.
    fn known(&self, goods: &GoodsId) -> Option<Arc<Known>>;

    /// All sales that are known here.
    fn all(&self) -> Vec<Arc<Known>>;

    /// Takes units under a new order number, all or nothing. All checks come before the first
    /// write: used before, open, epoch, expiry, quota, stock. What it answers is durable.
    fn reserve(&self, reserve: Reserve) -> BoxFuture<'_, Result<OrderSn, Refusal>>;

    /// An order, from the moment its number exists.
    fn order<'a>(&'a self, sn: &'a OrderSn) -> BoxFuture<'a, Result<Option<Order>, Fault>>;

    /// The same, once its state is another than `seen`, or after this time.
    fn changed<'a>(
        &'a self,
        sn: &'a OrderSn,
        seen: OrderState,
        at_most: Duration,
    ) -> BoxFuture<'a, Result<Option<Order>, Fault>>;

    /// Turns a placed order; what it gives back is for sale again, once.
    fn turn<'a>(&'a self, sn: &'a OrderSn, turn: Turn) -> BoxFuture<'a, Result<Turned, Fault>>;

    /// A new sale, as a draft.
    fn create<'a>(&'a self, sale: Sale, by: &'a str) -> BoxFuture<'a, Result<Arc<Known>, AdminError>>;

    /// Changes one, with a line in the audit.
    fn change<'a>(
        &'a self,
        goods: &'a GoodsId,
        change: Change,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Arc<Known>, AdminError>>;

    fn books<'a>(&'a self, goods: &'a GoodsId) -> BoxFuture<'a, Result<Option<Books>, Fault>>;

    /// The sums that the database stores with a sale, and those that its orders add up to.
    fn difference<'a>(&'a self, goods: &'a GoodsId) -> BoxFuture<'a, Result<Option<Difference>, Fault>>;

    /// Stores what its orders add up to, with a line in the audit, and tells what it found. The
    /// sale has to be held.
    fn repair<'a>(&'a self, goods: &'a GoodsId, by: &'a str)
    -> BoxFuture<'a, Result<Difference, AdminError>>;

    /// The newest lines first.
    fn audit<'a>(&'a self, goods: &'a GoodsId, at_most: u32) -> BoxFuture<'a, Result<Vec<Audit>, Fault>>;

    fn dead<'a>(&'a self, goods: &'a GoodsId) -> BoxFuture<'a, Result<Vec<DeadLetter>, Fault>>;

    /// Tries a dead letter again, or drops it and gives its units back. The error says why it
    /// stays one.
    fn bury<'a>(
        &'a self,
        sn: &'a OrderSn,
        again: bool,
        by: &'a str,
    ) -> BoxFuture<'a, Result<Turned, AdminError>>;

    /// Whether new buyers should come here; the sentence says which server does not answer.
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }

    /// Answers nothing new, and ends once what was begun is durable.
    fn stop(&self) -> BoxFuture<'_, ()>;
}
