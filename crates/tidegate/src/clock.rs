//! The clock of a store: a fast monotonic one by default, a manual one for tests and simulation.
//!
//! Nothing else in this crate reads the time. The clock is the store's, never the
//! caller's.

use crate::timer::Timer;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since the clock's own beginning.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Timestamp;
///
/// let t = Timestamp::from_micros(5) + Duration::from_micros(2);
/// assert_eq!(t.as_micros(), 7);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The end of a clock's range: thirteen years of microseconds, so that no state outgrows
    /// its word. A clock that would say more stands still here, and a limiter in memory
    /// denies with [`Denial::Unavailable`](crate::Denial::Unavailable) from then on (slots of
    /// concurrency limits go on as before). A limiter is not built on a clock that is there.
    pub const MAX: Self = Self(0x1_8000_0000_0000);

    /// `us` microseconds after the clock's beginning, at most [`Timestamp::MAX`].
    pub const fn from_micros(us: u64) -> Self {
        if us < Self::MAX.0 { Self(us) } else { Self::MAX }
    }

    /// Microseconds since the clock's beginning.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// So long before this; the clock's beginning at the earliest.
    #[cfg(feature = "redis")]
    pub(crate) fn before(self, duration: Duration) -> Self {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(us))
    }

    /// The time from `earlier` to this one; zero if it is not earlier.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        Self::from_micros(self.0.saturating_add(us))
    }
}

/// Where a store takes its time from.
///
/// A clock that steps back gives nothing away, and one that jumped forward and
/// came back locks nobody out for longer than one full drain of the limit. (Keys that
/// only came while it was ahead hold their room until it gets there again.)
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tidegate::{Clock, Timer, Timestamp};
///
/// /// The time of the log that is replayed.
/// #[derive(Clone, Default)]
/// struct LogTime(Arc<(AtomicU64, Timer)>);
///
/// impl LogTime {
///     fn reach(&self, us: u64) {
///         self.0.0.fetch_max(us, Ordering::Relaxed);
///         self.0.1.fire(self.now()); // wakes those whose time has come
///     }
/// }
///
/// impl Clock for LogTime {
///     fn now(&self) -> Timestamp {
///         Timestamp::from_micros(self.0.0.load(Ordering::Relaxed))
///     }
///
///     fn timer(&self) -> &Timer {
///         &self.0.1
///     }
/// }
/// ```
pub trait Clock: Send + Sync + 'static {
    /// The time now. Threads that call it one after the other should not see it
    /// go back.
    fn now(&self) -> Timestamp;

    /// The time now, read close to where it is called. A processor may otherwise read its
    /// counter early, by as long as the loads before it take. It is no fence: nothing that has
    /// to be exact may rest on it.
    fn now_ordered(&self) -> Timestamp {
        self.now()
    }

    /// The Unix time, in microseconds, at which this clock shows zero. Fixed windows, ticks
    /// and slices sit on Unix time by it. Read when a limit is defined or changed, and must
    /// always be the same. Default: 0, so the clock begins in 1970, as a [`ManualClock`]. A
    /// clock that begins with the process says here when that was.
    fn unix_us_at_zero(&self) -> u64 {
        0
    }

    /// What wakes those who wait on this clock.
    fn timer(&self) -> &Timer;
}

/// Why no limiter can be built on a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the clock is at the end of its range, thirteen years after its zero (Timestamp::MAX): \
     count from the process's start instead of from 1970, and return that start's Unix time \
     from `Clock::unix_us_at_zero`"
)]
#[non_exhaustive]
pub struct ClockError;

/// The processor's counter, scaled: about 12 ns a reading, never steps back. The
/// default.
///
/// The system's wall clock is read once, when the process makes its first one, to find Unix
/// time. Later steps of the wall clock are not followed. Windows and ticks
/// move with the counter's drift: by 10 ppm, as of an ordinary crystal, the edge of a day
/// is off by about a second after a day of uptime, and by five minutes after a year.
#[derive(Clone, Debug)]
pub struct MonotonicClock {
    counter: quanta::Clock,
    start: u64,
    /// Microseconds a count, times 2^64.
    us_per_count: u64,
    /// The wall clock at `start`.
    unix_us: u64,
}

