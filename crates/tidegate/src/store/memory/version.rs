//! The limits that have decided about a gate's keys: the one in force, those before it, and
//! those that checks bring along.
//!
//! A state of one word says by a number in its fingerprint which of the gate's limits wrote it.
//! A state that was written by a check's own limit has no number: it lives in the shards, beside
//! the plan of its limit. So there can be any number of own limits.

use super::gate::MemoryGate;
use super::transaction::HashedCheck;
use crate::Limit;
use crate::algorithm::{InForce, KEPT_AT_LEAST_US, OTHERS_MAX, Plan, State};
use crate::clock::StoreClock;
use crate::sync::{AtomicU64, Ordering, lock};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Changed limits that are remembered to carry their keys' states over.
const PAST_MAX: usize = 1_024;
/// Instead of a number: a check's own limit, or an entry whose state is in the shards.
pub(super) const UNNUMBERED: u16 = (1 << 15) - 1;
const NUMBER_MAX: u16 = UNNUMBERED - 1;

/// A limit and its plan, under the number that fingerprints carry.
pub(crate) struct LimitVersion {
    pub(crate) number: u16,
    pub(crate) limit: Limit,
    pub(crate) plan: Plan,
    pub(super) since_us: u64,
    /// The versions before it, oldest first.
    before: SmallVec<[(u16, InForce); OTHERS_MAX]>,
}

/// The gate's limit, and those before it.
pub(super) struct Versions {
    current: RwLock<Arc<LimitVersion>>,
    /// The number of the newest version, set before anyone can see anything of it.
    newest: AtomicU64,
    past: Mutex<Vec<Past>>,
    /// One change at a time; those who decide never wait for it.
    changing: Mutex<()>,
    /// Until then a key may still be where the limit before last had it.
    moving_until_us: AtomicU64,
}

struct Past {
    number: u16,
    plan: Plan,
    /// From then on all its states have passed.
    until_us: u64,
}

impl LimitVersion {
    pub(super) fn new(number: u16, limit: Limit, clock: &StoreClock, since_us: u64) -> Self {
        let plan = Plan::new(&limit, clock.unix_us_at_zero());
        Self { number, limit, plan, since_us, before: SmallVec::new() }
    }

    pub(super) fn is_of_check(&self) -> bool {
        self.number == UNNUMBERED
    }

    /// True if its states alone live in the flat table.
    pub(super) fn is_word(&self) -> bool {
        self.plan.is_one_word() && !self.is_of_check()
    }

    /// What was in force for some time after the version `last` wrote at `written_us` and is not any
    /// more, oldest first.
    pub(super) fn between(&self, last: u16, written_us: u64) -> SmallVec<[InForce; OTHERS_MAX]> {
        let ends = self.before.iter().skip(1).map(|(_, next)| next.since_us).chain([self.since_us]);
        let is_later = |number: u16, end_us: u64| match last {
            UNNUMBERED => end_us > written_us,
            last => age(self.number, number) < age(self.number, last),
        };
        let pairs = self.before.iter().zip(ends);
        let were_in_force =
            pairs.filter(|((number, limit), end_us)| is_later(*number, *end_us) && *end_us > limit.since_us);
        were_in_force.map(|((_, limit), _)| *limit).collect()
    }
}

/// How many changes ago a version was in force.
fn age(newest: u16, number: u16) -> u16 {
    (newest + NUMBER_MAX - number) % NUMBER_MAX
}

impl Versions {
    pub(super) fn new(first: LimitVersion) -> Self {
        Self {
            newest: AtomicU64::new(first.number.into()),
            current: RwLock::new(Arc::new(first)),
            past: Mutex::default(),
            changing: Mutex::default(),
            moving_until_us: AtomicU64::new(0),
        }
    }

    fn remember(&self, version: Past, now_us: u64) {
        // Slots are held by permits, not by the clock: they go along as they are.
        if matches!(version.plan, Plan::Slots(_)) {
            return;
        }
        let mut past = lock(&self.past);
        past.retain(|past| past.until_us > now_us);
        if past.len() == PAST_MAX {
            past.remove(0);
        }
        past.push(version);
    }
}

