//! Unpaid orders: as many as a sale takes end in time, and no goods waits for another.

use super::rig::{PATIENCE, at_rest, engine, phone, shared, until};
use crate::engine::Engine as _;
use crate::goods::GoodsId;
use crate::sale::{Change, Sale};
use crate::servers::{ServersConfig, ServersEngine};

/// An open sale of which every unit is an unpaid order that is overdue.
async fn all_overdue(engine: &ServersEngine, config: &ServersConfig, goods: &GoodsId, orders: u64) {
    let sale = Sale { pay_within: Some(3600), ..Sale::new(goods.clone(), orders) };
    engine.create(sale, "test").await.unwrap();
    let sql = |text: &str| shared().postgres.sql_in(&config.postgres, text);
    sql(&format!(
        "INSERT INTO sale_orders (order_sn, goods, buyer, quantity, epoch, path, state, created_at, updated_at, pay_by)
         SELECT '{goods}-1-' || n, '{goods}', 'user-' || n, 1, 1, decode(md5('{goods}' || n), 'hex'), 1, 1, 1,
                9000000000000
         FROM generate_series(1, {orders}) n;
         UPDATE sale_goods SET stock = 0, orders = {orders} WHERE goods = '{goods}'"
    ));
    engine.change(goods, Change::Warm, "test").await.unwrap();
    engine.change(goods, Change::Open, "test").await.unwrap();
    sql(&format!("UPDATE sale_orders SET pay_by = 1 WHERE goods = '{goods}'"));
}

/// One transaction an order ended 480 a second, with any number of processes: less than a
/// sale takes, and 80,000 would need three minutes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_expire_faster_than_they_are_taken() {
    let config = shared().config();
    let engines = [engine(&config).await, engine(&config).await];
    all_overdue(&engines[0], &config, &phone(), 80_000).await;
    until("all are for sale again", async || engines[0].known(&phone()).unwrap().left == Some(80_000)).await;
    let books = at_rest(&engines[0]).await;
    assert_eq!((books.left, books.orders, books.returned), (80_000, 0, 80_000), "{books:?}");
    assert!(books.is_balanced(), "{books:?}");
    let sql = "SELECT count(*), min(reason), max(reason) FROM sale_orders WHERE state = 4";
    let ended = shared().postgres.sql_in(&config.postgres, sql);
    assert_eq!(ended.trim(), "80000|not paid in time|not paid in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_on_one_goods_does_not_hold_up_the_expiry_of_others() {
    let config = shared().config();
    let engine = engine(&config).await;
    let locked: GoodsId = "locked".parse().unwrap();
    let (client, connection) =
        tokio_postgres::connect(&config.postgres, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    all_overdue(&engine, &config, &locked, 1).await;
    until("it is for sale again", async || engine.known(&locked).unwrap().left == Some(1)).await;
    client.batch_execute("BEGIN; SELECT FROM sale_goods WHERE goods = 'locked' FOR UPDATE").await.unwrap();
    // As many as were looked at together, before those of the other goods.
    client
        .batch_execute(
            "INSERT INTO sale_orders (order_sn, goods, buyer, quantity, epoch, path, state, created_at, updated_at, pay_by)
             SELECT 'locked-1-' || n, 'locked', 'user-' || n, 1, 1, decode(md5('locked' || n), 'hex'), 1, 1, 1, 0
             FROM generate_series(2, 500) n;
             UPDATE sale_goods SET total = 500, orders = 499 WHERE goods = 'locked'; COMMIT;
             BEGIN; SELECT FROM sale_goods WHERE goods = 'locked' FOR UPDATE",
        )
        .await
        .unwrap();
    all_overdue(&engine, &config, &phone(), 10).await;
    let begun = tokio::time::Instant::now();
    until("the other is for sale again", async || engine.known(&phone()).unwrap().left == Some(10)).await;
    // Waiting for the lock took five seconds an order.
    assert!(begun.elapsed() < PATIENCE / 4, "{:?}", begun.elapsed());
    client.batch_execute("COMMIT").await.unwrap();
    let sql = "SELECT count(*) FROM sale_orders WHERE state = 1";
    until("all have ended", async || shared().postgres.sql_in(&config.postgres, sql).trim() == "0").await;
}
