//! What all gates of one limiter share: the servers, the thread that talks to them,
//! who is alive, and who holds which place.

use super::accept::accept;
use super::charge::Holder;
use super::config::{Redis, Way};
use super::connection::{at, plain};
use super::gate::RedisGate;
use super::job::{Change, Fault, Job, What};
use super::lane::Waiting;
use super::promise::promise;
use super::sentinel::{self, Sentinels};
use super::serve;
use super::shard::Shard;
use super::stats::{Counters, RedisStats, ShardStats};
use crate::Limit;
use crate::clock::{Clock, MonotonicClock, StoreClock, Timestamp};
use crate::gate::GateError;
use crate::limiter::GateOptions;
use crate::sampler::Sampler;
use crate::store::{Store, StoreGate};
use redis::Value;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// A sign of life this often, and how long one is believed.
const BEAT: Duration = Duration::from_secs(1);
const ALIVE: Duration = Duration::from_secs(5);
/// How often it is looked which places need a sign of life.
const RENEW: Duration = Duration::from_millis(100);
/// The Cluster is looked at this often at most.
const LOOK: Duration = Duration::from_millis(100);
const SLOTS: usize = 16_384;
/// Requests that are refused from memory, and look at the other limits all the same.
const LOOKS_EACH_SECOND: u32 = 1_000;

/// Ends its thread when the last gate is gone.
pub(crate) struct RedisStore {
    pub(crate) core: Arc<Core>,
}

pub(crate) struct Core {
    pub(crate) config: Redis,
    /// Whose time callers see: the process's, or one that was set.
    pub(crate) clock: StoreClock,
    /// True if that clock counts instead of the server's.
    pub(crate) foreign_time: bool,
    /// For deadlines, which are real.
    pub(crate) real: MonotonicClock,
    pub(crate) counters: Counters,
    /// When it was made.
    pub(crate) began: Timestamp,
    /// The name of this node.
    pub(crate) node: String,
    pub(crate) handle: tokio::runtime::Handle,
    /// The one server, where there is only one.
    only: Option<Arc<Shard>>,
    map: RwLock<Map>,
    /// What the sentinels say, where there are any.
    pub(crate) sentinels: Option<Sentinels>,
    look: Notify,
    close: Notify,
    is_closed: AtomicBool,
    /// Nodes alive, as last heard; zero before that.
    nodes: AtomicU32,
    numbers: AtomicU64,
    warn_at_us: AtomicU64,
    /// Looks at what is told beside a refusal.
    looks: Sampler,
    /// The process that has the thread which talks to Redis.
    process: u32,
    /// Gates ever opened.
    gates: AtomicU32,
    /// Servers ever known.
    servers: AtomicUsize,
    holders: Mutex<HashMap<u64, Weak<Holder>>>,
    /// Set when all of them are to be renewed at once.
    renews_all: AtomicBool,
    renew: Notify,
}

/// Which server has which slots.
struct Map {
    /// Indexes of `shards`.
    slots: Vec<u16>,
    shards: Vec<Arc<Shard>>,
}

const NOBODY: u16 = u16::MAX;

