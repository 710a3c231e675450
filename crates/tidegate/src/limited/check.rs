//! What a call checks: one key of one limit, or several together.
//!
//! A fixed key needs nothing of this: [`FunctionLimit::check`].

use super::{CallKey, FunctionLimit, observe};
use crate::gate::Gate;
use crate::limiter::{Check, Limiter};
use crate::permit::Permit;
use crate::refusal::Refusal;
use crate::rules::Outcome;
use crate::rules::apply::without_key;
use crate::rules::facts::Fact;
use crate::rules::key::KeyBytes;
use crate::verdict::Verdict;
use smallvec::SmallVec;
use std::time::Duration;

/// One limit of a call.
pub struct CallCheck {
    limit: &'static FunctionLimit,
    key: KeyBytes,
    /// What became of the call by its key alone.
    settled: Option<Outcome>,
    cost: u64,
}

impl CallCheck {
    /// `cost` units of this key, or of the one that is shared by callers who are not known.
    #[inline]
    pub fn new(limit: &'static FunctionLimit, key: CallKey, cost: u64) -> Self {
        let settled = without_key(key.found, limit.definition.missing);
        let key = if key.found == Fact::Found(()) { key.bytes } else { limit.shared_key() };
        Self { limit, key, settled, cost }
    }

    /// Decides now. Default limiter: the process's.
    #[inline]
    pub fn check(&self, limiter: Option<&Limiter>) -> Result<(), Refusal> {
        let gate = self.limit.gate_in(limiter);
        match self.settled {
            None => self.limit.result(&gate, Some(&self.key), gate.check_cost(&self.key, self.cost)),
            Some(outcome) => self.settle(&gate, outcome),
        }
    }

    /// [`check`](Self::check) for async code.
    #[inline]
    pub async fn check_async(&self, limiter: Option<&Limiter>) -> Result<(), Refusal> {
        let gate = self.limit.gate_in(limiter);
        match self.settled {
            None => {
                let decision = gate.check_cost_async(&self.key, self.cost).await;
                self.limit.result(&gate, Some(&self.key), decision)
            }
            Some(outcome) => self.settle(&gate, outcome),
        }
    }

    /// Lets the call through that the limit does not apply to, or refuses it.
    #[cold]
    fn settle(&self, gate: &Gate, outcome: Outcome) -> Result<(), Refusal> {
        if outcome.is_refusal() || observe::is_observed() {
            self.limit.record(gate, outcome, None, Duration::ZERO);
        }
        if outcome.is_refusal() { Err(Refusal::unidentified(gate)) } else { Ok(()) }
    }
}

/// Several limits, or one that waits or holds a slot: all are charged, or none.
pub struct CallChecks<'a> {
    limiter: &'a Limiter,
    checks: SmallVec<[(&'a CallCheck, Gate); 2]>,
}

impl<'a> CallChecks<'a> {
    /// Default limiter: the process's.
    pub fn new(limiter: Option<&'a Limiter>, checks: &[&'a CallCheck]) -> Self {
        let with_gate = |check: &&'a CallCheck| (*check, check.limit.gate_in(limiter).into_owned());
        let checks = checks.iter().map(with_gate).collect();
        Self { limiter: limiter.unwrap_or_else(|| Limiter::global()), checks }
    }

    /// Takes slots and units now or not at all, whatever wait is in force by now.
    pub fn hold(mut self) -> Result<Permit, Refusal> {
        self.settle()?;
        self.result(self.limiter.hold(&self.checks()))
    }

    /// [`hold`](Self::hold) for async code.
    pub async fn hold_async(mut self) -> Result<Permit, Refusal> {
        self.settle()?;
        let verdict = self.limiter.hold_async(&self.checks());
        self.result(verdict.await)
    }

    /// Waits on this thread.
    pub fn acquire(mut self) -> Result<Permit, Refusal> {
        self.settle()?;
        self.result(self.limiter.acquire(&self.checks()).blocking())
    }

    /// Waits, under any executor.
    pub async fn acquire_async(mut self) -> Result<Permit, Refusal> {
        self.settle()?;
        let acquire = self.limiter.acquire(&self.checks());
        self.result(acquire.await)
    }

    /// Settles what needs no limit. What is left is to be decided.
    fn settle(&mut self) -> Result<(), Refusal> {
        for (check, gate) in &self.checks {
            check.settled.map_or(Ok(()), |outcome| check.settle(gate, outcome))?;
        }
        self.checks.retain(|(check, _)| check.settled.is_none());
        Ok(())
    }

    /// The permit or the refusal, once each limit's part in it is recorded.
    fn result(&self, verdict: Verdict) -> Result<Permit, Refusal> {
        let (is_allowed, wait) = (verdict.is_allowed(), verdict.waited());
        if !is_allowed || observe::is_observed() {
            for ((check, gate), decision) in self.checks.iter().zip(verdict.decisions()) {
                let outcome = match (is_allowed, wait.is_zero()) {
                    (true, true) => Outcome::Allowed,
                    (true, false) => Outcome::Waited,
                    (false, _) => Outcome::of_denied(decision),
                };
                check.limit.record(gate, outcome, Some((&check.key, *decision)), wait);
            }
        }
        verdict.into_permit()
    }

    fn checks(&self) -> SmallVec<[Check<'_>; 2]> {
        self.checks.iter().map(|(check, gate)| Check::new(gate, &check.key).cost(check.cost)).collect()
    }
}
