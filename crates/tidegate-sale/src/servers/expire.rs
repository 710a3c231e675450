//! Orders that nobody has paid in time, goods by goods: a goods whose row is locked keeps no
//! other waiting. Any process may expire any goods, each of them one process at a time, so
//! processes share the goods between them.

use super::core::Core;
use super::db::{DbError, NOW, within};
use crate::order::OrderState;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Goods that this process expires at once. Each holds a connection.
pub(super) const EXPIRED_TOGETHER: usize = 3;

/// Orders in one transaction. It holds up the writer of the same goods while it runs.
const TOGETHER: i64 = 1000;

/// Ends with its task.
pub(super) async fn expire(core: Arc<Core>) {
    let permits = Arc::new(Semaphore::new(EXPIRED_TOGETHER));
    let (mut work, mut at_work) = (JoinSet::new(), BTreeSet::new());
    loop {
        while let Some(ended) = work.try_join_next() {
            if let Ok(goods) = ended {
                at_work.remove(&goods);
            }
        }
        match overdue(&core).await {
            Ok(overdue) => {
                for goods in overdue {
                    if at_work.insert(goods.clone()) {
                        work.spawn(expire_goods(Arc::clone(&core), Arc::clone(&permits), goods));
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "cannot look for unpaid orders"),
        }
        tokio::time::sleep(core.config.refresh.max(Duration::from_millis(100))).await;
    }
}

/// Goods with unpaid orders whose time is up.
async fn overdue(core: &Core) -> Result<Vec<String>, DbError> {
    let sql = format!(
        "SELECT goods FROM sale_goods g
         WHERE EXISTS (SELECT FROM sale_orders o WHERE o.goods = g.goods AND o.state = 1 AND o.pay_by <= {NOW})"
    );
    Ok(core.db.ask(&sql, &[]).await?.iter().map(|row| row.get(0)).collect())
}

/// All that is overdue of one goods. Returns its name.
async fn expire_goods(core: Arc<Core>, permits: Arc<Semaphore>, goods: String) -> String {
    // One batch a permit: many goods take turns.
    while let Ok(_permit) = permits.acquire().await {
        match within(batch(&core, &goods)).await {
            Ok(0) => break,
            Ok(_) => core.returned.notify_one(),
            Err(error) => {
                tracing::warn!(%error, goods, "unpaid orders wait");
                break;
            }
        }
    }
    goods
}

const END: &str = "
    WITH due AS (
        SELECT order_sn FROM sale_orders WHERE goods = $1 AND state = 1 AND pay_by <= $3::int8
        ORDER BY pay_by LIMIT $2 FOR UPDATE)
    , ended AS (
        UPDATE sale_orders o SET state = $4::int2, updated_at = $3::int8, reason = 'not paid in time'
        FROM due WHERE o.order_sn = due.order_sn AND o.state = 1
        RETURNING o.order_sn, o.buyer, o.quantity)
    , goods AS (
        UPDATE sale_goods g
        SET stock = g.stock + e.units, returned = g.returned + e.units, orders = g.orders - e.rows,
            version = g.version + 1
        FROM (SELECT sum(quantity)::int8 AS units, count(*) AS rows FROM ended) e
        WHERE g.goods = $1 AND e.rows > 0
        RETURNING g.epoch)
    , returns AS (
        INSERT INTO sale_returns (goods, epoch, buyer, units)
        SELECT $1, goods.epoch, buyer, quantity FROM ended, goods)
    SELECT count(*) FROM ended";

/// Ends some of them and gives their units back, all or none. Tells how many; none too if
/// another process is at this goods.
async fn batch(core: &Core, goods: &str) -> Result<i64, DbError> {
    let mut client = core.db.client().await?;
    let tx = client.transaction().await?;
    let sql = "SELECT pg_try_advisory_xact_lock(hashtextextended('tidegate-sale unpaid ' || $1, 0))";
    if !tx.query_one(&tx.prepare_cached(sql).await?, &[&goods]).await?.get::<_, bool>(0) {
        tx.rollback().await?;
        client.give_back();
        return Ok(0);
    }
    // Goods before orders, as everybody who locks both. Whoever waits longer leaves the
    // connection to another goods.
    tx.batch_execute("SET LOCAL lock_timeout = '1s'").await?;
    let sql = format!("SELECT {NOW} FROM sale_goods WHERE goods = $1 FOR UPDATE");
    let Some(row) = tx.query_opt(&tx.prepare_cached(&sql).await?, &[&goods]).await? else { return Ok(0) };
    let now: i64 = row.get(0);
    let state = OrderState::Expired.code();
    let row = tx.query_one(&tx.prepare_cached(END).await?, &[&goods, &TOGETHER, &now, &state]).await?;
    tx.commit().await?;
    client.give_back();
    Ok(row.get(0))
}
