//! How far a server's clock is ahead of ours, by the times in its answers.

use crate::clock::Timestamp;
use std::time::Duration;

/// Clocks drift apart: an answer older than one or two of these counts no more.
const LATELY: Duration = Duration::from_secs(1);

/// An upper bound of the offset: the least difference of any recent answer. An answer's time lies
/// after the moment of sending by what the way took, so each difference is too large, and the
/// quickest one the least.
///
/// If the server's clock is set forward, the bound is too low for as long as older answers count,
/// one or two seconds: a denial is then cached for longer by that step. It never lets anyone
/// through.
#[derive(Clone, Copy)]
pub(crate) struct ClockOffset {
    least_us: i64,
    /// The same, of the span before.
    before_us: i64,
    since: Timestamp,
}

impl ClockOffset {
    pub(crate) fn new(since: Timestamp) -> Self {
        Self { least_us: i64::MAX, before_us: i64::MAX, since }
    }

    /// The earliest moment on our clock at which the server's can have read `now_us`, in answer
    /// to a call of `sent`; not before that. As the offset is an upper bound, the true moment is
    /// this one or later.
    pub(crate) fn earliest(&mut self, sent: Timestamp, now_us: u64) -> Timestamp {
        let signed = |us: u64| i64::try_from(us).unwrap_or(i64::MAX);
        let (now_us, sent_us) = (signed(now_us), signed(sent.as_micros()));
        if sent.since(self.since) >= LATELY || sent < self.since {
            *self = Self { before_us: self.least_us, ..Self::new(sent) };
        }
        self.least_us = self.least_us.min(now_us.saturating_sub(sent_us));
        let least_us = self.least_us.min(self.before_us);
        Timestamp::from_micros(u64::try_from(now_us.saturating_sub(least_us)).unwrap_or(0)).max(sent)
    }
}
