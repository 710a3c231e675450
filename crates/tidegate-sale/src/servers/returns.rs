//! Units on their way back into Redis, each exactly once: the database writes down that they
//! are to be given in the same transaction that takes them from the order, and Redis remembers
//! which of them it has had, for as long as its epoch lasts.

use super::core::Core;
use super::points::{Point, reach};
use super::shelf::Shelf;
use crate::engine::Fault;
use futures_util::stream::{StreamExt as _, iter};
use std::sync::Arc;

/// Returns of one goods in one call.
const TOGETHER: i64 = 500;

/// Goods that are given back at once.
const GOODS: usize = 3;

/// Gives back what is to be given back. Ends with its task.
pub(super) async fn give_back(core: Arc<Core>) {
    loop {
        if let Err(fault) = apply(&core).await {
            tracing::warn!(error = fault.what, "what was returned is not for sale yet");
        }
        tokio::select! {
            () = tokio::time::sleep(core.config.refresh) => {}
            () = core.returned.notified() => {}
        }
    }
}

struct Return {
    id: i64,
    epoch: i32,
    user: String,
    units: i64,
}

/// All that is waiting now.
async fn apply(core: &Core) -> Result<(), Fault> {
    let sql = "SELECT goods FROM sale_goods g
               WHERE EXISTS (SELECT FROM sale_returns r WHERE r.goods = g.goods)";
    let rows = core.db.ask(sql, &[]).await?;
    let shelves: Vec<_> =
        rows.iter().filter_map(|row| core.shelf(&row.get::<_, &str>(0).parse().ok()?)).collect();
    // Those of one that cannot be given, or has many, stand in nobody's way.
    let each = iter(shelves).map(|shelf| async move {
        while apply_some(core, &shelf).await? {}
        Ok(())
    });
    each.buffer_unordered(GOODS).collect::<Vec<_>>().await.into_iter().collect()
}

/// Gives some of one goods back, the oldest. Tells whether there may be more.
pub(super) async fn apply_some(core: &Core, shelf: &Shelf) -> Result<bool, Fault> {
    let sql = "SELECT id, epoch, coalesce(buyer, ''), units FROM sale_returns WHERE goods = $1
               ORDER BY id LIMIT $2";
    let rows = core.db.ask(sql, &[&shelf.goods.as_str(), &TOGETHER]).await?;
    if rows.is_empty() {
        return Ok(false);
    }
    reach(Point::Returned);
    let back = |row: &tokio_postgres::Row| Return {
        id: row.get(0),
        epoch: row.get(1),
        user: row.get(2),
        units: row.get(3),
    };
    let has_given = give(core, shelf, &rows.iter().map(back).collect::<Vec<_>>()).await?;
    Ok(has_given && i64::try_from(rows.len()).is_ok_and(|len| len == TOGETHER))
}

/// Tells whether any could be given.
async fn give(core: &Core, shelf: &Shelf, returns: &[Return]) -> Result<bool, Fault> {
    let mut given = Vec::new();
    for some in returns.chunk_by(|one, next| one.epoch == next.epoch) {
        let live = core.link.live()?;
        let mut call = core.link.scripts.give.prepare_invoke();
        call.key(&shelf.keys.meta).key(&shelf.keys.user).key(&shelf.keys.back);
        call.arg(&live.run).arg(some[0].epoch).arg(core.news()).arg(shelf.goods.as_str());
        for back in some {
            call.arg(back.id).arg(&back.user).arg(back.units);
        }
        let done: String = core.link.run(&live, &call).await?;
        if done == "done" {
            given.extend(some.iter().map(|back| back.id));
        }
    }
    if given.is_empty() {
        // Not loaded; whoever loads it counts them in.
        core.doubted.notify_one();
        return Ok(false);
    }
    reach(Point::Given);
    core.db.ask("DELETE FROM sale_returns WHERE id = ANY($1)", &[&given]).await?;
    Ok(true)
}
