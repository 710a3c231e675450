//! The outbox: what Redis has taken, until the broker has confirmed it.
//!
//! Whoever reserved publishes its own entry at once. One whose process has died is published
//! by whoever finds it; twice does no harm, because the writer knows each order's number.

use super::acked::Acked;
use super::core::Core;
use super::db::fault;
use super::letter::{Body, Letter, Orders};
use super::points::{Point, reach};
use super::shelf::Shelf;
use crate::engine::Fault;
use futures_util::stream::{StreamExt as _, iter};
use std::sync::Arc;
use std::time::Duration;

/// Entries that are read at once.
const ENTRIES: usize = 100;

/// One relay has the outbox of a goods for so long.
const LEASE: Duration = Duration::from_secs(5);

type Entry = (String, Vec<(String, String)>);

/// Publishes a letter under the name of its entry. Whoever publishes orders keeps them until
/// PostgreSQL has them.
pub(super) async fn send(core: &Core, shelf: &Shelf, entry: &str, letter: &Arc<Letter>) -> Result<(), Fault> {
    shelf.kept.keep(letter);
    let id = format!("{}:{entry}", shelf.goods);
    let body = letter.encode(&id)?;
    core.broker.publish(shelf.shard, id, body).await?;
    reach(Point::Published);
    Ok(())
}

/// It is confirmed, and leaves the outbox that was loaded in this run. If this fails it is
/// published again, which does no harm.
pub(super) async fn forget(core: &Core, shelf: &Shelf, run: &str, entry: &str, letter: &Letter) {
    let Some((epoch, last)) = letter.last() else { return };
    let forgotten = async {
        let live = core.link.live()?;
        let mut call = core.link.scripts.forget.prepare_invoke();
        call.key(&shelf.keys.meta).key(&shelf.keys.out);
        call.arg(run).arg(entry).arg(epoch).arg(last);
        core.link.run::<String>(&live, &call).await
    };
    if let Err(fault) = forgotten.await {
        tracing::warn!(error = fault.what, entry, "it is published again later");
    }
}

/// Publishes one entry, if it is still there.
pub(super) async fn follow(core: &Core, shelf: &Shelf, entry: &str) -> Result<(), Fault> {
    let mut command = redis::cmd("XRANGE");
    command.arg(&shelf.keys.out).arg(entry).arg(entry);
    let run = core.link.live()?.run.clone();
    let entries: Vec<Entry> = core.link.ask(&command).await?;
    publish(core, shelf, &run, entries).await
}

/// Publishes everything that was taken in this run, until nothing is left. It may be over.
pub(super) async fn drain(core: &Core, shelf: &Shelf, run: &str) -> Result<(), Fault> {
    loop {
        let mut command = redis::cmd("XRANGE");
        command.arg(&shelf.keys.out).arg("-").arg("+").arg("COUNT").arg(ENTRIES);
        let entries: Vec<Entry> = core.link.ask(&command).await?;
        if entries.is_empty() {
            return Ok(());
        }
        publish(core, shelf, run, entries).await?;
    }
}

async fn publish(core: &Core, shelf: &Shelf, run: &str, entries: Vec<Entry>) -> Result<(), Fault> {
    // Each for itself: one that cannot be sent holds no other up.
    let each = iter(entries).map(|(id, fields)| async move {
        let orders = Orders::from_entry(&fields)
            .ok_or_else(|| fault(format!("entry {id} of `{}` is not ours", shelf.keys.out)))?;
        let letter = Arc::new(Letter { goods: shelf.goods.clone(), body: Body::Orders(orders) });
        send(core, shelf, &id, &letter).await?;
        shelf.hear(Acked::by(&letter));
        forget(core, shelf, run, &id, &letter).await;
        Ok(())
    });
    each.buffer_unordered(32).collect::<Vec<_>>().await.into_iter().collect()
}

/// Finds what others have left behind. Ends with its task.
pub(super) async fn sweep(core: Arc<Core>) {
    let mut tick = tokio::time::interval(core.config.grace / 2);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if !core.broker.is_up() {
            continue;
        }
        for shelf in core.shelves() {
            if let Err(fault) = sweep_one(&core, &shelf).await {
                tracing::warn!(error = fault.what, goods = %shelf.goods, "the outbox waits");
            }
        }
    }
}

/// All that was left behind in one outbox.
pub(super) async fn sweep_one(core: &Core, shelf: &Shelf) -> Result<(), Fault> {
    let (mut after, mut swept) = (String::new(), Ok(()));
    loop {
        let live = core.link.live()?;
        let mut call = core.link.scripts.sweep.prepare_invoke();
        call.key(&shelf.keys.meta).key(&shelf.keys.out).key(&shelf.keys.lease);
        call.arg(&live.run).arg(&core.owner).arg(millis(LEASE));
        call.arg(millis(core.config.grace)).arg(ENTRIES).arg(&after);
        let (next, entries): (String, Vec<Entry>) = core.link.run(&live, &call).await?;
        // One that cannot be sent holds those behind it up no more than those beside it.
        swept = swept.and(publish(core, shelf, &live.run, entries).await);
        if next.is_empty() || !core.broker.is_up() {
            return swept;
        }
        after = next;
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
