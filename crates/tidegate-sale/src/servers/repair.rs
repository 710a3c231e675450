//! A sale whose own sums are wrong in the database: every count from them is wrong again. A
//! repair stores what the orders add up to, and the next count begins from that.

use super::admin::{Once, Recorded, json, note_as};
use super::core::Core;
use super::db::{DbError, within};
use super::shelf::{ROW, Row};
use crate::books::{Difference, REPAIR_HELD, Repaired, Sums};
use crate::engine::{AdminError, Fault};
use crate::goods::GoodsId;
use crate::sale::{Sale, SaleState};
use deadpool_postgres::Transaction;
use std::sync::Arc;

/// One statement, so that all of it is of one moment. Without dead letters: a late order may
/// have been placed from units that one of them holds, and Redis owes those.
const SUMS: &str = "
    SELECT (g.definition::json ->> 'total')::int8, g.total, g.total - g.stock, g.orders,
           coalesce(sum(o.quantity), 0)::int8, count(o.order_sn)
    FROM sale_goods g LEFT JOIN sale_orders o ON o.goods = g.goods AND o.state IN (1, 2)
    WHERE g.goods = $1 GROUP BY g.goods";

pub(super) async fn difference(core: &Core, goods: &GoodsId) -> Result<Option<Difference>, Fault> {
    let rows = core.db.ask(SUMS, &[&goods.as_str()]).await?;
    Ok(rows.first().map(|row| read(goods, row)))
}

/// The same while the sale is locked.
pub(super) async fn locked_difference(tx: &Transaction<'_>, goods: &GoodsId) -> Result<Difference, DbError> {
    Ok(read(goods, &tx.query_one(SUMS, &[&goods.as_str()]).await?))
}

fn read(goods: &GoodsId, row: &tokio_postgres::Row) -> Difference {
    let number = |nth: usize| row.get::<_, Option<i64>>(nth).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let stored = Sums { defined: number(0), total: number(1), placed: number(2), orders: number(3) };
    Difference::new(goods.clone(), stored, number(4), number(5))
}

pub(super) async fn repair(core: &Arc<Core>, goods: &GoodsId, by: &str) -> Result<Difference, AdminError> {
    let (once, mut found) = (Once::default(), None);
    let repaired = loop {
        let tried = within(store(core, goods, by, &once, &mut found)).await;
        if let Some(done) = once.settled(tried).await {
            break done?;
        }
    };
    match repaired {
        Recorded::Done(row) => drop(core.learn(&row)),
        Recorded::Unknown => return Err(AdminError::Unknown),
        Recorded::Refused(why) => return Err(AdminError::Refused(why)),
    }
    found.ok_or(AdminError::Unknown)
}

/// What was found stays found if the answer to its commit is lost.
async fn store(
    core: &Core,
    goods: &GoodsId,
    by: &str,
    once: &Once,
    found: &mut Option<Difference>,
) -> Result<Recorded, DbError> {
    let mut client = core.db.client().await?;
    let tx = client.transaction().await?;
    let sql = format!("SELECT {ROW} FROM sale_goods WHERE goods = $1 FOR UPDATE");
    let Some(row) = tx.query_opt(&sql, &[&goods.as_str()]).await? else { return Ok(Recorded::Unknown) };
    let row = Row::read(&row)?;
    if once.is_done(&tx).await? {
        return Ok(Recorded::Done(Box::new(row)));
    }
    if matches!(row.state, SaleState::Warm | SaleState::Open) {
        return Ok(Recorded::Refused(REPAIR_HELD.into()));
    }
    let difference = found.insert(locked_difference(&tx, goods).await?);
    if !difference.is_wrong() {
        return Ok(Recorded::Done(Box::new(row)));
    }
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let counted = &difference.counted;
    let definition = json(&Sale { total: counted.total, ..row.sale })?;
    let (total, placed, orders) = (number(counted.total), number(counted.placed), number(counted.orders));
    // What Redis holds was loaded from the wrong sums.
    let sql = format!(
        "UPDATE sale_goods SET definition = $2, total = $3::int8, stock = $3::int8 - $4::int8, orders = $5, rev = rev + 1,
                version = version + 1, is_doubted = epoch > 0
         WHERE goods = $1 RETURNING {ROW}"
    );
    let row = tx.query_one(&sql, &[&goods.as_str(), &definition, &total, &placed, &orders]).await?;
    let what = json(&Repaired::from(&*difference))?;
    note_as(&tx, goods.as_str(), by, &what, Some(once.token())).await?;
    let row = Row::read(&row)?;
    once.commit(tx).await?;
    client.give_back();
    Ok(Recorded::Done(Box::new(row)))
}
