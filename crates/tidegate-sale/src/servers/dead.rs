//! Dead letters: shown, tried again, dropped.

use super::core::Core;
use super::db::{DbError, NOW, within};
use super::{admin, orders};
use crate::books::DeadLetter;
use crate::engine::{AdminError, Fault, Turned};
use crate::goods::GoodsId;
use crate::order::{OrderSn, OrderState};
use deadpool_postgres::Transaction;

/// The oldest first.
pub(super) async fn list(core: &Core, goods: &GoodsId) -> Result<Vec<DeadLetter>, Fault> {
    let sql = "SELECT order_sn, buyer, quantity, reason, at FROM sale_dead WHERE goods = $1
               ORDER BY at, order_sn LIMIT 1000";
    let rows = core.db.ask(sql, &[&goods.as_str()]).await?;
    let letter = |row: &tokio_postgres::Row| {
        Some(DeadLetter {
            order_sn: row.get::<_, &str>(0).parse().ok()?,
            user: row.get::<_, &str>(1).parse().ok()?,
            quantity: u32::try_from(row.get::<_, i64>(2)).ok()?,
            reason: row.get(3),
            at: u64::try_from(row.get::<_, i64>(4)).unwrap_or(0),
        })
    };
    Ok(rows.iter().filter_map(letter).collect())
}

/// Tries it again, or drops it.
pub(super) async fn bury(core: &Core, sn: &OrderSn, again: bool, by: &str) -> Result<Turned, AdminError> {
    match within(settle(core, sn, again, by)).await {
        Ok(true) => core.returned.notify_one(),
        Ok(false) => {}
        Err(DbError::Refused(why)) => return Err(AdminError::still_dead(&why)),
        Err(error) => return Err(error.into()),
    }
    let to = if again { OrderState::is_live } else { |state| state == OrderState::Failed };
    Ok(match orders::find(core, sn).await? {
        Some(order) if to(order.state) => Turned::Done(order),
        Some(order) => Turned::Refused(order),
        None => Turned::Unknown,
    })
}

/// From the dead letters into the orders, in one transaction; false if there is none.
async fn settle(core: &Core, sn: &OrderSn, again: bool, by: &str) -> Result<bool, DbError> {
    let mut client = core.db.client().await?;
    let tx = client.transaction().await?;
    orders::lock(&tx, sn).await?;
    let (name, goods) = (sn.to_string(), sn.goods().as_str());
    let sql = format!(
        "WITH gone AS (
             DELETE FROM sale_dead WHERE order_sn = $1
             RETURNING order_sn, goods, buyer, quantity, epoch, path, key, created_at, reason, is_held)
         , made AS (
             INSERT INTO sale_orders (order_sn, goods, buyer, quantity, epoch, path, key, state, reason,
                                      is_single, created_at, updated_at, pay_by)
             SELECT o.order_sn, o.goods, o.buyer, o.quantity, o.epoch, o.path, o.key, $2::int2,
                    CASE WHEN $2::int2 = 5 THEN o.reason END, coalesce(g.one_each, false), o.created_at, $3::int8,
                    CASE WHEN $2::int2 = 1 THEN {NOW} + g.pay_within::int8 * 1000 END
             FROM gone o LEFT JOIN sale_goods g ON g.goods = o.goods)
         SELECT buyer, quantity, is_held FROM gone"
    );
    let to = if again { OrderState::Placed } else { OrderState::Failed };
    let rows = tx.query(&sql, &[&name, &to.code(), &orders::now()]).await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let (user, quantity, is_held): (&str, i64, bool) = (row.get(0), row.get(1), row.get(2));
    match (again, is_held) {
        (true, _) => place(&tx, goods, user, quantity, is_held).await?,
        (false, true) => orders::give_back(&tx, goods, user, quantity).await?,
        // Redis was loaded without its units.
        (false, false) => {}
    }
    let what = serde_json::json!({ "change": if again { "replay" } else { "drop" }, "order_sn": name });
    admin::note(&tx, goods, by, &what.to_string()).await?;
    tx.commit().await?;
    client.give_back();
    Ok(true)
}

async fn place(
    tx: &Transaction<'_>,
    goods: &str,
    user: &str,
    quantity: i64,
    is_held: bool,
) -> Result<(), DbError> {
    let sql = "UPDATE sale_goods SET stock = stock - $2, orders = orders + 1, version = version + 1
               WHERE goods = $1 AND stock >= $2";
    if tx.execute(sql, &[&goods, &quantity]).await? == 0 {
        return Err(DbError::Refused("no stock is left for it".into()));
    }
    if !is_held {
        // Redis has to take them yet.
        let sql = "INSERT INTO sale_returns (goods, epoch, buyer, units)
                   SELECT goods, epoch, $2, $3 FROM sale_goods WHERE goods = $1";
        tx.execute(sql, &[&goods, &user, &-quantity]).await?;
    }
    Ok(())
}
