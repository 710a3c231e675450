//! One gate's side of the store: its limit's numbers and the short way of a decision.

use super::Home;
use super::flat::{Group, Print, Seen};
use super::numbers::{Fast, FastPlan, Numbers};
use super::transaction::{Ask, decide_all, with_state};
use crate::algorithm::{Bucket, Gauge, Mode, Plan, Scale, State, Stepped, Word};
use crate::clock::Timestamp;
use crate::decision::{Decision, Outcome};
use crate::key::KeyHasher;
use crate::limit::Limit;
use crate::sync::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Optimistic rounds before taking the lock.
const ROUNDS: usize = 8;
/// Changed limits that are remembered to carry their keys' states over.
const PAST_MAX: usize = 1_024;
const VERSION_MAX: u16 = (1 << 15) - 1;

/// One gate's limit in its home.
pub(crate) struct Meter {
    pub(crate) id: u32,
    pub(crate) name: Box<str>,
    pub(crate) home: Arc<Home>,
    pub(crate) refuses_strangers: bool,
    hasher: KeyHasher,
    numbers: Numbers,
    version: RwLock<Arc<Version>>,
    past: Mutex<Vec<Past>>,
    /// How many handles pin a key.
    pins: Mutex<HashMap<u64, usize>>,
    /// Until then a key may still be where the limit before last had it.
    moving_until_us: AtomicU64,
}

/// A limit and its plan, under the number that slots are tagged with.
pub(crate) struct Version {
    pub(crate) number: u16,
    pub(crate) limit: Limit,
    pub(crate) plan: Plan,
}

struct Past {
    number: u16,
    plan: Plan,
    /// From then on all its states have passed.
    until_us: u64,
}

/// Where a fixed key was found, so that it is never looked for again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    group: usize,
    slot: usize,
}

