//! The one type that users hold.
//!
//! Deliberately absent: limits. Who defers a call, and why, is the caller's business.

use crate::backend::{Backend, Repeated};
use crate::batch::{BATCH, until_few};
use crate::blocking;
use crate::builder::{JournalBuilder, Settings};
use crate::stats::{Counted, JournalStats};
use crate::watch::Waiters;
use crate::{Call, Cancelled, DeferError, Filter, Guid, JournalError, Page, Record, Retried, Status};
use futures_util::StreamExt as _;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};
use tokio::sync::{Semaphore, watch};

/// Records calls, and tells what became of them. Clones are cheap and share everything.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("calls.db");
/// use tidegate_journal::{Call, Journal, Status};
///
/// let journal = Journal::sqlite(path).await?;
/// let guid = journal.defer(Call::new("cancel_task", &17)?).await?;
/// // From here on the call survives a crash of this process and of the machine.
/// assert_eq!(journal.status(&guid).await?, Some(Status::Pending));
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Journal {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) waiters: Arc<Waiters>,
    /// Something was deferred in this process: its workers need not wait for their next look.
    pub(crate) due: watch::Sender<u64>,
    pub(crate) counted: Counted,
    /// How many calls of [`Journal::defer_all`] wait for their commit at once.
    together: usize,
    room: Semaphore,
    opened: Opened,
    notes: Vec<String>,
}

impl Shared {
    /// To every worker of this process, also to those that are busy now.
    fn tell_due(&self) {
        self.due.send_modify(|times| *times = times.wrapping_add(1));
    }
}

static GLOBAL: OnceLock<Journal> = OnceLock::new();

impl Journal {
    /// The journal in a file, with every setting at its default.
    ///
    /// # Errors
    /// Where it cannot be opened, or is no journal.
    #[cfg(feature = "sqlite")]
    pub async fn sqlite(path: impl AsRef<std::path::Path>) -> Result<Self, JournalError> {
        Self::builder().sqlite(path).await
    }

    /// The journal on a server, with every setting at its default.
    ///
    /// # Errors
    /// Where the address is wrong, the server does not answer in time, or the table cannot be
    /// made.
    #[cfg(feature = "postgres")]
    pub async fn postgres(url: &str) -> Result<Self, JournalError> {
        Self::builder().postgres(url).await
    }

    /// To set bounds and names.
    pub fn builder() -> JournalBuilder {
        JournalBuilder::new()
    }

    /// The journal that code without one of its own uses, such as an attribute.
    ///
    /// # Errors
    /// Gives the journal back where there is one already.
    pub fn set_global(journal: Self) -> Result<(), Self> {
        GLOBAL.set(journal)
    }

