//! An order, its number and its states.

use crate::goods::{GoodsId, UserId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// An order's number: goods, epoch and a counter. The database owns epochs and gives none
/// of them twice, so no number is ever given twice either, whatever else is lost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OrderSn {
    goods: GoodsId,
    epoch: u32,
    nth: u64,
}

impl OrderSn {
    /// The `nth` order of an epoch.
    pub fn new(goods: GoodsId, epoch: u32, nth: u64) -> Self {
        Self { goods, epoch, nth }
    }

    /// What was ordered.
    pub fn goods(&self) -> &GoodsId {
        &self.goods
    }

    /// The epoch in which it was given out.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl fmt::Display for OrderSn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.goods, self.epoch, self.nth)
    }
}

impl From<OrderSn> for String {
    fn from(sn: OrderSn) -> Self {
        sn.to_string()
    }
}

/// A text that is no order number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no order number; one looks like `phone-15-1-42`")]
pub struct OrderSnError;

impl FromStr for OrderSn {
    type Err = OrderSnError;

    fn from_str(text: &str) -> Result<Self, OrderSnError> {
        let mut parts = text.rsplitn(3, '-');
        let (nth, epoch, goods) = (parts.next(), parts.next(), parts.next());
        Ok(Self {
            nth: number(nth)?,
            epoch: u32::try_from(number(epoch)?).map_err(|_| OrderSnError)?,
            goods: goods.ok_or(OrderSnError)?.parse().map_err(|_| OrderSnError)?,
        })
    }
}

/// One number has one text: no signs, no leading zeros.
fn number(part: Option<&str>) -> Result<u64, OrderSnError> {
    let part = part.ok_or(OrderSnError)?;
    let is_plain = part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'));
    part.parse().ok().filter(|_| is_plain).ok_or(OrderSnError)
}

impl TryFrom<String> for OrderSn {
    type Error = OrderSnError;

    fn try_from(text: String) -> Result<Self, OrderSnError> {
        text.parse()
    }
}

/// Where an order stands.
///
/// ```text
///   processing ──▶ placed ──▶ paid
///       │            ├──────▶ cancelled   its units are for sale again
///       ▼            └──────▶ expired     not paid in time: likewise
///     failed   a dead letter; its units are for sale again once it is dropped
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderState {
    /// Its number is given out and durable; the database does not know it yet.
    Processing,
    /// In the database, with its units.
    Placed,
    /// Paid for.
    Paid,
    /// Given up by its buyer.
    Cancelled,
    /// Not paid in time.
    Expired,
    /// It could not be placed; the reason says why.
    Failed,
}

impl OrderState {
    /// As it is stored.
    pub fn code(self) -> i16 {
        match self {
            Self::Processing => 0,
            Self::Placed => 1,
            Self::Paid => 2,
            Self::Cancelled => 3,
            Self::Expired => 4,
            Self::Failed => 5,
        }
    }

    /// The state of a stored code.
    pub fn of_code(code: i16) -> Option<Self> {
        let all = [Self::Processing, Self::Placed, Self::Paid, Self::Cancelled, Self::Expired, Self::Failed];
        all.into_iter().find(|state| state.code() == code)
    }

    /// As it is told.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Processing => "processing",
            Self::Placed => "placed",
            Self::Paid => "paid",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::Failed => "failed",
        }
    }

    /// True if its units are taken: it counts in the books as placed.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Placed | Self::Paid)
    }

    /// True if nothing changes it any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Paid | Self::Cancelled | Self::Expired | Self::Failed)
    }
}

/// An order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Its number.
    pub order_sn: OrderSn,
    /// Who ordered.
    pub user: UserId,
    /// Units.
    pub quantity: u32,
    /// Where it stands.
    pub state: OrderState,
    /// Why it failed, or was given up.
    pub reason: Option<String>,
    /// Milliseconds since 1970.
    pub created_at: u64,
    /// When its state changed last.
    pub updated_at: u64,
    /// Until when it has to be paid, if it has to.
    pub pay_by: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_one_text() {
        let sn = OrderSn::new("phone-15".parse().unwrap(), 3, 42);
        assert_eq!(sn.to_string(), "phone-15-3-42");
        assert_eq!("phone-15-3-42".parse(), Ok(sn));
        for bad in
            ["", "phone", "phone-3", "-3-42", "phone-3-042", "phone-+3-4", "phone-3-", "a b-3-4", "p-3-4 "]
        {
            assert_eq!(bad.parse::<OrderSn>(), Err(OrderSnError), "{bad:?}");
        }
    }
}
