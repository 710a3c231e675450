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
use crate::sync::{AtomicU64, Ordering};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

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
    since_us: u64,
    /// The versions before it, oldest first.
    before: SmallVec<[(u16, InForce); OTHERS_MAX]>,
}

/// Which limit wrote a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenBy {
    /// The gate's limit of this number.
    Gate(u16),
    /// A check's own limit, which stands with the state.
    Check,
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
    pub(super) fn first(limit: Limit, plan: Plan, since_us: u64) -> Self {
        Self { number: 1, limit, plan, since_us, before: SmallVec::new() }
    }

    /// The own limit of a check, which has always been in force.
    fn of_check(limit: Limit, unix_us_at_zero: u64) -> Self {
        let plan = Plan::new(&limit, unix_us_at_zero);
        Self { number: UNNUMBERED, limit, plan, since_us: 0, before: SmallVec::new() }
    }

    pub(super) fn is_of_check(&self) -> bool {
        self.number == UNNUMBERED
    }

    pub(super) fn in_force(&self) -> InForce {
        InForce { plan: self.plan, since_us: self.since_us }
    }

    /// Who writes by this limit.
    pub(super) fn writer(&self) -> WrittenBy {
        if self.is_of_check() { WrittenBy::Check } else { WrittenBy::Gate(self.number) }
    }

    /// What was in force for some time after `last` wrote at `written_us` and is not any more,
    /// oldest first.
    pub(super) fn between(&self, last: WrittenBy, written_us: u64) -> SmallVec<[InForce; OTHERS_MAX]> {
        let ends = self.before.iter().skip(1).map(|(_, next)| next.since_us).chain([self.since_us]);
        let is_later = |number: u16, end_us: u64| match last {
            WrittenBy::Gate(last) => age(self.number, number) < age(self.number, last),
            WrittenBy::Check => end_us > written_us,
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

    fn past(&self) -> MutexGuard<'_, Vec<Past>> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, version: Past, now_us: u64) {
        // Slots are held by permits, not by the clock: they go along as they are.
        if matches!(version.plan, Plan::Slots(_)) {
            return;
        }
        let mut past = self.past();
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
            Some(limit) if *limit != version.limit && check.hash != self.overflow_hash => {
                Arc::new(LimitVersion::of_check(limit.clone(), self.tables.clock.unix_us_at_zero()))
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
        self.versions.past().iter().rev().find(|past| past.number == number).map(|past| past.plan)
    }

    /// Another limit from now on. Keys are carried over when they are next touched.
    pub(crate) fn change(&self, limit: Limit) {
        let plan = Plan::new(&limit, self.tables.clock.unix_us_at_zero());
        let changing = self.versions.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.version();
        if old.limit == limit {
            return;
        }
        let is_moving = plan.is_one_word() != old.plan.is_one_word();
        let now_us = || self.tables.clock.now().as_micros();
        // Twice as long as they count: a word of ticks seems in use for up to a tick longer,
        // and what was kept beside another limit may be merged and kept again.
        let longest_us = old.plan.longest_us().saturating_mul(2).saturating_add(KEPT_AT_LEAST_US);
        let until_us = || now_us().saturating_add(longest_us);
        self.versions.remember(Past { number: old.number, plan: old.plan, until_us: until_us() }, now_us());
        let move_on = || {
            if is_moving {
                // Also for as long as a key can have counts of limits before it.
                let others = self.versions.past().iter().map(|past| past.until_us).max();
                let until_us = until_us().max(others.unwrap_or(0));
                self.versions.moving_until_us.fetch_max(until_us, Ordering::AcqRel);
            }
        };
        move_on();
        // In this order: whoever meets a state of the new version must be able to find
        // out that there is one.
        let number = if old.number == NUMBER_MAX { 1 } else { old.number + 1 };
        self.versions.newest.store(u64::from(number), Ordering::Release);
        let (mut before, mut since_us) = (old.before.clone(), old.since_us);
        // One that counts alike goes on with the same counts.
        if !plan.counts_alike(&old.plan) {
            since_us = now_us();
            if before.len() == OTHERS_MAX {
                before.remove(0);
            }
            before.push((old.number, old.in_force()));
        }
        let next = Arc::new(LimitVersion { number, limit, plan, since_us, before });
        *self.versions.current.write().unwrap_or_else(PoisonError::into_inner) = next.clone();
        self.limit_words.store(number, next.limit.capacity(), &plan);
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
            for entry in self.tables.shards.lock(index).entries().filter(|entry| entry.gate == self.id) {
                if let State::Slots(state) = &mut entry.state {
                    wakers.extend(slots.grant_waiters(state));
                }
            }
            wakers.into_iter().for_each(std::task::Waker::wake);
        }
    }
}
