//! What operators do. The database decides; Redis is told.

use super::core::Core;
use super::db::{DbError, NOW, Param, within};
use super::shelf::{ROW, Row, Shelf};
use super::{history, rebuild, refresh, repair, returns};
use crate::books::Audit;
use crate::engine::{AdminError, Fault, Known};
use crate::goods::GoodsId;
use crate::sale::{Change, Sale, SaleState};
use deadpool_postgres::Transaction;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

pub(super) async fn create(core: &Arc<Core>, sale: Sale, by: &str) -> Result<Arc<Known>, AdminError> {
    sale.check().map_err(|error| AdminError::Refused(error.to_string()))?;
    let once = Once::default();
    let made = loop {
        let tried = within(make(core, &sale, by, &once)).await;
        if let Some(done) = once.settled(tried).await {
            break done?;
        }
    };
    match made {
        Some(row) => Ok(core.learn(&row).known()),
        None => Err(AdminError::Refused(format!("there is a sale of `{}` already", sale.goods))),
    }
}

/// None if there is one already, of somebody else's.
async fn make(core: &Core, sale: &Sale, by: &str, once: &Once) -> Result<Option<Row>, DbError> {
    let mut client = core.db.client().await?;
    let tx = client.transaction().await?;
    let sql = format!(
        "INSERT INTO sale_goods (goods, definition, state, total, stock, one_each, pay_within)
         VALUES ($1, $2, $3, $4, $4, $5, $6) ON CONFLICT (goods) DO NOTHING RETURNING {ROW}"
    );
    let (definition, state) = (json(sale)?, json(&SaleState::Draft)?);
    let (total, pay_within) = (units(sale.total)?, seconds(sale.pay_within)?);
    let goods = sale.goods.as_str();
    let params: &[Param<'_>] = &[&goods, &definition, &state, &total, &sale.one_each, &pay_within];
    let Some(row) = tx.query_opt(&sql, params).await? else {
        let sql = format!("SELECT {ROW} FROM sale_goods WHERE goods = $1");
        let is_ours = once.is_done(&tx).await?;
        let row = tx.query_opt(&sql, &[&goods]).await?.filter(|_| is_ours);
        return row.as_ref().map(Row::read).transpose();
    };
    let what = serde_json::json!({ "change": "create", "sale": sale }).to_string();
    note_as(&tx, goods, by, &what, Some(&once.token)).await?;
    once.commit(tx).await?;
    client.give_back();
    Row::read(&row).map(Some)
}

pub(super) async fn change(
    core: &Arc<Core>,
    goods: &GoodsId,
    change: Change,
    by: &str,
) -> Result<Arc<Known>, AdminError> {
    change_as(core, goods, change, by, false).await
}

async fn change_as(
    core: &Arc<Core>,
    goods: &GoodsId,
    change: Change,
    by: &str,
    is_doubted: bool,
) -> Result<Arc<Known>, AdminError> {
    let before = core.shelf(goods).map(|shelf| shelf.stamp());
    let once = Once::default();
    let recorded = loop {
        let tried = within(record(core, goods, &change, by, is_doubted, &once)).await;
        if let Some(done) = once.settled(tried).await {
            break done?;
        }
    };
    let row = match recorded {
        Recorded::Done(row) => row,
        Recorded::Unknown => return Err(AdminError::Unknown),
        Recorded::Refused(why) => return Err(AdminError::Refused(why)),
    };
    let shelf = core.learn(&row);
    if before.is_some_and(|before| row.stamp() < before)
        && let Err(fault) = history::went_back(core, &shelf, &row).await
    {
        tracing::warn!(error = fault.what, %goods, "the sale is not fenced yet");
    }
    // It is decided, and whoever is told to try again would add stock twice: what cannot be
    // done now is done by the next look.
    if let Err(fault) = spread(core, &shelf, &change, &row).await {
        tracing::warn!(error = fault.what, %goods, "a change is written down, and done once the servers answer");
    }
    Ok(shelf.known())
}

async fn spread(core: &Arc<Core>, shelf: &Arc<Shelf>, change: &Change, row: &Row) -> Result<(), Fault> {
    match change {
        Change::Warm => rebuild::ensure(core, shelf).await?,
        Change::Resume if row.is_doubted => rebuild::ensure(core, shelf).await?,
        Change::AddStock { .. } if row.epoch > 0 => {
            refresh::tell(core, shelf, row).await?;
            returns::apply_some(core, shelf).await?;
        }
        _ if row.epoch > 0 => refresh::tell(core, shelf, row).await?,
        _ => {}
    }
    refresh::one(core, shelf).await
}

/// How often an answer that was lost is asked for.
const ATTEMPTS: u32 = 4;

/// Work that is done once, although the answer to its commit may be lost: it is tried again,
/// and finds by its token what it did before.
pub(super) struct Once {
    token: String,
    is_committing: AtomicBool,
    attempts: AtomicU32,
}

impl Default for Once {
    fn default() -> Self {
        let token = format!("{:032x}", fastrand::u128(..));
        Self { token, is_committing: AtomicBool::new(false), attempts: AtomicU32::new(0) }
    }
}

impl Once {
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// True if an attempt before this one was committed.
    pub(super) async fn is_done(&self, tx: &Transaction<'_>) -> Result<bool, DbError> {
        Ok(tx.query_opt("SELECT FROM sale_audit WHERE token = $1", &[&self.token]).await?.is_some())
    }

    pub(super) async fn commit(&self, tx: Transaction<'_>) -> Result<(), DbError> {
        self.is_committing.store(true, Ordering::SeqCst);
        Ok(tx.commit().await?)
    }

    /// None if it has to be tried again, after a moment.
    pub(super) async fn settled<T>(&self, tried: Result<T, DbError>) -> Option<Result<T, DbError>> {
        let attempts = self.attempts.fetch_add(1, Ordering::SeqCst) + 1;
        match tried {
            Err(DbError::Passing(error))
                if self.is_committing.load(Ordering::SeqCst) && attempts < ATTEMPTS =>
            {
                tracing::warn!(error, "the answer to a commit was lost; it is asked for again");
                tokio::time::sleep(Duration::from_millis(100) * 4_u32.pow(attempts)).await;
                None
            }
            done => Some(done),
        }
    }
}

pub(super) enum Recorded {
    Done(Box<Row>),
    Unknown,
    Refused(String),
}

async fn record(
    core: &Core,
    goods: &GoodsId,
    change: &Change,
    by: &str,
    is_doubted: bool,
    once: &Once,
) -> Result<Recorded, DbError> {
    let mut client = core.db.client().await?;
    let tx = client.transaction().await?;
    let sql = format!("SELECT {ROW}, {NOW} AS now FROM sale_goods WHERE goods = $1 FOR UPDATE");
    let Some(row) = tx.query_opt(&sql, &[&goods.as_str()]).await? else { return Ok(Recorded::Unknown) };
    let now = u64::try_from(row.get::<_, i64>("now")).unwrap_or(0);
    let row = Row::read(&row)?;
    if once.is_done(&tx).await? {
        return Ok(Recorded::Done(Box::new(row)));
    }
    let must_count = row.is_doubted && *change == Change::Resume;
    let Row { mut sale, mut state, .. } = row;
    let before = sale.total;
    if let Err(why) = change.apply(&mut sale, &mut state, now) {
        return Ok(Recorded::Refused(why));
    }
    if let (true, Change::Pause { reason }) = (is_doubted, change) {
        state = state.held(reason);
    }
    if must_count {
        // A count from wrong sums is wrong again.
        let difference = repair::locked_difference(&tx, goods).await?;
        if difference.is_wrong() {
            return Ok(Recorded::Refused(difference.to_string()));
        }
    }
    let added = units(sale.total.saturating_sub(before))?;
    let sql = format!(
        "UPDATE sale_goods SET definition = $2, state = $3, total = total + $4, stock = stock + $4,
                rev = rev + 1, version = version + 1, is_doubted = is_doubted OR $5
         WHERE goods = $1 RETURNING {ROW}"
    );
    let params: &[Param<'_>] = &[&goods.as_str(), &json(&sale)?, &json(&state)?, &added, &is_doubted];
    let row = Row::read(&tx.query_one(&sql, params).await?)?;
    if added > 0 && row.epoch > 0 {
        let sql = "INSERT INTO sale_returns (goods, epoch, units)
                   SELECT goods, epoch, $2 FROM sale_goods WHERE goods = $1";
        tx.execute(sql, &[&goods.as_str(), &added]).await?;
    }
    note_as(&tx, goods.as_str(), by, &json(change)?, Some(&once.token)).await?;
    once.commit(tx).await?;
    client.give_back();
    Ok(Recorded::Done(Box::new(row)))
}

/// The books do not balance: it is held, and loaded again before it goes on.
pub(super) async fn doubt(core: &Arc<Core>, shelf: &Shelf, reason: String) -> Result<(), AdminError> {
    // Both at once: it is neither counted before it is held, nor resumed without a count.
    match change_as(core, &shelf.goods, Change::Pause { reason }, "reconciler", true).await {
        Ok(_) => Ok(()),
        // It is paused already, or over.
        Err(AdminError::Refused(_)) => {
            let sql = "UPDATE sale_goods SET is_doubted = true, version = version + 1 WHERE goods = $1";
            core.db.ask(sql, &[&shelf.goods.as_str()]).await?;
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// A line in the audit.
pub(super) async fn note(tx: &Transaction<'_>, goods: &str, by: &str, what: &str) -> Result<(), DbError> {
    note_as(tx, goods, by, what, None).await
}

/// The same, to be found again by its token.
pub(super) async fn note_as(
    tx: &Transaction<'_>,
    goods: &str,
    by: &str,
    what: &str,
    token: Option<&str>,
) -> Result<(), DbError> {
    let sql = "INSERT INTO sale_audit (goods, at, by, what, token) VALUES ($1, $2, $3, $4, $5)";
    tx.execute(sql, &[&goods, &super::orders::now(), &by, &what, &token]).await?;
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

pub(super) fn json(value: &impl serde::Serialize) -> Result<String, DbError> {
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
