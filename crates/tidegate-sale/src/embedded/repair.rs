//! A sale whose own sums are wrong in the file: no reading of it can go on from them. A repair
//! stores what the orders add up to.

use super::admin;
use super::desk::Desk;
use super::fault::{Kind, WriteFault};
use super::load;
use super::shelf::Shelf;
use crate::books::{Difference, REPAIR_HELD, Repaired, Sums};
use crate::goods::GoodsId;
use crate::sale::{Sale, SaleState};
use crate::time::now_ms;
use rusqlite::{Connection, params};

/// The sums of a sale's row against its orders and dead letters.
pub(super) fn difference(conn: &Connection, goods: &GoodsId) -> rusqlite::Result<Difference> {
    // One statement, so that all of it is of one moment.
    let sql = "SELECT sale, total, placed, orders,
                      (SELECT coalesce(sum(quantity), 0) FROM sale_orders o
                       WHERE o.goods = g.goods AND state IN (1, 2)),
                      (SELECT count(*) FROM sale_orders o WHERE o.goods = g.goods AND state IN (1, 2)),
                      (SELECT coalesce(sum(quantity), 0) FROM sale_dead d
                       WHERE d.goods = g.goods AND dropped_at IS NULL)
               FROM sale_goods g WHERE goods = ?1";
    conn.prepare_cached(sql)?.query_row([goods.as_str()], |row| {
        let sale: Sale = load::read(row, 0, |text| serde_json::from_str(text))?;
        let stored =
            Sums { defined: sale.total, total: row.get(1)?, placed: row.get(2)?, orders: row.get(3)? };
        // Memory takes what dead letters hold from the stock, which therefore has to have it.
        Ok(Difference::new(goods.clone(), stored, row.get(4)?, row.get(5)?).with_dead(row.get(6)?))
    })
}

impl Desk {
    /// Stores what the orders add up to, and reads memory from it. Refused unless it is held.
    pub(super) fn repair(&self, shelf: &Shelf, by: &str) -> Result<Result<Difference, String>, WriteFault> {
        let goods = &shelf.goods;
        let held = match shelf.with(|ledger| ledger.state.clone()) {
            SaleState::Warm | SaleState::Open => return Ok(Err(REPAIR_HELD.into())),
            SaleState::Paused { reason, .. } => Some(reason),
            SaleState::Draft | SaleState::Closed => None,
        };
        let found = self.transaction(|| {
            let found = difference(&self.conn, goods)?;
            if found.is_wrong() {
                self.store(&found, held.as_deref(), by)?;
            }
            Ok(found)
        });
        match &found {
            Ok(found) if found.is_wrong() => match self.load(goods) {
                Ok(ledger) => {
                    shelf.with(|old| *old = ledger);
                    shelf.publish();
                }
                Err(error) => self.pause(goods, &admin::unread(&error)),
            },
            Err(fault) if fault.kind == Kind::Unknown => self.pause(goods, &fault.unknown()),
            _ => {}
        }
        found.map(Ok)
    }

    fn store(&self, found: &Difference, held: Option<&str>, by: &str) -> Result<(), WriteFault> {
        let (goods, counted) = (&found.goods, &found.counted);
        let row = load::goods(&self.conn, goods)?;
        let sale = Sale { total: counted.total, ..row.sale };
        // Memory begins to count its numbers anew, so this is a new epoch.
        let update = "UPDATE sale_goods SET sale = ?2, total = ?3, stock = ?3 - ?4, placed = ?4, orders = ?5,
                             epoch = epoch + 1 WHERE goods = ?1";
        let values =
            params![goods.as_str(), admin::json(&sale)?, counted.total, counted.placed, counted.orders];
        self.conn.execute(update, values)?;
        if let Some(reason) = held {
            // That it is paused may not have gone into the file.
            admin::write_state(&self.conn, goods, &row.state.held(reason))?;
        }
        admin::audit(&self.conn, goods, by, &Repaired::from(found), now_ms())
    }
}
