//! The records in a worker's hands: their leases, and a word to stop each of them.

use super::line::Line;
use crate::Guid;
use crate::backend::Lease;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct Held {
    by_guid: Mutex<HashMap<Guid, Entry>>,
    /// Something was let go of.
    pub(super) room: Notify,
}

struct Entry {
    lease: Lease,
    line: Arc<Line>,
    stop: Arc<Stop>,
    /// Ours until then, by this process's clock, whatever becomes of the database.
    until: Instant,
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
#[derive(Default)]
pub(super) struct Stop {
    is_lost: AtomicBool,
    notify: Notify,
}

impl Stop {
    fn say(&self, why: Why) {
        if why == Why::Lost {
            self.is_lost.store(true, Ordering::SeqCst);
        }
        // Leaves a permit, so that one who comes later hears it.
        self.notify.notify_one();
    }

    pub(super) fn is_lost(&self) -> bool {
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
    pub(super) fn add(&self, lease: &Lease, line: &Arc<Line>, until: Instant) -> Arc<Stop> {
        let stop = Arc::<Stop>::default();
        let entry = Entry { lease: lease.clone(), line: line.clone(), stop: stop.clone(), until };
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
    pub(super) fn prolong<'a>(&self, leases: impl Iterator<Item = &'a Lease>, until: Instant) {
        let mut held = self.lock();
        for lease in leases {
            if let Some(entry) = held.get_mut(&lease.guid).filter(|entry| entry.lease == *lease) {
                entry.until = until;
            }
        }
    }

    /// Asks whoever works on something that is not ours any more to stop; answers when the next
    /// lease ends.
    pub(super) fn lapse(&self, now: Instant) -> Option<Instant> {
        let held = self.lock();
        held.values().filter(|entry| entry.until <= now).for_each(|entry| entry.say(Why::Lost));
        held.values().map(|entry| entry.until).filter(|until| *until > now).min()
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
    use crate::clock::instant;

    #[test]
    fn what_was_said_of_an_earlier_lease_does_not_stop_a_later_one() {
        let held = Held::default();
        let lease = |number| Lease { guid: Guid::stored("17".to_owned()), number };
        let [first, again] = [lease(1), lease(4)];
        let line = Line::of(&"ship".into());
        let old = held.add(&first, &line, instant());
        let new = held.add(&again, &line, instant());
        assert!(old.is_lost(), "it is ours again");
        // The cancellation that ended the first lease is heard only now, as number 2.
        held.lose(&first.guid, 2);
        assert!(!new.is_lost());
        held.lose(&first.guid, 5);
        assert!(new.is_lost());
    }
}
