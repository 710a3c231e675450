//! One gate in Redis: its limit, the layers before the network, and the fallback behind it.

pub(crate) mod accept;
pub(crate) mod charge;
pub(crate) mod denial_cache;
pub(crate) mod fallback;
pub(crate) mod gate_limit;
pub(crate) mod lease;
mod per_node_share;
mod slot_queue;
mod transaction;

use super::config::{Fallback, RedisGateOptions};
use super::lock;
use super::request::{GateKey, RefundedCharge};
use super::server::RedisServer;
use super::store::{RedisClient, RedisStore};
use crate::Limit;
use crate::check::OwnedCheck;
use crate::clock::Timestamp;
use crate::gate::Gate;
use crate::key::KeyHasher;
use crate::store::cancelled::Cancelled;
use denial_cache::DenialCache;
use gate_limit::GateLimit;
use lease::Leases;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

pub(crate) struct RedisGate {
    pub(crate) id: u32,
    pub(crate) name: Box<str>,
    store: Arc<RedisStore>,
    /// How long a slot is held without a sign of life.
    pub(crate) slot_lease: Duration,
    fallback: Fallback,
    /// The node's share of the limit, made when it is first needed.
    share: OnceLock<Gate>,
    leases: Option<Leases>,
    /// Charges that were cancelled while others had reserved behind them, with their version.
    cancelled: Cancelled<(u64, RefundedCharge)>,
    hasher: KeyHasher,
    version: RwLock<Arc<GateLimit>>,
    /// The limits that checks bring along. Those with equal ones share a version, as long as there
    /// is room for it: by it they share calls and cached denials.
    own_limits: Mutex<HashMap<Limit, Arc<GateLimit>>>,
    denial_cache: Option<DenialCache>,
    /// Requests about the same key share a call.
    coalesces: bool,
    /// When each server answered this gate last, on the local clock; servers whose numbers are
    /// alike share the later one.
    answered_us: [AtomicU64; SERVERS],
}

const SERVERS: usize = 16;
const OWN_LIMITS_MAX: usize = 256;

impl RedisGate {
    pub(crate) fn new(
        id: u32,
        name: &str,
        limit: Limit,
        store: Arc<RedisStore>,
        options: &RedisGateOptions,
    ) -> Self {
        let slot_lease = options.slot_lease;
        Self {
            id,
            name: name.into(),
            slot_lease,
            fallback: options.fallback.clone(),
            share: OnceLock::new(),
            leases: options.lease.map(Leases::new),
            cancelled: Cancelled::new(),
            hasher: KeyHasher::random(),
            version: RwLock::new(Arc::new(GateLimit::new(&store.client, limit, slot_lease))),
            own_limits: Mutex::default(),
            denial_cache: options.caches_denials.then(|| DenialCache::new(options)),
            coalesces: options.coalesces,
            answered_us: Default::default(),
            store,
        }
    }

    pub(crate) fn client(&self) -> &Arc<RedisClient> {
        &self.store.client
    }

    pub(crate) fn version(&self) -> Arc<GateLimit> {
        self.version.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The limit that decides a check.
    fn version_for(&self, check: &OwnedCheck) -> Arc<GateLimit> {
        let version = self.version();
        let Some(limit) = check.limit().filter(|limit| **limit != version.limit) else { return version };
        let mut own = lock(&self.own_limits);
        if let Some(version) = own.get(limit) {
            return version.clone();
        }
        if own.len() >= OWN_LIMITS_MAX {
            own.clear();
        }
        let version = Arc::new(GateLimit::of_check(self.client(), limit.clone(), self.slot_lease));
        own.insert(limit.clone(), version.clone());
        version
    }

    /// True if a limit still decides: the gate's in force does, and the own limit of a check.
    pub(crate) fn decides(&self, version: &GateLimit) -> bool {
        version.is_of_check() || self.version().number == version.number
    }

    fn put_in_force(&self, limit: Limit) {
        let mut version = self.version.write().unwrap_or_else(PoisonError::into_inner);
        if version.limit == limit {
            return;
        }
        *version = Arc::new(version.next(self.client(), limit, self.slot_lease));
        drop(version);
        if let Some(denial_cache) = &self.denial_cache {
            denial_cache.forget_all();
        }
    }

    /// A key, under the limit in force.
    pub(crate) fn key(self: &Arc<Self>, bytes: &[u8]) -> GateKey {
        let (gate, version) = (self.clone(), self.version());
        GateKey { gate, version, bytes: SmallVec::from_slice(bytes), hash: self.hasher.hash(bytes) }
    }

    /// The key of a check, under the limit that decides it.
    fn key_of(self: &Arc<Self>, check: &OwnedCheck) -> GateKey {
        GateKey { version: self.version_for(check), ..self.key(check.key()) }
    }

    /// A server has answered this gate.
    pub(crate) fn set_answered(&self, server: &RedisServer) {
        let now_us = self.client().clock.now().as_micros();
        self.answered_us[server.number % SERVERS].store(now_us, Ordering::Relaxed);
    }

    /// Since when a server has not answered this gate. Where nobody knows which server it
    /// would be, since any has.
    fn unanswered_since(&self, server: Option<&RedisServer>) -> Timestamp {
        let read = |answered: &AtomicU64| Timestamp::from_micros(answered.load(Ordering::Relaxed));
        match server {
            Some(server) => read(&self.answered_us[server.number % SERVERS]).max(server.since),
            None => self.answered_us.iter().map(read).fold(self.client().began, Timestamp::max),
        }
    }
}
