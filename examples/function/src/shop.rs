//! What is limited. Each attribute is all there is to it.

use std::sync::atomic::{AtomicU32, Ordering};
use tidegate::{Clock, Limiter, MonotonicClock, Refusal, Timestamp, limited};

/// Refused where there is nothing left: the refusal is the error.
#[limited("3/min", name = "stock", key = goods_id)]
pub(crate) fn stock(goods_id: u64) -> Result<u32, Refusal> {
    Ok(100 + u32::try_from(goods_id).unwrap_or(0))
}

/// Late rather than refused.
#[limited("5/s burst 1 wait 1s", name = "bank")]
pub(crate) async fn pay(cents: u64) -> Result<String, Refusal> {
    Ok(format!("paid {}.{:02}", cents / 100, cents % 100))
}

/// Something else instead.
#[limited("1/min", otherwise = from_cache)]
pub(crate) fn search(query: &str) -> String {
    format!("{query}: green, black, white")
}

fn from_cache(query: &str, _: Refusal) -> String {
    format!("{query}: green, black (from the cache)")
}

/// A desk with a limiter of its own.
pub(crate) struct Desk {
    limiter: Limiter,
    orders: AtomicU32,
}

/// Why there is no order.
pub(crate) enum ShopError {
    Busy(Refusal),
    Closed,
}

impl From<Refusal> for ShopError {
    fn from(refusal: Refusal) -> Self {
        Self::Busy(refusal)
    }
}

#[limited(
    "3/min", name = "desk", by = user, limiter = self.limiter,
    and(limit = "10/min", name = "units", by = user, cost = units),
)]
impl Desk {
    pub(crate) fn order(&self, units: u32) -> Result<u32, ShopError> {
        if units == 0 {
            return Err(ShopError::Closed);
        }
        Ok(self.orders.fetch_add(1, Ordering::Relaxed) + 1)
    }

    #[limited(off)]
    pub(crate) fn greeting(&self) -> &'static str {
        "good morning"
    }

    #[limited(off)]
    pub(crate) fn new(limiter: Limiter) -> Self {
        Self { limiter, orders: AtomicU32::new(0) }
    }
}

/// The time on the clock that the limits are kept by.
pub(crate) fn now() -> Timestamp {
    static CLOCK: std::sync::LazyLock<MonotonicClock> = std::sync::LazyLock::new(MonotonicClock::new);
    CLOCK.now()
}
