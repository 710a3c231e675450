//! What the store counts about itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of a limiter over Redis, since it was built.
///
/// `asked` decisions went to Redis in `calls`; those `remembered` and `leased` did not,
/// and those `degraded` were not answered there in time.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RedisStats {
    /// Script calls.
    pub calls: u64,
    /// Decisions that were sent to Redis.
    pub asked: u64,
    /// Of those, how many shared a call with another one about the same keys.
    pub coalesced: u64,
    /// Denials answered from memory, without Redis.
    pub remembered: u64,
    /// Decisions answered from a lease, without Redis.
    pub leased: u64,
    /// Decisions answered by the gates' [`Fallback`](crate::Fallback).
    pub degraded: u64,
    /// Of those, how many were denials.
    pub degraded_denied: u64,
    /// Of those answered by the fallback, how many Redis was asked about, but did not answer in time.
    pub timeouts: u64,
    /// Times that a server had forgotten the script and was told it again.
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
    /// How many answers took up to 2^n microseconds, from asking to answering.
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
        for (power, count) in self.answer_times.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Duration::from_micros(1 << power);
            }
        }
        Duration::ZERO
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) calls: AtomicU64,
    pub(crate) asked: AtomicU64,
    pub(crate) coalesced: AtomicU64,
    pub(crate) remembered: AtomicU64,
    pub(crate) leased: AtomicU64,
    pub(crate) degraded: AtomicU64,
    pub(crate) degraded_denied: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) script_reloads: AtomicU64,
    pub(crate) disagreements: AtomicU64,
    pub(crate) connects: AtomicU64,
    pub(crate) switches: AtomicU64,
    pub(crate) lease_granted: AtomicU64,
    pub(crate) lease_spent: AtomicU64,
    pub(crate) lease_returned: AtomicU64,
    pub(crate) lease_expired: AtomicU64,
    answer_times: [AtomicU64; 24],
}

pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn answered(&self, took_us: u64) {
        let power = (u64::BITS - took_us.saturating_sub(1).leading_zeros()) as usize;
        count(&self.answer_times[power.min(self.answer_times.len() - 1)], 1);
    }

    pub(crate) fn read(&self) -> RedisStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (spent, returned, expired) =
            (read(&self.lease_spent), read(&self.lease_returned), read(&self.lease_expired));
        let granted = read(&self.lease_granted);
        let outstanding = granted.saturating_sub(spent + returned + expired);
        RedisStats {
            calls: read(&self.calls),
            asked: read(&self.asked),
            coalesced: read(&self.coalesced),
            remembered: read(&self.remembered),
            leased: read(&self.leased),
            // Read before those that it is a part of, which are counted first.
            degraded_denied: read(&self.degraded_denied),
            degraded: read(&self.degraded),
            timeouts: read(&self.timeouts),
            script_reloads: read(&self.script_reloads),
            disagreements: read(&self.disagreements),
            connects: read(&self.connects),
            switches: read(&self.switches),
            leases: LeaseStats { granted, spent, returned, expired, outstanding },
            answer_times: std::array::from_fn(|power| read(&self.answer_times[power])),
            ..RedisStats::default()
        }
    }
}
