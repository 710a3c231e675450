//! The locked path of a decision: any state, several checks, all or none.
//!
//! Everything that the checks touch is locked first, groups before shards and each in ascending
//! order, so that no two transactions can wait for each other. Then everything is decided, and
//! written only if every check is allowed. A single check that the fast path does not decide is a
//! transaction of one.
//!
//! How one key's state is found and kept under its locks is in [`state`](super::state).

use super::Tables;
use super::flat::LockedGroup;
use super::gate::MemoryGate;
use super::shards::MapShard;
use super::state::Loaded;
use super::version::LimitVersion;
use crate::Limit;
use crate::algorithm::{Answer, Gauge, Mode, Plan, SlotState, Slots, State, Step};
use crate::clock::Timestamp;
use crate::decision::{Decision, DenialReason};
use crate::sync::Backoff;
use smallvec::SmallVec;
use std::sync::{Arc, MutexGuard};
use std::task::Waker;

/// A check of a gate in memory, by the hash of its key.
#[derive(Clone, Copy)]
pub(crate) struct HashedCheck<'a> {
    pub(crate) gate: &'a MemoryGate,
    pub(crate) hash: u64,
    pub(crate) cost: u64,
    /// Its own limit. Default: the gate's.
    pub(crate) limit: Option<&'a Limit>,
}

impl<'a> HashedCheck<'a> {
    /// By the gate's limit.
    pub(crate) fn new(gate: &'a MemoryGate, hash: u64, cost: u64) -> Self {
        Self { gate, hash, cost, limit: None }
    }

    fn is_same_key(&self, other: &Self) -> bool {
        std::ptr::eq(self.gate, other.gate) && self.hash == other.hash
    }
}

/// What was decided about a check, and what a permit must remember to give it back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckResult {
    pub(crate) decision: Decision,
    pub(crate) step: Step,
    pub(crate) version: u16,
    /// When it was decided, on the clock of its own store.
    pub(crate) now: Timestamp,
    /// The hash that was charged: the overflow bucket's if there was no room.
    pub(crate) hash: u64,
}

pub(crate) type CheckResults = SmallVec<[CheckResult; 2]>;
type Answers = SmallVec<[Answer; 2]>;

