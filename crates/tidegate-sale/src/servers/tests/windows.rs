//! A process ends between two steps that belong together, as if killed. Another one finds
//! what it left: every number that was told is one row or one dead letter, and every unit is
//! sold once.

use super::rig::{at_rest, buyer, check_books, engine, insist, on_sale, phone, shared, until};
use crate::engine::{Engine as _, Turn};
use crate::order::{OrderSn, OrderState};
use crate::refusal::Refusal;
use crate::sale::SaleState;
use crate::servers::ServersConfig;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

const TOTAL: u64 = 60;
const CHILD: &str = "TIDEGATE_SALE_CHILD";

/// A process of its own that buys, and gives up every third order, until it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "only as a child of the tests below"]
async fn child() {
    let Ok(text) = std::env::var(CHILD) else { return };
    let [redis, amqp, postgres, prefix] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let mut config = ServersConfig::new(redis, amqp, postgres);
    config.prefix = prefix.into();
    (config.grace, config.refresh) = (GRACE, REFRESH);
    let engine = engine(&config).await;
    until("the stock is loaded", async || engine.known(&phone()).is_some_and(|known| known.left.is_some()))
        .await;
    // In waves, so that each place is passed several times.
    for wave in 0..10 {
        let buyers = (0..3).map(|nth| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                let sn = insist(&engine, &format!("child-{wave}-{nth}")).await.unwrap();
                println!("\nANSWERED {sn}");
                engine.changed(&sn, OrderState::Processing, super::rig::PATIENCE).await.unwrap();
                if nth == 0 {
                    engine.turn(&sn, Turn::Cancel).await.unwrap();
                }
            })
        });
        for buyer in buyers.collect::<Vec<_>>() {
            buyer.await.unwrap();
        }
    }
    at_rest(&engine).await;
}

const GRACE: std::time::Duration = std::time::Duration::from_millis(300);
const REFRESH: std::time::Duration = std::time::Duration::from_millis(100);

fn child_of(config: &ServersConfig, end_at: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["servers::tests::windows::child", "--exact", "--ignored", "--nocapture"]);
    let place = [&config.redis, &config.amqp, &config.postgres, &config.prefix].map(String::as_str).join(" ");
    command.env(CHILD, place).env("TIDEGATE_END_AT", end_at);
    command
}

