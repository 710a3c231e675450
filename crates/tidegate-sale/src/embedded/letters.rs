//! Dead letters: tried again, or dropped.

use super::admin::audit;
use super::desk::{Desk, Tx};
use super::fault::WriteFault;
use super::read;
use super::writer::Writer;
use crate::engine::Turned;
use crate::order::{Order, OrderSn};
use rusqlite::{OptionalExtension as _, params};
use serde::Serialize;

/// The audit's line.
#[derive(Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
enum Buried<'a> {
    Replay { order_sn: &'a OrderSn },
    Drop { order_sn: &'a OrderSn },
}

/// What was found, and whether this call has changed it.
struct Found {
    turned: Turned,
    is_new: bool,
}

/// Tries a letter again, or drops it. A fault of its own is that it still cannot be placed.
pub(super) async fn bury(writer: &Writer, sn: OrderSn, again: bool, by: &str) -> Result<Turned, WriteFault> {
    let by = by.to_owned();
    let work = move |tx: &Tx<'_>| -> Result<Found, WriteFault> {
        let found = |turned| Ok(Found { turned, is_new: false });
        let letter = "SELECT dropped_at FROM sale_dead WHERE order_sn = ?1";
        let mut letter = tx.conn.prepare_cached(letter)?;
        let dropped = letter.query_row([sn.to_string()], |row| row.get::<_, Option<u64>>(0)).optional()?;
        let Some(order) = read::order(tx.conn, &sn)? else { return found(Turned::Unknown) };
        match (dropped, again) {
            // An order: it was no letter, or has been tried again with success.
            (None, true) | (Some(Some(_)), false) => found(Turned::Done(order)),
            (None, false) | (Some(Some(_)), true) => found(Turned::Refused(order)),
            (Some(None), true) => replay(tx, &order, &by),
            (Some(None), false) => drop_it(tx, &order, &by),
        }
    };
    let land = move |desk: &Desk, found: &mut Found| {
        let Found { turned: Turned::Done(order), is_new: true } = found else { return };
        if let Some(shelf) = desk.shelf(order.order_sn.goods()) {
            shelf.with(|ledger| match again {
                true => ledger.revived(order.quantity),
                false => ledger.dropped(&order.user, order.quantity),
            });
        }
        desk.bells.ring(&order.order_sn);
    };
    writer.run(work, land).await.map(|found| found.turned)
}

/// Into the orders. Its time to pay begins now.
fn replay(tx: &Tx<'_>, order: &Order, by: &str) -> Result<Found, WriteFault> {
    let sn = order.order_sn.to_string();
    let insert = "
        INSERT INTO sale_orders (order_sn, goods, user, quantity, epoch, path, key, one_each, state,
                                 created_at, updated_at, pay_by)
        SELECT order_sn, goods, user, quantity, epoch, path, key, one_each, 1,
               created_at, ?2, ?2 + pay_by - created_at FROM sale_dead WHERE order_sn = ?1";
    tx.conn.execute(insert, params![sn, tx.now])?;
    tx.conn.execute("DELETE FROM sale_dead WHERE order_sn = ?1", [&sn])?;
    let goods = order.order_sn.goods();
    tx.entry(goods, |entry| {
        entry.taken += i64::from(order.quantity);
        entry.orders += 1;
    });
    audit(tx.conn, goods, by, &Buried::Replay { order_sn: &order.order_sn }, tx.now)?;
    let placed = read::order(tx.conn, &order.order_sn)?;
    Ok(Found { turned: placed.map_or(Turned::Unknown, Turned::Done), is_new: true })
}

/// Its row stays: the number was given out, and whoever asks reads what became of it.
fn drop_it(tx: &Tx<'_>, order: &Order, by: &str) -> Result<Found, WriteFault> {
    let sn = order.order_sn.to_string();
    tx.conn.execute("UPDATE sale_dead SET dropped_at = ?2 WHERE order_sn = ?1", params![sn, tx.now])?;
    let goods = order.order_sn.goods();
    tx.entry(goods, |entry| entry.dropped += i64::from(order.quantity));
    audit(tx.conn, goods, by, &Buried::Drop { order_sn: &order.order_sn }, tx.now)?;
    Ok(Found { turned: Turned::Done(order.clone()), is_new: true })
}
