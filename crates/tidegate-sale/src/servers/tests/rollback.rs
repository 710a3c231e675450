//! A Redis that comes back with an older state: it would sell units, numbers and paths twice.

use super::rig::{at_rest, buy, buyer, check_books, engine, insist, on_sale, phone, shared, until};
use crate::engine::Engine as _;
use crate::refusal::Refusal;
use crate::sale::SaleState;
use crate::servers::{ServersConfig, ServersEngine};
use std::sync::Arc;
use testkit::servers::RedisServer;

/// A sale of ten, of which Redis remembers that two were sold, while it was five.
async fn rolled_back(redis: &Arc<RedisServer>) -> (ServersConfig, Arc<ServersEngine>, Vec<crate::OrderSn>) {
    let mut config = shared().config();
    config.redis = redis.url();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 1).await;
    let mut answered = Vec::new();
    for nth in 0..5 {
        answered.push(buy(&engine, &format!("user-{nth}")).await.unwrap());
        if nth == 1 {
            at_rest(&engine).await;
            redis.cmd(&["SAVE"]).accepted();
        }
    }
    at_rest(&engine).await;
    engine.stop().await;
    let inner = Arc::clone(redis);
    tokio::task::spawn_blocking(move || inner.restart()).await.unwrap();
    (config, engine, answered)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_noticed_before_it_sells_anything() {
    let redis = Arc::new(RedisServer::start());
    let (config, before, mut answered) = rolled_back(&redis).await;
    let meta = before.core.shelf(&phone()).unwrap().keys.meta.clone();
    assert_eq!(redis.cmd(&["HGET", &meta, "left"]).text(), "8", "it has forgotten three");
    let mut old = buyer(&before, "late");
    old.epoch = 1;
    let engine = engine(&config).await;
    until("it is loaded again", async || engine.known(&phone()).is_some_and(|known| known.left == Some(5)))
        .await;
    assert_eq!(engine.known(&phone()).unwrap().epoch, 2);
    until("it is open again", async || engine.known(&phone()).unwrap().state == SaleState::Open).await;
    assert_eq!(engine.reserve(old).await, Err(Refusal::WrongPath));
    for nth in 5..11 {
        match insist(&engine, &format!("user-{nth}")).await {
            Ok(sn) => answered.push(sn),
            Err(refusal) => assert_eq!(refusal, Refusal::SoldOut),
        }
    }
    assert_eq!(answered.len(), 10);
    let books = at_rest(&engine).await;
    check_books(shared(), &config, &books, &answered).unwrap();
}

/// The broken variant: nobody asks which run it is, and the same numbers are given out again.
/// The books show it, and hold the sale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_fence_numbers_are_given_twice_and_the_books_show_it() {
    let redis = Arc::new(RedisServer::start());
    let (config, before, answered) = rolled_back(&redis).await;
    let meta = before.core.shelf(&phone()).unwrap().keys.meta.clone();
    let field = |name: &str| redis.info("all", name).unwrap();
    let run = format!("{}:{}", field("run_id"), field("master_replid"));
    redis.cmd(&["HSET", &meta, "run", &run]).accepted();
    let forge = format!("UPDATE sale_goods SET redis_run = '{run}'");
    shared().postgres.sql_in(&config.postgres, &forge);
    let engine = engine(&config).await;
    until("it looks well", async || engine.known(&phone()).is_some_and(|known| known.left.is_some())).await;
    // Three more have arrived than this Redis has given out.
    until("it is held", async || {
        matches!(&engine.known(&phone()).unwrap().state, SaleState::Paused { reason, .. } if reason.contains("never gave out"))
    })
    .await;
    let books = engine.books(&phone()).await.unwrap().unwrap();
    assert!(check_books(shared(), &config, &books, &answered).is_err(), "{books:?}");
}
