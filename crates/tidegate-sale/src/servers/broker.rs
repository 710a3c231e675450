//! RabbitMQ: the queues, and publishing with confirms, many in flight.
//!
//! A message counts as sent once the broker has confirmed it and has not returned it. The
//! client hands a returned message out with whichever confirm comes next, which is its own or
//! one before it: from there on nothing counts as sent, and the session ends.

use super::core::Core;
use super::db::fault;
use super::{migrate, names, rebuild};
use crate::engine::Fault;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use futures_util::{FutureExt as _, future::BoxFuture};
use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::AMQPUri;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, ErrorKind, ExchangeKind,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// What a broker that is well never needs.
const BROKER_MAX: Duration = Duration::from_secs(5);

/// A process that hangs keeps a queue to itself for twice this time, unless the address
/// says otherwise (`?heartbeat=`).
const HEARTBEAT_S: u16 = 3;

/// Why goods are counted again once the queues are gone.
pub(super) const LOST_QUEUES: &str =
    "RabbitMQ has lost its queues; what was in them is written from Redis and the processes";

/// One message on its way.
pub(super) struct Parcel {
    shard: u16,
    id: String,
    body: Vec<u8>,
    reply: oneshot::Sender<Result<(), Fault>>,
}

/// Where parcels are handed in.
pub(super) struct Broker {
    uri: AMQPUri,
    parcels: mpsc::Sender<Parcel>,
    is_up: AtomicBool,
    /// The queues were there: if they are missing the broker has lost them.
    has_made_queues: AtomicBool,
}

impl Broker {
    pub(super) fn new(url: &str) -> Result<(Self, mpsc::Receiver<Parcel>), Fault> {
        // Its own error may show the password.
        let uri: Result<AMQPUri, _> = url.parse();
        let mut uri =
            uri.map_err(|_| fault("`amqp` is no address: write amqp://user:password@host:5672/%2f"))?;
        uri.query.heartbeat.get_or_insert(HEARTBEAT_S);
        let (parcels, receiver) = mpsc::channel(1024);
        let (is_up, has_made_queues) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok((Self { uri, parcels, is_up, has_made_queues }, receiver))
    }

    /// `host:port`.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", self.uri.authority.host, self.uri.authority.port)
    }

    /// True if a message would be sent now.
    pub(super) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    /// Ends once it is confirmed. An error says that nobody knows.
    pub(super) async fn publish(&self, shard: u16, id: String, body: Vec<u8>) -> Result<(), Fault> {
        let gone = || fault("RabbitMQ is not there");
        let (reply, answer) = oneshot::channel();
        self.parcels.send(Parcel { shard, id, body, reply }).await.map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// Keeps the queues and the publisher up. Ends with its task.
pub(super) async fn maintain(core: Arc<Core>, mut parcels: mpsc::Receiver<Parcel>) {
    let mut wait = Duration::from_millis(50);
    loop {
        let why = match Session::open(&core).await {
            Ok(session) => {
                tracing::info!("RabbitMQ answers");
                wait = Duration::from_millis(50);
                core.broker.is_up.store(true, Ordering::Relaxed);
                let why = session.serve(&core.broker.is_up, &mut parcels).await;
                core.broker.is_up.store(false, Ordering::Relaxed);
                why
            }
            Err(why) => why,
        };
        tracing::warn!(error = why.what, "RabbitMQ is not there");
        let pause = tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64()));
        tokio::pin!(pause);
        loop {
            // Nobody waits for a broker that is not there: the outbox keeps it.
            tokio::select! {
                () = &mut pause => break,
                parcel = parcels.recv() => match parcel {
                    Some(parcel) => drop(parcel.reply.send(Err(fault("RabbitMQ is not there")))),
                    None => return,
                },
            }
        }
        wait = (wait * 2).min(Duration::from_secs(1));
    }
}

type Confirmed = (Parcel, Result<Confirmation, String>);

struct Session {
    connection: Held,
    publisher: Channel,
    exchange: String,
    confirms: FuturesUnordered<BoxFuture<'static, Confirmed>>,
}

/// A connection that is closed when it is dropped. The client leaves one open that was in the
/// middle of something, and its consumers would keep their queues to themselves for as long as
/// the process lasts.
pub(super) struct Held(Option<Connection>);

impl std::ops::Deref for Held {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let (Some(connection), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                // One that is broken is closed already.
                let _ = tokio::time::timeout(BROKER_MAX, connection.close(200, "done".into())).await;
            });
        }
    }
}

