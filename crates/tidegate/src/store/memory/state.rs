//! Where the state of a key is, and what it comes to under the limit that decides.
//!
//! A state of one word is in the flat table; a longer one, one that found its group full, and one
//! beside counts by other limits is in the shards. Whichever limit wrote it last, it is loaded as
//! the deciding limit counts it, and left as it was if nothing is charged.

use super::flat::Fingerprint;
use super::shards::Use;
use super::transaction::{Locked, LockedKey};
use super::version::{LimitVersion, UNNUMBERED, WrittenBy};
use crate::algorithm::{Count, InForce, OTHERS_MAX, OtherCounts, Plan, Start, State, word_at};
use smallvec::SmallVec;

/// Where a key's state was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Location {
    /// In this entry of its group.
    Group(usize),
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
    /// Set if another limit wrote it last.
    pub(super) past: Option<WrittenBefore>,
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
    let is_word = version.plan.is_one_word() && !version.is_of_check();
    if location == Location::Nowhere && is_word { Use::Spilled } else { Use::Long }
}

impl Locked<'_> {
    /// The state of a key as its deciding limit counts it.
    pub(super) fn load(&mut self, index: usize) -> Loaded {
        let key = &self.keys[index];
        let now_us = key.now.as_micros();
        let (gate, hash, version) = (key.check.gate, key.check.hash, &key.version);
        let in_group = key.group.and_then(|at| self.groups[at].find(hash));
        let in_group = in_group.filter(|(_, fingerprint)| fingerprint.version() != UNNUMBERED);
        let in_shard = key.shard.and_then(|at| self.shards[at].get(gate.id, hash));
        // After several changes both can be there: the later one counts.
        let is_later = |fingerprint: Fingerprint, writer: WrittenBy| match writer {
            WrittenBy::Gate(number) => gate.age(fingerprint.version()) <= gate.age(number),
            WrittenBy::Check => false,
        };
        let in_group = in_group.filter(|(_, fingerprint)| {
            in_shard.as_ref().is_none_or(|found| is_later(*fingerprint, found.writer))
        });
        let mut written_us = now_us;
        let (state, location, writer, idle_at_us, others) = match (in_group, key.group, in_shard) {
            (Some((entry, fingerprint)), Some(group), _) => {
                let word = self.groups[group].word(entry);
                let writer = WrittenBy::Gate(fingerprint.version());
                (State::Word(word), Location::Group(entry), writer, None, None)
            }
            (_, _, Some(found)) => {
                let state = std::mem::replace(&mut found.state, State::Word(0));
                written_us = found.written_us;
                (state, Location::Shard, found.writer, Some(found.idle_at_us), found.others.take())
            }
            _ => (version.plan.unused(), Location::Nowhere, version.writer(), None, None),
        };
        let is_own = writer == WrittenBy::Gate(version.number);
        let loaded = |state, others, past| Loaded { state, location, written_us, others, past };
        if matches!(state, State::Slots(_)) || location == Location::Nowhere || is_own && others.is_none() {
            return loaded(state, others, None);
        }
        let plan = others.as_ref().map(|others| others.written_by).or_else(|| match writer {
            WrittenBy::Gate(number) => gate.plan_of(number),
            WrittenBy::Check => None,
        });
        let is_idle = match (idle_at_us, plan, &state) {
            (Some(idle_at_us), _, _) => idle_at_us <= now_us,
            (None, Some(plan), _) => plan.idle_at(now_us, &state) <= now_us,
            (None, None, State::Word(word)) => *word <= word_at(now_us),
            (None, None, _) => false,
        };
        if is_idle {
            // Nothing of it counts any more, whatever the limit.
            return loaded(version.plan.unused(), None, None);
        }
        let is_own_check = || {
            writer == WrittenBy::Check
                && version.is_of_check()
                && plan.is_some_and(|plan| plan.counts_alike(&version.plan))
        };
        if is_own || is_own_check() {
            return loaded(state, others, None);
        }
        let past = |plan, state, between, is_ahead, begins_now| {
            Some(WrittenBefore { plan, state, between, is_ahead, begins_now })
        };
        let Some(plan) = plan else {
            // The version is forgotten: assume that the key was fully used.
            let since_us = gate.version().in_force().since_us.min(now_us);
            let full = version.plan.convert(since_us, u128::from(u64::MAX));
            return loaded(full, others, past(None, state, SmallVec::new(), false, false));
        };
        // A limit that was in force when another one wrote the key has counted that, too. If it
        // has no count of the key, it begins with what was in use then.
        let InForce { since_us, .. } = version.in_force();
        let is_kept = version.is_of_check() || writer == WrittenBy::Check && since_us < written_us;
        let between = if is_kept { SmallVec::new() } else { version.between(writer, written_us) };
        if between.is_empty() && plan.counts_alike(&version.plan) {
            let is_ahead = is_ahead(&plan, now_us, &state);
            return loaded(state.clone(), others, past(Some(plan), state, SmallVec::new(), is_ahead, false));
        }
        let current = InForce { plan: version.plan, since_us: if is_kept { written_us } else { since_us } };
        let last = Count { plan, state };
        let own =
            others.as_ref().filter(|_| is_kept).and_then(|others| others.count_of(now_us, &version.plan));
        let start = match (own, &others) {
            (Some(own), _) => Start { state: own.clone(), between: SmallVec::new() },
            (None, Some(others)) => others.start(now_us, &last, &between, &current),
            (None, None) => OtherCounts::none(plan).start(now_us, &last, &between, &current),
        };
        let begins_now = is_kept && own.is_none() && location != Location::Shard;
        let is_ahead = is_ahead(&plan, now_us, &last.state) || is_ahead(&version.plan, now_us, &start.state);
        let past = past(Some(plan), last.state, start.between, is_ahead, begins_now);
        loaded(start.state, others, past)
    }

    /// Nothing was granted: the state is what it was. What was forgotten or repaired of the
    /// deciding limit's own is kept.
    pub(super) fn put_back(&mut self, index: usize, mut loaded: Loaded) {
        let key = &self.keys[index];
        let has_run_back = key.version.in_force().since_us > key.now.as_micros();
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
        let is_left = match location {
            Location::Nowhere => true,
            Location::Group(_) => version.is_of_check(),
            Location::Shard => false,
        };
        if is_left && idle_at_us <= now_us {
            return;
        }
        if version.is_of_check() {
            // Its plan stands with the state.
            let others = others.get_or_insert_with(|| Box::new(OtherCounts::none(version.plan)));
            others.written_by = version.plan;
        }
        if let Some(group) = key.group.map(|at| &self.groups[at]) {
            let fingerprint = Fingerprint::new(hash, version.number);
            let in_group = group.find(hash).map(|(entry, _)| entry);
            match (&state, in_group) {
                // A word alone has its entry; beside others it goes into the shards. One that an
                // older version left behind is taken first: a key is in one place.
                (State::Word(word), Some(entry)) if others.is_none() => {
                    group.write(entry, fingerprint, *word);
                    return self.forget_in_shard(index);
                }
                (State::Word(word), None) if others.is_none() => {
                    if let Some(entry) = group.free_entry(now_us) {
                        group.claim(entry, fingerprint, *word);
                        return self.forget_in_shard(index);
                    }
                }
                (_, Some(entry)) => group.clear(entry, hash),
                (_, None) => {}
            }
            group.set_spilled(idle_at_us);
        }
        let Some(shard) = key.shard.map(|at| &mut self.shards[at]) else { return };
        // There can be one already, of a version before the one in the group.
        let entry = shard.get_or_insert(now_us, gate.id, hash, use_of(version, location));
        (entry.writer, entry.written_us) = (version.writer(), written_us);
        (entry.idle_at_us, entry.state, entry.others) = (idle_at_us, state, others);
    }

    /// The key is in its group now: what the shards have of it is idle and goes in time.
    fn forget_in_shard(&mut self, index: usize) {
        let LockedKey { check, version, shard, .. } = &self.keys[index];
        if let Some(entry) = shard.and_then(|at| self.shards[at].get(check.gate.id, check.hash)) {
            entry.writer = WrittenBy::Gate(version.number);
            (entry.idle_at_us, entry.state, entry.others) = (0, State::Word(0), None);
        }
    }

    /// False if the key is new and there is no room for it. The overflow bucket always has room,
    /// and a check that costs nothing needs none.
    pub(super) fn has_room(&mut self, index: usize) -> bool {
        let key = &self.keys[index];
        let (gate, hash, now_us) = (key.check.gate, key.check.hash, key.now.as_micros());
        let (version, is_of_check) = (&key.version, key.version.is_of_check());
        let group = key.group.map(|at| &self.groups[at]);
        let needs_none = key.check.cost == 0 || hash == gate.overflow_hash;
        // An entry of another version may have to move into the shards, unless it is written anew
        // where it is. One of a check's own limit always has to.
        let in_group = group.and_then(|group| group.find(hash));
        let stays = |(entry, fingerprint): (usize, Fingerprint)| {
            let number = fingerprint.version();
            let is_idle = || group.is_some_and(|group| group.word(entry) <= word_at(now_us));
            let past = || {
                gate.plan_of(number).filter(|_| version.between(WrittenBy::Gate(number), now_us).is_empty())
            };
            let counts_alike = || past().is_some_and(|plan| plan.counts_alike(&version.plan));
            number == version.number || version.plan.is_one_word() && (is_idle() || counts_alike())
        };
        let is_known = needs_none || !is_of_check && in_group.is_some_and(stays);
        let fits_group = !is_of_check
            && in_group.is_none()
            && version.plan.is_one_word()
            && group.is_some_and(|group| group.free_entry(now_us).is_some());
        is_known
            || fits_group
            || key.shard.is_some_and(|at| {
                let shard = &mut self.shards[at];
                let location = in_group.map_or(Location::Nowhere, |(entry, _)| Location::Group(entry));
                shard.get(gate.id, hash).is_some() || shard.has_room(now_us, use_of(version, location))
            })
    }
}

/// True if a state is further ahead than any grant can have put it.
fn is_ahead(plan: &Plan, now_us: u64, state: &State) -> bool {
    plan.idle_at(now_us, state) > now_us.saturating_add(plan.longest_us())
}
