//! The store of one limiter, and the client that its gates share: the servers, the thread that
//! talks to them, the clock, the counters.

use super::config::{Deployment, Redis};
use super::gate::RedisGate;
use super::gate::accept::accept;
use super::heartbeat;
use super::held_slots::{self, HeldSlots};
use super::request::{GateKey, KeyUpdate, Numbers, Operation, UpdateKind};
use super::server::request_queue::{QueuedOperation, RequestQueue};
use super::server::{RedisServer, supervise};
use super::stats::{Counters, RedisStats, ShardStats};
use super::topology::cluster::{self, ServerMap};
use super::topology::sentinel::{self, Sentinels};
use crate::Limit;
use crate::clock::{Clock, MonotonicClock, StoreClock, Timestamp};
use crate::gate::GateError;
use crate::limiter::GateOptions;
use crate::sampler::Sampler;
use crate::store::{Store, StoreGate};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// Requests that are denied from the cache, and look at their other limits all the same.
const LOOKS_EACH_SECOND: u32 = 1_000;

/// Ends its thread when the last gate is gone.
pub(crate) struct RedisStore {
    pub(super) client: Arc<RedisClient>,
}

pub(crate) struct RedisClient {
    pub(super) config: Redis,
    /// Whose time callers see: the process's, or one that was set.
    pub(super) clock: StoreClock,
    /// True if that clock counts instead of the server's.
    pub(super) sends_time: bool,
    /// For deadlines, which are real.
    real: MonotonicClock,
    pub(super) counters: Counters,
    pub(super) began: Timestamp,
    /// The name of this node.
    pub(super) node: String,
    pub(super) handle: tokio::runtime::Handle,
    pub(super) map: ServerMap,
    pub(super) sentinels: Sentinels,
    /// Nodes alive, as last heard; zero before that.
    pub(super) nodes: AtomicU32,
    pub(super) held_slots: HeldSlots,
    close: Notify,
    is_closed: AtomicBool,
    warnings: Sampler,
    /// Looks at limits beside a denial.
    looks: Sampler,
    /// The process that has the thread which talks to Redis.
    pub(super) process: u32,
    /// Gates ever opened.
    gates: AtomicU32,
    /// Numbers ever given out: to versions of limits, leases and holders of slots.
    numbers: AtomicU64,
}

impl RedisStore {
    pub(crate) fn new(config: Redis, clock: Option<StoreClock>) -> Self {
        // Whoever has chosen a provider of cryptography keeps it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        #[expect(clippy::expect_used, reason = "without a poll descriptor nothing can be done")]
        let runtime = runtime.expect("the system lets us watch sockets");
        let (addresses, sentinels) = match &config.deployment {
            Deployment::Sentinel { master, sentinels, .. } => (vec![master.clone()], sentinels.len()),
            Deployment::Single(_) | Deployment::Cluster(_) => (config.deployment.addresses(), 0),
        };
        let is_cluster = matches!(config.deployment, Deployment::Cluster(_));
        let sends_time = clock.is_some();
        let clock = clock.unwrap_or_else(|| StoreClock::Monotonic(MonotonicClock::new()));
        let began = clock.now();
        let client = Arc::new(RedisClient {
            config,
            clock,
            sends_time,
            real: MonotonicClock::new(),
            counters: Counters::default(),
            began,
            node: format!("{:016x}", random_word()),
            handle: runtime.handle().clone(),
            map: ServerMap::new(addresses, is_cluster, began),
            sentinels: Sentinels::new(sentinels),
            nodes: AtomicU32::new(0),
            held_slots: HeldSlots::default(),
            close: Notify::new(),
            is_closed: AtomicBool::new(false),
            warnings: Sampler::default(),
            looks: Sampler::default(),
            process: crate::process::id(),
            gates: AtomicU32::new(0),
            numbers: AtomicU64::new(0),
        });
        for nth in 0..sentinels {
            client.handle.spawn(sentinel::follow(client.clone(), nth));
        }
        for server in client.map.servers() {
            client.handle.spawn(supervise::run(client.clone(), server));
        }
        client.handle.spawn(heartbeat::run(client.clone()));
        client.handle.spawn(held_slots::run(client.clone()));
        if is_cluster {
            client.handle.spawn(cluster::follow(client.clone()));
        }
        let for_thread = client.clone();
        let thread = std::thread::Builder::new().name("tidegate-redis".into());
        let started = thread.spawn(move || runtime.block_on(until_closed(&for_thread)));
        #[expect(clippy::expect_used, reason = "without a thread nothing can be done")]
        started.expect("the system gives us a thread");
        Self { client }
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.client.is_closed.store(true, Ordering::Relaxed);
        self.client.close.notify_one();
    }
}