impl RedisStore {
    pub(crate) fn new(config: Redis, clock: Option<StoreClock>) -> Self {
        // Whoever has chosen a provider of cryptography keeps it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        #[expect(clippy::expect_used, reason = "without a poll descriptor nothing can be done")]
        let runtime = runtime.expect("the system lets us watch sockets");
        let addresses: Vec<String> = match &config.way {
            Way::Alone(info) => vec![info.addr().to_string()],
            Way::Sentinel { master, .. } => vec![master.clone()],
            Way::Cluster(seeds) => seeds.iter().map(|seed| seed.addr().to_string()).collect(),
        };
        let is_cluster = matches!(config.way, Way::Cluster(_));
        let sentinels = if let Way::Sentinel { sentinels, .. } = &config.way { sentinels.len() } else { 0 };
        let foreign_time = clock.is_some();
        let clock = clock.unwrap_or_else(|| StoreClock::Monotonic(MonotonicClock::new()));
        let began = clock.now();
        let shards: Vec<Arc<Shard>> =
            addresses.into_iter().enumerate().map(|(nth, at)| Arc::new(Shard::new(at, nth, began))).collect();
        let core = Arc::new(Core {
            config,
            clock,
            began,
            foreign_time,
            real: MonotonicClock::new(),
            counters: Counters::default(),
            node: format!("{:016x}", random_word()),
            handle: runtime.handle().clone(),
            only: (!is_cluster).then(|| shards[0].clone()),
            map: RwLock::new(Map {
                slots: vec![0; if is_cluster { SLOTS } else { 0 }],
                shards: shards.clone(),
            }),
            sentinels: (sentinels > 0).then(|| Sentinels::new(sentinels)),
            look: Notify::new(),
            close: Notify::new(),
            is_closed: AtomicBool::new(false),
            nodes: AtomicU32::new(0),
            numbers: AtomicU64::new(1),
            servers: AtomicUsize::new(shards.len()),
            warn_at_us: AtomicU64::new(0),
            looks: Sampler::default(),
            process: crate::process::id(),
            gates: AtomicU32::new(0),
            holders: Mutex::default(),
            renews_all: AtomicBool::new(false),
            renew: Notify::new(),
        });
        for nth in 0..sentinels {
            core.handle.spawn(sentinel::follow(core.clone(), nth));
        }
        for shard in shards {
            core.handle.spawn(serve::run(core.clone(), shard));
        }
        core.handle.spawn(beat(core.clone()));
        core.handle.spawn(renew(core.clone()));
        if is_cluster {
            core.handle.spawn(look_around(core.clone()));
        }
        let for_thread = core.clone();
        let thread = std::thread::Builder::new().name("tidegate-redis".into());
        let started = thread.spawn(move || runtime.block_on(until_closed(&for_thread)));
        #[expect(clippy::expect_used, reason = "without a thread nothing can be done")]
        started.expect("the system gives us a thread");
        Self { core }
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.core.is_closed.store(true, Ordering::Relaxed);
        self.core.close.notify_one();
    }
}

impl Store for RedisStore {
    fn accepts(&self, name: &str, limit: &Limit, options: &GateOptions) -> Result<(), GateError> {
        accept(name, limit, options.redis.lease.is_some())
    }

    fn open(self: Arc<Self>, name: &str, limit: Limit, options: &GateOptions) -> Arc<dyn StoreGate> {
        let id = self.core.gates.fetch_add(1, Ordering::Relaxed);
        Arc::new(RedisGate::new(id, name, limit, self, &options.redis))
    }
}

/// Runs the servers' tasks until the limiter is gone, and what it still had to say.
async fn until_closed(core: &Core) {
    core.close.notified().await;
    for _ in 0..10 {
        if core.shards().iter().all(|shard| shard.is_idle()) {
            break;
        }
        tokio::time::sleep(core.config.deadline / 10).await;
    }
    // What was sent last may still be on its way.
    tokio::time::sleep(Duration::from_millis(5)).await;
}

impl Core {
    /// The Unix time at which the clock that counts shows zero: the server's shows Unix time.
    pub(crate) fn unix_us_at_zero(&self) -> u64 {
        if self.foreign_time { self.clock.unix_us_at_zero() } else { 0 }
    }

    /// The real time.
    pub(crate) fn now(&self) -> Timestamp {
        self.real.now()
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.only.is_none()
    }

    /// True in a process that has it by `fork`: the thread that talks to Redis did not come
    /// along, and whoever waited for it would wait for ever. Looked at before every wait.
    pub(crate) fn is_inherited(&self) -> bool {
        crate::process::id() != self.process
    }

