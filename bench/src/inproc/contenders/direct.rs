//! The two that limit one thing and know no keys: ratelimit and leaky-bucket.

use super::{Acquired, Allowance, Hot};
use crate::Fallible;

pub const RATELIMIT: &str = "ratelimit";
pub const LEAKY_BUCKET: &str = "leaky-bucket";

pub struct Ratelimit(ratelimit::Ratelimiter);

impl Ratelimit {
    pub fn new(allowance: Allowance) -> Fallible<Self> {
        let limiter = ratelimit::Ratelimiter::builder(u64::from(allowance.units))
            .period(allowance.period)
            .max_tokens(u64::from(allowance.burst))
            // It starts empty by default; all others start full.
            .initial_available(u64::from(allowance.burst))
            .build()?;
        Ok(Self(limiter))
    }
}

impl Hot for Ratelimit {
    fn check(&self) -> bool {
        self.0.try_wait().is_ok()
    }
}

pub struct LeakyBucket(leaky_bucket::RateLimiter);

impl LeakyBucket {
    pub fn new(allowance: Allowance) -> Self {
        let limiter = leaky_bucket::RateLimiter::builder()
            .refill(allowance.units as usize)
            .interval(allowance.period)
            .max(allowance.burst as usize)
            .initial(allowance.burst as usize)
            .build();
        Self(limiter)
    }
}

impl Hot for LeakyBucket {
    fn check(&self) -> bool {
        self.0.try_acquire(1)
    }
}

impl Acquired for LeakyBucket {
    async fn acquire(&self) -> bool {
        self.0.acquire(1).await;
        true
    }
}