/// A new connection, with exchanges and queues.
pub(super) async fn connect(core: &Core) -> Result<Held, Fault> {
    let (uri, prefix, shards) = (core.broker.uri.clone(), core.config.prefix.clone(), core.shards);
    let had_queues = has_made_queues(core).await?;
    let connection = apart(async move {
        let options = ConnectionProperties::default().with_connection_name("tidegate-sale".into());
        Ok(Held(Some(Connection::connect_uri(uri, options).await?)))
    })
    .await?;
    let (connection, has_queues) = apart(async move {
        let has_queues = has_queues(&connection, &prefix, shards).await?;
        Ok((connection, has_queues))
    })
    .await?;
    if had_queues && !has_queues {
        // Before they are made again: afterwards nobody could tell.
        rebuild::doubt_all(core, LOST_QUEUES).await?;
        tracing::error!("{LOST_QUEUES}");
        core.doubted.notify_one();
    }
    let prefix = core.config.prefix.clone();
    let connection = apart(async move {
        declare(&connection, &prefix, shards).await?;
        Ok(connection)
    })
    .await?;
    if !had_queues {
        migrate::setting(&core.db, MADE_QUEUES, "yes").await?;
    }
    core.broker.has_made_queues.store(true, Ordering::Relaxed);
    Ok(connection)
}

/// The setting that says that there are queues.
const MADE_QUEUES: &str = "queues";

/// Whether some process has made all queues before.
async fn has_made_queues(core: &Core) -> Result<bool, Fault> {
    if core.broker.has_made_queues.load(Ordering::Relaxed) {
        return Ok(true);
    }
    let rows = core.db.ask("SELECT FROM sale_settings WHERE name = $1", &[&MADE_QUEUES]).await?;
    Ok(!rows.is_empty())
}

/// In a task of its own, that goes on if this one is given up: half a connection cannot be
/// closed.
async fn apart<T: Send + 'static>(
    work: impl Future<Output = lapin::Result<T>> + Send + 'static,
) -> Result<T, Fault> {
    let done = tokio::spawn(tokio::time::timeout(BROKER_MAX, work));
    match done.await.map_err(|error| fault(error.to_string()))? {
        Ok(done) => done.map_err(|error| told(&error)),
        Err(_) => Err(fault(format!("no answer within {BROKER_MAX:?}"))),
    }
}

