//! One gate's side of the store: its limit, and the layers before the network.

use super::config::GateOptions;
use super::core::{Core, RedisStore};
use super::job::{Fault, GivenBack, How, Key, Request, Told};
use super::known::{BELIEVED, Known};
use super::lane::lane;
use super::lease::Leases;
use super::local::{Alone, Deciding, Local};
use super::name;
use super::plan::{Found, Version};
use super::promise::{Awaited, promise};
use super::shard::Shard;
use super::stats::count;
use crate::Limit;
use crate::algorithm::Mode;
use crate::check::OwnedCheck;
use crate::clock::Timestamp;
use crate::decision::{Decision, Outcome, Refused};
use crate::key::KeyHasher;
use crate::pending::Pending;
use crate::store::cancelled::Cancelled;
use crate::store::memory;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Duration;

pub(crate) struct RedisGate {
    pub(crate) id: u32,
    pub(crate) name: Box<str>,
    pub(crate) store: Arc<RedisStore>,
    /// How long a place is held without a sign of life.
    pub(crate) lease: Duration,
    pub(crate) local: Local,
    pub(crate) leases: Option<Leases>,
    /// Charges that were cancelled while others had reserved behind them, with their version.
    pub(crate) cancelled: Cancelled<(u64, GivenBack)>,
    hasher: KeyHasher,
    version: RwLock<Arc<Version>>,
    changing: Mutex<()>,
    /// The limits that checks bring along.
    own_limits: Mutex<HashMap<Limit, Arc<Version>>>,
    own_limits_made: AtomicU64,
    known: Option<Known>,
    /// How long a denial is believed.
    believed: Duration,
    /// Requests about the same key share a call.
    pub(crate) coalesces: bool,
    /// When each server answered this gate last, on the local clock; servers that share a
    /// place share the later one.
    answered_us: [AtomicU64; SERVERS],
}

const SERVERS: usize = 16;
/// Limits of checks that are held ready.
const OWN_LIMITS_MAX: usize = 256;
/// In the number of a version: it is the own limit of a check, and no change replaces it.
const OF_CHECK: u64 = 1 << 63;

fn is_of_check(version: &Version) -> bool {
    version.number & OF_CHECK != 0
}

/// What asking comes to.
pub(crate) type Answered = Awaited<Result<Told, Fault>>;

