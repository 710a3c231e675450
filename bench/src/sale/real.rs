//! End to end: from the path in hand to the row in PostgreSQL.

use super::buyers::{self, LOOK, PATIENCE};
use super::kept::Kept;
use super::rate;
use super::seeds::{self, Addresses};
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Measured, Role, alternate, progress};
use crate::{Fallible, Wanted};
use std::time::Instant;
use testkit::servers::{PostgresServer, RabbitServer, RedisServer};
use tidegate_sale::{GoodsId, ServersConfig};
use tokio::runtime::Runtime;

const NAME: &str = "orders.real";

const CALLERS: usize = 512;
const ORDERS: usize = 80_000;
/// What the base gets through in a few seconds.
const FEW: usize = 1_500;

const BASE: &str = "the seeds' flow, one order at a time";

pub fn run(wanted: &Wanted<'_>, runtime: &Runtime) -> Fallible<Option<Case>> {
    if !wanted.case(NAME) {
        return Ok(None);
    }
    progress(NAME, "starting", "Redis, RabbitMQ and PostgreSQL");
    let servers = Servers::start();
    runtime.block_on(servers.prepare())?;
    let ours = |round| runtime.block_on(ours(&servers, &format!("ours-{round}")));
    let base = |round| runtime.block_on(seeds::run(&servers.seeds, format!("seeds-{round}"), FEW, CALLERS));
    let entrants =
        vec![Entrant::new("tidegate-sale", Role::Ours, ours), Entrant::new(BASE, Role::Peer, base)];
    let series = alternate(NAME, entrants, wanted.rounds)?;
    let notes = vec![
        format!(
            "{CALLERS} callers with their paths in hand; the clock stops when the last order is in PostgreSQL"
        ),
        format!("ours {ORDERS} orders a run, each answered after the broker's confirm; the base {FEW}"),
        "Redis appendonly=yes, appendfsync=everysec; PostgreSQL fsync=on; all on the same machine".to_owned(),
        format!(
            "base: GET, DECRBY and INCR on one shared connection; one publish with its confirm at a time, \
             durable queue, persistent messages; {} writers, each SELECT, UPDATE with the version check, \
             INSERT, COMMIT and ack for each order",
            seeds::WRITERS
        ),
    ];
    let plan = Plan { name: NAME, unit: "orders/s", better: Better::Higher, base: Base::Peer(BASE), notes };
    Ok(Some(Case::new(plan, &series)?))
}

struct Servers {
    _redis: RedisServer,
    rabbit: RabbitServer,
    _postgres: PostgresServer,
    config: ServersConfig,
    seeds: Addresses,
}

impl Servers {
    fn start() -> Self {
        let redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
        // Checkpoints of one contender should not fall into another's run.
        let settings = ["max_wal_size=4GB", "checkpoint_timeout=30min", "shared_buffers=512MB"];
        let (postgres, rabbit) = (PostgresServer::with(&settings), RabbitServer::start());
        let config = ServersConfig::new(&redis.url(), &rabbit.url(), &postgres.database());
        let seeds = Addresses { redis: redis.url(), amqp: rabbit.url(), postgres: postgres.database() };
        Self { _redis: redis, rabbit, _postgres: postgres, config, seeds }
    }

    /// Makes the tables and the queues.
    async fn prepare(&self) -> Fallible<()> {
        let service = buyers::builder().servers(self.config.clone()).await?;
        let goods = buyers::on_sale(&service, "first", 1).await?;
        buyers::is_ready(&service, &goods).await?;
        service.stop().await;
        self.rabbit.sync();
        Ok(())
    }
}

async fn ours(servers: &Servers, name: &str) -> Fallible<Measured> {
    let service = buyers::builder().servers(servers.config.clone()).await?;
    let probe = buyers::on_sale(&service, &format!("{name}-first"), 1).await?;
    buyers::is_ready(&service, &probe).await?;
    let goods = buyers::on_sale(&service, name, ORDERS).await?;
    let tickets = buyers::tickets(&service, &goods, ORDERS).await?;
    let client = seeds::connect(&servers.config.postgres).await?;

    let begun = Instant::now();
    let numbers = buyers::buy(&service, &goods, tickets, CALLERS).await?;
    written(&client, &goods, begun).await?;
    let value = rate(ORDERS, begun);

    service.stop().await;
    let sql = "SELECT total - stock FROM sale_goods WHERE goods = $1";
    let taken = client.query_one(sql, &[&goods.as_str()]).await?.get(0);
    // 1 is placed.
    let sql = "SELECT order_sn FROM sale_orders WHERE goods = $1 AND state = 1";
    let rows = client.query(sql, &[&goods.as_str()]).await?;
    let kept = Kept { orders: rows.iter().map(|row| row.get(0)).collect(), taken };
    Ok(kept.measured(ORDERS, &numbers, value))
}

/// Until as many orders are committed as there are buyers. Whatever is missing then is counted.
async fn written(client: &tokio_postgres::Client, goods: &GoodsId, begun: Instant) -> Fallible<()> {
    let orders = client.prepare("SELECT orders FROM sale_goods WHERE goods = $1").await?;
    let wanted = i64::try_from(ORDERS)?;
    while client.query_one(&orders, &[&goods.as_str()]).await?.get::<_, i64>(0) < wanted
        && begun.elapsed() < PATIENCE
    {
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}
