//! The long way of a decision: any state, several limits, all or none.
//!
//! Everything a request touches is locked first, groups before shards and each in
//! ascending order, so that no two requests can wait for each other; then everything
//! is decided, and written only if every limit agrees. A single check that the short
//! way cannot answer is a request of one.

use super::Tables;
use super::flat::{Fingerprint, LockedGroup};
use super::gate::{MemoryGate, Version};
use super::shards::{Shard, Use};
use crate::algorithm::{Answer, Count, Gauge, Mode, OTHERS_MAX, OtherCounts, Plan, State, Step, word_at};
use crate::clock::Timestamp;
use crate::decision::{Decision, Refused};
use crate::sync::Backoff;
use smallvec::SmallVec;
use std::sync::{Arc, MutexGuard};

/// One question.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) gate: &'a MemoryGate,
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
    /// The hash that was charged: the overflow_hash' one if there was no room.
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
        let answers = match locked.untracked() {
            None => locked.decide(mode),
            // Under these locks: whoever looked again could find room, and say that a request
            // is allowed of which nothing was charged.
            Some(untracked) if untracked.gate.refuses_untracked => locked.refuse(mode),
            Some(untracked) => {
                drop(locked);
                for other in asks.iter_mut().filter(|other| is_same(other, &untracked)) {
                    other.hash = untracked.gate.overflow_hash;
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
    std::ptr::eq(a.gate, b.gate) && a.hash == b.hash
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

/// The hash that a call of this cost is counted under now: its key's own, the overflow_hash' one
/// if the key is new and there is no room, or none if overflow_hash are refused.
pub(crate) fn tracked_hash(gate: &MemoryGate, hash: u64, cost: u64) -> Option<u64> {
    match Locked::new(&[Ask { gate, hash, cost }]).untracked() {
        None => Some(hash),
        Some(_) if gate.refuses_untracked => None,
        Some(_) => Some(gate.overflow_hash),
    }
}

/// What a change of one key's state means for its counts by other limits.
pub(crate) enum Write {
    /// It is left as it was found.
    Nothing,
    /// It is written, and the others count these units, too.
    Charged(u64),
    /// It is written, and the others are forgotten.
    Alone,
}

/// Looks at or changes one key's state under its lock.
pub(crate) fn with_state<T>(
    gate: &MemoryGate,
    hash: u64,
    f: impl FnOnce(&Version, u64, &mut State) -> (T, Write),
) -> T {
    let mut locked = Locked::new(&[Ask { gate, hash, cost: 1 }]);
    let mut loaded = locked.load(0);
    let place = &locked.places[0];
    let (out, write) = f(&place.version, place.now.as_micros(), &mut loaded.state);
    match write {
        Write::Nothing => locked.put_back(0, loaded),
        Write::Charged(units) => locked.write(0, loaded, units),
        Write::Alone => {
            (loaded.others, loaded.past) = (None, None);
            locked.save(0, loaded);
        }
    }
    out
}

/// Where a key's state was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Slot(usize),
    Entry,
    Nowhere,
}

/// A key's state as its current limit counts it, taken out of its place.
struct Loaded {
    state: State,
    found: Found,
    others: Option<Box<OtherCounts>>,
    /// Set if another limit wrote it last.
    past: Option<WrittenBefore>,
}

/// The state of a key that another limit wrote last.
struct WrittenBefore {
    /// None if the version is forgotten.
    plan: Option<Plan>,
    state: State,
    /// Counts of limits that were in force in between.
    between: SmallVec<[Count; OTHERS_MAX]>,
}

/// What an entry is for: a new key is in the shards only because its group was full, one
/// that comes out of the table needs room for more than a word.
fn use_of(plan: &Plan, found: Found) -> Use {
    if found == Found::Nowhere && plan.is_one_word() { Use::Spilled } else { Use::Own }
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

/// A lock by its tables's address and its number there.
type Name<'a> = (usize, usize, &'a Tables);

fn name(tables: &Tables, number: usize) -> Name<'_> {
    (std::ptr::from_ref(tables).addr(), number, tables)
}

fn is_same_lock(a: &Name<'_>, b: &Name<'_>) -> bool {
    (a.0, a.1) == (b.0, b.1)
}

/// Each lock once, in the order in which everybody takes them.
fn in_order<'a>(wanted: impl Iterator<Item = Name<'a>>) -> SmallVec<[Name<'a>; 2]> {
    let mut names: SmallVec<[Name<'a>; 2]> = wanted.collect();
    names.sort_unstable_by_key(|(tables, number, _)| (*tables, *number));
    names.dedup_by(|a, b| is_same_lock(a, b));
    names
}

impl<'a> Place<'a> {
    fn group_name(&self) -> Name<'a> {
        let tables: &'a Tables = &self.ask.gate.tables;
        name(tables, tables.flat.index(self.ask.hash))
    }

    fn shard_name(&self) -> Name<'a> {
        let tables: &'a Tables = &self.ask.gate.tables;
        name(tables, tables.shards.index(self.ask.hash))
    }
}

