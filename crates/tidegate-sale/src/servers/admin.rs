//! What operators do. The database decides; Redis is told.

use super::core::Core;
use super::db::{DbError, Param, fault, within};
use super::shelf::{ROW, Row, Shelf};
use super::{rebuild, refresh, returns};
use crate::books::Audit;
use crate::engine::{AdminError, Fault, Known};
use crate::goods::GoodsId;
use crate::sale::{Change, Sale, SaleState};
use deadpool_postgres::Transaction;
use std::sync::Arc;

pub(super) async fn create(core: &Arc<Core>, sale: Sale, by: &str) -> Result<Arc<Known>, AdminError> {
    sale.check().map_err(|error| AdminError::Refused(error.to_string()))?;
    let made = within(async {
        let mut client = core.db.client().await?;
        let tx = client.transaction().await?;
        let sql = format!(
            "INSERT INTO sale_goods (goods, definition, state, total, stock, one_each, pay_within)
             VALUES ($1, $2, $3, $4, $4, $5, $6) ON CONFLICT (goods) DO NOTHING RETURNING {ROW}"
        );
        let (definition, state) = (json(&sale)?, json(&SaleState::Draft)?);
        let (total, pay_within) = (units(sale.total)?, seconds(sale.pay_within)?);
        let params: &[Param<'_>] =
            &[&sale.goods.as_str(), &definition, &state, &total, &sale.one_each, &pay_within];
        let rows = tx.query(&sql, params).await?;
        let row = rows.first().map(Row::read).transpose()?;
        let what = serde_json::json!({ "change": "create", "sale": sale }).to_string();
        note(&tx, sale.goods.as_str(), by, &what).await?;
        if row.is_some() {
            tx.commit().await?;
        }
        Ok::<_, DbError>(row)
    });
    match made.await? {
        Some(row) => Ok(core.learn(&row).known()),
        None => Err(AdminError::Refused(format!("there is a sale of `{}` already", sale.goods))),
    }
}

pub(super) async fn change(
    core: &Arc<Core>,
    goods: &GoodsId,
    change: Change,
    by: &str,
) -> Result<Arc<Known>, AdminError> {
    let row = match within(record(core, goods, &change, by)).await? {
        Recorded::Done(row) => row,
        Recorded::Unknown => return Err(AdminError::Unknown),
        Recorded::Refused(why) => return Err(AdminError::Refused(why)),
    };
    let shelf = core.learn(&row);
    let later = |fault: Fault| fault_later(&fault);
    match change {
        Change::Warm => rebuild::ensure(core, &shelf).await.map_err(later)?,
        Change::Resume if row.is_doubted => rebuild::ensure(core, &shelf).await.map_err(later)?,
        Change::AddStock { .. } if row.epoch > 0 => {
            refresh::tell(core, &shelf, &row).await.map_err(later)?;
            returns::apply(core).await.map_err(later)?;
        }
        _ if row.epoch > 0 => refresh::tell(core, &shelf, &row).await.map_err(later)?,
        _ => {}
    }
    refresh::one(core, &shelf).await.map_err(later)?;
    Ok(shelf.known())
}

fn fault_later(cause: &Fault) -> Fault {
    fault(format!("it is written down, and done as soon as the servers answer: {}", cause.what))
}

enum Recorded {
    Done(Box<Row>),
    Unknown,
    Refused(String),
}

async fn record(core: &Core, goods: &GoodsId, change: &Change, by: &str) -> Result<Recorded, DbError> {
    let mut client = core.db.client().await?;
    let tx = client.transaction().await?;
    let sql = format!("SELECT {ROW} FROM sale_goods WHERE goods = $1 FOR UPDATE");
    let Some(row) = tx.query_opt(&sql, &[&goods.as_str()]).await? else { return Ok(Recorded::Unknown) };
    let Row { mut sale, mut state, .. } = Row::read(&row)?;
    let before = sale.total;
    if let Err(why) = change.apply(&mut sale, &mut state) {
        return Ok(Recorded::Refused(why));
    }
    let added = units(sale.total.saturating_sub(before))?;
    let sql = format!(
        "UPDATE sale_goods SET definition = $2, state = $3, total = total + $4, stock = stock + $4,
                rev = rev + 1, version = version + 1
         WHERE goods = $1 RETURNING {ROW}"
    );
    let params: &[Param<'_>] = &[&goods.as_str(), &json(&sale)?, &json(&state)?, &added];
    let row = Row::read(&tx.query_one(&sql, params).await?)?;
    if added > 0 && row.epoch > 0 {
        let sql = "INSERT INTO sale_returns (goods, epoch, units)
                   SELECT goods, epoch, $2 FROM sale_goods WHERE goods = $1";
        tx.execute(sql, &[&goods.as_str(), &added]).await?;
    }
    note(&tx, goods.as_str(), by, &json(change)?).await?;
    tx.commit().await?;
    Ok(Recorded::Done(Box::new(row)))
}

/// The books do not balance: it is held, and loaded again before it goes on.
pub(super) async fn doubt(core: &Arc<Core>, shelf: &Shelf, reason: String) -> Result<(), AdminError> {
    // First, or one who resumes at once would find nothing to count.
    let sql = "UPDATE sale_goods SET is_doubted = true WHERE goods = $1";
    core.db.ask(sql, &[&shelf.goods.as_str()]).await?;
    let change = Change::Pause { reason };
    match self::change(core, &shelf.goods, change, "reconciler").await {
        Ok(_) | Err(AdminError::Refused(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A line in the audit.
pub(super) async fn note(tx: &Transaction<'_>, goods: &str, by: &str, what: &str) -> Result<(), DbError> {
    let sql = "INSERT INTO sale_audit (goods, at, by, what) VALUES ($1, $2, $3, $4)";
    tx.execute(sql, &[&goods, &super::orders::now(), &by, &what]).await?;
    Ok(())
}

/// The newest first.
pub(super) async fn audit(core: &Core, goods: &GoodsId, at_most: u32) -> Result<Vec<Audit>, Fault> {
    let sql = "SELECT at, by, what FROM sale_audit WHERE goods = $1 ORDER BY id DESC LIMIT $2";
    let rows = core.db.ask(sql, &[&goods.as_str(), &i64::from(at_most)]).await?;
    let line = |row: &tokio_postgres::Row| Audit {
        at: u64::try_from(row.get::<_, i64>(0)).unwrap_or(0),
        by: row.get(1),
        what: row.get(2),
    };
    Ok(rows.iter().map(line).collect())
}

fn json(value: &impl serde::Serialize) -> Result<String, DbError> {
    serde_json::to_string(value).map_err(|error| DbError::Refused(error.to_string()))
}

fn units(units: u64) -> Result<i64, DbError> {
    i64::try_from(units).map_err(|_| DbError::Refused(format!("{units} units are too many")))
}

fn seconds(seconds: Option<u32>) -> Result<Option<i32>, DbError> {
    let second = |seconds: u32| {
        i32::try_from(seconds)
            .map_err(|_| DbError::Refused(format!("`pay_within`: {seconds} seconds are too many")))
    };
    seconds.map(second).transpose()
}
