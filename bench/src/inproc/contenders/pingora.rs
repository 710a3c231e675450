//! pingora-limits counts in a sketch of 4 times 1,024 counters that all keys share, so its memory
//! does not grow, and with many keys each is charged for the others.
//!
//! It has no burst and no slow refill, so it runs with 1,000 a second. No key comes near that under
//! uniform requests: whatever it refuses there, it refuses wrongly. One such share, taken before
//! the rounds, stands for all its cases, because under Zipf some refusals would be right.

use super::{Hot, Keyed};
use crate::inproc::keys::Key;
use pingora_limits::rate::{PROPORTIONAL_RATE_ESTIMATE_CALC_FN, Rate};
use std::time::Duration;

pub const NAME: &str = "pingora-limits";
const PER_SECOND_MAX: isize = 1_000;

pub struct Sketch(Rate);

impl Sketch {
    pub fn new() -> Self {
        Self(Rate::new(Duration::from_secs(1)))
    }

    /// Share of these uniform requests that it refuses.
    pub fn wrong_share(uniform: &[Key]) -> f64 {
        let sketch = Self::new();
        let refused = uniform.iter().filter(|key| !sketch.check(key)).count();
        refused as f64 / uniform.len() as f64
    }
}

impl Keyed for Sketch {
    fn check(&self, key: &Key) -> bool {
        self.0.observe(&key.as_str(), 1) <= PER_SECOND_MAX
    }
}

/// One key's rate over a sliding window: its estimate from this interval's count and the last one's.
pub struct Window {
    rate: Rate,
    per_second_max: f64,
}

impl Window {
    /// So many in a second.
    pub fn new(per_second_max: u32) -> Self {
        Self { rate: Rate::new(Duration::from_secs(1)), per_second_max: f64::from(per_second_max) }
    }
}

impl Hot for Window {
    /// It charges before it knows: what it refuses counts as well.
    fn check(&self) -> bool {
        const KEY: &str = "user:12345678";
        self.rate.observe(&KEY, 1);
        self.rate.rate_with(&KEY, PROPORTIONAL_RATE_ESTIMATE_CALC_FN) <= self.per_second_max
    }
}
