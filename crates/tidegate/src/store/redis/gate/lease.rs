//! Leases: a node takes units ahead and spends them without a request.
//!
//! Only for a key that is checked again and again. A lease holds at most what flows while it lives,
//! it is charged in Redis before anything of it is spent, and what is left at its end goes back. So
//! no more starts in any window than the limit allows and what was outstanding at its beginning.

use super::charge::GateCharge;
use super::gate_limit::GateLimit;
use super::transaction::RequestedChecks;
use crate::algorithm::{LimitNumbers, Mode};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionOutcome};
use crate::store::redis::lock;
use crate::store::redis::request::{GateKey, KeyRef, RequestMode};
use crate::store::redis::stats::count;
use crate::{Algorithm, Limit};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Keys that can be leased at once by a gate.
const KEYS_MAX: usize = 10_000;

/// True if something can be taken ahead of such a limit.
pub(crate) fn can_lease(limit: &Limit) -> bool {
    match limit.algorithm() {
        Algorithm::TokenBucket { .. }
        | Algorithm::Ticked { .. }
        | Algorithm::LeakyBucket { .. }
        | Algorithm::FixedWindow
        | Algorithm::SlidingWindow { .. }
        | Algorithm::SlidingLog => true,
        Algorithm::LeakyQueue { .. } | Algorithm::WarmUp { .. } | Algorithm::Concurrency { .. } => false,
    }
}

pub(crate) struct Leases {
    life: Duration,
    keys: Mutex<HashMap<u64, KeyLeases>>,
}

#[derive(Default)]
struct KeyLeases {
    leases: Vec<Lease>,
    /// One is on its way.
    is_taking: bool,
    /// Units wanted since `since`: what the next lease should hold.
    wanted: u64,
    since: Timestamp,
    /// The size of the next lease; halved when one is denied.
    size: u64,
    /// After a denial, nothing is taken ahead until then.
    not_before: Timestamp,
}

struct Lease {
    number: u64,
    left: u64,
    until: Timestamp,
    charge: GateCharge,
}

impl Leases {
    pub(crate) fn new(life: Duration) -> Self {
        Self { life, keys: Mutex::default() }
    }

    /// Spends from what was taken ahead, if there is enough; takes more ahead if it is
    /// about to be short.
    pub(super) fn spend(&self, key: KeyRef<'_>, cost: u64) -> Option<Decision> {
        let client = key.gate.client();
        let now = client.clock.now();
        let mut keys = lock(&self.keys);
        if keys.len() >= KEYS_MAX && !keys.contains_key(&key.hash) {
            keys.retain(|_, leased| !leased.leases.is_empty() || leased.is_taking);
            if keys.len() >= KEYS_MAX {
                return None;
            }
        }
        let leased = keys.entry(key.hash).or_default();
        if now.since(leased.since) >= self.life {
            leased.size = leased.wanted;
            (leased.wanted, leased.since) = (0, now);
        }
        leased.wanted = leased.wanted.saturating_add(cost);
        let is_of_now = |lease: &&mut Lease| {
            lease.until > now && Arc::ptr_eq(&lease.charge.key.version, key.version) && lease.left >= cost
        };
        let spent = leased.leases.iter_mut().find(is_of_now).map(|lease| lease.left -= cost);
        let left: u64 = leased.leases.iter().filter(|lease| lease.until > now).map(|lease| lease.left).sum();
        let size = leased.size.max(leased.wanted).min(self.most(&key.version.limit));
        // One check in a life is not worth a lease.
        if size > 1 && left < size / 2 && !leased.is_taking && now >= leased.not_before {
            leased.is_taking = true;
            client.handle.spawn(take_ahead(key.to_key(), size - left));
        }
        drop(keys);
        spent?;
        count(&client.counters.leased, 1);
        count(&client.counters.lease_spent, cost);
        let allowed = DecisionOutcome::Allow { wait_us: 0 };
        Some(Decision::plain(allowed, key.version.limit.capacity(), left))
    }

    /// A lease has come, or none.
    fn took(&self, key: &GateKey, units: u64, lease: Option<Lease>) {
        let mut keys = lock(&self.keys);
        let leased = keys.entry(key.hash).or_default();
        leased.is_taking = false;
        if let Some(lease) = lease {
            leased.leases.push(lease);
            count(&key.gate.client().counters.lease_granted, units);
        } else {
            leased.size = units / 2;
            leased.wanted = 0;
            leased.not_before = key.gate.client().clock.now() + self.life / 2;
        }
    }

    fn end(&self, key: &GateKey, number: u64) -> Option<Lease> {
        let mut keys = lock(&self.keys);
        keys.get_mut(&key.hash)?.leases.extract_if(.., |lease| lease.number == number).next()
    }

    /// What flows in one life, which is the most that may be outstanding.
    fn most(&self, limit: &Limit) -> u64 {
        let flow = u128::from(limit.amount()) * self.life.as_micros() / u128::from(limit.period_us().max(1));
        u64::try_from(flow).unwrap_or(u64::MAX).min(limit.capacity())
    }
}

/// Takes a lease, lets it be spent, and gives back what is left of it.
async fn take_ahead(key: GateKey, units: u64) {
    let (client, Some(leases)) = (key.gate.client(), &key.gate.leases) else { return };
    let (number, sent) = (client.numbers(1), client.clock.now());
    let lease = async {
        let checks = RequestedChecks::one(key.clone(), units).wanting_charges();
        let mut answer = checks.send(RequestMode::Take(Mode::Check))?.answer().await?;
        let until = sent + leases.life.min(life_of_window(&key.version, answer.now_us));
        answer.charges.pop().map(|charge| Lease { number, left: units, until, charge })
    };
    let lease = lease.await;
    let until = lease.as_ref().map(|lease| lease.until);
    leases.took(&key, units, lease);
    let Some(until) = until else { return };
    tokio::time::sleep(until.since(client.clock.now())).await;
    let Some(Lease { left, charge, .. }) = leases.end(&key, number) else { return };
    match key.server() {
        Some(server) if server.is_up() => {
            count(&client.counters.lease_returned, left);
            charge.refund(charge.cost, left);
        }
        _ => count(&client.counters.lease_expired, left),
    }
}

/// A window's lease dies with its window.
fn life_of_window(version: &GateLimit, now_us: u64) -> Duration {
    match (&version.numbers, version.limit.algorithm()) {
        (LimitNumbers::Stepped(bucket), Algorithm::FixedWindow) => {
            let scale = bucket.scale;
            Duration::from_micros(scale.begins_us(scale.tick(now_us) + 1).saturating_sub(now_us))
        }
        _ => Duration::MAX,
    }
}
