//! The long way of a decision: any state, several limits, all or none.
//!
//! Everything a request touches is locked first, groups before shards and each in
//! ascending order, so that no two requests can wait for each other; then everything
//! is decided, and written only if every limit agrees. A single check that the short
//! way cannot answer is a request of one.

use super::Home;
use super::flat::{LockedGroup, Print};
use super::meter::{Meter, Version};
use super::shards::Shard;
use crate::algorithm::{Answer, Gauge, Mode, State, Step, word_at};
use crate::clock::Timestamp;
use crate::decision::{Decision, Refused};
use crate::sync::Backoff;
use smallvec::SmallVec;
use std::sync::{Arc, MutexGuard};

/// One question.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) meter: &'a Meter,
    pub(crate) hash: u64,
    pub(crate) cost: u64,
}

/// The answer to it, and what a permit must remember to give it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) decision: Decision,
    pub(crate) mark: Step,
    pub(crate) version: u16,
    /// When it was decided, on the clock of its own store.
    pub(crate) now: Timestamp,
    /// The hash that was charged: the strangers' one if there was no room.
    pub(crate) hash: u64,
}

pub(crate) type Tolds = SmallVec<[Told; 2]>;

/// Decides several questions at the same instant and charges all or none.
pub(crate) fn decide_all(asks: &[Ask<'_>], mode: Mode) -> (Tolds, Timestamp) {
    let mut asks: SmallVec<[Ask<'_>; 2]> = SmallVec::from_slice(asks);
    loop {
        let merged = merge(&asks);
        let mut locked = Locked::new(&merged);
        let now = locked.places.first().map_or(Timestamp::default(), |place| place.now);
        let answers = match locked.homeless() {
            None => locked.decide(mode),
            // Under these locks: whoever looked again could find room, and say that a request
            // is allowed of which nothing was charged.
            Some(homeless) if homeless.meter.refuses_strangers => locked.refuse(mode),
            Some(homeless) => {
                drop(locked);
                for other in asks.iter_mut().filter(|other| is_same(other, &homeless)) {
                    other.hash = homeless.meter.strangers;
                }
                continue;
            }
        };
        let told = |ask: &Ask<'_>| {
            let index = merged.iter().position(|m| is_same(m, ask)).unwrap_or(0);
            let (Place { version, now, .. }, answer) = (&locked.places[index], &answers[index]);
            let decision = answer.decision(version.limit.capacity());
            Told { decision, mark: answer.step, version: version.number, now: *now, hash: ask.hash }
        };
        return (asks.iter().map(told).collect(), now);
    }
}

fn is_same(a: &Ask<'_>, b: &Ask<'_>) -> bool {
    std::ptr::eq(a.meter, b.meter) && a.hash == b.hash
}

/// One question for each key: a key asked about twice pays the sum.
fn merge<'a>(asks: &[Ask<'a>]) -> SmallVec<[Ask<'a>; 2]> {
    let mut merged: SmallVec<[Ask<'a>; 2]> = SmallVec::new();
    for ask in asks {
        match merged.iter_mut().find(|m| is_same(m, ask)) {
            Some(same) => same.cost = same.cost.saturating_add(ask.cost),
            None => merged.push(*ask),
        }
    }
    merged
}

/// The hash that a call of this cost is counted under now: its key's own, the strangers' one
/// if the key is new and there is no room, or none if strangers are refused.
pub(crate) fn home_of(meter: &Meter, hash: u64, cost: u64) -> Option<u64> {
    match Locked::new(&[Ask { meter, hash, cost }]).homeless() {
        None => Some(hash),
        Some(_) if meter.refuses_strangers => None,
        Some(_) => Some(meter.strangers),
    }
}

/// Looks at or changes one key's state under its lock.
pub(crate) fn with_state<T>(meter: &Meter, hash: u64, f: impl FnOnce(&Version, u64, &mut State) -> T) -> T {
    let mut locked = Locked::new(&[Ask { meter, hash, cost: 1 }]);
    let (mut state, found) = locked.load(0);
    let place = &locked.places[0];
    let out = f(&place.version, place.now.as_micros(), &mut state);
    locked.save(0, found, state);
    out
}

/// Where a key's state was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Slot(usize),
    Entry,
    Nowhere,
}

