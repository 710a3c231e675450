//! A gate in Redis as the library sees it: several checks of one hash slot are one request to
//! the script, and what Redis does not answer is decided by the fallback, all or none.

use super::accept::accept;
use super::charge::{Charge, RedisCharge};
use super::gate::{Answered, RedisGate};
use super::job::{Change, Fault, How, Key, Request, Told, What};
use super::lane::lane;
use super::local::{Alone, ShareKey};
use super::name;
use super::promise::promise;
use super::queue::queue;
use crate::Limit;
use crate::decision::Decision;
use crate::gate::Gate;
use crate::gate::GateError;
use crate::pending::Pending;
use crate::store::memory::{self, HashedCheck};
use crate::store::{Decided, GroupId, KeySharing, Mode, OwnedCheck, Shares, StoreCharge, StoreGate};
use smallvec::SmallVec;
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
        self.send(key, cost, How::Take(Mode::Check))
    }

    fn peek(self: Arc<Self>, key: &[u8], cost: u64) -> Pending<Decision> {
        self.send(key, cost, How::Peek)
    }

    fn reset(self: Arc<Self>, key: &[u8]) -> Pending<bool> {
        let hash = self.hash(key);
        self.forget(hash);
        self.cancelled.forget(hash);
        let key = self.key(key, hash);
        // Held slots stay held.
        if key.version.is_place() {
            return Pending::ready(true);
        }
        let (promise, awaited) = promise();
        let since = self.core().now();
        self.core().change(Change { key: Some(key), what: What::Reset, since, promise: Some(promise) });
        Pending::new(async move { matches!(awaited.await, Some(Ok(_))) })
    }

    fn group(&self, key: &[u8]) -> GroupId {
        let core = self.core();
        let hash_slot = if core.is_cluster() { name::slot(&name::subject(key)) } else { 0 };
        GroupId::new(core, hash_slot.into())
    }

    /// Names count: after a gate was removed and its name defined anew, two gates own the same
    /// keys.
    fn shares_keys(&self, other: &dyn StoreGate) -> KeySharing {
        let other: &dyn Any = other;
        let Some(other) = other.downcast_ref::<Self>() else { return KeySharing::Apart };
        if self.name != other.name || !Arc::ptr_eq(self.core(), other.core()) {
            KeySharing::Apart
        } else if std::ptr::eq(self, other) || self.version().counts_like(&other.version()) {
            KeySharing::CountedAlike
        } else {
            KeySharing::CountedDifferently
        }
    }

    fn decide(self: Arc<Self>, checks: &[OwnedCheck], mode: Mode) -> Pending<Decided> {
        let merged = Merged::new(checks);
        match self.ask_group(&merged, mode) {
            Ok(asking) => Pending::new(async move {
                match asking.await {
                    Ok(told) => merged.decided(told),
                    Err(fault) => merged.decide_alone(mode, fault),
                }
            }),
            Err(fault) => Pending::ready(merged.decide_alone(mode, fault)),
        }
    }

    fn queue(self: Arc<Self>, key: &[u8], costs: &[u64]) -> Pending<Option<Box<dyn StoreCharge>>> {
        let key = self.key(key, self.hash(key));
        let mut shares = Shares::new(0, costs.first().copied().unwrap_or(0));
        for (number, cost) in costs.iter().enumerate().skip(1) {
            shares.add(number, *cost);
        }
        Pending::new(async move {
            let charge = queue(self, key, shares.charged()).await?;
            Some(Box::new(RedisCharge(vec![(charge, shares)])) as Box<dyn StoreCharge>)
        })
    }

    fn known_denial(&self, check: &OwnedCheck, cost: u64, mode: Mode) -> Option<Decision> {
        self.remembered(self.hash(check.key()), &self.version_for(check), cost, mode)
    }

    fn look(self: Arc<Self>, check: &OwnedCheck, cost: u64, mode: Mode) -> Pending<Option<Decision>> {
        let (version, key) = (self.version_for(check), check.key());
        let hash = self.hash(key);
        if let Some(known) = self.shown(hash, &version, cost, mode) {
            return Pending::ready(Some(known));
        }
        // Nobody knows when slots come back: there is no time to be told.
        if version.is_place() || !self.core().may_look() {
            return Pending::ready(None);
        }
        match self.ask(&version, key, hash, cost, How::Look(mode), false) {
            Ok(asked) => Pending::new(async move { Asking(asked).await.ok().map(|told| told.decisions[0]) }),
            Err(_) => Pending::ready(None),
        }
    }
}

