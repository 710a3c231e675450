//! One gate in the memory store: its limit, and the fast path of a decision.

use super::Tables;
use super::flat::{Fingerprint, Group, Seen};
use super::limit_words::LimitWords;
use super::transaction::{Ask, Write, decide_all, tracked_hash, with_state};
use crate::Limit;
use crate::algorithm::{Gauge, Grant, InForce, KEPT_AT_LEAST_US, Mode, OTHERS_MAX, Plan, State};
use crate::clock::Timestamp;
use crate::decision::{Decision, Outcome, Refused};
use crate::key::KeyHasher;
use crate::limiter::Overflow;
use crate::store::cancelled::Cancelled;
use crate::sync::{AtomicU64, Backoff, Ordering};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Changed limits that are remembered to carry their keys' states over.
const PAST_MAX: usize = 1_024;
const VERSION_MAX: u16 = (1 << 15) - 1;

/// One gate's limit in its tables.
pub(crate) struct MemoryGate {
    pub(crate) id: u32,
    pub(crate) tables: Arc<Tables>,
    pub(crate) refuses_untracked: bool,
    /// The hash of the overflow bucket, which untracked keys share.
    pub(crate) overflow_hash: u64,
    hasher: KeyHasher,
    limit_words: LimitWords,
    version: RwLock<Arc<Version>>,
    /// The number of the newest version, set before anyone can see anything of it.
    newest: AtomicU64,
    past: Mutex<Vec<Past>>,
    /// One change at a time; those who decide never wait for it.
    changing: Mutex<()>,
    /// How many handles pin a key.
    pins: Mutex<HashMap<u64, usize>>,
    /// Grants that were cancelled while others had reserved behind them, with their version.
    pub(crate) cancelled: Cancelled<(u16, Grant)>,
    /// Until then a key may still be where the limit before last had it.
    moving_until_us: AtomicU64,
}

/// A limit and its plan, under the number that slots are tagged with.
pub(crate) struct Version {
    pub(crate) number: u16,
    pub(crate) limit: Limit,
    pub(crate) plan: Plan,
    since_us: u64,
    /// The versions before it, oldest first.
    before: SmallVec<[(u16, InForce); OTHERS_MAX]>,
}

impl Version {
    /// How many changes ago a version was in force.
    pub(crate) fn age(&self, number: u16) -> u16 {
        (self.number + VERSION_MAX - number) % VERSION_MAX
    }

    pub(super) fn in_force(&self) -> InForce {
        InForce { plan: self.plan, since_us: self.since_us }
    }

    /// What was in force for some time after version `number` and is not any more, oldest first.
    pub(super) fn between(&self, number: u16) -> SmallVec<[InForce; OTHERS_MAX]> {
        let ends = self.before.iter().skip(1).map(|(_, next)| next.since_us).chain([self.since_us]);
        let was_in_force = |(before, end): &(&(u16, InForce), u64)| {
            self.age(before.0) < self.age(number) && *end > before.1.since_us
        };
        self.before.iter().zip(ends).filter(was_in_force).map(|(before, _)| before.1).collect()
    }
}

struct Past {
    number: u16,
    plan: Plan,
    /// From then on all its states have passed.
    until_us: u64,
}

/// Why the fast path did not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Miss {
    /// Somebody else writes the group or the limit right now.
    Contended,
    /// The key is new, its state is more than a word, or the clock has jumped.
    NotHere,
}

/// Where a fixed key was found, so that it is never looked for again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    group: usize,
    slot: usize,
}

impl MemoryGate {
    pub(crate) fn new(id: u32, limit: Limit, tables: Arc<Tables>, overflow: Overflow) -> Self {
        let plan = Plan::new(&limit, tables.clock.unix_us_at_zero());
        let hasher = KeyHasher::random();
        let since_us = tables.clock.now().as_micros();
        let version = Version { number: 1, limit, plan, since_us, before: SmallVec::new() };
        Self {
            id,
            tables,
            refuses_untracked: overflow == Overflow::Refuse,
            overflow_hash: hasher.hash(b"\xff strangers beyond the cap"),
            hasher,
            limit_words: LimitWords::new(1, version.limit.capacity(), &plan),
            version: RwLock::new(Arc::new(version)),
            newest: AtomicU64::new(1),
            past: Mutex::default(),
            changing: Mutex::default(),
            pins: Mutex::default(),
            cancelled: Cancelled::new(),
            moving_until_us: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key)
    }

