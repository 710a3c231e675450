//! What a key has used by limits other than the one that wrote last.
//!
//! Each limit counts for itself everything that a key was granted, whichever limit granted it.
//! So a limit that is put back finds what it had counted, and limits that take turns neither
//! lose units nor charge them twice. A limit that has no count of a key yet starts from the
//! most that any other holds, in units, as of the moment that it came into force.
//!
//! Counts are kept for as long as they count, and a minute at least. Of a fourth and further
//! ones only the most is kept, as one [`MergedCount`] record. Nothing here is written by a denial.

use super::{Mode, Plan, State};
use smallvec::SmallVec;

/// Counts beside the one of the limit that wrote last.
pub(crate) const OTHERS_MAX: usize = 3;
/// How long a count is kept at least, so that limits that take turns find theirs again.
pub(crate) const KEPT_AT_LEAST_US: u64 = 60_000_000;

/// A limit that is or was in force, and since when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InForce {
    pub(crate) plan: Plan,
    pub(crate) since_us: u64,
}

/// The count of a key by one limit.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    pub(crate) plan: Plan,
    pub(crate) state: State,
}

impl Count {
    fn used(&self, at_us: u64) -> u128 {
        self.plan.used(at_us, &self.state)
    }

    /// Charges what another limit granted: in full, up to a full key.
    fn charge(&mut self, now_us: u64, units: u64) {
        if units > 0 {
            self.plan.charge_debt(now_us, &mut self.state, units);
        } else {
            // A decision that costs nothing repairs what a clock that was ahead left behind.
            self.plan.decide(now_us, &mut self.state, 0, Mode::Check, 0);
        }
        // A log beside another limit's count must not grow with its amount.
        if let (Plan::Slices(slices), State::Slices(state)) = (&self.plan, &mut self.state) {
            *state = slices.coarse(now_us, state);
        }
    }
}

/// The counts of a key beside the one of the limit that wrote last.
#[derive(Clone, Debug)]
pub(crate) struct OtherCounts {
    /// The limit that wrote last.
    pub(crate) written_by: Plan,
    kept: SmallVec<[Kept; 1]>,
    merged: Option<MergedCount>,
}

#[derive(Clone, Debug)]
struct Kept {
    count: Count,
    expires_us: u64,
}

/// The most that counts for which there was no room had in use.
#[derive(Clone, Copy, Debug, Default)]
struct MergedCount {
    millionths: u128,
    from_us: u64,
    until_us: u64,
    /// Stays in use until the end, as one of the counts does not drain steadily.
    in_steps: bool,
}

impl MergedCount {
    fn used(&self, at_us: u64) -> u128 {
        if at_us >= self.until_us {
            0
        } else if self.in_steps || at_us <= self.from_us {
            self.millionths
        } else {
            let (left, whole) = (self.until_us - at_us, self.until_us - self.from_us);
            (self.millionths * u128::from(left)).div_ceil(u128::from(whole))
        }
    }
}

/// What a limit starts from that did not write a key's state last.
pub(crate) struct Start {
    /// The state under the limit in force.
    pub(crate) state: State,
    /// Counts of limits that were in force in between and granted the key nothing.
    pub(crate) between: SmallVec<[Count; OTHERS_MAX]>,
}

impl OtherCounts {
    pub(crate) fn none(written_by: Plan) -> Self {
        Self { written_by, kept: SmallVec::new(), merged: None }
    }

    /// The state under `current` of a key that was last written under `last`. Those of
    /// `between`, oldest first, have been in force since then.
    pub(crate) fn start(&self, now_us: u64, last: &Count, between: &[InForce], current: &InForce) -> Start {
        let mut made: SmallVec<[Count; OTHERS_MAX]> = SmallVec::new();
        for InForce { plan, since_us } in between {
            if self.of(now_us, last, &made, plan).is_none() {
                let since_us = *since_us.min(&now_us);
                let state = plan.convert(since_us, self.most_used(now_us, since_us, last, &made));
                made.push(Count { plan: *plan, state });
            }
        }
        let since_us = current.since_us.min(now_us);
        let most = self.most_used(now_us, since_us, last, &made);
        let own = self.of(now_us, last, &made, &current.plan).filter(|own| own.used(since_us) >= most);
        let state = own.map_or_else(|| current.plan.convert(since_us, most), |own| own.state.clone());
        Start { state, between: made }
    }