impl MemoryGate {
    /// The limit in force.
    pub(crate) fn version(&self) -> Arc<LimitVersion> {
        self.versions.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The limit that decides a check. In the overflow bucket that is always the gate's: all
    /// untracked keys share one allowance of it.
    pub(super) fn version_for(&self, check: &HashedCheck<'_>) -> Arc<LimitVersion> {
        let version = self.version();
        match check.limit {
            // It has always been in force.
            Some(limit) if *limit != version.limit && check.hash != self.overflow_hash => {
                Arc::new(LimitVersion::new(UNNUMBERED, limit.clone(), &self.tables.clock, 0))
            }
            _ => version,
        }
    }

    /// False for a moment while the gate's limit changes, if this is the limit before.
    pub(super) fn is_newest(&self, version: &LimitVersion) -> bool {
        version.is_of_check() || self.versions.newest.load(Ordering::Acquire) == u64::from(version.number)
    }

    /// How many changes ago a version was in force.
    pub(super) fn age(&self, number: u16) -> u16 {
        age(self.versions.newest.load(Ordering::Acquire) as u16, number)
    }

    pub(super) fn is_moving(&self, now_us: u64) -> bool {
        self.versions.moving_until_us.load(Ordering::Acquire) > now_us
    }

    /// The plan of the gate's limit of this number, for as long as it is remembered.
    pub(super) fn plan_of(&self, number: u16) -> Option<Plan> {
        let version = self.version();
        if version.number == number {
            return Some(version.plan);
        }
        lock(&self.versions.past).iter().rev().find(|past| past.number == number).map(|past| past.plan)
    }

    /// Another limit from now on. Keys are carried over when they are next touched.
    pub(crate) fn change(&self, limit: Limit) {
        let changing = lock(&self.versions.changing);
        let old = self.version();
        if old.limit == limit {
            return;
        }
        let number = if old.number == NUMBER_MAX { 1 } else { old.number + 1 };
        let mut next = LimitVersion::new(number, limit, &self.tables.clock, old.since_us);
        next.before = old.before.clone();
        let is_moving = next.plan.is_one_word() != old.plan.is_one_word();
        let now_us = || self.tables.clock.now().as_micros();
        // Twice as long as they count: a word of ticks seems in use for up to a tick longer,
        // and what was kept beside another limit may be merged and kept again.
        let longest_us = old.plan.longest_us().saturating_mul(2).saturating_add(KEPT_AT_LEAST_US);
        let until_us = || now_us().saturating_add(longest_us);
        self.versions.remember(Past { number: old.number, plan: old.plan, until_us: until_us() }, now_us());
        let move_on = || {
            if is_moving {
                // Also for as long as a key can have counts of limits before it.
                let others = lock(&self.versions.past).iter().map(|past| past.until_us).max();
                let until_us = until_us().max(others.unwrap_or(0));
                self.versions.moving_until_us.fetch_max(until_us, Ordering::AcqRel);
            }
        };
        move_on();
        // In this order: whoever meets a state of the new version must be able to find
        // out that there is one.
        self.versions.newest.store(u64::from(number), Ordering::Release);
        // One that counts alike goes on with the same counts.
        if !next.plan.counts_alike(&old.plan) {
            next.since_us = now_us();
            if next.before.len() == OTHERS_MAX {
                next.before.remove(0);
            }
            next.before.push((old.number, InForce { plan: old.plan, since_us: old.since_us }));
        }
        let next = Arc::new(next);
        *self.versions.current.write().unwrap_or_else(PoisonError::into_inner) = next.clone();
        self.limit_words.store(&next);
        // Until here others may have written by the old version.
        move_on();
        drop(changing);
        self.grant_waiters();
    }

    /// More slots may be free under a changed limit: those who wait must hear of it.
    fn grant_waiters(&self) {
        let version = self.version();
        let Plan::Slots(slots) = &version.plan else { return };
        for index in self.tables.shards.indexes() {
            let mut wakers = Vec::new();
            let mut shard = self.tables.shards.lock(index);
            for entry in shard.entries.iter_mut().filter(|entry| entry.gate == self.id) {
                if let State::Slots(state) = &mut entry.state {
                    wakers.extend(slots.grant_waiters(state));
                }
            }
            drop(shard);
            wakers.into_iter().for_each(std::task::Waker::wake);
        }
    }
}
