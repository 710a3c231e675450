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