/// Runs a child to its end at this place. What it was told.
fn run_child(config: &ServersConfig, end_at: &str) -> Vec<OrderSn> {
    let output = child_of(config, end_at).output().unwrap();
    let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
    assert_eq!(signal, Some(6), "it should have ended at `{end_at}`: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers = text.lines().filter_map(|line| line.strip_prefix("ANSWERED "));
    numbers.map(|sn| sn.parse().unwrap()).collect()
}

/// One process ends there, another sells the rest.
async fn ends_at(end_at: &str, forget: bool) {
    let config = shared().config();
    let first = engine(&config).await;
    on_sale(&first, TOTAL, 1).await;
    let mut used = buyer(&first, "early");
    let early = first.reserve(used.clone()).await.unwrap();
    at_rest(&first).await;
    first.stop().await;
    drop(first);
    if forget {
        for key in shared().redis.cmd(&["KEYS", &format!("{}:*", config.prefix)]).items() {
            shared().redis.cmd(&["DEL", &key.text()]);
        }
    }
    let (inner, place) = (config.clone(), end_at.to_owned());
    let mut answered = tokio::task::spawn_blocking(move || run_child(&inner, &place)).await.unwrap();
    answered.push(early.clone());
    let survivor = engine(&config).await;
    until("the stock is loaded", async || survivor.known(&phone()).is_some_and(|known| known.left.is_some()))
        .await;
    let books = at_rest(&survivor).await;
    check_books(shared(), &config, &books, &answered).unwrap();
    used.is_expired = true;
    assert_eq!(survivor.reserve(used).await, Ok(early), "a used path is remembered");
    // Whatever is left can be bought, and nothing more.
    for nth in 0.. {
        match insist(&survivor, &format!("late-{nth}")).await {
            Ok(sn) => answered.push(sn),
            Err(Refusal::SoldOut) => break,
            Err(other) => panic!("{other:?}"),
        }
    }
    let books = at_rest(&survivor).await;
    assert_eq!((books.placed, books.left, books.total), (TOTAL, 0, TOTAL), "{end_at}: {books:?}");
    check_books(shared(), &config, &books, &answered).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_reserve_before_the_broker() {
    ends_at("Reserved 0", false).await;
    ends_at("Reserved 2", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_broker_before_the_outbox_forgets() {
    ends_at("Published 0", false).await;
    ends_at("Published 2", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_commit_before_the_broker_knows() {
    ends_at("Committed 0", false).await;
    ends_at("Committed 3", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_units_came_back_before_redis_has_them() {
    ends_at("Returned 0", false).await;
    ends_at("Returned 2", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_redis_has_them_before_the_database_knows() {
    ends_at("Given 0", false).await;
    ends_at("Given 2", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_new_epoch_before_redis_is_loaded() {
    ends_at("Counted 0", true).await;
}

/// The broken variant: nobody looks for what others left behind, and the books show it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_relay_what_was_reserved_stays_on_its_way() {
    let config = shared().config();
    let first = engine(&config).await;
    on_sale(&first, TOTAL, 1).await;
    first.stop().await;
    drop(first);
    let inner = config.clone();
    tokio::task::spawn_blocking(move || run_child(&inner, "Reserved 0")).await.unwrap();
    let mut broken = config.clone();
    broken.grace = std::time::Duration::from_secs(3600);
    let survivor = engine(&broken).await;
    let shelf = survivor.core.shelf(&phone()).unwrap();
    // Everything that was sent has been written by then.
    crate::servers::rebuild::barrier(&survivor.core, &shelf, super::rig::PATIENCE).await.unwrap();
    let books = survivor.books(&phone()).await.unwrap().unwrap();
    assert!(books.in_flight > 0 && books.is_balanced(), "{books:?}");
}

/// It is not dead, it does nothing any more: whatever it held goes to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_hangs_holds_nobody_up() {
    let mut config = shared().config();
    config.amqp += "?heartbeat=2";
    let first = engine(&config).await;
    on_sale(&first, TOTAL, 1).await;
    first.stop().await;
    drop(first);
    let inner = config.clone();
    let (mut child, mut answered) = tokio::task::spawn_blocking(move || {
        let mut child = child_of(&inner, "").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let numbers = lines.filter_map(|line| line.strip_prefix("ANSWERED ").map(|sn| sn.parse().unwrap()));
        let answered: Vec<OrderSn> = numbers.take(10).collect();
        let stopped = Command::new("kill").args(["-STOP", &child.id().to_string()]).status().unwrap();
        assert!(stopped.success());
        (child, answered)
    })
    .await
    .unwrap();
    let survivor = engine(&config).await;
    answered.push(insist(&survivor, "late").await.unwrap());
    let books = at_rest(&survivor).await;
    check_books(shared(), &config, &books, &answered).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The broken variant: Redis forgets which returns it has had, and gives them twice. The books
/// show it, and hold the sale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_memory_of_returns_they_come_back_twice() {
    let config = shared().config();
    let first = engine(&config).await;
    on_sale(&first, TOTAL, 1).await;
    first.stop().await;
    let back = first.core.shelf(&phone()).unwrap().keys.back.clone();
    let inner = config.clone();
    tokio::task::spawn_blocking(move || run_child(&inner, "Given 0")).await.unwrap();
    shared().redis.cmd(&["DEL", &back]).accepted();
    let survivor = engine(&config).await;
    until("the sale is held", async || {
        let known = survivor.known(&phone()).unwrap();
        matches!(&known.state, SaleState::Paused { reason, .. } if reason.contains("do not balance"))
    })
    .await;
    let books = survivor.books(&phone()).await.unwrap().unwrap();
    assert!(!books.is_balanced(), "{books:?}");
}
