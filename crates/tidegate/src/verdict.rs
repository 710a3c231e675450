//! The result of a transaction: all decisions, and which one binds.

use crate::check::OwnedCheck;
use crate::clock::Timestamp;
use crate::decision::{Decision, Denial};
use crate::gate::Gate;
use crate::key::Key;
use crate::permit::{GroupCharge, Permit};
use crate::refusal::Refusal;
use smallvec::SmallVec;
use std::time::Duration;

/// The result of one or several checks that were decided together.
///
/// An allowed verdict of `reserve` or `acquire` holds the permit: turn it into one
/// with [`into_permit`](Self::into_permit), which is also the way to `?`.
#[derive(Debug)]
#[must_use = "a verdict that is not read limits nothing"]
pub struct Verdict {
    decisions: SmallVec<[Decision; 2]>,
    binding: usize,
    /// The gate whose decision binds; none without checks.
    gate: Option<Gate>,
    pub(crate) result: Result<Permit, Refusal>,
    /// How long it queued for slots before it was decided.
    pub(crate) queued: Duration,
}

impl Verdict {
    /// `decided` is on the clock of the first check that is not for a slot.
    pub(crate) fn new(
        checks: &[OwnedCheck],
        decisions: SmallVec<[Decision; 2]>,
        groups: SmallVec<[GroupCharge; 1]>,
        decided: Timestamp,
    ) -> Self {
        let binding = (0..decisions.len()).max_by_key(|index| weight(&decisions[*index])).unwrap_or(0);
        let gate = checks.get(binding).map(|check| check.gate.clone());
        let result = if decisions.iter().all(Decision::is_allowed) {
            let wait = decisions.iter().map(Decision::wait).max().unwrap_or_default();
            Ok(Permit { groups, costs: checks.iter().map(OwnedCheck::cost).collect(), decided, wait })
        } else {
            let (check, key) = (&checks[binding], Key::new(checks[binding].key()).to_string());
            Err(Refusal::of(&check.gate, key, check.deciding_limit(), decisions[binding]))
        };
        Self { decisions, binding, gate, result, queued: Duration::ZERO }
    }

    /// True if every check was allowed.
    pub fn is_allowed(&self) -> bool {
        self.result.is_ok()
    }

    /// How long to wait for the start, as of the decision: the longest wait of all.
    pub fn wait(&self) -> Duration {
        self.result.as_ref().map_or(Duration::ZERO, Permit::wait)
    }

    /// How long a call that was allowed by `acquire` has waited in all: in queues for slots,
    /// and then for its start.
    pub fn waited(&self) -> Duration {
        self.queued + self.wait()
    }

    /// The time after which a denied transaction would fit, if it is known: the longest of its
    /// checks' times. If a check was not looked at ([`Decision::is_checked`]) it can take longer.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decisions.get(self.binding).and_then(Decision::retry_after)
    }

    /// One decision for each check, in their order.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// The decision that binds: of a denial the one that takes longest to fit, as far as that is
    /// known, otherwise the one with the longest wait or the least left.
    ///
    /// # Panics
    /// If there were no checks at all.
    pub fn decision(&self) -> &Decision {
        &self.decisions[self.binding]
    }

    /// The name of the gate whose decision binds; empty without checks.
    pub fn bound_by(&self) -> &str {
        self.gate.as_ref().map_or("", Gate::name)
    }

    /// The key that a denial is about, of the gate that binds: printable and bounded, as
    /// [`Key`] displays it. Empty if everything was allowed.
    pub fn key(&self) -> &str {
        self.result.as_ref().err().map_or("", Refusal::key)
    }

    /// True if the store did not answer in time, and a gate's fallback decided. Never
    /// for limits in memory.
    pub fn is_degraded(&self) -> bool {
        self.decisions.iter().any(Decision::is_degraded)
    }

    /// The permit, or the refusal as an error.
    ///
    /// # Errors
    /// If any check was denied.
    pub fn into_permit(self) -> Result<Permit, Refusal> {
        self.result
    }
}

/// What makes one decision bind more than another.
pub(crate) fn weight(decision: &Decision) -> (u8, Duration, u64) {
    let (rank, time) = match decision.denial() {
        None => (0, decision.wait()),
        // Nothing is known of it, so it cannot bind.
        Some(Denial::Busy) if !decision.is_checked() => (0, Duration::ZERO),
        // A time that is known binds before one that is not: a retry before it is in vain.
        Some(Denial::Busy | Denial::Full) => (1, Duration::ZERO),
        Some(Denial::Later(after)) => (2, after),
        Some(Denial::Unavailable(after)) => (3, after),
        Some(Denial::NeedsPermit | Denial::Unidentified) => (4, Duration::ZERO),
        Some(Denial::Never) => (5, Duration::ZERO),
    };
    (rank, time, u64::MAX - decision.remaining())
}