impl RedisGate {
    pub(crate) fn new(
        id: u32,
        name: &str,
        limit: Limit,
        store: Arc<RedisStore>,
        options: &GateOptions,
    ) -> Self {
        let core = &store.core;
        let zero = core.unix_us_at_zero();
        let version = Version::new(1, limit, options.place_lease, core.clock.now(), zero);
        Self {
            id,
            name: name.into(),
            lease: options.place_lease,
            local: Local::new(id, name, options.fallback.clone(), store.core.clock.clone()),
            leases: options.lease.map(Leases::new),
            cancelled: Cancelled::new(),
            hasher: KeyHasher::random(),
            version: RwLock::new(Arc::new(version)),
            changing: Mutex::default(),
            own_limits: Mutex::default(),
            own_limits_made: AtomicU64::new(0),
            known: options.remembers.then(Known::default),
            believed: if options.comes_back { BELIEVED } else { Duration::from_secs(3_600) },
            coalesces: options.coalesces,
            answered_us: Default::default(),
            store,
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.store.core
    }

    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    pub(crate) fn version(&self) -> Arc<Version> {
        self.version.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if a limit still decides: the gate's in force does, and the own limit of a check.
    pub(crate) fn decides(&self, version: &Version) -> bool {
        is_of_check(version) || self.version().number == version.number
    }

    pub(crate) fn put_in_force(&self, limit: Limit) {
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.version();
        if old.limit == limit {
            return;
        }
        let core = self.core();
        let next = old.next(limit, self.lease, core.clock.now(), core.unix_us_at_zero());
        *self.version.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
        if let Some(known) = &self.known {
            known.forget_all();
        }
        drop(changing);
    }

    pub(crate) fn key(self: &Arc<Self>, bytes: &[u8], hash: u64) -> Key {
        Key { meter: self.clone(), version: self.version(), bytes: bytes.into(), hash }
    }

    /// The key of a check, under the limit that decides it.
    pub(crate) fn key_of(self: &Arc<Self>, check: &OwnedCheck) -> Key {
        let (version, bytes) = (self.version_for(check), check.key());
        Key { meter: self.clone(), version, bytes: bytes.into(), hash: self.hash(bytes) }
    }

    /// The limit that decides a check. Checks with equal limits of their own share a version, as
    /// long as there is room for it: by it they share calls and remembered denials.
    pub(crate) fn version_for(&self, check: &OwnedCheck) -> Arc<Version> {
        let version = self.version();
        let Some(limit) = check.limit().filter(|limit| **limit != version.limit) else { return version };
        let mut own = self.own_limits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(version) = own.get(limit) {
            return version.clone();
        }
        if own.len() >= OWN_LIMITS_MAX {
            own.clear();
        }
        let core = self.core();
        // It has always been in force: as a node that has had it since it began.
        let since = Timestamp::default();
        let number = self.own_limits_made.fetch_add(1, Ordering::Relaxed) | OF_CHECK;
        let version = Version::new(number, limit.clone(), self.lease, since, core.unix_us_at_zero());
        own.entry(limit.clone()).or_insert(Arc::new(version)).clone()
    }

    /// The denial that Redis would give, if that is known.
    pub(crate) fn remembered(&self, hash: u64, version: &Version, cost: u64, mode: Mode) -> Option<Decision> {
        let decision = self.known.as_ref()?.denies(self.core().clock.now(), hash, version, cost, mode)?;
        count(&self.core().counters.remembered, 1);
        Some(decision)
    }

    /// What to tell of a call beside the refusal of another one, as far as it is known here:
    /// that it can never fit, or how its key was found a moment ago.
    pub(crate) fn shown(&self, hash: u64, version: &Version, cost: u64, mode: Mode) -> Option<Decision> {
        let unused = version.plan.answer_unused(cost, mode, version.limit.capacity());
        if let Outcome::Deny(Refused::Never | Refused::NeedsPermit) = unused.outcome {
            return Some(Decision { outcome: unused.outcome, ..Decision::not_checked(&version.limit) });
        }
        self.known.as_ref()?.shows(self.core().clock.now(), hash, version, cost, mode)
    }

    /// What Redis said of a key, at `sent` or later. Kept if somebody may want to hear it
    /// again, or has heard something older.
    pub(crate) fn learn(&self, key: &Key, found: &Found, is_wanted: bool, sent: Timestamp) {
        if let Some(known) = &self.known
            && !key.version.is_place()
            && (is_wanted || known.knows(key.hash))
        {
            known.remember(key.hash, &key.version, found.clone(), sent, sent + self.believed);
        }
    }

    /// A server has answered this gate.
    pub(crate) fn answered(&self, shard: &Shard) {
        let now_us = self.core().clock.now().as_micros();
        self.answered_us[shard.number % SERVERS].store(now_us, Ordering::Relaxed);
    }

    /// Since when a server has not answered this gate. Where nobody knows which server it
    /// would be, since any has.
    fn unanswered_since(&self, shard: Option<&Shard>) -> Timestamp {
        let read = |answered: &AtomicU64| Timestamp::from_micros(answered.load(Ordering::Relaxed));
        match shard {
            Some(shard) => read(&self.answered_us[shard.number % SERVERS]).max(shard.since),
            None => self.answered_us.iter().map(read).fold(self.core().began, Timestamp::max),
        }
    }

    /// Something came back: what was refused may fit.
    pub(crate) fn forget(&self, hash: u64) {
        if let Some(known) = &self.known {
            known.forget(hash);
        }
    }

    /// Asks Redis about one key.
    pub(crate) fn ask(
        self: &Arc<Self>,
        version: &Arc<Version>,
        bytes: &[u8],
        hash: u64,
        cost: u64,
        how: How,
        wants_charges: bool,
    ) -> Result<Answered, Fault> {
        let core = self.core();
        if core.is_inherited() {
            return Err(Fault::default());
        }
        let Some(shard) = core.shard_of(|| name::slot(&name::subject(bytes))) else {
            return Err(Fault::default());
        };
        if !shard.is_up() {
            return Err(shard.fault(core));
        }
        let (promise, awaited) = promise();
        let request = Request {
            how,
            costs: SmallVec::from_elem(cost, 1),
            wants_charges,
            places_from: if version.is_place() { core.numbers(1) } else { 0 },
            since: core.now(),
            promise,
        };
        let is_same = |keys: &[Key]| matches!(keys, [key] if Arc::ptr_eq(&key.version, version) && Arc::ptr_eq(&key.meter, self) && *key.bytes == *bytes);
        let keys = || {
            let key = Key { meter: self.clone(), version: version.clone(), bytes: bytes.into(), hash };
            SmallVec::from_elem(key, 1)
        };
        let id = hash ^ u64::from(self.id).rotate_left(48);
        shard.ask(lane(bytes), id, self.coalesces, is_same, keys, request);
        Ok(awaited)
    }
}

/// A question that is on its way to Redis, and what is needed if it does not come back.
struct Asked {
    answer: Answered,
    meter: Arc<RedisGate>,
    version: Arc<Version>,
    key: SmallVec<[u8; 32]>,
    cost: u64,
    how: How,
}

impl Future for Asked {
    type Output = Decision;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Decision> {
        match Pin::new(&mut self.answer).poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(told))) => Poll::Ready(told.decisions[0]),
            Poll::Ready(fault) => {
                let fault = fault.and_then(Result::err).unwrap_or_default();
                Poll::Ready(self.meter.alone(&self.version, &self.key, self.cost, self.how, fault))
            }
        }
    }
}

