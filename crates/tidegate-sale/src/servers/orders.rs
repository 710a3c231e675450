//! Orders: asked for, watched, turned.

use super::core::Core;
use super::db::{DbError, within};
use super::returns;
use crate::engine::{Fault, Turn, Turned};
use crate::order::{Order, OrderSn, OrderState};
use crate::time::now_ms;
use deadpool_postgres::Transaction;
use std::time::Duration;

const FIND: &str = "
    SELECT buyer, quantity, state, reason, created_at, updated_at, pay_by FROM sale_orders WHERE order_sn = $1
    UNION ALL
    SELECT buyer, quantity, 5::int2, reason, created_at, at, NULL FROM sale_dead WHERE order_sn = $1";

/// An order, from the moment its number exists: in the database, else as Redis took it.
pub(super) async fn find(core: &Core, sn: &OrderSn) -> Result<Option<Order>, Fault> {
    if let Some(order) = written(core, sn).await? {
        return Ok(Some(order));
    }
    let Some(shelf) = core.shelf(sn.goods()) else { return Ok(None) };
    let number = sn.to_string();
    let number = number.strip_prefix(&format!("{}-", sn.goods())).unwrap_or(&number);
    let mut command = redis::cmd("HGET");
    command.arg(&shelf.keys.order).arg(number);
    let record: Option<String> = core.link.ask(&command).await?;
    if let Some(order) = record.and_then(|record| processing(sn, &record)) {
        return Ok(Some(order));
    }
    // It may have been written since.
    if let Some(order) = written(core, sn).await? {
        return Ok(Some(order));
    }
    let known = shelf.known();
    if sn.epoch() == known.epoch && known.left.is_none() {
        // Redis has forgotten, and what is in the queue has not been written yet.
        return Err(super::db::fault("its stock is being counted; ask again"));
    }
    Ok(None)
}

async fn written(core: &Core, sn: &OrderSn) -> Result<Option<Order>, Fault> {
    let rows = core.asks.ask(FIND, &[&sn.to_string()]).await?;
    Ok(rows.first().and_then(|row| read(sn, row)))
}

fn read(sn: &OrderSn, row: &tokio_postgres::Row) -> Option<Order> {
    let time = |at: i64| u64::try_from(at).unwrap_or(0);
    Some(Order {
        order_sn: sn.clone(),
        user: row.get::<_, &str>(0).parse().ok()?,
        quantity: u32::try_from(row.get::<_, i64>(1)).ok()?,
        state: OrderState::of_code(row.get(2))?,
        reason: row.get(3),
        created_at: time(row.get(4)),
        updated_at: time(row.get(5)),
        pay_by: row.get::<_, Option<i64>>(6).map(time),
    })
}

/// As the script wrote it: entry, time, quantity, user.
pub(super) fn processing(sn: &OrderSn, record: &str) -> Option<Order> {
    let mut parts = record.splitn(4, ':').skip(1);
    let at = parts.next()?.parse().ok()?;
    let quantity = parts.next()?.parse().ok()?;
    let user = parts.next()?.parse().ok()?;
    let state = OrderState::Processing;
    Some(Order {
        order_sn: sn.clone(),
        user,
        quantity,
        state,
        reason: None,
        created_at: at,
        updated_at: at,
        pay_by: None,
    })
}

/// Once it is another state than `seen`, or after this time.
pub(super) async fn changed(
    core: &Core,
    sn: &OrderSn,
    seen: OrderState,
    at_most: Duration,
) -> Result<Option<Order>, Fault> {
    let order = find(core, sn).await?;
    if order.as_ref().is_none_or(|order| order.state != seen) {
        return Ok(order);
    }
    let watched = core.watchers.watch(sn, seen);
    let _ = tokio::time::timeout(at_most, watched).await;
    find(core, sn).await
}

