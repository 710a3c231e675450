//! Token bucket and leaky bucket are one mechanism: the time at which the bucket will be empty
//! (GCRA).
//!
//! A call adds its cost to that time and may start as soon as what is left of it fits the burst.
//! Refusing is a longest wait of zero; queueing is a longer one, which the caller waits.

use super::scale::{millionths_of, ticks_of};
use super::{Answer, Counting, Grant, Mode, Scale, Step};
use crate::decision::{DecisionOutcome, DenialReason};

/// A bucket in some scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket<S> {
    pub(crate) scale: S,
}

impl<S: Scale> Counting for Bucket<S> {
    type State = S::Tat;

    fn decide(&self, now_us: u64, state: &mut S::Tat, cost: u64, mode: Mode, limit: u64) -> Answer {
        let tat = self.repaired(now_us, state);
        self.answer(now_us, tat, cost, mode, limit)
    }

    fn apply(&self, state: &mut S::Tat, step: Step) {
        if let Step::Tat { after, .. } = step
            && let Ok(after) = S::Tat::try_from(after)
        {
            *state = self.scale.store(after);
        }
    }

    /// Others wait exactly while the level is above the burst. What they were promised stands on
    /// everything before it, so nothing comes back from below them; and a part of a waiting call
    /// only as far as the rest of it would still start when it does.
    fn refund(&self, now_us: u64, state: &mut S::Tat, grant: &mut Grant, units: u64) -> bool {
        let tat = self.repaired(now_us, state);
        let left = self.refunded(now_us, tat, grant, units);
        *state = left.map_or(*state, |left| self.scale.store(left));
        left.is_some()
    }

    fn charge_debt(&self, now_us: u64, state: &mut S::Tat, units: u64) {
        let (s, tat) = (self.scale, self.repaired(now_us, state));
        let owed = s.plus(tat.max(s.now(now_us)), s.cost(units).unwrap_or(s.full()));
        *state = s.store(owed.min(self.full_at(now_us)).max(tat));
    }

    fn used(&self, now_us: u64, state: &S::Tat) -> u128 {
        let level = self.level(now_us, self.repaired(now_us, &mut { *state }));
        millionths_of(self.scale.ticks(level), self.scale.cell())
    }

    fn convert(&self, now_us: u64, millionths: u128) -> S::Tat {
        // A bucket with nothing in it has been empty since the clock began.
        let now = self.scale.now(if millionths == 0 { 0 } else { now_us });
        let level = self.scale.of_ticks(ticks_of(millionths, self.scale.cell()));
        self.scale.store(self.scale.after(now, level))
    }

    fn empty_us(&self, now_us: u64, state: &S::Tat) -> u64 {
        self.scale.empty_us(self.level(now_us, self.scale.load(*state)), now_us)
    }
}

impl<S: Scale> Bucket<S> {
    /// The decision, the time to write if it is taken, and the level then.
    #[inline]
    pub(crate) fn decide_at(
        &self,
        now_us: u64,
        tat: S::Tat,
        cost: u64,
        mode: Mode,
    ) -> (DecisionOutcome, S::Tat, S::Tat) {
        let level = self.level(now_us, tat);
        let may_wait = mode == Mode::Reserve;
        let Some(added) = self.scale.cost(cost).filter(|added| *added <= self.scale.greatest(may_wait))
        else {
            return (DecisionOutcome::Deny(DenialReason::Never), tat, level);
        };
        if cost == 0 {
            return (DecisionOutcome::Allow { wait_us: 0 }, tat, level);
        }
        let raised = self.scale.raised(level, added);
        match self.scale.retry_us(raised, now_us, may_wait) {
            None => {
                let next = self.scale.after(self.scale.now(now_us), raised);
                (DecisionOutcome::Allow { wait_us: self.scale.wait_us(raised, now_us) }, next, raised)
            }
            Some(retry_us) => (DecisionOutcome::Deny(DenialReason::Later { retry_us }), tat, level),
        }
    }

    /// The decision as an answer.
    pub(crate) fn answer(&self, now_us: u64, tat: S::Tat, cost: u64, mode: Mode, limit: u64) -> Answer {
        let (outcome, next, level) = self.decide_at(now_us, tat, cost, mode);
        let takes = matches!(outcome, DecisionOutcome::Allow { .. }) && cost > 0;
        let step = if takes { Step::Tat { before: tat.into(), after: next.into() } } else { Step::Keep };
        Answer { outcome, gauge: self.scale.gauge(level, now_us, limit), step }
    }

    /// How full the bucket is now.
    #[inline]
    pub(crate) fn level(&self, now_us: u64, tat: S::Tat) -> S::Tat {
        let now = self.scale.now(now_us);
        self.scale.minus(tat.max(now), now)
    }

    /// True if the state is further ahead than any grant could have put it: the
    /// clock has been ahead and has come back.
    #[inline]
    pub(crate) fn is_ahead(&self, now_us: u64, tat: S::Tat) -> bool {
        self.level(now_us, tat) > self.scale.full()
    }

    /// After the clock has come back, the bucket is full, so that it drains from now on.
    fn repaired(&self, now_us: u64, state: &mut S::Tat) -> S::Tat {
        let tat = self.scale.load(*state);
        if !self.is_ahead(now_us, tat) {
            return tat;
        }
        let full = self.full_at(now_us);
        *state = self.scale.store(full);
        full
    }

    fn full_at(&self, now_us: u64) -> S::Tat {
        self.scale.after(self.scale.now(now_us), self.scale.full())
    }

    /// The time after `units` of `grant` come back; `None` if none can now. A grant that nobody
    /// built on stays so.
    fn refunded(&self, now_us: u64, tat: S::Tat, grant: &mut Grant, units: u64) -> Option<S::Tat> {
        let s = self.scale;
        let Step::Tat { before, after } = grant.mark else { return None };
        let lower = |tat: S::Tat, back: S::Tat| (tat >= back).then(|| s.minus(tat, back));
        let back = s.cost(units.min(grant.cost))?;
        if now_us >= grant.start_us {
            if self.level(now_us, tat) > s.burst() {
                return None;
            }
            // What has flowed back by itself since may be granted to others already.
            let (now, end) = (s.now(now_us), S::Tat::try_from(after).ok()?);
            let (cost, drained) = (s.cost(grant.cost)?, s.minus(now, s.now(grant.start_us)));
            if cost <= drained || end <= now {
                return None;
            }
            let back = back.min(s.minus(cost, drained)).min(s.minus(end, now));
            let left = lower(tat, back)?;
            grant.mark = Step::Tat { before, after: s.minus(end, back).into() };
            return Some(left);
        }
        if after != tat.into() {
            return None;
        }
        let left = if units >= grant.cost {
            // All of it, and what a window's call skipped to start in the next one.
            S::Tat::try_from(before).ok()?
        } else {
            let start_us = |left| now_us + s.wait_us(self.level(now_us, left), now_us);
            lower(tat, back).filter(|left| start_us(*left) >= grant.start_us)?
        };
        grant.mark = Step::Tat { before, after: left.into() };
        Some(left)
    }
}
