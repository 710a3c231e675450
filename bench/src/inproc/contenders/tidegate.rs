//! Ours, with its defaults: the quanta clock, and room for as many keys as will come.

use super::{Allowance, Batched, Hot, Keyed, Learning};
use crate::Fallible;
use crate::inproc::keys::Key;
use tidegate::{Gate, Limiter};

pub const NAME: &str = "tidegate";

/// A fixed key, resolved once.
pub struct Handle(tidegate::Handle);

impl Handle {
    pub fn new(allowance: Allowance) -> Fallible<Self> {
        let gate = Limiter::new().gate("bench", allowance.text)?;
        Ok(Self(gate.handle("user:12345678")))
    }
}

impl Hot for Handle {
    fn check(&self) -> bool {
        self.0.check().is_allowed()
    }
}

pub struct ByKey(Gate);

impl ByKey {
    pub fn new(allowance: Allowance, keys: u32) -> Fallible<Self> {
        let limiter = Limiter::builder().max_keys(keys as usize).build();
        Ok(Self(limiter.gate("bench", allowance.text)?))
    }
}

impl Keyed for ByKey {
    fn check(&self, key: &Key) -> bool {
        self.0.check(key.as_str()).is_allowed()
    }
}

impl Learning for ByKey {
    fn learn(&mut self, key: &Key, units: u32) -> bool {
        self.0.check_cost(key.as_str(), u64::from(units)).is_allowed()
    }
}

impl Batched for ByKey {
    fn check_batch(&self, keys: &[Key]) -> u64 {
        let mut allowed = 0;
        self.0.check_batch(keys, |_, decision| allowed += u64::from(decision.is_allowed()));
        allowed
    }
}