/// Decides checks at the same instant and charges all or none. Those of one key must have the
/// same limit.
pub(crate) fn decide_all(checks: &[HashedCheck<'_>], mode: Mode) -> CheckResults {
    answer_all(checks, mode, Locked::decide)
}

/// What a check would be answered, with nothing taken, and how full the key is without it.
pub(crate) fn look(check: HashedCheck<'_>, mode: Mode) -> Decision {
    answer_all(&[check], mode, Locked::look)[0].decision
}

fn answer_all<'a>(
    checks: &[HashedCheck<'a>],
    mode: Mode,
    answer: impl Fn(&mut Locked<'a>, Mode) -> Answers,
) -> CheckResults {
    let mut checks: SmallVec<[HashedCheck<'_>; 2]> = SmallVec::from_slice(checks);
    loop {
        let merged = merge(&checks);
        let mut locked = Locked::new(&merged);
        let answers = match locked.untracked() {
            None => answer(&mut locked, mode),
            // Under these locks: whoever looked again could find room, and say that a request
            // is allowed of which nothing was charged.
            Some(untracked) if untracked.gate.refuses_untracked => locked.look(mode),
            Some(untracked) => {
                drop(locked);
                for check in checks.iter_mut().filter(|check| check.is_same_key(&untracked)) {
                    // The overflow bucket is counted by the gate's limit.
                    *check = HashedCheck::new(check.gate, check.gate.overflow_hash, check.cost);
                }
                continue;
            }
        };
        let result = |check: &HashedCheck<'_>| {
            let index = merged.iter().position(|merged| merged.is_same_key(check)).unwrap_or(0);
            let (LockedKey { version, now, .. }, answer) = (&locked.keys[index], &answers[index]);
            let decision = answer.decision(version.limit.capacity());
            CheckResult { decision, step: answer.step, version: version.number, now: *now, hash: check.hash }
        };
        return checks.iter().map(result).collect();
    }
}

/// One check for each key: a key that comes twice pays the sum.
fn merge<'a>(checks: &[HashedCheck<'a>]) -> SmallVec<[HashedCheck<'a>; 2]> {
    let mut merged: SmallVec<[HashedCheck<'a>; 2]> = SmallVec::new();
    for check in checks {
        match merged.iter_mut().find(|other| other.is_same_key(check)) {
            Some(same) => same.cost = same.cost.saturating_add(check.cost),
            None => merged.push(*check),
        }
    }
    merged
}

/// The hash that a check is counted under now: its key's own, the overflow bucket's if the key
/// is new and there is no room, or none if untracked keys are refused.
pub(crate) fn tracked_hash(check: HashedCheck<'_>) -> Option<u64> {
    match Locked::new(&[check]).untracked() {
        None => Some(check.hash),
        Some(_) if check.gate.refuses_untracked => None,
        Some(_) => Some(check.gate.overflow_hash),
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

/// One key under its lock.
pub(crate) struct KeyState<'a> {
    pub(crate) version: &'a LimitVersion,
    pub(crate) now_us: u64,
    pub(crate) state: &'a mut State,
    /// True if another limit wrote the key last.
    pub(crate) is_taken_over: bool,
}

/// Changes the slots of a key, and wakes those who hold some by then.
pub(super) fn change_slots(
    check: HashedCheck<'_>,
    change: impl FnOnce(&Slots, &mut SlotState) -> Vec<Waker>,
) {
    let mut wakers = Vec::new();
    with_state(check, |key| {
        let (Plan::Slots(slots), State::Slots(state)) = (&key.version.plan, key.state) else {
            return Write::Nothing;
        };
        wakers = change(slots, state);
        Write::Charged(0)
    });
    wakers.into_iter().for_each(Waker::wake);
}

/// Looks at or changes the state of a check's key under its lock.
pub(crate) fn with_state(check: HashedCheck<'_>, change: impl FnOnce(KeyState<'_>) -> Write) {
    let mut locked = Locked::new(&[check]);
    let mut loaded = locked.load(0);
    let LockedKey { version, now, .. } = &locked.keys[0];
    let is_taken_over = loaded.past.is_some();
    let state = &mut loaded.state;
    match change(KeyState { version, now_us: now.as_micros(), state, is_taken_over }) {
        Write::Nothing => locked.put_back(0, loaded),
        Write::Charged(units) => locked.write(0, loaded, units),
        Write::Alone => {
            (loaded.others, loaded.past) = (None, None);
            locked.save(0, loaded);
        }
    }
}

/// The key of a check, and the locks that guard it.
pub(super) struct LockedKey<'a> {
    pub(super) check: HashedCheck<'a>,
    pub(super) version: Arc<LimitVersion>,
    pub(super) now: Timestamp,
    /// Indexes into the locks.
    pub(super) group: Option<usize>,
    pub(super) shard: Option<usize>,
}

