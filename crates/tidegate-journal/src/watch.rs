//! Who waits for which record to end, and who has to be told that one was cancelled.
//!
//! What ends in this process is told at once. For what ends in another, one task asks for all
//! waiters together, every quarter of a second, for as long as there are any: `NOTIFY` would
//! take a lock of the whole database with each commit.

use crate::Guid;
use crate::backend::Backend;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::{Notify, broadcast, futures::OwnedNotified};

const POLL: Duration = Duration::from_millis(250);

/// How many are asked for in one statement.
const CHUNK: usize = 500;

pub(crate) struct Waiters {
    waiting: Mutex<Waiting>,
    cancelled: broadcast::Sender<(Guid, i64)>,
}

#[derive(Default)]
struct Waiting {
    by_guid: HashMap<Guid, (Arc<Notify>, usize)>,
    is_polled: bool,
}

impl Default for Waiters {
    fn default() -> Self {
        Self { waiting: Mutex::default(), cancelled: broadcast::channel(1_024).0 }
    }
}

impl Waiters {
    /// A future that is ready when the record has ended. It counts from now on, polled or not.
    pub(crate) fn add(self: &Arc<Self>, backend: &Arc<dyn Backend>, guid: &Guid) -> impl Future<Output = ()> {
        let mut waiting = self.lock();
        let (notify, count) = waiting.by_guid.entry(guid.clone()).or_default();
        *count += 1;
        let ended: OwnedNotified = Arc::clone(notify).notified_owned();
        if !waiting.is_polled {
            waiting.is_polled = true;
            tokio::spawn(poll(Arc::downgrade(self), Arc::downgrade(backend)));
        }
        let place = Place { waiters: self.clone(), guid: guid.clone() };
        async move {
            let _place = place;
            ended.await;
        }
    }

    /// These have ended.
    pub(crate) fn tell_ended<'a>(&self, guids: impl IntoIterator<Item = &'a Guid>) {
        let waiting = self.lock();
        if waiting.by_guid.is_empty() {
            return;
        }
        for guid in guids {
            if let Some((notify, _)) = waiting.by_guid.get(guid) {
                notify.notify_waiters();
            }
        }
    }

    /// This has ended, and whoever runs it under a lease before this number should stop.
    pub(crate) fn tell_cancelled(&self, guid: &Guid, number: i64) {
        // Nobody listening means that no worker runs here.
        let _ = self.cancelled.send((guid.clone(), number));
        self.tell_ended([guid]);
    }

    /// What is cancelled from now on.
    pub(crate) fn cancelled(&self) -> broadcast::Receiver<(Guid, i64)> {
        self.cancelled.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One waiter's place in the list, given up however its wait ends.
struct Place {
    waiters: Arc<Waiters>,
    guid: Guid,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.waiters.lock();
        if let Entry::Occupied(mut entry) = waiting.by_guid.entry(self.guid.clone()) {
            entry.get_mut().1 -= 1;
            if entry.get().1 == 0 {
                entry.remove();
            }
        }
    }
}

/// Holds nothing between two looks, so that it keeps neither waiters nor database alive.
async fn poll(waiters: Weak<Waiters>, backend: Weak<dyn Backend>) {
    loop {
        tokio::time::sleep(POLL).await;
        let (Some(waiters), Some(backend)) = (waiters.upgrade(), backend.upgrade()) else { return };
        let guids: Vec<Guid> = {
            let mut waiting = waiters.lock();
            waiting.is_polled = !waiting.by_guid.is_empty();
            if !waiting.is_polled {
                return;
            }
            waiting.by_guid.keys().cloned().collect()
        };
        for chunk in guids.chunks(CHUNK) {
            // A database that fails is asked again; who waits has its own time limit.
            if let Ok(ended) = backend.ended(chunk.to_vec()).await {
                waiters.tell_ended(&ended);
            }
        }
    }
}
