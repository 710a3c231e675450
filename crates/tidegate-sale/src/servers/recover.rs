//! Orders that Redis gave out and that are nowhere else: the broker has lost them after its
//! confirm. Redis has all that is needed to write them.

use super::core::Core;
use super::letter::Sent;
use super::shelf::Shelf;
use super::write::{Arrival, write};
use crate::engine::Fault;
use crate::order::Order;
use std::collections::BTreeMap;

/// Fields in one answer.
const FIELDS: usize = 1000;

/// Writes what neither the orders nor the dead letters have. Nobody may be selling meanwhile,
/// and everything in the queue has to be written.
pub(super) async fn write_lost(core: &Core, shelf: &Shelf, epoch: u32) -> Result<(), Fault> {
    let lost = lost(core, shelf).await?;
    if lost.is_empty() {
        return Ok(());
    }
    let (mut paths, mut keys) = (BTreeMap::new(), BTreeMap::new());
    let mut scan = Scan::of(&shelf.keys.path);
    while let Some(some) = scan.next(core).await? {
        paths.extend(some.into_iter().filter_map(|(path, used)| {
            let (number, _) = used.split_once(':')?;
            lost.contains_key(number).then(|| (number.to_owned(), path))
        }));
    }
    let mut scan = Scan::of(&shelf.keys.key);
    while let Some(some) = scan.next(core).await? {
        keys.extend(some.into_iter().filter_map(|(name, number)| {
            let (_, key) = name.split_once(':')?;
            lost.contains_key(&number).then(|| (number, key.to_owned()))
        }));
    }
    let mut arrivals = BTreeMap::new();
    for (number, order) in lost {
        let nth: Option<u64> = number.rsplit('-').next().and_then(|nth| nth.parse().ok());
        let (Some(path), Some(nth)) = (paths.remove(&number), nth) else {
            tracing::error!(sn = %order.order_sn, "an order without its path cannot be written");
            continue;
        };
        let key = keys.remove(&number);
        let sent = Sent { nth, user: order.user, quantity: order.quantity, path, key };
        arrivals.insert(nth, Arrival::new(&shelf.goods, epoch, order.created_at, sent, 0));
    }
    tracing::warn!(goods = %shelf.goods, orders = arrivals.len(), "orders that never arrived are written");
    // In the order of their numbers, as those of a message are: a process that finds the last
    // one of its own written takes the others for written too.
    for some in arrivals.into_values().collect::<Vec<_>>().chunks(core.config.batch_max) {
        write(core, some).await?;
    }
    Ok(())
}

/// By their number, as the scripts know it.
async fn lost(core: &Core, shelf: &Shelf) -> Result<BTreeMap<String, Order>, Fault> {
    let mut lost = BTreeMap::new();
    let mut scan = Scan::of(&shelf.keys.order);
    while let Some(some) = scan.next(core).await? {
        let mut orders: BTreeMap<String, (String, String)> =
            some.into_iter().map(|one| (format!("{}-{}", shelf.goods, one.0), one)).collect();
        let names: Vec<&str> = orders.keys().map(String::as_str).collect();
        let sql = "SELECT n.sn FROM unnest($1::text[]) AS n (sn)
                   WHERE NOT EXISTS (SELECT FROM sale_orders o WHERE o.order_sn = n.sn)
                     AND NOT EXISTS (SELECT FROM sale_dead d WHERE d.order_sn = n.sn)";
        for row in core.db.ask(sql, &[&names]).await? {
            let name: &str = row.get(0);
            let Some((number, record)) = orders.remove(name) else { continue };
            let order = name.parse().ok().and_then(|sn| super::orders::processing(&sn, &record));
            lost.extend(order.map(|order| (number, order)));
        }
    }
    Ok(lost)
}

/// A hash, piece by piece.
struct Scan<'a> {
    key: &'a str,
    cursor: Option<String>,
}

impl<'a> Scan<'a> {
    fn of(key: &'a str) -> Self {
        Self { key, cursor: Some("0".to_owned()) }
    }

    async fn next(&mut self, core: &Core) -> Result<Option<Vec<(String, String)>>, Fault> {
        let Some(cursor) = self.cursor.take() else { return Ok(None) };
        let mut command = redis::cmd("HSCAN");
        command.arg(self.key).arg(cursor).arg("COUNT").arg(FIELDS);
        let (next, some): (String, Vec<(String, String)>) = core.link.ask(&command).await?;
        self.cursor = Some(next).filter(|next| next != "0");
        Ok(Some(some))
    }
}
