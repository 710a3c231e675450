//! Two faults at once, while orders are acknowledged and not yet in PostgreSQL. Every order
//! that was acknowledged is placed or dead-lettered in the end; a sale that misses a number is
//! held, names it, and goes on when it is told to.
//!
//! Where PostgreSQL itself goes back in time, orders that it had are nowhere else if Redis is
//! lost too: these are named.

use super::restored::{back_up_on, restore_on};
use super::rig::{PATIENCE, Servers, buyer, engine, on_sale, phone, until};
use crate::books::Books;
use crate::engine::Engine as _;
use crate::order::OrderSn;
use crate::sale::{Change, SaleState};
use crate::servers::{AnswerAfter, ServersConfig, ServersEngine};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const CHILD: &str = "TIDEGATE_SALE_LOSS_CHILD";
const TOTAL: u64 = 1_000_000;

/// Orders that each process takes at least, before and after PostgreSQL stands still.
const SOME: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    RedisKilled,
    RedisFlushed,
    RedisRolledBack,
    RabbitKilled,
    RabbitDiskLost,
    PostgresKilled,
    PostgresRolledBack,
    ProcessKilled,
}

use Fault::{
    PostgresKilled, PostgresRolledBack, ProcessKilled, RabbitDiskLost, RabbitKilled, RedisFlushed,
    RedisKilled, RedisRolledBack,
};

/// The most telling first.
const PAIRS: [[Fault; 2]; 28] = [
    [RabbitKilled, RedisFlushed],
    [RedisFlushed, RabbitDiskLost],
    [ProcessKilled, RedisFlushed],
    [ProcessKilled, RabbitDiskLost],
    [RabbitDiskLost, RedisRolledBack],
    [PostgresKilled, RedisFlushed],
    [RedisKilled, RedisFlushed],
    [RedisKilled, RedisRolledBack],
    [RedisKilled, RabbitKilled],
    [RedisKilled, RabbitDiskLost],
    [RedisKilled, PostgresKilled],
    [RedisKilled, ProcessKilled],
    [RedisFlushed, RedisRolledBack],
    [RedisRolledBack, RabbitKilled],
    [RedisRolledBack, PostgresKilled],
    [RedisRolledBack, ProcessKilled],
    [RabbitKilled, RabbitDiskLost],
    [RabbitKilled, PostgresKilled],
    [RabbitKilled, ProcessKilled],
    [RabbitDiskLost, PostgresKilled],
    [PostgresKilled, ProcessKilled],
    [RedisKilled, PostgresRolledBack],
    [RedisFlushed, PostgresRolledBack],
    [RedisRolledBack, PostgresRolledBack],
    [RabbitKilled, PostgresRolledBack],
    [RabbitDiskLost, PostgresRolledBack],
    [PostgresKilled, PostgresRolledBack],
    [ProcessKilled, PostgresRolledBack],
];

/// Of them, in the short form.
const TELLING: usize = 6;

impl Fault {
    fn strike(self, servers: &Servers, config: &ServersConfig, process: &mut Process) {
        match self {
            RedisKilled => servers.redis.kill(),
            RedisFlushed => drop(servers.redis.cmd(&["FLUSHALL"]).accepted()),
            // What it wrote since its log was switched off is gone.
            RedisRolledBack => servers.redis.restart(),
            RabbitKilled => servers.rabbit.kill(),
            RabbitDiskLost => servers.rabbit.lose_disk(),
            PostgresKilled => servers.postgres.kill(),
            PostgresRolledBack => restore_on(servers, config),
            ProcessKilled => process.kill(),
        }
    }

    fn mend(self, servers: &Servers) {
        match self {
            RedisKilled => servers.redis.restart(),
            RabbitKilled | RabbitDiskLost => servers.rabbit.restart(),
            PostgresKilled => servers.postgres.restart(),
            RedisFlushed | RedisRolledBack | PostgresRolledBack | ProcessKilled => {}
        }
    }

    fn is_redis(self) -> bool {
        matches!(self, RedisKilled | RedisFlushed | RedisRolledBack)
    }

    fn is_postgres(self) -> bool {
        matches!(self, PostgresKilled | PostgresRolledBack)
    }
}

/// Buys again and again; what it is told goes to its output.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "only as a child of the tests below"]
async fn child() {
    let Ok(text) = std::env::var(CHILD) else { return };
    let [redis, amqp, postgres, prefix, after] = text.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    let mut config = ServersConfig::new(redis, amqp, postgres);
    config.prefix = prefix.into();
    config.refresh = Duration::from_millis(100);
    if after == "Redis" {
        config.answer_after = AnswerAfter::Redis;
    }
    let engine = engine(&config).await;
    until("the stock is loaded", async || engine.known(&phone()).is_some_and(|known| known.left.is_some()))
        .await;
    buy_on(&engine, "child", &AtomicBool::new(false), |sn| println!("\nANSWERED {sn}")).await;
}

