//! A database that went back in time: it was restored, or a standby took over that lagged.
//!
//! Epoch and version of a sale only grow, so a row that is older than what was known before
//! it was asked for means that the database has forgotten. Redis and the processes know what it
//! does not: the sale is fenced and loaded under an epoch that is newer than any that they know.
//! Orders that only Redis has are sent again meanwhile, and whoever remembers the old epoch
//! believes the new one.

use super::core::Core;
use super::db::DbError;
use super::look::Look;
use super::rebuild;
use super::shelf::{ROW, Row, Shelf};
use crate::engine::Fault;
use crate::sale::SaleState;
use std::sync::Arc;

pub(super) const WENT_BACK: &str = "PostgreSQL went back in time; its stock is counted again";

/// Why a sale is held of which the database knows nothing any more.
const GONE: &str = "PostgreSQL went back in time and does not know this sale; create it again";

/// The database has this row, and had a newer one: it is believed, and its sale is loaded again
/// before it goes on.
pub(super) async fn went_back(core: &Arc<Core>, shelf: &Arc<Shelf>, row: &Row) -> Result<(), Fault> {
    tracing::error!(goods = %shelf.goods, epoch = row.epoch, version = row.version, "PostgreSQL went back in time");
    shelf.learn_older(row);
    // If this fails, the next look tries again.
    fence(core, shelf).await?;
    if row.epoch == 0 {
        shelf.accept_older(row);
        // Nothing is sold before it is warmed, and whoever warmed it may have ended before it
        // was loaded.
        if row.state != SaleState::Draft {
            rebuild::begin(core, shelf);
        }
        return Ok(());
    }
    // For every process to see: what Redis holds was loaded from another history.
    let sql = format!(
        "UPDATE sale_goods SET redis_run = '', held = $2, version = version + 1
         WHERE goods = $1 AND version = $3 RETURNING {ROW}"
    );
    let params: &[super::db::Param<'_>] = &[&shelf.goods.as_str(), &WENT_BACK, &row.version];
    let rows = core.db.ask(&sql, params).await?;
    let held = rows.first().map(Row::read).transpose()?;
    shelf.accept_older(held.as_ref().unwrap_or(row));
    rebuild::begin(core, shelf);
    Ok(())
}

/// The database does not have this sale any more, though it was there. Redis is fenced again at
/// every look: it may not have answered before.
pub(super) async fn check_gone(core: &Core, shelf: &Shelf) -> Result<(), Fault> {
    let rows = core.db.ask("SELECT FROM sale_goods WHERE goods = $1", &[&shelf.goods.as_str()]).await?;
    if !rows.is_empty() {
        return Ok(());
    }
    if shelf.lose(GONE) {
        tracing::error!(goods = %shelf.goods, "PostgreSQL went back in time and does not know this sale");
    }
    if let Err(fault) = fence(core, shelf).await {
        tracing::warn!(error = fault.what, goods = %shelf.goods, "the sale is not fenced yet");
    }
    Ok(())
}

/// Redis sells nothing of it any more.
async fn fence(core: &Core, shelf: &Shelf) -> Result<(), Fault> {
    let (live, look) = (core.link.live()?, Look::take(core, shelf, &[]).await?);
    rebuild::fence(core, shelf, &live, &look).await
}

/// True if Redis was told what the database does not know. Redis is told after the commit, so
/// a row that is asked for after the look is at least as new.
pub(super) async fn is_older_than(core: &Core, look: &Look, row: &Row) -> Result<bool, DbError> {
    let is_older = |row: &Row| (row.epoch, row.rev) < (look.epoch, look.rev);
    if !is_older(row) {
        return Ok(false);
    }
    Ok(Row::find(&core.db, &row.sale.goods).await?.is_some_and(|row| is_older(&row)))
}
