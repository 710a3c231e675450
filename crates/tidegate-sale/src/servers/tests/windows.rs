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
                let order = engine.changed(&sn, OrderState::Processing, super::rig::PATIENCE).await.unwrap();
                assert_ne!(order.unwrap().state, OrderState::Processing, "{sn} is not written");
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

/// Redis knows nothing of this sale any more.
fn forget_all(config: &ServersConfig) {
    for key in shared().redis.cmd(&["KEYS", &format!("{}:*", config.prefix)]).items() {
        shared().redis.cmd(&["DEL", &key.text()]);
    }
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
        forget_all(&config);
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

/// It ends there the first time, and some times later; ten times as many with `./test --long`.
async fn in_rounds(point: &str) {
    for nth in 0..2 * testkit::suite::cases() {
        // A child passes each of them ten times or so.
        ends_at(&format!("{point} {}", 2 * nth % 5), false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_reserve_before_the_broker() {
    in_rounds("Reserved").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_broker_before_the_outbox_forgets() {
    in_rounds("Published").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_commit_before_the_broker_knows() {
    in_rounds("Committed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_units_came_back_before_redis_has_them() {
    in_rounds("Returned").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_redis_has_them_before_the_database_knows() {
    in_rounds("Given").await;
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

/// The broken variant of the next two: a database that does not know an order's number again
/// writes the order twice, and the check sees it.
async fn forgotten_numbers_are_written_twice(end_at: &str) {
    const FORGET: &str = "
        DROP INDEX sale_orders_path;
        CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF EXISTS (SELECT FROM sale_orders WHERE order_sn = NEW.order_sn) THEN
                NEW.order_sn := NEW.order_sn || '999';
            END IF;
            RETURN NEW;
        END $$;
        CREATE TRIGGER forget BEFORE INSERT ON sale_orders FOR EACH ROW EXECUTE FUNCTION forget()";
    let config = shared().config();
    let first = engine(&config).await;
    on_sale(&first, TOTAL, 1).await;
    first.stop().await;
    drop(first);
    let (inner, place) = (config.clone(), end_at.to_owned());
    let answered = tokio::task::spawn_blocking(move || run_child(&inner, &place)).await.unwrap();
    shared().postgres.sql_in(&config.postgres, FORGET);
    let survivor = engine(&config).await;
    until("an order is written twice", async || {
        let twice = "SELECT count(*) FROM sale_orders WHERE order_sn LIKE '%999'";
        shared().postgres.sql_in(&config.postgres, twice).trim() != "0"
    })
    .await;
    let books = survivor.books(&phone()).await.unwrap().unwrap();
    let seen = check_books(shared(), &config, &books, &answered);
    assert!(seen.is_err(), "{books:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_numbers_what_was_published_twice_is_written_twice() {
    forgotten_numbers_are_written_twice("Published 0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_numbers_what_was_delivered_twice_is_written_twice() {
    forgotten_numbers_are_written_twice("Committed 0").await;
}

/// The broken variant: nobody has written down what is to be given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_note_of_returns_they_never_come_back() {
    let config = shared().config();
    let first = engine(&config).await;
    on_sale(&first, TOTAL, 1).await;
    first.stop().await;
    drop(first);
    let inner = config.clone();
    tokio::task::spawn_blocking(move || run_child(&inner, "Returned 0")).await.unwrap();
    shared().postgres.sql_in(&config.postgres, "DELETE FROM sale_returns");
    let survivor = engine(&config).await;
    until("the sale is held", async || {
        let known = survivor.known(&phone()).unwrap();
        matches!(&known.state, SaleState::Paused { reason, .. } if reason.contains("do not balance"))
    })
    .await;
}

/// The broken variant: what Redis had is taken for the new epoch's load. The books show it, and
/// hold the sale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_new_load_units_are_counted_twice() {
    let config = shared().config();
    let first = engine(&config).await;
    on_sale(&first, TOTAL, 1).await;
    insist(&first, "early").await.unwrap();
    at_rest(&first).await;
    first.stop().await;
    let meta = first.core.shelf(&phone()).unwrap().keys.meta.clone();
    drop(first);
    let had = shared().redis.cmd(&["HGETALL", &meta]);
    forget_all(&config);
    let inner = config.clone();
    tokio::task::spawn_blocking(move || run_child(&inner, "Counted 0")).await.unwrap();
    let epoch = shared().postgres.sql_in(&config.postgres, "SELECT epoch FROM sale_goods");
    let had: Vec<String> = had.items().iter().map(|field| field.text().to_owned()).collect();
    let again = ["HSET", &meta].into_iter().chain(had.iter().map(String::as_str));
    shared().redis.cmd(&again.chain(["epoch", epoch.trim()]).collect::<Vec<_>>()).accepted();
    let survivor = engine(&config).await;
    until("the sale is held", async || {
        let known = survivor.known(&phone()).unwrap();
        matches!(&known.state, SaleState::Paused { reason, .. } if reason.contains("do not balance"))
    })
    .await;
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
