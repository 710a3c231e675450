//! The decision about one check.
//!
//! What costs a division (units left, time to the reset) is computed when it is read: most
//! callers only need to know whether they may go on.

use crate::algorithm::Gauge;
use std::time::Duration;

/// The decision about one check: allowed now, allowed after a wait, or denied.
#[derive(Clone, Copy, Debug)]
#[must_use = "a decision that is not read limits nothing"]
pub struct Decision {
    pub(crate) outcome: DecisionOutcome,
    pub(crate) limit: u64,
    pub(crate) gauge: Gauge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionOutcome {
    Allow { wait_us: u64 },
    Deny(DenialReason),
}

/// [`Denial`] in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenialReason {
    Later { retry_us: u64 },
    Busy,
    Never,
    NeedsPermit,
    Full,
    Unidentified,
    Unavailable { retry_us: u64 },
}

/// Why a check was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Denial {
    /// The same check fits after this time, if no other one comes first.
    Later(Duration),
    /// It fits when others release what they hold, or have warmed a cold key up; when that
    /// will be is not known. Also if the store was not asked ([`Decision::is_checked`]).
    Busy,
    /// It costs more than the limit can ever allow: coming back does not help.
    Never,
    /// A concurrency limit was only checked. A slot must be held: use `reserve`
    /// or `acquire` and keep the permit.
    NeedsPermit,
    /// The store holds as many keys as it may, and the gate refuses untracked keys
    /// (see [`Overflow`](crate::Overflow)).
    Full,
    /// The limit is by caller, the caller is not known, and such calls are refused there.
    /// Nothing was checked.
    Unidentified,
    /// The store did not answer, and the gate denies then: a fault of the service, not of the
    /// caller (503, not 429). The store is tried again after this time. In memory:
    /// the clock is at [`Timestamp::MAX`](crate::Timestamp::MAX), the end of its range,
    /// and the process must be restarted.
    Unavailable(Duration),
}

impl Decision {
    /// Of a check that was not sent to the store, because another one is known to be denied.
    pub(crate) fn not_checked(limit: &crate::Limit) -> Self {
        Self {
            outcome: DecisionOutcome::Deny(DenialReason::Busy),
            limit: limit.capacity(),
            gauge: Gauge::Unchecked,
        }
    }

    /// The denial if the store does not answer ([`Denial::Unavailable`]). It is tried again after
    /// `retry_after`.
    pub fn unavailable(limit: &crate::Limit, retry_after: Duration) -> Self {
        let retry_us = u64::try_from(retry_after.as_micros()).unwrap_or(u64::MAX);
        Self {
            outcome: DecisionOutcome::Deny(DenialReason::Unavailable { retry_us }),
            limit: limit.capacity(),
            gauge: Gauge::Degraded { remaining: 0, reset_us: retry_us },
        }
    }

    /// With these units left, and no time of a reset.
    pub(crate) fn plain(outcome: DecisionOutcome, limit: u64, remaining: u64) -> Self {
        Self { outcome, limit, gauge: Gauge::Plain { remaining, reset_us: 0 } }
    }

    /// True if the call may go on, at once or after [`wait`](Self::wait).
    #[inline]
    pub fn is_allowed(&self) -> bool {
        matches!(self.outcome, DecisionOutcome::Allow { .. })
    }

    /// How long an allowed call has to wait for its start; zero if it may start now
    /// or is denied.
    pub fn wait(&self) -> Duration {
        Duration::from_micros(self.wait_us())
    }

    /// Why it was denied, if it was.
    pub fn denial(&self) -> Option<Denial> {
        let DecisionOutcome::Deny(reason) = self.outcome else { return None };
        Some(match reason {
            DenialReason::Later { retry_us } => Denial::Later(Duration::from_micros(retry_us)),
            DenialReason::Busy => Denial::Busy,
            DenialReason::Never => Denial::Never,
            DenialReason::NeedsPermit => Denial::NeedsPermit,
            DenialReason::Full => Denial::Full,
            DenialReason::Unidentified => Denial::Unidentified,
            DenialReason::Unavailable { retry_us } => Denial::Unavailable(Duration::from_micros(retry_us)),
        })
    }

    /// The time after which a denied check would fit; none if it was allowed, can never fit, or
    /// the time is not known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.denial() {
            Some(Denial::Later(after) | Denial::Unavailable(after)) => Some(after),
            _ => None,
        }
    }

    /// Units that can start at once from an unused key.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Units that could still start now, in one call: what a check of this cost would take
    /// at this instant. (In a transaction that was denied, an allowed check has what would have
    /// been left.)
    #[inline]
    pub fn remaining(&self) -> u64 {
        self.gauge.remaining(self.limit)
    }

    /// The time until the key is as good as unused, if no further check is allowed.
    pub fn reset_after(&self) -> Duration {
        Duration::from_micros(self.gauge.reset_us())
    }

    /// True if the store did not answer in time, and the gate's
    /// [`Fallback`](crate::GateOptions) decided. Never for limits in memory.
    pub fn is_degraded(&self) -> bool {
        matches!(self.gauge, Gauge::Degraded { .. })
    }

    /// False if this check was not sent to the store, because another one of the same transaction
    /// was known to be denied, and looking at this one was not possible or would have cost too
    /// much (see `docs/redis.md`). Then it is not allowed ([`Denial::Busy`]), nothing is left
    /// ([`remaining`](Self::remaining)), and only its limit is known. Always true in memory.
    #[inline]
    pub fn is_checked(&self) -> bool {
        !matches!(self.gauge, Gauge::Unchecked)
    }

    /// Whole seconds until the key is as good as unused, rounded up.
    #[cfg(feature = "tower")]
    #[inline]
    pub(crate) fn reset_seconds(&self) -> u64 {
        // Not by `Duration`, whose microseconds take 128 bits.
        self.gauge.reset_us().div_ceil(1_000_000)
    }

    #[inline]
    pub(crate) fn wait_us(&self) -> u64 {
        match self.outcome {
            DecisionOutcome::Allow { wait_us } => wait_us,
            DecisionOutcome::Deny(_) => 0,
        }
    }
}

/// Compares what a caller can see.
impl PartialEq for Decision {
    fn eq(&self, other: &Self) -> bool {
        let visible = |of: &Self| {
            (of.outcome, of.limit, of.remaining(), of.reset_after(), of.is_degraded(), of.is_checked())
        };
        visible(self) == visible(other)
    }
}

impl Eq for Decision {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_that_differ_in_what_a_caller_can_see_are_not_equal() {
        let of = |gauge| Decision { outcome: DecisionOutcome::Deny(DenialReason::Busy), limit: 5, gauge };
        let plain = of(Gauge::Plain { remaining: 0, reset_us: 0 });
        let degraded = of(Gauge::Degraded { remaining: 0, reset_us: 0 });
        let unasked = of(Gauge::Unchecked);
        assert!(plain != degraded && plain != unasked && degraded != unasked);
        // The same numbers in two forms.
        assert_eq!(plain, of(Gauge::Word { level: 5 << 14, cell: 1, drain: 1 }).with_reset(0));
    }

    impl Decision {
        /// The same with another reset, as plain numbers.
        fn with_reset(self, reset_us: u64) -> Self {
            Self { gauge: Gauge::Plain { remaining: self.remaining(), reset_us }, ..self }
        }
    }
}