    /// What is kept of a limit's own count, if it has not expired.
    pub(crate) fn count_of(&self, now_us: u64, plan: &Plan) -> Option<&State> {
        let mut kept = self.kept.iter().filter(|kept| kept.expires_us > now_us);
        kept.find(|kept| kept.count.plan.counts_alike(plan)).map(|kept| &kept.count.state)
    }

    /// The count of `plan`, if there is one.
    fn of<'a>(&'a self, now_us: u64, last: &'a Count, made: &'a [Count], plan: &Plan) -> Option<&'a Count> {
        self.all(now_us, last, made).find(|count| count.plan.counts_alike(plan))
    }

    fn most_used(&self, now_us: u64, at_us: u64, last: &Count, made: &[Count]) -> u128 {
        let merged = self.merged.filter(|merged| merged.until_us > now_us);
        let merged = merged.map_or(0, |merged| merged.used(at_us));
        self.all(now_us, last, made).map(|count| count.used(at_us)).fold(merged, u128::max)
    }

    fn all<'a>(&'a self, now_us: u64, last: &'a Count, made: &'a [Count]) -> impl Iterator<Item = &'a Count> {
        let kept = self.kept.iter().filter(move |kept| kept.expires_us > now_us).map(|kept| &kept.count);
        std::iter::once(last).chain(kept).chain(made)
    }

    /// `current` was granted `units`, and writes instead of those that counted before it.
    pub(crate) fn take_over(
        &mut self,
        now_us: u64,
        units: u64,
        before: impl IntoIterator<Item = Count>,
        current: &Plan,
    ) {
        self.written_by = *current;
        self.kept.retain(|kept| !kept.count.plan.counts_alike(current));
        self.charge(now_us, units);
        for mut count in before.into_iter().filter(|count| !count.plan.counts_alike(current)) {
            let idle_at_us = count.plan.idle_at(now_us, &count.state);
            let expires_us = idle_at_us.max(now_us.saturating_add(KEPT_AT_LEAST_US));
            count.charge(now_us, units);
            self.kept.push(Kept { count, expires_us });
        }
        while self.kept.len() > OTHERS_MAX {
            self.merge_first(now_us);
        }
    }

    /// The limit that wrote last was granted `units`: the others count them, too. What no
    /// longer counts is forgotten.
    pub(crate) fn charge(&mut self, now_us: u64, units: u64) {
        self.kept.retain(|kept| kept.expires_us > now_us);
        self.merged = self.merged.filter(|merged| merged.until_us > now_us);
        for kept in &mut self.kept {
            kept.count.charge(now_us, units);
        }
    }

    /// Merges the count that would be forgotten first.
    fn merge_first(&mut self, now_us: u64) {
        let first = (0..self.kept.len()).min_by_key(|at| self.kept[*at].expires_us);
        let Some(Kept { count, .. }) = first.map(|at| self.kept.remove(at)) else { return };
        let before = self.merged.unwrap_or_default();
        let millionths = count.used(now_us);
        if millionths == 0 {
            return;
        }
        self.merged = Some(MergedCount {
            millionths: millionths.max(before.used(now_us)),
            from_us: now_us,
            until_us: before.until_us.max(count.plan.idle_at(now_us, &count.state)),
            in_steps: before.in_steps || count.plan.drains_in_steps(),
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.merged.is_none()
    }

    /// From when on nothing of it counts any more.
    pub(crate) fn idle_at_us(&self, now_us: u64) -> u64 {
        let merged = self.merged.map_or(now_us, |merged| merged.until_us);
        let idle_at = |Count { plan, state }: &Count| plan.idle_at(now_us, state);
        self.kept.iter().map(|kept| idle_at(&kept.count).min(kept.expires_us)).fold(merged, u64::max)
    }
}
