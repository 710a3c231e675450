//! The journal on PostgreSQL: any number of processes, the server's clock.
//!
//! Each question is one statement, so each is one trip and one transaction.

mod address;
mod core;
mod fault;
mod gather;
mod migrate;
#[cfg(test)]
mod plans;
mod roles;
mod rows;
mod sql;
#[cfg(feature = "tls")]
mod tls;

use self::core::Core;
use crate::backend::{
    Answer, Backend, Beat, Claim, Claimed, Deferral, Depth, Ended, Lease, Settled, orphan_reason,
};
use crate::builder::Settings;
use crate::clock::micros_ahead;
use crate::record::Status;
use crate::{Bound, Call, Cancelled, DeferError, Filter, Guid, JournalError, Opened, Page, Record, Retried};
use deadpool_postgres::Pool;
use fault::fault_of;
use gather::{Bounds, Waiting, gather};
use sql::Sql;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{Error, Row};

pub(crate) struct Postgres {
    core: Arc<Core>,
    queue: mpsc::Sender<Waiting>,
    queue_max: usize,
    /// The row of the counts that this process changes while it ends records. New records have
    /// another, so that their commits do not wait for each other.
    slot: i16,
}

/// Counts are spread over so many rows a method.
const SLOTS: i16 = 32;

/// What looks at every record may take so long.
const LONG: Duration = Duration::from_secs(600);

pub(crate) fn pool(url: &str) -> Result<Pool, JournalError> {
    self::core::pool(url)
}

impl Postgres {
    pub(crate) async fn open(
        pool: Pool,
        settings: &Settings,
    ) -> Result<(Self, Opened, Vec<String>), JournalError> {
        let core = Arc::new(Core { pool, sql: Sql::new(settings), patience: settings.patience });
        let opened = migrate::migrate(&core, settings).await?;
        let notes = roles::grant(&core, settings).await?;
        let (queue, waiting) = mpsc::channel(settings.queue_max);
        let first = fastrand::i16(0..SLOTS);
        let bounds = Bounds {
            method_max: settings.method_max,
            pending_max: settings.pending_max,
            batch_max: settings.batch_max,
            slot: first,
        };
        tokio::spawn(gather(core.clone(), bounds, waiting));
        let slot = (first + 1) % SLOTS;
        Ok((Self { core, queue, queue_max: settings.queue_max, slot }, opened, notes))
    }

    async fn number(&self, sql: &str, params: &[self::core::Param<'_>]) -> Result<u64, JournalError> {
        let rows = self.core.ask(sql, params).await?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0).max(0).unsigned_abs()))
    }

    async fn standing(&self, guid: &Guid) -> Result<Option<Status>, JournalError> {
        let rows = self.core.ask(&self.core.sql.standing, &[&guid.as_str()]).await?;
        Ok(rows.first().map(|row| Status::read(row.get(0), row.get(1))))
    }

    /// Enters ends; answers which were entered, now or by an earlier try whose answer was lost,
    /// be it of this call or of one that was given up.
    async fn enter(&self, outcomes: &[Settled]) -> Result<Vec<Guid>, JournalError> {
        let columns: Vec<_> = outcomes.iter().map(|one| one.end.columns()).collect();
        let guids: Vec<&str> = outcomes.iter().map(|one| one.lease.guid.as_str()).collect();
        let numbers: Vec<i64> = outcomes.iter().map(|one| one.lease.number).collect();
        let statuses: Vec<i16> = columns.iter().map(|one| one.0).collect();
        let delays: Vec<i64> = columns.iter().map(|one| one.1).collect();
        let results: Vec<Option<&str>> = columns.iter().map(|one| one.2).collect();
        let errors: Vec<Option<&str>> = columns.iter().map(|one| one.3).collect();
        let counted: Vec<i32> = outcomes.iter().map(|one| i32::from(one.is_counted)).collect();
        let core = &self.core;
        let params: &[self::core::Param<'_>] =
            &[&self.slot, &guids, &numbers, &statuses, &delays, &results, &errors, &counted];
        let mut entered = read(&core.ask(&core.sql.settle, params).await?, |row| rows::guid(row, 0))?;
        if entered.len() < outcomes.len() {
            let before = core.ask(&core.sql.settled, &[&guids, &numbers, &statuses]).await?;
            entered.extend(read(&before, |row| rows::guid(row, 0))?);
        }
        Ok(entered)
    }
}

