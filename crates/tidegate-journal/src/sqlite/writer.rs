//! The one thread that writes, and the transaction that everything in its queue shares.
//!
//! While a transaction commits, further jobs gather; the next transaction takes them all. So
//! a crowd of callers pays for one `fsync` together, and a single caller waits for nobody.

use super::counts::Counts;
use super::fault::{Fault, fault_of, meaning};
use super::sql::Sql;
use crate::JournalError;
use crate::clock::{Micros, instant};
use crate::wall::WallClock;
use rusqlite::{Connection, OptionalExtension as _, params};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A transaction that several jobs share.
pub(super) struct Tx<'a> {
    pub(super) conn: &'a Connection,
    pub(super) sql: &'a Sql,
    pub(super) now: Micros,
    pub(super) counts: RefCell<Counts>,
}

/// Something to do within a transaction. It may be run again, alone, where a transaction with
/// others failed.
pub(super) trait Job: Send {
    fn run(&mut self, tx: &Tx<'_>) -> rusqlite::Result<()>;

    fn answer(self: Box<Self>, outcome: Result<(), Fault>);
}

/// The queue to the thread. Dropping the last one ends the thread after what is queued.
pub(super) struct Writer {
    queue: mpsc::Sender<Box<dyn Job>>,
}

/// The queue is full, or the thread is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotQueued {
    Full,
    Closed,
}

impl Writer {
    pub(super) fn new(queue_max: usize) -> (Self, mpsc::Receiver<Box<dyn Job>>) {
        let (queue, jobs) = mpsc::channel(queue_max);
        (Self { queue }, jobs)
    }

    /// Queues it, or says at once that there is no room.
    pub(super) fn offer<T: Send + 'static>(
        &self,
        work: impl FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<oneshot::Receiver<Result<T, Fault>>, NotQueued> {
        let (job, answer) = Task::with_answer(work);
        match self.queue.try_send(job) {
            Ok(()) => Ok(answer),
            Err(mpsc::error::TrySendError::Full(_)) => Err(NotQueued::Full),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(NotQueued::Closed),
        }
    }

    /// Queues it as soon as there is room, and waits for its commit.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, JournalError> {
        let (job, answer) = Task::with_answer(work);
        self.queue.send(job).await.map_err(|_| JournalError::Closed)?;
        answer.await.map_err(|_| JournalError::Closed)?.map_err(|fault| fault.error)
    }
}

struct Task<F, T> {
    work: F,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, Fault>>,
}

impl<T: Send + 'static, F: FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send + 'static> Task<F, T> {
    fn with_answer(work: F) -> (Box<dyn Job>, oneshot::Receiver<Result<T, Fault>>) {
        let (reply, answer) = oneshot::channel();
        (Box::new(Self { work, result: None, reply }), answer)
    }
}

impl<T: Send, F: FnMut(&Tx<'_>) -> rusqlite::Result<T> + Send> Job for Task<F, T> {
    fn run(&mut self, tx: &Tx<'_>) -> rusqlite::Result<()> {
        self.result = Some((self.work)(tx)?);
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), Fault>) {
        let Self { result, reply, .. } = *self;
        // Whoever asked may have gone away.
        let _ = reply.send(outcome.and_then(|()| result.ok_or_else(Fault::closed)));
    }
}

/// What the thread owns.
pub(super) struct Desk {
    pub(super) conn: Connection,
    pub(super) sql: Sql,
    pub(super) clock: Arc<WallClock>,
    pub(super) batch_max: usize,
    pub(super) patience: Duration,
}

/// How often to look whether the file's lock is free. A look takes microseconds.
const LOOK: Duration = Duration::from_micros(500);

/// Waits for the file's lock, which another process may hold, for as long as the patience lasts.
///
/// SQLite's own waiting looks ever more seldom, at last ten times a second. A process that
/// writes all the time leaves the lock for moments only, and whoever looks so seldom meets
/// none of them for seconds: a purge beside a crowd of callers would hardly get on. And it does
/// not wait at all where the mode of a new file is changed, as several do who open it at once.
#[expect(clippy::disallowed_methods, reason = "nobody is told when the lock is free; the thread is ours")]
pub(super) fn patiently<T>(
    patience: Duration,
    mut work: impl FnMut() -> Result<T, JournalError>,
) -> Result<T, JournalError> {
    let begun = instant();
    loop {
        match work() {
            Err(JournalError::Locked(_)) if begun.elapsed() < patience => std::thread::sleep(LOOK),
            outcome => return outcome,
        }
    }
}

impl Desk {
    /// Until nobody can ask any more.
    pub(super) fn serve(self, mut jobs: mpsc::Receiver<Box<dyn Job>>) {
        let mut batch = Vec::with_capacity(self.batch_max);
        while jobs.blocking_recv_many(&mut batch, self.batch_max) > 0 {
            match self.transact(&mut batch) {
                Err(fault) if batch.len() > 1 && !fault.error.is_passing() && !fault.is_unknown => {
                    // One of them is at fault; the others must not suffer for it.
                    for job in batch.drain(..) {
                        let mut alone = [job];
                        let outcome = self.transact(&mut alone);
                        let [job] = alone;
                        job.answer(outcome);
                    }
                }
                outcome => batch.drain(..).for_each(|job| job.answer(outcome.clone())),
            }
        }
    }

