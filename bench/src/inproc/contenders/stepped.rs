//! A clock that moves by one step at each call, so that a limit that is short of capacity has just
//! as much of it again at every call: with the real clock, a fast limiter would be denied more often
//! than a slow one, and do other work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tidegate::{Clock, Timer, Timestamp};

/// Clones share the time.
#[derive(Clone)]
pub struct Stepped(Arc<Shared>);

struct Shared {
    now_us: AtomicU64,
    step_us: u64,
    timer: Timer,
}

impl Stepped {
    pub fn by(step: Duration) -> Self {
        let step_us = step.as_micros() as u64;
        Self(Arc::new(Shared { now_us: AtomicU64::new(0), step_us, timer: Timer::default() }))
    }

    /// Moves it, and returns the new time in microseconds. Nobody waits on it who would have to be
    /// woken.
    pub fn step(&self) -> u64 {
        self.0.now_us.fetch_add(self.0.step_us, Ordering::Relaxed) + self.0.step_us
    }
}

impl Clock for Stepped {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.now_us.load(Ordering::Relaxed))
    }

    fn timer(&self) -> &Timer {
        &self.0.timer
    }
}