struct Place<'a> {
    ask: Ask<'a>,
    version: Arc<Version>,
    now: Timestamp,
    /// Indexes into the locks.
    group: Option<usize>,
    shard: Option<usize>,
}

/// Everything that a request touches, locked.
struct Locked<'a> {
    places: SmallVec<[Place<'a>; 2]>,
    // Dropped in this order: whoever has the group next must not find its shard taken.
    shards: SmallVec<[MutexGuard<'a, Shard>; 2]>,
    groups: SmallVec<[LockedGroup<'a>; 2]>,
}

/// A lock by its home's address and its number there.
type Name<'a> = (usize, usize, &'a Home);

fn name(home: &Home, number: usize) -> Name<'_> {
    (std::ptr::from_ref(home).addr(), number, home)
}

fn is_same_lock(a: &Name<'_>, b: &Name<'_>) -> bool {
    (a.0, a.1) == (b.0, b.1)
}

/// Each lock once, in the order in which everybody takes them.
fn in_order<'a>(wanted: impl Iterator<Item = Name<'a>>) -> SmallVec<[Name<'a>; 2]> {
    let mut names: SmallVec<[Name<'a>; 2]> = wanted.collect();
    names.sort_unstable_by_key(|(home, number, _)| (*home, *number));
    names.dedup_by(|a, b| is_same_lock(a, b));
    names
}

impl<'a> Place<'a> {
    fn group_name(&self) -> Name<'a> {
        let home: &'a Home = &self.ask.meter.home;
        name(home, home.flat.index(self.ask.hash))
    }

    fn shard_name(&self) -> Name<'a> {
        let home: &'a Home = &self.ask.meter.home;
        name(home, home.shards.index(self.ask.hash))
    }
}

impl<'a> Locked<'a> {
    fn new(asks: &[Ask<'a>]) -> Self {
        let mut backoff = Backoff::new();
        loop {
            let place = |ask: &Ask<'a>| {
                let (version, now) = (ask.meter.version(), ask.meter.home.clock.now());
                Place { ask: *ask, version, now, group: None, shard: None }
            };
            let mut locked = Self {
                places: asks.iter().map(place).collect(),
                groups: SmallVec::new(),
                shards: SmallVec::new(),
            };
            locked.lock_groups();
            locked.lock_shards();
            if locked.places.iter().all(|p| p.ask.meter.is_newest(&p.version)) {
                locked.read_clocks();
                return locked;
            }
            drop(locked);
            backoff.wait();
        }
    }

    /// The time is read under the locks: whoever holds them sees it go on. Those on one
    /// clock are decided at one instant.
    fn read_clocks(&mut self) {
        for index in 0..self.places.len() {
            let clock = &self.places[index].ask.meter.home.clock;
            let read = self.places[..index].iter().find(|p| p.ask.meter.home.clock.is_same(clock));
            let now = read.map_or_else(|| clock.now_ordered(), |p| p.now);
            // A slot that was free when the locks were chosen must still be.
            self.places[index].now = now.max(self.places[index].now);
        }
    }

    fn lock_groups(&mut self) {
        let wants = |p: &&Place<'_>| p.version.plan.is_one_word() || p.ask.meter.is_moving(p.now.as_micros());
        let names = in_order(self.places.iter().filter(wants).map(Place::group_name));
        self.groups.extend(names.iter().map(|(_, number, home)| home.flat.group(*number).lock()));
        for place in &mut self.places {
            let wanted = place.group_name();
            place.group = names.iter().position(|name| is_same_lock(name, &wanted));
        }
    }

