//! Where every unit is, at one moment, across two servers.
//!
//! Each of them tells its own numbers at one moment. Those of the database carry a version:
//! if it is the same before and after Redis was asked, nothing changed there meanwhile, and
//! both belong to the moment when Redis answered.
//!
//! ```text
//!   total = placed + (reserved − arrived) + held by dead letters + on their way back + left
//! ```

use super::core::Core;
use super::db::Db;
use super::look::Look;
use super::shelf::{ROW, Row, Shelf};
use crate::books::Books;
use crate::engine::Fault;
use crate::sale::SaleState;
use crate::time::now_ms;

/// Under load the database changes all the time; one of so many looks falls between.
const LOOKS: usize = 50;

/// Numbers of one moment.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    pub(super) row: Row,
    pub(super) look: Look,
    pub(super) total: i64,
    pub(super) stock: i64,
    pub(super) arrived: i64,
    /// Units of dead letters.
    pub(super) dead_units: i64,
    /// Units on their way back to Redis.
    pub(super) pending: i64,
    orders: i64,
    returned: i64,
    dead: i64,
    /// False if the database changed all the time; the numbers may not fit together.
    pub(super) is_exact: bool,
}

const ASK: &str = "
    SELECT total, stock, orders, returned, arrived, g.version,
           (SELECT coalesce(sum(quantity) FILTER (WHERE is_held), 0)::int8 FROM sale_dead d WHERE d.goods = g.goods),
           (SELECT count(*) FROM sale_dead d WHERE d.goods = g.goods),
           (SELECT coalesce(array_agg(id ORDER BY id), '{}') FROM sale_returns r
            WHERE r.goods = g.goods AND r.epoch = g.epoch),
           (SELECT coalesce(array_agg(units ORDER BY id), '{}') FROM sale_returns r
            WHERE r.goods = g.goods AND r.epoch = g.epoch)";

impl Cut {
    pub(super) async fn take(core: &Core, db: &Db, shelf: &Shelf) -> Result<Option<Self>, Fault> {
        let sql = format!("{ASK}, {ROW} FROM sale_goods g WHERE goods = $1");
        let goods = shelf.goods.as_str();
        let mut rows = db.ask(&sql, &[&goods]).await?;
        for looks in 1..=LOOKS {
            let Some(found) = rows.first() else { return Ok(None) };
            let row = Row::read(found)?;
            let (ids, units): (Vec<i64>, Vec<i64>) = (found.get(8), found.get(9));
            let is_loaded = row.epoch > 0;
            let look = if is_loaded { Look::take(core, shelf, &ids).await? } else { Look::default() };
            let waits = units.iter().zip(look.is_applied.iter().chain(std::iter::repeat(&false)));
            let pending = waits.filter(|(_, is_applied)| !**is_applied).map(|(units, _)| units).sum();
            let mut cut = Self {
                total: found.get(0),
                stock: found.get(1),
                orders: found.get(2),
                returned: found.get(3),
                arrived: found.get(4),
                dead_units: found.get(6),
                dead: found.get(7),
                pending,
                row,
                look,
                is_exact: true,
            };
            let version: i64 = found.get(5);
            rows = db.ask(&sql, &[&goods]).await?;
            cut.is_exact = rows.first().is_some_and(|after| after.get::<_, i64>(5) == version);
            if cut.is_exact || looks == LOOKS {
                return Ok(Some(cut));
            }
        }
        Ok(None)
    }

    pub(super) fn placed(&self) -> i64 {
        self.total - self.stock
    }

    /// Units between Redis and the database.
    pub(super) fn flying(&self) -> i64 {
        self.look.reserved - self.arrived
    }

    pub(super) fn left(&self) -> i64 {
        if self.row.epoch == 0 { self.stock } else { self.look.left }
    }

    /// Why it has to be held; none if every unit is where it should be.
    pub(super) fn complaint(&self) -> Option<String> {
        let look = &self.look;
        if self.row.epoch == 0 || !self.is_exact || look.why_rebuild(&self.row).is_some() {
            return None;
        }
        if look.loaded != look.left + look.reserved - look.returned {
            return Some(format!(
                "the books of Redis do not balance: {} loaded, {} left, {} reserved, {} returned",
                look.loaded, look.left, look.reserved, look.returned
            ));
        }
        if self.flying() < 0 {
            return Some(format!(
                "the database has orders that Redis never gave out: {} reserved, {} arrived",
                look.reserved, self.arrived
            ));
        }
        let sum = self.placed() + self.flying() + self.dead_units + self.pending + look.left;
        (sum != self.total).then(|| {
            format!(
                "the books do not balance: {} in all, {} placed, {} on their way, {} dead, {} coming back, {} left",
                self.total,
                self.placed(),
                self.flying(),
                self.dead_units,
                self.pending,
                look.left
            )
        })
    }

    pub(super) fn books(&self) -> Books {
        let units = |units: i64| u64::try_from(units).unwrap_or(0);
        // What Redis has to take yet for a late order of an older epoch is not left any more,
        // and may have been promised already.
        let left = self.left() + self.pending.min(0);
        let (owed, at) = (left.min(0), now_ms());
        Books {
            goods: self.row.sale.goods.clone(),
            total: units(self.total),
            placed: units(self.placed()),
            in_flight: units(self.flying() + self.dead_units + self.pending.max(0) + owed),
            left: units(left),
            orders: units(self.orders),
            returned: units(self.returned),
            dead: units(self.dead),
            epoch: self.row.epoch,
            state: self.row.shown().at(at, &self.row.sale).to_string(),
            at,
        }
    }
}

/// The books as they are shown. While Redis is loaded, what is not placed counts as on its way.
pub(super) async fn books(core: &Core, shelf: &Shelf) -> Result<Option<Books>, Fault> {
    let Some(cut) = Cut::take(core, &core.asks, shelf).await? else { return Ok(None) };
    if cut.row.state != SaleState::Draft && cut.look.why_rebuild(&cut.row).is_some() {
        return Err(super::db::fault("its stock is being counted; ask again"));
    }
    Ok(Some(cut.books()))
}