/// Everything that a transaction touches, locked.
pub(super) struct Locked<'a> {
    pub(super) keys: SmallVec<[LockedKey<'a>; 2]>,
    // Dropped in this order: whoever has the group next must not find its shard taken.
    pub(super) shards: SmallVec<[MutexGuard<'a, MapShard>; 2]>,
    pub(super) groups: SmallVec<[LockedGroup<'a>; 2]>,
}

/// Takes each lock that the keys want once, in the order in which everybody takes them; also the
/// index of each key's lock, if it is among them.
fn lock_each<'a, L>(
    keys: &[LockedKey<'a>],
    wants: impl Fn(&LockedKey<'a>) -> bool,
    number: impl Fn(&Tables, u64) -> usize,
    lock: impl Fn(&'a Tables, usize) -> L,
) -> (SmallVec<[L; 2]>, SmallVec<[Option<usize>; 2]>) {
    let name = |key: &LockedKey<'a>| {
        let tables: &'a Tables = &key.check.gate.tables;
        (std::ptr::from_ref(tables), number(tables, key.check.hash), tables)
    };
    let mut names: SmallVec<[_; 2]> = keys.iter().filter(|key| wants(key)).map(name).collect();
    names.sort_unstable_by_key(|(tables, number, _)| (*tables, *number));
    names.dedup_by_key(|(tables, number, _)| (*tables, *number));
    let index_of = |key| {
        let (tables, number, _) = name(key);
        names.iter().position(|other| (other.0, other.1) == (tables, number))
    };
    let indexes = keys.iter().map(index_of).collect();
    (names.iter().map(|(_, number, tables)| lock(tables, *number)).collect(), indexes)
}

impl<'a> Locked<'a> {
    fn new(checks: &[HashedCheck<'a>]) -> Self {
        let mut backoff = Backoff::new();
        loop {
            let key = |check: &HashedCheck<'a>| {
                let (version, now) = (check.gate.version_for(check), check.gate.tables.clock.now());
                LockedKey { check: *check, version, now, group: None, shard: None }
            };
            let mut locked = Self {
                keys: checks.iter().map(key).collect(),
                groups: SmallVec::new(),
                shards: SmallVec::new(),
            };
            locked.lock_groups();
            locked.lock_shards();
            if locked.keys.iter().all(|key| key.check.gate.is_newest(&key.version)) {
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
        for index in 0..self.keys.len() {
            let clock = &self.keys[index].check.gate.tables.clock;
            let read = self.keys[..index].iter().find(|key| key.check.gate.tables.clock.is_same(clock));
            let now = read.map_or_else(|| clock.now_ordered(), |key| key.now);
            // An entry that was free when the locks were chosen must still be.
            self.keys[index].now = now.max(self.keys[index].now);
        }
    }

    /// Those of keys that may have a state there.
    fn lock_groups(&mut self) {
        let wants_group = |LockedKey { check, version, now, .. }: &LockedKey<'a>| {
            let is_moving = || check.gate.is_moving(now.as_micros());
            version.plan.is_one_word() || version.is_of_check() || is_moving()
        };
        let number = |tables: &Tables, hash| tables.flat.index(hash);
        let lock = |tables: &'a Tables, number| tables.flat.group(number).lock();
        let (groups, indexes) = lock_each(&self.keys, wants_group, number, lock);
        self.groups = groups;
        self.keys.iter_mut().zip(indexes).for_each(|(key, index)| key.group = index);
    }

    fn lock_shards(&mut self) {
        let number = |tables: &Tables, hash| tables.shards.index(hash);
        let lock = |tables: &'a Tables, number| tables.shards.lock(number);
        let (shards, indexes) = lock_each(&self.keys, |key| self.wants_shard(key), number, lock);
        self.shards = shards;
        self.keys.iter_mut().zip(indexes).for_each(|(key, index)| key.shard = index);
    }

    /// A word that has its entry, or can have one, needs no shard; among several it is
    /// locked all the same, as the order forbids to come back.
    fn wants_shard(&self, key: &LockedKey<'_>) -> bool {
        let Some(group) = key.group.filter(|_| self.keys.len() == 1 && key.version.is_word()) else {
            return true;
        };
        let (group, now_us) = (&self.groups[group], key.now.as_micros());
        match group.find(key.check.hash) {
            Some((_, fingerprint)) => fingerprint.version() != key.version.number,
            None => {
                let spills = group.is_spilled(now_us) || key.check.gate.is_moving(now_us);
                spills || group.free_entry(now_us).is_none()
            }
        }
    }

    /// Decides every check, and charges them if all are allowed.
    fn decide(&mut self, mode: Mode) -> Answers {
        let mut answers = Answers::new();
        let mut states: SmallVec<[Loaded; 1]> = SmallVec::new();
        for index in 0..self.keys.len() {
            let mut loaded = self.load(index);
            let LockedKey { check, version, now, .. } = &self.keys[index];
            let limit = version.limit.capacity();
            answers.push(version.plan.decide(now.as_micros(), &mut loaded.state, check.cost, mode, limit));
            states.push(loaded);
        }
        let is_granted = answers.iter().all(Answer::is_allowed);
        for (index, mut loaded) in states.into_iter().enumerate() {
            let LockedKey { check, version, .. } = &self.keys[index];
            let units = check.cost;
            if is_granted && units > 0 {
                version.plan.apply(&mut loaded.state, answers[index].step);
                self.write(index, loaded, units);
            } else if units > 0 && loaded.past.as_ref().is_some_and(|past| past.begins_now) {
                self.write(index, loaded, 0);
            } else {
                self.put_back(index, loaded);
            }
        }
        answers
    }

    /// What every check would be answered, with how full its key is without it. A key for which
    /// there is no room is [`DenialReason::Full`].
    fn look(&mut self, mode: Mode) -> Answers {
        let keys = self.keys.len();
        let answer = |index| {
            if !self.has_room(index) {
                return Answer::denied(DenialReason::Full, Gauge::Plain { remaining: 0, reset_us: 0 });
            }
            let mut loaded = self.load(index);
            let LockedKey { check, version, now, .. } = &self.keys[index];
            let limit = version.limit.capacity();
            let mut decide =
                |cost| version.plan.decide(now.as_micros(), &mut loaded.state, cost, mode, limit);
            let answer = Answer { gauge: decide(0).gauge, step: Step::Keep, ..decide(check.cost) };
            self.put_back(index, loaded);
            answer
        };
        (0..keys).map(answer).collect()
    }

    /// A new key for which there is no room.
    fn untracked(&mut self) -> Option<HashedCheck<'a>> {
        (0..self.keys.len()).find(|index| !self.has_room(*index)).map(|index| self.keys[index].check)
    }
}