    fn lock_shards(&mut self) {
        let names = in_order(self.places.iter().filter(|p| self.wants_shard(p)).map(Place::shard_name));
        self.shards.extend(names.iter().map(|(_, number, home)| home.shards.lock(*number)));
        for place in &mut self.places {
            let wanted = place.shard_name();
            place.shard = names.iter().position(|name| is_same_lock(name, &wanted));
        }
    }

    /// A word that has its slot, or can have one, needs no shard; among several it is
    /// locked all the same, as the order forbids to come back.
    fn wants_shard(&self, place: &Place<'_>) -> bool {
        let is_alone = self.places.len() == 1;
        let Some(group) = place.group.filter(|_| is_alone && place.version.plan.is_one_word()) else {
            return true;
        };
        let (group, now_us) = (&self.groups[group], place.now.as_micros());
        match group.find(place.ask.hash) {
            Some((_, print)) => print.version() != place.version.number,
            None => {
                let spills = group.is_spilled(now_us) || place.ask.meter.is_moving(now_us);
                spills || group.free_slot(now_us).is_none()
            }
        }
    }

    /// Decides every place, and takes what was asked if all agree.
    fn decide(&mut self, mode: Mode) -> SmallVec<[Answer; 2]> {
        let mut answers: SmallVec<[Answer; 2]> = SmallVec::new();
        let mut states: SmallVec<[(State, Found); 1]> = SmallVec::new();
        for index in 0..self.places.len() {
            let (mut state, found) = self.load(index);
            let Place { ask, version, now, .. } = &self.places[index];
            let limit = version.limit.capacity();
            answers.push(version.plan.answer(now.as_micros(), &mut state, ask.cost, mode, limit));
            states.push((state, found));
        }
        let is_granted = answers.iter().all(Answer::is_allowed);
        for (index, (mut state, found)) in states.into_iter().enumerate() {
            if is_granted {
                self.places[index].version.plan.apply(&mut state, answers[index].step);
            }
            // What was forgotten, repaired or carried over is kept, granted or not. A new
            // key is written only if it was granted something.
            self.save(index, found, state);
        }
        answers
    }

    /// What to tell if nothing may be charged, because one of the keys has no room: that
    /// one is [`Refused::Full`], and the others hear how they stand.
    fn refuse(&mut self, mode: Mode) -> SmallVec<[Answer; 2]> {
        let mut answers = SmallVec::new();
        for index in 0..self.places.len() {
            if !self.has_room(index) {
                let nothing = Gauge::Plain { remaining: 0, reset_us: 0 };
                answers.push(Answer::denied(Refused::Full, nothing));
                continue;
            }
            let (mut state, found) = self.load(index);
            let Place { ask, version, now, .. } = &self.places[index];
            let (limit, now_us) = (version.limit.capacity(), now.as_micros());
            let asked = version.plan.answer(now_us, &mut state, ask.cost, mode, limit);
            let as_is = version.plan.answer(now_us, &mut state, 0, mode, limit);
            self.save(index, found, state);
            answers.push(Answer { gauge: as_is.gauge, step: Step::Keep, ..asked });
        }
        answers
    }