    /// True a bounded number of times a second: what another limit would say beside a refusal
    /// may be looked at, but a flood of refusals stays cheap.
    pub(crate) fn may_look(&self) -> bool {
        self.looks.admit(self.now(), LOOKS_EACH_SECOND).is_some()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// The server that has this slot.
    pub(crate) fn shard_of(&self, slot: impl FnOnce() -> u16) -> Option<Arc<Shard>> {
        if let Some(only) = &self.only {
            return Some(only.clone());
        }
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.shards.get(usize::from(*map.slots.get(usize::from(slot()))?)).cloned()
    }

    pub(crate) fn shards(&self) -> Vec<Arc<Shard>> {
        self.map.read().unwrap_or_else(PoisonError::into_inner).shards.clone()
    }

    /// The server at this address.
    pub(crate) fn shard_at(self: &Arc<Self>, address: &str) -> Option<Arc<Shard>> {
        self.found_at(address, None)
    }

    /// A server says that a slot is at this address now.
    pub(crate) fn moved(self: &Arc<Self>, address: &str, slot: u16) -> Option<Arc<Shard>> {
        self.found_at(address, Some(slot))
    }

    fn found_at(self: &Arc<Self>, address: &str, slot: Option<u16>) -> Option<Arc<Shard>> {
        // A server that does not know its own name sends an empty one.
        if address.starts_with(':') {
            return None;
        }
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let at = self.index_of(&mut map, address);
        if let Some(held) = slot.and_then(|slot| map.slots.get_mut(usize::from(slot))) {
            *held = at;
        }
        Some(map.shards[usize::from(at)].clone())
    }

    fn index_of(self: &Arc<Self>, map: &mut Map, address: &str) -> u16 {
        let at = map.shards.iter().position(|shard| shard.address() == address).unwrap_or_else(|| {
            // It has answered nobody yet: what was admitted elsewhere before counts.
            let number = self.servers.fetch_add(1, Ordering::Relaxed);
            let shard = Arc::new(Shard::new(address.to_string(), number, self.clock.now()));
            self.handle.spawn(serve::run(self.clone(), shard.clone()));
            map.shards.push(shard);
            map.shards.len() - 1
        });
        u16::try_from(at).unwrap_or(NOBODY)
    }

    /// Asks the Cluster again who has what; soon, not now.
    pub(crate) fn look_around(&self) {
        self.look.notify_one();
    }

    /// Something suggests that there is another master.
    pub(crate) fn ask_sentinels(&self) {
        if let Some(sentinels) = &self.sentinels {
            sentinels.ask();
        }
    }

    /// Asks at once whether every place that is held here still is.
    pub(crate) fn ask_for_holders(&self) {
        self.renews_all.store(true, Ordering::Relaxed);
        self.renew.notify_one();
    }

    /// Has something done, if the server is there; it says so itself if it is not.
    pub(crate) fn change(&self, change: Change) {
        let job = Job::Change(change);
        if self.is_inherited() {
            return job.fail(Fault::default());
        }
        match self.shard_of(|| job.slot()) {
            Some(shard) => shard.put(Waiting::new(job, false)),
            None => job.fail(Fault::default()),
        }
    }

    /// The number of nodes that share the limits, if it is known.
    pub(crate) fn nodes(&self) -> Option<u32> {
        match self.nodes.load(Ordering::Relaxed) {
            0 => self.config.nodes,
            heard => Some(heard),
        }
    }

    /// Numbers for so many places.
    pub(crate) fn numbers(&self, places: u64) -> u64 {
        self.numbers.fetch_add(places, Ordering::Relaxed)
    }

    pub(crate) fn hold(&self, number: u64, holder: &Arc<Holder>) {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::downgrade(holder));
    }

    pub(crate) fn let_go(&self, number: u64) {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
    }

    pub(crate) fn stats(&self) -> RedisStats {
        let shard = |shard: &Arc<Shard>| ShardStats { address: shard.address(), is_up: shard.is_up() };
        RedisStats {
            nodes: self.nodes(),
            shards: self.shards().iter().map(shard).collect(),
            ..self.counters.read()
        }
    }

