//! One gate in Redis: its limit, the layers before the network, and the fallback behind it.

pub(crate) mod accept;
pub(crate) mod charge;
pub(crate) mod denial_cache;
pub(crate) mod fallback;
pub(crate) mod gate_limit;
pub(crate) mod lease;
mod own_limits;
mod per_node_share;
mod slot_queue;
mod transaction;

use super::config::RedisGateOptions;
use super::request::{Answered, GateKey, RefundedCharge, Request, RequestMode, Unanswered};
use super::script::key_name;
use super::script::replay::FoundState;
use super::server::RedisServer;
use super::server::request_queue::queue_of;
use super::stats::count;
use super::store::{RedisClient, RedisStore};
use crate::Limit;
use crate::algorithm::Mode;
use crate::check::OwnedCheck;
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionOutcome, DenialReason};
use crate::key::KeyHasher;
use crate::pending::Pending;
use crate::store::cancelled::Cancelled;
use crate::store::memory;
use denial_cache::{DENIAL_TTL, DenialCache};
use fallback::{DecidingLimit, FallbackCheck, GateFallback};
use gate_limit::GateLimit;
use lease::Leases;
use own_limits::OwnLimits;
use smallvec::{SmallVec, smallvec};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::oneshot;

pub(crate) struct RedisGate {
    pub(crate) id: u32,
    pub(crate) name: Box<str>,
    store: Arc<RedisStore>,
    /// How long a slot is held without a sign of life.
    pub(crate) slot_lease: Duration,
    fallback: GateFallback,
    leases: Option<Leases>,
    /// Charges that were cancelled while others had reserved behind them, with their version.
    cancelled: Cancelled<(u64, RefundedCharge)>,
    hasher: KeyHasher,
    version: RwLock<Arc<GateLimit>>,
    changing: Mutex<()>,
    own_limits: OwnLimits,
    denial_cache: Option<DenialCache>,
    denial_ttl: Duration,
    /// Requests about the same key share a call.
    coalesces: bool,
    /// When each server answered this gate last, on the local clock; servers whose numbers are
    /// alike share the later one.
    answered_us: [AtomicU64; SERVERS],
}

const SERVERS: usize = 16;

impl RedisGate {
    pub(crate) fn new(
        id: u32,
        name: &str,
        limit: Limit,
        store: Arc<RedisStore>,
        options: &RedisGateOptions,
    ) -> Self {
        let client = &store.client;
        let zero = client.unix_us_at_zero();
        let version = GateLimit::new(1, limit, options.slot_lease, client.clock.now(), zero);
        Self {
            id,
            name: name.into(),
            slot_lease: options.slot_lease,
            fallback: GateFallback::new(id, name, options.fallback.clone(), client.clock.clone()),
            leases: options.lease.map(Leases::new),
            cancelled: Cancelled::new(),
            hasher: KeyHasher::random(),
            version: RwLock::new(Arc::new(version)),
            changing: Mutex::default(),
            own_limits: OwnLimits::default(),
            denial_cache: options.caches_denials.then(DenialCache::default),
            denial_ttl: if options.has_refunds { DENIAL_TTL } else { Duration::from_secs(3_600) },
            coalesces: options.coalesces,
            answered_us: Default::default(),
            store,
        }
    }

