//! Takes what the broker delivers, writes it in batches, and acknowledges what is committed.

use super::broker::told;
use super::core::Core;
use super::db::fault;
use super::letter::{Body, Letter};
use super::names;
use super::points::{Point, reach};
use super::write::{Arrival, write};
use crate::engine::Fault;
use futures_util::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use std::collections::BTreeSet;
use std::time::Duration;

/// Messages that are here and not acknowledged.
const AHEAD: u16 = 1000;

/// Until the channel breaks; says how.
pub(super) async fn consume(core: &Core, channel: &Channel, shard: u16) -> Fault {
    match run(core, channel, shard).await {
        Ok(()) => fault("the broker ended the consumer"),
        Err(error) => told(&error),
    }
}

async fn run(core: &Core, channel: &Channel, shard: u16) -> lapin::Result<()> {
    channel.basic_qos(AHEAD, BasicQosOptions::default()).await?;
    let queue = names::queue(&core.config.prefix, shard);
    let tag = format!("{}-{shard}", core.owner);
    let options = BasicConsumeOptions::default();
    let consumer =
        channel.basic_consume(queue.as_str().into(), tag.as_str().into(), options, FieldTable::default());
    let mut consumer = consumer.await?;
    while let Some(batch) = gather(&mut consumer, core.config.batch_max).await? {
        let last = batch.last;
        let rejected = keep(core, &batch).await;
        reach(Point::Committed);
        for tag in &rejected {
            channel.basic_reject(*tag, BasicRejectOptions { requeue: false }).await?;
        }
        // Those before it that were rejected are settled already.
        let acked = (batch.first..=last).rev().find(|tag| !rejected.contains(tag));
        if let Some(tag) = acked {
            channel.basic_ack(tag, BasicAckOptions { multiple: true }).await?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct Batch {
    /// Delivery tags, which have no gaps.
    first: u64,
    last: u64,
    arrivals: Vec<Arrival>,
    /// Goods and barrier.
    barriers: Vec<(String, String)>,
    /// Tags of what cannot be read.
    unread: BTreeSet<u64>,
}

impl Batch {
    fn take(&mut self, delivery: &Delivery) {
        let tag = delivery.delivery_tag;
        if self.first == 0 {
            self.first = tag;
        }
        self.last = tag;
        match Letter::decode(&delivery.data) {
            Ok(Letter { goods, body: Body::Orders(orders) }) => {
                let (epoch, at) = (orders.epoch, orders.at);
                let arrivals =
                    orders.orders.into_iter().map(|sent| Arrival::new(&goods, epoch, at, sent, tag));
                self.arrivals.extend(arrivals);
            }
            Ok(Letter { goods, body: Body::Barrier { barrier } }) => {
                self.barriers.push((goods.to_string(), barrier));
            }
            Err(why) => {
                tracing::error!(
                    why,
                    bytes = delivery.data.len(),
                    "a message that cannot be read is put aside"
                );
                self.unread.insert(tag);
            }
        }
    }
}

/// One message, and whatever else is here already.
async fn gather(consumer: &mut Consumer, at_most: usize) -> lapin::Result<Option<Batch>> {
    let Some(first) = consumer.next().await else { return Ok(None) };
    let mut batch = Batch::default();
    batch.take(&first?);
    while batch.arrivals.len() < at_most
        && let Some(Some(next)) = consumer.next().now_or_never()
    {
        batch.take(&next?);
    }
    Ok(Some(batch))
}

/// Ends once all of it is in the database, however long that takes. What even its dead
/// letters cannot take is rejected, and waits in the broker's.
async fn keep(core: &Core, batch: &Batch) -> BTreeSet<u64> {
    let mut wait = Duration::from_millis(20);
    loop {
        let done = async {
            let refused = write(&core.db, &batch.arrivals).await?;
            // All that came before a barrier is committed now.
            for (goods, barrier) in &batch.barriers {
                let sql = "UPDATE sale_goods SET barrier = $2 WHERE goods = $1";
                core.db.ask(sql, &[goods, barrier]).await?;
            }
            Ok::<_, super::db::DbError>(refused)
        };
        match done.await {
            Ok(refused) => return &batch.unread | &refused,
            Err(error) => tracing::warn!(%error, "orders wait for the database"),
        }
        tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64())).await;
        wait = (wait * 2).min(Duration::from_secs(1));
    }
}
