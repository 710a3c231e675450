//! What operators do. Every change is a line in the audit, in the same transaction.

use super::desk::{Desk, Tx};
use super::fault::{Kind, WriteFault};
use super::ledger::Ledger;
use super::load::goods;
use super::repair::difference;
use super::shelf::Shelf;
use super::writer::Writer;
use crate::engine::{AdminError, Fault, Known};
use crate::goods::GoodsId;
use crate::sale::{Change, Sale, SaleState};
use rusqlite::{Connection, params};
use serde::Serialize;
use std::sync::Arc;

/// The audit's line of a new sale.
#[derive(Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
enum Created<'a> {
    Create { sale: &'a Sale },
}

pub(super) async fn create(writer: &Writer, sale: Sale, by: &str) -> Result<Arc<Known>, AdminError> {
    sale.check().map_err(|error| AdminError::Refused(error.to_string()))?;
    let (by, new, state) = (by.to_owned(), sale.clone(), SaleState::Draft);
    let work = move |tx: &Tx<'_>| -> Result<bool, WriteFault> {
        let insert = "INSERT INTO sale_goods (goods, sale, state, epoch, total, stock)
                      VALUES (?1, ?2, ?3, 1, ?4, ?4) ON CONFLICT DO NOTHING";
        let values = params![new.goods.as_str(), json(&new)?, json(&state)?, new.total];
        if tx.conn.execute(insert, values)? == 0 {
            return Ok(false);
        }
        tx.touch(&new.goods);
        audit(tx.conn, &new.goods, &by, &Created::Create { sale: &new }, tx.now)?;
        Ok(true)
    };
    let goods = sale.goods.clone();
    let land = move |desk: &Desk, is_new: &mut bool| {
        if *is_new {
            desk.versions.borrow_mut().insert(sale.goods.clone(), 0);
            desk.add(Ledger::new(sale, SaleState::Draft, 1));
        } else if let Err(error) = desk.adopt(&sale.goods) {
            tracing::error!(goods = %sale.goods, %error, "a sale that is in the file cannot be read");
        }
    };
    let known = |desk: &Desk, goods: &GoodsId| desk.shelf(goods).map(|shelf| shelf.known());
    match writer.run(work, land).await {
        Ok(true) => {
            writer.look(move |desk| known(desk, &goods)).await.map_err(fault)?.ok_or(AdminError::Unknown)
        }
        Ok(false) => {
            Err(AdminError::Refused(format!("there is a sale of `{goods}` already; take another name")))
        }
        Err(error) => Err(fault(error)),
    }
}

pub(super) async fn change(
    writer: &Writer,
    shelf: Arc<Shelf>,
    change: Change,
    by: &str,
) -> Result<Arc<Known>, AdminError> {
    let (by, here, asked) = (by.to_owned(), shelf.clone(), change.clone());
    let work = move |tx: &Tx<'_>| apply(tx, &here, &asked, &by);
    let land = move |desk: &Desk, done: &mut Result<Changed, String>| {
        if let Ok(changed) = done {
            landed(desk, &shelf, &change, changed);
        }
    };
    let changed = writer.run(work, land).await.map_err(fault)?.map_err(AdminError::Refused)?;
    match changed.known {
        Some(known) => Ok(known),
        None => Err(Fault { what: "the file could not be read again; the sale stays paused".into() }.into()),
    }
}

/// What a change came to.
struct Changed {
    sale: Sale,
    state: SaleState,
    /// The file is read again before the sale goes on.
    is_reload: bool,
    known: Option<Arc<Known>>,
}

fn apply(
    tx: &Tx<'_>,
    shelf: &Shelf,
    change: &Change,
    by: &str,
) -> Result<Result<Changed, String>, WriteFault> {
    let row = goods(tx.conn, &shelf.goods)?;
    let (mut sale, mut state) = (row.sale, row.state);
    let doubt = shelf.with(|ledger| ledger.is_in_doubt.then(|| ledger.state.clone()));
    if let Some(SaleState::Paused { reason, .. }) = &doubt {
        // That it is paused may not have gone into the file.
        state = state.held(reason);
    }
    let is_reload = doubt.is_some() && matches!(change, Change::Resume | Change::Close);
    if is_reload && state.at(tx.now, &sale) == SaleState::Closed {
        // A closed sale stays closed, but what became of its orders can be found out.
        state = SaleState::Closed;
    } else if let Err(why) = change.apply(&mut sale, &mut state, tx.now) {
        return Ok(Err(why));
    }
    if doubt.is_some() && matches!(change, Change::AddStock { .. }) {
        return Ok(Err("its books are in doubt; `resume` it first".into()));
    }
    if is_reload {
        let difference = difference(tx.conn, &shelf.goods)?;
        if difference.is_wrong() {
            return Ok(Err(difference.to_string()));
        }
    }
    tx.touch(&shelf.goods);
    tx.conn
        .prepare_cached("UPDATE sale_goods SET sale = ?2, epoch = epoch + ?3 WHERE goods = ?1")?
        .execute(params![shelf.goods.as_str(), json(&sale)?, is_reload])?;
    write_state(tx.conn, &shelf.goods, &state)?;
    if let Change::AddStock { units } = change {
        let units = i64::try_from(*units).unwrap_or(i64::MAX);
        tx.entry(&shelf.goods, |entry| entry.added += units);
    }
    audit(tx.conn, &shelf.goods, by, change, tx.now)?;
    Ok(Ok(Changed { sale, state, is_reload, known: None }))
}

fn landed(desk: &Desk, shelf: &Shelf, change: &Change, changed: &mut Changed) {
    if changed.is_reload {
        match desk.load(&shelf.goods) {
            Ok(ledger) => shelf.with(|old| *old = ledger),
            Err(error) => {
                return desk.pause(&shelf.goods, &unread(&error));
            }
        }
    } else {
        shelf.with(|ledger| {
            ledger.sale = changed.sale.clone();
            ledger.state = changed.state.clone();
            if let Change::AddStock { units } = change {
                ledger.left += units;
            }
            if ledger.state == SaleState::Closed {
                ledger.forget();
            }
        });
    }
    changed.known = Some(shelf.publish());
}

/// Why a sale stays held.
pub(super) fn unread(error: &rusqlite::Error) -> String {
    format!("the file could not be read again: {error}; `resume` tries it once more")
}

pub(super) fn write_state(conn: &Connection, goods: &GoodsId, state: &SaleState) -> Result<(), WriteFault> {
    let update = "UPDATE sale_goods SET state = ?2 WHERE goods = ?1";
    conn.prepare_cached(update)?.execute(params![goods.as_str(), json(state)?])?;
    Ok(())
}

/// A line of what was done, and by whom.
pub(super) fn audit(
    conn: &Connection,
    goods: &GoodsId,
    by: &str,
    what: &impl Serialize,
    now: u64,
) -> Result<(), WriteFault> {
    let insert = "INSERT INTO sale_audit (goods, at, by, what) VALUES (?1, ?2, ?3, ?4)";
    conn.prepare_cached(insert)?.execute(params![goods.as_str(), now, by, json(what)?])?;
    Ok(())
}

/// Whoever writes JSON here cannot fail; the type says that it might.
pub(super) fn json(value: &impl Serialize) -> Result<String, WriteFault> {
    serde_json::to_string(value)
        .map_err(|error| WriteFault { kind: Kind::One, what: error.to_string().into() })
}

pub(super) fn fault(fault: WriteFault) -> AdminError {
    AdminError::Fault(fault.into())
}
