//! A gate in Redis as the library sees it: several checks of one hash slot are one request to the
//! script, and what Redis does not answer is decided by the fallback, all or none.

use super::accept::accept;
use super::charge::{GateCharge, RedisCharge};
use super::fallback::{FallbackCheck, NodeShareKey};
use super::slot_queue::queue;
use super::{NewRequest, RedisGate};
use crate::Limit;
use crate::decision::Decision;
use crate::gate::{Gate, GateError};
use crate::pending::Pending;
use crate::store::memory::{self, HashedCheck};
use crate::store::redis::request::{Answered, GateKey, RequestMode, ScriptAnswer, Unanswered, UpdateKind};
use crate::store::redis::script::key_name;
use crate::store::{GroupDecisions, GroupId, KeySharing, Mode, OwnedCheck, Shares, StoreCharge, StoreGate};
use smallvec::SmallVec;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
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
        self.decide_one(key, cost, RequestMode::Take(Mode::Check))
    }

    fn peek(self: Arc<Self>, key: &[u8], cost: u64) -> Pending<Decision> {
        self.decide_one(key, cost, RequestMode::Peek)
    }

    fn reset(self: Arc<Self>, key: &[u8]) -> Pending<bool> {
        let hash = self.hash(key);
        self.forget_denial(hash);
        self.cancelled.forget(hash);
        let key = self.key(key, hash);
        // Held slots stay held.
        if key.version.has_slots() {
            return Pending::ready(true);
        }
        let (answer, done) = oneshot::channel();
        self.client().send(Some(key), UpdateKind::Reset, Some(answer));
        Pending::new(async move { matches!(done.await, Ok(Ok(_))) })
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
        let merged = MergedChecks::new(checks);
        match self.request_group(&merged, mode) {
            Ok(answer) => Pending::new(async move {
                match answer.await {
                    Ok(answer) => merged.decided(answer),
                    Err(unanswered) => merged.fall_back(mode, unanswered),
                }
            }),
            Err(unanswered) => Pending::ready(merged.fall_back(mode, unanswered)),
        }
    }

    fn queue(self: Arc<Self>, key: &[u8], costs: &[u64]) -> Pending<Option<Box<dyn StoreCharge>>> {
        let key = self.key(key, self.hash(key));
        let shares: Shares = costs.iter().copied().enumerate().collect();
        Pending::new(async move {
            let charge = queue(self, key, shares.charged()).await?;
            Some(Box::new(RedisCharge(vec![(charge, shares)])) as Box<dyn StoreCharge>)
        })
    }

    fn known_denial(&self, check: &OwnedCheck, cost: u64, mode: Mode) -> Option<Decision> {
        self.cached_denial(self.hash(check.key()), &self.version_for(check), cost, mode)
    }

    fn look(self: Arc<Self>, check: &OwnedCheck, cost: u64, mode: Mode) -> Pending<Option<Decision>> {
        let (version, key) = (self.version_for(check), check.key());
        let hash = self.hash(key);
        if let Some(decision) = self.cached_look(hash, &version, cost, mode) {
            return Pending::ready(Some(decision));
        }
        // Nobody knows when slots come back: there is no time to say.
        if version.has_slots() || !self.client().may_look() {
            return Pending::ready(None);
        }
        match self.request(&version, key, hash, cost, RequestMode::Look(mode), false) {
            Ok(answer) => Pending::new(async move { Some(answer.await.ok()?.ok()?.decisions[0]) }),
            Err(_) => Pending::ready(None),
        }
    }
}

impl RedisGate {
    /// Sends one request about keys of one hash slot, which is this gate's first check's.
    fn request_group(&self, merged: &MergedChecks, mode: Mode) -> Result<GrantedRequest, Unanswered> {
        let (keys, mode) = (&merged.keys, RequestMode::Take(mode));
        if let [key] = keys.as_slice() {
            let cost = merged.costs[0];
            let answer = key.gate.request(&key.version, &key.bytes, key.hash, cost, mode, true)?;
            return Ok(GrantedRequest(answer));
        }
        let joins = keys.iter().all(|key| key.gate.coalesces);
        let id = keys.iter().fold(0u64, |all, key| all.rotate_left(7) ^ key.hash ^ u64::from(key.gate.id));
        let is_same = |others: &[GateKey]| {
            let is = |(other, key): (&GateKey, &GateKey)| other.is(&key.gate, &key.version, &key.bytes);
            others.len() == keys.len() && others.iter().zip(keys).all(is)
        };
        let slots = keys.iter().filter(|key| key.version.has_slots()).count() as u64;
        NewRequest { mode, costs: merged.costs.clone(), wants_charges: true, slots }
            .send(self.client(), &keys[0].bytes, joins.then_some(id), is_same, || keys.clone())
            .map(GrantedRequest)
    }
}

