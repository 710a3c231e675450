//! What the store counts about itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of a limiter over Redis, since it was built.
///
/// `decisions` went to Redis in `calls`; those `remembered` and `leased` did not,
/// and those `degraded` were not answered there in time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RedisStats {
    /// Script calls.
    pub calls: u64,
    /// Decisions that were sent to Redis.
    pub decisions: u64,
    /// Of those, how many shared a call with another one about the same keys.
    pub coalesced: u64,
    /// Denials answered from the denial cache, without Redis.
    pub remembered: u64,
    /// Decisions answered from a lease, without Redis.
    pub leased: u64,
    /// Decisions answered by the gates' [`Fallback`](crate::Fallback).
    pub degraded: u64,
    /// Of those, how many were denials.
    pub degraded_denied: u64,
    /// Of those answered by the fallback, how many were sent to Redis and not answered in time.
    pub timeouts: u64,
    /// Times that a server had forgotten the script and loaded it again.
    pub script_reloads: u64,
    /// Answers that were not the ones computed here: a defect, if it is not zero.
    pub disagreements: u64,
    /// Connections that were made.
    pub connects: u64,
    /// Times that the sentinels named another master than the one in use.
    pub switches: u64,
    /// Nodes that share the limits, as last heard; none before Redis was reached.
    pub nodes: Option<u32>,
    /// Units that were leased, by what became of them.
    pub leases: LeaseStats,
    /// Each server, and how it is.
    pub shards: Vec<ShardStats>,
    /// How many answers took up to 2^n microseconds, from the request to its answer.
    pub answer_times: [u64; 24],
}

/// Leased units: `granted = spent + returned + expired + outstanding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseStats {
    /// Taken ahead from Redis.
    pub granted: u64,
    /// Spent by callers.
    pub spent: u64,
    /// Given back to Redis unspent.
    pub returned: u64,
    /// Left over when their time had come.
    pub expired: u64,
    /// Held now.
    pub outstanding: u64,
}

/// One server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardStats {
    /// Where it is.
    pub address: String,
    /// False while its breaker is open: it is not asked, but for one probe at a time.
    pub is_up: bool,
}

impl RedisStats {
    /// The time within which `percent` of all answers came, rounded up to a power of
    /// two in microseconds.
    pub fn answered_within(&self, percent: f64) -> Duration {
        let all: u64 = self.answer_times.iter().sum();
        let wanted = (all as f64 * percent / 100.0).ceil() as u64;
        let mut seen = 0;
        let within = self.answer_times.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        within.map_or(Duration::ZERO, |power| Duration::from_micros(1 << power))
    }
}

/// Declares counters under the names that they have in [`RedisStats`], which reads them in this order.
macro_rules! counters {
    ($($name:ident),*) => {
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) lease_granted: AtomicU64,
            pub(crate) lease_spent: AtomicU64,
            pub(crate) lease_returned: AtomicU64,
            pub(crate) lease_expired: AtomicU64,
            answer_times: [AtomicU64; 24],
        }

        impl Counters {
            pub(crate) fn read(&self) -> RedisStats {
                let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
                let spent = read(&self.lease_spent);
                let (returned, expired) = (read(&self.lease_returned), read(&self.lease_expired));
                let granted = read(&self.lease_granted);
                let outstanding = granted.saturating_sub(spent + returned + expired);
                RedisStats {
                    $($name: read(&self.$name),)*
                    leases: LeaseStats { granted, spent, returned, expired, outstanding },
                    answer_times: std::array::from_fn(|power| read(&self.answer_times[power])),
                    ..RedisStats::default()
                }
            }
        }
    };
}

// `degraded_denied` before `degraded`, of which it is a part that is counted later.
counters!(
    calls,
    decisions,
    coalesced,
    remembered,
    leased,
    degraded_denied,
    degraded,
    timeouts,
    script_reloads,
    disagreements,
    connects,
    switches
);

pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn answered(&self, took_us: u64) {
        let power = (u64::BITS - took_us.saturating_sub(1).leading_zeros()) as usize;
        count(&self.answer_times[power.min(self.answer_times.len() - 1)], 1);
    }
}
