//! Leases: a node takes a slice ahead and spends it without asking.
//!
//! Only for a key that is asked about again and again. A slice is at most what flows
//! while it lives, it is charged in Redis before anything of it is spent, and what is
//! left at its end goes back. So no more starts in any window than the limit allows and
//! what was outstanding at its beginning.

use super::charge::Charge;
use super::core::Core;
use super::gate::RedisGate;
use super::job::How;
use super::plan::{Plan, Version};
use super::stats::count;
use crate::algorithm::{Gauge, Mode};
use crate::clock::Timestamp;
use crate::decision::{Decision, Outcome};
use crate::{Algorithm, Limit};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Keys that can be leased at once by a gate.
const MOST: usize = 10_000;

/// True if something can be taken ahead of such a limit.
pub(crate) fn can_lease(limit: &Limit) -> bool {
    !matches!(
        limit.algorithm(),
        Algorithm::LeakyQueue { .. } | Algorithm::WarmUp { .. } | Algorithm::Concurrency { .. }
    )
}

pub(crate) struct Leases {
    life: Duration,
    keys: Mutex<HashMap<u64, Leased>>,
}

#[derive(Default)]
struct Leased {
    slices: Vec<Slice>,
    /// A slice is on its way.
    is_asking: bool,
    /// Units asked for since `since`: what the next slice should hold.
    wanted: u64,
    since: Timestamp,
    /// The size of the next slice; halved when one is denied.
    size: u64,
    /// After a denial, nothing is taken ahead until then.
    not_before: Timestamp,
}

struct Slice {
    number: u64,
    left: u64,
    until: Timestamp,
    charge: Charge,
}

impl Leases {
    pub(crate) fn new(life: Duration) -> Self {
        Self { life, keys: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Leased>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Spends from what was taken ahead, if there is enough; takes more ahead if it is
    /// about to be short.
    pub(crate) fn spend(
        &self,
        meter: &Arc<RedisGate>,
        version: &Arc<Version>,
        key: &[u8],
        hash: u64,
        cost: u64,
    ) -> Option<Decision> {
        let now = meter.core().clock.now();
        let most = self.most(&version.limit);
        let mut keys = self.lock();
        if keys.len() >= MOST && !keys.contains_key(&hash) {
            keys.retain(|_, leased| !leased.slices.is_empty() || leased.is_asking);
            if keys.len() >= MOST {
                return None;
            }
        }
        let leased = keys.entry(hash).or_default();
        if now.since(leased.since) >= self.life {
            leased.size = leased.wanted;
            (leased.wanted, leased.since) = (0, now);
        }
        leased.wanted = leased.wanted.saturating_add(cost);
        let is_of_now = |slice: &&mut Slice| {
            slice.until > now && Arc::ptr_eq(&slice.charge.key.version, version) && slice.left >= cost
        };
        let spent = leased.slices.iter_mut().find(is_of_now).map(|slice| slice.left -= cost);
        let left: u64 = leased.slices.iter().filter(|slice| slice.until > now).map(|slice| slice.left).sum();
        let size = leased.size.max(leased.wanted).min(most);
        // One question in a life is not worth a lease.
        if size > 1 && left < size / 2 && !leased.is_asking && now >= leased.not_before {
            leased.is_asking = true;
            let ahead = take_ahead(meter.clone(), version.clone(), key.to_vec(), hash, size - left);
            meter.core().handle.spawn(ahead);
        }
        drop(keys);
        spent?;
        count(&meter.core().counters.leased, 1);
        count(&meter.core().counters.lease_spent, cost);
        let gauge = Gauge::Plain { remaining: left, reset_us: 0 };
        Some(Decision { outcome: Outcome::Allow { wait_us: 0 }, limit: version.limit.capacity(), gauge })
    }

    /// A slice has come, or none. Its number, and when it ends.
    fn took(
        &self,
        core: &Core,
        hash: u64,
        units: u64,
        charge: Option<(Charge, Timestamp)>,
    ) -> Option<(u64, Timestamp)> {
        let mut keys = self.lock();
        let leased = keys.entry(hash).or_default();
        leased.is_asking = false;
        let Some((charge, until)) = charge else {
            leased.size = units / 2;
            leased.wanted = 0;
            leased.not_before = core.clock.now() + self.life / 2;
            return None;
        };
        let number = core.numbers(1);
        leased.slices.push(Slice { number, left: units, until, charge });
        count(&core.counters.lease_granted, units);
        Some((number, until))
    }

    fn end(&self, hash: u64, number: u64) -> Option<Slice> {
        let mut keys = self.lock();
        let leased = keys.get_mut(&hash)?;
        let at = leased.slices.iter().position(|slice| slice.number == number)?;
        Some(leased.slices.swap_remove(at))
    }

    /// What flows in one life, which is the most that may be outstanding.
    fn most(&self, limit: &Limit) -> u64 {
        let flow = u128::from(limit.amount()) * self.life.as_micros() / u128::from(limit.period_us().max(1));
        u64::try_from(flow).unwrap_or(u64::MAX).min(limit.capacity())
    }
}

/// Takes a slice, lets it be spent, and gives back what is left of it.
async fn take_ahead(meter: Arc<RedisGate>, version: Arc<Version>, key: Vec<u8>, hash: u64, units: u64) {
    let Some(leases) = &meter.leases else { return };
    let core = meter.core().clone();
    let sent = core.clock.now();
    let told = match meter.ask(&version, &key, hash, units, How::Take(Mode::Check), true) {
        Ok(answer) => answer.await.and_then(Result::ok),
        Err(_) => None,
    };
    let charge = told.and_then(|mut told| {
        let until = sent + leases.life.min(life_of_window(&version, told.now_us));
        told.charges.pop().map(|charge| (charge, until))
    });
    let Some((number, until)) = leases.took(&core, hash, units, charge) else { return };
    tokio::time::sleep(until.since(core.clock.now())).await;
    let Some(slice) = leases.end(hash, number) else { return };
    let charge = slice.charge;
    match core.shard_of(|| super::name::slot(&super::name::subject(&key))) {
        Some(shard) if shard.is_up() => {
            count(&core.counters.lease_returned, slice.left);
            charge.give_back(charge.cost, slice.left);
        }
        _ => count(&core.counters.lease_expired, slice.left),
    }
}

/// A window's lease dies with its window.
fn life_of_window(version: &Version, now_us: u64) -> Duration {
    match (&version.plan, version.limit.algorithm()) {
        (Plan::Stepped(bucket), Algorithm::FixedWindow) => {
            let scale = bucket.scale;
            Duration::from_micros(scale.begins_us(scale.tick(now_us) + 1).saturating_sub(now_us))
        }
        _ => Duration::MAX,
    }
}