fn read<T>(rows: &[Row], of: fn(&Row) -> Result<T, Error>) -> Result<Vec<T>, JournalError> {
    rows.iter().map(of).collect::<Result<_, _>>().map_err(|error| fault_of(&error).error)
}

impl Backend for Postgres {
    fn defer(&self, call: Call) -> Pin<Box<dyn Future<Output = Deferral> + Send + '_>> {
        Box::pin(async move {
            let guid = Guid::new();
            let (reply, answer) = oneshot::channel();
            self.queue.try_send(Waiting { guid: guid.clone(), call, reply }).map_err(
                |error| match error {
                    mpsc::error::TrySendError::Full(_) => {
                        DeferError::Full { bound: Bound::Queue { max: self.queue_max } }
                    }
                    mpsc::error::TrySendError::Closed(_) => DeferError::NotRecorded(JournalError::Closed),
                },
            )?;
            answer.await.unwrap_or(Err(DeferError::Unknown { guid, source: JournalError::Closed }))
        })
    }

    fn needs_runtime(&self) -> bool {
        true
    }

    fn claim(&self, ask: Claim) -> Answer<'_, Vec<Claimed>> {
        Box::pin(async move {
            let methods: Vec<&str> = ask.wants.iter().map(|(method, _)| method.as_str()).collect();
            let wants: Vec<i64> = ask.wants.iter().map(|(_, want)| i64::from(*want)).collect();
            let params: &[self::core::Param<'_>] =
                &[&methods, &wants, &ask.owner, &micros_ahead(ask.lease), &ask.as_of];
            read(&self.core.ask(&self.core.sql.claim, params).await?, rows::claimed)
        })
    }

    fn count(&self, lease: Lease, attempts: u32) -> Answer<'_, bool> {
        Box::pin(async move {
            let attempts = i32::try_from(attempts).unwrap_or(i32::MAX);
            let params: &[self::core::Param<'_>] = &[&lease.guid.as_str(), &lease.number, &attempts];
            Ok(!self.core.ask(&self.core.sql.count, params).await?.is_empty())
        })
    }

    fn beat(&self, leases: Vec<Lease>, length: Duration) -> Answer<'_, Beat> {
        Box::pin(async move {
            let guids: Vec<&str> = leases.iter().map(|lease| lease.guid.as_str()).collect();
            let numbers: Vec<i64> = leases.iter().map(|lease| lease.number).collect();
            let rows = self.core.ask(&self.core.sql.beat, &[&guids, &numbers, &micros_ahead(length)]).await?;
            let told = read(&rows, |row| Ok((rows::guid(row, 0)?, row.try_get::<_, bool>(1)?)))?;
            let mut beat = Beat::default();
            for (guid, is_prolonged) in told {
                if is_prolonged { &mut beat.prolonged } else { &mut beat.lost }.push(guid);
            }
            Ok(beat)
        })
    }

    fn settle(&self, outcomes: Vec<Settled>) -> Answer<'_, Vec<Guid>> {
        Box::pin(async move { self.enter(&outcomes).await })
    }

    fn cancel(&self, guid: Guid) -> Answer<'_, (Cancelled, Option<i64>)> {
        Box::pin(async move {
            let rows = self.core.ask(&self.core.sql.cancel, &[&self.slot, &guid.as_str()]).await?;
            let Some(row) = rows.first() else {
                let standing = self.standing(&guid).await?;
                return Ok((standing.map_or(Cancelled::Unknown, Cancelled::AlreadyEnded), None));
            };
            let cancelled = if row.get(0) { Cancelled::Running } else { Cancelled::Pending };
            Ok((cancelled, Some(row.get(1))))
        })
    }

    fn retry(&self, guid: Guid) -> Answer<'_, Retried> {
        Box::pin(async move {
            let rows = self.core.ask(&self.core.sql.retry, &[&self.slot, &guid.as_str()]).await?;
            if !rows.is_empty() {
                return Ok(Retried::Pending);
            }
            Ok(self.standing(&guid).await?.map_or(Retried::Unknown, Retried::refused))
        })
    }

    fn find(&self, guid: Guid) -> Answer<'_, Option<Record>> {
        Box::pin(async move {
            let rows = self.core.ask(&self.core.sql.find, &[&guid.as_str()]).await?;
            Ok(read(&rows, rows::record)?.pop())
        })
    }

    fn ended(&self, guids: Vec<Guid>) -> Answer<'_, Vec<Guid>> {
        Box::pin(async move {
            let guids: Vec<&str> = guids.iter().map(Guid::as_str).collect();
            read(&self.core.ask(&self.core.sql.ended, &[&guids]).await?, |row| rows::guid(row, 0))
        })
    }

    fn list(&self, filter: Filter, page: Page) -> Answer<'_, Vec<Record>> {
        Box::pin(async move {
            let status = filter.status.map(Status::code);
            let is_leased = match filter.status {
                Some(Status::Running) => Some(true),
                Some(Status::Pending) => Some(false),
                _ => None,
            };
            let time: Option<SystemTime> = page.after.as_ref().map(|place| place.create_time);
            let guid: Option<&str> = page.after.as_ref().map(|place| place.guid.as_str());
            let len = i64::from(page.len);
            let params: &[self::core::Param<'_>] = &[&status, &filter.method, &time, &guid, &len, &is_leased];
            read(&self.core.ask(&self.core.sql.list, params).await?, rows::record)
        })
    }

    fn announce(&self, methods: Vec<String>) -> Answer<'_, ()> {
        Box::pin(async move { self.core.ask(&self.core.sql.announce, &[&methods]).await.map(|_| ()) })
    }

    fn expire(&self, batch: u32) -> Answer<'_, Ended> {
        Box::pin(async move {
            let params: &[self::core::Param<'_>] = &[&self.slot, &i64::from(batch)];
            read(&self.core.ask(&self.core.sql.expire, params).await?, rows::ended).map(Ended)
        })
    }

    fn fail_orphans(&self, after: Duration, batch: u32) -> Answer<'_, Ended> {
        Box::pin(async move {
            let (sql, batch) = (&self.core.sql, i64::from(batch));
            let nameless = (None, self.number(&sql.fail_nameless, &[&batch]).await?);
            let missed = self.core.ask(&sql.missed, &[&micros_ahead(after)]).await?;
            let methods: Vec<String> = missed.iter().filter_map(|row| row.get(0)).collect();
            if methods.is_empty() {
                return Ok(Ended(vec![nameless]));
            }
            let reason = orphan_reason(after);
            let params: &[self::core::Param<'_>] =
                &[&self.slot, &methods, &micros_ahead(after), &batch, &reason];
            let mut ended = read(&self.core.ask(&sql.fail_orphans, params).await?, rows::ended)?;
            ended.push(nameless);
            Ok(Ended(ended))
        })
    }

    fn clamp_times(&self, batch: u32) -> Answer<'_, u64> {
        Box::pin(async move {
            let sql = &self.core.sql;
            let leases = self.core.ask_within(LONG, &sql.clamp_leases, &[]).await;
            leases.map_err(|fault| fault.error)?;
            self.number(&sql.clamp_times, &[&i64::from(batch)]).await
        })
    }

    fn purge(&self, keep: Duration, batch: u32) -> Answer<'_, u64> {
        Box::pin(
            async move { self.number(&self.core.sql.purge, &[&micros_ahead(keep), &i64::from(batch)]).await },
        )
    }

    fn recount(&self) -> Answer<'_, ()> {
        Box::pin(async move {
            let answer = self.core.ask_within(LONG, &self.core.sql.drift, &[]).await;
            answer.map(|_| ()).map_err(|fault| fault.error)
        })
    }

    fn depth(&self) -> Answer<'_, Vec<Depth>> {
        Box::pin(async move { read(&self.core.ask(&self.core.sql.depth, &[]).await?, rows::depth) })
    }

    fn now(&self) -> Answer<'_, SystemTime> {
        Box::pin(async move {
            let rows = self.core.ask("SELECT now()", &[]).await?;
            read(&rows, |row| row.try_get(0))?.pop().ok_or(JournalError::Closed)
        })
    }
}
