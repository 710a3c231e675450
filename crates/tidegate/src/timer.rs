//! A timer of the crate's own, so that waiting works under any executor or none.
//!
//! One thread for the process, started by the first waiter. A waiter costs an entry in an ordered
//! map, so millions can wait; a waiter that is dropped removes its entry. The timer decides
//! nothing: it wakes tasks, and they look again.

use crate::clock::{Clock, MonotonicClock, Timestamp};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// Wakes tasks at their time. Part of a [`Clock`]: a clock of your own holds a
/// `Timer` and calls [`fire`](Timer::fire) whenever its time moves.
#[derive(Debug, Default)]
pub struct Timer {
    sleepers: Mutex<Sleepers>,
    earlier: Condvar,
    /// The process whose thread fires it; zero if none does.
    process: AtomicU32,
}

#[derive(Debug, Default)]
struct Sleepers {
    by_time: BTreeMap<Alarm, Waker>,
    armed: u64,
}

/// An entry of the timer: the time, and a number that tells equal times apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alarm {
    at: Timestamp,
    number: u64,
}

/// Woken a chunk at a time, so that a million due at once do not hold the lock.
const CHUNK: usize = 1_024;

impl Timer {
    /// A timer that only [`fire`](Self::fire) moves.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes everyone whose time is `now` or earlier; says how many.
    pub fn fire(&self, now: Timestamp) -> usize {
        let mut woken = 0;
        loop {
            let due = take_due(&mut self.lock(), now);
            if due.is_empty() {
                return woken;
            }
            woken += due.len();
            wake_all(due);
        }
    }

    /// How many are waiting.
    pub fn len(&self) -> usize {
        self.lock().by_time.len()
    }

    /// True if nobody is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn arm(&self, at: Timestamp, waker: Waker) -> Alarm {
        self.stays_alive();
        let mut sleepers = self.lock();
        sleepers.armed += 1;
        let alarm = Alarm { at, number: sleepers.armed };
        let is_first = sleepers.by_time.first_key_value().is_none_or(|(first, _)| alarm < *first);
        sleepers.by_time.insert(alarm, waker);
        if is_first {
            self.earlier.notify_one();
        }
        alarm
    }

    /// The same alarm for another waker; false if it has gone off already.
    pub(crate) fn rearm(&self, alarm: Alarm, waker: &Waker) -> bool {
        let replaced = match self.lock().by_time.get_mut(&alarm) {
            Some(held) if held.will_wake(waker) => return true,
            Some(held) => Some(std::mem::replace(held, waker.clone())),
            None => None,
        };
        // Dropped without the lock: a waker may own anything, a waiter even.
        replaced.is_some()
    }

    pub(crate) fn disarm(&self, alarm: Alarm) {
        let gone = self.lock().by_time.remove(&alarm);
        drop(gone);
    }

    /// The timer of the monotonic clock, with its thread.
    pub(crate) fn of_the_process() -> &'static Timer {
        static TIMER: LazyLock<&'static Timer> = LazyLock::new(|| {
            let timer: &'static Timer = Box::leak(Box::default());
            timer.process.store(crate::process::id(), Ordering::Relaxed);
            timer.start();
            timer
        });
        &TIMER
    }

    fn start(&'static self) {
        std::thread::Builder::new()
            .name("tidegate-timer".into())
            .spawn(move || self.run(&MonotonicClock::new()))
            .expect("the process can start one thread for its timer");
    }

    /// A process that has the timer by `fork` has not got its thread: it starts one.
    fn stays_alive(&self) {
        let (held, own) = (self.process.load(Ordering::Relaxed), crate::process::id());
        let is_inherited = held != 0 && held != own;
        if is_inherited
            && self.process.compare_exchange(held, own, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            Self::of_the_process().start();
        }
    }

    fn run(&self, clock: &MonotonicClock) -> ! {
        let mut sleepers = self.lock();
        loop {
            let now = clock.now();
            let due = take_due(&mut sleepers, now);
            if !due.is_empty() {
                drop(sleepers);
                wake_all(due);
                sleepers = self.lock();
                continue;
            }
            let next = sleepers.by_time.first_key_value().map(|(alarm, _)| alarm.at);
            sleepers = match next {
                None => self.earlier.wait(sleepers).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let waited = self.earlier.wait_timeout(sleepers, at.since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        // A panic in a waker happens outside the lock; the map is whole either way.
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waker that panics must not keep the others asleep.
fn wake_all(due: Vec<Waker>) {
    for waker in due {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
    }
}

fn take_due(sleepers: &mut Sleepers, now: Timestamp) -> Vec<Waker> {
    let mut due = Vec::new();
    while due.len() < CHUNK {
        match sleepers.by_time.first_entry() {
            Some(first) if first.key().at <= now => due.push(first.remove()),
            _ => break,
        }
    }
    due
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
        timer.arm(Timestamp::from_micros(1), std::sync::Arc::new(Broken).into());
        timer.arm(Timestamp::from_micros(1), Waker::noop().clone());
        assert_eq!(timer.fire(Timestamp::from_micros(1)), 2);
    }

    #[test]
    fn wakes_in_order_and_forgets_who_left() {
        let timer = Timer::new();
        let waker = Waker::noop();
        let early = timer.arm(Timestamp::from_micros(1), waker.clone());
        timer.arm(Timestamp::from_micros(1), waker.clone());
        timer.arm(Timestamp::from_micros(3), waker.clone());
        timer.disarm(early);
        assert!(!timer.rearm(early, waker));
        assert_eq!(timer.fire(Timestamp::from_micros(2)), 1);
        assert_eq!(timer.len(), 1);
        assert_eq!(timer.fire(Timestamp::from_micros(3)), 1);
        assert!(timer.is_empty());
    }
}
