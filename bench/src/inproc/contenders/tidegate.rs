//! Ours, with its defaults: the quanta clock, and room for as many keys as will come.

use super::{Acquired, Allowance, Batched, Hot, Keyed, Learning, Stepped};
use crate::Fallible;
use crate::inproc::keys::Key;
use tidegate::{Gate, Limiter};

pub const NAME: &str = "tidegate";

/// A fixed key, resolved once.
pub struct Handle(tidegate::Handle);

impl Handle {
    pub fn new(allowance: Allowance) -> Fallible<Self> {
        Self::of(&Limiter::new(), allowance.text)
    }

    /// At any limit.
    pub fn with(limit: &str) -> Fallible<Self> {
        Self::of(&Limiter::new(), limit)
    }

    fn of(limiter: &Limiter, limit: &str) -> Fallible<Self> {
        Ok(Self(limiter.gate("bench", limit)?.handle("user:12345678")))
    }
}

impl Hot for Handle {
    fn check(&self) -> bool {
        self.0.check().is_allowed()
    }
}

/// A fixed key at a limit whose clock moves one step a check.
pub struct SteppedHandle {
    clock: Stepped,
    handle: Handle,
}

impl SteppedHandle {
    pub fn new(clock: Stepped, limit: &str) -> Fallible<Self> {
        let limiter = Limiter::builder().clock(clock.clone()).build();
        Ok(Self { clock, handle: Handle::of(&limiter, limit)? })
    }
}

impl Hot for SteppedHandle {
    fn check(&self) -> bool {
        self.clock.step();
        self.handle.check()
    }
}

/// A fixed key whose callers take a permit, for a start now or later. Dropping the permit gives a
/// slot back and leaves units charged.
pub struct Reserving(pub Handle);

impl Hot for Reserving {
    fn check(&self) -> bool {
        self.0.0.reserve().into_permit().is_ok()
    }
}

/// The same, where every start is later than all before.
pub struct ReservingAhead(Handle);

impl ReservingAhead {
    pub fn new(limit: &str) -> Fallible<Self> {
        let handle = Handle::with(limit)?;
        // The first start would be now.
        drop(handle.0.reserve().into_permit()?);
        Ok(Self(handle))
    }
}

impl Hot for ReservingAhead {
    fn check(&self) -> bool {
        self.0.0.reserve().into_permit().is_ok_and(|permit| !permit.wait().is_zero())
    }
}

/// A fixed key whose callers wait until they may start.
pub struct Waiting(tidegate::Handle);

impl Waiting {
    pub fn new(limit: &str) -> Fallible<Self> {
        Ok(Self(Handle::with(limit)?.0))
    }
}

impl Acquired for Waiting {
    async fn acquire(&self) -> bool {
        self.0.acquire().await.is_allowed()
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
