//! What becomes of placed orders: paid, given up, not paid in time. Each is a compare-and-set
//! in the file; what it gives back is back in the same transaction, and then in memory.

use super::desk::{Desk, Tx};
use super::fault::WriteFault;
use super::read;
use super::writer::Writer;
use crate::engine::{Turn, Turned};
use crate::goods::GoodsId;
use crate::order::{Order, OrderSn, OrderState};
use rusqlite::params;

/// Orders that end in one transaction because nobody paid.
const EXPIRED_MAX: usize = 200;

/// Turns an order, if it is placed.
pub(super) async fn turn(writer: &Writer, sn: OrderSn, turn: Turn) -> Result<Turned, WriteFault> {
    let goal = match turn {
        Turn::Pay => OrderState::Paid,
        Turn::Cancel => OrderState::Cancelled,
    };
    let work = move |tx: &Tx<'_>| -> Result<(Turned, bool), WriteFault> {
        let Some(mut order) = read::order(tx.conn, &sn)? else { return Ok((Turned::Unknown, false)) };
        if order.state == goal {
            return Ok((Turned::Done(order), false));
        }
        if order.state != OrderState::Placed {
            return Ok((Turned::Refused(order), false));
        }
        let reason = (turn == Turn::Cancel).then_some("given up by its buyer");
        set(tx, &mut order, goal, reason)?;
        Ok((Turned::Done(order), true))
    };
    let land = |desk: &Desk, done: &mut (Turned, bool)| {
        if let (Turned::Done(order), true) = done {
            landed(desk, order);
        }
    };
    writer.run(work, land).await.map(|(turned, _)| turned)
}

/// Ends what was not paid in time, some at a time. True if there may be more.
pub(super) async fn expire(writer: &Writer, goods: GoodsId) -> Result<bool, WriteFault> {
    let work = move |tx: &Tx<'_>| -> Result<Vec<Order>, WriteFault> {
        let mut due = tx.conn.prepare_cached(
            "SELECT order_sn, user, quantity, state, reason, created_at, updated_at, pay_by FROM sale_orders
             WHERE goods = ?1 AND state = 1 AND pay_by IS NOT NULL AND pay_by <= ?2 ORDER BY pay_by LIMIT ?3",
        )?;
        let due = due.query_map(params![goods.as_str(), tx.now, EXPIRED_MAX], read::order_of)?;
        let mut due = due.collect::<rusqlite::Result<Vec<Order>>>()?;
        for order in &mut due {
            set(tx, order, OrderState::Expired, Some("not paid in time"))?;
        }
        Ok(due)
    };
    let land = |desk: &Desk, ended: &mut Vec<Order>| ended.iter().for_each(|order| landed(desk, order));
    writer.run(work, land).await.map(|ended| ended.len() == EXPIRED_MAX)
}

/// From placed to another state, and its units back where that gives them up.
fn set(tx: &Tx<'_>, order: &mut Order, state: OrderState, reason: Option<&str>) -> Result<(), WriteFault> {
    let mut update = tx.conn.prepare_cached(
        "UPDATE sale_orders SET state = ?2, reason = ?3, updated_at = ?4 WHERE order_sn = ?1 AND state = ?5",
    )?;
    let sn = order.order_sn.to_string();
    if update.execute(params![sn, state.code(), reason, tx.now, order.state.code()])? != 1 {
        // It was read in this transaction: nobody can have come between.
        return Err(WriteFault::moved(order.order_sn.goods()));
    }
    order.state = state;
    order.reason = reason.map(str::to_owned);
    order.updated_at = tx.now;
    if !state.is_live() {
        tx.entry(order.order_sn.goods(), |entry| {
            entry.given += i64::from(order.quantity);
            entry.orders -= 1;
        });
    }
    Ok(())
}

fn landed(desk: &Desk, order: &Order) {
    if let Some(shelf) = desk.shelf(order.order_sn.goods()).filter(|_| !order.state.is_live()) {
        shelf.with(|ledger| ledger.returned(&order.user, order.quantity));
    }
    desk.bells.ring(&order.order_sn);
}
