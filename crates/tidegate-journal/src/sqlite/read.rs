//! What is only looked at: on a connection and a thread of its own, so that no look waits for
//! a commit and no commit for a look.

use super::fault::meaning;
use super::foreign::{Name, number, some_number, status_code, text};
use super::sql::Sql;
use crate::backend::Depth;
use crate::clock::{Micros, to_micros, to_time};
use crate::record::{Filter, Page, Record, Status};
use crate::wall::WallClock;
use crate::{Guid, JournalError};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

type Look = Box<dyn FnOnce(&View) + Send>;

/// What a look sees.
pub(super) struct View {
    pub(super) conn: Connection,
    pub(super) sql: Sql,
    pub(super) clock: Arc<WallClock>,
}

/// The queue to the thread.
pub(super) struct Reader {
    queue: mpsc::Sender<Look>,
}

impl Reader {
    pub(super) fn start(view: View, queue_max: usize) -> std::io::Result<Self> {
        let (queue, mut looks) = mpsc::channel::<Look>(queue_max);
        std::thread::Builder::new().name("journal-reader".to_owned()).spawn(move || {
            while let Some(look) = looks.blocking_recv() {
                look(&view);
            }
        })?;
        Ok(Self { queue })
    }

    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&View) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, JournalError> {
        let (reply, answer) = oneshot::channel();
        let look: Look = Box::new(move |view| {
            // Whoever asked may have gone away.
            let _ = reply.send(look(view).map_err(|error| meaning(&error)));
        });
        self.queue.send(look).await.map_err(|_| JournalError::Closed)?;
        answer.await.map_err(|_| JournalError::Closed)?
    }
}

impl View {
    pub(super) fn find(&self, guid: &Guid) -> rusqlite::Result<Option<Record>> {
        let now = self.now()?;
        let mut statement = self.conn.prepare_cached(&self.sql.find)?;
        statement.query_row([guid.as_str()], |row| record(row, now)).optional()
    }

    pub(super) fn ended(&self, guids: Vec<Guid>) -> rusqlite::Result<Vec<Guid>> {
        let mut statement = self.conn.prepare_cached(&self.sql.is_open)?;
        let mut ended = Vec::new();
        for guid in guids {
            if !statement.exists([guid.as_str()])? {
                ended.push(guid);
            }
        }
        Ok(ended)
    }

    pub(super) fn list(&self, filter: &Filter, page: &Page) -> rusqlite::Result<Vec<Record>> {
        let now = self.now()?;
        let (time, guid) = match &page.after {
            Some(place) => (to_micros(place.create_time), place.guid.as_str()),
            None => (Micros::MAX, ""),
        };
        let is_leased = match filter.status {
            Some(Status::Running) => Some(true),
            Some(Status::Pending) => Some(false),
            _ => None,
        };
        let code = filter.status.map(Status::code);
        let given = params![code, filter.method, time, guid, page.len, now, is_leased];
        let mut statement = self.conn.prepare_cached(&self.sql.list)?;
        let records = statement.query_map(given, |row| record(row, now))?;
        records.collect()
    }

    pub(super) fn depth(&self) -> rusqlite::Result<Vec<Depth>> {
        let now = self.now()?;
        let mut statement = self.conn.prepare_cached(&self.sql.depth)?;
        let counts = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))?;
        let counts: Vec<(Name, i64)> = counts.collect::<rusqlite::Result<_>>()?;
        let mut overdue = self.conn.prepare_cached(&self.sql.overdue)?;
        let mut oldest = self.conn.prepare_cached(&self.sql.oldest)?;
        let ago = |time: Micros| Duration::from_micros(now.saturating_sub(time).max(0).unsigned_abs());
        let mut all = Vec::with_capacity(counts.len());
        for (method, pending) in counts {
            let mut first: Option<Micros> = None;
            for level in 0..=9 {
                let due: Option<Micros> = overdue.query_row(params![method, level], |row| row.get(0))?;
                first = first.into_iter().chain(due).min();
            }
            let oldest: Option<Micros> = oldest.query_row([&method], |row| some_number(row, 0))?;
            all.push(Depth {
                pending: pending.max(0).unsigned_abs(),
                overdue: first.filter(|due| *due <= now).map(ago),
                oldest: oldest.map(ago),
                method: method.shown().into_owned(),
            });
        }
        Ok(all)
    }

    pub(super) fn now(&self) -> rusqlite::Result<Micros> {
        let seen = self.conn.prepare_cached(&self.sql.read_clock)?.query_row([], |row| row.get(0));
        Ok(self.clock.now_after(seen.optional()?.unwrap_or(0)))
    }
}

/// Never fails for what others wrote: one row must not hide the rest of a list.
fn record(row: &Row<'_>, now: Micros) -> rusqlite::Result<Record> {
    let until: Option<Micros> = some_number(row, 14)?;
    let time = |column: usize| number(row, column).map(to_time);
    Ok(Record {
        guid: Guid::stored(text(row, 0)?.unwrap_or_default()),
        method: text(row, 1)?,
        params: text(row, 2)?.unwrap_or_default(),
        status: Status::read(status_code(row, 3)?, until.is_some_and(|until| until > now)),
        attempts: number(row, 4)?,
        priority: number(row, 5)?,
        create_time: time(6)?,
        update_time: time(7)?,
        next_time: time(8)?,
        deadline: some_number(row, 9)?.map(to_time),
        lease_owner: text(row, 10)?,
        key: text(row, 11)?,
        last_error: text(row, 12)?,
        result: text(row, 13)?,
    })
}
