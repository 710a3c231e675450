//! Unpaid orders that end, on servers: from overdue to for sale again, in PostgreSQL and in Redis.

use super::buyers::{self, LOOK, PATIENCE};
use super::kept::Kept;
use super::{rate, seeds};
use crate::report::{Base, Better, Case, Plan};
use crate::rounds::{Entrant, Measured, Role, alternate, progress};
use crate::{Fallible, Wanted};
use std::time::Instant;
use testkit::servers::{PostgresServer, RabbitServer, RedisServer};
use tidegate_sale::{Change, GoodsId, SaleService, ServersConfig};
use tokio::runtime::Runtime;
use tokio_postgres::Client;

const NAME: &str = "expire.real";

const ORDERS: usize = 80_000;
/// What the base gets through in a few seconds.
const FEW: usize = 2_000;

const BASE: &str = "a transaction an order";

pub fn run(wanted: &Wanted<'_>, runtime: &Runtime) -> Fallible<Option<Case>> {
    if !wanted.case(NAME) {
        return Ok(None);
    }
    progress(NAME, "starting", "Redis, RabbitMQ and PostgreSQL");
    let redis = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "everysec"]);
    let settings = ["max_wal_size=4GB", "checkpoint_timeout=30min", "shared_buffers=512MB"];
    let (postgres, rabbit) = (PostgresServer::with(&settings), RabbitServer::start());
    let config = ServersConfig::new(&redis.url(), &rabbit.url(), &postgres.database());
    let ours = |round| runtime.block_on(ours(&config, &format!("ours-{round}")));
    let base = |round| runtime.block_on(base(&config, &format!("base-{round}")));
    let entrants =
        vec![Entrant::new("tidegate-sale", Role::Ours, ours), Entrant::new(BASE, Role::Peer, base)];
    let series = alternate(NAME, entrants, wanted.rounds)?;
    let notes = vec![
        format!(
            "{ORDERS} overdue orders of one goods and one process; the clock stops when Redis has all units back"
        ),
        format!(
            "base: {FEW} orders on one connection, each a transaction that locks the goods, ends the order, gives \
             its unit back to the stock and notes it for Redis, which does not learn of it"
        ),
        "PostgreSQL fsync=on; all on the same machine".to_owned(),
    ];
    let plan = Plan { name: NAME, unit: "orders/s", better: Better::Higher, base: Base::Peer(BASE), notes };
    Ok(Some(Case::new(plan, &series)?))
}

async fn ours(config: &ServersConfig, name: &str) -> Fallible<Measured> {
    let service = buyers::builder().servers(config.clone()).await?;
    let client = seeds::connect(&config.postgres).await?;
    let goods = sold_out(&service, &client, name, ORDERS).await?;
    client.execute("UPDATE sale_orders SET pay_by = 1 WHERE goods = $1", &[&goods.as_str()]).await?;
    let begun = Instant::now();
    let wanted = u64::try_from(ORDERS)?;
    while service.books(&goods).await.is_ok_and(|books| books.left < wanted) && begun.elapsed() < PATIENCE {
        tokio::time::sleep(10 * LOOK).await;
    }
    let value = rate(ORDERS, begun);
    service.stop().await;
    measured(&client, &goods, ORDERS, value).await
}

async fn base(config: &ServersConfig, name: &str) -> Fallible<Measured> {
    let service = buyers::builder().servers(config.clone()).await?;
    let mut client = seeds::connect(&config.postgres).await?;
    let goods = sold_out(&service, &client, name, FEW).await?;
    service.stop().await;
    let begun = Instant::now();
    for nth in 1..=FEW {
        let (number, goods) = (format!("{goods}-1-{nth}"), goods.as_str());
        let tx = client.transaction().await?;
        tx.execute("SELECT FROM sale_goods WHERE goods = $1 FOR UPDATE", &[&goods]).await?;
        tx.execute("UPDATE sale_orders SET state = 4 WHERE order_sn = $1 AND state = 1", &[&number]).await?;
        let sql = "UPDATE sale_goods SET stock = stock + 1, orders = orders - 1, version = version + 1 WHERE goods = $1";
        tx.execute(sql, &[&goods]).await?;
        let sql = "INSERT INTO sale_returns (goods, epoch, buyer, units) VALUES ($1, 1, $2, 1)";
        tx.execute(sql, &[&goods, &number]).await?;
        tx.commit().await?;
    }
    let value = rate(FEW, begun);
    measured(&client, &goods, FEW, value).await
}

/// An open sale of which every unit is an unpaid order.
async fn sold_out(service: &SaleService, client: &Client, name: &str, orders: usize) -> Fallible<GoodsId> {
    let goods = buyers::on_sale(service, name, orders).await?;
    let sql = "INSERT INTO sale_orders (order_sn, goods, buyer, quantity, epoch, path, state, created_at, updated_at,
                                        pay_by)
               SELECT $1 || '-1-' || n, $1, 'user-' || n, 1, 1, decode(md5($1 || n), 'hex'), 1, 1, 1, 9000000000000
               FROM generate_series(1, $2::int8) n";
    client.execute(sql, &[&goods.as_str(), &i64::try_from(orders)?]).await?;
    // The next loading of Redis counts them.
    let sql = "UPDATE sale_goods SET stock = 0, orders = total, is_doubted = true, version = version + 1 WHERE goods = $1";
    client.execute(sql, &[&goods.as_str()]).await?;
    let begun = Instant::now();
    while !service.books(&goods).await.is_ok_and(|books| books.left == 0 && books.is_balanced()) {
        if begun.elapsed() > PATIENCE {
            return Err("the orders are not counted".into());
        }
        tokio::time::sleep(LOOK).await;
    }
    // A sale that was held meanwhile goes on.
    let _ = service.change(&goods, Change::Resume, "bench").await;
    Ok(goods)
}

/// Every order has ended, once, and every unit is back.
async fn measured(client: &Client, goods: &GoodsId, orders: usize, value: f64) -> Fallible<Measured> {
    let sql = "SELECT order_sn FROM sale_orders WHERE goods = $1 AND state = 4";
    let rows = client.query(sql, &[&goods.as_str()]).await?;
    let ended: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let sql = "SELECT stock FROM sale_goods WHERE goods = $1";
    let taken = client.query_one(sql, &[&goods.as_str()]).await?.get(0);
    let numbers: Vec<String> = (1..=orders).map(|nth| format!("{goods}-1-{nth}")).collect();
    Ok(Kept { orders: ended, taken }.measured(orders, &numbers, value))
}
