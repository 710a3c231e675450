//! The least that an exact limiter on one hot key has to do: read the clock, then read one word
//! (to deny) or exchange it (to allow). No limiter can be faster with this clock, so this shows how
//! much of a figure is the machine's.

use super::Hot;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub const ALLOW: &str = "clock and compare-and-swap";
pub const DENY: &str = "clock and read";

/// On cache lines of its own: beside the clock's numbers, every exchange would take these away from
/// the other thread.
#[repr(align(128))]
struct Word(AtomicU64);

pub struct Allow {
    clock: quanta::Clock,
    word: Word,
}

impl Allow {
    pub fn new() -> Self {
        Self { clock: quanta::Clock::new(), word: Word(AtomicU64::new(0)) }
    }
}

impl Hot for Allow {
    fn check(&self) -> bool {
        let now = self.clock.delta_as_nanos(0, self.clock.raw());
        let mut seen = self.word.0.load(Relaxed);
        while let Err(newer) =
            self.word.0.compare_exchange_weak(seen, seen.wrapping_add(now | 1), Relaxed, Relaxed)
        {
            seen = newer;
        }
        true
    }
}

pub struct Deny {
    clock: quanta::Clock,
    word: Word,
}

impl Deny {
    pub fn new() -> Self {
        Self { clock: quanta::Clock::new(), word: Word(AtomicU64::new(u64::MAX)) }
    }
}

impl Hot for Deny {
    fn check(&self) -> bool {
        self.clock.delta_as_nanos(0, self.clock.raw()) > self.word.0.load(Relaxed)
    }
}