    /// A new key for which there is no room.
    fn homeless(&mut self) -> Option<Ask<'a>> {
        (0..self.places.len()).find(|index| !self.has_room(*index)).map(|index| self.places[index].ask)
    }

    /// The state of a key as its current limit counts it. An entry's state is taken
    /// out, and must be saved back.
    fn load(&mut self, index: usize) -> (State, Found) {
        let place = &self.places[index];
        let now_us = place.now.as_micros();
        let (meter, hash, version) = (place.ask.meter, place.ask.hash, &place.version);
        let slot = place.group.and_then(|at| self.groups[at].find(hash));
        let entry = place.shard.and_then(|at| self.shards[at].get(meter.id, hash));
        // After several changes both can be there: the later one counts.
        let age = |number: u16| version.age(number);
        let slot =
            slot.filter(|(_, print)| entry.as_ref().is_none_or(|e| age(print.version()) <= age(e.version)));
        if let (Some((slot, print)), Some(group)) = (slot, place.group) {
            let word = self.groups[group].word(slot);
            let is_idle = word <= word_at(now_us);
            let state = meter.carried_over(now_us, version, print.version(), State::Word(word), is_idle);
            return (state, Found::Slot(slot));
        }
        if let Some(entry) = entry {
            let state = std::mem::replace(&mut entry.state, State::Word(0));
            let is_idle = entry.idle_at_us <= now_us;
            let state = meter.carried_over(now_us, version, entry.version, state, is_idle);
            return (state, Found::Entry);
        }
        (version.plan.fresh(), Found::Nowhere)
    }

    fn save(&mut self, index: usize, found: Found, state: State) {
        let place = &self.places[index];
        let now_us = place.now.as_micros();
        let (meter, hash, version) = (place.ask.meter, place.ask.hash, &place.version);
        let idle_at_us = version.plan.idle_at_us(now_us, &state);
        let group = place.group.map(|at| &self.groups[at]);
        if let (Some(group), State::Word(word)) = (group, &state) {
            let print = Print::new(hash, version.number);
            match found {
                Found::Slot(slot) => return group.write(slot, print, *word),
                Found::Nowhere if idle_at_us <= now_us => return,
                Found::Nowhere | Found::Entry => {
                    // A slot that an older version left behind is taken first: one key,
                    // one place.
                    if let Some((slot, _)) = group.find(hash) {
                        group.write(slot, print, *word);
                        return self.forget_entry(index);
                    }
                    if let Some(slot) = group.free_slot(now_us) {
                        group.claim(slot, print, *word);
                        return self.forget_entry(index);
                    }
                    group.set_spilled(idle_at_us);
                }
            }
        }
        if let (Some(group), Found::Slot(slot)) = (group, found) {
            // The limit's states are no longer words: the slot is given up.
            group.clear(slot);
        }
        let Some(shard) = place.shard.map(|at| &mut self.shards[at]) else { return };
        let entry = match found {
            Found::Nowhere if idle_at_us <= now_us => return,
            // There can be one already, of a version before the slot's.
            _ if shard.get(meter.id, hash).is_some() => shard.get(meter.id, hash),
            _ => Some(shard.insert(now_us, meter.id, hash, version.number, State::Word(0))),
        };
        if let Some(entry) = entry {
            entry.version = version.number;
            entry.idle_at_us = idle_at_us;
            entry.state = state;
        }
    }

    /// The key has a slot now: its entry, if it has one, is idle and goes in time.
    fn forget_entry(&mut self, index: usize) {
        let Place { ask, version, shard, .. } = &self.places[index];
        if let Some(entry) = shard.and_then(|at| self.shards[at].get(ask.meter.id, ask.hash)) {
            entry.version = version.number;
            entry.idle_at_us = 0;
            entry.state = State::Word(0);
        }
    }

    /// True unless the key is new and there is no place for it. Strangers' keys have one,
    /// and a call that costs nothing needs none.
    fn has_room(&mut self, index: usize) -> bool {
        let place = &self.places[index];
        let (meter, hash, now_us) = (place.ask.meter, place.ask.hash, place.now.as_micros());
        let group = place.group.map(|at| &self.groups[at]);
        let needs_none = place.ask.cost == 0 || hash == meter.strangers;
        let is_known = needs_none || group.is_some_and(|group| group.find(hash).is_some());
        let in_group =
            place.version.plan.is_one_word() && group.is_some_and(|group| group.free_slot(now_us).is_some());
        is_known
            || in_group
            || place.shard.is_some_and(|at| {
                let shard = &mut self.shards[at];
                shard.get(meter.id, hash).is_some() || shard.has_room(now_us)
            })
    }
}
