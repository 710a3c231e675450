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
use crate::algorithm::{Answer, Mode, State, Step, word_at};
use crate::clock::Timestamp;
use crate::decision::{Decision, Outcome, Refused};
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
    /// The hash that was charged: the strangers' one if there was no room.
    pub(crate) hash: u64,
}

pub(crate) type Tolds = SmallVec<[Told; 2]>;

/// Decides several questions at the same instant and charges all or none.
pub(crate) fn decide_all(asks: &[Ask<'_>], mode: Mode) -> (Tolds, Timestamp) {
    let mut asks: SmallVec<[Ask<'_>; 4]> = SmallVec::from_slice(asks);
    loop {
        let merged = merge(&asks);
        let mut locked = Locked::new(&merged);
        let now = locked.now;
        let mut answers: SmallVec<[Answer; 4]> = SmallVec::new();
        let mut homeless = None;
        for index in 0..merged.len() {
            match locked.answer(index, mode) {
                Some(answer) => answers.push(answer),
                None => {
                    homeless = Some(index);
                    break;
                }
            }
        }
        if let Some(index) = homeless {
            let ask = merged[index];
            drop(locked);
            if ask.meter.refuses_strangers {
                return (refused(&asks, ask), now);
            }
            let shared = ask.meter.overflow_hash();
            for other in asks.iter_mut().filter(|other| is_same(other, &ask)) {
                other.hash = shared;
            }
            continue;
        }
        if answers.iter().all(Answer::is_allowed) {
            for (index, answer) in answers.iter().enumerate() {
                locked.take(index, answer.step);
            }
        }
        let told = |ask: &Ask<'_>| {
            let index = merged.iter().position(|m| is_same(m, ask)).unwrap_or(0);
            let limit = locked.places[index].version.limit.capacity();
            Told { decision: answers[index].decision(limit), mark: answers[index].step, hash: ask.hash }
        };
        return (asks.iter().map(told).collect(), now);
    }
}

fn is_same(a: &Ask<'_>, b: &Ask<'_>) -> bool {
    std::ptr::eq(a.meter, b.meter) && a.hash == b.hash
}

/// One question for each key: a key asked about twice pays the sum.
fn merge<'a>(asks: &[Ask<'a>]) -> SmallVec<[Ask<'a>; 4]> {
    let mut merged: SmallVec<[Ask<'a>; 4]> = SmallVec::new();
    for ask in asks {
        match merged.iter_mut().find(|m| is_same(m, ask)) {
            Some(same) => same.cost = same.cost.saturating_add(ask.cost),
            None => merged.push(*ask),
        }
    }
    merged
}

/// Nothing was charged; the one without a home is why.
fn refused(asks: &[Ask<'_>], homeless: Ask<'_>) -> Tolds {
    let told = |ask: &Ask<'_>| {
        let mut decision = ask.meter.peek(ask.hash, ask.cost);
        if is_same(ask, &homeless) {
            decision.outcome = Outcome::Deny(Refused::Full);
        }
        Told { decision, mark: Step::Keep, hash: ask.hash }
    };
    asks.iter().map(told).collect()
}

/// Looks at or changes one key's state under its lock.
pub(crate) fn with_state<T>(meter: &Meter, hash: u64, f: impl FnOnce(&Version, u64, &mut State) -> T) -> T {
    let mut locked = Locked::new(&[Ask { meter, hash, cost: 1 }]);
    let now_us = locked.now.as_micros();
    let version = locked.places[0].version.clone();
    let (mut state, spot) = locked.load(0);
    let out = f(&version, now_us, &mut state);
    locked.save(0, spot, state);
    out
}

/// Where a key's state was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spot {
    Slot(usize),
    Entry,
    Nowhere,
}

struct Place<'a> {
    ask: Ask<'a>,
    version: Arc<Version>,
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
    now: Timestamp,
}

/// A lock's name: its home's address and its number there.
type Name = (usize, usize);

fn address(home: &Home) -> usize {
    std::ptr::from_ref(home).addr()
}

