//! A database that goes back in time while processes remember what it has forgotten.

use super::rig::{Servers, at_rest, buy, check_books, engine, forget, insist, on_sale, phone, shared, until};
use crate::engine::Engine as _;
use crate::order::OrderSn;
use crate::refusal::Refusal;
use crate::sale::{Change, Sale, SaleState};
use crate::servers::{ServersConfig, ServersEngine};

const TABLES: [&str; 9] = [
    "sale_goods",
    "sale_orders",
    "sale_dead",
    "sale_returns",
    "sale_barriers",
    "sale_loads",
    "sale_audit",
    "sale_processes",
    "sale_reports",
];

fn back_up(config: &ServersConfig) {
    back_up_on(shared(), config);
}

fn restore(config: &ServersConfig) {
    restore_on(shared(), config);
}

/// Keeps everything as it is now, in one moment.
pub(super) fn back_up_on(servers: &Servers, config: &ServersConfig) {
    let copies = TABLES.map(|table| format!("CREATE TABLE {table}_then AS TABLE {table};"));
    let text = format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {} COMMIT", copies.concat());
    servers.postgres.sql_in(&config.postgres, &text);
}

/// Brings it back, counters too, in one moment.
pub(super) fn restore_on(servers: &Servers, config: &ServersConfig) {
    let each =
        TABLES.map(|table| format!("TRUNCATE {table}; INSERT INTO {table} SELECT * FROM {table}_then;"));
    let counters = ["sale_returns", "sale_audit"]
        .map(|table| format!("SELECT setval('{table}_id_seq', (SELECT coalesce(max(id), 1) FROM {table}));"));
    let text = format!("BEGIN; {} {} COMMIT", each.concat(), counters.concat());
    servers.postgres.sql_in(&config.postgres, &text);
}

fn state(engine: &ServersEngine) -> SaleState {
    engine.known(&phone()).unwrap().state.clone()
}

