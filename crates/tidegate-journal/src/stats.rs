//! Figures for people and dashboards: plain numbers, no metrics crate.

use crate::DeferError;
use crate::backend::{Deferral, Depth, Repeated};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What is pending, and what this process has deferred since it opened the journal.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct JournalStats {
    /// Pending and running records, as counted in the database.
    pub pending: u64,
    /// How long the one that is longest due has been due.
    pub overdue: Option<Duration>,
    /// How long ago the oldest of them was recorded, however often it was tried since.
    pub oldest: Option<Duration>,
    /// The same by method.
    pub methods: BTreeMap<String, MethodDepth>,
    /// Calls recorded by this process.
    pub deferred: u64,
    /// Calls whose idempotency key was there already.
    pub repeated: u64,
    /// Calls refused because a bound was reached.
    pub refused: u64,
    /// Calls that were not recorded, or not surely, because the database failed or could not be
    /// waited for.
    pub failed: u64,
}

/// What is pending of one method.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MethodDepth {
    /// Pending and running records.
    pub pending: u64,
    /// How long the one that is longest due has been due.
    pub overdue: Option<Duration>,
    /// How long ago the oldest of them was recorded, however often it was tried since.
    pub oldest: Option<Duration>,
}

impl JournalStats {
    pub(crate) fn new(depth: &[Depth], counted: &Counted) -> Self {
        let methods = depth.iter().map(|one| {
            let Depth { pending, overdue, oldest, .. } = *one;
            (one.method.clone(), MethodDepth { pending, overdue, oldest })
        });
        Self {
            pending: depth.iter().map(|one| one.pending).sum(),
            overdue: depth.iter().filter_map(|one| one.overdue).max(),
            oldest: depth.iter().filter_map(|one| one.oldest).max(),
            methods: methods.collect(),
            deferred: counted.deferred.load(Relaxed),
            repeated: counted.repeated.load(Relaxed),
            refused: counted.refused.load(Relaxed),
            failed: counted.failed.load(Relaxed),
        }
    }
}

/// What [`Journal::defer`](crate::Journal::defer) answered so far.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    deferred: AtomicU64,
    repeated: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl Counted {
    pub(crate) fn note(&self, deferral: &Deferral) {
        let counter = match deferral {
            Ok((_, Repeated::No)) => &self.deferred,
            Ok((_, Repeated::Yes)) => &self.repeated,
            Err(DeferError::Full { .. }) => &self.refused,
            Err(DeferError::Call(_) | DeferError::NoJournal) => return,
            Err(DeferError::NotRecorded(_) | DeferError::OneThread | DeferError::Unknown { .. }) => {
                &self.failed
            }
        };
        counter.fetch_add(1, Relaxed);
    }
}

/// What a worker has done since it was made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerStats {
    /// All passes together.
    pub total: Pass,
    /// The same by method, with what expired or failed without being picked: of methods that
    /// this worker does not know, too. What is purged is only in the total.
    pub methods: BTreeMap<String, Pass>,
    /// Records in this worker's hands now, running or waiting for gate and room.
    pub held: usize,
    /// Leases that were lost: cancelled, or taken over because no sign of life got through.
    pub lost: u64,
}

/// The summary of one pass, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pass {
    /// Records taken up.
    pub picked: u64,
    /// Records that ended done.
    pub done: u64,
    /// Records that ended failed.
    pub failed: u64,
    /// Attempts that will be repeated.
    pub retried: u64,
    /// Records that ended expired.
    pub expired: u64,
    /// Ended records that were removed because of their age.
    pub purged: u64,
}

impl std::ops::AddAssign for Pass {
    fn add_assign(&mut self, more: Self) {
        self.picked += more.picked;
        self.done += more.done;
        self.failed += more.failed;
        self.retried += more.retried;
        self.expired += more.expired;
        self.purged += more.purged;
    }
}

impl std::fmt::Display for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { picked, done, failed, retried, expired, purged } = self;
        write!(
            f,
            "picked {picked}, done {done}, failed {failed}, retried {retried}, expired {expired}, purged {purged}"
        )
    }
}
