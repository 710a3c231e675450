//! governor with its defaults: the quanta clock, `DashMap`, the standard library's hasher.

use super::{Acquired, Allowance, Hot, Keyed, Learning};
use crate::Fallible;
use crate::inproc::keys::Key;
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota};
use std::num::NonZeroU32;

pub const NAME: &str = "governor";

pub struct Direct(DefaultDirectRateLimiter);

impl Direct {
    pub fn new(allowance: Allowance) -> Fallible<Self> {
        Ok(Self(DefaultDirectRateLimiter::direct(quota(allowance)?)))
    }
}

impl Hot for Direct {
    fn check(&self) -> bool {
        self.0.check().is_ok()
    }
}

pub struct ByKey(DefaultKeyedRateLimiter<String>);

impl ByKey {
    pub fn new(allowance: Allowance) -> Fallible<Self> {
        Ok(Self(DefaultKeyedRateLimiter::keyed(quota(allowance)?)))
    }
}

impl Keyed for ByKey {
    fn check(&self, key: &Key) -> bool {
        self.0.check_key(key.as_string()).is_ok()
    }
}

impl Learning for ByKey {
    fn learn(&mut self, key: &Key, units: u32) -> bool {
        NonZeroU32::new(units)
            .is_some_and(|units| matches!(self.0.check_key_n(key.as_string(), units), Ok(Ok(()))))
    }
}

/// Keyed by borrowed text: its users copy it, as governor takes only whole `String`s.
pub struct ByText(DefaultKeyedRateLimiter<String>);

impl ByText {
    pub fn new(allowance: Allowance) -> Fallible<Self> {
        Ok(Self(DefaultKeyedRateLimiter::keyed(quota(allowance)?)))
    }

    pub fn check(&self, key: &str) -> bool {
        self.0.check_key(&key.to_owned()).is_ok()
    }
}

/// For callers that wait until they may start.
pub struct Waiting(DefaultDirectRateLimiter);

impl Waiting {
    pub fn new(allowance: Allowance) -> Fallible<Self> {
        Ok(Self(DefaultDirectRateLimiter::direct(quota(allowance)?)))
    }
}

impl Acquired for Waiting {
    async fn acquire(&self) -> bool {
        self.0.until_ready().await;
        true
    }
}

fn quota(allowance: Allowance) -> Fallible<Quota> {
    let burst = NonZeroU32::new(allowance.burst).ok_or("governor takes no burst of zero")?;
    let quota = Quota::with_period(allowance.interval()).ok_or("governor takes no period of 0")?;
    Ok(quota.allow_burst(burst))
}
