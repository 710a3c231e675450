//! One gate's side of the store: its limit's numbers and the short way of a decision.

use super::Home;
use super::flat::{Group, Look, Print, Seen};
use super::numbers::{Fast, FastPlan, Numbers, Smooth};
use super::transaction::{Ask, Write, decide_all, home_of, with_state};
use crate::Limit;
use crate::algorithm::{
    Bucket, Gauge, Grant, InForce, KEPT_AT_LEAST_US, Mode, OTHERS_MAX, Plan, Scale, State, word_at,
};
use crate::clock::Timestamp;
use crate::decision::{Decision, Outcome, Refused};
use crate::key::KeyHasher;
use crate::store::cancelled::Cancelled;
use crate::sync::{AtomicU64, Backoff, Ordering};
use smallvec::SmallVec;
use std::collections::HashMap;
#[cfg(feature = "tower")]
use std::net::Ipv4Addr;
#[cfg(feature = "tower")]
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Changed limits that are remembered to carry their keys' states over.
const PAST_MAX: usize = 1_024;
const VERSION_MAX: u16 = (1 << 15) - 1;

/// One gate's limit in its home.
pub(crate) struct Meter {
    pub(crate) id: u32,
    pub(crate) name: Box<str>,
    pub(crate) home: Arc<Home>,
    pub(crate) refuses_strangers: bool,
    /// The limit that it was defined with, which may not be in force any more.
    pub(crate) defined: Box<Limit>,
    /// The hash under which strangers share one allowance when there is no room.
    pub(crate) strangers: u64,
    hasher: KeyHasher,
    numbers: Numbers,
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

/// Where a fixed key was found, so that it is never looked for again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    group: usize,
    slot: usize,
}

/// What a call that was let through leaves of its key.
#[cfg(feature = "tower")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub(crate) remaining: u64,
    /// Until the key is as good as unused, rounded up.
    pub(crate) seconds: NonZeroU64,
}

