//! A limit as front ends state it to clients: so many units in so many seconds.

use crate::{Algorithm, Limit};
use bytes::Bytes;

/// The largest integer of a structured field (RFC 9651).
pub(crate) const INTEGER_MAX: u64 = 999_999_999_999_999;

/// A limit as front ends state it to clients: so many units in so many whole seconds. It is the
/// units that refill in that time, and at least the burst.
#[derive(Debug)]
pub struct Quota {
    units: u64,
    window_secs: Option<u64>,
    policy_item: Bytes,
}

impl Quota {
    pub(crate) fn new(name: &str, limit: &Limit) -> Self {
        let (units, window_secs) = quota(limit);
        let policy_item = match window_secs {
            Some(seconds) => format!("\"{name}\";q={units};w={seconds}"),
            None => format!("\"{name}\";q={units};qu=\"concurrent-requests\""),
        };
        Self { units, window_secs, policy_item: policy_item.into() }
    }

    /// Units in the window, or slots.
    pub fn units(&self) -> u64 {
        self.units
    }

    /// The whole seconds of the window; none for slots.
    pub fn window_secs(&self) -> Option<u64> {
        self.window_secs
    }

    /// An item of the header field `RateLimit-Policy`, written once: `"checkout";q=1000;w=1`.
    pub fn policy_item(&self) -> &Bytes {
        &self.policy_item
    }
}

fn quota(limit: &Limit) -> (u64, Option<u64>) {
    if let Algorithm::Concurrency { .. } = limit.algorithm() {
        return (limit.amount().min(INTEGER_MAX), None);
    }
    let (amount, period_us) = (u128::from(limit.amount()), limit.period().as_micros().max(1));
    let saved = u128::from(limit.capacity());
    let (units, span_us) = if saved > amount {
        (saved, (saved * period_us).div_ceil(amount.max(1)))
    } else {
        (amount, period_us)
    };
    let seconds = span_us.div_ceil(1_000_000).max(1);
    let quota = units.saturating_mul(seconds * 1_000_000) / span_us;
    let bounded = |number: u128| u64::try_from(number).unwrap_or(u64::MAX).min(INTEGER_MAX);
    (bounded(quota), Some(bounded(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_what_flows_in_whole_seconds() {
        let item = |limit: &str| Quota::new("x", &limit.parse().unwrap()).policy_item;
        assert_eq!(item("1000/s"), "\"x\";q=1000;w=1");
        assert_eq!(item("1000/s burst 20"), "\"x\";q=1000;w=1");
        assert_eq!(item("5/s burst 20"), "\"x\";q=20;w=4");
        assert_eq!(item("100 per 100ms fixed-window"), "\"x\";q=1000;w=1");
        assert_eq!(item("5 per 1.5s sliding-log"), "\"x\";q=6;w=2");
        assert_eq!(item("100/min"), "\"x\";q=100;w=60");
        assert_eq!(item("leaky 50/s queue 100"), "\"x\";q=50;w=1");
        assert_eq!(item("10 concurrent"), "\"x\";q=10;qu=\"concurrent-requests\"");
    }
}
