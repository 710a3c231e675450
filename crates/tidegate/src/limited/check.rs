//! What a call checks: one key of one limit, or several together.
//!
//! A fixed key needs nothing of this: [`FunctionLimit::check_fixed`].

use super::{CallKey, FunctionLimit, observe};
use crate::gate::Gate;
use crate::limiter::{Check, Limiter};
use crate::permit::Permit;
use crate::refusal::Refusal;
use crate::verdict::Verdict;
use smallvec::SmallVec;

/// One limit of a call.
pub struct CallCheck {
    /// The limit.
    pub limit: &'static FunctionLimit,
    /// Whose allowance.
    pub key: CallKey,
    /// Units.
    pub cost: u64,
}

impl CallCheck {
    /// Decides now. Default limiter: the process's.
    #[inline]
    pub fn check(&self, limiter: Option<&Limiter>) -> Result<(), Refusal> {
        let gate = self.limit.gate_in(limiter);
        self.identified(&gate)?;
        let key = self.key.as_bytes();
        self.limit.observed(&gate, || key, gate.check_cost(key, self.cost))
    }

    /// [`check`](Self::check) for async code.
    #[inline]
    pub async fn check_async(&self, limiter: Option<&Limiter>) -> Result<(), Refusal> {
        let gate = self.limit.gate_in(limiter);
        self.identified(&gate)?;
        let key = self.key.as_bytes();
        let decision = gate.check_cost_async(key, self.cost).await;
        self.limit.observed(&gate, || key, decision)
    }

    #[inline]
    fn identified(&self, gate: &Gate) -> Result<(), Refusal> {
        self.key.identified(gate).map_err(|refusal| observe::refused(self.limit, gate, refusal))
    }
}

/// Several limits, or one that waits or holds a slot: all are charged, or none.
pub struct CallChecks<'a> {
    limiter: &'a Limiter,
    checks: &'a [&'a CallCheck],
    gates: SmallVec<[Gate; 2]>,
}

impl<'a> CallChecks<'a> {
    /// Default limiter: the process's.
    pub fn new(limiter: Option<&'a Limiter>, checks: &'a [&'a CallCheck]) -> Self {
        let gates = checks.iter().map(|check| check.limit.gate_in(limiter).into_owned()).collect();
        Self { limiter: limiter.unwrap_or_else(|| Limiter::global()), checks, gates }
    }

    /// Decides now.
    pub fn check(self) -> Result<Permit, Refusal> {
        self.identified()?;
        self.observed(self.limiter.check(&self.checks()))
    }

    /// [`check`](Self::check) for async code.
    pub async fn check_async(self) -> Result<Permit, Refusal> {
        self.identified()?;
        let verdict = self.limiter.check_async(&self.checks());
        self.observed(verdict.await)
    }

    /// Takes slots and units now or not at all, whatever wait is in force by now.
    pub fn hold(self) -> Result<Permit, Refusal> {
        self.identified()?;
        self.observed(self.limiter.hold(&self.checks()))
    }

    /// [`hold`](Self::hold) for async code.
    pub async fn hold_async(self) -> Result<Permit, Refusal> {
        self.identified()?;
        let verdict = self.limiter.hold_async(&self.checks());
        self.observed(verdict.await)
    }

    /// Waits on this thread.
    pub fn acquire_blocking(self) -> Result<Permit, Refusal> {
        self.identified()?;
        self.observed(self.limiter.acquire(&self.checks()).blocking())
    }

    /// Waits, under any executor.
    pub async fn acquire(self) -> Result<Permit, Refusal> {
        self.identified()?;
        let acquire = self.limiter.acquire(&self.checks());
        self.observed(acquire.await)
    }

    fn identified(&self) -> Result<(), Refusal> {
        self.checks.iter().zip(&self.gates).try_for_each(|(check, gate)| check.identified(gate))
    }

    /// The permit or the refusal, once the observer and the log have it.
    fn observed(&self, verdict: Verdict) -> Result<Permit, Refusal> {
        if verdict.is_allowed() && observe::is_observed() {
            let wait = verdict.waited();
            for ((check, gate), decision) in self.checks.iter().zip(&self.gates).zip(verdict.decisions()) {
                observe::allowed(gate, check.key.as_bytes(), decision, wait);
            }
        }
        verdict.into_permit().map_err(|refusal| {
            let binds = |(_, gate): &(_, &Gate)| gate.name() == refusal.gate();
            match self.checks.iter().zip(&self.gates).find(binds) {
                Some((check, gate)) => observe::refused(check.limit, gate, refusal),
                None => refusal,
            }
        })
    }

    fn checks(&self) -> SmallVec<[Check<'_>; 2]> {
        let checks = self.checks.iter().zip(&self.gates);
        checks.map(|(check, gate)| Check::new(gate, check.key.as_bytes()).cost(check.cost)).collect()
    }
}