async fn buy_some(engine: &ServersEngine, users: std::ops::Range<u32>, answered: &mut Vec<OrderSn>) {
    for nth in users {
        answered.push(insist(engine, &format!("user-{nth}")).await.unwrap());
    }
    at_rest(engine).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_that_a_restored_database_forgot_are_written_again() {
    let config = shared().config();
    let engines = [engine(&config).await, engine(&config).await];
    on_sale(&engines[0], 100, 1).await;
    let mut answered = Vec::new();
    buy_some(&engines[0], 0..3, &mut answered).await;
    back_up(&config);
    buy_some(&engines[0], 3..7, &mut answered).await;
    restore(&config);
    for engine in &engines {
        until("it is loaded again", async || {
            let known = engine.known(&phone()).unwrap();
            known.epoch > 1 && known.state == SaleState::Open && known.left == Some(93)
        })
        .await;
    }
    buy_some(&engines[1], 7..9, &mut answered).await;
    let books = at_rest(&engines[0]).await;
    assert_eq!((books.placed, books.left, books.dead), (9, 91, 0), "{books:?}");
    check_books(shared(), &config, &books, &answered).unwrap();
}

/// Redis has the orders of its own epoch only: those of the one before are nowhere any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_forgot_an_epoch_holds_the_sale_and_names_it() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 100, 1).await;
    let mut answered = Vec::new();
    buy_some(&engine, 0..2, &mut answered).await;
    back_up(&config);
    let mut lost = Vec::new();
    buy_some(&engine, 2..4, &mut lost).await;
    forget(&engine, shared()).await;
    buy_some(&engine, 4..6, &mut answered).await;
    restore(&config);
    until("it is held", async || {
        matches!(state(&engine), SaleState::Paused { reason, .. } if reason.contains("has forgotten orders phone-1-…"))
    })
    .await;
    engine.change(&phone(), Change::Resume, "test").await.unwrap();
    until("it goes on", async || state(&engine) == SaleState::Open).await;
    let books = at_rest(&engine).await;
    assert_eq!((books.placed, books.left), (4, 96), "{books:?}");
    check_books(shared(), &config, &books, &answered).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_who_pauses_a_restored_sale_has_paused_it() {
    let config = shared().config();
    let engines = [engine(&config).await, engine(&config).await];
    on_sale(&engines[0], 100, 1).await;
    back_up(&config);
    for _ in 0..3 {
        engines[0].change(&phone(), Change::Pause { reason: "a look".into() }, "test").await.unwrap();
        engines[0].change(&phone(), Change::Resume, "test").await.unwrap();
    }
    until("both know it", async || {
        engines
            .iter()
            .all(|engine| state(engine) == SaleState::Open && engine.known(&phone()).unwrap().left.is_some())
    })
    .await;
    restore(&config);
    let pause = Change::Pause { reason: "restored".into() };
    let known = engines[0].change(&phone(), pause, "test").await.unwrap();
    let is_paused =
        |state: &SaleState| matches!(state, SaleState::Paused { reason, .. } if reason == "restored");
    assert!(is_paused(&known.state), "{:?}", known.state);
    until("both show it", async || engines.iter().all(|engine| is_paused(&state(engine)))).await;
    until("Redis sells nothing", async || {
        matches!(buy(&engines[1], "ann").await, Err(Refusal::Paused { .. }))
    })
    .await;
    engines[0].change(&phone(), Change::Resume, "test").await.unwrap();
    let sn = insist(&engines[1], "ann").await.unwrap();
    let books = at_rest(&engines[0]).await;
    check_books(shared(), &config, &books, &[sn]).unwrap();
}

/// All processes were restarted too: only Redis remembers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_remembers_nothing_learns_it_from_redis() {
    let config = shared().config();
    let first = engine(&config).await;
    on_sale(&first, 100, 1).await;
    back_up(&config);
    first.change(&phone(), Change::Pause { reason: "a look".into() }, "test").await.unwrap();
    first.stop().await;
    restore(&config);
    let second = engine(&config).await;
    until("it is open again", async || {
        let known = second.known(&phone()).unwrap();
        known.epoch == 2 && known.state == SaleState::Open && known.left == Some(100)
    })
    .await;
    let sn = insist(&second, "ann").await.unwrap();
    let books = at_rest(&second).await;
    check_books(shared(), &config, &books, &[sn]).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_a_restored_database_does_not_know_is_held() {
    let config = shared().config();
    let engine = engine(&config).await;
    back_up(&config);
    on_sale(&engine, 100, 1).await;
    let sn = insist(&engine, "ann").await.unwrap();
    at_rest(&engine).await;
    restore(&config);
    until("it is held", async || {
        matches!(state(&engine), SaleState::Paused { reason, .. } if reason.contains("went back in time"))
    })
    .await;
    until("Redis sells nothing", async || matches!(buy(&engine, "bob").await, Err(Refusal::Paused { .. })))
        .await;
    // Created again it goes on, with the order that only Redis has.
    on_sale(&engine, 100, 1).await;
    until("it is open", async || state(&engine) == SaleState::Open).await;
    let other = insist(&engine, "bob").await.unwrap();
    let books = at_rest(&engine).await;
    assert_eq!((books.placed, books.left), (2, 98), "{books:?}");
    check_books(shared(), &config, &books, &[sn, other]).unwrap();
}

/// Whoever warmed it ended before it was loaded, and Redis still has an epoch of before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_was_created_again_and_warmed_is_loaded_by_a_later_look() {
    let config = shared().config();
    let engine = engine(&config).await;
    back_up(&config);
    on_sale(&engine, 100, 1).await;
    restore(&config);
    until("it is held", async || matches!(state(&engine), SaleState::Paused { .. })).await;
    engine.create(Sale::new(phone(), 100), "test").await.unwrap();
    let warm = serde_json::to_string(&SaleState::Warm).unwrap();
    shared().postgres.sql_in(
        &config.postgres,
        &format!("UPDATE sale_goods SET state = '{warm}', rev = rev + 1, version = version + 1"),
    );
    until("it is loaded", async || engine.known(&phone()).unwrap().left == Some(100)).await;
}

/// The process that loads it may know less than another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_that_another_process_knows_is_not_given_out_again() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 100, 1).await;
    shared()
        .postgres
        .sql_in(&config.postgres, "INSERT INTO sale_reports VALUES ('phone', 'another process', 0, 7, 3, 3)");
    shared().redis.cmd(&["DEL", engine.core.shelf(&phone()).unwrap().keys.meta.as_str()]);
    until("it is held", async || {
        matches!(state(&engine), SaleState::Paused { reason, .. } if reason.contains("phone-7-1 to 3"))
    })
    .await;
    assert_eq!(engine.known(&phone()).unwrap().epoch, 8);
}
