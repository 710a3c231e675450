//! Loads Redis from the database under a new epoch: at the beginning, and whenever Redis may
//! have forgotten something.
//!
//! 1. held: it is written down why, and every process shows it;
//! 2. fenced: the script sells nothing any more;
//! 3. drained: what is in the outbox is published, then a barrier, and once the barrier has
//!    come through the queue, everything before it is in the database; every live process has
//!    written what it keeps; orders of which Redis knows and the database does not are written;
//! 4. counted: a new epoch, left = stock − what dead letters hold; the sale is paused if a number
//!    that was acknowledged is neither an order nor a dead letter;
//! 5. loaded: what is left, the used paths and keys, and what each buyer has.
//!
//! Nothing of this begins while live processes use different Redis servers: they would load
//! each other's stock away without end.
//!
//! One process does it, under a lock of the database that ends with its connection. One that
//! dies on the way leaves an epoch that was never loaded, and the next begins anew. What comes
//! later than the barrier is of an old epoch: it is written if stock remains, and Redis is
//! told to take those units too.

use super::acked::{Acked, Missing};
use super::core::Core;
use super::db::{DbError, fault, within};
use super::letter::{Body, Letter, hex};
use super::link::Live;
use super::look::Look;
use super::points::{Point, reach};
use super::shelf::{Left, ROW, Row, Shelf};
use super::{admin, fleet, kept, recover, relay};
use crate::engine::Fault;
use crate::order::OrderState;
use crate::sale::SaleState;
use deadpool_postgres::Transaction;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_postgres::IsolationLevel;

/// How long the queue may take to be written. The sale stays held until then, and it is
/// tried again.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// Whoever holds the lock and says nothing for so long has lost it.
const ALIVE: Duration = Duration::from_secs(15);

/// All orders of a sale are read at once.
const COUNT_MAX: Duration = Duration::from_secs(60);

/// Fields in one call: a script's stack has an end.
const FIELDS: usize = 1000;

