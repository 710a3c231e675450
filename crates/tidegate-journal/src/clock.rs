//! The one place of this crate that reads a clock. The journal's own time is the database's,
//! or on SQLite that of `wall.rs`; these are for waiting, measuring and schedules.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
pub(crate) type Micros = i64;

/// For deadlines within this process, and for measuring.
#[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Time since the machine started, also while it was suspended: leases end by the database's clock,
/// which goes on meanwhile, and `Instant` stands still.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Without such a clock: a machine that was suspended is noticed by the next sign of life.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(crate) fn since_boot() -> Duration {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    instant().duration_since(*BEGUN.get_or_init(instant))
}

/// For schedules by the calendar.
#[expect(clippy::disallowed_methods, reason = "the one place that reads it")]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}

/// A length in microseconds; what does not fit is as long as can be.
pub(crate) fn micros(time: Duration) -> Micros {
    Micros::try_from(time.as_micros()).unwrap_or(Micros::MAX)
}

/// The same for a database that has to add it to its own time: a century at most.
#[cfg(feature = "postgres")]
pub(crate) fn micros_ahead(time: Duration) -> Micros {
    micros(time.min(crate::call::FOREVER))
}

pub(crate) fn to_micros(time: SystemTime) -> Micros {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => micros(since),
        Err(before) => -micros(before.duration()),
    }
}

pub(crate) fn to_time(us: Micros) -> SystemTime {
    let length = Duration::from_micros(us.unsigned_abs());
    let time = if us < 0 { UNIX_EPOCH.checked_sub(length) } else { UNIX_EPOCH.checked_add(length) };
    time.unwrap_or(UNIX_EPOCH)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// `/proc/uptime` counts suspension, in hundredths of a second, rounded down.
    #[test]
    fn time_since_the_start_is_what_the_system_says() {
        let said = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            Duration::from_secs_f64(text.split(' ').next().unwrap().parse().unwrap())
        };
        let (before, read, after) = (said(), since_boot(), said());
        let rounding = Duration::from_millis(11);
        assert!(before <= read && read <= after + rounding, "{before:?} {read:?} {after:?}");
    }
}
