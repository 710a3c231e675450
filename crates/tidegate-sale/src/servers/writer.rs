//! Takes what the broker delivers, writes it in batches, and acknowledges what is committed.
//!
//! On a connection of its own: a broker that is short of memory or disk reads nothing any more
//! from a connection that publishes, and without its acknowledgements no queue grows shorter.

use super::broker::{self, told};
use super::core::Core;
use super::db::fault;
use super::letter::{Body, Letter};
use super::points::{Point, reach};
use super::write::{Arrival, write};
use super::{names, orders};
use crate::engine::Fault;
use futures_util::{FutureExt as _, StreamExt as _};
use lapin::message::Delivery;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Messages that are here and not acknowledged.
const AHEAD: u16 = 1000;

/// Each queue has one writer at a time: one that cannot write for so long leaves it to another.
const PATIENCE: Duration = Duration::from_secs(10);

/// Keeps writers at work. Ends with its task.
pub(super) async fn maintain(core: Arc<Core>) {
    let mut wait = Duration::from_millis(50);
    loop {
        let begun = tokio::time::Instant::now();
        let Err(why) = consume_all(&core).await;
        tracing::warn!(error = why.what, "this process writes no orders now");
        if begun.elapsed() > PATIENCE {
            wait = Duration::from_millis(50);
        }
        tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64())).await;
        wait = (wait * 2).min(Duration::from_secs(1));
    }
}

/// Until something breaks; says what.
async fn consume_all(core: &Arc<Core>) -> Result<Infallible, Fault> {
    // Whoever has no database leaves the queues to others.
    core.db.ask("SELECT 1", &[]).await?;
    let connection = broker::connect(core).await?;
    let mut writers = JoinSet::new();
    for shard in 0..core.shards {
        let channel = connection.create_channel().await.map_err(|error| told(&error))?;
        let core = Arc::clone(core);
        writers.spawn(async move { run(&core, &channel, shard).await });
    }
    let mut look = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            Some(ended) = writers.join_next() => {
                ended.map_err(|error| fault(error.to_string()))??;
                return Err(fault("the broker ended the consumer"));
            }
            _ = look.tick() => if !connection.status().connected() {
                return Err(fault("the connection broke"));
            },
        }
    }
}

async fn run(core: &Core, channel: &Channel, shard: u16) -> Result<(), Fault> {
    let told = |error: lapin::Error| told(&error);
    channel.basic_qos(AHEAD, BasicQosOptions::default()).await.map_err(told)?;
    let queue = names::queue(&core.config.prefix, shard);
    let tag = format!("{}-{shard}", core.owner);
    let options = BasicConsumeOptions::default();
    let consumer =
        channel.basic_consume(queue.as_str().into(), tag.as_str().into(), options, FieldTable::default());
    let mut consumer = consumer.await.map_err(told)?;
    while let Some(batch) = gather(&mut consumer, core.config.batch_max).await.map_err(told)? {
        let last = batch.last;
        let rejected = keep(core, &batch).await?;
        reach(Point::Committed);
        for tag in &rejected {
            channel.basic_reject(*tag, BasicRejectOptions { requeue: false }).await.map_err(told)?;
        }
        // Those before it that were rejected are settled already.
        let acked = (batch.first..=last).rev().find(|tag| !rejected.contains(tag));
        if let Some(tag) = acked {
            channel.basic_ack(tag, BasicAckOptions { multiple: true }).await.map_err(told)?;
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
    barriers: Vec<String>,
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
            Ok(Letter { body: Body::Barrier { barrier }, .. }) => self.barriers.push(barrier),
            Ok(letter) => self.arrivals.extend(Arrival::all(&letter, tag)),
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

/// Those that nobody waits for any more go after an hour.
const BARRIERS: &str = "
    WITH gone AS (DELETE FROM sale_barriers WHERE at < $2::int8 - 3600000)
    INSERT INTO sale_barriers SELECT unnest($1::text[]), $2::int8 ON CONFLICT (token) DO NOTHING";

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

/// Ends once all of it is in the database. What even its dead letters cannot take is rejected,
/// and waits in the broker's.
async fn keep(core: &Core, batch: &Batch) -> Result<BTreeSet<u64>, Fault> {
    let begun = tokio::time::Instant::now();
    let mut wait = Duration::from_millis(20);
    loop {
        let done = async {
            let refused = write(core, &batch.arrivals).await?;
            // All that came before a barrier is committed now.
            if !batch.barriers.is_empty() {
                core.db.ask(BARRIERS, &[&batch.barriers, &orders::now()]).await?;
            }
            Ok::<_, super::db::DbError>(refused)
        };
        match done.await {
            Ok(refused) => return Ok(&batch.unread | &refused),
            Err(error) if begun.elapsed() > PATIENCE => return Err(error.into()),
            Err(error) => tracing::warn!(%error, "orders wait for the database"),
        }
        tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64())).await;
        wait = (wait * 2).min(Duration::from_secs(1));
    }
}
