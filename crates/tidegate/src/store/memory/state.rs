//! Where the state of a key is, and what it comes to under the limit that decides.
//!
//! A state of one word is in the flat table; a longer one, one that found its group full, and one
//! beside counts by other limits is in the shards. Whichever limit wrote it last, it is loaded as
//! the deciding limit counts it, and left as it was if nothing is charged.

use super::flat::{Fingerprint, LockedGroup};
use super::shards::{ShardEntry, Use};
use super::transaction::{Locked, LockedKey};
use super::version::{LimitVersion, UNNUMBERED};
use crate::algorithm::{Count, InForce, OTHERS_MAX, OtherCounts, Plan, Start, State, word_at};
use smallvec::SmallVec;

/// Where a key's state was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Location {
    Group,
    Shard,
    Nowhere,
}

/// A key's state as the deciding limit counts it. A state of the shards is taken out, and must be
/// put back or written.
pub(super) struct Loaded {
    pub(super) state: State,
    location: Location,
    /// When it was written last; now if that is not known.
    written_us: u64,
    pub(super) others: Option<Box<OtherCounts>>,
    /// Set if another limit wrote it last. Boxed, as it is large and rare, and every check moves this.
    pub(super) past: Option<Box<WrittenBefore>>,
}

impl Loaded {
    fn new(state: State, location: Location, written_us: u64) -> Self {
        Self { state, location, written_us, others: None, past: None }
    }
}

/// The state of a key that another limit wrote last.
pub(super) struct WrittenBefore {
    /// None if the version is forgotten.
    plan: Option<Plan>,
    state: State,
    /// Counts of limits that were in force in between.
    between: SmallVec<[Count; OTHERS_MAX]>,
    /// A count is further ahead than any grant can have put it: the clock has been ahead, and
    /// whoever looks repairs it.
    is_ahead: bool,
    /// The deciding limit's count begins now. It has to be written even if it denies, or it would
    /// begin anew with each check and never drain.
    pub(super) begins_now: bool,
}

/// What an entry of the shards is for: a new key of one word is there only because its group was
/// full, one that comes out of the table needs room for more than a word.
fn use_of(version: &LimitVersion, location: Location) -> Use {
    if location == Location::Nowhere && version.is_word() { Use::Spilled } else { Use::Long }
}

