//! The records in a worker's hands: their leases, and a word to stop each of them.
//!
//! A lease that ends is over at once for whoever asks, be the tasks that watch it held up, or the
//! whole machine: its end is compared with a clock that goes on.

use super::line::Line;
use crate::Guid;
use crate::backend::Lease;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// The time by which leases end, see [`crate::backend::Backend::clock`].
pub(super) type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

pub(super) struct Held {
    clock: Clock,
    by_guid: Mutex<HashMap<Guid, Entry>>,
    /// Something was let go of.
    pub(super) room: Notify,
}

struct Entry {
    lease: Lease,
    line: Arc<Line>,
    stop: Arc<Stop>,
}

/// Why work on a record should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It was cancelled, or somebody else has it: nothing of it can be entered.
    Lost,
    /// The worker closes: the record goes back.
    Closing,
}

/// Said once or more; heard also by one who listens later.
pub(super) struct Stop {
    clock: Clock,
    /// Ours until then, by that clock, whatever becomes of the database.
    until_us: AtomicU64,
    is_lost: AtomicBool,
    is_given_up: AtomicBool,
    notify: Notify,
}

impl Stop {
    fn new(clock: &Clock, until: Duration) -> Self {
        let stop = Self {
            clock: clock.clone(),
            until_us: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
            is_given_up: AtomicBool::new(false),
            notify: Notify::new(),
        };
        stop.prolong(until);
        stop
    }

    fn prolong(&self, until: Duration) {
        self.until_us.store(u64::try_from(until.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    fn until(&self) -> Duration {
        Duration::from_micros(self.until_us.load(Ordering::SeqCst))
    }

    /// Whatever it still does counts for nothing: the worker does not wait for it any more.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::SeqCst);
    }

    /// What whoever works on it wants to know: nobody else can have it, and its end counts.
    pub(super) fn counts(&self) -> bool {
        !self.is_lost() && !self.is_given_up.load(Ordering::SeqCst)
    }

    fn say(&self, why: Why) {
        if why == Why::Lost {
            self.is_lost.store(true, Ordering::SeqCst);
        }
        // Leaves a permit, so that one who comes later hears it.
        self.notify.notify_one();
    }

    /// Once lost, for good: a sign of life that is heard late brings nothing back that somebody may
    /// have let go of.
    pub(super) fn is_lost(&self) -> bool {
        let is_over = || (self.clock)() >= self.until();
        if !self.is_lost.load(Ordering::SeqCst) && is_over() {
            self.is_lost.store(true, Ordering::SeqCst);
        }
        self.is_lost.load(Ordering::SeqCst)
    }

    pub(super) async fn heard(&self) -> Why {
        self.notify.notified().await;
        if self.is_lost() { Why::Lost } else { Why::Closing }
    }
}

impl Entry {
    /// To whoever works on it, and to its line, where it may still wait.
    fn say(&self, why: Why) {
        self.stop.say(why);
        self.line.look.notify_one();
    }
}

impl Held {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, by_guid: Mutex::default(), room: Notify::new() }
    }

    pub(super) fn add(&self, lease: &Lease, line: &Arc<Line>, until: Duration) -> Arc<Stop> {
        let stop = Arc::new(Stop::new(&self.clock, until));
        let entry = Entry { lease: lease.clone(), line: line.clone(), stop: stop.clone() };
        // It is ours again after its lease had lapsed: what still runs under the old one has lost it.
        if let Some(old) = self.lock().insert(lease.guid.clone(), entry) {
            old.say(Why::Lost);
        }
        stop
    }

    /// Lets go of this lease; a newer one of the same record stays.
    pub(super) fn remove(&self, lease: &Lease) {
        let mut held = self.lock();
        if held.get(&lease.guid).is_some_and(|entry| entry.lease == *lease) {
            held.remove(&lease.guid);
        }
        drop(held);
        self.room.notify_one();
    }

    /// These are ours until then.
    pub(super) fn prolong<'a>(&self, leases: impl Iterator<Item = &'a Lease>, until: Duration) {
        let held = self.lock();
        for lease in leases {
            if let Some(entry) = held.get(&lease.guid).filter(|entry| entry.lease == *lease) {
                entry.stop.prolong(until);
            }
        }
    }

    /// Asks whoever works on something that is not ours any more to stop; answers how long it is
    /// until the next lease ends.
    pub(super) fn lapse(&self) -> Duration {
        let (held, now) = (self.lock(), (self.clock)());
        let mut soonest = Duration::MAX;
        for entry in held.values() {
            if entry.stop.is_lost() {
                entry.say(Why::Lost);
            } else {
                soonest = soonest.min(entry.stop.until());
            }
        }
        soonest.saturating_sub(now)
    }

    /// Asks whoever works on it under a lease before this number to stop: it was cancelled, or
    /// somebody else has it. It may be ours again since then, under a later one.
    pub(super) fn lose(&self, guid: &Guid, before: i64) {
        if let Some(entry) = self.lock().get(guid).filter(|entry| entry.lease.number < before) {
            entry.say(Why::Lost);
        }
    }

    pub(super) fn stop_all(&self, why: Why) {
        self.lock().values().for_each(|entry| entry.say(why));
    }

    pub(super) fn leases(&self) -> Vec<Lease> {
        self.lock().values().map(|entry| entry.lease.clone()).collect()
    }

    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    pub(super) fn counts(&self) -> HashMap<Arc<str>, u32> {
        let mut counts = HashMap::new();
        for entry in self.lock().values() {
            *counts.entry(entry.line.method.clone()).or_default() += 1;
        }
        counts
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Guid, Entry>> {
        self.by_guid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_of_an_earlier_lease_does_not_stop_a_later_one() {
        let held = Held::new(Arc::new(|| Duration::ZERO));
        let lease = |number| Lease { guid: Guid::stored("17".to_owned()), number };
        let [first, again] = [lease(1), lease(4)];
        let line = Line::of(&"ship".into());
        let old = held.add(&first, &line, Duration::MAX);
        let new = held.add(&again, &line, Duration::MAX);
        assert!(old.is_lost(), "it is ours again");
        // The cancellation that ended the first lease is heard only now, as number 2.
        held.lose(&first.guid, 2);
        assert!(!new.is_lost());
        held.lose(&first.guid, 5);
        assert!(new.is_lost());
    }

    #[test]
    fn a_lease_that_was_seen_to_have_ended_stays_lost_though_a_late_sign_of_life_prolongs_it() {
        let now = Arc::new(AtomicU64::new(0));
        let clock = now.clone();
        let held = Held::new(Arc::new(move || Duration::from_secs(clock.load(Ordering::SeqCst))));
        let lease = Lease { guid: Guid::stored("17".to_owned()), number: 1 };
        let stop = held.add(&lease, &Line::of(&"ship".into()), Duration::from_secs(30));
        held.prolong([&lease].into_iter(), Duration::from_secs(60));
        now.store(59, Ordering::SeqCst);
        assert!(stop.counts() && held.lapse() == Duration::from_secs(1));
        now.store(60, Ordering::SeqCst);
        assert!(!stop.counts());
        held.prolong([&lease].into_iter(), Duration::from_secs(90));
        assert!(stop.is_lost() && !stop.counts());
    }
}
