//! A network that loses answers, or says nothing at all.

use super::rig::{PATIENCE, at_rest, buy, buyer, check_books, engine, insist, on_sale, shared, until};
use crate::engine::{Engine as _, Turn, Turned};
use crate::order::OrderState;
use crate::refusal::Refusal;
use crate::servers::ServersConfig;
use std::time::Duration;
use testkit::servers::FaultProxy;

struct Net {
    redis: FaultProxy,
    rabbit: FaultProxy,
    postgres: FaultProxy,
    config: ServersConfig,
}

impl Net {
    fn start() -> Self {
        let servers = shared();
        let mut config = servers.config();
        let redis = FaultProxy::start(&servers.redis.addr());
        let rabbit = FaultProxy::start(&servers.rabbit.addr());
        let postgres = FaultProxy::start(&servers.postgres.addr());
        config.redis = redis.url();
        config.amqp = format!("amqp://guest:guest@{}/%2f", rabbit.addr());
        config.postgres = config.postgres.replace(&servers.postgres.addr(), &postgres.addr());
        Self { redis, rabbit, postgres, config }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_lost_is_told_to_the_repeat() {
    let net = Net::start();
    let engine = engine(&net.config).await;
    on_sale(&engine, 100, 1).await;
    let (mut answered, mut lost) = (Vec::new(), 0);
    for nth in 0..20 {
        net.redis.cut_in_reply(0);
        let reserve = buyer(&engine, &format!("user-{nth}"));
        let mut answer = engine.reserve(reserve.clone()).await;
        while answer.is_err() {
            assert!(matches!(answer, Err(Refusal::Busy)), "{answer:?}");
            lost += 1;
            until("Redis answers", async || engine.core.link.live().is_ok()).await;
            answer = engine.reserve(reserve.clone()).await;
        }
        answered.extend(answer);
    }
    assert!(lost > 0, "some answers were cut off");
    let books = at_rest(&engine).await;
    assert_eq!((books.orders, books.left), (20, 80), "{books:?}");
    check_books(shared(), &net.config, &books, &answered).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_hangs_a_buyer_is_answered_in_time() {
    let net = Net::start();
    let engine = engine(&net.config).await;
    on_sale(&engine, 100, 9).await;
    // What a busy machine may add.
    let slack = Duration::from_secs(2);
    let mut answered = vec![buy(&engine, "ann").await.unwrap()];
    for proxy in [&net.redis, &net.rabbit, &net.postgres] {
        proxy.stall();
        let begun = tokio::time::Instant::now();
        let answer = buy(&engine, "ann").await;
        assert!(begun.elapsed() < net.config.deadline + slack, "{:?}", begun.elapsed());
        assert!(matches!(answer, Ok(_) | Err(Refusal::Busy)), "{answer:?}");
        answered.extend(answer);
        proxy.pass();
        answered.push(insist(&engine, "bob").await.unwrap());
    }
    let books = at_rest(&engine).await;
    check_books(shared(), &net.config, &books, &answered).unwrap();
}

/// Connections to the database that are dead without a word: the pool took them back after each
/// had kept somebody waiting, and gave them to the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_went_silent_is_not_used_again() {
    let net = Net::start();
    let engine = engine(&net.config).await;
    on_sale(&engine, 100, 9).await;
    let mut orders = Vec::new();
    for _ in 0..40 {
        let sn = insist(&engine, &format!("user-{}", orders.len() / 9)).await.unwrap();
        engine.changed(&sn, OrderState::Processing, PATIENCE).await.unwrap();
        orders.push(sn);
    }
    // As many as the pools hold are connected.
    let asked = orders.iter().map(|sn| engine.order(sn));
    futures_util::future::join_all(asked).await;
    net.postgres.silence();
    let mut failed = 0;
    for sn in &orders {
        failed += u32::from(engine.turn(sn, Turn::Cancel).await.is_err());
        // The first finds out, for all of them.
        assert!(failed <= 1, "{failed} cancels met a silent connection");
    }
    for sn in &orders {
        until("it is cancelled", async || matches!(engine.turn(sn, Turn::Cancel).await, Ok(Turned::Done(_))))
            .await;
    }
    let books = at_rest(&engine).await;
    assert_eq!((books.left, books.orders), (100, 0), "{books:?}");
    check_books(shared(), &net.config, &books, &orders).unwrap();
}
