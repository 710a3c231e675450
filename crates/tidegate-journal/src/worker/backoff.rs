//! How long to wait before the next attempt: exponential, with full jitter.
//!
//! Full jitter, because records that failed together (a service was down) must not come back
//! together.

use std::time::Duration;

/// Doubles from `first` up to `most`; the wait is anything from nothing to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backoff {
    pub(super) first: Duration,
    pub(super) most: Duration,
}

impl Backoff {
    /// The longest wait after this attempt, the first being 1.
    pub(super) fn ceiling(&self, attempt: u32) -> Duration {
        let doubled =
            2u32.checked_pow(attempt.saturating_sub(1)).and_then(|times| self.first.checked_mul(times));
        doubled.unwrap_or(self.most).min(self.most)
    }

    pub(super) fn wait(&self, attempt: u32) -> Duration {
        self.ceiling(attempt).mul_f64(fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_its_bound_and_jitters_over_all_of_it() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(60) };
        let ceilings: Vec<u64> = (1..9).map(|attempt| backoff.ceiling(attempt).as_secs()).collect();
        assert_eq!(ceilings, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.ceiling(u32::MAX), Duration::from_secs(60));
        let waits: Vec<Duration> = (0..1_000).map(|_| backoff.wait(5)).collect();
        assert!(waits.iter().all(|wait| *wait <= Duration::from_secs(16)));
        assert!(waits.iter().any(|wait| *wait < Duration::from_secs(2)));
        assert!(waits.iter().any(|wait| *wait > Duration::from_secs(14)));
    }
}
