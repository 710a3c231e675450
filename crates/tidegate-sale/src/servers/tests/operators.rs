//! What operators do while something does not answer.

use super::rig::{engine, meanwhile, on_sale, phone, shared, until};
use crate::engine::Engine as _;
use crate::sale::{Change, Sale};
use testkit::servers::FaultProxy;

fn total(url: &str) -> String {
    shared().postgres.sql_in(url, "SELECT total, stock FROM sale_goods").trim().to_owned()
}

/// Whoever was told to try again would add it twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stock_that_was_added_is_told_so_whatever_redis_does() {
    let proxy = FaultProxy::start(&shared().redis.addr());
    let mut config = shared().config();
    config.redis = proxy.url();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    proxy.refuse();
    engine.change(&phone(), Change::AddStock { units: 5 }, "test").await.unwrap();
    assert!(engine.ready().unwrap_err().contains("Redis"));
    assert_eq!(total(&config.postgres), "15|15");
    proxy.pass();
    until("it is for sale", async || engine.known(&phone()).unwrap().left == Some(15)).await;
    until("it is ready", async || engine.ready().is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_was_warmed_without_redis_is_loaded_once_it_is_there() {
    let proxy = FaultProxy::start(&shared().redis.addr());
    let mut config = shared().config();
    config.redis = proxy.url();
    let engine = engine(&config).await;
    engine.create(Sale::new(phone(), 10), "test").await.unwrap();
    proxy.refuse();
    engine.change(&phone(), Change::Warm, "test").await.unwrap();
    assert!(engine.books(&phone()).await.is_err(), "nothing is for sale yet");
    proxy.pass();
    until("it is loaded", async || engine.books(&phone()).await.is_ok_and(|books| books.unwrap().left == 10))
        .await;
}

/// Redis compares no times any more, so no clock of it that is behind closes the sale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_opened_by_its_time_is_open_whatever_redis_thinks_the_time_is() {
    let engine = engine(&shared().config()).await;
    engine.create(Sale { opens_at: Some(1), ..Sale::new(phone(), 10) }, "test").await.unwrap();
    engine.change(&phone(), Change::Warm, "test").await.unwrap();
    let meta = engine.core.shelf(&phone()).unwrap().keys.meta.clone();
    until("Redis is told", async || shared().redis.cmd(&["HGET", &meta, "state"]).text() == "open").await;
}

/// The connection breaks while the database commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_was_lost_is_found_and_not_repeated() {
    let url = shared().config().postgres;
    let proxy = FaultProxy::start(&shared().postgres.addr());
    let mut config = shared().config();
    config.postgres = url.replace(&shared().postgres.addr(), &proxy.addr());
    let engine = engine(&config).await;
    let sql = |text: &str| shared().postgres.sql_in(&url, text);
    sql("CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN PERFORM pg_sleep(3); RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER slowly AFTER INSERT ON sale_audit DEFERRABLE INITIALLY DEFERRED
         FOR EACH ROW EXECUTE FUNCTION slowly()");
    let commits = "SELECT count(*) FROM pg_stat_activity
                   WHERE datname = current_database() AND query ILIKE 'commit%' AND state = 'active'";
    for nth in 0..2 {
        let task = engine.clone();
        let done = tokio::spawn(async move {
            match nth {
                0 => task.create(Sale::new(phone(), 10), "test").await,
                _ => task.change(&phone(), Change::AddStock { units: 5 }, "test").await,
            }
        });
        until("it commits", async || sql(commits).trim() == "1").await;
        proxy.refuse();
        proxy.pass();
        done.await.unwrap().unwrap();
    }
    assert_eq!(total(&url), "15|15");
    assert_eq!(sql("SELECT count(*) FROM sale_audit").trim(), "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_who_read_the_books_read_them_together_and_stop_no_writer() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let sql = |text: &str| shared().postgres.sql_in(&config.postgres, text);
    let locked = meanwhile(&config, "BEGIN; LOCK TABLE sale_goods; SELECT pg_sleep(3); COMMIT");
    let waiting = |what: &str| {
        let text = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
             AND wait_event_type = 'Lock' AND query LIKE '%{what}%'"
        );
        sql(&text).trim().parse::<u32>().unwrap()
    };
    until("it is locked", async || waiting("sale_goods") > 0).await;
    let service = crate::SaleService::builder().on(engine.clone(), engine.secret().await.unwrap()).unwrap();
    let readers = (0..50).map(|_| {
        let service = service.clone();
        tokio::spawn(async move { service.books(&phone()).await.unwrap() })
    });
    let readers: Vec<_> = readers.collect();
    until("the first reader waits", async || waiting("arrived, g.version") > 0).await;
    // One for all readers, and the reconciler.
    assert!(waiting("arrived, g.version") <= 2, "{}", waiting("arrived, g.version"));
    locked.await.unwrap();
    for reader in readers {
        assert!(reader.await.unwrap().is_balanced());
    }
    // Whatever buyers ask, orders are written.
    let mut busy = Vec::new();
    while let Ok(Ok(client)) =
        tokio::time::timeout(std::time::Duration::from_millis(500), engine.core.asks.client()).await
    {
        busy.push(client);
    }
    let sn = super::rig::buy(&engine, "ann").await.unwrap();
    let find = format!("SELECT count(*) FROM sale_orders WHERE order_sn = '{sn}'");
    until("it is written", async || sql(&find).trim() == "1").await;
    drop(busy);
}
