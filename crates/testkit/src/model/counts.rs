//! What a key has used, under each of the limits that were in force lately.
//!
//! One count is the main one, of the limit that wrote last; up to three others stand beside
//! it, and what does not fit is merged into one record. Whoever looks makes its own count out
//! of them, and makes it real only with a grant: looking writes nothing.

use super::account::{MILLION, State, ceil};
use super::store::Store;
use tidegate::Limit;

/// How many counts are kept beside the main one.
const OTHERS: usize = 3;
/// How many limits a node remembers to have had before the one in force.
const EARLIER: usize = 3;
/// The shortest time that a count is kept beside the main one.
const KEPT_US: i128 = 60_000_000;

/// One process: the limit in force there, and those before it.
#[derive(Clone, Debug)]
pub struct ModelNode {
    limit: Limit,
    /// Since when it is in force.
    since: i128,
    /// The limits before it with the time that each came into force, oldest first.
    earlier: Vec<(Limit, i128)>,
    /// Counts the changes.
    version: u64,
}

impl ModelNode {
    /// A process that starts.
    pub fn new(limit: &Limit, now_us: u64) -> Self {
        Self { limit: limit.clone(), since: i128::from(now_us), earlier: Vec::new(), version: 0 }
    }

    /// The same as the successor of a process whose limits counted up to `version`.
    #[must_use]
    pub fn after(self, version: u64) -> Self {
        Self { version: version + 1, ..self }
    }

    /// The limit in force.
    pub fn limit(&self) -> &Limit {
        &self.limit
    }

    /// Which of its limits that is.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Another limit from now on.
    pub fn change(&mut self, now_us: u64, limit: &Limit) {
        if self.limit == *limit {
            return;
        }
        self.version += 1;
        // Whether limits count alike is the same on any store.
        let unused = |limit: &Limit| State::on(Store::Memory, limit);
        if unused(&self.limit).is_like(&unused(limit)) {
            self.limit = limit.clone();
            return;
        }
        self.earlier.push((std::mem::replace(&mut self.limit, limit.clone()), self.since));
        if self.earlier.len() > EARLIER {
            self.earlier.remove(0);
        }
        self.since = i128::from(now_us);
    }
}

/// What one limit has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Count {
    state: State,
    /// The account of an unused key under the limit that wrote it: limits whose accounts are
    /// alike share one count.
    unused: State,
    /// Until when it is kept; none for the main count, and for one that is not kept yet.
    expires: Option<i128>,
}

impl Count {
    fn new(unused: State) -> Self {
        Self { state: unused.clone(), unused, expires: None }
    }

    /// Charged beside the main count.
    fn owe(&mut self, now_us: u64, units: u64) {
        self.state.owe(now_us, units);
        if let State::Slices(slices) = &mut self.state {
            slices.coarsen(i128::from(now_us));
        }
    }
}

/// What is left of counts that found no room.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Merged {
    /// Millionths of a unit, as of `from`.
    units: i128,
    from: i128,
    until: i128,
    /// Does not become less before `until`.
    is_steady: bool,
}

impl Merged {
    fn used(&self, at: i128) -> i128 {
        if at >= self.until {
            0
        } else if self.is_steady || at <= self.from {
            self.units
        } else {
            ceil(self.units * (self.until - at), self.until - self.from)
        }
    }
}

/// A known key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The time of the last write.
    written: i128,
    main: Count,
    others: Vec<Count>,
    merged: Option<Merged>,
}

/// A key as one node sees it now. Nothing of it is real before a grant.
#[derive(Clone, Debug)]
pub struct Look {
    /// The count that decides.
    pub own: State,
    unused: State,
    others: Vec<Count>,
    merged: Option<Merged>,
    /// The model's faults on purpose, for tests of the tests.
    flaw: Option<Flaw>,
}

/// What a variant does wrong, to see that it is caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Whole units go from one limit to another.
    RoundsUp,
    /// A denial keeps what it converted.
    WritesOnDenial,
    /// Only the main count is kept.
    ForgetsOthers,
    /// Only the count of the limit that grants is charged.
    ChargesItsOwn,
    /// The first three at once: whoever looks rewrites the key in its own whole units.
    ConvertsAtEachLook,
}

impl Flaw {
    /// True if `flaw` is this one, or has it among others.
    pub fn is(self, flaw: Option<Self>) -> bool {
        let is_among = !matches!(self, Self::ChargesItsOwn) && flaw == Some(Self::ConvertsAtEachLook);
        is_among || flaw == Some(self)
    }
}

