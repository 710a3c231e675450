//! Sales that open and close by their times. It is stored once it is so: a clock that is set
//! back, or another Redis whose clock is behind, must not take it back. The database's clock
//! decides, because one process's may be wrong.

use super::admin::json;
use super::core::Core;
use super::db::{DbError, NOW};
use super::shelf::{ROW, Row};
use crate::sale::SaleState;

/// The same rows, with what their times have made of them. What cannot be stored now is stored
/// the next time; buyers meet it in any case.
pub(super) async fn keep(core: &Core, mut rows: Vec<Row>) -> Vec<Row> {
    if let Err(error) = store_all(core, &mut rows).await {
        tracing::warn!(%error, "a sale's schedule could not be written down");
    }
    rows
}

async fn store_all(core: &Core, rows: &mut [Row]) -> Result<(), DbError> {
    if !rows.iter().any(is_waiting) {
        return Ok(());
    }
    let now = core.db.ask(&format!("SELECT {NOW}"), &[]).await?;
    let now = now.first().and_then(|row| u64::try_from(row.get::<_, i64>(0)).ok()).unwrap_or(0);
    for row in rows {
        if let Some(stored) = store(core, row, now).await? {
            *row = stored;
        }
    }
    Ok(())
}

fn is_waiting(row: &Row) -> bool {
    match row.state {
        SaleState::Draft | SaleState::Closed => false,
        SaleState::Warm => row.sale.opens_at.or(row.sale.closes_at).is_some(),
        SaleState::Open | SaleState::Paused { .. } => row.sale.closes_at.is_some(),
    }
}

/// Once, whichever process does it: an operator or another process may have been quicker.
async fn store(core: &Core, row: &Row, now: u64) -> Result<Option<Row>, DbError> {
    let Some(change) = row.state.due(now, &row.sale) else { return Ok(None) };
    let state = json(&row.state.at(now, &row.sale))?;
    let what = json(&change)?;
    let at = i64::try_from(now).unwrap_or(i64::MAX);
    let sql = format!(
        "WITH done AS (
             UPDATE sale_goods SET state = $3, rev = rev + 1, version = version + 1
             WHERE goods = $1 AND rev = $2 RETURNING *)
         , noted AS (
             INSERT INTO sale_audit (goods, at, by, what) SELECT goods, $4, 'schedule', $5 FROM done)
         SELECT {ROW} FROM done"
    );
    let rows = core.db.ask(&sql, &[&row.sale.goods.as_str(), &row.rev, &state, &at, &what]).await?;
    rows.first().map(Row::read).transpose()
}
