//! Which processes live, whether they all use the same Redis, and whether each has written its
//! own orders before the goods are counted.
//!
//! Each writes into PostgreSQL that it lives. One that has said nothing for the time of its
//! lease has ended, or cannot reach PostgreSQL: nobody waits for it, and what it kept comes
//! late, as an order of an older epoch.

use super::core::Core;
use super::db::{DbError, fault};
use super::shelf::Shelf;
use crate::engine::Fault;
use std::sync::Arc;
use std::time::Duration;

const BEAT: Duration = Duration::from_secs(1);

/// By PostgreSQL's clock.
const LEASE_S: f64 = 5.0;

/// Longer than a process takes to notice that its Redis is another run.
const AGREE_MAX: Duration = Duration::from_secs(5);

/// Says that this process lives. Ends with its task.
pub(super) async fn keep_alive(core: Arc<Core>) {
    loop {
        if let Err(error) = beat(&core).await {
            tracing::warn!(%error, "PostgreSQL does not know that this process lives");
        }
        tokio::select! {
            () = tokio::time::sleep(BEAT) => {}
            () = core.link.changed.notified() => {}
        }
    }
}

/// Those of an hour ago are of no use to anybody.
async fn beat(core: &Core) -> Result<(), DbError> {
    let sql = "WITH gone AS (DELETE FROM sale_processes WHERE seen < now() - interval '1 hour')
               INSERT INTO sale_processes (owner, seen, redis, redis_run) VALUES ($1, now(), $2, $3)
               ON CONFLICT (owner) DO UPDATE SET seen = now(), redis_run = excluded.redis_run";
    let run = core.link.live().map(|live| live.run.clone()).unwrap_or_default();
    core.db.ask(sql, &[&core.owner, &core.link.address(), &run]).await?;
    Ok(())
}

/// It has ended in order, and nobody waits for it.
pub(super) async fn leave(core: &Core) {
    let sql = "DELETE FROM sale_processes WHERE owner = $1";
    if let Err(error) = core.db.ask(sql, &[&core.owner]).await {
        tracing::warn!(%error, "a count may wait for this process");
    }
}

/// Why nobody may sell: live processes use another Redis than this run. None if all agree.
pub(super) async fn split(core: &Core, run: &str) -> Result<Option<String>, DbError> {
    let sql = "SELECT redis FROM sale_processes
               WHERE seen > now() - make_interval(secs => $1) AND redis_run NOT IN ('', $2)
               ORDER BY redis LIMIT 1";
    let rows = core.db.ask(sql, &[&LEASE_S, &run]).await?;
    Ok(rows.first().map(|row| {
        // The same sentence in all processes.
        let mut both = [core.link.address(), row.get(0)];
        both.sort();
        format!(
            "processes use two Redis servers ({} and {}); point all of them at one, or end the others",
            both[0], both[1]
        )
    }))
}

/// The same, after a moment in which they may come to agree: a Redis that was just restarted is
/// another run to those who have not noticed yet.
pub(super) async fn stays_split(core: &Core, run: &str) -> Result<Option<String>, DbError> {
    let until = tokio::time::Instant::now() + AGREE_MAX;
    loop {
        let why = split(core, run).await?;
        if why.is_none() || tokio::time::Instant::now() >= until {
            return Ok(why);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Ends once every live process has written its own orders.
pub(super) async fn reported(core: &Core, shelf: &Shelf, round: i64, at_most: Duration) -> Result<(), Fault> {
    let sql = "SELECT count(*) FROM sale_processes p
               WHERE seen > now() - make_interval(secs => $1) AND NOT EXISTS (
                   SELECT FROM sale_reports r WHERE r.goods = $2 AND r.owner = p.owner AND r.round = $3)";
    let until = tokio::time::Instant::now() + at_most;
    loop {
        let rows = core.db.ask(sql, &[&LEASE_S, &shelf.goods.as_str(), &round]).await?;
        let waiting: i64 = rows.first().map_or(0, |row| row.get(0));
        if waiting == 0 {
            return Ok(());
        }
        if tokio::time::Instant::now() >= until {
            return Err(fault(format!("{waiting} processes have not written their own orders yet")));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The highest epoch that this process knows, or that another has reported.
pub(super) async fn epoch_max(core: &Core, shelf: &Shelf) -> Result<u32, DbError> {
    let sql = "SELECT coalesce(max(epoch), 0) FROM sale_reports WHERE goods = $1";
    let rows = core.db.ask(sql, &[&shelf.goods.as_str()]).await?;
    let reported = rows.first().map_or(0, |row| row.get::<_, i32>(0));
    Ok(shelf.epoch_max().max(u32::try_from(reported).unwrap_or(0)))
}