impl<'a> Locked<'a> {
    fn new(asks: &[Ask<'a>]) -> Self {
        let mut backoff = Backoff::new();
        loop {
            let place = |ask: &Ask<'a>| {
                let (version, now) = (ask.gate.version(), ask.gate.tables.clock.now());
                Place { ask: *ask, version, now, group: None, shard: None }
            };
            let mut locked = Self {
                places: asks.iter().map(place).collect(),
                groups: SmallVec::new(),
                shards: SmallVec::new(),
            };
            locked.lock_groups();
            locked.lock_shards();
            if locked.places.iter().all(|p| p.ask.gate.is_newest(&p.version)) {
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
            let clock = &self.places[index].ask.gate.tables.clock;
            let read = self.places[..index].iter().find(|p| p.ask.gate.tables.clock.is_same(clock));
            let now = read.map_or_else(|| clock.now_ordered(), |p| p.now);
            // A slot that was free when the locks were chosen must still be.
            self.places[index].now = now.max(self.places[index].now);
        }
    }

    fn lock_groups(&mut self) {
        let wants = |p: &&Place<'_>| p.version.plan.is_one_word() || p.ask.gate.is_moving(p.now.as_micros());
        let names = in_order(self.places.iter().filter(wants).map(Place::group_name));
        self.groups.extend(names.iter().map(|(_, number, tables)| tables.flat.group(*number).lock()));
        for place in &mut self.places {
            let wanted = place.group_name();
            place.group = names.iter().position(|name| is_same_lock(name, &wanted));
        }
    }

    fn lock_shards(&mut self) {
        let names = in_order(self.places.iter().filter(|p| self.wants_shard(p)).map(Place::shard_name));
        self.shards.extend(names.iter().map(|(_, number, tables)| tables.shards.lock(*number)));
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
            Some((_, fingerprint)) => fingerprint.version() != place.version.number,
            None => {
                let spills = group.is_spilled(now_us) || place.ask.gate.is_moving(now_us);
                spills || group.free_slot(now_us).is_none()
            }
        }
    }

    /// Decides every place, and takes what was asked if all agree.
    fn decide(&mut self, mode: Mode) -> SmallVec<[Answer; 2]> {
        let mut answers: SmallVec<[Answer; 2]> = SmallVec::new();
        let mut states: SmallVec<[Loaded; 1]> = SmallVec::new();
        for index in 0..self.places.len() {
            let mut loaded = self.load(index);
            let Place { ask, version, now, .. } = &self.places[index];
            let limit = version.limit.capacity();
            answers.push(version.plan.decide(now.as_micros(), &mut loaded.state, ask.cost, mode, limit));
            states.push(loaded);
        }
        let is_granted = answers.iter().all(Answer::is_allowed);
        for (index, mut loaded) in states.into_iter().enumerate() {
            let Place { ask, version, .. } = &self.places[index];
            let units = ask.cost;
            if is_granted && units > 0 {
                version.plan.apply(&mut loaded.state, answers[index].step);
                self.write(index, loaded, units);
            } else {
                self.put_back(index, loaded);
            }
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
            let mut loaded = self.load(index);
            let Place { ask, version, now, .. } = &self.places[index];
            let (limit, now_us) = (version.limit.capacity(), now.as_micros());
            let asked = version.plan.decide(now_us, &mut loaded.state, ask.cost, mode, limit);
            let as_is = version.plan.decide(now_us, &mut loaded.state, 0, mode, limit);
            self.put_back(index, loaded);
            answers.push(Answer { gauge: as_is.gauge, step: Step::Keep, ..asked });
        }
        answers
    }

