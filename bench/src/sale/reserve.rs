//! The step in Redis alone: path, stock and number in one script, for all who call at the same time,
//! against a command for each of the three.

use super::buyers::{self, call_concurrently};
use super::kept::Kept;
use super::rate;
use super::three::{self, Three};
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Measured, Role, alternate};
use crate::{Fallible, Wanted};
use ::redis::aio::MultiplexedConnection;
use ::redis::cmd;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Instant;
use testkit::servers::{PostgresServer, RedisServer};
use tidegate_sale::{AnswerAfter, ServersConfig};
use tokio::runtime::Runtime;

const NAME: &str = "reserve.vs-three";

const CALLERS: usize = 100;
const ORDERS: usize = CALLERS * 300;

const SHARED: &str = "three commands, one connection for all";
const EACH: &str = "three commands, a connection a caller";

pub fn run(wanted: &Wanted<'_>, runtime: &Runtime) -> Fallible<Option<Case>> {
    if !wanted.case(NAME) {
        return Ok(None);
    }
    // A number is given out only once its write is on the disk. A rewrite of the log would fall into
    // somebody's run.
    let redis = RedisServer::with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--auto-aof-rewrite-percentage",
        "0",
    ]);
    let postgres = PostgresServer::start();
    let ours = |_| runtime.block_on(ours(&redis, &postgres));
    let shared = |_| runtime.block_on(three(&redis, 1));
    let each = |_| runtime.block_on(three(&redis, CALLERS));
    let entrants = vec![
        Entrant::new("tidegate-sale", Role::Ours, ours),
        Entrant::new(SHARED, Role::Peer, shared),
        Entrant::new(EACH, Role::Peer, each),
    ];
    let series = alternate(NAME, entrants, wanted.rounds)?;
    let notes = vec![
        format!("{CALLERS} callers with their paths in hand, {ORDERS} orders a run; Redis appendfsync=always"),
        "ours: decr_stock, answered after Redis, with the check of the path's signature, the user's quota and \
         the outbox; the broker does not answer, so that nothing is relayed. The engine has one connection for all"
            .to_owned(),
        "base: GET of the path, DECRBY with its check, INCR; multiplexed over one connection as ours is".to_owned(),
    ];
    let base = Base::BestOf(&[SHARED]);
    Ok(Some(Case::new(Plan { name: NAME, unit: "orders/s", better: Better::Higher, base, notes }, &series)?))
}

async fn ours(redis: &RedisServer, postgres: &PostgresServer) -> Fallible<Measured> {
    let mut control = emptied(redis).await?;
    let database = postgres.database();
    let mut config = ServersConfig::new(&redis.url(), &nobody()?, &database);
    config.answer_after = AnswerAfter::Redis;
    let orders_key = format!("{}:{{phone}}:order", config.prefix);
    let service = buyers::builder().servers(config).await?;
    let probe = buyers::on_sale(&service, "first", 1).await?;
    buyers::is_ready(&service, &probe).await?;
    let goods = buyers::on_sale(&service, "phone", ORDERS).await?;
    let tickets = buyers::tickets(&service, &goods, ORDERS).await?;

    let begun = Instant::now();
    let numbers = buyers::buy(&service, &goods, tickets, CALLERS).await?;
    let value = rate(ORDERS, begun);

    let books = service.books(&goods).await?;
    service.stop().await;
    // There they are without the goods' name.
    let orders: Vec<String> = cmd("HKEYS").arg(orders_key).query_async(&mut control).await?;
    let orders = orders.into_iter().map(|number| format!("{goods}-{number}")).collect();
    let kept = Kept { orders, taken: i64::try_from(books.total - books.left)? };
    Ok(kept.measured(ORDERS, &numbers, value))
}

async fn three(redis: &RedisServer, connections: usize) -> Fallible<Measured> {
    let mut control = emptied(redis).await?;
    let commands = Three::new("phone".to_owned());
    let paths = commands.load(&mut control, ORDERS).await?;
    let mut pool = Vec::with_capacity(connections);
    for _ in 0..connections {
        pool.push(three::connect(&redis.url()).await?);
    }
    let (pool, taker): (Arc<[MultiplexedConnection]>, _) = (pool.into(), commands.clone());

    let begun = Instant::now();
    // Dealt like cards, so that a caller's orders are all of the same connection.
    let things = paths.into_iter().enumerate().collect();
    let numbers = call_concurrently(things, CALLERS, move |(nth, path): (usize, String)| {
        let (commands, mut connection) = (taker.clone(), pool[nth % pool.len()].clone());
        async move {
            let taken = commands.take(&mut connection, &path).await.map_err(|error| error.to_string())?;
            taken.ok_or_else(|| "nothing is left".to_owned())
        }
    })
    .await?;
    let value = rate(ORDERS, begun);

    // It keeps no orders: a number is all that there is.
    let taken = i64::try_from(ORDERS)? - commands.left(&mut control).await?;
    Kept { orders: numbers.clone(), taken }.measured_base(ORDERS, &numbers, value)
}

async fn emptied(redis: &RedisServer) -> Fallible<MultiplexedConnection> {
    let mut control = three::connect(&redis.url()).await?;
    cmd("FLUSHALL").exec_async(&mut control).await?;
    Ok(control)
}

/// An address where nobody listens.
fn nobody() -> Fallible<String> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    Ok(format!("amqp://guest:guest@127.0.0.1:{port}/%2f"))
}