    pub(crate) fn version(&self) -> Arc<Version> {
        self.version.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if this is the version in force. False for a moment while it changes.
    pub(crate) fn is_newest(&self, version: &Version) -> bool {
        self.newest.load(Ordering::Acquire) == u64::from(version.number)
    }

    pub(crate) fn is_moving(&self, now_us: u64) -> bool {
        self.moving_until_us.load(Ordering::Acquire) > now_us
    }

    /// Decides now, without a wait.
    #[inline]
    pub(crate) fn check(&self, hash: u64, cost: u64) -> Decision {
        let group = self.group(hash);
        // First, so that the wait for memory and the reading of the clock overlap.
        let sequence = group.rested();
        let read = |print| group.read(sequence.ok_or(Miss::Contended)?, print).ok_or(Miss::NotHere);
        self.fast_path(self.tables.clock.now(), hash, cost, group, read)
            .unwrap_or_else(|miss| self.after_miss(miss, hash, cost))
    }

    #[inline(always)]
    fn check_at(&self, now: Timestamp, hash: u64, cost: u64) -> Decision {
        self.look_and_decide(now, hash, cost).unwrap_or_else(|miss| self.after_miss(miss, hash, cost))
    }

    /// [`check`](Self::check) for a fixed key that has no entry of its own.
    #[inline(never)]
    pub(crate) fn check_unpinned(&self, hash: u64, cost: u64) -> Decision {
        self.check(hash, cost)
    }

    /// [`check`](Self::check) for a key whose entry is known.
    #[inline(always)]
    pub(crate) fn check_spot(&self, spot: Spot, hash: u64, cost: u64) -> Decision {
        let group = self.tables.flat.group(spot.group);
        let read = |print| {
            let sequence = group.rested().ok_or(Miss::Contended)?;
            group.read_slot(sequence, spot.slot, print).ok_or(Miss::NotHere)
        };
        self.fast_path(self.tables.clock.now(), hash, cost, group, read)
            .unwrap_or_else(|miss| self.after_miss(miss, hash, cost))
    }

    fn group(&self, hash: u64) -> Group<'_> {
        self.tables.flat.group(self.tables.flat.index(hash))
    }

    #[inline]
    fn look_and_decide(&self, now: Timestamp, hash: u64, cost: u64) -> Result<Decision, Miss> {
        let group = self.group(hash);
        let read = |print| group.read(group.rested().ok_or(Miss::Contended)?, print).ok_or(Miss::NotHere);
        self.fast_path(now, hash, cost, group, read)
    }

    /// The fast path: reads the limit and the key's word, decides, and writes by
    /// compare-and-swap. Without a lock, and a denial only reads.
    #[inline(always)]
    fn fast_path(
        &self,
        now: Timestamp,
        hash: u64,
        cost: u64,
        group: Group<'_>,
        read: impl Fn(Fingerprint) -> Result<Seen, Miss>,
    ) -> Result<Decision, Miss> {
        let limit = self.limit_words.read().ok_or(Miss::Contended)?;
        let seen = read(Fingerprint::new(hash, limit.version))?;
        let now_us = now.as_micros();
        let (outcome, word, level) = limit.plan.decide(now_us, seen.word, cost).ok_or(Miss::NotHere)?;
        let is_whole = match outcome {
            Outcome::Allow { .. } if word != seen.word => group.replace(seen, word),
            Outcome::Allow { .. } | Outcome::Deny(_) => group.confirms(seen),
        };
        if !is_whole {
            return Err(Miss::Contended);
        }
        let gauge = limit.plan.gauge(now_us, level, limit.capacity);
        Ok(Decision { outcome, limit: limit.capacity, gauge })
    }

    /// Tries again while others write the same group, instead of taking the cache line away from
    /// each other. Everything else takes the locked path.
    #[inline(never)]
    fn after_miss(&self, mut miss: Miss, hash: u64, cost: u64) -> Decision {
        let mut backoff = Backoff::new();
        while miss == Miss::Contended {
            backoff.wait();
            match self.look_and_decide(self.tables.clock.now(), hash, cost) {
                Ok(decision) => return decision,
                Err(next) => miss = next,
            }
        }
        let (tolds, _) = decide_all(&[Ask { gate: self, hash, cost }], Mode::Check);
        tolds[0].decision
    }