    /// A new key for which there is no room.
    fn untracked(&mut self) -> Option<Ask<'a>> {
        (0..self.places.len()).find(|index| !self.has_room(*index)).map(|index| self.places[index].ask)
    }

    /// The state of a key as its current limit counts it. An entry's state is taken
    /// out, and must be put back or written.
    fn load(&mut self, index: usize) -> Loaded {
        let place = &self.places[index];
        let now_us = place.now.as_micros();
        let (gate, hash, version) = (place.ask.gate, place.ask.hash, &place.version);
        let slot = place.group.and_then(|at| self.groups[at].find(hash));
        let entry = place.shard.and_then(|at| self.shards[at].get(gate.id, hash));
        // After several changes both can be there: the later one counts.
        let age = |number: u16| version.age(number);
        let slot = slot.filter(|(_, fingerprint)| {
            entry.as_ref().is_none_or(|e| age(fingerprint.version()) <= age(e.version))
        });
        let (state, found, number, idle_at_us, others) = match (slot, place.group, entry) {
            (Some((slot, fingerprint)), Some(group), _) => {
                let word = self.groups[group].word(slot);
                (State::Word(word), Found::Slot(slot), fingerprint.version(), None, None)
            }
            (_, _, Some(entry)) => {
                let state = std::mem::replace(&mut entry.state, State::Word(0));
                (state, Found::Entry, entry.version, Some(entry.idle_at_us), entry.others.take())
            }
            _ => (version.plan.unused(), Found::Nowhere, version.number, None, None),
        };
        if matches!(state, State::Slots(_)) || number == version.number && others.is_none() {
            return Loaded { state, found, others, past: None };
        }
        let plan = others.as_ref().map(|others| others.written_by).or_else(|| gate.past_plan(number));
        let is_idle = match (idle_at_us, plan, &state) {
            (Some(idle_at_us), _, _) => idle_at_us <= now_us,
            (None, Some(plan), _) => plan.idle_at(now_us, &state) <= now_us,
            (None, None, State::Word(word)) => *word <= word_at(now_us),
            (None, None, _) => false,
        };
        if is_idle {
            // Nothing of it counts any more, whatever the limit.
            return Loaded { state: version.plan.unused(), found, others: None, past: None };
        }
        if number == version.number {
            return Loaded { state, found, others, past: None };
        }
        let Some(plan) = plan else {
            // The version is forgotten: assume that the key was fully used.
            let full = version.plan.used_up(version.in_force().since_us.min(now_us));
            let past = WrittenBefore { plan: None, state, between: SmallVec::new() };
            return Loaded { state: full, found, others, past: Some(past) };
        };
        let (between, current) = (version.between(number), version.in_force());
        if between.is_empty() && plan.counts_alike(&version.plan) {
            let past = WrittenBefore { plan: Some(plan), state: state.clone(), between: SmallVec::new() };
            return Loaded { state, found, others, past: Some(past) };
        }
        let last = Count { plan, state };
        let start = match &others {
            Some(others) => others.start(now_us, &last, &between, &current),
            None => OtherCounts::none(plan).start(now_us, &last, &between, &current),
        };
        let past = WrittenBefore { plan: Some(plan), state: last.state, between: start.between };
        Loaded { state: start.state, found, others, past: Some(past) }
    }

    /// Nothing was granted: the state is what it was. What was forgotten or repaired of the
    /// current limit's own is kept.
    fn put_back(&mut self, index: usize, mut loaded: Loaded) {
        let place = &self.places[index];
        if loaded.past.is_some() && place.version.in_force().since_us > place.now.as_micros() {
            // The clock ran back behind the change: from now on the new limit drains.
            return self.write(index, loaded, 0);
        }
        let Some(past) = loaded.past.take() else { return self.save(index, loaded) };
        let place = &self.places[index];
        let entry = place.shard.and_then(|at| self.shards[at].get(place.ask.gate.id, place.ask.hash));
        if let (Found::Entry, Some(entry)) = (loaded.found, entry) {
            entry.state = past.state;
            entry.others = loaded.others;
        }
    }

    /// Writes a state that has changed; the counts by other limits are charged `units`, too.
    fn write(&mut self, index: usize, mut loaded: Loaded, units: u64) {
        let place = &self.places[index];
        let (now_us, plan) = (place.now.as_micros(), &place.version.plan);
        match loaded.past.take() {
            Some(WrittenBefore { plan: last, state, between, .. }) => {
                let last = last.map(|plan| Count { plan, state });
                let mut others = loaded.others.take().unwrap_or_else(|| Box::new(OtherCounts::none(*plan)));
                others.take_over(now_us, units, last.into_iter().chain(between), plan);
                loaded.others = Some(others);
            }
            None => {
                if let Some(others) = &mut loaded.others {
                    others.charge(now_us, units);
                }
            }
        }
        loaded.others = loaded.others.filter(|others| !others.is_empty());
        self.save(index, loaded);
    }

    fn save(&mut self, index: usize, loaded: Loaded) {
        let Loaded { state, found, others, .. } = loaded;
        let place = &self.places[index];
        let now_us = place.now.as_micros();
        let (gate, hash, version) = (place.ask.gate, place.ask.hash, &place.version);
        let others_idle_at_us = others.as_ref().map_or(0, |others| others.idle_at_us(now_us));
        let idle_at_us = version.plan.idle_at(now_us, &state).max(others_idle_at_us);
        let group = place.group.map(|at| &self.groups[at]);
        if let (Some(group), State::Word(word)) = (group, &state) {
            let fingerprint = Fingerprint::new(hash, version.number);
            match found {
                Found::Nowhere if idle_at_us <= now_us => return,
                // A word alone has its slot; beside others it goes into the shards.
                _ if others.is_some() => group.set_spilled(idle_at_us),
                Found::Slot(slot) => return group.write(slot, fingerprint, *word),
                Found::Nowhere | Found::Entry => {
                    // A slot that an older version left behind is taken first: one key,
                    // one place.
                    if let Some((slot, _)) = group.find(hash) {
                        group.write(slot, fingerprint, *word);
                        return self.forget_entry(index);
                    }
                    if let Some(slot) = group.free_slot(now_us) {
                        group.claim(slot, fingerprint, *word);
                        return self.forget_entry(index);
                    }
                    group.set_spilled(idle_at_us);
                }
            }
        }
        if let (Some(group), Found::Slot(slot)) = (group, found) {
            // The state is more than a word now: the slot is given up.
            group.clear(slot);
        }
        let Some(shard) = place.shard.map(|at| &mut self.shards[at]) else { return };
        let entry = match found {
            Found::Nowhere if idle_at_us <= now_us => return,
            // There can be one already, of a version before the slot's.
            _ if shard.get(gate.id, hash).is_some() => shard.get(gate.id, hash),
            _ => {
                let made_for = use_of(&version.plan, found);
                Some(shard.insert(now_us, gate.id, hash, version.number, made_for, State::Word(0)))
            }
        };
        if let Some(entry) = entry {
            entry.version = version.number;
            entry.idle_at_us = idle_at_us;
            entry.state = state;
            entry.others = others;
        }
    }

    /// The key has a slot now: its entry, if it has one, is idle and goes in time.
    fn forget_entry(&mut self, index: usize) {
        let Place { ask, version, shard, .. } = &self.places[index];
        if let Some(entry) = shard.and_then(|at| self.shards[at].get(ask.gate.id, ask.hash)) {
            entry.version = version.number;
            entry.idle_at_us = 0;
            entry.state = State::Word(0);
            entry.others = None;
        }
    }

    /// True unless the key is new and there is no place for it. Strangers' keys have one,
    /// and a call that costs nothing needs none.
    fn has_room(&mut self, index: usize) -> bool {
        let place = &self.places[index];
        let (gate, hash, now_us) = (place.ask.gate, place.ask.hash, place.now.as_micros());
        let group = place.group.map(|at| &self.groups[at]);
        let needs_none = place.ask.cost == 0 || hash == gate.overflow_hash;
        // A slot of another version may have to move into the shards, unless it is written anew
        // where it is.
        let version = &place.version;
        let in_slot = group.and_then(|group| group.find(hash));
        let stays = |(slot, fingerprint): (usize, Fingerprint)| {
            let number = fingerprint.version();
            let is_idle = || group.is_some_and(|group| group.word(slot) <= word_at(now_us));
            let past = || gate.past_plan(number).filter(|_| version.between(number).is_empty());
            let counts_alike = || past().is_some_and(|plan| plan.counts_alike(&version.plan));
            number == version.number || version.plan.is_one_word() && (is_idle() || counts_alike())
        };
        let is_known = needs_none || in_slot.is_some_and(stays);
        let in_group = in_slot.is_none()
            && place.version.plan.is_one_word()
            && group.is_some_and(|group| group.free_slot(now_us).is_some());
        is_known
            || in_group
            || place.shard.is_some_and(|at| {
                let shard = &mut self.shards[at];
                let found = in_slot.map_or(Found::Nowhere, |(slot, _)| Found::Slot(slot));
                let made_for = use_of(&place.version.plan, found);
                shard.get(gate.id, hash).is_some() || shard.has_room(now_us, made_for)
            })
    }
}