impl<'a> Locked<'a> {
    fn new(asks: &[Ask<'a>]) -> Self {
        loop {
            let places = asks.iter().map(|ask| Place {
                ask: *ask,
                version: ask.meter.version(),
                group: None,
                shard: None,
            });
            let mut locked = Self {
                places: places.collect(),
                groups: SmallVec::new(),
                shards: SmallVec::new(),
                now: Timestamp::default(),
            };
            locked.lock_groups();
            locked.lock_shards();
            // The clock is read under the locks: whoever holds them sees it go on.
            if let Some(place) = locked.places.first() {
                locked.now = place.ask.meter.home.clock.now_ordered();
            }
            if locked.places.iter().all(|p| p.ask.meter.version().number == p.version.number) {
                return locked;
            }
        }
    }

    fn lock_groups(&mut self) {
        let mut names: SmallVec<[(Name, &'a Home); 2]> = SmallVec::new();
        let now_us = self.places.first().map_or(0, |p| p.ask.meter.home.clock.now().as_micros());
        let wants = |p: &Place<'_>| p.version.plan.is_one_word() || p.ask.meter.is_moving(now_us);
        let name = |ask: &Ask<'a>| {
            let home: &'a Home = &ask.meter.home;
            ((address(home), home.flat.index(ask.hash)), home)
        };
        names.extend(self.places.iter().filter(|p| wants(p)).map(|p| name(&p.ask)));
        names.sort_unstable_by_key(|(name, _)| *name);
        names.dedup_by_key(|(name, _)| *name);
        for ((_, index), home) in &names {
            self.groups.push(home.flat.group(*index).lock());
        }
        for place in &mut self.places {
            let wanted = name(&place.ask).0;
            place.group = names.iter().position(|(name, _)| *name == wanted);
        }
    }

    fn lock_shards(&mut self) {
        let mut names: SmallVec<[(Name, &'a Home); 2]> = SmallVec::new();
        let name = |ask: &Ask<'a>| {
            let home: &'a Home = &ask.meter.home;
            ((address(home), home.shards.index(ask.hash)), home)
        };
        let is_alone = self.places.len() == 1;
        let wants = |p: &Place<'_>| match p.group {
            // A word that has its slot, or can have one, needs no shard; among
            // several it is locked all the same, as the order forbids to come back.
            Some(group) if is_alone && p.version.plan.is_one_word() => {
                let group = &self.groups[group];
                let now_us = p.ask.meter.home.clock.now().as_micros();
                let is_current = |(_, print): &(usize, Print)| print.version() == p.version.number;
                let has_slot = group.find(p.ask.hash).filter(is_current).is_some();
                let was_changed = group.find(p.ask.hash).is_some() && !has_slot;
                let spills = group.is_spilled() || p.ask.meter.is_moving(now_us);
                was_changed || !has_slot && (spills || group.free_slot(word_at(now_us)).is_none())
            }
            _ => true,
        };
        names.extend(self.places.iter().filter(|p| wants(p)).map(|p| name(&p.ask)));
        names.sort_unstable_by_key(|(name, _)| *name);
        names.dedup_by_key(|(name, _)| *name);
        for ((_, index), home) in &names {
            self.shards.push(home.shards.lock(*index));
        }
        for place in &mut self.places {
            let wanted = name(&place.ask).0;
            place.shard = names.iter().position(|(name, _)| *name == wanted);
        }
    }

    /// The decision for one place; `None` if its key is new and there is no room.
    fn answer(&mut self, index: usize, mode: Mode) -> Option<Answer> {
        let (mut state, spot) = self.load(index);
        let is_strangers = self.places[index].ask.hash == self.places[index].ask.meter.overflow_hash();
        if spot == Spot::Nowhere && !is_strangers && !self.has_room(index) {
            return None;
        }
        let now_us = self.now.as_micros();
        let place = &self.places[index];
        let limit = place.version.limit.capacity();
        let answer = place.version.plan.answer(now_us, &mut state, place.ask.cost, mode, limit);
        // What was forgotten, repaired or carried over is kept, granted or not. A new
        // key is written only when it is granted something.
        if spot != Spot::Nowhere {
            self.save(index, spot, state);
        }
        Some(answer)
    }

    fn take(&mut self, index: usize, step: Step) {
        if step == Step::Keep {
            return;
        }
        let (mut state, spot) = self.load(index);
        self.places[index].version.plan.apply(&mut state, step);
        self.save(index, spot, state);
    }

    /// The state of a key as its current limit counts it. An entry's state is taken
    /// out, and must be saved back.
    fn load(&mut self, index: usize) -> (State, Spot) {
        let now_us = self.now.as_micros();
        let place = &self.places[index];
        let (meter, hash, version) = (place.ask.meter, place.ask.hash, &place.version);
        let slot = place.group.and_then(|at| self.groups[at].find(hash));
        let entry = place.shard.and_then(|at| self.shards[at].get(meter.id, hash));
        // After several changes both can be there: the later one counts.
        let age = |number: u16| version.age(number);
        let slot =
            slot.filter(|(_, print)| entry.as_ref().is_none_or(|e| age(print.version()) < age(e.version)));
        if let (Some((slot, print)), Some(group)) = (slot, place.group) {
            let word = self.groups[group].word(slot);
            let is_idle = word <= word_at(now_us);
            let state = meter.carried_over(now_us, version, print.version(), State::Word(word), is_idle);
            return (state, Spot::Slot(slot));
        }
        if let Some(entry) = entry {
            let state = std::mem::replace(&mut entry.state, State::Word(0));
            let is_idle = entry.idle_at_us <= now_us;
            let state = meter.carried_over(now_us, version, entry.version, state, is_idle);
            return (state, Spot::Entry);
        }
        (version.plan.fresh(), Spot::Nowhere)
    }

    fn save(&mut self, index: usize, spot: Spot, state: State) {
        let now_us = self.now.as_micros();
        let place = &self.places[index];
        let (meter, hash, version) = (place.ask.meter, place.ask.hash, &place.version);
        let idle_at_us = version.plan.idle_at_us(now_us, &state);
        let group = place.group.map(|at| &self.groups[at]);
        if let (Some(group), State::Word(word)) = (group, &state) {
            let print = Print::new(hash, version.number);
            let free = || group.free_slot(word_at(now_us));
            match spot {
                Spot::Slot(slot) => return group.write(slot, print, *word),
                Spot::Nowhere if idle_at_us <= now_us => return,
                Spot::Nowhere => {
                    if let Some(slot) = free() {
                        return group.claim(slot, print, *word);
                    }
                    group.set_spilled();
                }
                Spot::Entry => {
                    group.set_spilled();
                    if let Some((slot, _)) = group.find(hash) {
                        group.clear(slot);
                    }
                }
            }
        }
        if let (Some(group), Spot::Slot(slot)) = (group, spot) {
            // The limit's states are no longer words: the slot is given up.
            group.clear(slot);
        }
        let Some(shard) = place.shard.map(|at| &mut self.shards[at]) else { return };
        let entry = match spot {
            Spot::Nowhere if idle_at_us <= now_us => return,
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

    fn has_room(&mut self, index: usize) -> bool {
        let now_us = self.now.as_micros();
        let place = &self.places[index];
        let in_group = place.version.plan.is_one_word()
            && place.group.is_some_and(|at| self.groups[at].free_slot(word_at(now_us)).is_some());
        in_group || place.shard.is_some_and(|at| self.shards[at].has_room(now_us))
    }
}
