//! The journal in one file: SQLite in WAL mode with `synchronous=FULL`.
//!
//! One thread writes ([`writer`]), one looks ([`read`]). Several processes may share a file on
//! one machine; they take turns by the file's lock.

mod counts;
mod fault;
mod foreign;
mod migrate;
mod private;
mod read;
mod sql;
mod work;
mod writer;

use crate::backend::{
    Answer, Backend, Beat, Claim, Claimed, Deferral, Depth, Ended, Lease, Repeated, Settled,
};
use crate::builder::Settings;
use crate::clock::to_time;
use crate::wall::{TimeSource, WallClock};
use crate::{Bound, Call, Cancelled, DeferError, Filter, Guid, JournalError, Opened, Page, Record, Retried};
use fault::meaning;
use read::{Reader, View};
use rusqlite::{Connection, OpenFlags};
use sql::Sql;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;
use writer::{Desk, NotQueued, Writer, patiently};

pub(crate) struct Sqlite {
    writer: Writer,
    reader: Reader,
    queue_max: usize,
    clock: Arc<WallClock>,
}

impl Sqlite {
    pub(crate) async fn open(
        path: &Path,
        settings: &Settings,
        time: Box<dyn TimeSource>,
    ) -> Result<(Self, Opened, Vec<String>), JournalError> {
        let (writer, jobs) = Writer::new(settings.queue_max);
        let (opened, answer) = oneshot::channel();
        let (path, settings) = (path.to_owned(), settings.clone());
        let queue_max = settings.queue_max;
        let thread = std::thread::Builder::new().name("journal-writer".to_owned());
        let thread = thread.spawn(move || match open_both(&path, &settings, time) {
            Ok((desk, reader, how, notes)) => {
                if opened.send(Ok((reader, desk.clock.clone(), how, notes))).is_ok() {
                    desk.serve(jobs);
                }
            }
            Err(error) => {
                let _ = opened.send(Err(error));
            }
        });
        thread.map_err(|error| JournalError::Open(format!("no thread can be started: {error}")))?;
        let (reader, clock, opened, notes) = answer.await.map_err(|_| JournalError::Closed)??;
        Ok((Self { writer, reader, queue_max, clock }, opened, notes))
    }
}

fn open_both(
    path: &PathBuf,
    settings: &Settings,
    time: Box<dyn TimeSource>,
) -> Result<(Desk, Reader, Opened, Vec<String>), JournalError> {
    let clock = Arc::new(WallClock::new(time));
    if !settings.must_exist {
        private::make(path)?;
    }
    // Until it serves it waits as it does later, see `writer::patiently`.
    let conn = connect(path, settings)?;
    let sql = Sql::new(settings);
    let opened = patiently(settings.patience, || migrate::migrate(&conn, settings, &sql, clock.now()))?;
    // Only now is it surely a journal.
    let notes = if settings.must_exist { Vec::new() } else { private::close_to_others(path) };
    let looks = connect(path, settings)?;
    looks.busy_timeout(settings.patience).map_err(|error| meaning(&error))?;
    let view = View { conn: looks, sql: Sql::new(settings), clock: clock.clone() };
    let reader = Reader::start(view, settings.queue_max)
        .map_err(|error| JournalError::Open(format!("no thread can be started: {error}")))?;
    let (batch_max, patience) = (settings.batch_max, settings.patience);
    let desk = Desk { conn, sql, clock, batch_max, patience };
    Ok((desk, reader, opened, notes))
}

fn connect(path: &PathBuf, settings: &Settings) -> Result<Connection, JournalError> {
    let at = |error: rusqlite::Error| match meaning(&error) {
        JournalError::Open(text) => JournalError::Open(format!("{}: {text}", path.display())),
        other => other,
    };
    // It was made before, by `private`.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if settings.must_exist && !path.exists() {
        return Err(JournalError::Open(format!("there is no file {}", path.display())));
    }
    let conn = Connection::open_with_flags(path, flags).map_err(at)?;
    conn.busy_timeout(Duration::ZERO).map_err(at)?;
    conn.set_prepared_statement_cache_capacity(64);
    // Before anything is changed: it may be somebody else's database.
    let is_journal = || migrate::is_journal(&conn, &settings.table).map_err(at);
    if settings.must_exist && !patiently(settings.patience, is_journal)? {
        return Err(settings.no_journal());
    }
    let to_wal = || conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(at);
    let mode: String = patiently(settings.patience, to_wal)?;
    if mode != "wal" {
        let why = format!("{}: no WAL here ({mode} instead); use a file on a local disk", path.display());
        return Err(JournalError::Open(why));
    }
    // What was acknowledged survives a power cut.
    conn.execute_batch("PRAGMA synchronous = FULL").map_err(at)?;
    Ok(conn)
}

