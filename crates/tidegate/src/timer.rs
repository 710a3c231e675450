//! A timer of the crate's own, so that waiting works under any executor or none.
//!
//! One thread for the process, started by the first waiter. A waiter costs an entry in an ordered
//! map, so millions can wait; a waiter that is dropped removes its entry. The timer decides
//! nothing: it wakes tasks, and they look again.

use crate::clock::{Clock, MonotonicClock, Timestamp};
use crate::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Condvar, LazyLock, Mutex};
use std::task::Waker;
use std::time::Duration;

/// Wakes tasks at their time. Part of a [`Clock`]: a clock of your own holds a
/// `Timer` and calls [`fire`](Timer::fire) whenever its time moves.
#[derive(Debug, Default)]
pub struct Timer {
    // Wakers run, and may panic, outside this lock.
    sleepers: Mutex<Sleepers>,
    earlier: Condvar,
}

#[derive(Debug, Default)]
struct Sleepers {
    by_time: BTreeMap<Alarm, Waker>,
    armed: u64,
    /// Of the timer that a thread fires: the process that has the thread; 0 until there is one.
    process: Option<u32>,
}

/// An entry of the timer: the time, and a number that tells equal times apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alarm {
    at: Timestamp,
    number: u64,
}

/// Woken a chunk at a time, so that a million due at once do not hold the lock.
const CHUNK: usize = 1_024;

/// The thread looks this often at the least.
const IDLE: Duration = Duration::from_secs(3_600);

impl Timer {
    /// A timer that only [`fire`](Self::fire) moves.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes everyone whose time is `now` or earlier; says how many.
    pub fn fire(&self, now: Timestamp) -> usize {
        let mut woken = 0;
        loop {
            let due = self.take_due(now);
            if due.is_empty() {
                return woken;
            }
            woken += due.len();
            for waker in due {
                // A waker that panics must not keep the others asleep.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
            }
        }
    }

    /// How many are waiting.
    pub fn len(&self) -> usize {
        lock(&self.sleepers).by_time.len()
    }

    /// True if nobody is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn take_due(&self, now: Timestamp) -> Vec<Waker> {
        let mut sleepers = lock(&self.sleepers);
        let due = sleepers.by_time.extract_if(..=Alarm { at: now, number: u64::MAX }, |_, _| true);
        due.take(CHUNK).map(|(_, waker)| waker).collect()
    }

    /// Wakes this waker at a time: by the alarm that it has for it already, or by a new one.
    pub(crate) fn arm(&self, at: Timestamp, alarm: Option<Alarm>, waker: Waker) -> Alarm {
        let mut sleepers = lock(&self.sleepers);
        // A process that has the timer by `fork` has not got its thread.
        if sleepers.process.is_some_and(|process| process != crate::process::id()) {
            let run = || Self::of_the_process().run();
            let thread = std::thread::Builder::new().name("tidegate-timer".into()).spawn(run);
            thread.expect("the process can start one thread for its timer");
            sleepers.process = Some(crate::process::id());
        }
        sleepers.armed += 1;
        let alarm = alarm.unwrap_or(Alarm { at, number: sleepers.armed });
        let is_first = sleepers.by_time.first_key_value().is_none_or(|(first, _)| alarm < *first);
        let replaced = sleepers.by_time.insert(alarm, waker);
        if is_first {
            self.earlier.notify_one();
        }
        drop(sleepers);
        // Without the lock: a waker may own anything, a waiter even.
        drop(replaced);
        alarm
    }

    pub(crate) fn disarm(&self, alarm: Alarm) {
        let gone = lock(&self.sleepers).by_time.remove(&alarm);
        drop(gone);
    }

    /// The timer of the monotonic clock, with its thread.
    pub(crate) fn of_the_process() -> &'static Timer {
        static TIMER: LazyLock<Timer> = LazyLock::new(|| {
            let sleepers = Sleepers { process: Some(0), ..Sleepers::default() };
            Timer { sleepers: Mutex::new(sleepers), earlier: Condvar::new() }
        });
        &TIMER
    }

    fn run(&self) -> ! {
        let clock = MonotonicClock::new();
        loop {
            self.fire(clock.now());
            let sleepers = lock(&self.sleepers);
            let next = sleepers.by_time.first_key_value();
            let wait = next.map_or(IDLE, |(alarm, _)| alarm.at.since(clock.now()));
            drop(self.earlier.wait_timeout(sleepers, wait));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_that_panics_keeps_nobody_asleep() {
        struct Broken;
        impl std::task::Wake for Broken {
            fn wake(self: std::sync::Arc<Self>) {
                panic!("a broken executor");
            }
        }
        let timer = Timer::new();
        timer.arm(Timestamp::from_micros(1), None, std::sync::Arc::new(Broken).into());
        timer.arm(Timestamp::from_micros(1), None, Waker::noop().clone());
        assert_eq!(timer.fire(Timestamp::from_micros(1)), 2);
    }

    #[test]
    fn wakes_in_order_and_forgets_who_left() {
        let timer = Timer::new();
        let waker = Waker::noop();
        let early = timer.arm(Timestamp::from_micros(1), None, waker.clone());
        timer.arm(Timestamp::from_micros(1), None, waker.clone());
        let late = timer.arm(Timestamp::from_micros(3), None, waker.clone());
        timer.disarm(early);
        assert_eq!(timer.arm(Timestamp::from_micros(3), Some(late), waker.clone()), late);
        assert_eq!(timer.len(), 2);
        assert_eq!(timer.fire(Timestamp::from_micros(2)), 1);
        assert_eq!(timer.len(), 1);
        assert_eq!(timer.fire(Timestamp::from_micros(3)), 1);
        assert!(timer.is_empty());
    }
}