    pub(crate) fn client(&self) -> &Arc<RedisClient> {
        &self.store.client
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    pub(crate) fn version(&self) -> Arc<GateLimit> {
        self.version.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The limit that decides a check.
    fn version_for(&self, check: &OwnedCheck) -> Arc<GateLimit> {
        let version = self.version();
        match check.limit() {
            Some(limit) if *limit != version.limit => {
                self.own_limits.version(limit, self.slot_lease, self.client().unix_us_at_zero())
            }
            _ => version,
        }
    }

    /// True if a limit still decides: the gate's in force does, and the own limit of a check.
    pub(crate) fn decides(&self, version: &GateLimit) -> bool {
        version.is_of_check() || self.version().number == version.number
    }

    fn put_in_force(&self, limit: Limit) {
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.version();
        if old.limit == limit {
            return;
        }
        let client = self.client();
        let next = old.next(limit, self.slot_lease, client.clock.now(), client.unix_us_at_zero());
        *self.version.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        if let Some(denial_cache) = &self.denial_cache {
            denial_cache.forget_all();
        }
        drop(changing);
    }

    pub(crate) fn key(self: &Arc<Self>, bytes: &[u8], hash: u64) -> GateKey {
        GateKey { gate: self.clone(), version: self.version(), bytes: bytes.into(), hash }
    }

    /// The key of a check, under the limit that decides it.
    fn key_of(self: &Arc<Self>, check: &OwnedCheck) -> GateKey {
        let (version, bytes) = (self.version_for(check), check.key());
        GateKey { gate: self.clone(), version, bytes: bytes.into(), hash: self.hash(bytes) }
    }

    /// The denial that Redis would give, if it is cached.
    pub(crate) fn cached_denial(
        &self,
        hash: u64,
        version: &GateLimit,
        cost: u64,
        mode: Mode,
    ) -> Option<Decision> {
        let now = self.client().clock.now();
        let decision = self.denial_cache.as_ref()?.denial(now, hash, version, cost, mode)?;
        count(&self.client().counters.remembered, 1);
        Some(decision)
    }

    /// How a check would stand beside the denial of another one, as far as it is known here: that
    /// it can never fit, or how its key was found a moment ago.
    fn cached_look(&self, hash: u64, version: &GateLimit, cost: u64, mode: Mode) -> Option<Decision> {
        let mut unused = FoundState::unused(&version.numbers)?;
        let outcome = unused.decide(0, cost, mode, version.limit.capacity()).outcome;
        if let DecisionOutcome::Deny(DenialReason::Never | DenialReason::NeedsPermit) = outcome {
            return Some(Decision { outcome, ..Decision::not_checked(&version.limit) });
        }
        self.denial_cache.as_ref()?.look(self.client().clock.now(), hash, version, cost, mode)
    }

    /// Caches what Redis found of a key, at `sent` or later, if a check of it was denied or an
    /// older state is cached.
    pub(crate) fn cache_found(&self, key: &GateKey, found: &FoundState, is_wanted: bool, sent: Timestamp) {
        if let Some(denial_cache) = &self.denial_cache
            && !key.version.has_slots()
            && (is_wanted || denial_cache.has(key.hash))
        {
            denial_cache.insert(key.hash, &key.version, found.clone(), sent, sent + self.denial_ttl);
        }
    }

    /// Something came back: what was denied may fit.
    pub(crate) fn forget_denial(&self, hash: u64) {
        if let Some(denial_cache) = &self.denial_cache {
            denial_cache.forget(hash);
        }
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

    /// Sends a request about one key.
    fn request(
        self: &Arc<Self>,
        version: &Arc<GateLimit>,
        bytes: &[u8],
        hash: u64,
        cost: u64,
        mode: RequestMode,
        wants_charges: bool,
    ) -> Result<oneshot::Receiver<Answered>, Unanswered> {
        let id = hash ^ u64::from(self.id).rotate_left(48);
        let keys = || {
            let key = GateKey { gate: self.clone(), version: version.clone(), bytes: bytes.into(), hash };
            SmallVec::from_elem(key, 1)
        };
        NewRequest { mode, costs: smallvec![cost], wants_charges, slots: version.has_slots().into() }.send(
            self.client(),
            bytes,
            self.coalesces.then_some(id),
            |keys| matches!(keys, [key] if key.is(self, version, bytes)),
            keys,
        )
    }

    /// Decides about one key, without a request if the answer is known.
    fn decide_one(self: &Arc<Self>, key: &[u8], cost: u64, mode: RequestMode) -> Pending<Decision> {
        let (version, hash) = (self.version(), self.hash(key));
        if let RequestMode::Take(mode) = mode {
            if let Some(leases) = &self.leases
                && let Some(decision) = leases.spend(self, &version, key, hash, cost)
            {
                return Pending::ready(decision);
            }
            if let Some(decision) = self.cached_denial(hash, &version, cost, mode) {
                return Pending::ready(decision);
            }
        }
        match self.request(&version, key, hash, cost, mode, false) {
            Ok(answer) => {
                let (gate, key): (_, SmallVec<[u8; 32]>) = (self.clone(), SmallVec::from_slice(key));
                Pending::new(async move {
                    match answer.await {
                        Ok(Ok(answer)) => answer.decisions[0],
                        Ok(Err(unanswered)) => gate.fall_back(&version, &key, cost, mode, unanswered),
                        Err(_) => gate.fall_back(&version, &key, cost, mode, Unanswered::default()),
                    }
                })
            }
            Err(unanswered) => Pending::ready(self.fall_back(&version, key, cost, mode, unanswered)),
        }
    }

    /// Decides one check without Redis.
    fn fall_back(
        &self,
        version: &GateLimit,
        key: &[u8],
        cost: u64,
        mode: RequestMode,
        unanswered: Unanswered,
    ) -> Decision {
        match self.fallback_check(version, key, cost, unanswered) {
            FallbackCheck::Denied(decision) => decision,
            FallbackCheck::InMemory(share) => {
                let decides_as = mode.decides_as(version);
                let decision = match mode {
                    RequestMode::Peek | RequestMode::Look(_) => share.look(cost, decides_as),
                    RequestMode::Take(mode) => memory::decide(&[share.check(cost)], mode).decisions[0],
                };
                self.fallback_decision(decision, version, cost, decides_as, unanswered)
            }
        }
    }

    /// How a check is decided without Redis.
    fn fallback_check(
        &self,
        version: &GateLimit,
        key: &[u8],
        cost: u64,
        unanswered: Unanswered,
    ) -> FallbackCheck {
        let client = self.client();
        count(&client.counters.degraded, 1);
        let server = client.server_of(|| key_name::hash_slot(key));
        let since = self.unanswered_since(server.as_deref());
        let (nodes, retry_us) = (client.nodes(), unanswered.retry_us);
        let in_force = self.version();
        let limit = &version.limit;
        let limit =
            DecidingLimit { in_force: if version.is_of_check() { &in_force.limit } else { limit }, limit };
        let check = self.fallback.check(limit, nodes, since, key, cost, retry_us);
        if let FallbackCheck::Denied(_) = check {
            count(&client.counters.degraded_denied, 1);
        }
        check
    }

    /// What was decided in memory, as the caller's decision.
    fn fallback_decision(
        &self,
        decision: Decision,
        version: &GateLimit,
        cost: u64,
        mode: Mode,
        unanswered: Unanswered,
    ) -> Decision {
        if !decision.is_allowed() {
            count(&self.client().counters.degraded_denied, 1);
        }
        self.fallback.decision(decision, version, cost, mode, unanswered.retry_us)
    }
}

/// A request that is not sent yet.
struct NewRequest {
    mode: RequestMode,
    costs: SmallVec<[u64; 1]>,
    wants_charges: bool,
    /// Keys of slots.
    slots: u64,
}

impl NewRequest {
    /// Sends it to the server of `first`, its first key. It may join requests of the same
    /// `group_id`, if there is one and those are about the same keys. `keys` is called if it joins
    /// none.
    fn send(
        self,
        client: &RedisClient,
        first: &[u8],
        group_id: Option<u64>,
        is_same: impl Fn(&[GateKey]) -> bool,
        keys: impl FnOnce() -> SmallVec<[GateKey; 1]>,
    ) -> Result<oneshot::Receiver<Answered>, Unanswered> {
        if client.is_inherited() {
            return Err(Unanswered::default());
        }
        let Some(server) = client.server_of(|| key_name::hash_slot(first)) else {
            return Err(Unanswered::default());
        };
        if !server.breaker.is_closed() {
            return Err(server.unanswered(client));
        }
        let (answer, receiver) = oneshot::channel();
        let slots_from = if self.slots > 0 { client.held_slots.numbers(self.slots) } else { 0 };
        let Self { mode, costs, wants_charges, .. } = self;
        let since = client.now();
        let request = Request { mode, costs, wants_charges, slots_from, since, answer: Some(answer) };
        if server.queues[queue_of(first)].add(&server.breaker, group_id, is_same, keys, request) {
            count(&client.counters.coalesced, 1);
        }
        Ok(receiver)
    }
}
