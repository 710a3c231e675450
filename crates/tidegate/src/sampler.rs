//! A few lines of the log in each second, however many would be written: a flood of
//! calls is no flood of lines.

use crate::clock::Timestamp;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lets a few in each second through, and counts the others.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    /// The second in the upper half, how many came in it in the lower.
    counted: AtomicU64,
    suppressed: AtomicU64,
}

impl Sampler {
    #[cfg(feature = "macros")]
    pub(crate) const fn new() -> Self {
        Self { counted: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// How many were suppressed before, if this one is let through.
    pub(crate) fn admit(&self, now: Timestamp, each_second: u32) -> Option<u64> {
        let second = now.as_micros() / 1_000_000;
        let count = |seen: u64| {
            let count = if seen >> 32 == second { seen & 0xffff_ffff } else { 0 };
            (count < u64::from(each_second)).then_some((second << 32) | (count + 1))
        };
        match self.counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count) {
            Ok(_) => Some(self.suppressed.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.suppressed.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_each_second_and_the_others_are_counted() {
        let sampler = Sampler::default();
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
        assert_eq!(sampler.admit(at(5), 2), Some(0));
        assert_eq!(sampler.admit(at(5), 2), Some(0));
        for _ in 0..7 {
            assert_eq!(sampler.admit(at(5), 2), None);
        }
        assert_eq!(sampler.admit(at(6), 2), Some(7));
        assert_eq!(sampler.admit(at(6), 0), None);
    }
}