impl RedisGate {
    /// Asks Redis about keys of one hash slot, which is this gate's first check's.
    fn ask_group(&self, merged: &Merged, mode: Mode) -> Result<Asking, Fault> {
        let (core, how) = (self.core(), How::Take(mode));
        if let [key] = merged.keys.as_slice() {
            let asked = key.meter.ask(&key.version, &key.bytes, key.hash, merged.costs[0], how, true)?;
            return Ok(Asking(asked));
        }
        if core.is_inherited() {
            return Err(Fault::default());
        }
        let hash_slot = || name::slot(&name::subject(&merged.keys[0].bytes));
        let Some(shard) = core.shard_of(hash_slot) else { return Err(Fault::default()) };
        if !shard.is_up() {
            return Err(shard.fault(core));
        }
        let (promise, awaited) = promise();
        let slots = merged.keys.iter().filter(|key| key.version.is_place()).count();
        let request = Request {
            how,
            costs: merged.costs.clone(),
            wants_charges: true,
            places_from: core.numbers(slots as u64),
            since: core.now(),
            promise,
        };
        let keys = &merged.keys;
        let joins = keys.iter().all(|key| key.meter.coalesces);
        let hash = keys.iter().fold(0u64, |all, key| all.rotate_left(7) ^ key.hash ^ u64::from(key.meter.id));
        let is_same = |others: &[Key]| {
            others.len() == keys.len() && others.iter().zip(keys).all(|(other, key)| other.is_same(key))
        };
        shard.ask(lane(&keys[0].bytes), hash, joins, is_same, || keys.clone(), request);
        Ok(Asking(awaited))
    }
}

/// A request on its way. Dropped, it gives back what it was granted.
struct Asking(Answered);

impl Future for Asking {
    type Output = Result<Told, Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context).map(|told| told.unwrap_or(Err(Fault::default())))
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(Ok(told)) = self.0.leave() {
            told.charges.into_iter().for_each(Charge::cancel);
        }
    }
}

/// The checks of a group, one question for each key: a key that comes twice pays the sum. Checks
/// of one key count alike, also if their gates are two.
struct Merged {
    keys: SmallVec<[Key; 1]>,
    costs: SmallVec<[u64; 1]>,
    /// The key and the cost of each check.
    checks: SmallVec<[(usize, u64); 2]>,
}

impl Merged {
    fn new(checks: &[OwnedCheck]) -> Self {
        let mut merged = Self { keys: SmallVec::new(), costs: SmallVec::new(), checks: SmallVec::new() };
        for check in checks {
            let Some(gate) = check.store_gate::<RedisGate>() else {
                unreachable!("a group is of one store");
            };
            let is_same =
                |key: &Key| *key.bytes == *check.key() && key.meter.shares_keys(&*gate) != KeySharing::Apart;
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

    fn decided(&self, told: Told) -> Decided {
        let decisions = self.checks.iter().map(|(key, _)| told.decisions[*key]).collect();
        if told.charges.is_empty() {
            return Decided { decisions, charge: None };
        }
        let charges = told.charges.into_iter().enumerate().map(|(key, charge)| (charge, self.shares(key)));
        Decided { decisions, charge: Some(Box::new(RedisCharge(charges.collect()))) }
    }

    /// What the checks of one key were charged.
    fn shares(&self, key: usize) -> Shares {
        let mut own = self.checks.iter().enumerate().filter(|(_, (of, _))| *of == key);
        let mut shares =
            own.next().map_or_else(|| Shares::new(0, 0), |(nth, (_, cost))| Shares::new(nth, *cost));
        for (nth, (_, cost)) in own {
            shares.add(nth, *cost);
        }
        shares
    }

    /// Decides without Redis: all by their shares in memory, or none.
    fn decide_alone(&self, mode: Mode, fault: Fault) -> Decided {
        let shown = |check: usize, decision: Decision| {
            let (of, _) = self.checks[check];
            let Key { meter, version, .. } = &self.keys[of];
            meter.shown_alone(decision, version, self.costs[of], mode, fault)
        };
        let alone = |(of, _): &(usize, u64)| {
            let Key { meter, version, bytes, .. } = &self.keys[*of];
            meter.question(version, bytes, self.costs[*of], fault)
        };
        let alone: SmallVec<[Alone; 2]> = self.checks.iter().map(alone).collect();
        if alone.iter().any(|alone| matches!(alone, Alone::Denied(_))) {
            // The others hear how their shares stand.
            let decide = |(check, alone): (usize, &Alone)| match alone {
                Alone::Denied(decision) => *decision,
                Alone::Share(share) => shown(check, share.look(self.checks[check].1, mode)),
            };
            return Decided { decisions: alone.iter().enumerate().map(decide).collect(), charge: None };
        }
        let shares: SmallVec<[(&ShareKey, u64); 2]> = alone
            .iter()
            .zip(&self.checks)
            .filter_map(|(alone, (_, cost))| match alone {
                Alone::Share(share) => Some((share, *cost)),
                Alone::Denied(_) => None,
            })
            .collect();
        let checks: SmallVec<[(&Gate, HashedCheck<'_>); 2]> =
            shares.iter().map(|(share, cost)| share.check(*cost)).collect();
        let decided = memory::decide(&checks, mode);
        let decisions = decided.decisions.into_iter().enumerate();
        Decided {
            decisions: decisions.map(|(check, decision)| shown(check, decision)).collect(),
            charge: decided.charge.map(|charge| Box::new(charge) as Box<dyn StoreCharge>),
        }
    }
}
