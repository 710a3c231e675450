//! A storm on two processes of the program, while every server goes down and comes back.

use crate::running::{PATIENCE, Running};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use testkit::servers::{PostgresServer, RabbitServer, RedisServer, wait_until};
use tokio::time::Instant;

const STOCK: u64 = 12_000;
/// Slow enough that units are left when the last server is back.
const RATE: &str = "300/s burst 1s wait 1s";
/// The crowd comes for so long, at most.
const SPAN: Duration = Duration::from_secs(45);

/// A crowd on this process, with everything that it was given looked up in the end.
fn storm(sale: &Running, folder: &Path) -> Child {
    let span = format!("{}s", SPAN.as_secs());
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["storm", "--url", sale.url(), "--users", "14000", "--duration", &span, "--think", "100ms"])
        .args(["--connections", "96", "--repeat", "20", "--grace", "20s", "--json", "storm.json"])
        .current_dir(folder)
        .env_remove("TIDEGATE_SALE_SECRET")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a storm found, which has to be nothing.
fn told(storm: Child, folder: &Path) -> Value {
    let Output { status, stdout, stderr } = storm.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let file = std::fs::read_to_string(folder.join("storm.json")).unwrap();
    assert!(status.success(), "{}{}", text(&stdout), text(&stderr));
    serde_json::from_str(&file).unwrap()
}

/// Until more is sold than now: the sale goes on.
fn goes_on(sale: &Running, what: &str) {
    let sold = || sale.books_now().map_or(0, |books| books["placed"].as_u64().unwrap());
    let before = sold();
    wait_until(what, PATIENCE, || sold() > before || before == STOCK);
}

#[test]
fn a_storm_with_faults_loses_nothing_and_sells_nothing_twice() {
    let (redis, rabbit, postgres) = (RedisServer::start(), RabbitServer::start(), PostgresServer::start());
    let urls = [redis.url(), rabbit.url(), postgres.url()];
    let stock = STOCK.to_string();
    let args =
        ["--redis", &urls[0], "--amqp", &urls[1], "--postgres", &urls[2], "--stock", &stock, "--rate", RATE];
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [one, other] = [&here, &there].map(|folder| Running::start(folder.path(), &args));
    goes_on_after_the_first(&one, &other);
    rabbit.sync();

    let begun = Instant::now();
    let storms = [(&one, &here), (&other, &there)].map(|(sale, folder)| storm(sale, folder.path()));
    goes_on(&one, "the storm buys");
    // Everything that Redis knew is gone: it writes nothing to its disk here.
    redis.kill();
    redis.restart();
    goes_on(&one, "it goes on with a new Redis");
    rabbit.kill();
    rabbit.restart();
    goes_on(&one, "it goes on after RabbitMQ was killed");
    postgres.kill();
    postgres.restart();
    goes_on(&other, "it goes on after PostgreSQL was killed");
    // While the broker is gone, numbers that only Redis knows would be lost with it and with the
    // process that gave them out: so none may be given out.
    rabbit.kill();
    let killed = Instant::now();
    wait_until("hundreds have asked meanwhile", PATIENCE, || killed.elapsed() > Duration::from_secs(2));
    let address = other.url().trim_start_matches("http://").to_owned();
    redis.kill();
    drop(other);
    redis.restart();
    rabbit.restart();
    let other = Running::start_at(&address, there.path(), &args);
    goes_on(&one, "it goes on after two servers and a process were killed");
    let was_within = begun.elapsed() < SPAN;

    let folders = [here.path(), there.path()];
    let told: Vec<Value> =
        storms.into_iter().zip(folders).map(|(storm, folder)| told(storm, folder)).collect();
    wait_until("nothing is in flight", PATIENCE, || {
        one.books_now().is_some_and(|books| books["in_flight"] == 0 && books["balanced"] == true)
    });
    let books = one.books();
    let number = |told: &Value, at: &str| told.pointer(at).and_then(Value::as_u64).unwrap();
    let given: u64 = told.iter().map(|told| number(told, "/orders/given")).sum();
    let in_doubt: u64 = told.iter().map(|told| number(told, "/orders/in_doubt")).sum();
    // What the two processes bought before the storm is placed, too.
    let placed = books["placed"].as_u64().unwrap();
    assert!(
        placed >= given + 2 && placed <= given + 2 + in_doubt,
        "{placed} placed, {given} given, {in_doubt} in doubt"
    );
    assert!(placed <= STOCK && placed + books["left"].as_u64().unwrap() == STOCK, "{books}");
    assert!(was_within, "all servers were back while the crowd still came");
    assert!(given > 1_000, "{told:?}");
    // The database by itself says the same.
    let live = "FROM sale_orders WHERE state IN (1, 2)";
    let counted =
        postgres.sql(&format!("SELECT count(*), count(DISTINCT order_sn), count(DISTINCT buyer) {live}"));
    assert_eq!(counted, format!("{placed}|{placed}|{placed}"));
    one.end(Signal::TERM);
    other.end(Signal::TERM);
}

/// Each process has sold one: all connections are there.
fn goes_on_after_the_first(one: &Running, other: &Running) {
    for process in [one, other] {
        let script = process.lines("Buy from it").join("\n");
        wait_until("it sells", PATIENCE, || crate::shell(&script).contains("order demo-"));
    }
}
