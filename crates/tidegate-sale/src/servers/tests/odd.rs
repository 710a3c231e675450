//! Messages that should not be, and books that do not balance.

use super::rig::{
    PATIENCE, Servers, at_rest, buy, buyer, check_books, engine, forget, insist, on_sale, phone, shared,
    until,
};
use crate::engine::{Engine as _, Reserve, Turn};
use crate::order::{OrderSn, OrderState};
use crate::refusal::Refusal;
use crate::sale::{Change, Sale, SaleState};
use crate::servers::letter::{Body, Letter, Orders, Sent, hex};
use crate::servers::{ServersConfig, ServersEngine, names};
use lapin::options::{BasicPublishOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

pub(super) async fn channel(servers: &Servers) -> Channel {
    let connection =
        Connection::connect(&servers.rabbit.url(), ConnectionProperties::default()).await.unwrap();
    connection.create_channel().await.unwrap()
}

async fn put(channel: &Channel, config: &ServersConfig, shard: u16, body: &[u8]) {
    let (exchange, key) = (names::exchange(&config.prefix), shard.to_string());
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish(
        exchange.as_str().into(),
        key.as_str().into(),
        options,
        body,
        BasicProperties::default(),
    );
    sent.await.unwrap().await.unwrap();
}

fn order(epoch: u32, nth: u64, quantity: u32) -> Letter {
    let mut path = [0; 16];
    getrandom::fill(&mut path).unwrap();
    let sent = Sent { nth, user: "stray".parse().unwrap(), quantity, path: hex(&path), key: None };
    Letter { goods: phone(), body: Body::Orders(Orders { epoch, at: 1, orders: vec![sent] }) }
}

/// Waits until so many messages are in the broker's own dead letters.
async fn put_aside(config: &ServersConfig, messages: u32) {
    let (channel, dead) = (channel(shared()).await, names::dead(&config.prefix));
    until("they are put aside", async || {
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue =
            channel.queue_declare(dead.as_str().into(), options, FieldTable::default()).await.unwrap();
        queue.message_count() == messages
    })
    .await;
}

async fn deliver(engine: &ServersEngine, letter: &Letter) {
    let shard = engine.core.shelf(&letter.goods).unwrap().shard;
    put(&channel(shared()).await, &engine.core.config, shard, &letter.encode("stray").unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_put_aside_and_holds_nobody_up() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let channel = channel(shared()).await;
    let shard = engine.core.shelf(&phone()).unwrap().shard;
    for body in [&b"not json"[..], b"", b"{\"specversion\":\"1.0\"}"] {
        put(&channel, &config, shard, body).await;
    }
    let sn = buy(&engine, "ann").await.unwrap();
    let order = engine.changed(&sn, OrderState::Processing, PATIENCE).await.unwrap().unwrap();
    assert_eq!(order.state, OrderState::Placed);
    put_aside(&config, 3).await;
    let books = at_rest(&engine).await;
    check_books(shared(), &config, &books, &[sn]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_no_queue_takes_is_not_told_and_not_lost() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let shelf = engine.core.shelf(&phone()).unwrap();
    let (queue, exchange) = (names::queue(&config.prefix, shelf.shard), names::exchange(&config.prefix));
    let key = shelf.shard.to_string();
    let channel = channel(shared()).await;
    let (queue, exchange) = (queue.as_str().into(), exchange.as_str().into());
    channel.queue_unbind(queue, exchange, key.as_str().into(), FieldTable::default()).await.unwrap();
    assert_eq!(buy(&engine, "ann").await, Err(Refusal::Busy), "it was returned, so it is not confirmed");
    // The topology is made again, and the outbox has it.
    until("it is written", async || {
        engine.books(&phone()).await.is_ok_and(|books| books.is_some_and(|books| books.placed == 1))
    })
    .await;
    let sn = insist(&engine, "bob").await.unwrap();
    let books = at_rest(&engine).await;
    assert_eq!((books.placed, books.left), (2, 8), "{books:?}");
    check_books(shared(), &config, &books, &[sn]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_order_of_an_old_epoch_is_written_while_stock_remains() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 3, 5).await;
    for key in shared().redis.cmd(&["KEYS", &format!("{}:*", config.prefix)]).items() {
        shared().redis.cmd(&["DEL", &key.text()]);
    }
    until("it is loaded again", async || {
        engine.known(&phone()).is_some_and(|known| known.epoch == 2 && known.left == Some(3))
    })
    .await;
    deliver(&engine, &order(1, 7, 2)).await;
    until("Redis has taken it, too", async || engine.known(&phone()).unwrap().left == Some(1)).await;
    // Twice is once.
    deliver(&engine, &order(1, 7, 2)).await;
    // No stock remains for this one.
    deliver(&engine, &order(1, 8, 2)).await;
    until("it is a dead letter", async || engine.dead(&phone()).await.unwrap().len() == 1).await;
    let books = at_rest_but_dead(&engine).await;
    assert_eq!((books.placed, books.left, books.dead, books.in_flight), (2, 1, 1, 0), "{books:?}");
    let late = ["phone-1-7".parse().unwrap(), "phone-1-8".parse().unwrap()];
    check_books(shared(), &config, &books, &late).unwrap();
    engine.bury(&late[1], false, "test").await.unwrap();
    let books = at_rest(&engine).await;
    assert_eq!((books.placed, books.left, books.dead), (2, 1, 0), "it held nothing: {books:?}");
    check_books(shared(), &config, &books, &late).unwrap();
}

async fn at_rest_but_dead(engine: &ServersEngine) -> crate::books::Books {
    let mut last = None;
    until("nothing is on its way", async || {
        last = engine.books(&phone()).await.unwrap();
        last.as_ref().is_some_and(|books| books.in_flight == 0)
    })
    .await;
    last.unwrap()
}

/// Waits until the reconciler holds the sale; tells why.
async fn held(engine: &ServersEngine) -> String {
    let mut reason = None;
    until("the sale is held", async || {
        if let SaleState::Paused { reason: why, .. } = &engine.known(&phone()).unwrap().state {
            reason = Some(why.clone());
        }
        reason.is_some()
    })
    .await;
    reason.unwrap()
}

/// It goes on after a new count, and everything fits.
async fn resumes(engine: &ServersEngine, config: &ServersConfig, placed: u64, total: u64) {
    engine.change(&phone(), Change::Resume, "test").await.unwrap();
    let sn = insist(engine, "after").await.unwrap();
    let books = at_rest(engine).await;
    assert_eq!((books.placed, books.left), (placed + 1, total - placed - 1), "{books:?}");
    check_books(shared(), config, &books, &[sn]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_that_appears_in_redis_holds_the_sale() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let meta = engine.core.shelf(&phone()).unwrap().keys.meta.clone();
    shared().redis.cmd(&["HINCRBY", &meta, "left", "1"]);
    assert!(held(&engine).await.contains("the books of Redis do not balance"));
    assert!(matches!(buy(&engine, "ann").await, Err(Refusal::Paused { .. })));
    until("it is written down", async || engine.audit(&phone(), 1).await.unwrap()[0].by == "reconciler")
        .await;
    resumes(&engine, &config, 0, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_redis_never_gave_out_holds_the_sale() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    deliver(&engine, &order(1, 99, 1)).await;
    assert!(held(&engine).await.contains("never gave out"));
    resumes(&engine, &config, 1, 10).await;
}

/// The broker confirmed it, and never delivered it.
async fn lose(engine: &ServersEngine, config: &ServersConfig, sn: &OrderSn) {
    engine.changed(sn, OrderState::Processing, PATIENCE).await.unwrap();
    let sql = format!(
        "BEGIN;
         UPDATE sale_goods SET stock = stock + 1, orders = orders - 1, arrived = arrived - 1,
                               version = version + 1;
         DELETE FROM sale_orders WHERE order_sn = '{sn}';
         COMMIT"
    );
    shared().postgres.sql_in(&config.postgres, &sql);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_the_broker_lost_holds_the_sale_and_is_written_after_all() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let ask = Reserve { key: Some("mine: 1".into()), ..buyer(&engine, "ann") };
    let sn = engine.reserve(ask.clone()).await.unwrap();
    lose(&engine, &config, &sn).await;
    assert!(held(&engine).await.contains("never arrived"));
    resumes(&engine, &config, 1, 10).await;
    let order = engine.order(&sn).await.unwrap().unwrap();
    assert_eq!((order.state, order.user.as_str()), (OrderState::Placed, "ann"));
    assert_eq!(engine.reserve(ask.clone()).await, Ok(sn.clone()), "by its path");
    let by_key = Reserve { path: buyer(&engine, "ann").path, ..ask };
    assert_eq!(engine.reserve(by_key).await, Ok(sn), "and by its key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_the_broker_lost_is_missed_while_others_buy() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 100_000, 100_000).await;
    let sn = buy(&engine, "ann").await.unwrap();
    lose(&engine, &config, &sn).await;
    let others = engine.clone();
    let others = tokio::spawn(async move { while buy(&others, "bob").await.is_ok() {} });
    assert!(held(&engine).await.contains("never arrived"));
    others.await.unwrap();
    engine.change(&phone(), Change::Resume, "test").await.unwrap();
    assert_eq!(engine.order(&sn).await.unwrap().unwrap().state, OrderState::Placed);
    check_books(shared(), &config, &at_rest(&engine).await, &[sn]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_the_broker_lost_is_written_though_the_sale_is_over() {
    let mut config = shared().config();
    config.reconcile = std::time::Duration::from_millis(20);
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let sn = buy(&engine, "ann").await.unwrap();
    engine.changed(&sn, OrderState::Processing, PATIENCE).await.unwrap();
    engine.change(&phone(), Change::Close, "test").await.unwrap();
    lose(&engine, &config, &sn).await;
    until("it is written", async || {
        engine
            .order(&sn)
            .await
            .is_ok_and(|order| order.is_some_and(|order| order.state == OrderState::Placed))
    })
    .await;
    check_books(shared(), &config, &at_rest(&engine).await, &[sn]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_the_broker_lost_is_missed_in_a_pause_and_written_after_it() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let sn = buy(&engine, "ann").await.unwrap();
    engine.changed(&sn, OrderState::Processing, PATIENCE).await.unwrap();
    engine.change(&phone(), Change::Pause { reason: "lunch".into() }, "test").await.unwrap();
    lose(&engine, &config, &sn).await;
    let doubted = "SELECT is_doubted FROM sale_goods";
    until("it is noticed", async || shared().postgres.sql_in(&config.postgres, doubted).trim() == "t").await;
    resumes(&engine, &config, 1, 10).await;
    assert_eq!(engine.order(&sn).await.unwrap().unwrap().state, OrderState::Placed);
}

fn late(user: &str, nth: u64, key: Option<&str>) -> Letter {
    let mut letter = order(1, nth, 1);
    if let Body::Orders(orders) = &mut letter.body {
        orders.orders[0].user = user.parse().unwrap();
        orders.orders[0].key = key.map(str::to_owned);
    }
    letter
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_redis_forgot_gives_nobody_more_than_one_may_have() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 2).await;
    forget(&engine, shared()).await;
    let ann = Reserve { key: Some("mine".into()), ..buyer(&engine, "ann") };
    let bob = Reserve { quantity: 2, ..buyer(&engine, "bob") };
    let mut answered = vec![engine.reserve(ann).await.unwrap(), engine.reserve(bob).await.unwrap()];
    for sn in &answered {
        engine.changed(sn, OrderState::Processing, PATIENCE).await.unwrap();
    }
    // From before: the same key, and more than one may buy. The third is neither.
    for letter in [late("ann", 1, Some("mine")), late("bob", 2, None), late("cid", 3, Some("mine"))] {
        deliver(&engine, &letter).await;
    }
    let third = "phone-1-3".parse().unwrap();
    until("all are settled", async || {
        engine.dead(&phone()).await.unwrap().len() == 2 && engine.order(&third).await.unwrap().is_some()
    })
    .await;
    let dead = engine.dead(&phone()).await.unwrap();
    assert!(dead.iter().any(|letter| letter.reason.contains("sale_orders_key")), "{dead:?}");
    assert!(dead.iter().any(|letter| letter.reason.contains("what one may")), "{dead:?}");
    let books = at_rest_but_dead(&engine).await;
    assert_eq!((books.placed, books.left), (4, 6), "{books:?}");
    answered.extend((1..=3).map(|nth| format!("phone-1-{nth}").parse().unwrap()));
    check_books(shared(), &config, &books, &answered).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_came_late_can_still_be_paid() {
    let config = shared().config();
    let engine = engine(&config).await;
    let sale = Sale { pay_within: Some(3600), ..Sale::new(phone(), 10) };
    crate::suite::open(&*engine, sale).await;
    // It was taken in 1970.
    deliver(&engine, &order(1, 99, 1)).await;
    let sn: OrderSn = "phone-1-99".parse().unwrap();
    until("it is written", async || engine.order(&sn).await.unwrap().is_some()).await;
    let pay_by = engine.order(&sn).await.unwrap().unwrap().pay_by.unwrap();
    assert!(pay_by > crate::time::now_ms() + 3_000_000, "{pay_by}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_the_database_is_no_orders_fault() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let sql = |text: &str| shared().postgres.sql_in(&config.postgres, text);
    let name = format!("no right, says {}", config.prefix);
    sql(&format!(
        "CREATE FUNCTION deny() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION '{name}' USING ERRCODE = 'insufficient_privilege'; END $$;
         CREATE TRIGGER deny BEFORE INSERT ON sale_orders FOR EACH ROW EXECUTE FUNCTION deny()"
    ));
    let sn = buy(&engine, "ann").await.unwrap();
    until("it was tried", async || shared().postgres.log().matches(&name).count() > 2).await;
    sql("DROP TRIGGER deny ON sale_orders");
    let order = engine.changed(&sn, OrderState::Processing, PATIENCE).await.unwrap().unwrap();
    assert_eq!((order.state, order.reason), (OrderState::Placed, None));
    let books = at_rest(&engine).await;
    assert_eq!(books.dead, 0, "{books:?}");
    check_books(shared(), &config, &books, &[sn]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_cannot_be_read_and_returns_that_cannot_be_given_stop_no_other() {
    let config = shared().config();
    let first = engine(&config).await;
    on_sale(&first, 10, 5).await;
    let odd = Sale::new("odd".parse().unwrap(), 10);
    first.create(odd, "test").await.unwrap();
    first.stop().await;
    let sql = |text: &str| shared().postgres.sql_in(&config.postgres, text);
    sql("UPDATE sale_goods SET definition = '{\"of\": \"tomorrow\"}' WHERE goods = 'odd'");
    sql("INSERT INTO sale_returns (goods, epoch, units) SELECT 'odd', 1, 1 FROM generate_series(1, 600)");
    let engine = engine(&config).await;
    let sn = insist(&engine, "ann").await.unwrap();
    engine.changed(&sn, OrderState::Processing, PATIENCE).await.unwrap();
    engine.turn(&sn, Turn::Cancel).await.unwrap();
    until("it is for sale again", async || engine.known(&phone()).unwrap().left == Some(10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_does_not_add_up_holds_the_sale() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let sn = buy(&engine, "ann").await.unwrap();
    engine.changed(&sn, OrderState::Processing, PATIENCE).await.unwrap();
    shared().postgres.sql_in(&config.postgres, "UPDATE sale_orders SET quantity = 2");
    assert!(held(&engine).await.contains("the database's books do not balance"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_was_given_out_twice_is_not_swallowed() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let sn = buy(&engine, "ann").await.unwrap();
    engine.changed(&sn, OrderState::Processing, PATIENCE).await.unwrap();
    // The same number under another path: a Redis that went back would do that.
    deliver(&engine, &order(1, 1, 1)).await;
    put_aside(&config, 1).await;
    let books = at_rest(&engine).await;
    check_books(shared(), &config, &books, &[sn]).unwrap();
}

/// Redis's clock is an hour ahead: `pay_by` was an hour late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_to_pay_is_told_by_the_databases_clock() {
    let config = shared().config();
    let engine = engine(&config).await;
    let sale = Sale { pay_within: Some(1000), ..Sale::new(phone(), 10) };
    crate::suite::open(&*engine, sale).await;
    let mut letter = order(1, 99, 1);
    let Body::Orders(orders) = &mut letter.body else { panic!("{letter:?}") };
    orders.at = crate::time::now_ms() + 3_600_000;
    deliver(&engine, &letter).await;
    let sn: OrderSn = "phone-1-99".parse().unwrap();
    until("it is written", async || engine.order(&sn).await.unwrap().is_some()).await;
    let pay_by = engine.order(&sn).await.unwrap().unwrap().pay_by.unwrap();
    assert!(pay_by <= crate::time::now_ms() + 1_000_000, "{pay_by}");
}

/// What a database says of an order that it cannot take is for operators.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_buyer_reads_the_databases_text() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    shared().postgres.sql_in(
        &config.postgres,
        "CREATE FUNCTION deny() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
         CREATE TRIGGER deny BEFORE INSERT ON sale_orders FOR EACH ROW EXECUTE FUNCTION deny()",
    );
    let sn = buy(&engine, "ann").await.unwrap();
    engine.changed(&sn, OrderState::Processing, PATIENCE).await.unwrap();
    let service = crate::SaleService::builder().on(engine.clone(), engine.secret().await.unwrap()).unwrap();
    assert!(service.dead(&phone()).await.unwrap()[0].reason.contains("SQLSTATE"));
    let order = service.order(&"ann".parse().unwrap(), &sn).await.unwrap();
    assert_eq!((order.state, order.reason.as_deref()), (OrderState::Failed, Some("it could not be placed")));
}
