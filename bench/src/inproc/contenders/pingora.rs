//! pingora-limits counts in a sketch of 4 times 1,024 counters that all keys share, so its memory
//! does not grow, and with many keys each is charged for the others.
//!
//! It has no burst and no slow refill, so it runs with 1,000 a second. No key comes near that under
//! uniform requests: whatever it refuses there, it refuses wrongly. One such share, taken before
//! the rounds, stands for all its cases, because under Zipf some refusals would be right.

use super::Keyed;
use crate::inproc::keys::Key;
use pingora_limits::rate::Rate;
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
