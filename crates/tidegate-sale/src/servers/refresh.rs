//! What this process knows: told by others within a moment, asked for regularly in any case,
//! and at once after a new connection.

use super::core::Core;
use super::look::Look;
use super::shelf::{Left, Row, Shelf, Stamp};
use super::{fleet, history, kept, rebuild, times};
use crate::engine::Fault;
use crate::goods::GoodsId;
use crate::sale::SaleState;
use futures_util::{FutureExt as _, StreamExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// After so long without news it is subscribed again.
const SILENCE: Duration = Duration::from_secs(30);

/// Asks again and again. Ends with its task.
pub(super) async fn keep_fresh(core: Arc<Core>) {
    loop {
        let known = all(&core).await;
        core.has_database.store(known.is_ok(), Ordering::Relaxed);
        if let Err(fault) = known {
            tracing::warn!(error = fault.what, "what is known here grows old");
        }
        tokio::select! {
            () = tokio::time::sleep(core.config.refresh) => {}
            () = core.link.connected.notified() => {}
            // Many may doubt at once.
            () = core.doubted.notified() => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

pub(super) async fn all(core: &Arc<Core>) -> Result<(), Fault> {
    let mut before: BTreeMap<GoodsId, Stamp> =
        core.shelves().iter().map(|shelf| (shelf.goods.clone(), shelf.stamp())).collect();
    for row in times::keep(core, Row::all(&core.db).await?).await {
        let shelf = core.learn(&row);
        let before = before.remove(&row.sale.goods).unwrap_or_default();
        check(core, &shelf, &row, before).await;
    }
    for shelf in before.keys().filter_map(|goods| core.shelf(goods)) {
        history::check_gone(core, &shelf).await?;
    }
    Ok(())
}

pub(super) async fn one(core: &Arc<Core>, shelf: &Arc<Shelf>) -> Result<(), Fault> {
    let before = shelf.stamp();
    if let Some(row) = Row::find(&core.db, &shelf.goods).await? {
        shelf.learn(&row);
        check(core, shelf, &row, before).await;
    }
    Ok(())
}

/// Compares Redis with the database, and brings it up to date. `before` is what was known when
/// the database was asked.
async fn check(core: &Arc<Core>, shelf: &Arc<Shelf>, row: &Row, before: Stamp) {
    if row.stamp() < before {
        return went_back(core, shelf, row).await;
    }
    if row.state == SaleState::Draft {
        return;
    }
    kept::answer(core, shelf, row);
    let Ok(look) = Look::take(core, shelf, &[]).await else {
        return shelf.learn_left(None);
    };
    match history::is_older_than(core, &look, row).await {
        Ok(false) => {}
        Ok(true) => return went_back(core, shelf, row).await,
        Err(_) => return shelf.learn_left(None),
    }
    if look.epoch == row.epoch {
        shelf.hear(look.acked(&core.config));
    }
    if look.why_rebuild(row).is_some() {
        shelf.learn_left(None);
        return rebuild::begin(core, shelf);
    }
    shelf.learn_left(Some(Left { epoch: look.epoch, tick: look.tick, units: look.left }));
    if look.rev < row.rev
        && let Err(fault) = tell(core, shelf, row).await
    {
        tracing::warn!(error = fault.what, goods = %shelf.goods, "Redis does not know its state yet");
    }
    // It is loaded, and whoever loaded it has ended before it said so.
    if row.held.is_some() && fleet::split(core, &look.run).await.is_ok_and(|why| why.is_none()) {
        rebuild::release(core, shelf, row.epoch).await;
    }
}

async fn went_back(core: &Arc<Core>, shelf: &Arc<Shelf>, row: &Row) {
    if let Err(fault) = history::went_back(core, shelf, row).await {
        tracing::warn!(error = fault.what, goods = %shelf.goods, "the sale is not fenced yet");
    }
}

/// Redis learns what an operator decided.
pub(super) async fn tell(core: &Core, shelf: &Shelf, row: &Row) -> Result<(), Fault> {
    let live = core.link.live()?;
    let mut call = core.link.scripts.tell.prepare_invoke();
    call.key(&shelf.keys.meta).arg(&live.run).arg(row.epoch).arg(core.news()).arg(shelf.goods.as_str());
    call.arg(row.rev);
    for (field, value) in row.fields() {
        call.arg(field).arg(value);
    }
    let told: String = core.link.run(&live, &call).await?;
    if told != "done" {
        core.doubted.notify_one();
    }
    Ok(())
}

/// Listens to what others say has changed. Ends with its task.
pub(super) async fn listen(core: Arc<Core>) {
    loop {
        if let Ok(mut news) = core.link.news(&core.news()).await {
            // A connection that is gone without a word is as silent as one with no news.
            while let Ok(Some(first)) = tokio::time::timeout(SILENCE, news.next()).await {
                // Whatever was said meanwhile is answered by one look.
                let mut goods = BTreeSet::from([first.get_payload::<String>().unwrap_or_default()]);
                while let Some(Some(next)) = news.next().now_or_never() {
                    goods.insert(next.get_payload().unwrap_or_default());
                }
                hear(&core, goods).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn hear(core: &Arc<Core>, goods: BTreeSet<String>) {
    for goods in goods {
        let shelf = goods.parse().ok().and_then(|goods| core.shelf(&goods));
        match shelf {
            Some(shelf) => {
                if let Err(fault) = one(core, &shelf).await {
                    tracing::warn!(error = fault.what, goods = %shelf.goods, "what is known here grows old");
                }
            }
            // A new one, or none of ours.
            None => core.doubted.notify_one(),
        }
    }
}