impl Locked<'_> {
    /// The state of a key as its deciding limit counts it.
    pub(super) fn load(&mut self, index: usize) -> Loaded {
        let key = &self.keys[index];
        let now_us = key.now.as_micros();
        let (gate, hash, version) = (key.check.gate, key.check.hash, &key.version);
        let in_group = key.group.and_then(|at| {
            let (entry, fingerprint) = self.groups[at].find(hash)?;
            Some((fingerprint.version(), self.groups[at].word(entry)))
        });
        let in_shard = key.shard.and_then(|at| self.shards[at].get(gate.id, hash));
        // After several changes both can be there: the later one counts.
        let in_group = in_group.filter(|(number, _)| {
            let is_later = |other: u16| other != UNNUMBERED && gate.age(*number) <= gate.age(other);
            *number != UNNUMBERED && in_shard.as_ref().is_none_or(|found| is_later(found.writer))
        });
        let (writer, idle_at_us, mut loaded) = match (in_group, in_shard) {
            (Some((number, word)), _) => {
                (number, None, Loaded::new(State::Word(word), Location::Group, now_us))
            }
            (None, Some(found)) => {
                let state = std::mem::replace(&mut found.state, State::Word(0));
                let loaded = Loaded::new(state, Location::Shard, found.written_us);
                let others = found.others.take();
                (found.writer, Some(found.idle_at_us), Loaded { others, ..loaded })
            }
            (None, None) => return Loaded::new(version.plan.unused(), Location::Nowhere, now_us),
        };
        let is_own = writer == version.number;
        if matches!(loaded.state, State::Slots(_)) || is_own && loaded.others.is_none() {
            return loaded;
        }
        let plan = loaded.others.as_ref().map(|others| others.written_by).or_else(|| gate.plan_of(writer));
        let is_idle = match (idle_at_us, plan, &loaded.state) {
            (Some(idle_at_us), _, _) => idle_at_us <= now_us,
            (None, Some(plan), state) => plan.idle_at(now_us, state) <= now_us,
            (None, None, State::Word(word)) => *word <= word_at(now_us),
            (None, None, _) => false,
        };
        if is_idle {
            // Nothing of it counts any more, whatever the limit.
            return Loaded { state: version.plan.unused(), others: None, ..loaded };
        }
        if is_own && plan.is_some_and(|plan| plan.counts_alike(&version.plan)) {
            return loaded;
        }
        let past = |plan, state, between, is_ahead, begins_now| {
            Some(Box::new(WrittenBefore { plan, state, between, is_ahead, begins_now }))
        };
        let Some(plan) = plan else {
            // The version is forgotten: assume that the key was fully used.
            let since_us = gate.version().since_us.min(now_us);
            let full = version.plan.convert(since_us, u128::from(u64::MAX));
            let state = std::mem::replace(&mut loaded.state, full);
            return Loaded { past: past(None, state, SmallVec::new(), false, false), ..loaded };
        };
        // A limit that was in force when another one wrote the key has counted that, too. If it
        // has no count of the key, it begins with what was in use then.
        let is_kept = version.is_of_check() || writer == UNNUMBERED && version.since_us < loaded.written_us;
        let (between, since_us) = if is_kept {
            (SmallVec::new(), loaded.written_us)
        } else {
            (version.between(writer, loaded.written_us), version.since_us)
        };
        let last = Count { plan, state: loaded.state };
        let own = match &loaded.others {
            _ if between.is_empty() && plan.counts_alike(&version.plan) => Some(&last.state),
            Some(others) if is_kept => others.count_of(now_us, &version.plan),
            _ => None,
        };
        let current = InForce { plan: version.plan, since_us };
        let start = match (own, &loaded.others) {
            (Some(own), _) => Start { state: own.clone(), between: SmallVec::new() },
            (None, Some(others)) => others.start(now_us, &last, &between, &current),
            (None, None) => OtherCounts::none(plan).start(now_us, &last, &between, &current),
        };
        let begins_now = is_kept && own.is_none() && loaded.location != Location::Shard;
        let is_ahead = is_ahead(&plan, now_us, &last.state) || is_ahead(&version.plan, now_us, &start.state);
        let past = past(Some(plan), last.state, start.between, is_ahead, begins_now);
        Loaded { state: start.state, past, ..loaded }
    }

    /// Nothing was granted: the state is what it was. What was forgotten or repaired of the
    /// deciding limit's own is kept.
    pub(super) fn put_back(&mut self, index: usize, mut loaded: Loaded) {
        let key = &self.keys[index];
        let has_run_back = key.version.since_us > key.now.as_micros();
        if loaded.past.as_ref().is_some_and(|past| has_run_back || past.is_ahead) {
            // The clock ran back: from now on the deciding limit's count drains.
            return self.write(index, loaded, 0);
        }
        let Some(past) = loaded.past.take() else { return self.save(index, loaded) };
        let found = key.shard.and_then(|at| self.shards[at].get(key.check.gate.id, key.check.hash));
        if let (Location::Shard, Some(found)) = (loaded.location, found) {
            (found.state, found.others) = (past.state, loaded.others);
        }
    }

    /// Writes a state that has changed; the counts by other limits are charged `units`, too.
    pub(super) fn write(&mut self, index: usize, mut loaded: Loaded, units: u64) {
        let LockedKey { version, now, .. } = &self.keys[index];
        let (now_us, plan) = (now.as_micros(), &version.plan);
        if let Some(past) = loaded.past.take() {
            let WrittenBefore { plan: last, state, between, .. } = *past;
            let last = last.map(|plan| Count { plan, state });
            let others = loaded.others.get_or_insert_with(|| Box::new(OtherCounts::none(*plan)));
            others.take_over(now_us, units, last.into_iter().chain(between), plan);
        } else if let Some(others) = &mut loaded.others {
            others.charge(now_us, units);
        }
        loaded.others = loaded.others.filter(|others| !others.is_empty());
        loaded.written_us = now_us;
        self.save(index, loaded);
    }

    pub(super) fn save(&mut self, index: usize, loaded: Loaded) {
        let Loaded { state, location, written_us, mut others, .. } = loaded;
        let key = &self.keys[index];
        let now_us = key.now.as_micros();
        let (gate, hash, version) = (key.check.gate, key.check.hash, &key.version);
        let others_idle_at_us = others.as_ref().map_or(0, |others| others.idle_at_us(now_us));
        let idle_at_us = version.plan.idle_at(now_us, &state).max(others_idle_at_us);
        let is_left = location == Location::Nowhere || location == Location::Group && version.is_of_check();
        if is_left && idle_at_us <= now_us {
            return;
        }
        if version.is_of_check() {
            // Its plan stands with the state.
            let others = others.get_or_insert_with(|| Box::new(OtherCounts::none(version.plan)));
            others.written_by = version.plan;
        }
        if let Some(group) = key.group.map(|at| &self.groups[at]) {
            let in_group = group.find(hash).map(|(entry, _)| entry);
            // A word alone has its entry; beside others it goes into the shards. One that an older
            // version left behind is taken first: a key is in one place.
            let entry = in_group.or_else(|| group.free_entry(now_us));
            if let (State::Word(word), None, Some(entry)) = (&state, &others, entry) {
                group.write(entry, Fingerprint::new(hash, version.number), *word);
                return self.forget_in_shard(index);
            }
            if let Some(entry) = in_group {
                group.clear(entry, hash);
            }
            group.set_spilled(idle_at_us);
        }
        let Some(shard) = key.shard.map(|at| &mut self.shards[at]) else { return };
        // There can be one already, of a version before the one in the group.
        let (gate, writer, made_for) = (gate.id, version.number, use_of(version, location));
        shard.put(now_us, ShardEntry { hash, gate, writer, written_us, made_for, idle_at_us, state, others });
    }

    /// The key is in its group now: what the shards have of it is idle and goes in time.
    fn forget_in_shard(&mut self, index: usize) {
        let LockedKey { check, version, shard, .. } = &self.keys[index];
        if let Some(entry) = shard.and_then(|at| self.shards[at].get(check.gate.id, check.hash)) {
            entry.writer = version.number;
            (entry.idle_at_us, entry.state, entry.others) = (0, State::Word(0), None);
        }
    }

    /// False if the key is new and there is no room for it. The overflow bucket always has room,
    /// and a check that costs nothing needs none.
    pub(super) fn has_room(&mut self, index: usize) -> bool {
        let LockedKey { check, version, now, group, shard } = &self.keys[index];
        let (gate, hash, now_us) = (check.gate, check.hash, now.as_micros());
        if check.cost == 0 || hash == gate.overflow_hash {
            return true;
        }
        let group = group.map(|at| &self.groups[at]);
        let in_group = group.and_then(|group| group.find(hash));
        // An entry of another version may have to move into the shards, unless it is written anew
        // where it is. One of a check's own limit always has to.
        let counts_alike = |number: u16| {
            let is_next = version.between(number, now_us).is_empty();
            is_next && gate.plan_of(number).is_some_and(|plan| plan.counts_alike(&version.plan))
        };
        let fits_group = |group: &LockedGroup<'_>| match in_group {
            Some((entry, fingerprint)) => {
                let number = fingerprint.version();
                let is_idle = group.word(entry) <= word_at(now_us);
                number == version.number || is_idle || counts_alike(number)
            }
            None => group.free_entry(now_us).is_some(),
        };
        if version.is_word() && group.is_some_and(fits_group) {
            return true;
        }
        let location = if in_group.is_some() { Location::Group } else { Location::Nowhere };
        shard.map(|at| &mut self.shards[at]).is_some_and(|shard| {
            shard.get(gate.id, hash).is_some() || shard.has_room(now_us, use_of(version, location))
        })
    }
}

/// True if a state is further ahead than any grant can have put it.
fn is_ahead(plan: &Plan, now_us: u64, state: &State) -> bool {
    plan.idle_at(now_us, state) > now_us.saturating_add(plan.longest_us())
}
