//! Token bucket and leaky bucket are one mechanism: the time at which the bucket
//! will be empty (GCRA).
//!
//! A call adds its cost to that time and may start as soon as what is left of it
//! fits the burst. Refusing is a longest wait of zero; queueing is a longer one,
//! told to the caller as a wait.

use super::scale::Scale;
use super::{Answer, Gauge, Grant, Mode, Step};
use crate::decision::{Outcome, Refused};

/// A bucket in some scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket<S> {
    pub(crate) scale: S,
}

impl<S: Scale> Bucket<S> {
    /// The decision, the state to write if it is taken, and the level then.
    #[inline]
    pub(crate) fn decide(
        &self,
        now_us: u64,
        tat: S::Tat,
        cost: u64,
        mode: Mode,
    ) -> (Outcome, S::Tat, S::Tat) {
        let level = self.level(now_us, tat);
        let may_wait = mode == Mode::Reserve;
        let Some(added) = self.scale.cost(cost).filter(|added| *added <= self.scale.greatest(may_wait))
        else {
            return (Outcome::Deny(Refused::Never), tat, level);
        };
        if cost == 0 {
            return (Outcome::Allow { wait_us: 0 }, tat, level);
        }
        match self.raise(now_us, level, added, may_wait) {
            Ok((wait_us, raised)) => {
                let next = self.scale.after(self.scale.now(now_us), raised);
                (Outcome::Allow { wait_us }, next, raised)
            }
            Err(retry_us) => (Outcome::Deny(Refused::Later { retry_us }), tat, level),
        }
    }

    /// The wait and the level after a call that adds `added`, or the time after which
    /// it would fit.
    #[inline]
    pub(crate) fn raise(
        &self,
        now_us: u64,
        level: S::Tat,
        added: S::Tat,
        may_wait: bool,
    ) -> Result<(u64, S::Tat), u64> {
        let raised = self.scale.raised(level, added);
        match self.scale.retry_us(raised, now_us, may_wait) {
            None => Ok((self.scale.wait_us(raised, now_us), raised)),
            Some(retry_us) => Err(retry_us),
        }
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

    /// The state after the clock has come back: full, so that it drains from now on.
    pub(crate) fn repaired(&self, now_us: u64, tat: S::Tat) -> S::Tat {
        if self.is_ahead(now_us, tat) { self.full_at(now_us) } else { tat }
    }

    fn full_at(&self, now_us: u64) -> S::Tat {
        self.scale.after(self.scale.now(now_us), self.scale.full())
    }

    /// The state after `units` of `grant` come back; `None` if none can now. A grant that
    /// nobody built on stays so.
    ///
    /// Somebody waits exactly while the level is above the burst. What they were promised
    /// stands on everything before it, so nothing comes back from below them; and a part of
    /// a waiting call only as far as the rest of it would still start when it does.
    pub(crate) fn give_back(
        &self,
        now_us: u64,
        tat: S::Tat,
        grant: &mut Grant,
        units: u64,
    ) -> Option<S::Tat> {
        let s = self.scale;
        let Step::Tat { before, after } = grant.mark else { return None };
        let is_last = after == tat.into();
        let back = s.cost(units.min(grant.cost))?;
        let left = if now_us < grant.start_us {
            if !is_last {
                return None;
            }
            if units >= grant.cost {
                // All of it, and what a window's call skipped to start in the next one.
                S::Tat::try_from(before).ok()?
            } else {
                let left = lower(s, tat, back)?;
                let wait_us = s.wait_us(self.level(now_us, left), now_us);
                if now_us + wait_us < grant.start_us {
                    return None;
                }
                left
            }
        } else {
            if self.level(now_us, tat) > s.burst() {
                return None;
            }
            // What has flowed back by itself since is somebody else's.
            let (now, end) = (s.now(now_us), S::Tat::try_from(after).ok()?);
            let (cost, drained) = (s.cost(grant.cost)?, s.minus(now, s.now(grant.start_us)));
            if cost <= drained || end <= now {
                return None;
            }
            let back = back.min(s.minus(cost, drained)).min(s.minus(end, now));
            let left = lower(s, tat, back)?;
            grant.mark = Step::Tat { before, after: s.minus(end, back).into() };
            return Some(left);
        };
        grant.mark = Step::Tat { before, after: left.into() };
        Some(left)
    }

    /// The state after `units` more than granted were used: charged in full, up to
    /// a full bucket.
    pub(crate) fn owe(&self, now_us: u64, tat: S::Tat, units: u64) -> S::Tat {
        let s = self.scale;
        let owed = s.plus(tat.max(s.now(now_us)), s.cost(units).unwrap_or(s.full()));
        owed.min(self.full_at(now_us)).max(tat)
    }

    /// Millionths of a unit in use, rounded up.
    pub(crate) fn used(&self, now_us: u64, tat: S::Tat) -> u128 {
        let level = self.level(now_us, self.repaired(now_us, tat));
        self.scale.millionths(level)
    }

    /// The state of a key that has used so many millionths of a unit, at most a full one.
    pub(crate) fn with_used(&self, now_us: u64, millionths: u128) -> S::Tat {
        self.scale.after(self.scale.now(now_us), self.scale.of_millionths(millionths))
    }

    /// Microseconds until the key is as good as unused.
    pub(crate) fn empty_us(&self, now_us: u64, tat: S::Tat) -> u64 {
        self.scale.empty_us(self.level(now_us, tat), now_us)
    }

    /// The decision in the general form, for stores that hold any kind of state.
    pub(crate) fn answer(&self, now_us: u64, tat: S::Tat, cost: u64, mode: Mode, limit: u64) -> Answer {
        let (outcome, next, level) = self.decide(now_us, tat, cost, mode);
        let taken = matches!(outcome, Outcome::Allow { .. }) && cost > 0;
        let gauge = Gauge::Plain {
            remaining: limit.saturating_sub(self.scale.units(level)),
            reset_us: self.scale.empty_us(level, now_us),
        };
        Answer {
            outcome,
            gauge,
            step: if taken { Step::Tat { before: tat.into(), after: next.into() } } else { Step::Keep },
        }
    }
}

/// `a - b`, unless that is below zero.
fn lower<S: Scale>(scale: S, a: S::Tat, b: S::Tat) -> Option<S::Tat> {
    (a >= b).then(|| scale.minus(a, b))
}
