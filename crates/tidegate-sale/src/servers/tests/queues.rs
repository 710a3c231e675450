//! The outbox, the broker's queues and those who write.

use super::odd::channel;
use super::rig::{
    PATIENCE, Servers, at_rest, buy, buyer, check_books, engine, forget, insist, meanwhile, on_sale, phone,
    shared, until,
};
use crate::engine::Engine as _;
use crate::goods::GoodsId;
use crate::order::OrderState;
use crate::sale::Sale;
use crate::servers::letter::{Body, Letter, hex};
use crate::servers::{ServersEngine, names, rebuild, relay};
use lapin::types::FieldTable;
use std::collections::BTreeSet;
use std::time::Duration;
use testkit::servers::{FaultProxy, RedisServer};

async fn publish(engine: &ServersEngine, shard: u16, token: &str) -> bool {
    let letter = Letter { goods: phone(), body: Body::Barrier { barrier: token.to_owned() } };
    let body = letter.encode(token).unwrap();
    engine.core.broker.publish(shard, token.to_owned(), body).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_told_as_sent_arrives_while_queues_come_and_go() {
    let config = shared().config();
    let engine = engine(&config).await;
    let channel = channel(shared()).await;
    let mut told = BTreeSet::new();
    for round in 0..20 {
        let sure = format!("{round}");
        until("the queue is there", async || publish(&engine, 1, &sure).await).await;
        told.insert(sure);
        let (queue, exchange) = (names::queue(&config.prefix, 1), names::exchange(&config.prefix));
        let (queue, exchange) = (queue.as_str().into(), exchange.as_str().into());
        channel.queue_unbind(queue, exchange, "1".into(), FieldTable::default()).await.unwrap();
        // Each of them several times: two relays may have found the same entry.
        let sent = (0..200).map(|nth| {
            let (engine, token) = (engine.clone(), format!("{round}-{}", nth / 4));
            tokio::spawn(async move { publish(&engine, nth / 4 % 2, &token).await.then_some(token) })
        });
        for sent in sent.collect::<Vec<_>>() {
            told.extend(sent.await.unwrap());
        }
    }
    let mut missing = Vec::new();
    let arrived = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let text = shared().postgres.sql_in(&config.postgres, "SELECT token FROM sale_barriers");
            let found: BTreeSet<&str> = text.lines().map(str::trim).collect();
            missing = told.iter().filter(|token| !found.contains(token.as_str())).cloned().collect();
            if missing.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(arrived.await.is_ok(), "of {} that were told, these never came: {missing:?}", told.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn barriers_at_the_same_time_all_come_through() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let barriers = (0..20).map(|_| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let shelf = engine.core.shelf(&phone()).unwrap();
            rebuild::barrier(&engine.core, &shelf, Duration::from_secs(20)).await
        })
    });
    for barrier in barriers.collect::<Vec<_>>() {
        barrier.await.unwrap().unwrap();
    }
    let left = shared().postgres.sql_in(&config.postgres, "SELECT count(*) FROM sale_barriers");
    assert_eq!(left.trim(), "0", "nothing stays behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_was_left_behind_is_swept_at_once_even_by_a_full_redis() {
    let redis = RedisServer::start();
    let mut config = shared().config();
    config.redis = redis.url();
    // Nobody sweeps by himself.
    config.grace = Duration::from_secs(3600);
    let engine = engine(&config).await;
    on_sale(&engine, 1000, 5).await;
    let shelf = engine.core.shelf(&phone()).unwrap();
    let soon = (crate::time::now_ms() + 7_200_000).to_string();
    let now = crate::time::now_ms().to_string();
    let add = |nth: u64, at: &str| {
        let order = format!("{nth}:1:{}:user-{nth}:", hex(&buyer(&engine, "ann").path));
        redis.cmd(&["XADD", &shelf.keys.out, "*", "e", "1", "t", at, "o", &order]).accepted();
    };
    // The last of them are of a clock that was put back since.
    (1..=250).for_each(|nth| add(nth, if nth > 240 { &soon } else { "1" }));
    add(251, &now);
    redis.cmd(&["CONFIG", "SET", "maxmemory", "1"]).accepted();
    // On a busy machine the connection may be late.
    until("Redis is there", async || relay::sweep_one(&engine.core, &shelf).await.is_ok()).await;
    assert_eq!(redis.cmd(&["XLEN", &shelf.keys.out]).int(), 1, "but for what is just being sent");
    let live = engine.core.link.live().unwrap();
    rebuild::step(&engine.core, &shelf, &live, &["fence", &live.run, "1"], None).await.unwrap();
    // It is fenced, so it is about to be loaded again, and for that all of it is sent.
    let rows = "SELECT count(*) FROM sale_orders";
    until("all are written", async || shared().postgres.sql_in(&config.postgres, rows).trim() == "251").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_without_its_database_leaves_the_queues_to_another() {
    let config = shared().config();
    let proxy = FaultProxy::start(&shared().postgres.addr());
    let mut cut_off = config.clone();
    cut_off.postgres = config.postgres.replace(&shared().postgres.addr(), &proxy.addr());
    let first = engine(&cut_off).await;
    on_sale(&first, 10, 5).await;
    // It has the queues, because it came first.
    let sn = buy(&first, "ann").await.unwrap();
    first.changed(&sn, OrderState::Processing, PATIENCE).await.unwrap();
    let second = engine(&config).await;
    until("it knows the sale", async || second.known(&phone()).is_some_and(|known| known.left.is_some()))
        .await;
    proxy.stall();
    let sn = insist(&second, "bob").await.unwrap();
    let order = second.changed(&sn, OrderState::Processing, PATIENCE).await.unwrap().unwrap();
    assert_eq!(order.state, OrderState::Placed, "written by the second");
    until("it says so", async || first.ready().is_err_and(|why| why.contains("PostgreSQL"))).await;
    proxy.pass();
    until("it is ready", async || first.ready().is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_short_of_memory_still_hands_out_what_it_has() {
    let servers = tokio::task::spawn_blocking(Servers::start).await.unwrap();
    let config = servers.config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let mut answered = vec![buy(&engine, "ann").await.unwrap()];
    at_rest(&engine).await;
    let ctl = |args: &[&str]| tokio::task::block_in_place(|| servers.rabbit.ctl(args));
    // Written only after the alarm.
    let url = config.postgres.clone();
    let lock = "BEGIN; SELECT FROM sale_goods FOR UPDATE; SELECT pg_sleep(15); COMMIT";
    let postgres = std::sync::Arc::new(servers.postgres);
    let locked = tokio::task::spawn_blocking({
        let postgres = postgres.clone();
        move || drop(postgres.sql_in(&url, lock))
    });
    let sleeps =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(15)%' AND wait_event = 'PgSleep'";
    until("it is locked", async || postgres.sql_in(&config.postgres, sleeps).trim() == "1").await;
    answered.push(buy(&engine, "bob").await.unwrap());
    ctl(&["set_vm_memory_high_watermark", "0.0000001"]);
    assert!(buy(&engine, "cid").await.is_err(), "it is not confirmed");
    let counts = || ctl(&["-q", "list_queues", "name", "messages"]);
    let name = names::queue(&config.prefix, engine.core.shelf(&phone()).unwrap().shard);
    let is_empty = || counts().lines().any(|line| line.split_whitespace().eq([name.as_str(), "0"]));
    // What it tells of its queues is some seconds old.
    until("the queue has something", async || !is_empty()).await;
    locked.await.unwrap();
    until("the queue is empty", async || is_empty()).await;
    ctl(&["set_vm_memory_high_watermark", "0.6"]);
    let books = at_rest(&engine).await;
    assert_eq!((books.placed, books.left), (3, 7), "{books:?}");
    let servers = Servers { postgres: std::sync::Arc::into_inner(postgres).unwrap(), ..servers };
    check_books(&servers, &config, &books, &answered).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_forgets_everything_is_loaded_a_few_sales_at_a_time() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let goods: Vec<GoodsId> = (0..12).map(|nth| format!("goods-{nth}").parse().unwrap()).collect();
    for goods in &goods {
        crate::suite::open(&*engine, Sale::new(goods.clone(), 10)).await;
    }
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let count = || shared().postgres.sql_in(&config.postgres, locks).trim().parse::<usize>().unwrap();
    // No barrier comes through for as long.
    let locked = meanwhile(&config, "BEGIN; LOCK TABLE sale_barriers; SELECT pg_sleep(4); COMMIT");
    let is_locked = "SELECT count(*) FROM pg_locks WHERE relation = 'sale_barriers'::regclass AND granted";
    until("it is locked", async || shared().postgres.sql_in(&config.postgres, is_locked).trim() == "1").await;
    let forgotten = forget(&engine, shared());
    let sampled = async {
        let mut most = 0;
        while !locked.is_finished() {
            most = most.max(count());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        most
    };
    let ((), most) = tokio::join!(forgotten, sampled);
    assert!((1..=crate::servers::core::LOADS + 1).contains(&most), "{most} at once");
    until("all are loaded", async || {
        goods
            .iter()
            .all(|goods| engine.known(goods).is_some_and(|known| known.epoch == 2 && known.left == Some(10)))
    })
    .await;
}

/// A consumer that stays would keep its queue to itself, and write nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_has_ended_leaves_no_connection_behind() {
    let servers = tokio::task::spawn_blocking(Servers::start).await.unwrap();
    let config = servers.config();
    // Wherever in its beginning it is when it ends.
    for nth in 0..40_u64 {
        let engine = ServersEngine::open(config.clone()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(nth * 4)).await;
        if nth % 2 == 0 {
            engine.stop().await;
        }
        drop(engine);
    }
    tokio::task::spawn_blocking(move || {
        let left = || servers.rabbit.ctl(&["list_connections", "pid"]);
        testkit::servers::wait_until("no connection is left", PATIENCE, || left().trim().is_empty());
    })
    .await
    .unwrap();
}
