//! The time of a journal on SQLite.
//!
//! On PostgreSQL the database's time decides everything about leases. Here there is only this
//! machine's, which people and daemons set. So [`WallClock`] runs by the monotonic
//! clock, begins at the wall clock, and is drawn towards it by an eighth of the time that
//! passes: a wall clock that jumps, in either direction and by any amount, makes a lease last
//! between 8/9 and 8/7 of its length, and no more. It never steps back.
//!
//! Processes that share a file take over the latest time that any of them wrote, so that
//! nobody's lease ends early because another process was started under another wall clock.
//! What is left: a process that *starts* under a clock that is ahead by some time takes
//! leases over earlier by that time. Their old owners can then record nothing (fencing).

use crate::clock::{Micros, micros, since_boot, to_micros, wall};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Where a journal on SQLite takes its time from; tests bring their own.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::{Duration, SystemTime};
/// use tidegate_journal::TimeSource;
///
/// /// Stands still until the test moves it.
/// #[derive(Default)]
/// struct TestTime(AtomicU64);
///
/// impl TimeSource for TestTime {
///     fn wall(&self) -> SystemTime {
///         SystemTime::UNIX_EPOCH + self.monotonic()
///     }
///
///     fn monotonic(&self) -> Duration {
///         Duration::from_secs(self.0.load(Ordering::Relaxed))
///     }
/// }
/// ```
pub trait TimeSource: Send + Sync + 'static {
    /// What people think the time is. May jump.
    fn wall(&self) -> SystemTime;

    /// Time since some beginning. Never steps back, and goes on while the machine is suspended.
    fn monotonic(&self) -> Duration;
}

/// The system's clocks.
#[derive(Debug)]
pub(crate) struct SystemTimeSource;

impl TimeSource for SystemTimeSource {
    fn wall(&self) -> SystemTime {
        wall()
    }

    fn monotonic(&self) -> Duration {
        since_boot()
    }
}

/// A wall clock that neither jumps nor steps back.
pub(crate) struct WallClock {
    source: Box<dyn TimeSource>,
    last: Mutex<Reading>,
}

struct Reading {
    told: Micros,
    monotonic: Duration,
}

impl WallClock {
    pub(crate) fn new(source: Box<dyn TimeSource>) -> Self {
        let last = Reading { told: to_micros(source.wall()), monotonic: source.monotonic() };
        Self { last: Mutex::new(last), source }
    }

    /// The time, not before `seen`, which is what another process wrote.
    pub(crate) fn now_after(&self, seen: Micros) -> Micros {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let monotonic = self.source.monotonic();
        let passed = micros(monotonic.saturating_sub(last.monotonic));
        let plain = last.told.saturating_add(passed);
        let drawn = to_micros(self.source.wall()).saturating_sub(plain).clamp(-passed / 8, passed / 8);
        *last = Reading { told: plain.saturating_add(drawn).max(seen), monotonic };
        last.told
    }

    /// See [`TimeSource::monotonic`].
    pub(crate) fn monotonic(&self) -> Duration {
        self.source.monotonic()
    }

    pub(crate) fn now(&self) -> Micros {
        self.now_after(Micros::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::to_time;
    use std::sync::Arc;

    const S: Micros = 1_000_000;

    #[derive(Clone, Default)]
    struct Manual(Arc<Mutex<(Micros, Micros)>>);

    impl Manual {
        fn pass(&self, us: Micros) {
            let mut both = self.0.lock().unwrap();
            both.0 += us;
            both.1 += us;
        }

        fn jump(&self, us: Micros) {
            self.0.lock().unwrap().0 += us;
        }
    }

    impl TimeSource for Manual {
        fn wall(&self) -> SystemTime {
            to_time(self.0.lock().unwrap().0)
        }

        fn monotonic(&self) -> Duration {
            Duration::from_micros(self.0.lock().unwrap().1.unsigned_abs())
        }
    }

    fn at(us: Micros) -> (Manual, WallClock) {
        let source = Manual::default();
        source.jump(us);
        (source.clone(), WallClock::new(Box::new(source)))
    }

    #[test]
    fn without_jumps_it_is_the_wall_clock() {
        let (source, clock) = at(1_000 * S);
        assert_eq!(clock.now(), 1_000 * S);
        source.pass(5 * S);
        assert_eq!(clock.now(), 1_005 * S);
    }

    #[test]
    fn a_jump_bends_it_by_an_eighth_and_it_arrives() {
        for jump in [-3_600 * S, 3_600 * S, 80 * S, -80 * S] {
            let (source, clock) = at(1_000_000 * S);
            source.jump(jump);
            assert_eq!(clock.now(), 1_000_000 * S, "at once it shows nothing of it");
            source.pass(8 * S);
            assert_eq!(clock.now(), 1_000_008 * S + jump.signum() * S);
            for _ in 0..8 * 3_600 {
                let before = clock.now();
                source.pass(S);
                let passed = clock.now() - before;
                assert!((S - S / 8..=S + S / 8).contains(&passed), "{passed}");
            }
            assert_eq!(clock.now(), to_micros(source.wall()));
        }
    }

    #[test]
    fn it_never_lags_behind_what_another_process_wrote() {
        let (source, clock) = at(0);
        assert_eq!(clock.now_after(50 * S), 50 * S);
        source.pass(8 * S);
        assert_eq!(clock.now(), 57 * S, "goes on from there, slowed towards the wall clock");
    }
}
