//! The seeds' flow, on the same servers: three commands in Redis, one publish with its confirm at a
//! time, and eight writers that each take one unit with the version check, insert one order, commit
//! and acknowledge.

use super::buyers::{LOOK, PATIENCE, call_concurrently};
use super::kept::Kept;
use super::rate;
use super::three::{self, Three};
use crate::Fallible;
use crate::rounds::Measured;
use futures_util::StreamExt as _;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
    QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

pub const WRITERS: usize = 8;
/// Messages that a writer has at hand.
const AHEAD: u16 = 32;

/// Errors that cross tasks.
type Sendable<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS seckill_goods
        (id text PRIMARY KEY, stock bigint NOT NULL, version bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS seckill_orders
        (order_sn text PRIMARY KEY, goods_id text NOT NULL, user_id text NOT NULL, quantity bigint NOT NULL)";

#[derive(Serialize, Deserialize)]
struct Order {
    order_sn: String,
    goods_id: String,
    user_id: String,
    quantity: i64,
}

/// Where the servers are.
pub struct Addresses {
    pub redis: String,
    pub amqp: String,
    pub postgres: String,
}

/// So many orders by so many callers, until the last is in the database; orders a second.
pub async fn run(addresses: &Addresses, goods: String, orders: usize, callers: usize) -> Fallible<Measured> {
    let redis = three::connect(&addresses.redis).await?;
    let commands = Three::new(goods);
    let paths = commands.load(&mut redis.clone(), orders).await?;
    let client = connect(&addresses.postgres).await?;
    client.batch_execute(TABLES).await?;
    let sql = "INSERT INTO seckill_goods VALUES ($1, $2, 0)";
    client.execute(sql, &[&commands.goods(), &i64::try_from(orders)?]).await?;
    let connection = Connection::connect(&addresses.amqp, ConnectionProperties::default()).await?;
    // One of its own: the last acknowledgement of a run may not reach the broker.
    let queue = format!("seeds.{}", commands.goods());
    let publisher = Publisher::open(&connection, queue.clone()).await?;
    let mut writers = writers(&connection, &queue, &addresses.postgres).await?;

    let begun = Instant::now();
    let buy = {
        let commands = commands.clone();
        move |(nth, path): (usize, String)| {
            let (commands, mut redis, publisher) = (commands.clone(), redis.clone(), publisher.clone());
            async move {
                let taken = commands.take(&mut redis, &path).await.map_err(|error| error.to_string())?;
                let order_sn = taken.ok_or("nothing is left")?;
                let (goods_id, user_id) = (commands.goods().to_owned(), format!("user-{nth}"));
                let order = Order { order_sn, goods_id, user_id, quantity: 1 };
                publisher.publish(&order).await.map_err(|error| error.to_string())?;
                Ok(order.order_sn)
            }
        }
    };
    let numbers = call_concurrently(paths.into_iter().enumerate().collect(), callers, buy).await?;
    let wanted = i64::try_from(orders)?;
    let written = async {
        let sql = "SELECT count(*) FROM seckill_orders WHERE goods_id = $1";
        let count = client.prepare(sql).await?;
        while client.query_one(&count, &[&commands.goods()]).await?.get::<_, i64>(0) < wanted {
            tokio::time::sleep(LOOK).await;
        }
        Ok::<_, Box<dyn std::error::Error>>(())
    };
    tokio::select! {
        written = tokio::time::timeout(PATIENCE, written) => written.unwrap_or(Ok(()))?,
        Some(ended) = writers.join_next() => return Err(format!("a writer ended: {ended:?}").into()),
    }
    let value = rate(orders, begun);

    writers.shutdown().await;
    drop(connection);
    let sql = "SELECT stock FROM seckill_goods WHERE id = $1";
    let stock: i64 = client.query_one(sql, &[&commands.goods()]).await?.get(0);
    let sql = "SELECT order_sn FROM seckill_orders WHERE goods_id = $1";
    let rows = client.query(sql, &[&commands.goods()]).await?;
    let kept = Kept { orders: rows.iter().map(|row| row.get(0)).collect(), taken: wanted - stock };
    kept.measured_base(orders, &numbers, value)
}

pub async fn connect(url: &str) -> Fallible<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The one channel. Whoever publishes has it until the confirm; the others wait.
#[derive(Clone)]
struct Publisher {
    channel: Arc<Mutex<Channel>>,
    queue: Arc<str>,
}

impl Publisher {
    async fn open(connection: &Connection, queue: String) -> lapin::Result<Self> {
        let channel = connection.create_channel().await?;
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(queue.as_str().into(), options, FieldTable::default()).await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Self { channel: Arc::new(Mutex::new(channel)), queue: queue.into() })
    }

    async fn publish(&self, order: &Order) -> Sendable<()> {
        let body = serde_json::to_vec(order)?;
        let persistent = BasicProperties::default().with_delivery_mode(2);
        let (queue, options) = (self.queue.as_ref().into(), BasicPublishOptions::default());
        let channel = self.channel.lock().await;
        match channel.basic_publish("".into(), queue, options, &body, persistent).await?.await? {
            Confirmation::Ack(_) => Ok(()),
            other => Err(format!("the broker did not take it: {other:?}").into()),
        }
    }
}

/// Each with a channel and a connection to the database of its own.
async fn writers(connection: &Connection, queue: &str, postgres: &str) -> Fallible<JoinSet<Sendable<()>>> {
    let mut writers = JoinSet::new();
    for nth in 0..WRITERS {
        let channel = connection.create_channel().await?;
        channel.basic_qos(AHEAD, BasicQosOptions::default()).await?;
        let (tag, options) = (format!("writer-{nth}"), BasicConsumeOptions::default());
        let consumer =
            channel.basic_consume(queue.into(), tag.as_str().into(), options, FieldTable::default()).await?;
        let client = connect(postgres).await?;
        writers.spawn(async move { write(consumer, client).await });
    }
    Ok(writers)
}

async fn write(mut consumer: Consumer, mut client: Client) -> Sendable<()> {
    let look = client.prepare("SELECT stock, version FROM seckill_goods WHERE id = $1").await?;
    let take = "UPDATE seckill_goods SET stock = stock - $2, version = version + 1
                WHERE id = $1 AND stock >= $2 AND version = $3";
    let take = client.prepare(take).await?;
    let insert = client.prepare("INSERT INTO seckill_orders VALUES ($1, $2, $3, $4)").await?;
    while let Some(delivery) = consumer.next().await {
        let delivery = delivery?;
        let order: Order = serde_json::from_slice(&delivery.data)?;
        let tx = client.transaction().await?;
        loop {
            let row = tx.query_one(&look, &[&order.goods_id]).await?;
            let (stock, version): (i64, i64) = (row.get(0), row.get(1));
            if stock < order.quantity {
                return Err(format!("no stock is left for {}", order.order_sn).into());
            }
            if tx.execute(&take, &[&order.goods_id, &order.quantity, &version]).await? == 1 {
                break;
            }
            // Another was first: with the version that it left.
        }
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&order.order_sn, &order.goods_id, &order.user_id, &order.quantity];
        tx.execute(&insert, &params).await?;
        tx.commit().await?;
        delivery.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}
