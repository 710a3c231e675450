//! A gate in Redis as the library sees it: several checks of one hash slot are one request to the
//! script, and what Redis does not answer is decided by the fallback, all or none.

use super::RedisGate;
use super::accept::accept;
use super::charge::{GateCharge, RedisCharge};
use super::fallback::NodeShareKey;
use super::slot_queue::queue;
use crate::Limit;
use crate::decision::Decision;
use crate::gate::{Gate, GateError};
use crate::pending::Pending;
use crate::store::memory::{self, HashedCheck};
use crate::store::redis::request::{GateKey, KeyRef, Request, RequestMode, ScriptAnswer, UpdateKind};
use crate::store::redis::script::key_name;
use crate::store::redis::stats::count;
use crate::store::{GroupDecisions, GroupId, KeySharing, Mode, OwnedCheck, Shares, StoreCharge, StoreGate};
use smallvec::{SmallVec, smallvec};
use std::any::Any;
use std::sync::{Arc, PoisonError};
use tokio::sync::oneshot;

impl StoreGate for RedisGate {
    fn limit(&self) -> Limit {
        self.version().limit.clone()
    }

    fn accepts(&self, limit: &Limit) -> Result<(), GateError> {
        accept(&self.name, limit, self.leases.is_some())
    }

    fn change(&self, limit: Limit) {
        self.put_in_force(limit);
    }

    fn check(self: Arc<Self>, key: &[u8], cost: u64) -> Pending<Decision> {
        let version = self.version.read().unwrap_or_else(PoisonError::into_inner);
        let key = KeyRef { gate: &self, version: &version, bytes: key, hash: self.hasher.hash(key) };
        // What was leased before a `fork` is its parent's.
        let leases = self.leases.as_ref().filter(|_| !self.client().is_inherited());
        let leased = leases.and_then(|leases| leases.spend(key, cost));
        if let Some(decision) = leased.or_else(|| key.cached_denial(cost, Mode::Check)) {
            return Pending::ready(decision);
        }
        let checks = RequestedChecks::one(key.to_key(), cost);
        drop(version);
        checks.decide(RequestMode::Take(Mode::Check), |all| all.decisions[0])
    }

    fn peek(self: Arc<Self>, key: &[u8], cost: u64) -> Pending<Decision> {
        RequestedChecks::one(self.key(key), cost).decide(RequestMode::Peek, |all| all.decisions[0])
    }

    fn reset(self: Arc<Self>, key: &[u8]) -> Pending<bool> {
        let key = self.key(key);
        key.forget_denial();
        self.cancelled.forget(key.hash);
        // Held slots stay held.
        if key.version.has_slots() {
            return Pending::ready(true);
        }
        let done = self.client().send(Some(key), UpdateKind::Reset);
        Pending::new(async move { done.await.is_ok() })
    }

    fn group(&self, key: &[u8]) -> GroupId {
        let client = self.client();
        let hash_slot = if client.map.is_cluster() { key_name::hash_slot(key) } else { 0 };
        GroupId::new(client, hash_slot.into())
    }

    /// Names count: after a gate was removed and its name defined anew, two gates own the same
    /// keys.
    fn shares_keys(&self, other: &dyn StoreGate) -> KeySharing {
        let other: &dyn Any = other;
        let Some(other) = other.downcast_ref::<Self>() else { return KeySharing::Apart };
        if self.name != other.name || !Arc::ptr_eq(self.client(), other.client()) {
            KeySharing::Apart
        } else if std::ptr::eq(self, other) || self.version().counts_like(&other.version()) {
            KeySharing::CountedAlike
        } else {
            KeySharing::CountedDifferently
        }
    }

    fn decide(self: Arc<Self>, checks: &[OwnedCheck], mode: Mode) -> Pending<GroupDecisions> {
        RequestedChecks::merged(checks).decide(RequestMode::Take(mode), |decided| decided)
    }

