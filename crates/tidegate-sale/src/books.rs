//! The books: where every unit of a sale is.

use crate::goods::{GoodsId, UserId};
use crate::order::OrderSn;
use serde::{Deserialize, Serialize};

/// Where the units of a sale are. At every moment `total = placed + in_flight + left`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    /// What is sold.
    pub goods: GoodsId,
    /// Units for sale in all.
    pub total: u64,
    /// Units of orders in the database that are not given up.
    pub placed: u64,
    /// Units of orders on their way there, and of dead letters until they are dropped.
    pub in_flight: u64,
    /// Units that nobody has.
    pub left: u64,
    /// Orders in the database that are not given up.
    pub orders: u64,
    /// Units that came back, since it was created: cancelled, not paid, dropped.
    pub returned: u64,
    /// Orders that could not be placed and wait for an operator.
    pub dead: u64,
    /// Which loading of the stock this is.
    pub epoch: u32,
    /// Where the sale stands, as text.
    pub state: String,
    /// When they were read, in milliseconds since 1970.
    pub at: u64,
}

impl Books {
    /// True if every unit is accounted for.
    pub fn is_balanced(&self) -> bool {
        let sum = [self.placed, self.in_flight, self.left]
            .iter()
            .try_fold(0u64, |sum, part| sum.checked_add(*part));
        sum == Some(self.total)
    }
}

/// An order that could not be placed. Its units are held until an operator decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Its order's number.
    pub order_sn: OrderSn,
    /// Who ordered.
    pub user: UserId,
    /// Units.
    pub quantity: u32,
    /// Why it could not be placed.
    pub reason: String,
    /// When it came here, in milliseconds since 1970.
    pub at: u64,
}

/// One line of what operators did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Audit {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// Who: an operator, or the part of the system that did it by itself.
    pub by: String,
    /// What, as JSON.
    pub what: String,
}