/// In the background, unless this process is at it already.
pub(super) fn begin(core: &Arc<Core>, shelf: &Arc<Shelf>) {
    if core.is_stopping.load(Ordering::SeqCst) || shelf.is_rebuilding.swap(true, Ordering::SeqCst) {
        return;
    }
    let (task, shelf) = (Arc::clone(core), Arc::clone(shelf));
    core.spawn(async move {
        if let Err(fault) = rebuild(&task, &shelf).await {
            tracing::warn!(error = fault.what, goods = %shelf.goods, "its stock is not loaded yet");
            // The next look begins again, after a moment.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        shelf.is_rebuilding.store(false, Ordering::SeqCst);
        task.doubted.notify_one();
    });
}

/// Ends once Redis holds what the database says, whoever loads it.
pub(super) async fn ensure(core: &Arc<Core>, shelf: &Arc<Shelf>) -> Result<(), Fault> {
    let until = tokio::time::Instant::now() + DRAIN_MAX;
    loop {
        rebuild(core, shelf).await?;
        let Some(row) = Row::find(&core.db, &shelf.goods).await? else { return Ok(()) };
        if Look::take(core, shelf, &[]).await?.why_rebuild(&row).is_none() {
            return Ok(());
        }
        if tokio::time::Instant::now() >= until {
            return Err(fault("another process is loading it"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Does nothing if Redis holds what it should, or if another is at it.
async fn rebuild(core: &Arc<Core>, shelf: &Arc<Shelf>) -> Result<(), Fault> {
    // A Redis that forgets everything makes every sale be loaded at once. Sales that are over
    // wait for each other, and nobody waits for them.
    let is_closed = shelf.known().state == SaleState::Closed;
    let turns = if is_closed { &core.closed_loads } else { &core.loads };
    let Ok(_turn) = turns.acquire().await else { return Ok(()) };
    let Some(lock) = lock(core, shelf).await? else { return Ok(()) };
    // One that hangs does not say so any more, and others may begin.
    let alive = async {
        loop {
            tokio::time::sleep(ALIVE / 5).await;
            if let Err(error) = lock.simple_query("SELECT 1").await {
                return DbError::from(error);
            }
        }
    };
    tokio::select! {
        done = locked(core, shelf) => done,
        error = alive => Err(error.into()),
    }
}

async fn locked(core: &Arc<Core>, shelf: &Arc<Shelf>) -> Result<(), Fault> {
    let live = core.link.live()?;
    let Some(row) = Row::find(&core.db, &shelf.goods).await? else { return Ok(()) };
    let look = Look::take(core, shelf, &[]).await?;
    let Some(why) = look.why_rebuild(&row) else { return Ok(()) };
    core.link.confirm(&live).await?;
    if let Some(why) = fleet::stays_split(core, &live.run).await? {
        hold(core, shelf, &why).await?;
        return Err(fault(why));
    }
    let round = hold(core, shelf, why).await?;
    if row.epoch > 0 || look.epoch > 0 {
        fence(core, shelf, &live, &look).await?;
        kept::report(core, shelf, round).await?;
        let drained = tokio::time::timeout(DRAIN_MAX, relay::drain(core, shelf, &look.loaded_run)).await;
        drained.map_err(|_| fault(format!("the outbox was not sent within {DRAIN_MAX:?}")))??;
        barrier(core, shelf, DRAIN_MAX).await?;
        fleet::reported(core, shelf, round, DRAIN_MAX).await?;
        // Redis knows every order of its epoch, whatever the broker has lost.
        if look.epoch > 0 {
            recover::write_lost(core, shelf, look.epoch).await?;
        }
    }
    // A database that went back in time may have forgotten epochs.
    let newest = look.epoch.max(fleet::epoch_max(core, shelf).await?);
    let counted = tokio::time::timeout(COUNT_MAX, count(core, shelf, &row, newest, &live.run, why)).await;
    let counted = counted.map_err(|_| fault(format!("not counted within {COUNT_MAX:?}")))??;
    reach(Point::Counted);
    load(core, shelf, &live, &counted, look.epoch).await?;
    tracing::info!(goods = %shelf.goods, epoch = counted.row.epoch, left = counted.left, why, "its stock is loaded");
    release(core, shelf, counted.row.epoch).await;
    Ok(())
}

/// Redis sells nothing of it any more, if it is still as it was looked at.
pub(super) async fn fence(core: &Core, shelf: &Shelf, live: &Arc<Live>, look: &Look) -> Result<(), Fault> {
    step(core, shelf, live, &["fence", &look.loaded_run, &look.epoch.to_string()], None).await
}

/// A connection of its own: the lock ends with it, whatever happens.
async fn lock(core: &Core, shelf: &Shelf) -> Result<Option<deadpool_postgres::ClientWrapper>, DbError> {
    within(async {
        let client = core.db.client().await?.into_own();
        // From PostgreSQL 14 on.
        let sql = "SELECT set_config(name, $1, false) FROM pg_settings WHERE name = 'idle_session_timeout'";
        client.query(sql, &[&ALIVE.as_millis().to_string()]).await?;
        let sql = "SELECT pg_try_advisory_lock(hashtextextended('tidegate-sale ' || $1, 0))";
        let row = client.query_one(sql, &[&shelf.goods.as_str()]).await?;
        Ok(row.get::<_, bool>(0).then_some(client))
    })
    .await
}

/// Tells which round this is.
async fn hold(core: &Core, shelf: &Shelf, why: &str) -> Result<i64, DbError> {
    let sql = format!(
        "UPDATE sale_goods SET held = $2, round = $3, version = version + 1
         WHERE goods = $1 RETURNING {ROW}"
    );
    let rows = core.db.ask(&sql, &[&shelf.goods.as_str(), &why, &fastrand::i64(1..)]).await?;
    let row = rows.first().ok_or_else(|| DbError::Refused("the sale is gone".into()))?;
    let row = Row::read(row)?;
    shelf.learn(&row);
    // The others need not wait for their next look; if they are not told they do.
    let mut news = redis::cmd("PUBLISH");
    news.arg(core.news()).arg(shelf.goods.as_str());
    let _: Result<i64, Fault> = core.link.ask(&news).await;
    Ok(row.round)
}

/// All goods are counted again. Those that are paused by hand are when they go on.
pub(super) async fn doubt_all(core: &Core, why: &str) -> Result<(), DbError> {
    let sql = "WITH doubted AS (
                   UPDATE sale_goods SET is_doubted = true, held = $1, version = version + 1
                   WHERE goods IN (SELECT goods FROM sale_goods WHERE epoch > 0 ORDER BY goods FOR UPDATE)
                   RETURNING goods)
               INSERT INTO sale_audit (goods, at, by, what) SELECT goods, $2, 'broker', $3 FROM doubted";
    let what = serde_json::json!({ "change": "count", "reason": why }).to_string();
    core.db.ask(sql, &[&why, &super::orders::now(), &what]).await?;
    Ok(())
}

/// It goes on, in this epoch. If this fails, the next look does it.
pub(super) async fn release(core: &Core, shelf: &Shelf, epoch: u32) {
    let sql = format!(
        "UPDATE sale_goods SET held = NULL, version = version + 1
         WHERE goods = $1 AND epoch = $2 RETURNING {ROW}"
    );
    let epoch = i32::try_from(epoch).unwrap_or(i32::MAX);
    match core.db.ask(&sql, &[&shelf.goods.as_str(), &epoch]).await {
        Ok(rows) => {
            if let Some(Ok(row)) = rows.first().map(Row::read) {
                shelf.learn(&row);
            }
        }
        Err(error) => tracing::warn!(%error, goods = %shelf.goods, "it is held a moment longer"),
    }
}

/// Ends once everything that was sent before has been written.
pub(super) async fn barrier(core: &Core, shelf: &Shelf, at_most: Duration) -> Result<(), Fault> {
    let token = format!("{:032x}", fastrand::u128(..));
    let body = Body::Barrier { barrier: token.clone() };
    let letter = Letter { goods: shelf.goods.clone(), body };
    let id = format!("{}:{token}", shelf.goods);
    let bytes = letter.encode(&id)?;
    core.broker.publish(shelf.shard, id, bytes).await?;
    let passed = async {
        let sql = "DELETE FROM sale_barriers WHERE token = $1 RETURNING token";
        loop {
            if !core.db.ask(sql, &[&token]).await?.is_empty() {
                return Ok::<_, DbError>(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    match tokio::time::timeout(at_most, passed).await {
        Ok(passed) => Ok(passed?),
        Err(_) => Err(fault(format!("the queue was not written within {at_most:?}"))),
    }
}

/// What is to be loaded, as of one moment.
struct Counted {
    row: Row,
    left: i64,
    /// Paths and keys, with the number of their order.
    paths: Vec<(String, String)>,
    keys: Vec<(String, String)>,
    /// What each buyer has.
    units: HashMap<String, i64>,
}

/// A new epoch. What was on its way back to Redis is in its stock from now on.
async fn count(
    core: &Core,
    shelf: &Shelf,
    seen: &Row,
    newest: u32,
    run: &str,
    why: &str,
) -> Result<Counted, DbError> {
    let mut client = core.db.client().await?;
    let start = client.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let tx = start.start().await?;
    let goods = shelf.goods.as_str();
    tx.batch_execute("SET LOCAL statement_timeout = '60s'").await?;
    // One moment for all of it; whoever was writing makes this begin anew.
    tx.execute("SELECT FROM sale_goods WHERE goods = $1 FOR UPDATE", &[&goods]).await?;
    let last = seen.epoch.max(newest);
    let acked = acked(&tx, goods, last).await?;
    let sql = format!(
        "UPDATE sale_goods g SET epoch = greatest(epoch, $4) + 1, redis_run = $2, arrived = 0, version = version + 1,
                is_doubted = false, acked = 0, sure = 0
         WHERE goods = $1 AND epoch = $3
         RETURNING {ROW}, stock - (SELECT coalesce(sum(quantity), 0)::int8 FROM sale_dead d
                                   WHERE d.goods = g.goods AND d.is_held) AS left"
    );
    let [epoch, newest] = [seen.epoch, newest].map(|epoch| i32::try_from(epoch).unwrap_or(i32::MAX));
    let Some(found) = tx.query_opt(&sql, &[&goods, &run, &epoch, &newest]).await? else {
        return Err(DbError::Refused("another process was quicker".into()));
    };
    let (row, left) = (Row::read(&found)?, found.get("left"));
    tx.execute("DELETE FROM sale_returns WHERE goods = $1", &[&goods]).await?;
    // Those of processes that have ended are of no use any more.
    let sql = "DELETE FROM sale_reports r WHERE goods = $1
               AND NOT EXISTS (SELECT FROM sale_processes p WHERE p.owner = r.owner)";
    tx.execute(sql, &[&goods]).await?;
    let sql = "SELECT order_sn, buyer, quantity, path, key, state FROM sale_orders WHERE goods = $1
               UNION ALL
               SELECT order_sn, buyer, CASE WHEN is_held THEN quantity ELSE 0 END, path, key, 1::int2
               FROM sale_dead WHERE goods = $1";
    let mut counted = Counted { row, left, paths: Vec::new(), keys: Vec::new(), units: HashMap::new() };
    let mut numbers = Vec::new();
    for order in tx.query(sql, &[&goods]).await? {
        numbers.extend(counted.add(&order, goods, last));
    }
    // Nothing is sold in epoch 0.
    let missing = Missing { forgotten: seen.epoch.max(1)..last, ..Missing::of(&acked, numbers) };
    if !missing.is_none() {
        counted.row = pause(&tx, &counted.row, &missing, last).await?;
    }
    let sql = "INSERT INTO sale_loads (goods, epoch, at, redis_run, units, why)
               SELECT goods, epoch, $2, redis_run, $3, $4 FROM sale_goods WHERE goods = $1";
    tx.execute(sql, &[&goods, &super::orders::now(), &left, &why]).await?;
    tx.commit().await?;
    client.give_back();
    Ok(counted)
}

/// The numbers of its last epoch that were acknowledged, as far as anybody has heard.
async fn acked(tx: &Transaction<'_>, goods: &str, epoch: u32) -> Result<Acked, DbError> {
    let sql = "SELECT max(acked), max(sure) FROM (
                   SELECT acked, sure FROM sale_goods WHERE goods = $1 AND epoch = $2
                   UNION ALL SELECT acked, sure FROM sale_reports WHERE goods = $1 AND epoch = $2) heard";
    let row = tx.query_one(sql, &[&goods, &i32::try_from(epoch).unwrap_or(i32::MAX)]).await?;
    let number = |at: usize| row.get::<_, Option<i64>>(at).unwrap_or(0);
    Ok(Acked { epoch, highest: number(0), sure: number(1) })
}

/// Orders are missing: it is loaded, and nobody buys until an operator has seen it.
async fn pause(tx: &Transaction<'_>, row: &Row, missing: &Missing, epoch: u32) -> Result<Row, DbError> {
    let goods = row.sale.goods.as_str();
    let reason = missing.reason(goods, epoch);
    tracing::error!(goods, reason, "the sale is held");
    admin::note(tx, goods, "count", &missing.line(goods, epoch)).await?;
    if row.state == SaleState::Closed {
        return Ok(row.clone());
    }
    let state = admin::json(&row.state.held(&reason))?;
    let sql = format!("UPDATE sale_goods SET state = $2, rev = rev + 1 WHERE goods = $1 RETURNING {ROW}");
    Row::read(&tx.query_one(&sql, &[&goods, &state]).await?)
}

impl Counted {
    /// Tells its number, if it is of this epoch.
    fn add(&mut self, order: &tokio_postgres::Row, goods: &str, epoch: u32) -> Option<i64> {
        let (sn, user, units): (&str, &str, i64) = (order.get(0), order.get(1), order.get(2));
        // As the scripts know it: epoch and counter.
        let sn = sn.strip_prefix(goods).and_then(|sn| sn.strip_prefix('-')).unwrap_or(sn).to_owned();
        let number = sn.split_once('-').filter(|(of, _)| of.parse() == Ok(epoch));
        let number = number.and_then(|(_, nth)| nth.parse().ok());
        if let Some(key) = order.get::<_, Option<&str>>(4) {
            self.keys.push((format!("{user}:{key}"), sn.clone()));
        }
        self.paths.push((hex(order.get(3)), format!("{sn}:{user}")));
        if OrderState::of_code(order.get(5)).is_some_and(OrderState::is_live) {
            *self.units.entry(user.to_owned()).or_default() += units;
        }
        number
    }
}

async fn load(
    core: &Core,
    shelf: &Shelf,
    live: &Arc<Live>,
    counted: &Counted,
    fenced: u32,
) -> Result<(), Fault> {
    let keys = &shelf.keys;
    let epoch = counted.row.epoch.to_string();
    step(core, shelf, live, &["begin", &live.run, &epoch, &fenced.to_string()], None).await?;
    let units: Vec<_> = counted.units.iter().map(|(user, units)| (user.clone(), units.to_string())).collect();
    for (key, pairs) in [(&keys.path, &counted.paths), (&keys.key, &counted.keys), (&keys.user, &units)] {
        for some in pairs.chunks(FIELDS) {
            let mut args = vec!["fill", live.run.as_str(), epoch.as_str()];
            args.extend(some.iter().flat_map(|(field, value)| [field.as_str(), value.as_str()]));
            step(core, shelf, live, &args, Some(key)).await?;
        }
    }
    let (left, rev, news) = (counted.left.to_string(), counted.row.rev.to_string(), core.news());
    let fields = counted.row.fields();
    let mut args = vec!["end", &live.run, &epoch, &news, shelf.goods.as_str()];
    args.extend(["rev", &rev, "left", &left, "loaded", &left]);
    args.extend(fields.iter().flat_map(|(field, value)| [*field, value.as_str()]));
    step(core, shelf, live, &args, None).await?;
    shelf.learn(&counted.row);
    shelf.learn_left(Some(Left { epoch: counted.row.epoch, tick: 0, units: counted.left }));
    Ok(())
}

pub(super) async fn step(
    core: &Core,
    shelf: &Shelf,
    live: &Arc<Live>,
    args: &[&str],
    fill: Option<&String>,
) -> Result<(), Fault> {
    let keys = &shelf.keys;
    let mut call = core.link.scripts.load.prepare_invoke();
    call.key(&keys.meta).key(&keys.out);
    match fill {
        Some(key) => drop(call.key(key)),
        None => [&keys.path, &keys.key, &keys.user, &keys.order, &keys.back].into_iter().for_each(|key| {
            call.key(key);
        }),
    }
    args.iter().for_each(|arg| {
        call.arg(*arg);
    });
    let done: String = core.link.run(live, &call).await?;
    if done == "done" {
        Ok(())
    } else {
        Err(fault(format!("Redis refuses `{}`: another was quicker", args[0])))
    }
}
