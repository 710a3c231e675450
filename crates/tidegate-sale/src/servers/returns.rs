//! Units on their way back into Redis, each exactly once: the database writes down that they
//! are to be given in the same transaction that takes them from the order, and Redis remembers
//! which of them it has had, for as long as its epoch lasts.

use super::core::Core;
use super::orders;
use super::points::{Point, reach};
use super::shelf::Shelf;
use crate::engine::Fault;
use crate::order::OrderState;
use crate::time::now_ms;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Returns of one goods in one call.
const TOGETHER: i64 = 500;

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
pub(super) async fn apply(core: &Core) -> Result<(), Fault> {
    // So many of each goods: those of one that cannot be given stand in nobody's way.
    let sql = "SELECT id, goods, epoch, coalesce(buyer, ''), units
               FROM (SELECT *, row_number() OVER (PARTITION BY goods ORDER BY id) AS nth FROM sale_returns) r
               WHERE nth <= $1 ORDER BY id";
    let rows = core.db.ask(sql, &[&TOGETHER]).await?;
    let mut by_goods: BTreeMap<String, Vec<Return>> = BTreeMap::new();
    for row in rows {
        let back = Return { id: row.get(0), epoch: row.get(2), user: row.get(3), units: row.get(4) };
        by_goods.entry(row.get(1)).or_default().push(back);
    }
    if !by_goods.is_empty() {
        reach(Point::Returned);
    }
    let mut given = Ok(());
    for (goods, returns) in by_goods {
        if let Some(shelf) = goods.parse().ok().and_then(|goods| core.shelf(&goods)) {
            given = given.and(give(core, &shelf, &returns).await);
        }
    }
    given
}

async fn give(core: &Core, shelf: &Shelf, returns: &[Return]) -> Result<(), Fault> {
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
        return Ok(());
    }
    reach(Point::Given);
    core.db.ask("DELETE FROM sale_returns WHERE id = ANY($1)", &[&given]).await?;
    Ok(())
}

/// Orders that nobody has paid in time. Ends with its task.
pub(super) async fn expire(core: Arc<Core>) {
    loop {
        match unpaid(&core).await {
            // There may be more.
            Ok(true) => continue,
            Ok(false) => {}
            Err(fault) => tracing::warn!(error = fault.what, "unpaid orders wait"),
        }
        tokio::time::sleep(core.config.refresh.max(Duration::from_millis(100))).await;
    }
}

async fn unpaid(core: &Core) -> Result<bool, Fault> {
    let sql = "SELECT order_sn FROM sale_orders WHERE state = 1 AND pay_by <= $1 ORDER BY pay_by LIMIT 200";
    let now = i64::try_from(now_ms()).unwrap_or(i64::MAX);
    let rows = core.db.ask(sql, &[&now]).await?;
    let mut has_ended = false;
    for row in &rows {
        let Ok(sn) = row.get::<_, &str>(0).parse() else { continue };
        match orders::end(core, &sn, OrderState::Expired, "not paid in time").await {
            Ok(this) => has_ended |= this,
            // The others do not wait for it.
            Err(fault) => tracing::warn!(error = fault.what, %sn, "an unpaid order waits"),
        }
    }
    Ok(has_ended)
}