impl Meter {
    pub(crate) fn new(id: u32, name: &str, limit: Limit, home: Arc<Home>, refuses_strangers: bool) -> Self {
        let plan = Plan::new(&limit);
        let version = Version { number: 1, limit, plan };
        Self {
            id,
            name: name.into(),
            home,
            refuses_strangers,
            hasher: KeyHasher::random(),
            numbers: Numbers::new(1, version.limit.capacity(), &plan),
            version: RwLock::new(Arc::new(version)),
            past: Mutex::default(),
            pins: Mutex::default(),
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

    pub(crate) fn is_moving(&self, now_us: u64) -> bool {
        self.moving_until_us.load(Ordering::Acquire) > now_us
    }

    /// Decides now, without a wait.
    #[inline]
    pub(crate) fn check(&self, hash: u64, cost: u64) -> Decision {
        let now = self.home.clock.now();
        self.check_at(now, hash, cost)
    }

    #[inline]
    pub(crate) fn check_at(&self, now: Timestamp, hash: u64, cost: u64) -> Decision {
        let fast = self.numbers.load();
        let print = Print::new(hash, fast.version);
        let group = self.home.flat.group(self.home.flat.index(hash));
        self.short_way(now, &fast, cost, group, || group.read(print))
            .unwrap_or_else(|| self.long_way(hash, cost))
    }

    /// [`check`](Self::check) for a key whose place is known.
    #[inline]
    pub(crate) fn check_spot(&self, spot: Spot, hash: u64, cost: u64) -> Decision {
        let now = self.home.clock.now();
        let fast = self.numbers.load();
        let print = Print::new(hash, fast.version);
        let group = self.home.flat.group(spot.group);
        self.short_way(now, &fast, cost, group, || group.read_slot(spot.slot, print))
            .unwrap_or_else(|| self.long_way(hash, cost))
    }

    /// Asks for the cache lines of a key.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u64 {
        self.home.flat.touch(self.home.flat.index(hash))
    }

    #[inline]
    fn short_way(
        &self,
        now: Timestamp,
        fast: &Fast,
        cost: u64,
        group: Group<'_>,
        read: impl Fn() -> Option<Seen>,
    ) -> Option<Decision> {
        let now_us = now.as_micros();
        for _ in 0..ROUNDS {
            let seen = read()?;
            let (outcome, word, gauge) = match &fast.plan {
                FastPlan::Word(bucket) => word_decision(bucket, now_us, seen.word, cost)?,
                FastPlan::Stepped(bucket) => stepped_decision(bucket, now_us, seen.word, cost, fast.limit)?,
                FastPlan::None => return None,
            };
            let is_whole = match outcome {
                Outcome::Allow { .. } if word != seen.word => group.replace(seen, word),
                _ => group.confirms(seen),
            };
            if is_whole {
                return Some(Decision { outcome, limit: fast.limit, gauge });
            }
        }
        None
    }

    #[cold]
    #[inline(never)]
    fn long_way(&self, hash: u64, cost: u64) -> Decision {
        let ask = Ask { meter: self, hash, cost };
        let (answers, _) = decide_all(&[ask], Mode::Check);
        answers[0].decision
    }

    /// What [`check`](Self::check) would say, with the state as it is.
    pub(crate) fn peek(&self, hash: u64, cost: u64) -> Decision {
        with_state(self, hash, |version, now_us, state| {
            let limit = version.limit.capacity();
            // Of places one can only ask whether one could be held.
            let mode = if matches!(version.plan, Plan::Slots(_)) { Mode::Reserve } else { Mode::Check };
            let asked = version.plan.answer(now_us, state, cost, mode, limit);
            let as_is = version.plan.answer(now_us, state, 0, mode, limit);
            Decision { outcome: asked.outcome, limit, gauge: as_is.gauge }
        })
    }

    /// Forgets what a key has used. Places that are held stay held.
    pub(crate) fn reset(&self, hash: u64) {
        with_state(self, hash, |version, _, state| {
            if !matches!(state, State::Slots(_)) {
                *state = version.plan.fresh();
            }
        });
    }

    /// Resolves a fixed key to its place and pins it there; `None` if its states are
    /// not single words or its group is full of pinned keys.
    pub(crate) fn pin(&self, hash: u64) -> Option<Spot> {
        let index = self.home.flat.index(hash);
        let version = self.version();
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        let group = self.home.flat.group(index).lock();
        let now_us = self.home.clock.now_ordered().as_micros();
        if !version.plan.is_one_word() || group.is_spilled() || self.is_moving(now_us) {
            return None;
        }
        let slot = match group.find(hash) {
            Some((slot, _)) => slot,
            None => {
                let slot = group.free_slot(crate::algorithm::word_at(now_us))?;
                group.claim(slot, Print::new(hash, version.number), 0);
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
        self.home.flat.group(spot.group).lock().set_pinned(spot.slot, false);
    }

    /// Another limit from now on. Keys are carried over when they are next touched.
    pub(crate) fn change(&self, limit: Limit) {
        let plan = Plan::new(&limit);
        let mut version = self.version.write().unwrap_or_else(PoisonError::into_inner);
        if version.limit == limit {
            return;
        }
        let now_us = self.home.clock.now().as_micros();
        let until_us = now_us.saturating_add(version.plan.longest_us());
        {
            let mut past = self.past();
            past.retain(|p| p.until_us > now_us);
            if past.len() == PAST_MAX {
                past.remove(0);
            }
            past.push(Past { number: version.number, plan: version.plan, until_us });
        }
        if plan.is_one_word() != version.plan.is_one_word() {
            self.moving_until_us.fetch_max(until_us, Ordering::AcqRel);
        }
        let number = if version.number == VERSION_MAX { 1 } else { version.number + 1 };
        let next = Version { number, limit, plan };
        self.numbers.store(number, next.limit.capacity(), &plan);
        *version = Arc::new(next);
        drop(version);
        self.hand_on_places();
    }

    /// More places may be free under a changed limit: those who wait must hear of it.
    fn hand_on_places(&self) {
        let version = self.version();
        let Plan::Slots(slots) = &version.plan else { return };
        for index in self.home.shards.indexes() {
            let mut wakers = Vec::new();
            for entry in self.home.shards.lock(index).entries().filter(|entry| entry.gate == self.id) {
                if let State::Slots(state) = &mut entry.state {
                    wakers.extend(slots.hand_on(state));
                }
            }
            wakers.into_iter().for_each(std::task::Waker::wake);
        }
    }

    /// A state that a past version wrote, as the current one counts it.
    pub(crate) fn carried_over(
        &self,
        now_us: u64,
        version: &Version,
        number: u16,
        state: State,
        is_idle: bool,
    ) -> State {
        if number == version.number {
            return state;
        }
        let past = self.past().iter().rev().find(|p| p.number == number).map(|p| p.plan);
        match past {
            Some(plan) => version.plan.carried_over(now_us, &plan, state),
            None if is_idle => version.plan.fresh(),
            None => version.plan.used_up(now_us),
        }
    }

    fn past(&self) -> MutexGuard<'_, Vec<Past>> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The hash under which strangers share one allowance when there is no room.
    pub(crate) fn overflow_hash(&self) -> u64 {
        self.hasher.hash(b"\xff strangers beyond the cap")
    }
}

#[inline]
fn word_decision(bucket: &Bucket<Word>, now_us: u64, word: u64, cost: u64) -> Option<(Outcome, u64, Gauge)> {
    if bucket.is_ahead(now_us, word) {
        return None;
    }
    let (outcome, next, level) = bucket.decide(now_us, word, cost, Mode::Check);
    Some((outcome, next, Gauge::Word { level, word: bucket.scale }))
}

#[inline]
fn stepped_decision(
    bucket: &Bucket<Stepped>,
    now_us: u64,
    word: u64,
    cost: u64,
    limit: u64,
) -> Option<(Outcome, u64, Gauge)> {
    let tat = bucket.scale.tat(word);
    if bucket.is_ahead(now_us, tat) {
        return None;
    }
    let (outcome, next, level) = bucket.decide(now_us, tat, cost, Mode::Check);
    let gauge = Gauge::Plain {
        remaining: limit.saturating_sub(level),
        reset_us: bucket.scale.empty_us(level, now_us),
    };
    let next = if next == tat { word } else { bucket.scale.word(next) };
    Some((outcome, next, gauge))
}