impl Meter {
    pub(crate) fn new(id: u32, name: &str, limit: Limit, home: Arc<Home>, refuses_strangers: bool) -> Self {
        let plan = Plan::new(&limit, home.clock.unix_us_at_zero());
        let hasher = KeyHasher::random();
        let since_us = home.clock.now().as_micros();
        let version = Version { number: 1, limit, plan, since_us, before: SmallVec::new() };
        Self {
            id,
            name: name.into(),
            home,
            refuses_strangers,
            defined: Box::new(version.limit.clone()),
            strangers: hasher.hash(b"\xff strangers beyond the cap"),
            hasher,
            numbers: Numbers::new(1, version.limit.capacity(), &plan),
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
        let group = self.home.flat.group(self.home.flat.index(hash));
        // First, so that the wait for memory and the reading of the clock overlap.
        let rested = group.rested();
        self.short_way(self.home.clock.now(), hash, cost, group, |print| group.read(rested?, print))
    }

    #[inline(always)]
    pub(crate) fn check_at(&self, now: Timestamp, hash: u64, cost: u64) -> Decision {
        let group = self.home.flat.group(self.home.flat.index(hash));
        self.short_way(now, hash, cost, group, |print| group.read(group.rested()?, print))
    }

    /// [`check`](Self::check) for a fixed key that has no place of its own.
    #[inline(never)]
    pub(crate) fn check_unpinned(&self, hash: u64, cost: u64) -> Decision {
        self.check(hash, cost)
    }

    /// [`check`](Self::check) for a key whose place is known.
    #[inline(always)]
    pub(crate) fn check_spot(&self, spot: Spot, hash: u64, cost: u64) -> Decision {
        let group = self.home.flat.group(spot.group);
        self.short_way(self.home.clock.now(), hash, cost, group, |print| group.read_slot(spot.slot, print))
    }

    /// Lets a client's call for one unit through where a first look is enough, and tells what
    /// is left, all of it in registers. None in any other case; then nothing was taken, and
    /// [`check`](Self::check) tells.
    #[cfg(feature = "tower")]
    #[inline(never)]
    pub(crate) fn pass(&self, client: Ipv4Addr) -> Option<Left> {
        let hash = self.hasher.hash_client(client);
        let group = self.home.flat.group(self.home.flat.index(hash));
        let rested = group.rested();
        let now_us = self.home.clock.now().as_micros();
        let (smooth, seen, level) = self.glance(now_us, hash, |print| group.read(rested?, print))?;
        let bucket = Bucket { scale: smooth.word };
        let (wait_us, level) = bucket.raise(now_us, level, smooth.word.unit, false).ok()?;
        if !group.replace(seen, smooth.word.after(word_at(now_us), level)) {
            return None;
        }
        let gauge = Gauge::of_word(level, smooth.word);
        let decision = Decision { outcome: Outcome::Allow { wait_us }, limit: smooth.limit, gauge };
        // A unit was used just now, so it is no unused key yet.
        let seconds = NonZeroU64::new(decision.reset_seconds()).unwrap_or(NonZeroU64::MIN);
        Some(Left { remaining: decision.remaining(), seconds })
    }

    /// One optimistic look at a smooth bucket's word: its numbers, what was seen, and how full
    /// it is. None if it is another kind of limit, or the word is not there, written right now,
    /// or ahead of its time, or if the clock has run out.
    #[inline(always)]
    fn glance(
        &self,
        now_us: u64,
        hash: u64,
        read: impl Fn(Print) -> Option<Seen>,
    ) -> Option<(Smooth, Seen, u64)> {
        let smooth = self.numbers.smooth()?;
        let seen = read(Print::new(hash, smooth.version))?;
        let level = Bucket { scale: smooth.word }.level(now_us, seen.word);
        let is_timely = level <= smooth.word.full && now_us < Timestamp::MAX.as_micros();
        is_timely.then_some((smooth, seen, level))
    }

    /// A glance for one unit: what nearly every check is. Kept so small that it is inlined
    /// where it is called.
    #[inline(always)]
    fn short_way(
        &self,
        now: Timestamp,
        hash: u64,
        cost: u64,
        group: Group<'_>,
        read: impl Fn(Print) -> Option<Seen>,
    ) -> Decision {
        let now_us = now.as_micros();
        if cost == 1
            && let Some((smooth, seen, level)) = self.glance(now_us, hash, read)
        {
            let bucket = Bucket { scale: smooth.word };
            let (outcome, level, is_whole) = match bucket.raise(now_us, level, smooth.word.unit, false) {
                Ok((wait_us, level)) => {
                    let word = smooth.word.after(word_at(now_us), level);
                    (Outcome::Allow { wait_us }, level, group.replace(seen, word))
                }
                Err(retry_us) => (Outcome::Deny(Refused::Later { retry_us }), level, group.confirms(seen)),
            };
            if is_whole {
                let gauge = Gauge::of_word(level, smooth.word);
                return Decision { outcome, limit: smooth.limit, gauge };
            }
            return self.contended_way(now_us, hash, cost);
        }
        self.middle_way(now_us, hash, cost)
    }

    /// Someone else writes the same group right now: let them, instead of taking the
    /// cache line away from each other.
    #[cold]
    #[inline(never)]
    fn contended_way(&self, now_us: u64, hash: u64, cost: u64) -> Decision {
        Backoff::new().wait();
        self.middle_way(now_us, hash, cost)
    }

    /// The same for any cost and both kinds of words, looking until nobody else
    /// writes, and with a slot for a new key.
    #[inline(never)]
    fn middle_way(&self, now_us: u64, hash: u64, cost: u64) -> Decision {
        let fast = self.numbers.load();
        if matches!(fast.plan, FastPlan::None) {
            return self.long_way(hash, cost);
        }
        let print = Print::new(hash, fast.version);
        let group = self.home.flat.group(self.home.flat.index(hash));
        let mut backoff = Backoff::new();
        loop {
            match group.look(print) {
                Look::Found(seen) => {
                    let Some((outcome, word, gauge)) = fast.plan.decide(now_us, seen.word, cost, fast.limit)
                    else {
                        return self.long_way(hash, cost);
                    };
                    let is_whole = match outcome {
                        Outcome::Allow { .. } if word != seen.word => group.replace(seen, word),
                        _ => group.confirms(seen),
                    };
                    if is_whole {
                        return Decision { outcome, limit: fast.limit, gauge };
                    }
                }
                Look::Busy => {}
                Look::Absent => break,
            }
            backoff.wait();
        }
        self.new_key(&fast, hash, cost).unwrap_or_else(|| self.long_way(hash, cost))
    }

    /// The common case of a key that is not there: its group has a free slot and no
    /// key of it is anywhere else.
    fn new_key(&self, fast: &Fast, hash: u64, cost: u64) -> Option<Decision> {
        let group = self.home.flat.group(self.home.flat.index(hash)).lock();
        // Read under the lock: as of a much earlier time, the key could still have been in a
        // slot that has been taken over since. The little by which a processor reads its
        // counter too early is what a slot is left alone for after its state has passed.
        let now_us = self.home.clock.now().as_micros();
        if group.is_spilled(now_us) || self.is_moving(now_us) || group.find(hash).is_some() {
            return None;
        }
        let slot = group.free_slot(now_us)?;
        let (outcome, word, gauge) = fast.plan.decide(now_us, 0, cost, fast.limit)?;
        if word != 0 {
            group.claim(slot, Print::new(hash, fast.version), word);
        }
        Some(Decision { outcome, limit: fast.limit, gauge })
    }

    #[cold]
    #[inline(never)]
    fn long_way(&self, hash: u64, cost: u64) -> Decision {
        let (answers, _) = decide_all(&[Ask { meter: self, hash, cost }], Mode::Check);
        answers[0].decision
    }

    /// Asks for the cache lines of a key.
    #[inline]
    pub(crate) fn touch(&self, hash: u64) -> u64 {
        self.home.flat.touch(self.home.flat.index(hash))
    }

    /// What [`check`](Self::check) would say, with the state as it is.
    pub(crate) fn peek(&self, hash: u64, cost: u64) -> Decision {
        // Of places one can only ask whether one could be held.
        let is_place = matches!(self.version().plan, Plan::Slots(_));
        self.look(hash, cost, if is_place { Mode::Reserve } else { Mode::Check })
    }

    /// What a call in this mode would be told, with the state as it is.
    pub(crate) fn look(&self, hash: u64, cost: u64, mode: Mode) -> Decision {
        let Some(home) = home_of(self, hash, cost) else {
            let gauge = Gauge::Plain { remaining: 0, reset_us: 0 };
            let limit = self.version().limit.capacity();
            return Decision { outcome: Outcome::Deny(Refused::Full), limit, gauge };
        };
        with_state(self, home, |version, now_us, state| {
            let limit = version.limit.capacity();
            let asked = version.plan.answer(now_us, state, cost, mode, limit);
            let as_is = version.plan.answer(now_us, state, 0, mode, limit);
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
            *state = version.plan.fresh();
            ((), Write::Alone)
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
        if !version.plan.is_one_word() || group.is_spilled(now_us) || self.is_moving(now_us) {
            return None;
        }
        let slot = match group.find(hash) {
            Some((slot, _)) => slot,
            None => {
                let slot = group.free_slot(now_us)?;
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
        let plan = Plan::new(&limit, self.home.clock.unix_us_at_zero());
        let changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.version();
        if old.limit == limit {
            return;
        }
        let is_moving = plan.is_one_word() != old.plan.is_one_word();
        let now_us = || self.home.clock.now().as_micros();
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
        self.numbers.store(number, next.limit.capacity(), &plan);
        // Until here others may have written by the old version.
        move_on();
        drop(changing);
        self.hand_on_places();
    }

    fn remember(&self, version: Past) {
        // Places are held by permits, not by the clock: they go along as they are.
        if matches!(version.plan, Plan::Slots(_)) {
            return;
        }
        let now_us = self.home.clock.now().as_micros();
        let mut past = self.past();
        past.retain(|p| p.until_us > now_us);
        if past.len() == PAST_MAX {
            past.remove(0);
        }
        past.push(version);
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

    /// The plan of a past version, for as long as it is remembered.
    pub(super) fn past_plan(&self, number: u16) -> Option<Plan> {
        self.past().iter().rev().find(|p| p.number == number).map(|p| p.plan)
    }

    fn past(&self) -> MutexGuard<'_, Vec<Past>> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