impl Backend for Sqlite {
    fn defer(&self, call: Call) -> Pin<Box<dyn Future<Output = Deferral> + Send + '_>> {
        Box::pin(async move {
            let guid = Guid::new();
            let named = guid.clone();
            let offered = self.writer.offer(move |tx| work::defer(tx, &named, &call));
            let answer = offered.map_err(|refused| match refused {
                NotQueued::Full => DeferError::Full { bound: Bound::Queue { max: self.queue_max } },
                NotQueued::Closed => DeferError::NotRecorded(JournalError::Closed),
            })?;
            let unknown = |source| DeferError::Unknown { guid: guid.clone(), source };
            match answer.await.map_err(|_| unknown(JournalError::Closed))? {
                Ok(Ok(Some(there))) => Ok((there, Repeated::Yes)),
                Ok(Ok(None)) => Ok((guid, Repeated::No)),
                Ok(Err(bound)) => Err(DeferError::Full { bound }),
                Err(fault) if fault.is_unknown => Err(unknown(fault.error)),
                Err(fault) => Err(DeferError::NotRecorded(fault.error)),
            }
        })
    }

    fn clock(&self) -> Duration {
        self.clock.monotonic()
    }

    /// The file's time may pass by an eighth faster than ours, see [`crate::wall`].
    fn surely(&self, lease: Duration) -> Duration {
        lease * 8 / 9
    }

    fn claim(&self, ask: Claim) -> Answer<'_, Vec<Claimed>> {
        Box::pin(self.writer.run(move |tx| work::claim(tx, &ask)))
    }

    fn count(&self, lease: Lease, attempts: u32) -> Answer<'_, bool> {
        Box::pin(self.writer.run(move |tx| work::count(tx, &lease, attempts)))
    }

    fn beat(&self, leases: Vec<Lease>, length: Duration) -> Answer<'_, Beat> {
        Box::pin(self.writer.run(move |tx| work::beat(tx, &leases, length)))
    }

    fn settle(&self, outcomes: Vec<Settled>) -> Answer<'_, Vec<Guid>> {
        Box::pin(self.writer.run(move |tx| work::settle(tx, &outcomes)))
    }

    fn cancel(&self, guid: Guid) -> Answer<'_, (Cancelled, Option<i64>)> {
        Box::pin(self.writer.run(move |tx| work::cancel(tx, &guid)))
    }

    fn retry(&self, guid: Guid) -> Answer<'_, Retried> {
        Box::pin(self.writer.run(move |tx| work::retry(tx, &guid)))
    }

    fn find(&self, guid: Guid) -> Answer<'_, Option<Record>> {
        Box::pin(self.reader.look(move |view| view.find(&guid)))
    }

    fn ended(&self, guids: Vec<Guid>) -> Answer<'_, Vec<Guid>> {
        Box::pin(self.reader.look(move |view| view.ended(guids)))
    }

    fn list(&self, filter: Filter, page: Page) -> Answer<'_, Vec<Record>> {
        Box::pin(self.reader.look(move |view| view.list(&filter, &page)))
    }

    fn announce(&self, methods: Vec<String>) -> Answer<'_, ()> {
        Box::pin(self.writer.run(move |tx| work::announce(tx, &methods)))
    }

    fn expire(&self, batch: u32) -> Answer<'_, Ended> {
        Box::pin(self.writer.run(move |tx| work::expire(tx, batch)))
    }

    fn fail_orphans(&self, after: Duration, batch: u32) -> Answer<'_, Ended> {
        Box::pin(self.writer.run(move |tx| work::fail_orphans(tx, after, batch)))
    }

    fn purge(&self, keep: Duration, batch: u32) -> Answer<'_, u64> {
        Box::pin(self.writer.run(move |tx| work::purge(tx, keep, batch)))
    }

    fn recount(&self) -> Answer<'_, ()> {
        Box::pin(self.writer.run(work::recount))
    }

    fn depth(&self) -> Answer<'_, Vec<Depth>> {
        Box::pin(self.reader.look(View::depth))
    }

    fn now(&self) -> Answer<'_, SystemTime> {
        Box::pin(self.reader.look(|view| view.now().map(to_time)))
    }
}
