//! The books: where every unit of a sale is.

use crate::goods::{GoodsId, UserId};
use crate::order::OrderSn;
use serde::{Deserialize, Serialize};
use std::fmt;

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

/// Sums of a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Units for sale in all, as the sale is defined.
    pub defined: u64,
    /// Units for sale in all, as they are counted with the stock.
    pub total: u64,
    /// Units of orders that are not given up.
    pub placed: u64,
    /// Orders that are not given up.
    pub orders: u64,
}

/// The sums that are stored with a sale, and those that its orders add up to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What is sold.
    pub goods: GoodsId,
    /// As they are stored with the sale.
    pub stored: Sums,
    /// As its orders add up to: a repair stores these.
    pub counted: Sums,
}

impl Difference {
    /// Units of live orders and their number, against what is stored. Orders were given out and
    /// stand: the total gives way where they are more.
    pub(crate) fn new(goods: GoodsId, stored: Sums, placed: u64, orders: u64) -> Self {
        let total = stored.defined.max(placed);
        Self { goods, stored, counted: Sums { defined: total, total, placed, orders } }
    }

    /// The same where dead letters hold these units of the stock.
    pub(crate) fn with_dead(mut self, units: u64) -> Self {
        let total = self.counted.total.max(self.counted.placed.saturating_add(units));
        (self.counted.defined, self.counted.total) = (total, total);
        self
    }

    /// True if there is something to repair.
    pub fn is_wrong(&self) -> bool {
        self.stored != self.counted
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stored, counted, .. } = self;
        write!(
            f,
            "the database's books do not balance: {} units of {} orders are stored, {} of {} are found, \
             of {} units in all ({} as defined); `repair` it, then `resume`",
            stored.placed, stored.orders, counted.placed, counted.orders, stored.total, stored.defined
        )
    }
}

/// The audit's line of a repair.
#[derive(Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(crate) enum Repaired<'a> {
    Repair { stored: &'a Sums, counted: &'a Sums },
}

impl<'a> From<&'a Difference> for Repaired<'a> {
    fn from(Difference { stored, counted, .. }: &'a Difference) -> Self {
        Self::Repair { stored, counted }
    }
}

/// Why a repair has to wait: what it counts must not change meanwhile.
pub(crate) const REPAIR_HELD: &str = "a sale is repaired while it is held; `pause` it first";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_gives_way_only_to_what_was_given_out() {
        let stored = Sums { defined: 10, total: 10, placed: 4, orders: 2 };
        let found = |placed| Difference::new("phone".parse().unwrap(), stored, placed, 2);
        assert!(!found(4).is_wrong());
        assert!(!found(4).with_dead(6).is_wrong());
        assert_eq!(found(5).counted, Sums { placed: 5, ..stored });
        let more = Sums { defined: 12, total: 12, placed: 12, orders: 2 };
        assert_eq!(found(12).counted, more);
        assert_eq!(found(9).with_dead(3).counted, Sums { placed: 9, ..more });
    }
}
