//! Who waits for an order's change is woken by a bell that it shares with others.
//!
//! A fixed number of bells, so that no crowd of waiting buyers takes memory of its own here;
//! whoever is woken looks whether it was theirs.

use crate::order::OrderSn;
use std::hash::{BuildHasher as _, RandomState};
use tokio::sync::Notify;

const BELLS: usize = 1024;

pub(super) struct Bells {
    bells: Vec<Notify>,
    hash: RandomState,
}

impl Bells {
    pub(super) fn new() -> Self {
        Self { bells: (0..BELLS).map(|_| Notify::new()).collect(), hash: RandomState::new() }
    }

    pub(super) fn of(&self, sn: &OrderSn) -> &Notify {
        let nth = self.hash.hash_one(sn) % BELLS as u64;
        &self.bells[usize::try_from(nth).unwrap_or(0)]
    }

    pub(super) fn ring(&self, sn: &OrderSn) {
        self.of(sn).notify_waiters();
    }
}