impl RedisGate {
    /// Decides about one key, without asking if the answer is known.
    pub(crate) fn send(self: &Arc<Self>, key: &[u8], cost: u64, how: How) -> Pending<Decision> {
        let (version, hash) = (self.version(), self.hash(key));
        if let How::Take(mode) = how {
            if let Some(leases) = &self.leases
                && let Some(decision) = leases.spend(self, &version, key, hash, cost)
            {
                return Pending::ready(decision);
            }
            if let Some(decision) = self.remembered(hash, &version, cost, mode) {
                return Pending::ready(decision);
            }
        }
        match self.ask(&version, key, hash, cost, how, false) {
            Ok(answer) => {
                let key = SmallVec::from_slice(key);
                Pending::new(Asked { answer, meter: self.clone(), version, key, cost, how })
            }
            Err(fault) => Pending::ready(self.alone(&version, key, cost, how, fault)),
        }
    }

    /// Decides one question without Redis.
    fn alone(&self, version: &Version, key: &[u8], cost: u64, how: How, fault: Fault) -> Decision {
        match self.question(version, key, cost, fault) {
            Alone::Denied(decision) => decision,
            Alone::Share(share) => {
                let mode = how.mode(version);
                let decision = match how {
                    How::Peek | How::Look(_) => share.look(cost, mode),
                    How::Take(mode) => memory::decide(&[share.check(cost)], mode).decisions[0],
                };
                self.shown_alone(decision, version, cost, mode, fault)
            }
        }
    }

    /// How a question is decided without Redis.
    pub(crate) fn question(&self, version: &Version, key: &[u8], cost: u64, fault: Fault) -> Alone {
        let core = self.core();
        count(&core.counters.degraded, 1);
        let shard = core.shard_of(|| name::slot(&name::subject(key)));
        let since = self.unanswered_since(shard.as_deref());
        let limit = &version.limit;
        let in_force = if is_of_check(version) { &self.version().limit } else { limit };
        let deciding = Deciding { in_force, limit };
        let alone = self.local.question(deciding, core.nodes(), since, key, cost, fault.retry_us);
        if let Alone::Denied(_) = alone {
            count(&core.counters.degraded_denied, 1);
        }
        alone
    }

    /// What a caller is told of what was decided in memory.
    pub(crate) fn shown_alone(
        &self,
        decision: Decision,
        version: &Version,
        cost: u64,
        mode: Mode,
        fault: Fault,
    ) -> Decision {
        if !decision.is_allowed() {
            count(&self.core().counters.degraded_denied, 1);
        }
        self.local.shown(decision, version, cost, mode, fault.retry_us)
    }
}
