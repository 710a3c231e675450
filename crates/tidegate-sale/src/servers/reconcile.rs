//! Checks the books, again and again. What stays wrong holds the sale, with the reason.

use super::core::Core;
use super::cut::Cut;
use super::look::Entry;
use super::shelf::Shelf;
use super::{admin, rebuild, repair};
use crate::books::Difference;
use crate::engine::Fault;
use crate::goods::GoodsId;
use crate::sale::SaleState;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A complaint that is heard so often in a row is true.
const HEARD: u32 = 3;

/// Orders that are on their way and do not move for so many checks: the queue is asked.
const STUCK: u32 = 5;

/// The sum over all orders is asked for at every so manieth check.
const SUM: u32 = 30;

#[derive(Default)]
struct Memory {
    complaints: u32,
    stuck: u32,
    checks: u32,
    /// What was reserved and what has arrived, when it was looked at last.
    seen: (i64, i64),
    /// Orders up to here have to arrive, even while others keep coming.
    mark: Option<Mark>,
}

/// The orders of an epoch that have been given out by one moment.
struct Mark {
    epoch: u32,
    nth: i64,
    /// The newest outbox entry then.
    entry: Entry,
}

/// Ends with its task.
pub(super) async fn keep_checking(core: Arc<Core>) {
    let mut memories: HashMap<GoodsId, Memory> = HashMap::new();
    loop {
        tokio::time::sleep(core.config.reconcile).await;
        for shelf in core.shelves() {
            let memory = memories.entry(shelf.goods.clone()).or_default();
            if let Err(fault) = check(&core, &shelf, memory).await {
                tracing::debug!(error = fault.what, goods = %shelf.goods, "the books cannot be checked now");
            }
        }
    }
}

async fn check(core: &Arc<Core>, shelf: &Arc<Shelf>, memory: &mut Memory) -> Result<(), Fault> {
    memory.checks += 1;
    let is_over = shelf.known().state == SaleState::Closed;
    if is_over && !memory.checks.is_multiple_of(SUM) {
        return Ok(());
    }
    let Some(cut) = Cut::take(core, &core.db, shelf).await? else { return Ok(()) };
    // It is being loaded, or will be before it goes on.
    if cut.row.state == SaleState::Draft || cut.row.held.is_some() || cut.row.is_doubted {
        *memory = Memory { checks: memory.checks, ..Memory::default() };
        return Ok(());
    }
    let counts_again = |what: String| format!("{what}; `resume` counts again");
    let mut complaint = cut.complaint().map(counts_again);
    memory.complaints = if complaint.is_some() { memory.complaints + 1 } else { 0 };
    if complaint.is_none() && memory.checks.is_multiple_of(SUM) {
        complaint = sums(core, shelf).await?;
        memory.complaints = complaint.as_ref().map_or(0, |_| HEARD);
        if let Some(reason) = complaint.take_if(|_| is_over) {
            tracing::error!(goods = %shelf.goods, reason, "a sale that is over");
        }
    }
    if complaint.is_none() {
        complaint = missing(core, shelf, &cut, memory).await?.map(counts_again);
        memory.complaints = complaint.as_ref().map_or(memory.complaints, |_| HEARD);
    }
    let is_moving = cut.flying() == 0 || memory.seen != (cut.look.reserved, cut.arrived);
    memory.seen = (cut.look.reserved, cut.arrived);
    memory.stuck = if is_moving || cut.look.waiting > 0 { 0 } else { memory.stuck + 1 };
    if complaint.is_none() && memory.stuck >= STUCK {
        memory.stuck = 0;
        complaint = lost(core, shelf, &cut).await?.map(counts_again);
        memory.complaints = complaint.as_ref().map_or(0, |_| HEARD);
    }
    if let Some(reason) = complaint.filter(|_| memory.complaints >= HEARD) {
        tracing::error!(goods = %shelf.goods, reason, "the sale is held");
        let held = admin::doubt(core, shelf, reason).await;
        held.map_err(|error| Fault { what: error.to_string() })?;
        memory.complaints = 0;
    }
    Ok(())
}

/// The database's own sums.
async fn sums(core: &Core, shelf: &Shelf) -> Result<Option<String>, Fault> {
    let difference = repair::difference(core, &shelf.goods).await?;
    Ok(difference.filter(Difference::is_wrong).map(|difference| difference.to_string()))
}

/// Whether all orders up to a mark have arrived, however many came after it.
async fn missing(
    core: &Core,
    shelf: &Shelf,
    cut: &Cut,
    memory: &mut Memory,
) -> Result<Option<String>, Fault> {
    let look = &cut.look;
    let is_right = look.why_rebuild(&cut.row).is_none() && cut.flying() > 0;
    let mark = match memory.mark.take().filter(|mark| is_right && mark.epoch == look.epoch) {
        Some(mark) => mark,
        None if is_right && memory.checks.is_multiple_of(SUM) => {
            memory.mark = Some(Mark { epoch: look.epoch, nth: look.nth, entry: look.newest });
            return Ok(None);
        }
        None => return Ok(None),
    };
    // Whatever stands behind it in the outbox has been confirmed, and forgotten there.
    if look.oldest.is_some_and(|oldest| oldest <= mark.entry) {
        memory.mark = Some(mark);
        return Ok(None);
    }
    rebuild::barrier(core, shelf, Duration::from_secs(10)).await?;
    let sql = "SELECT count(*) FROM (
                   SELECT order_sn FROM sale_orders WHERE goods = $1 AND epoch = $2
                   UNION SELECT order_sn FROM sale_dead WHERE goods = $1 AND epoch = $2) o
               WHERE substring(order_sn FROM '[0-9]+$')::int8 <= $3";
    let epoch = i32::try_from(mark.epoch).unwrap_or(i32::MAX);
    let rows = core.db.ask(sql, &[&shelf.goods.as_str(), &epoch, &mark.nth]).await?;
    let missing = mark.nth - rows.first().map_or(mark.nth, |row| row.get(0));
    Ok((missing > 0).then(|| format!("{missing} orders were given out and never arrived")))
}

/// Whether orders that do not move are still in the queue: what comes after them tells.
async fn lost(core: &Core, shelf: &Shelf, before: &Cut) -> Result<Option<String>, Fault> {
    rebuild::barrier(core, shelf, Duration::from_secs(10)).await?;
    let Some(now) = Cut::take(core, &core.db, shelf).await? else { return Ok(None) };
    let is_same = now.look.reserved == before.look.reserved && now.arrived == before.arrived;
    let is_lost = now.is_exact && is_same && now.flying() > 0 && now.look.waiting == 0;
    Ok(is_lost.then(|| format!("{} units were given out and never arrived", now.flying())))
}