/// Whatever is refused is asked for again, for as long as it is not over.
async fn buy_on(engine: &ServersEngine, name: &str, is_over: &AtomicBool, told: impl Fn(OrderSn)) {
    for nth in 0.. {
        let mut reserve = buyer(engine, &format!("{name}-{nth}"));
        loop {
            if is_over.load(Ordering::SeqCst) {
                return;
            }
            match engine.reserve(reserve.clone()).await {
                Ok(sn) => break told(sn),
                // A path of an epoch that is over.
                Err(crate::refusal::Refusal::WrongPath) => reserve = buyer(engine, &format!("{name}-{nth}")),
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Some hundred in a second: nobody measures here.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// A process of its own that buys.
pub(super) struct Process {
    child: Child,
    answered: Arc<Mutex<Vec<OrderSn>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Process {
    pub(super) fn start(config: &ServersConfig) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["servers::tests::loss::child", "--exact", "--ignored", "--nocapture"]);
        let after = format!("{:?}", config.answer_after);
        let place = [&config.redis, &config.amqp, &config.postgres, &config.prefix, &after];
        command.env(CHILD, place.map(String::as_str).join(" "));
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let answered = Arc::new(Mutex::new(Vec::new()));
        let inner = answered.clone();
        let reader = std::thread::spawn(move || {
            for sn in lines.filter_map(|line| line.strip_prefix("ANSWERED ").map(str::to_owned)) {
                // A last line may have been cut off.
                inner.lock().unwrap().extend(sn.parse::<OrderSn>());
            }
        });
        Self { child, answered, reader: Some(reader) }
    }

    pub(super) fn count(&self) -> usize {
        self.answered.lock().unwrap().len()
    }

    /// As `kill -9`. Whatever it was told has been read then.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            reader.join().unwrap();
        }
    }

    pub(super) fn answered(&self) -> Vec<OrderSn> {
        self.answered.lock().unwrap().clone()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// PostgreSQL writes no order, and whatever is acknowledged is elsewhere.
pub(super) async fn stand_still(config: &ServersConfig) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(&config.postgres, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; SELECT FROM sale_goods FOR UPDATE").await.unwrap();
    client
}

pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

async fn survives(servers: &Arc<Servers>, [first, second]: [Fault; 2]) {
    let config = servers.config();
    servers.redis.cmd(&["CONFIG", "SET", "appendonly", "yes"]).accepted();
    let one = engine(&config).await;
    on_sale(&one, TOTAL, 5).await;
    let inner = servers.clone();
    blocking(move || inner.rabbit.sync()).await;
    let mut process = Process::start(&config);
    let (is_over, own) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let buyers = {
        let (engine, is_over, own) = (one.clone(), is_over.clone(), own.clone());
        tokio::spawn(async move {
            buy_on(&engine, "own", &is_over, |sn| own.lock().unwrap().push(sn)).await;
        })
    };
    let counts = |process: &Process| (own.lock().unwrap().len(), process.count());
    let more = async |process: &Process| {
        let (from, other_from) = counts(process);
        until("both buy", async || {
            let (now, other) = counts(process);
            now >= from + SOME && other >= other_from + SOME
        })
        .await;
    };
    more(&process).await;
    // What it had since then is what it loses.
    let goes_back = second == PostgresRolledBack;
    let still = if goes_back {
        back_up_on(servers, &config);
        None
    } else {
        Some(stand_still(&config).await)
    };
    if [first, second].contains(&RedisRolledBack) {
        servers.redis.cmd(&["CONFIG", "SET", "appendonly", "no"]).accepted();
    }
    more(&process).await;
    let (inner, place) = (servers.clone(), config.clone());
    let process = blocking(move || {
        first.strike(&inner, &place, &mut process);
        // The same server has to be there to be struck again.
        if first.is_redis() && second.is_redis() || first.is_postgres() && second.is_postgres() {
            first.mend(&inner);
        }
        second.strike(&inner, &place, &mut process);
        process
    })
    .await;
    if let Some(still) = still {
        // It may have been killed.
        let _ = still.batch_execute("ROLLBACK").await;
    }
    let inner = servers.clone();
    blocking(move || [first, second].iter().for_each(|fault| fault.mend(&inner))).await;
    let settled = |state: &SaleState, left: Option<u64>| match state {
        SaleState::Open => left.is_some(),
        SaleState::Paused { reason, .. } => reason.contains("cannot be found"),
        _ => false,
    };
    let mut last = None;
    let what = async || {
        last = one.known(&phone());
        last.as_ref().is_some_and(|known| settled(&known.state, known.left))
    };
    let is_settled = tokio::time::timeout(PATIENCE, wait(what)).await.is_ok();
    assert!(is_settled, "{first:?} and {second:?}: {last:?} {:?}", one.ready());
    is_over.store(true, Ordering::SeqCst);
    buyers.await.unwrap();
    let process = blocking(move || {
        let mut process = process;
        process.kill();
        process
    })
    .await;
    let answered = [own.lock().unwrap().clone(), process.answered()].concat();
    let books = at_rest(&one).await;
    if !named(servers, &config).is_empty() {
        let state = &one.known(&phone()).unwrap().state;
        assert!(matches!(state, SaleState::Paused { .. }), "{first:?} and {second:?}: {state:?}");
        one.change(&phone(), Change::Resume, "test").await.unwrap();
    }
    // Two of three may lose it, if PostgreSQL keeps what it had.
    let missing = if goes_back { named(servers, &config) } else { BTreeSet::new() };
    accounted(servers, &config, &books, &answered, &missing)
        .unwrap_or_else(|why| panic!("{first:?} and {second:?}: {why}"));
    until("it sells", async || super::rig::buy(&one, "late").await.is_ok()).await;
    one.stop().await;
}

async fn wait(mut is_so: impl AsyncFnMut() -> bool) {
    while !is_so().await {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until what was acknowledged has arrived.
async fn at_rest(engine: &ServersEngine) -> Books {
    let mut last = None;
    until("nothing is on its way", async || {
        last = engine.books(&phone()).await.ok().flatten();
        last.as_ref().is_some_and(|books| books.in_flight <= books.dead)
    })
    .await;
    last.unwrap()
}

/// Numbers that a held sale has named as missing.
pub(super) fn named(servers: &Servers, config: &ServersConfig) -> BTreeSet<String> {
    let lines = servers.postgres.sql_in(&config.postgres, "SELECT what FROM sale_audit WHERE by = 'count'");
    let mut all = BTreeSet::new();
    for line in lines.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        for list in ["surely_acknowledged", "perhaps_acknowledged"] {
            for range in line[list].as_array().unwrap() {
                let range = range.as_str().unwrap();
                let (first, last) = range.split_once(" to ").unwrap_or((range, ""));
                let (rest, nth) = first.rsplit_once('-').unwrap();
                let nth: u64 = nth.parse().unwrap();
                all.extend((nth..=last.parse().unwrap_or(nth)).map(|nth| format!("{rest}-{nth}")));
            }
        }
    }
    all
}

/// The promise: nothing sold twice, and every number that was acknowledged is one row, one dead
/// letter, or named as missing. Says what is wrong.
pub(super) fn accounted(
    servers: &Servers,
    config: &ServersConfig,
    books: &Books,
    answered: &[OrderSn],
    named: &BTreeSet<String>,
) -> Result<(), String> {
    if !books.is_balanced() {
        return Err(format!("not balanced: {books:?}"));
    }
    let sql = "SELECT order_sn FROM sale_orders UNION ALL SELECT order_sn FROM sale_dead";
    let rows = servers.postgres.sql_in(&config.postgres, sql);
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    rows.lines().for_each(|line| *found.entry(line.trim()).or_default() += 1);
    let distinct: BTreeSet<String> = answered.iter().map(ToString::to_string).collect();
    if distinct.len() != answered.len() {
        return Err("a number was given out twice".into());
    }
    let is_lost = |sn: &&String| found.get(sn.as_str()) != Some(&1) && !named.contains(*sn);
    let lost: Vec<&String> = distinct.iter().filter(is_lost).collect();
    match lost.first() {
        Some(sn) => Err(format!("{} of {} acknowledged are gone, such as {sn}", lost.len(), distinct.len())),
        None => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_faults_lose_what_was_acknowledged() {
    let kept = ["--appendonly", "yes", "--appendfsync", "always"];
    let servers = Arc::new(blocking(move || Servers::with_redis(&kept)).await);
    let pairs = if testkit::suite::cases() > 1 { PAIRS.len() } else { TELLING };
    for pair in &PAIRS[..pairs] {
        survives(&servers, *pair).await;
    }
    // The check is worth something.
    let config = servers.config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let books = at_rest(&engine).await;
    let lost: OrderSn = "phone-1-999".parse().unwrap();
    let check = |named: &[&OrderSn]| {
        let named = named.iter().map(ToString::to_string).collect();
        accounted(&servers, &config, &books, std::slice::from_ref(&lost), &named)
    };
    assert!(check(&[]).unwrap_err().contains("phone-1-999"));
    check(&[&lost]).unwrap();
}

/// It sold on until the books missed something, and then waited for somebody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_lost_its_disk_is_noticed_at_once_and_nothing_is_lost() {
    let servers = Arc::new(blocking(Servers::start).await);
    let mut config = servers.config();
    // The books notice nothing before this.
    config.reconcile = PATIENCE * 10;
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let still = stand_still(&config).await;
    let sn = super::rig::buy(&engine, "ann").await.unwrap();
    let inner = servers.clone();
    blocking(move || inner.rabbit.lose_disk()).await;
    still.batch_execute("ROLLBACK").await.unwrap();
    let inner = servers.clone();
    blocking(move || inner.rabbit.restart()).await;
    until("it is said", async || {
        let lines = engine.audit(&phone(), 10).await.unwrap();
        lines.iter().any(|line| line.by == "broker" && line.what.contains("RabbitMQ has lost its queues"))
    })
    .await;
    until("it goes on", async || {
        let known = engine.known(&phone()).unwrap();
        known.epoch == 2 && known.state == SaleState::Open
    })
    .await;
    let books = at_rest(&engine).await;
    assert_eq!((books.placed, books.left), (1, 9), "{books:?}");
    accounted(&servers, &config, &books, &[sn], &BTreeSet::new()).unwrap();
}