    /// True once a second: what goes wrong with every call is said that often.
    pub(crate) fn may_warn(&self) -> bool {
        let (now_us, next_us) = (self.now().as_micros(), self.warn_at_us.load(Ordering::Relaxed));
        let next = now_us + 1_000_000;
        now_us >= next_us
            && self.warn_at_us.compare_exchange(next_us, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// From zero to one.
    pub(crate) fn random(&self) -> f64 {
        random_word() as f64 / u64::MAX as f64
    }
}

fn random_word() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Tells the others that this node is alive, and hears how many are.
async fn beat(core: Arc<Core>) {
    let life_us = u64::try_from(ALIVE.as_micros()).unwrap_or(u64::MAX);
    while !core.is_closed() {
        let (promise, heard) = promise();
        let what = What::Beat { node: core.node.clone(), life_us };
        core.change(Change { key: None, what, since: core.now(), promise: Some(promise) });
        if let Ok(Some(Ok(told))) = tokio::time::timeout(BEAT, heard).await
            && let [nodes, counted_us] = told.as_slice()
            && let (Ok(nodes), Ok(counted_us)) = (u32::try_from(*nodes), u64::try_from(*counted_us))
        {
            // Fewer is believed only of a server that has counted for as long as a sign of life
            // is believed: one that comes back empty hears the nodes one after the other.
            if nodes >= core.nodes.load(Ordering::Relaxed) || counted_us >= life_us {
                core.nodes.store(nodes.max(1), Ordering::Relaxed);
            }
            tokio::time::sleep(BEAT.mul_f64(0.5 + core.random())).await;
        } else {
            tokio::time::sleep(BEAT.mul_f64(0.05 + core.random() / 10.0)).await;
        }
    }
}

/// Renews the places that are held here.
async fn renew(core: Arc<Core>) {
    while !core.is_closed() {
        let _ = tokio::time::timeout(RENEW, core.renew.notified()).await;
        let all = core.renews_all.swap(false, Ordering::Relaxed);
        let due: Vec<Arc<Holder>> = {
            let mut holders = core.holders.lock().unwrap_or_else(PoisonError::into_inner);
            holders.retain(|_, holder| holder.strong_count() > 0);
            holders.values().filter_map(Weak::upgrade).filter(|holder| holder.is_due(all)).collect()
        };
        let mut by_key: HashMap<(u32, u64), Vec<Arc<Holder>>> = HashMap::new();
        for holder in due {
            by_key.entry((holder.key.meter.id, holder.key.hash)).or_default().push(holder);
        }
        for holders in by_key.into_values() {
            for holders in holders.chunks(64) {
                let named = |holder: &Arc<Holder>| (holder.clone(), holder.member());
                let what = What::Renew { holders: holders.iter().map(named).collect() };
                let key = Some(holders[0].key.clone());
                core.change(Change { key, what, since: core.now(), promise: None });
            }
        }
    }
}

/// Keeps the map of a Cluster.
async fn look_around(core: Arc<Core>) {
    let Way::Cluster(seeds) = &core.config.way else { return };
    while !core.is_closed() {
        // Those that answer first: one that is cut off from the others knows an old map.
        let mut shards = core.shards();
        shards.sort_by_key(|shard| !shard.is_up());
        let known: Vec<String> = shards.iter().map(|shard| shard.address()).collect();
        let seeded = seeds.iter().map(|seed| seed.addr().to_string());
        for address in known.into_iter().chain(seeded) {
            let Ok(info) = at(&seeds[0], &address) else { continue };
            let host = address.rsplit_once(':').map_or("", |(host, _)| host).to_string();
            let asked = async {
                let mut connection = plain(&core, info).await.ok()?;
                redis::cmd("CLUSTER").arg("SLOTS").query_async::<Value>(&mut connection).await.ok()
            };
            if let Ok(Some(slots)) = tokio::time::timeout(Duration::from_millis(500), asked).await
                && core.learn(&slots, &host)
            {
                break;
            }
        }
        tokio::time::sleep(LOOK).await;
        // Also without a reason now and then: a server that comes back tells nobody.
        let _ = tokio::time::timeout(Duration::from_secs(10), core.look.notified()).await;
    }
}

impl Core {
    /// Takes over what `CLUSTER SLOTS` says; false if it makes no sense.
    fn learn(self: &Arc<Self>, slots: &Value, host: &str) -> bool {
        let Value::Array(ranges) = slots else { return false };
        let mut owners: Vec<Option<String>> = vec![None; SLOTS];
        for range in ranges {
            let Value::Array(range) = range else { return false };
            let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range.as_slice() else {
                return false;
            };
            let [name, Value::Int(port), ..] = master.as_slice() else { return false };
            let name = match name {
                Value::BulkString(name) if !name.is_empty() => String::from_utf8_lossy(name).into_owned(),
                _ => host.to_string(),
            };
            let (Ok(first), Ok(last)) = (usize::try_from(*first), usize::try_from(*last)) else {
                return false;
            };
            for owner in owners.iter_mut().take(last + 1).skip(first) {
                *owner = Some(format!("{name}:{port}"));
            }
        }
        if owners.iter().all(Option::is_none) {
            return false;
        }
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        let mut shards: Vec<Arc<Shard>> = Vec::new();
        let mut indexes: HashMap<String, u16> = HashMap::new();
        for (slot, owner) in owners.into_iter().enumerate() {
            let Some(owner) = owner else {
                map.slots[slot] = NOBODY;
                continue;
            };
            let index = *indexes.entry(owner.clone()).or_insert_with(|| {
                let held = self.index_of(&mut map, &owner);
                shards.push(map.shards[usize::from(held)].clone());
                u16::try_from(shards.len() - 1).unwrap_or(NOBODY)
            });
            map.slots[slot] = index;
        }
        let before = std::mem::replace(&mut map.shards, shards);
        for shard in before.iter().filter(|shard| !map.shards.iter().any(|kept| Arc::ptr_eq(shard, kept))) {
            shard.retire();
        }
        true
    }
}
