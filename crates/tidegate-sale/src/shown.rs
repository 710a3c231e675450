//! What a buyer's page shows of a sale.

use crate::engine::Known;
use crate::goods::GoodsId;
use crate::sale::Phase;
use serde::Serialize;
use tidegate::Limit;

/// What anybody may know of a sale, without asking a server. Times are milliseconds since
/// 1970, by the sale's clock: a page counts down by `opens_at − now`, not by its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Shown {
    /// What is sold.
    pub goods: GoodsId,
    /// For people.
    pub title: String,
    /// `not_open_yet`, `open`, `sold_out`, `paused` or `closed`.
    pub state: &'static str,
    /// Why it is paused; of a sale that paused itself only that it is being checked.
    pub reason: Option<String>,
    /// When it opens by itself.
    pub opens_at: Option<u64>,
    /// When it closes by itself.
    pub closes_at: Option<u64>,
    /// When this was said.
    pub now: u64,
    /// Units left, as far as is known: whole below 100, two digits above. None if nobody
    /// has told yet.
    pub left: Option<u64>,
    /// How many are let in.
    pub rate: Limit,
    /// Units that one user may buy.
    pub per_user: u32,
}

impl Shown {
    pub(crate) fn of(known: &Known, now: u64) -> Self {
        let (state, reason) = match Phase::at(now, &known.sale, &known.state) {
            Phase::NotOpenYet(_) => ("not_open_yet", None),
            Phase::Open if known.left == Some(0) => ("sold_out", None),
            Phase::Open => ("open", None),
            Phase::Paused(reason) => ("paused", Some(reason)),
            Phase::Closed => ("closed", None),
        };
        let sale = &known.sale;
        Self {
            goods: sale.goods.clone(),
            title: sale.title.clone(),
            state,
            reason,
            opens_at: sale.opens_at,
            closes_at: sale.closes_at,
            now,
            left: known.left.map(rounded),
            rate: sale.rate.clone(),
            per_user: sale.per_user,
        }
    }
}

/// Down to two digits: never more than there are, and 0 only if there are none.
fn rounded(units: u64) -> u64 {
    match units.checked_ilog10() {
        Some(digits @ 2..) => units - units % 10u64.pow(digits - 1),
        _ => units,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_rounded_down_to_two_digits() {
        for (units, shown) in
            [(0, 0), (1, 1), (99, 99), (100, 100), (119, 110), (9_999, 9_900), (10_000, 10_000)]
        {
            assert_eq!(rounded(units), shown);
        }
    }
}