impl Store for RedisStore {
    fn accepts(&self, name: &str, limit: &Limit, options: &GateOptions) -> Result<(), GateError> {
        accept(name, limit, options.redis.lease.is_some())
    }

    fn open(self: Arc<Self>, name: &str, limit: Limit, options: &GateOptions) -> Arc<dyn StoreGate> {
        let id = self.client.gates.fetch_add(1, Ordering::Relaxed);
        Arc::new(RedisGate::new(id, name, limit, self, &options.redis))
    }
}

impl RedisStore {
    pub(crate) fn stats(&self) -> RedisStats {
        let shard =
            |server: &Arc<RedisServer>| ShardStats { address: server.address(), is_up: server.is_up() };
        RedisStats {
            nodes: self.client.nodes(),
            shards: self.client.map.servers().iter().map(shard).collect(),
            ..self.client.counters.read()
        }
    }
}

/// Runs the servers' tasks until the limiter is gone and its queues are empty.
async fn until_closed(client: &RedisClient) {
    client.close.notified().await;
    for _ in 0..10 {
        if client.map.servers().iter().flat_map(|server| &server.queues).all(RequestQueue::is_empty) {
            break;
        }
        tokio::time::sleep(client.config.deadline / 10).await;
    }
    // What was sent last may still be on its way.
    tokio::time::sleep(Duration::from_millis(5)).await;
}

impl RedisClient {
    /// The real time.
    pub(crate) fn now(&self) -> Timestamp {
        self.real.now()
    }

    /// True a bounded number of times a second: what another limit would say beside a denial is
    /// looked at, but a flood of denials stays cheap.
    pub(crate) fn may_look(&self) -> bool {
        self.looks.admit(self.now(), LOOKS_EACH_SECOND).is_some()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// The first of so many numbers that nothing else of this node has.
    pub(crate) fn numbers(&self, count: u64) -> u64 {
        self.numbers.fetch_add(count, Ordering::Relaxed) + 1
    }

    /// Sends an update of a key, or of this node if there is none. Whoever waits for its answer
    /// hears if the server is not there.
    pub(crate) fn send(&self, key: Option<GateKey>, kind: UpdateKind) -> oneshot::Receiver<Numbers> {
        let (answer, numbers) = oneshot::channel();
        let operation = Operation::Update(KeyUpdate { key, kind, since: self.now(), answer: Some(answer) });
        if let Some(server) = self.server_of(|| operation.hash_slot()) {
            server.push(QueuedOperation::new(operation, false));
        }
        numbers
    }

    /// The number of nodes that share the limits, if it is known.
    pub(crate) fn nodes(&self) -> Option<u32> {
        Some(self.nodes.load(Ordering::Relaxed)).filter(|nodes| *nodes > 0).or(self.config.nodes)
    }

    /// True once a second: what goes wrong with every call is logged that often.
    pub(crate) fn may_warn(&self) -> bool {
        self.warnings.admit(self.now(), 1).is_some()
    }

    /// From zero to one.
    pub(crate) fn random(&self) -> f64 {
        random_word() as f64 / u64::MAX as f64
    }
}

fn random_word() -> u64 {
    RandomState::new().build_hasher().finish()
}
