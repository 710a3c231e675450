//! throttlecrab's limiter takes `&mut self`, so two threads share it behind the standard library's
//! mutex, as its manual says; one thread has it without.
//!
//! Its periodic store is the kindest choice: room for all keys from the beginning, and its sweep
//! over the whole table put off beyond the end of the run. (Its adaptive store would sweep every
//! 100,000 requests.)

use super::{Allowance, Keyed, Learning};
use crate::inproc::keys::Key;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use throttlecrab::{PeriodicStore, RateLimiter};

pub const NAME: &str = "throttlecrab";

pub struct ByKey {
    limiter: Mutex<RateLimiter<PeriodicStore>>,
    burst: i64,
    units: i64,
    period_s: i64,
}

impl ByKey {
    pub fn new(allowance: Allowance, keys: u32) -> Self {
        let store = PeriodicStore::builder()
            .capacity(keys as usize)
            .cleanup_interval(Duration::from_secs(86_400))
            .build();
        Self {
            limiter: Mutex::new(RateLimiter::new(store)),
            burst: i64::from(allowance.burst),
            units: i64::from(allowance.units),
            period_s: allowance.period.as_secs().cast_signed(),
        }
    }

    /// Behind the lock.
    pub fn check_text(&self, key: &str) -> bool {
        let now = SystemTime::now();
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        limiter
            .rate_limit(key, self.burst, self.units, self.period_s, 1, now)
            .is_ok_and(|(allowed, _)| allowed)
    }

    pub fn check_text_alone(&mut self, key: &str) -> bool {
        self.take_alone(key, 1)
    }

    /// Without the lock, for which one thread has no need.
    fn take_alone(&mut self, key: &str, units: u32) -> bool {
        let limiter = self.limiter.get_mut();
        let limiter = limiter.unwrap_or_else(PoisonError::into_inner);
        let (burst, count, period_s) = (self.burst, self.units, self.period_s);
        let (units, now) = (i64::from(units), SystemTime::now());
        limiter.rate_limit(key, burst, count, period_s, units, now).is_ok_and(|(allowed, _)| allowed)
    }
}

impl Keyed for ByKey {
    fn check(&self, key: &Key) -> bool {
        self.check_text(key.as_str())
    }

    fn check_alone(&mut self, key: &Key) -> bool {
        self.take_alone(key.as_str(), 1)
    }
}

impl Learning for ByKey {
    fn learn(&mut self, key: &Key, units: u32) -> bool {
        self.take_alone(key.as_str(), units)
    }
}