impl MonotonicClock {
    /// The process's one monotonic clock; its beginning is the first call.
    pub fn new() -> Self {
        static SHARED: LazyLock<MonotonicClock> = LazyLock::new(|| {
            let counter = quanta::Clock::new();
            let start = counter.raw();
            // The clock's own scale, measured over a long span to lose nothing of it,
            // so that a reading takes one multiplication.
            let ns = u128::from(counter.delta_as_nanos(0, 1 << 50));
            let us_per_count = u64::try_from((ns << 14) / 1_000).unwrap_or(u64::MAX);
            // The one reading of the wall clock; 0 if it is set to before 1970.
            #[expect(clippy::disallowed_methods, reason = "the anchor of this clock in Unix time")]
            let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let unix_us = u64::try_from(since_1970.as_micros()).unwrap_or(0);
            MonotonicClock { counter, start, us_per_count, unix_us }
        });
        SHARED.clone()
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let counts = self.counter.raw().saturating_sub(self.start);
        let us = (u128::from(counts) * u128::from(self.us_per_count)) >> 64;
        Timestamp::from_micros(us as u64)
    }

    fn now_ordered(&self) -> Timestamp {
        // The system's own reading waits for earlier loads. Ours comes after it in the code,
        // and can still be made before it has ended: closer, but in no order.
        #[expect(clippy::disallowed_methods, reason = "used for the time it takes, its value is not")]
        let _ = std::hint::black_box(std::time::Instant::now());
        self.now()
    }

    fn unix_us_at_zero(&self) -> u64 {
        self.unix_us
    }

    fn timer(&self) -> &Timer {
        Timer::of_the_process()
    }
}

/// A clock that stands still until it is set: for tests and simulation.
///
/// Its zero is 1970-01-01 00:00 UTC, a Thursday: where windows begin is the same in every
/// run. It stands still for good at [`Timestamp::MAX`]. Clones share the time. Moving it wakes
/// those whose time has come.
///
/// ```
/// use std::time::Duration;
/// use tidegate::{Limiter, ManualClock};
///
/// let clock = ManualClock::new();
/// let limiter = Limiter::builder().clock(clock.clone()).build();
/// let gate = limiter.gate("greet", "1 per 10s")?;
/// assert!(gate.check("ann").is_allowed());
/// assert_eq!(gate.check("ann").retry_after(), Some(Duration::from_secs(10)));
/// clock.advance(Duration::from_secs(10));
/// assert!(gate.check("ann").is_allowed());
/// # Ok::<(), tidegate::GateError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    shared: Arc<Manual>,
}

#[derive(Debug, Default)]
struct Manual {
    now_us: AtomicU64,
    timer: Timer,
}

impl ManualClock {
    /// Stands at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        let clock = Self::default();
        clock.set(now);
        clock
    }

    /// Moves forward and wakes those whose time has come.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + by);
    }

    /// Jumps, also backwards, and wakes those whose time has come.
    pub fn set(&self, now: Timestamp) {
        self.shared.now_us.store(now.as_micros(), Ordering::SeqCst);
        self.shared.timer.fire(now);
    }

    /// Where it stands.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.shared.now_us.load(Ordering::SeqCst))
    }

    /// How many are waiting on it.
    pub fn waiting(&self) -> usize {
        self.shared.timer.len()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        ManualClock::now(self)
    }

    fn timer(&self) -> &Timer {
        &self.shared.timer
    }
}

/// The store's clock: the common one without a virtual call, any other behind one.
#[derive(Clone)]
pub(crate) enum StoreClock {
    Monotonic(MonotonicClock),
    Other(Arc<dyn Clock>),
}

impl StoreClock {
    #[inline]
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Monotonic(clock) => clock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    /// True if both show the same time.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Monotonic(_), Self::Monotonic(_)) => true,
            (Self::Other(one), Self::Other(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// Everything but the time is read seldom: a virtual call does for it.
impl std::ops::Deref for StoreClock {
    type Target = dyn Clock;

    fn deref(&self) -> &dyn Clock {
        match self {
            Self::Monotonic(clock) => clock,
            Self::Other(clock) => &**clock,
        }
    }
}
