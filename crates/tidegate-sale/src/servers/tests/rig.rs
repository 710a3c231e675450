//! Servers, engines and buyers.

use crate::books::Books;
use crate::engine::{Engine as _, Reserve};
use crate::goods::GoodsId;
use crate::order::OrderSn;
use crate::refusal::Refusal;
use crate::sale::{Change, Sale, SaleState};
use crate::servers::{ServersConfig, ServersEngine};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use testkit::servers::{PostgresServer, RabbitServer, RedisServer};

/// What servers may take on a machine that is busy with other tests.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Three servers.
pub(super) struct Servers {
    pub(super) redis: RedisServer,
    pub(super) rabbit: RabbitServer,
    pub(super) postgres: PostgresServer,
}

impl Servers {
    pub(super) fn start() -> Self {
        Self::with_redis(&[])
    }

    pub(super) fn with_redis(args: &[&str]) -> Self {
        let (redis, postgres) = (RedisServer::with(args), PostgresServer::start());
        Self { redis, rabbit: RabbitServer::start(), postgres }
    }

    /// A place of its own on these servers.
    pub(super) fn config(&self) -> ServersConfig {
        static NTH: AtomicU32 = AtomicU32::new(0);
        let mut config = ServersConfig::new(&self.redis.url(), &self.rabbit.url(), &self.postgres.database());
        config.prefix = format!("sale-{}", NTH.fetch_add(1, Ordering::Relaxed));
        config.shards = 2;
        config.grace = Duration::from_millis(300);
        config.refresh = Duration::from_millis(100);
        config.reconcile = Duration::from_millis(100);
        config
    }
}

/// For all tests that only use them. They end with the test process.
pub(super) fn shared() -> &'static Servers {
    static SHARED: LazyLock<Servers> = LazyLock::new(Servers::start);
    &SHARED
}

pub(super) async fn engine(config: &ServersConfig) -> Arc<ServersEngine> {
    let engine = ServersEngine::open(config.clone()).await.unwrap();
    until("the servers answer", async || engine.core.link.live().is_ok() && engine.core.broker.is_up()).await;
    Arc::new(engine)
}

/// Asks again and again until it is so.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waited = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waited).await.is_ok(), "waited in vain until {what}");
}

pub(super) fn phone() -> GoodsId {
    "phone".parse().unwrap()
}

/// An open sale of this many units.
pub(super) async fn on_sale(engine: &ServersEngine, total: u64, per_user: u32) -> GoodsId {
    let sale = Sale { per_user, ..Sale::new(phone(), total) };
    engine.create(sale, "test").await.unwrap();
    engine.change(&phone(), Change::Warm, "test").await.unwrap();
    engine.change(&phone(), Change::Open, "test").await.unwrap();
    phone()
}

/// Redis forgets everything of this sale, and it is loaded again.
pub(super) async fn forget(engine: &ServersEngine, servers: &Servers) {
    let before = engine.known(&phone()).unwrap().epoch;
    for key in servers.redis.cmd(&["KEYS", &format!("{}:*", engine.core.config.prefix)]).items() {
        servers.redis.cmd(&["DEL", &key.text()]);
    }
    until("it is loaded again", async || {
        let known = engine.known(&phone()).unwrap();
        known.epoch > before && known.left.is_some() && known.state == SaleState::Open
    })
    .await;
}

/// A statement of another session, which takes its time.
pub(super) fn meanwhile(config: &ServersConfig, statements: &str) -> tokio::task::JoinHandle<()> {
    let (url, statements) = (config.postgres.clone(), statements.to_owned());
    tokio::task::spawn_blocking(move || drop(shared().postgres.sql_in(&url, &statements)))
}

/// A buyer with a path of their own.
pub(super) fn buyer(engine: &ServersEngine, user: &str) -> Reserve {
    let mut path = [0; 16];
    getrandom::fill(&mut path).unwrap();
    Reserve {
        goods: phone(),
        user: user.parse().unwrap(),
        quantity: 1,
        path,
        epoch: engine.known(&phone()).map_or(0, |known| known.epoch),
        is_expired: false,
        key: None,
    }
}

pub(super) async fn buy(engine: &ServersEngine, user: &str) -> Result<OrderSn, Refusal> {
    engine.reserve(buyer(engine, user)).await
}

/// Buys until there is an answer that says more than try again.
pub(super) async fn insist(engine: &ServersEngine, user: &str) -> Result<OrderSn, Refusal> {
    let begun = tokio::time::Instant::now();
    let mut reserve = buyer(engine, user);
    loop {
        let answer = engine.reserve(reserve.clone()).await;
        match &answer {
            Err(Refusal::Busy | Refusal::Paused { .. }) if begun.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            // Its epoch is over: it had no order, and gets a new path.
            Err(Refusal::WrongPath) if begun.elapsed() < PATIENCE => reserve = buyer(engine, user),
            _ => return answer,
        }
    }
}

/// Waits until nothing is on its way.
pub(super) async fn at_rest(engine: &ServersEngine) -> Books {
    let mut last = None;
    until("nothing is on its way", async || {
        last = engine.books(&phone()).await.ok().flatten();
        last.as_ref().is_some_and(|books| books.in_flight == books.dead)
    })
    .await;
    last.unwrap()
}

/// The promise: never more than there is, every unit accounted for, and every number that was
/// given out is exactly one row or one dead letter. Says what is wrong.
pub(super) fn check_books(
    servers: &Servers,
    config: &ServersConfig,
    books: &Books,
    answered: &[OrderSn],
) -> Result<(), String> {
    let sql = |text: &str| servers.postgres.sql_in(&config.postgres, text);
    if !books.is_balanced() {
        return Err(format!("not balanced: {books:?}"));
    }
    let sold: u64 = sql("SELECT coalesce(sum(quantity), 0) FROM sale_orders WHERE state IN (1, 2)")
        .trim()
        .parse()
        .unwrap();
    if sold != books.placed || sold > books.total {
        return Err(format!("{sold} units sold: {books:?}"));
    }
    let rows = sql("SELECT order_sn FROM sale_orders UNION ALL SELECT order_sn FROM sale_dead");
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    rows.lines().for_each(|line| *found.entry(line.trim()).or_default() += 1);
    let distinct: BTreeSet<String> = answered.iter().map(ToString::to_string).collect();
    if distinct.len() != answered.len() {
        return Err("a number was given out twice".into());
    }
    match distinct.iter().find(|sn| found.get(sn.as_str()) != Some(&1)) {
        Some(sn) => Err(format!("order {sn} is there {:?} times", found.get(sn.as_str()))),
        None => Ok(()),
    }
}
