//! The traps that limiters fall into, each as a test that its name describes.
//!
//! Those of Redis, of the journal and of the sale are tested where those are.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod clock;
mod counting;
mod full;
mod left;
mod memory;
mod mixed;
mod together;
mod waiting;
mod wakers;

use std::time::Duration;
use tidegate::{Gate, Limiter, ManualClock};

/// Every algorithm that counts starts, as "5 at once, 5 in each second".
const FIVE_A_SECOND: [&str; 8] = [
    "5/s",
    "999985 per 199997s burst 5",
    "leaky 5/s capacity 5",
    "5 every 1s cap 5",
    "5 per 1s fixed-window",
    "5 per 1s sliding-window",
    "5 per 1s sliding-window slices 1",
    "5 per 1s sliding-log",
];

fn gate_at_zero(limit: &str) -> (ManualClock, Gate) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).max_keys(1_000).build();
    (clock, limiter.gate("trap", limit).unwrap())
}

fn micros(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}
