//! tokio's semaphore: what services limit their concurrency by.

use super::Hot;
use tokio::sync::Semaphore;

pub const NAME: &str = "tokio's Semaphore";

pub struct Slots(Semaphore);

impl Slots {
    pub fn new(slots: u32) -> Self {
        Self(Semaphore::new(slots as usize))
    }
}

impl Hot for Slots {
    /// Takes a slot, and gives it back at once.
    fn check(&self) -> bool {
        self.0.try_acquire().is_ok()
    }
}
