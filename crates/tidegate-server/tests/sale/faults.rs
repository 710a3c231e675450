//! A storm on two processes of the program, while every server goes down and comes back.

use crate::running::{ADMIN, PATIENCE, Running, SECRET};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::servers::{PostgresServer, RabbitServer, RedisServer, wait_until};
use tokio::time::Instant;

/// More than is sold until the last server is back.
const STOCK: u64 = 100_000;
const RATE: &str = "300/s burst 1s wait 1s";

/// A crowd on a process, for five minutes at most.
struct Storm<'a> {
    child: Child,
    folder: &'a Path,
}

impl<'a> Storm<'a> {
    fn start(sale: &Running, folder: &'a Path) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args([
                "storm",
                "--url",
                sale.url(),
                "--users",
                "90000",
                "--duration",
                "300s",
                "--think",
                "100ms",
            ])
            .args(["--connections", "96", "--repeat", "20", "--grace", "60s", "--json", "storm.json"])
            .current_dir(folder)
            .envs([("TIDEGATE_ADMIN_TOKEN", ADMIN), ("TIDEGATE_SALE_SECRET", SECRET)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    /// Sends the crowd home.
    fn end(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// What it found once it has looked up what it was given, which has to be everything.
    fn told(mut self) -> Value {
        self.child.wait().unwrap();
        let file = std::fs::read_to_string(self.folder.join("storm.json")).unwrap();
        let told: Value = serde_json::from_str(&file).unwrap();
        assert_eq!((&told["balanced"], &told["interrupted"]), (&true.into(), &true.into()), "{told}");
        told
    }
}

impl Drop for Storm<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Until some more are sold than now: the sale goes on.
fn goes_on(sale: &Running, what: &str) {
    let sold = || sale.books_now().map_or(0, |books| books["placed"].as_u64().unwrap());
    let before = sold();
    wait_until(what, PATIENCE, || sold() >= before + 20);
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

    let storms = [(&one, &here), (&other, &there)].map(|(sale, folder)| Storm::start(sale, folder.path()));
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

    storms.iter().for_each(Storm::end);
    let told = storms.map(Storm::told);
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
    assert!(told.iter().all(|told| number(told, "/orders/given") > 0), "{told:?}");
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
        let script = process.buying();
        wait_until("it sells", PATIENCE, || crate::shell(&script).contains("order demo-"));
    }
}