/// A number is told before its row is written: whoever turns it at once waits for that.
pub(super) async fn turn(core: &Core, sn: &OrderSn, turn: Turn) -> Result<Turned, Fault> {
    let turned = turn_now(core, sn, turn).await?;
    match &turned {
        // Placed: it was written between the two statements.
        Turned::Refused(order) if matches!(order.state, OrderState::Processing | OrderState::Placed) => {
            changed(core, sn, OrderState::Processing, core.config.deadline).await?;
            turn_now(core, sn, turn).await
        }
        _ => Ok(turned),
    }
}

async fn turn_now(core: &Core, sn: &OrderSn, turn: Turn) -> Result<Turned, Fault> {
    let to = match turn {
        Turn::Pay => {
            let sql = "UPDATE sale_orders SET state = 2, updated_at = $2 WHERE order_sn = $1 AND state = 1";
            core.asks.ask(sql, &[&sn.to_string(), &now()]).await?;
            OrderState::Paid
        }
        Turn::Cancel => {
            if cancel(core, sn).await?
                && let Some(shelf) = core.shelf(sn.goods())
            {
                // For sale again before it is told; if Redis is not there, as soon as it is.
                let _ = returns::apply_some(core, &shelf).await;
            }
            OrderState::Cancelled
        }
    };
    Ok(match find(core, sn).await? {
        Some(order) if order.state == to => Turned::Done(order),
        Some(order) => Turned::Refused(order),
        None => Turned::Unknown,
    })
}

/// Ends a placed order and gives its units back, once. Tells whether this call did.
async fn cancel(core: &Core, sn: &OrderSn) -> Result<bool, Fault> {
    let has_ended = within(async {
        let mut client = core.asks.client().await?;
        let tx = client.transaction().await?;
        // Goods before orders, as everybody who locks both.
        lock(&tx, sn).await?;
        let sql = "UPDATE sale_orders SET state = $2::int2, updated_at = $3, reason = 'given up by its buyer'
                   WHERE order_sn = $1 AND state = 1
                   RETURNING buyer, quantity";
        let (name, goods) = (sn.to_string(), sn.goods().as_str());
        let state = OrderState::Cancelled.code();
        let rows = tx.query(&tx.prepare_cached(sql).await?, &[&name, &state, &now()]).await?;
        let Some(row) = rows.first() else {
            tx.rollback().await?;
            client.give_back();
            return Ok(false);
        };
        let (user, quantity): (&str, i64) = (row.get(0), row.get(1));
        let sql = "UPDATE sale_goods SET stock = stock + $2, orders = orders - 1 WHERE goods = $1";
        tx.execute(&tx.prepare_cached(sql).await?, &[&goods, &quantity]).await?;
        give_back(&tx, goods, user, quantity).await?;
        tx.commit().await?;
        client.give_back();
        Ok::<_, DbError>(true)
    })
    .await?;
    if has_ended {
        core.returned.notify_one();
    }
    Ok(has_ended)
}

pub(super) async fn lock(tx: &Transaction<'_>, sn: &OrderSn) -> Result<(), DbError> {
    let sql = "SELECT FROM sale_goods WHERE goods = $1 FOR UPDATE";
    tx.execute(&tx.prepare_cached(sql).await?, &[&sn.goods().as_str()]).await?;
    Ok(())
}

/// Units that Redis is to have again, written down with whatever frees them.
pub(super) async fn give_back(
    tx: &Transaction<'_>,
    goods: &str,
    user: &str,
    units: i64,
) -> Result<(), DbError> {
    let sql = "UPDATE sale_goods SET returned = returned + $2, version = version + 1 WHERE goods = $1";
    tx.execute(&tx.prepare_cached(sql).await?, &[&goods, &units]).await?;
    let sql = "INSERT INTO sale_returns (goods, epoch, buyer, units)
               SELECT goods, epoch, $2, $3 FROM sale_goods WHERE goods = $1";
    tx.execute(&tx.prepare_cached(sql).await?, &[&goods, &user, &units]).await?;
    Ok(())
}

pub(super) fn now() -> i64 {
    i64::try_from(now_ms()).unwrap_or(i64::MAX)
}
