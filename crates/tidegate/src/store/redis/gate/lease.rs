//! Leases: a node takes units ahead and spends them without a request.
//!
//! Only for a key that is checked again and again. A lease holds at most what flows while it lives,
//! it is charged in Redis before anything of it is spent, and what is left at its end goes back. So
//! no more starts in any window than the limit allows and what was outstanding at its beginning.

use super::RedisGate;
use super::charge::GateCharge;
use super::gate_limit::GateLimit;
use crate::algorithm::{Gauge, LimitNumbers, Mode};
use crate::clock::Timestamp;
use crate::decision::{Decision, DecisionOutcome};
use crate::store::redis::request::RequestMode;
use crate::store::redis::script::key_name;
use crate::store::redis::stats::count;
use crate::store::redis::store::RedisClient;
use crate::{Algorithm, Limit};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, KeyLeases>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spends from what was taken ahead, if there is enough; takes more ahead if it is
    /// about to be short.
    pub(crate) fn spend(
        &self,
        gate: &Arc<RedisGate>,
        version: &Arc<GateLimit>,
        key: &[u8],
        hash: u64,
        cost: u64,
    ) -> Option<Decision> {
        let now = gate.client().clock.now();
        let most = self.most(&version.limit);
        let mut keys = self.lock();
        if keys.len() >= KEYS_MAX && !keys.contains_key(&hash) {
            keys.retain(|_, leased| !leased.leases.is_empty() || leased.is_taking);
            if keys.len() >= KEYS_MAX {
                return None;
            }
        }
        let leased = keys.entry(hash).or_default();
        if now.since(leased.since) >= self.life {
            leased.size = leased.wanted;
            (leased.wanted, leased.since) = (0, now);
        }
        leased.wanted = leased.wanted.saturating_add(cost);
        let is_of_now = |lease: &&mut Lease| {
            lease.until > now && Arc::ptr_eq(&lease.charge.key.version, version) && lease.left >= cost
        };
        let spent = leased.leases.iter_mut().find(is_of_now).map(|lease| lease.left -= cost);
        let left: u64 = leased.leases.iter().filter(|lease| lease.until > now).map(|lease| lease.left).sum();
        let size = leased.size.max(leased.wanted).min(most);
        // One check in a life is not worth a lease.
        if size > 1 && left < size / 2 && !leased.is_taking && now >= leased.not_before {
            leased.is_taking = true;
            let ahead = take_ahead(gate.clone(), version.clone(), key.to_vec(), hash, size - left);
            gate.client().handle.spawn(ahead);
        }
        drop(keys);
        spent?;
        count(&gate.client().counters.leased, 1);
        count(&gate.client().counters.lease_spent, cost);
        let gauge = Gauge::Plain { remaining: left, reset_us: 0 };
        Some(Decision {
            outcome: DecisionOutcome::Allow { wait_us: 0 },
            limit: version.limit.capacity(),
            gauge,
        })
    }

    /// A lease has come, or none. Its number, and when it ends.
    fn took(
        &self,
        client: &RedisClient,
        hash: u64,
        units: u64,
        charge: Option<(GateCharge, Timestamp)>,
    ) -> Option<(u64, Timestamp)> {
        let mut keys = self.lock();
        let leased = keys.entry(hash).or_default();
        leased.is_taking = false;
        let Some((charge, until)) = charge else {
            leased.size = units / 2;
            leased.wanted = 0;
            leased.not_before = client.clock.now() + self.life / 2;
            return None;
        };
        let number = client.held_slots.numbers(1);
        leased.leases.push(Lease { number, left: units, until, charge });
        count(&client.counters.lease_granted, units);
        Some((number, until))
    }

    fn end(&self, hash: u64, number: u64) -> Option<Lease> {
        let mut keys = self.lock();
        let leased = keys.get_mut(&hash)?;
        let at = leased.leases.iter().position(|lease| lease.number == number)?;
        Some(leased.leases.swap_remove(at))
    }

    /// What flows in one life, which is the most that may be outstanding.
    fn most(&self, limit: &Limit) -> u64 {
        let flow = u128::from(limit.amount()) * self.life.as_micros() / u128::from(limit.period_us().max(1));
        u64::try_from(flow).unwrap_or(u64::MAX).min(limit.capacity())
    }
}

/// Takes a lease, lets it be spent, and gives back what is left of it.
async fn take_ahead(gate: Arc<RedisGate>, version: Arc<GateLimit>, key: Vec<u8>, hash: u64, units: u64) {
    let Some(leases) = &gate.leases else { return };
    let client = gate.client().clone();
    let sent = client.clock.now();
    let mode = RequestMode::Take(Mode::Check);
    let charge = async {
        let mut answer = gate.request(&version, &key, hash, units, mode, true).ok()?.await.ok()?.ok()?;
        let until = sent + leases.life.min(life_of_window(&version, answer.now_us));
        answer.charges.pop().map(|charge| (charge, until))
    };
    let charge = charge.await;
    let Some((number, until)) = leases.took(&client, hash, units, charge) else { return };
    tokio::time::sleep(until.since(client.clock.now())).await;
    let Some(lease) = leases.end(hash, number) else { return };
    let charge = lease.charge;
    match client.server_of(|| key_name::hash_slot(&key)) {
        Some(server) if server.breaker.is_closed() => {
            count(&client.counters.lease_returned, lease.left);
            charge.refund(charge.cost, lease.left);
        }
        _ => count(&client.counters.lease_expired, lease.left),
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