    fn transact(&self, jobs: &mut [Box<dyn Job>]) -> Result<(), Fault> {
        self.begin().map_err(|error| Fault { error, is_unknown: false })?;
        let outcome = self.work(jobs).map_err(|error| fault_of(&error, false)).and_then(|()| {
            // A failed write of the log may still have reached the disk.
            self.conn.execute_batch("COMMIT").map_err(|error| fault_of(&error, true))
        });
        if outcome.is_err() && !self.conn.is_autocommit() {
            // It fails where the failure itself has rolled back.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
        outcome
    }

    fn begin(&self) -> Result<(), JournalError> {
        let begin = || self.conn.execute_batch("BEGIN IMMEDIATE").map_err(|error| meaning(&error));
        patiently(self.patience, begin)
    }

    fn work(&self, jobs: &mut [Box<dyn Job>]) -> rusqlite::Result<()> {
        let before = self.conn.total_changes();
        let mut seen = self.conn.prepare_cached(&self.sql.read_clock)?;
        let seen: Option<Micros> = seen.query_row([], |row| row.get(0)).optional()?;
        let now = self.clock.now_after(seen.unwrap_or(0));
        let tx = Tx { conn: &self.conn, sql: &self.sql, now, counts: RefCell::default() };
        for job in jobs {
            job.run(&tx)?;
        }
        tx.counts.borrow_mut().write(&tx)?;
        if self.conn.total_changes() != before {
            self.conn.prepare_cached(&self.sql.write_clock)?.execute(params![now])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wall::SystemTimeSource;

    #[test]
    fn a_file_that_may_not_grow_rolls_back_says_so_and_goes_on_when_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let conn = Connection::open(folder.path().join("journal.db")).unwrap();
        let settings = crate::Journal::builder().settings;
        let sql = Sql::new(&settings);
        super::super::migrate::migrate(&conn, &settings, &sql, 0).unwrap();
        let clock = Arc::new(WallClock::new(Box::new(SystemTimeSource)));
        let desk = Desk { conn, sql, clock, batch_max: 10, patience: settings.patience };
        let record = |nth: u32| {
            let call = crate::Call::new("ship", &"x".repeat(10_000)).unwrap();
            let guid = crate::Guid::stored(format!("record-{nth}"));
            Task::with_answer(move |tx| super::super::work::defer(tx, &guid, &call))
        };
        let pages = desk.conn.query_row("PRAGMA page_count", [], |row| row.get::<_, i64>(0)).unwrap();
        desk.conn.query_row(&format!("PRAGMA max_page_count = {}", pages + 40), [], |_| Ok(())).unwrap();
        let mut recorded = 0;
        let fault = loop {
            match desk.transact(&mut [record(recorded).0]) {
                Ok(()) => recorded += 1,
                Err(fault) => break fault,
            }
        };
        assert!(matches!(fault.error, JournalError::DiskFull(_)) && !fault.is_unknown, "{fault:?}");
        let rows =
            || desk.conn.query_row("SELECT count(*) FROM t_method_limit_log", [], |row| row.get::<_, u32>(0));
        assert!(recorded > 0 && rows().unwrap() == recorded);
        desk.conn.query_row("PRAGMA max_page_count = 100000", [], |_| Ok(())).unwrap();
        desk.transact(&mut [record(recorded).0]).unwrap();
        assert_eq!(rows().unwrap(), recorded + 1);
        let counted = "SELECT pending FROM t_method_limit_log_count";
        let counted: u32 = desk.conn.query_row(counted, [], |row| row.get(0)).unwrap();
        assert_eq!(counted, recorded + 1, "what was rolled back is not counted");
    }

    #[test]
    fn a_job_that_fails_spoils_no_other_in_its_transaction() {
        let conn = Connection::open_in_memory().unwrap();
        let settings = crate::Journal::builder().settings;
        let sql = Sql::new(&settings);
        super::super::migrate::migrate(&conn, &settings, &sql, 0).unwrap();
        let clock = Arc::new(WallClock::new(Box::new(SystemTimeSource)));
        let (queue, jobs) = mpsc::channel::<Box<dyn Job>>(10);
        let say = |text: &'static str| {
            let (job, answer) = Task::with_answer(move |tx| tx.conn.execute(text, []));
            queue.try_send(job).unwrap();
            answer
        };
        let first = say("INSERT INTO t_method_limit_log_count VALUES ('a', 1)");
        let wrong = say("INSERT INTO nowhere VALUES (1)");
        let last = say("INSERT INTO t_method_limit_log_count VALUES ('b', 1)");
        drop(queue);
        Desk { conn, sql, clock, batch_max: 10, patience: settings.patience }.serve(jobs);
        assert_eq!(first.blocking_recv().unwrap().unwrap(), 1);
        assert!(wrong.blocking_recv().unwrap().unwrap_err().error.to_string().contains("nowhere"));
        assert_eq!(last.blocking_recv().unwrap().unwrap(), 1);
    }
}
