//! Numbers that nobody has any more: the sale is held, and names them.

use super::loss::{Process, accounted, blocking, named, stand_still};
use super::rig::{Servers, at_rest, engine, on_sale, phone, until};
use crate::engine::Engine as _;
use crate::sale::{Change, SaleState};
use crate::servers::AnswerAfter;
use std::collections::BTreeSet;
use std::sync::Arc;
use testkit::servers::FaultProxy;

/// Acknowledged after Redis alone, while RabbitMQ is away: then Redis and the process are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_has_any_more_is_named_and_holds_the_sale() {
    let servers = Arc::new(blocking(Servers::start).await);
    let mut config = servers.config();
    config.answer_after = AnswerAfter::Redis;
    let one = engine(&config).await;
    on_sale(&one, 1000, 5).await;
    let inner = servers.clone();
    blocking(move || inner.rabbit.sync()).await;
    let mut process = Process::start(&config);
    until("it buys", async || process.count() > 10).await;
    let inner = servers.clone();
    blocking(move || inner.rabbit.kill()).await;
    let before = process.count();
    until("it buys on", async || process.count() > before + 10).await;
    let process = blocking(move || {
        process.kill();
        process
    })
    .await;
    let answered = process.answered();
    let highest = answered.iter().filter_map(|sn| sn.to_string().rsplit('-').next()?.parse().ok()).max();
    let shelf = one.core.shelf(&phone()).unwrap();
    until("the other has heard of them", async || Some(shelf.acked().highest) >= highest).await;
    servers.redis.cmd(&["FLUSHALL"]).accepted();
    let inner = servers.clone();
    blocking(move || inner.rabbit.restart()).await;
    let mut reason = String::new();
    until("it is held", async || {
        let known = one.known(&phone()).unwrap();
        if let SaleState::Paused { reason: why, .. } = &known.state {
            reason.clone_from(why);
        }
        reason.contains("cannot be found")
    })
    .await;
    assert!(reason.contains("perhaps acknowledged: phone-1-"), "{reason}");
    let books = at_rest(&one).await;
    let missing = named(&servers, &config);
    accounted(&servers, &config, &books, &answered, &missing).unwrap();
    assert!(accounted(&servers, &config, &books, &answered, &BTreeSet::new()).is_err(), "some are gone");
    one.change(&phone(), Change::Resume, "test").await.unwrap();
    super::rig::insist(&one, "late").await.unwrap();
}

/// A number that the broker has confirmed is surely acknowledged. It is missed wherever it went.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmed_number_that_is_gone_is_named_as_surely_acknowledged() {
    let config = super::rig::shared().config();
    let one = engine(&config).await;
    on_sale(&one, 10, 5).await;
    for user in ["ann", "bob", "cid"] {
        super::rig::buy(&one, user).await.unwrap();
    }
    at_rest(&one).await;
    let shelf = one.core.shelf(&phone()).unwrap();
    until("it has heard of all", async || shelf.acked().sure == 3).await;
    until("PostgreSQL has all", async || shelf.kept.lasts().is_empty()).await;
    let sql = "UPDATE sale_goods SET stock = stock + 1, orders = orders - 1, version = version + 1;
               DELETE FROM sale_orders WHERE order_sn = 'phone-1-2'";
    super::rig::shared().postgres.sql_in(&config.postgres, sql);
    for key in super::rig::shared().redis.cmd(&["KEYS", &format!("{}:*", config.prefix)]).items() {
        super::rig::shared().redis.cmd(&["DEL", &key.text()]);
    }
    until("it is held", async || {
        matches!(&one.known(&phone()).unwrap().state, SaleState::Paused { reason, .. }
            if reason.ends_with("1 surely acknowledged: phone-1-2"))
    })
    .await;
}

/// Nobody waits for a process that PostgreSQL does not hear: it is missed, and comes late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_cut_off_writes_its_own_when_it_is_back() {
    let servers = Arc::new(blocking(Servers::start).await);
    let config = servers.config();
    let proxy = FaultProxy::start(&servers.postgres.addr());
    let mut through = config.clone();
    through.postgres = config.postgres.replace(&servers.postgres.addr(), &proxy.addr());
    let (cut_off, other) = (engine(&through).await, engine(&config).await);
    on_sale(&cut_off, 10, 5).await;
    until("both know it", async || other.known(&phone()).is_some_and(|known| known.left.is_some())).await;
    let still = stand_still(&config).await;
    let sn = super::rig::buy(&cut_off, "ann").await.unwrap();
    let shelf = other.core.shelf(&phone()).unwrap();
    until("the other has heard of it", async || shelf.acked().highest == 1).await;
    proxy.refuse();
    let inner = servers.clone();
    blocking(move || inner.rabbit.lose_disk()).await;
    servers.redis.cmd(&["FLUSHALL"]).accepted();
    still.batch_execute("ROLLBACK").await.unwrap();
    let inner = servers.clone();
    blocking(move || inner.rabbit.restart()).await;
    until("it is missed", async || {
        matches!(&other.known(&phone()).unwrap().state, SaleState::Paused { reason, .. }
            if reason.contains("surely acknowledged: phone-1-1"))
    })
    .await;
    assert!(other.order(&sn).await.unwrap().is_none());
    proxy.pass();
    until("it is placed", async || other.order(&sn).await.is_ok_and(|order| order.is_some())).await;
    other.change(&phone(), Change::Resume, "test").await.unwrap();
    let books = at_rest(&other).await;
    assert_eq!((books.placed, books.left), (1, 9), "{books:?}");
    accounted(&servers, &config, &books, &[sn], &BTreeSet::new()).unwrap();
}