    fn queue(self: Arc<Self>, key: &[u8], costs: &[u64]) -> Pending<Option<Box<dyn StoreCharge>>> {
        let key = self.key(key);
        let shares: Shares = costs.iter().copied().enumerate().collect();
        Pending::new(async move {
            let charge = queue(key, shares.charged()).await?;
            Some(Box::new(RedisCharge(vec![(charge, shares)])) as Box<dyn StoreCharge>)
        })
    }

    fn known_denial(&self, check: &OwnedCheck, cost: u64, mode: Mode) -> Option<Decision> {
        check.store_gate::<Self>()?.key_of(check).as_ref().cached_denial(cost, mode)
    }

    fn look(self: Arc<Self>, check: &OwnedCheck, cost: u64, mode: Mode) -> Pending<Option<Decision>> {
        let key = self.key_of(check);
        if let Some(decision) = key.cached_look(cost, mode) {
            return Pending::ready(Some(decision));
        }
        // Nobody knows when slots come back: there is no time to say.
        if key.version.has_slots() || !self.client().may_look() {
            return Pending::ready(None);
        }
        let sent = RequestedChecks::one(key, cost).send(RequestMode::Look(mode));
        Pending::new(async move { Some(sent?.answer().await?.decisions[0]) })
    }
}

/// A request in flight. Dropped, it refunds what it is granted.
pub(super) struct GrantedRequest(oneshot::Receiver<ScriptAnswer>);

impl GrantedRequest {
    /// None if the server does not answer in time.
    pub(super) async fn answer(mut self) -> Option<ScriptAnswer> {
        (&mut self.0).await.ok()
    }
}

impl Drop for GrantedRequest {
    fn drop(&mut self) {
        self.0.close();
        if let Ok(answer) = self.0.try_recv() {
            answer.charges.into_iter().for_each(GateCharge::cancel);
        }
    }
}

/// The checks of a request, one cost for each key: a key that comes twice pays the sum. Checks
/// of one key count alike, also if their gates are two.
#[derive(Default)]
pub(super) struct RequestedChecks {
    keys: SmallVec<[GateKey; 1]>,
    costs: SmallVec<[u64; 1]>,
    /// The key and the cost of each check.
    checks: SmallVec<[(usize, u64); 2]>,
    /// True if what is granted may be refunded.
    wants_charges: bool,
}

impl RequestedChecks {
    /// One check, which is not refunded.
    pub(super) fn one(key: GateKey, cost: u64) -> Self {
        let (keys, costs, checks) = (smallvec![key], smallvec![cost], smallvec![(0, cost)]);
        Self { keys, costs, checks, wants_charges: false }
    }

    pub(super) fn wanting_charges(self) -> Self {
        Self { wants_charges: true, ..self }
    }

    fn merged(checks: &[OwnedCheck]) -> Self {
        let mut merged = Self { wants_charges: true, ..Self::default() };
        for check in checks {
            let gate: Arc<RedisGate> =
                check.store_gate().unwrap_or_else(|| unreachable!("a group is of one store"));
            let is_same = |key: &GateKey| {
                *key.bytes == *check.key() && key.gate.shares_keys(&*gate) != KeySharing::Apart
            };
            let at = merged.keys.iter().position(is_same).unwrap_or_else(|| {
                merged.keys.push(gate.key_of(check));
                merged.costs.push(0);
                merged.keys.len() - 1
            });
            merged.costs[at] = merged.costs[at].saturating_add(check.cost());
            merged.checks.push((at, check.cost()));
        }
        merged
    }

