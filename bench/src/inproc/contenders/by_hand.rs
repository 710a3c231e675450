//! What people write where no crate has the algorithm: a few fields behind the standard library's
//! mutex. Only for one key, and without waits or headers, so this is the least that it costs.

use super::{Hot, Stepped};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub const LOG: &str = "by hand: VecDeque of times";
pub const WINDOW: &str = "by hand: two counters";

/// Where the time comes from.
pub trait Time: Send + Sync {
    fn now(&self) -> Duration;
}

/// The system's monotonic clock.
pub struct Real(Instant);

impl Real {
    pub fn new() -> Self {
        Self(Instant::now())
    }
}

impl Time for Real {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

impl Time for Stepped {
    fn now(&self) -> Duration {
        Duration::from_micros(self.step())
    }
}

/// At most so many starts in any period: a log of them.
pub struct Log<T> {
    time: T,
    starts_max: usize,
    period: Duration,
    starts: Mutex<VecDeque<Duration>>,
}

impl<T> Log<T> {
    pub fn new(time: T, starts_max: usize, period: Duration) -> Self {
        let starts = Mutex::new(VecDeque::with_capacity(starts_max));
        Self { time, starts_max, period, starts }
    }
}

impl<T: Time> Hot for Log<T> {
    fn check(&self) -> bool {
        let now = self.time.now();
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        while starts.front().is_some_and(|start| now - *start >= self.period) {
            starts.pop_front();
        }
        let is_allowed = starts.len() < self.starts_max;
        if is_allowed {
            starts.push_back(now);
        }
        is_allowed
    }
}

/// The counts of this period and of the one before, weighted by how much of the latter is still in
/// the window: an estimate, which assumes that starts are spread evenly.
pub struct Window<T> {
    time: T,
    starts_max: f64,
    period: Duration,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    period: u64,
    current: u64,
    previous: u64,
}

impl<T> Window<T> {
    pub fn new(time: T, starts_max: u32, period: Duration) -> Self {
        Self { time, starts_max: f64::from(starts_max), period, counts: Mutex::default() }
    }
}

impl<T: Time> Hot for Window<T> {
    fn check(&self) -> bool {
        let periods = self.time.now().as_secs_f64() / self.period.as_secs_f64();
        let (period, elapsed) = (periods as u64, periods.fract());
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if period != counts.period {
            let previous = if period == counts.period + 1 { counts.current } else { 0 };
            *counts = Counts { period, current: 0, previous };
        }
        let used = counts.previous as f64 * (1.0 - elapsed) + counts.current as f64;
        let is_allowed = used + 1.0 <= self.starts_max;
        counts.current += u64::from(is_allowed);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_allows_what_has_left_the_window_and_no_more() {
        let log =
            |step_ms| Log::new(Stepped::by(Duration::from_millis(step_ms)), 100, Duration::from_secs(1));
        let allowed = |log: Log<Stepped>| (0..10_000).filter(|_| log.check()).count();
        assert_eq!(allowed(log(10)), 10_000);
        // Half of the calls, and the first hundred while the log was not yet full.
        assert!((5_000..=5_100).contains(&allowed(log(5))));
    }

    #[test]
    fn a_window_counts_what_is_left_of_the_period_before() {
        let window =
            |step_ms| Window::new(Stepped::by(Duration::from_millis(step_ms)), 100, Duration::from_secs(1));
        let allowed = |window: Window<Stepped>| (0..10_000).filter(|_| window.check()).count();
        assert_eq!(allowed(window(20)), 10_000);
        assert!((4_500..=5_100).contains(&allowed(window(5))));
    }
}
