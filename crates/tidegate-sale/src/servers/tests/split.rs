//! Processes that use two Redis servers at once: each would load the other's stock away.

use super::rig::{at_rest, buyer, check_books, engine, on_sale, phone, shared, until};
use crate::engine::Engine as _;
use crate::sale::SaleState;
use crate::servers::shelf::Row;
use crate::servers::{refresh, relay, returns};
use testkit::servers::RedisServer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_redis_servers_hold_the_sale_and_are_named_and_no_epoch_passes() {
    let other_redis = tokio::task::block_in_place(RedisServer::start);
    let config = shared().config();
    let one = engine(&config).await;
    on_sale(&one, 10, 5).await;
    let unused = buyer(&one, "ann");
    let mut elsewhere = config.clone();
    elsewhere.redis = other_redis.url();
    let other = engine(&elsewhere).await;
    let held = |state: &SaleState| {
        matches!(state, SaleState::Paused { reason, .. }
            if reason.contains("two Redis servers") && reason.contains(&other_redis.addr()))
    };
    until("both say so", async || {
        [&one, &other].iter().all(|engine| engine.known(&phone()).is_some_and(|known| held(&known.state)))
    })
    .await;
    // Both go on looking, and nobody begins to load or to release.
    let round = || shared().postgres.sql_in(&config.postgres, "SELECT round FROM sale_goods");
    for _ in 0..2 {
        let before = round();
        until("it was tried again", async || round() != before).await;
    }
    assert!(held(&one.known(&phone()).unwrap().state), "{:?}", one.known(&phone()).unwrap().state);
    let loads = shared().postgres.sql_in(&config.postgres, "SELECT count(*) FROM sale_loads");
    assert_eq!(loads.trim(), "1", "only when it was warmed");
    // Once they agree it goes on, and unused paths are still good.
    other.stop().await;
    until("it goes on", async || one.known(&phone()).unwrap().state == SaleState::Open).await;
    let sn = one.reserve(unused).await.unwrap();
    check_books(shared(), &config, &at_rest(&one).await, &[sn]).unwrap();
}

/// A Redis that took over may hold the same epoch, and is another run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_mean_another_run_change_nothing() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let core = &engine.core;
    let shelf = core.shelf(&phone()).unwrap();
    let mut row = Row::find(&core.db, &phone()).await.unwrap().unwrap();
    row.rev += 1;
    // Nobody loads it again meanwhile.
    core.abort();
    let (redis, meta, out) = (&shared().redis, shelf.keys.meta.as_str(), shelf.keys.out.as_str());
    redis.cmd(&["HSET", meta, "run", "another"]).accepted();
    redis.cmd(&["XADD", out, "1-1", "e", "1", "t", "1", "o", &format!("1:1:{:032}:ann:", 7)]).accepted();
    shared().postgres.sql_in(
        &config.postgres,
        "INSERT INTO sale_returns (goods, epoch, buyer, units) VALUES ('phone', 1, 'ann', 1)",
    );
    let everything = || {
        let meta = redis.cmd(&["HGETALL", meta]);
        format!("{meta:?} {:?} {:?}", redis.cmd(&["XLEN", out]), redis.cmd(&["EXISTS", &shelf.keys.lease]))
    };
    let before = everything();
    assert!(!returns::apply_some(core, &shelf).await.unwrap());
    assert_eq!(everything(), before, "give");
    refresh::tell(core, &shelf, &row).await.unwrap();
    assert_eq!(everything(), before, "tell");
    relay::sweep_one(core, &shelf).await.unwrap();
    assert_eq!(everything(), before, "sweep");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outbox_whose_goods_redis_has_forgotten_is_drained_once() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let shelf = engine.core.shelf(&phone()).unwrap();
    let (redis, meta, out) = (&shared().redis, shelf.keys.meta.as_str(), shelf.keys.out.as_str());
    redis.cmd(&["DEL", meta]);
    redis.cmd(&["XADD", out, "1-1", "e", "1", "t", "1", "o", &format!("1:1:{:032}:ann:", 7)]).accepted();
    until("it is loaded again", async || engine.known(&phone()).unwrap().left == Some(9)).await;
}