    /// Decides, by the fallback if Redis does not answer.
    fn decide<T: Send + 'static>(
        self,
        mode: RequestMode,
        result: impl FnOnce(GroupDecisions) -> T + Send + 'static,
    ) -> Pending<T> {
        match self.send(mode) {
            Some(request) => Pending::new(async move {
                result(match request.answer().await {
                    Some(answer) => self.decided(answer),
                    None => self.fall_back(mode),
                })
            }),
            None => Pending::ready(result(self.fall_back(mode))),
        }
    }

    /// Sends a request to the server of the first key; the others have its hash slot. It may join
    /// others about the same keys. None if the server does not answer.
    pub(super) fn send(&self, mode: RequestMode) -> Option<GrantedRequest> {
        let keys = &self.keys;
        let client = keys[0].gate.client();
        let server = keys[0].server().filter(|server| server.is_up())?;
        let (answer, receiver) = oneshot::channel();
        let slots = keys.iter().filter(|key| key.version.has_slots()).count() as u64;
        let request = Request {
            mode,
            costs: self.costs.clone(),
            wants_charges: self.wants_charges,
            slots_from: if slots > 0 { client.numbers(slots) } else { 0 },
            since: client.now(),
            answer: Some(answer),
        };
        let id = keys
            .iter()
            .fold(0, |all: u64, key| all.rotate_left(7) ^ key.hash ^ u64::from(key.gate.id).rotate_left(48));
        let joins = keys.iter().all(|key| key.gate.coalesces);
        if server.add(joins.then_some(id), keys, request) {
            count(&client.counters.coalesced, 1);
        }
        Some(GrantedRequest(receiver))
    }

    fn decided(&self, answer: ScriptAnswer) -> GroupDecisions {
        let decisions = self.checks.iter().map(|(key, _)| answer.decisions[*key]).collect();
        let charges = answer.charges.into_iter().enumerate().map(|(key, charge)| (charge, self.shares(key)));
        let charges: Vec<(GateCharge, Shares)> = charges.collect();
        let charge = (!charges.is_empty()).then(|| Box::new(RedisCharge(charges)) as Box<dyn StoreCharge>);
        GroupDecisions { decisions, charge }
    }

    /// What the checks of one key were charged.
    fn shares(&self, key: usize) -> Shares {
        let own = self.checks.iter().enumerate().filter(|(_, (of, _))| *of == key);
        own.map(|(nth, (_, cost))| (nth, *cost)).collect()
    }

    /// Decides without Redis: all by their shares in memory, or none.
    fn fall_back(&self, mode: RequestMode) -> GroupDecisions {
        let decision = |check: usize, decision: Decision| {
            let of = self.checks[check].0;
            let key = &self.keys[of];
            key.fallback_decision(decision, self.costs[of], mode.decides_as(&key.version))
        };
        let fallback_check = |(of, _): &(usize, u64)| self.keys[*of].fallback_check(self.costs[*of]);
        let fallbacks: SmallVec<[Result<NodeShareKey, Decision>; 2]> =
            self.checks.iter().map(fallback_check).collect();
        if let RequestMode::Take(mode) = mode
            && fallbacks.iter().all(Result::is_ok)
        {
            let shares = fallbacks.iter().flatten().zip(&self.checks);
            let checks: SmallVec<[(&Gate, HashedCheck<'_>); 2]> =
                shares.map(|(share, (_, cost))| share.check(*cost)).collect();
            let decided = memory::decide(&checks, mode);
            let decisions = decided.decisions.into_iter().enumerate();
            return GroupDecisions {
                decisions: decisions.map(|(check, decided)| decision(check, decided)).collect(),
                charge: decided.charge.map(|charge| Box::new(charge) as Box<dyn StoreCharge>),
            };
        }
        // Nothing is taken: those that have a share say how it stands.
        let look = |(check, fallback): (usize, &Result<NodeShareKey, Decision>)| match fallback {
            Ok(share) => {
                let (of, cost) = self.checks[check];
                decision(check, share.look(cost, mode.decides_as(&self.keys[of].version)))
            }
            Err(denial) => *denial,
        };
        GroupDecisions { decisions: fallbacks.iter().enumerate().map(look).collect(), charge: None }
    }
}