    /// What [`set_global`](Self::set_global) set.
    pub fn global() -> Option<&'static Self> {
        GLOBAL.get()
    }

    /// Records a call, and returns once its commit is durable. Callers that come at the same
    /// time share a transaction. Dropping the future leaves it open whether it is recorded.
    ///
    /// # Errors
    /// [`DeferError`] says for each case whether anything was recorded.
    pub async fn defer(&self, call: Call) -> Result<Guid, DeferError> {
        let deferral = match call.checked() {
            Ok(call) => self.shared.backend.defer(call).await,
            Err(error) => Err(error.into()),
        };
        self.shared.counted.note(&deferral);
        let (guid, repeated) = deferral?;
        if repeated == Repeated::No {
            self.shared.tell_due();
        }
        Ok(guid)
    }

    /// Records any number of calls, and answers what became of each, in the order given: one that
    /// is refused spoils no other. They share transactions, as calls of many callers do. Of all such
    /// calls of this journal 2,000 wait at once, or half of what
    /// [`queue_max`](JournalBuilder::queue_max) allows, so that other callers find room. Dropping the
    /// future leaves it open which are recorded.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("calls.db");
    /// use tidegate_journal::{Call, Journal};
    ///
    /// let journal = Journal::sqlite(path).await?;
    /// let calls = (0..3).map(|task| Call::new("cancel_task", &task)).collect::<Result<Vec<_>, _>>()?;
    /// for (task, deferred) in journal.defer_all(calls).await.into_iter().enumerate() {
    ///     println!("task {task} is cancelled later, as {}", deferred?);
    /// }
    /// assert_eq!(journal.stats().await?.pending, 3);
    /// # Ok(()) }
    /// ```
    pub async fn defer_all(&self, calls: impl IntoIterator<Item = Call>) -> Vec<Result<Guid, DeferError>> {
        let deferrals = calls.into_iter().map(|call| async {
            // In their order, so nobody is made to yield here; and it is never closed.
            let _room = tokio::task::unconstrained(self.shared.room.acquire()).await;
            self.defer(call).await
        });
        futures_util::stream::iter(deferrals).buffered(self.shared.together).collect().await
    }

    /// [`defer`](Self::defer) for code that is not async: waits on this thread.
    ///
    /// # Errors
    /// As [`defer`](Self::defer), and [`DeferError::OneThread`] on PostgreSQL within a runtime
    /// of tokio that has one thread.
    ///
    /// # Panics
    /// On PostgreSQL within a `LocalSet`, where tokio has no other thread take over.
    pub fn defer_blocking(&self, call: Call) -> Result<Guid, DeferError> {
        if !self.shared.backend.needs_runtime() {
            return blocking::wait(self.defer(call));
        }
        match blocking::within_runtime(|| blocking::wait(self.defer(call))) {
            Some(deferred) => deferred,
            None => {
                let refused = Err(DeferError::OneThread);
                self.shared.counted.note(&refused);
                refused.map(|(guid, _)| guid)
            }
        }
    }

    /// Where a record stands; nothing if there is none (any more).
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn status(&self, guid: &Guid) -> Result<Option<Status>, JournalError> {
        Ok(self.find(guid).await?.map(|record| record.status))
    }

    /// A record, whole.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn find(&self, guid: &Guid) -> Result<Option<Record>, JournalError> {
        self.shared.backend.find(guid.clone()).await
    }

    /// Waits until a record has ended, for at most so long; then tells how it stands. Ends in
    /// this process are seen at once, those in others within a quarter of a second.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn wait(&self, guid: &Guid, at_most: Duration) -> Result<Option<Record>, JournalError> {
        // Before the first look, so that no end falls between look and wait.
        let ended = self.shared.waiters.add(&self.shared.backend, guid);
        let record = self.find(guid).await?;
        if record.as_ref().is_none_or(|record| record.status.has_ended()) {
            return Ok(record);
        }
        let _ = tokio::time::timeout(at_most, ended).await;
        self.find(guid).await
    }

    /// Ends a record, unless it has ended. If it runs, its handler is asked to stop, and what
    /// it still does is not recorded.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn cancel(&self, guid: &Guid) -> Result<Cancelled, JournalError> {
        let (cancelled, number) = self.shared.backend.cancel(guid.clone()).await?;
        if let Some(number) = number {
            self.shared.waiters.tell_cancelled(guid, number);
        }
        Ok(cancelled)
    }

    /// Makes a record that failed, expired or was cancelled pending again, with all its attempts
    /// and without its deadline, unless another one was recorded under its idempotency key since.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn retry(&self, guid: &Guid) -> Result<Retried, JournalError> {
        let retried = self.shared.backend.retry(guid.clone()).await?;
        if retried == Retried::Pending {
            self.shared.tell_due();
        }
        Ok(retried)
    }

    /// Records, the newest first, a page at a time.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn list(&self, filter: Filter, page: Page) -> Result<Vec<Record>, JournalError> {
        self.shared.backend.list(filter, page).await
    }

    /// Ends what is overdue: records whose deadline passed before they could start. A worker
    /// does that by itself. Tells how many.
    ///
    /// # Errors
    /// Where the database fails; what was ended by then stays so.
    pub async fn expire(&self) -> Result<u64, JournalError> {
        until_few(|| async { Ok(self.backend().expire(BATCH).await?.count()) }, |_| ()).await
    }

    /// Removes records that ended longer ago than `keep`, a thousand at a time. A worker does
    /// that by itself. Tells how many, and `told` how many so far after each thousand.
    ///
    /// # Errors
    /// Where the database fails; what was removed by then stays so.
    pub async fn purge(&self, keep: Duration, told: impl FnMut(u64)) -> Result<u64, JournalError> {
        until_few(|| self.backend().purge(keep, BATCH), told).await
    }

    /// The time that counts: the server's, or on SQLite the file's.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn now(&self) -> Result<SystemTime, JournalError> {
        self.backend().now().await
    }

    /// What is pending, and what this process has deferred.
    ///
    /// # Errors
    /// Where the database fails.
    pub async fn stats(&self) -> Result<JournalStats, JournalError> {
        let depth = self.shared.backend.depth().await?;
        Ok(JournalStats::new(&depth, &self.shared.counted))
    }

    /// What opening did to the tables.
    pub fn opened(&self) -> Opened {
        self.shared.opened
    }

    /// What opening found worth saying, such as a role that could not be made.
    pub fn notes(&self) -> &[String] {
        &self.shared.notes
    }

    pub(crate) fn over(
        backend: impl Backend,
        settings: &Settings,
        opened: Opened,
        notes: Vec<String>,
    ) -> Self {
        for note in &notes {
            tracing::warn!("{note}");
        }
        // One batch is being committed while the next one gathers: more would only wait.
        let together = (settings.queue_max / 2).clamp(1, 2 * settings.batch_max);
        let shared = Shared {
            backend: Arc::new(backend),
            waiters: Arc::default(),
            due: watch::Sender::new(0),
            counted: Counted::default(),
            together,
            room: Semaphore::new(together),
            opened,
            notes,
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.shared.backend
    }
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

/// What [`JournalBuilder`] did to the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Opened {
    /// Nothing: they were there.
    Found,
    /// There were none.
    Made,
    /// Another program had made the table, and it keeps its rows.
    TakenOver,
    /// They were of an older version, and keep their rows.
    Upgraded,
}

/// What a caller is told whose call was recorded instead of run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("deferred as {guid}")]
#[non_exhaustive]
pub struct Deferred {
    /// The record's name.
    pub guid: Guid,
}

impl Deferred {
    /// Says so of this record.
    pub fn new(guid: Guid) -> Self {
        Self { guid }
    }
}
