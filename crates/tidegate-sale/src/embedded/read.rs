//! What is only looked at: on a connection and a thread of its own, so that no look waits for
//! a commit and no commit for a look.

use super::load::read;
use crate::books::{Audit, DeadLetter};
use crate::engine::{Fault, Reserve};
use crate::goods::GoodsId;
use crate::order::{Order, OrderSn, OrderState};
use crate::refusal::Refusal;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use tokio::sync::{mpsc, oneshot};

const QUEUE_MAX: usize = 65_536;

type Look = Box<dyn FnOnce(&Connection) + Send>;

/// The queue to the thread.
pub(super) struct Reader {
    queue: mpsc::Sender<Look>,
}

impl Reader {
    pub(super) fn start(conn: Connection, name: &str) -> std::io::Result<Self> {
        let (queue, mut looks) = mpsc::channel::<Look>(QUEUE_MAX);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Some(look) = looks.blocking_recv() {
                look(&conn);
            }
        })?;
        Ok(Self { queue })
    }

    pub(super) async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Fault> {
        let (reply, answer) = oneshot::channel();
        let look: Look = Box::new(move |conn| {
            // Whoever asked may have gone away.
            let _ = reply.send(look(conn).map_err(|error| Fault { what: error.to_string() }));
        });
        let gone = || Fault { what: "the sale's reader has ended".into() };
        self.queue.send(look).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

const ORDER: &str = "SELECT order_sn, user, quantity, state, reason, created_at, updated_at, pay_by
                     FROM sale_orders WHERE order_sn = ?1";
/// A dead letter is an order that failed.
const DEAD_ORDER: &str = "SELECT order_sn, user, quantity, 5, reason, created_at, at, NULL
                          FROM sale_dead WHERE order_sn = ?1";

/// An order in the file, placed or failed.
pub(super) fn order(conn: &Connection, sn: &OrderSn) -> rusqlite::Result<Option<Order>> {
    let sn = sn.to_string();
    let placed = conn.prepare_cached(ORDER)?.query_row([&sn], order_of).optional()?;
    match placed {
        Some(order) => Ok(Some(order)),
        None => conn.prepare_cached(DEAD_ORDER)?.query_row([&sn], order_of).optional(),
    }
}

/// The order of a path, or of a user's key; a path of somebody else's is wrong.
pub(super) fn had(conn: &Connection, ask: &Reserve) -> rusqlite::Result<Option<Result<OrderSn, Refusal>>> {
    for table in ["sale_orders", "sale_dead"] {
        let sql = format!(
            "SELECT order_sn, user = ?3 FROM {table} WHERE goods = ?1 AND (path = ?2 OR (user = ?3 AND key = ?4))
             ORDER BY path = ?2 DESC LIMIT 1"
        );
        let values = params![ask.goods.as_str(), ask.path, ask.user.as_str(), ask.key];
        let found = conn.prepare_cached(&sql)?.query_row(values, |row| {
            let sn = read(row, 0, str::parse)?;
            Ok(if row.get(1)? { Ok(sn) } else { Err(Refusal::WrongPath) })
        });
        if let Some(found) = found.optional()? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The columns of [`ORDER`].
pub(super) fn order_of(row: &Row<'_>) -> rusqlite::Result<Order> {
    let code: i16 = row.get(3)?;
    let state = OrderState::of_code(code).ok_or(rusqlite::Error::IntegralValueOutOfRange(3, code.into()))?;
    Ok(Order {
        order_sn: read(row, 0, str::parse)?,
        user: read(row, 1, str::parse)?,
        quantity: row.get(2)?,
        state,
        reason: row.get(4)?,
        created_at: row.get(5)?,
        updated_at: row.get(6)?,
        pay_by: row.get(7)?,
    })
}

pub(super) fn audit(conn: &Connection, goods: &GoodsId, at_most: u32) -> rusqlite::Result<Vec<Audit>> {
    let sql = "SELECT at, by, what FROM sale_audit WHERE goods = ?1 ORDER BY id DESC LIMIT ?2";
    let mut lines = conn.prepare_cached(sql)?;
    let lines = lines.query_map((goods.as_str(), at_most), |row| {
        Ok(Audit { at: row.get(0)?, by: row.get(1)?, what: row.get(2)? })
    })?;
    lines.collect()
}

pub(super) fn dead(conn: &Connection, goods: &GoodsId) -> rusqlite::Result<Vec<DeadLetter>> {
    let sql = "SELECT order_sn, user, quantity, reason, at FROM sale_dead
               WHERE goods = ?1 AND dropped_at IS NULL ORDER BY at, order_sn";
    let mut letters = conn.prepare_cached(sql)?;
    let letters = letters.query_map([goods.as_str()], |row| {
        Ok(DeadLetter {
            order_sn: read(row, 0, str::parse)?,
            user: read(row, 1, str::parse)?,
            quantity: row.get(2)?,
            reason: row.get(3)?,
            at: row.get(4)?,
        })
    })?;
    letters.collect()
}