impl Look {
    /// Looks at a key; `None` for an unknown one.
    pub fn at(store: Store, flaw: Option<Flaw>, node: &ModelNode, key: Option<&Key>, now_us: u64) -> Self {
        let now = i128::from(now_us);
        let unused = State::on(store, &node.limit);
        let Some(key) = key else {
            return Self { own: unused.clone(), unused, others: Vec::new(), merged: None, flaw };
        };
        if let (State::Slots(slots), State::Slots(limit)) = (&key.main.state, &unused) {
            // Units that are held are held under any limit.
            let own = State::Slots(super::Slots { amount: limit.amount, held: slots.held });
            return Self { own, unused, others: Vec::new(), merged: None, flaw };
        }
        let is_kept = |count: &&Count| count.expires.is_some_and(|expires| expires > now);
        let mut counts: Vec<Count> = key.others.iter().filter(is_kept).cloned().collect();
        counts.push(key.main.clone());
        let merged = key.merged.clone().filter(|merged| merged.until > now);
        if merged.is_none() && counts.iter().all(|count| count.state.idle_at(now) <= now) {
            // Nothing of it counts any more: it takes no room, and is as good as unknown.
            return Self { own: unused.clone(), unused, others: Vec::new(), merged: None, flaw };
        }
        let greatest = |counts: &[Count], at: i128| {
            let used = counts.iter().map(|count| count.state.used(at)).max().unwrap_or(0);
            let used = used.max(merged.as_ref().map_or(0, |merged| merged.used(at)));
            if Flaw::RoundsUp.is(flaw) { ceil(used, MILLION) * MILLION } else { used }
        };
        let written = key.written.min(now);
        // A limit that comes into force later than now did so before the clock ran back.
        let since = node.since.min(now);
        for (nth, (limit, from)) in node.earlier.iter().enumerate() {
            let end = node.earlier.get(nth + 1).map_or(since, |next| next.1.min(now));
            let mut made = Count::new(State::on(store, limit));
            let at = (*from).min(now).max(written);
            if end > at && !counts.iter().any(|count| count.unused.is_like(&made.unused)) {
                made.state.hold(at, greatest(&counts, at));
                counts.push(made);
            }
        }
        let own = counts.iter().position(|count| count.unused.is_like(&unused));
        let own = own.map(|at| counts.remove(at).state.under(&unused));
        let at = since.max(written);
        let most = greatest(&counts, at);
        // Whoever wrote at the very instant of a change did so before it, unless it was this limit.
        let wrote_since = since < written || since == written && key.main.unused.is_like(&unused);
        let own = match own {
            Some(own) if wrote_since || own.used(at) >= most => own,
            _ => {
                let mut made = unused.clone();
                made.hold(at, most);
                made
            }
        };
        Self { own, unused, others: counts, merged, flaw }
    }

    /// The key after `own` was charged with `units`: so is every other count.
    pub fn written(mut self, now_us: u64, units: u64) -> Key {
        let now = i128::from(now_us);
        for count in &mut self.others {
            if count.expires.is_none() {
                count.expires = Some(count.state.idle_at(now).max(now + KEPT_US));
            }
            if !Flaw::ChargesItsOwn.is(self.flaw) && units > 0 {
                count.owe(now_us, units);
            }
        }
        if Flaw::ForgetsOthers.is(self.flaw) {
            self.others.clear();
        }
        while self.others.len() > OTHERS {
            // The first of those that expire first.
            let first = (0..self.others.len()).min_by_key(|at| self.others[*at].expires);
            let count = self.others.remove(first.expect("there are more than three"));
            self.merged = merge(self.merged, &count, now);
        }
        let main = Count { state: self.own, unused: self.unused, expires: None };
        Key { written: now, main, others: self.others, merged: self.merged }
    }
}

fn merge(merged: Option<Merged>, count: &Count, now: i128) -> Option<Merged> {
    let used = count.state.used(now);
    if used == 0 {
        return merged;
    }
    let (until, is_steady) = (count.state.idle_at(now), count.state.is_steady());
    Some(match merged {
        None => Merged { units: used, from: now, until, is_steady },
        Some(merged) => Merged {
            units: used.max(merged.used(now)),
            from: now,
            until: until.max(merged.until),
            is_steady: is_steady || merged.is_steady,
        },
    })
}

impl Key {
    /// The clock ran back behind the last write: no count is further ahead than full. The
    /// one thing that also whoever only looks writes.
    pub fn repair(&mut self, now_us: u64) {
        let now = i128::from(now_us);
        if now < self.written {
            self.written = now;
            self.main.state.repair(now);
            self.others.iter_mut().for_each(|count| count.state.repair(now));
        }
    }

    /// Forgets the slices of the main count that are over, if it is of this limit. In memory
    /// whoever looks does that; it shows only if the clock then runs back.
    pub fn forget(&mut self, store: Store, node: &ModelNode, now_us: u64) {
        if store == Store::Memory
            && node.since <= self.written
            && matches!(self.main.state, State::Slices(_))
            && self.main.unused.is_like(&State::on(store, &node.limit))
        {
            self.main.state.repair(i128::from(now_us));
        }
    }

    /// Gives back to the count of a node's limit, if it wrote last, through `give`.
    pub fn give_back(&mut self, store: Store, limit: &Limit, now_us: u64, give: impl FnOnce(&mut State)) {
        let (now, unused) = (i128::from(now_us), State::on(store, limit));
        let is_held = matches!(unused, State::Slots(_));
        let count = &mut self.main;
        if !is_held && !count.unused.is_like(&unused) {
            // Another limit has written since: its count stands on what is to come back.
            return;
        }
        let mut before = if is_held { count.state.clone() } else { count.state.under(&unused) };
        before.repair(now);
        let mut after = before.clone();
        give(&mut after);
        if after != before {
            count.state = after;
            count.unused = unused;
            self.written = now;
        }
    }

    /// The limit has changed: see [`State::forget_cancelled`].
    pub fn forget_cancelled(&mut self) {
        self.main.state.forget_cancelled();
        self.others.iter_mut().for_each(|count| count.state.forget_cancelled());
    }

    /// The main count.
    pub fn main(&mut self) -> &mut State {
        &mut self.main.state
    }

    /// True for the slots of a concurrency limit, which no reset takes from their holders.
    pub fn is_held(&self) -> bool {
        matches!(self.main.state, State::Slots(_))
    }

    /// How many counts stand beside the main one.
    pub fn others(&self) -> usize {
        self.others.len()
    }

    /// True if some counts had to be merged.
    pub fn has_merged(&self) -> bool {
        self.merged.is_some()
    }
}