/// Whether all of them are there.
async fn has_queues(connection: &Connection, prefix: &str, shards: u16) -> lapin::Result<bool> {
    let channel = connection.create_channel().await?;
    for shard in 0..shards {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = names::queue(prefix, shard);
        match channel.queue_declare(queue.as_str().into(), options, FieldTable::default()).await {
            Ok(_) => {}
            Err(error) if is_not_found(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    channel.close(200, "done".into()).await?;
    Ok(true)
}

fn is_not_found(error: &lapin::Error) -> bool {
    const NOT_FOUND: u16 = 404;
    matches!(error.kind(), ErrorKind::ProtocolError(error) if error.get_id() == NOT_FOUND)
}

impl Session {
    async fn open(core: &Arc<Core>) -> Result<Self, Fault> {
        let connection = connect(core).await?;
        let opened = async {
            let publisher = connection.create_channel().await?;
            publisher.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok(publisher)
        };
        let publisher = match tokio::time::timeout(BROKER_MAX, opened).await {
            Ok(opened) => opened.map_err(|error: lapin::Error| told(&error))?,
            Err(_) => return Err(fault(format!("no answer within {BROKER_MAX:?}"))),
        };
        let exchange = names::exchange(&core.config.prefix);
        Ok(Self { connection, publisher, exchange, confirms: FuturesUnordered::new() })
    }

    /// Until something breaks; says what.
    async fn serve(mut self, is_up: &AtomicBool, parcels: &mut mpsc::Receiver<Parcel>) -> Fault {
        let mut look = tokio::time::interval(Duration::from_millis(100));
        loop {
            tokio::select! {
                parcel = parcels.recv() => match parcel {
                    Some(parcel) => if let Err(why) = self.send(parcel).await { return why },
                    None => return fault("the sale has ended"),
                },
                Some(first) = self.confirms.next(), if !self.confirms.is_empty() => {
                    if let Err(why) = self.judge(first) { return why }
                }
                _ = look.tick() => {
                    let status = self.connection.status();
                    if !status.connected() {
                        return fault("the connection broke");
                    }
                    is_up.store(!status.blocked(), Ordering::Relaxed);
                }
            }
        }
    }

    async fn send(&mut self, parcel: Parcel) -> Result<(), Fault> {
        if self.connection.status().blocked() {
            // The outbox keeps it. Whoever asked may have gone away.
            let _ = parcel.reply.send(Err(fault("RabbitMQ is short of memory or disk")));
            return Ok(());
        }
        let properties = BasicProperties::default()
            .with_delivery_mode(2)
            .with_content_type("application/cloudevents+json".into())
            .with_message_id(parcel.id.as_str().into());
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let (exchange, key) = (self.exchange.as_str().into(), parcel.shard.to_string().into());
        let sent = self.publisher.basic_publish(exchange, key, options, &parcel.body, properties);
        let confirm = match tokio::time::timeout(BROKER_MAX, sent).await {
            Ok(Ok(confirm)) => confirm,
            Ok(Err(error)) => return Err(told(&error)),
            Err(_) => return Err(fault("it takes no messages")),
        };
        self.confirms.push(Box::pin(async move {
            let confirmed = match tokio::time::timeout(BROKER_MAX, confirm).await {
                Ok(confirmed) => confirmed.map_err(|error| error.to_string()),
                Err(_) => Err("no confirm in time".to_owned()),
            };
            (parcel, confirmed)
        }));
        Ok(())
    }

    /// All that are confirmed by now, because a message that came back is told with any one
    /// of those that were confirmed no later than itself. Without the runtime's budget, which
    /// would leave some of them for later.
    fn judge(&mut self, first: Confirmed) -> Result<(), Fault> {
        let mut all = vec![first];
        while let Some(Some(next)) = tokio::task::unconstrained(self.confirms.next()).now_or_never() {
            all.push(next);
        }
        let has_returned = all.iter().any(|(_, confirmed)| {
            matches!(confirmed, Ok(Confirmation::Ack(Some(_)) | Confirmation::Nack(Some(_))))
        });
        let mut why = has_returned.then(|| fault("a queue is missing"));
        for (parcel, confirmed) in all {
            let answer = match confirmed {
                _ if has_returned => Err(fault("a message came back, this one or another")),
                Ok(Confirmation::Ack(_)) => Ok(()),
                Ok(_) => Err(fault("the broker did not take it")),
                Err(error) => {
                    why = Some(fault(error.as_str()));
                    Err(fault(error))
                }
            };
            // Whoever asked may have gone away.
            let _ = parcel.reply.send(answer);
        }
        why.map_or(Ok(()), Err)
    }
}

pub(super) fn told(error: &lapin::Error) -> Fault {
    fault(format!("RabbitMQ: {error}"))
}

/// Exchanges and queues, safe to repeat. Quorum queues, one active consumer each; what cannot
/// be read goes to a queue of its own, and is not lost on the way there.
async fn declare(connection: &Connection, prefix: &str, shards: u16) -> lapin::Result<()> {
    let channel = connection.create_channel().await?;
    let text = |text: &str| AMQPValue::LongString(text.into());
    let dead = names::dead(prefix);
    for (name, kind) in
        [(names::exchange(prefix), ExchangeKind::Direct), (dead.clone(), ExchangeKind::Fanout)]
    {
        let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        channel.exchange_declare(name.as_str().into(), kind, options, FieldTable::default()).await?;
    }
    let mut quorum = FieldTable::default();
    quorum.insert("x-queue-type".into(), text("quorum"));
    let mut orders = quorum.clone();
    orders.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
    orders.insert("x-dead-letter-exchange".into(), text(&dead));
    orders.insert("x-dead-letter-strategy".into(), text("at-least-once"));
    orders.insert("x-overflow".into(), text("reject-publish"));
    // From RabbitMQ 4 on, 20 broken connections would put an order aside.
    orders.insert("x-delivery-limit".into(), AMQPValue::LongInt(1_000_000));
    let queues = (0..shards).map(|shard| {
        (names::queue(prefix, shard), names::exchange(prefix), shard.to_string(), orders.clone())
    });
    for (queue, exchange, key, arguments) in queues.chain([(dead.clone(), dead, String::new(), quorum)]) {
        let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        let declared = channel.queue_declare(queue.as_str().into(), options, arguments).await?;
        if exchange == queue && declared.message_count() > 0 {
            let messages = declared.message_count();
            tracing::error!(
                queue,
                messages,
                "messages that could not be read are waiting for somebody to look"
            );
        }
        let options = QueueBindOptions::default();
        let (queue, exchange) = (queue.as_str().into(), exchange.as_str().into());
        channel.queue_bind(queue, exchange, key.as_str().into(), options, FieldTable::default()).await?;
    }
    channel.close(200, "done".into()).await
}