    /// Checks one unit of each of up to `N` keys at one instant, with their cache lines fetched
    /// together.
    pub(crate) fn check_batch<const N: usize, K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        mut each: impl FnMut(usize, Decision),
    ) {
        let mut hashes = [0; N];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.hash(key.as_ref());
        }
        let hashes = &hashes[..keys.len()];
        std::hint::black_box(hashes.iter().fold(0, |all, hash| all ^ self.touch(*hash)));
        let now = self.tables.clock.now();
        for (index, hash) in hashes.iter().enumerate() {
            each(index, self.check_at(now, *hash, 1));
        }
    }

    /// Asks for the cache lines of a key.
    #[inline]
    fn touch(&self, hash: u64) -> u64 {
        self.tables.flat.touch(self.tables.flat.index(hash))
    }

    /// What [`check`](Self::check) would say, with the state as it is.
    pub(crate) fn peek(&self, hash: u64, cost: u64) -> Decision {
        // Of places one can only ask whether one could be held.
        let is_place = matches!(self.version().plan, Plan::Slots(_));
        self.look(hash, cost, if is_place { Mode::Reserve } else { Mode::Check })
    }

    /// What a call in this mode would be told, with the state as it is.
    pub(crate) fn look(&self, hash: u64, cost: u64, mode: Mode) -> Decision {
        let Some(tables) = tracked_hash(self, hash, cost) else {
            let gauge = Gauge::Plain { remaining: 0, reset_us: 0 };
            let limit = self.version().limit.capacity();
            return Decision { outcome: Outcome::Deny(Refused::Full), limit, gauge };
        };
        with_state(self, tables, |version, now_us, state| {
            let limit = version.limit.capacity();
            let asked = version.plan.decide(now_us, state, cost, mode, limit);
            let as_is = version.plan.decide(now_us, state, 0, mode, limit);
            (Decision { outcome: asked.outcome, limit, gauge: as_is.gauge }, Write::Nothing)
        })
    }

    /// Forgets what a key has used. Places that are held stay held.
    pub(crate) fn reset(&self, hash: u64) {
        self.cancelled.forget(hash);
        with_state(self, hash, |version, _, state| {
            if matches!(state, State::Slots(_)) {
                return ((), Write::Nothing);
            }
            *state = version.plan.unused();
            ((), Write::Alone)
        });
    }

    /// Resolves a fixed key to its place and pins it there; `None` if its states are
    /// not single words or its group is full of pinned keys.
    pub(crate) fn pin(&self, hash: u64) -> Option<Spot> {
        let index = self.tables.flat.index(hash);
        let version = self.version();
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let group = self.tables.flat.group(index).lock();
        let now_us = self.tables.clock.now_ordered().as_micros();
        if !version.plan.is_one_word() || group.is_spilled(now_us) || self.is_moving(now_us) {
            return None;
        }
        let slot = match group.find(hash) {
            Some((slot, _)) => slot,
            None => {
                let slot = group.free_slot(now_us)?;
                group.claim(slot, Fingerprint::new(hash, version.number), 0);
                slot
            }
        };
        group.set_pinned(slot, true);
        *pins.entry(hash).or_default() += 1;
        Some(Spot { group: index, slot })
    }

    /// Lets a pinned place go, if this was the last handle on it.
    pub(crate) fn unpin(&self, hash: u64, spot: Spot) {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handles) = pins.get_mut(&hash).filter(|handles| **handles > 1) {
            *handles -= 1;
            return;
        }
        pins.remove(&hash);
        self.tables.flat.group(spot.group).lock().set_pinned(spot.slot, false);
    }

    /// Another limit from now on. Keys are carried over when they are next touched.
    pub(crate) fn change(&self, limit: Limit) {
        let plan = Plan::new(&limit, self.tables.clock.unix_us_at_zero());
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
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
        self.remember(Past { number: old.number, plan: old.plan, until_us: until_us() });
        let move_on = || {
            if is_moving {
                // Also for as long as a key can have counts of limits before it.
                let others = self.past().iter().map(|past| past.until_us).max();
                let until_us = until_us().max(others.unwrap_or(0));
                self.moving_until_us.fetch_max(until_us, Ordering::AcqRel);
            }
        };
        move_on();
        // In this order: whoever meets a state of the new version must be able to find
        // out that there is one.
        let number = if old.number == VERSION_MAX { 1 } else { old.number + 1 };
        self.newest.store(u64::from(number), Ordering::Release);
        let (mut before, mut since_us) = (old.before.clone(), old.since_us);
        // One that counts alike goes on with the same counts.
        if !plan.counts_alike(&old.plan) {
            since_us = now_us();
            if before.len() == OTHERS_MAX {
                before.remove(0);
            }
            before.push((old.number, old.in_force()));
        }
        let next = Arc::new(Version { number, limit, plan, since_us, before });
        *self.version.write().unwrap_or_else(PoisonError::into_inner) = next.clone();
        self.limit_words.store(number, next.limit.capacity(), &plan);
        // Until here others may have written by the old version.
        move_on();
        drop(changing);
        self.grant_waiters();
    }

    fn remember(&self, version: Past) {
        // Places are held by permits, not by the clock: they go along as they are.
        if matches!(version.plan, Plan::Slots(_)) {
            return;
        }
        let now_us = self.tables.clock.now().as_micros();
        let mut past = self.past();
        past.retain(|p| p.until_us > now_us);
        if past.len() == PAST_MAX {
            past.remove(0);
        }
        past.push(version);
    }

    /// More places may be free under a changed limit: those who wait must hear of it.
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

    /// The plan of a past version, for as long as it is remembered.
    pub(super) fn past_plan(&self, number: u16) -> Option<Plan> {
        self.past().iter().rev().find(|p| p.number == number).map(|p| p.plan)
    }

    fn past(&self) -> MutexGuard<'_, Vec<Past>> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
