//! Memory from the file: at the start, and where the two may differ.

use super::desk::Desk;
use super::ledger::Ledger;
use crate::goods::{GoodsId, UserId};
use crate::order::{OrderSn, OrderState};
use crate::path::PathId;
use crate::sale::{Sale, SaleState};
use rusqlite::types::Type;
use rusqlite::{Connection, Row};
use std::error::Error;
use std::sync::Arc;

/// The row of a kind of goods, with its version.
pub(super) struct Goods {
    pub(super) sale: Sale,
    pub(super) state: SaleState,
    pub(super) epoch: u32,
    pub(super) total: u64,
    pub(super) stock: u64,
    pub(super) placed: u64,
    pub(super) orders: u64,
    pub(super) returned: u64,
    pub(super) version: i64,
}

const GOODS: &str = "SELECT sale, state, epoch, total, stock, placed, orders, returned, version FROM sale_goods WHERE goods = ?1";

pub(super) fn goods(conn: &Connection, goods: &GoodsId) -> rusqlite::Result<Goods> {
    conn.prepare_cached(GOODS)?.query_row([goods.as_str()], |row| {
        Ok(Goods {
            sale: read(row, 0, |text| serde_json::from_str(text))?,
            state: read(row, 1, |text| serde_json::from_str(text))?,
            epoch: row.get(2)?,
            total: row.get(3)?,
            stock: row.get(4)?,
            placed: row.get(5)?,
            orders: row.get(6)?,
            returned: row.get(7)?,
            version: row.get(8)?,
        })
    })
}

/// A column that is a text with a meaning.
pub(super) fn read<T, E: Error + Send + Sync + 'static>(
    row: &Row<'_>,
    column: usize,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    parse(&text).map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into()))
}

impl Desk {
    /// The ledger that the file tells of; the version of its stock is remembered.
    pub(super) fn load(&self, id: &GoodsId) -> rusqlite::Result<Ledger> {
        let row = goods(&self.conn, id)?;
        let mut ledger = Ledger::new(row.sale, row.state, row.epoch);
        (ledger.placed, ledger.orders, ledger.returned) = (row.placed, row.orders, row.returned);
        self.load_orders(id, &mut ledger)?;
        self.load_dead(id, &mut ledger)?;
        ledger.left = row.stock.saturating_sub(ledger.in_flight);
        self.versions.borrow_mut().insert(id.clone(), row.version);
        Ok(ledger)
    }

    fn load_orders(&self, id: &GoodsId, ledger: &mut Ledger) -> rusqlite::Result<()> {
        // Nobody buys from it any more, and who asks again for what they have is answered from the file.
        if ledger.state == SaleState::Closed {
            return Ok(());
        }
        let sql = "SELECT order_sn, user, quantity, path, key, state FROM sale_orders WHERE goods = ?1";
        let mut orders = self.conn.prepare(sql)?;
        let mut rows = orders.query([id.as_str()])?;
        while let Some(row) = rows.next()? {
            let (user, quantity) = self.load_used(row, ledger)?;
            if OrderState::of_code(row.get(5)?).is_some_and(OrderState::is_live) {
                ledger.hold(&user, quantity);
            }
        }
        Ok(())
    }

    fn load_dead(&self, id: &GoodsId, ledger: &mut Ledger) -> rusqlite::Result<()> {
        let sql = "SELECT order_sn, user, quantity, path, key, dropped_at FROM sale_dead WHERE goods = ?1";
        let mut letters = self.conn.prepare(sql)?;
        let mut rows = letters.query([id.as_str()])?;
        while let Some(row) = rows.next()? {
            let (user, quantity) = self.load_used(row, ledger)?;
            if row.get::<_, Option<u64>>(5)?.is_none() {
                ledger.hold(&user, quantity);
                ledger.in_flight += u64::from(quantity);
                ledger.dead += 1;
            }
        }
        Ok(())
    }

    fn load_used(&self, row: &Row<'_>, ledger: &mut Ledger) -> rusqlite::Result<(UserId, u32)> {
        let sn: OrderSn = read(row, 0, str::parse)?;
        let user: UserId = read(row, 1, str::parse)?;
        let path: PathId = row.get(3)?;
        let key: Option<Arc<str>> = row.get(4)?;
        ledger.remember(path, &user, key.as_ref(), &sn);
        Ok((user, row.get(2)?))
    }
}