/// A request in flight. Dropped, it refunds what it is granted.
struct GrantedRequest(oneshot::Receiver<Answered>);

impl Future for GrantedRequest {
    type Output = Answered;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|answer| answer.unwrap_or(Err(Unanswered::default())))
    }
}

impl Drop for GrantedRequest {
    fn drop(&mut self) {
        self.0.close();
        if let Ok(Ok(answer)) = self.0.try_recv() {
            answer.charges.into_iter().for_each(GateCharge::cancel);
        }
    }
}

/// The checks of a group, one cost for each key: a key that comes twice pays the sum. Checks
/// of one key count alike, also if their gates are two.
struct MergedChecks {
    keys: SmallVec<[GateKey; 1]>,
    costs: SmallVec<[u64; 1]>,
    /// The key and the cost of each check.
    checks: SmallVec<[(usize, u64); 2]>,
}

impl MergedChecks {
    fn new(checks: &[OwnedCheck]) -> Self {
        let mut merged = Self { keys: SmallVec::new(), costs: SmallVec::new(), checks: SmallVec::new() };
        for check in checks {
            let Some(gate) = check.store_gate::<RedisGate>() else {
                unreachable!("a group is of one store");
            };
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

    fn decided(&self, answer: ScriptAnswer) -> GroupDecisions {
        let decisions = self.checks.iter().map(|(key, _)| answer.decisions[*key]).collect();
        if answer.charges.is_empty() {
            return GroupDecisions { decisions, charge: None };
        }
        let charges = answer.charges.into_iter().enumerate().map(|(key, charge)| (charge, self.shares(key)));
        GroupDecisions { decisions, charge: Some(Box::new(RedisCharge(charges.collect()))) }
    }

    /// What the checks of one key were charged.
    fn shares(&self, key: usize) -> Shares {
        let own = self.checks.iter().enumerate().filter(|(_, (of, _))| *of == key);
        own.map(|(nth, (_, cost))| (nth, *cost)).collect()
    }

    /// Decides without Redis: all by their shares in memory, or none.
    fn fall_back(&self, mode: Mode, unanswered: Unanswered) -> GroupDecisions {
        let decision = |check: usize, decision: Decision| {
            let (of, _) = self.checks[check];
            let GateKey { gate, version, .. } = &self.keys[of];
            gate.fallback_decision(decision, version, self.costs[of], mode, unanswered)
        };
        let fallback_check = |(of, _): &(usize, u64)| {
            let GateKey { gate, version, bytes, .. } = &self.keys[*of];
            gate.fallback_check(version, bytes, self.costs[*of], unanswered)
        };
        let fallbacks: SmallVec<[FallbackCheck; 2]> = self.checks.iter().map(fallback_check).collect();
        let shares = fallbacks.iter().filter_map(|fallback| match fallback {
            FallbackCheck::InMemory(share) => Some(share),
            FallbackCheck::Denied(_) => None,
        });
        let shares: SmallVec<[&NodeShareKey; 2]> = shares.collect();
        if shares.len() < fallbacks.len() {
            // The others say how their shares stand.
            let decide = |(check, fallback): (usize, &FallbackCheck)| match fallback {
                FallbackCheck::Denied(denial) => *denial,
                FallbackCheck::InMemory(share) => decision(check, share.look(self.checks[check].1, mode)),
            };
            return GroupDecisions {
                decisions: fallbacks.iter().enumerate().map(decide).collect(),
                charge: None,
            };
        }
        let checks: SmallVec<[(&Gate, HashedCheck<'_>); 2]> =
            shares.iter().copied().zip(&self.checks).map(|(share, (_, cost))| share.check(*cost)).collect();
        let decided = memory::decide(&checks, mode);
        let decisions = decided.decisions.into_iter().enumerate();
        GroupDecisions {
            decisions: decisions.map(|(check, decided)| decision(check, decided)).collect(),
            charge: decided.charge.map(|charge| Box::new(charge) as Box<dyn StoreCharge>),
        }
    }
}
