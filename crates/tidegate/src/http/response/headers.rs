//! Which header fields responses carry, and the time in `Retry-After`.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Which header fields responses carry.
///
/// ```
/// use tidegate::http::Headers;
///
/// let headers = Headers::standard().legacy().retry_jitter(0.2);
/// # let _ = headers;
/// ```
///
/// Fields that the service has set itself stay: the guard appends its policies to the lists
/// `RateLimit` and `RateLimit-Policy`, and does not replace an `X-RateLimit-*` or `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use = "give it to `GuardBuilder::headers`"]
pub struct Headers {
    pub(crate) standard: bool,
    pub(crate) legacy: bool,
    /// The share of a `Retry-After` that may be added, in thousandths.
    jitter_permille: u32,
}

impl Default for Headers {
    fn default() -> Self {
        Self::standard()
    }
}

impl Headers {
    /// `RateLimit-Policy` and `RateLimit` on every response, `Retry-After` on refusals. The
    /// default.
    pub fn standard() -> Self {
        Self { standard: true, legacy: false, jitter_permille: 0 }
    }

    /// Only `Retry-After` on refusals.
    pub fn none() -> Self {
        Self { standard: false, ..Self::standard() }
    }

    /// Also `X-RateLimit-Limit`, `-Remaining` and `-Reset` (seconds from now), of the policy that has
    /// the least left.
    pub fn legacy(mut self) -> Self {
        self.legacy = true;
        self
    }

    /// Adds to each `Retry-After`, and to gRPC's `RetryInfo`, a random time of up to this share of it
    /// (0.2 is a fifth), so that clients which were refused together do not retry together. It only
    /// ever makes the time later.
    pub fn retry_jitter(mut self, share: f64) -> Self {
        self.jitter_permille = (share.clamp(0.0, 10.0) * 1000.0) as u32;
        self
    }

    /// The time until a retry as the response states it, with jitter, for every protocol.
    pub(crate) fn stated_after(&self, after: Duration) -> Duration {
        // Each hasher of the standard library has another random seed.
        let random = RandomState::new().hash_one(()) >> 32;
        let most_us = after.as_micros().saturating_mul(self.jitter_permille.into()) / 1000;
        let jitter_us = (most_us * u128::from(random)) >> 32;
        after.saturating_add(Duration::from_micros(u64::try_from(jitter_us).unwrap_or(u64::MAX)))
    }
}

/// Whole seconds for `Retry-After`: rounded up, never 0.
pub(crate) fn retry_after_seconds(stated_after: Duration) -> u64 {
    let us = stated_after.as_micros().div_ceil(1_000_000);
    u64::try_from(us).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_rounded_up_and_jitter_only_delays() {
        let plain = Headers::standard();
        let told = |headers: &Headers, after| retry_after_seconds(headers.stated_after(after));
        assert_eq!(told(&plain, Duration::ZERO), 1);
        assert_eq!(told(&plain, Duration::from_micros(1_000_001)), 2);
        let jittered = plain.retry_jitter(0.5);
        let seen: std::collections::BTreeSet<u64> =
            (0..200).map(|_| told(&jittered, Duration::from_secs(100))).collect();
        assert!(seen.iter().all(|seconds| (100..=150).contains(seconds)), "{seen:?}");
        assert!(seen.len() > 10, "{seen:?}");
    }
}
