//! What a front end renders: all decisions, and which one binds.

use crate::algorithm::Plan;
use crate::ask::{MemoryAsk, Side};
use crate::clock::Timestamp;
use crate::decision::{Decision, Denial};
use crate::permit::{Charge, Permit};
use smallvec::SmallVec;
use std::fmt;
use std::time::Duration;

/// The answer to one or several checks that were decided together.
///
/// An allowed verdict of `reserve` or `acquire` holds the permit: turn it into one
/// with [`into_permit`](Self::into_permit), which is also the way to `?`.
#[derive(Debug)]
#[must_use = "a verdict that nobody reads limits nothing"]
pub struct Verdict {
    decisions: SmallVec<[Decision; 2]>,
    binding: usize,
    gates: SmallVec<[Name; 2]>,
    permit: Option<Permit>,
}

/// A gate's name and limit, kept alive by the gate itself.
struct Name(Side);

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())
    }
}

impl Verdict {
    pub(crate) fn new(
        sides: SmallVec<[Side; 2]>,
        decisions: SmallVec<[Decision; 2]>,
        charges: SmallVec<[Charge; 1]>,
        now: Timestamp,
    ) -> Self {
        let gates = sides.into_iter().map(Name).collect();
        let is_allowed = decisions.iter().all(Decision::is_allowed);
        let binding = (0..decisions.len()).max_by_key(|index| weight(&decisions[*index])).unwrap_or(0);
        let wait = decisions.iter().map(Decision::wait).max().unwrap_or_default();
        let permit = is_allowed.then(|| Permit::new(charges, now, wait));
        Self { decisions, binding, gates, permit }
    }

    /// The verdict on all of `asks`, of which only those that are not places were
    /// decided here; the places are held, or were until now.
    pub(crate) fn spread(self, asks: &[MemoryAsk], held: Vec<Permit>) -> Self {
        let mut rates = self.decisions.into_iter();
        let decide = |ask: &MemoryAsk| {
            let is_place = matches!(ask.meter.version().plan, Plan::Slots(_));
            let rate = if is_place { None } else { rates.next() };
            rate.unwrap_or_else(|| ask.meter.peek(ask.hash, 0))
        };
        let decisions = asks.iter().map(decide).collect();
        let sides = asks.iter().map(|ask| Side::Memory(ask.meter.clone())).collect();
        let whole = Self::new(sides, decisions, SmallVec::new(), Timestamp::default());
        let permit = self.permit.map(|permit| held.into_iter().fold(permit, Permit::join));
        Self { permit, ..whole }
    }

    /// The decisions, and the charges of an allowed verdict.
    #[cfg(feature = "redis")]
    pub(crate) fn into_parts(self) -> (SmallVec<[Decision; 2]>, Option<SmallVec<[Charge; 1]>>) {
        (self.decisions, self.permit.map(Permit::into_charges))
    }

    /// When an allowed call may start; the beginning of time for a denied one.
    pub(crate) fn starts_at(&self) -> Timestamp {
        self.permit.as_ref().map_or(Timestamp::default(), Permit::starts_at)
    }

    /// True if every check was allowed.
    pub fn is_allowed(&self) -> bool {
        self.permit.is_some()
    }

    /// How long to wait for the start, as of the decision: the longest wait of all.
    pub fn wait(&self) -> Duration {
        self.permit.as_ref().map_or(Duration::ZERO, Permit::wait)
    }

    /// The time after which a denied request would fit, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decisions.get(self.binding).and_then(Decision::retry_after)
    }

    /// One decision for each check, in their order.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// The decision that binds: of a denial the one that takes longest to come
    /// right, otherwise the one with the longest wait or the least left.
    ///
    /// # Panics
    /// If there were no checks at all.
    pub fn decision(&self) -> &Decision {
        &self.decisions[self.binding]
    }

    /// The name of the gate whose decision binds; empty without checks.
    pub fn bound_by(&self) -> &str {
        self.gates.get(self.binding).map_or("", |name| name.0.name())
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
        let (gates, decisions, binding) = (self.gates, self.decisions, self.binding);
        self.permit.ok_or_else(|| Refusal {
            gate: gates[binding].0.name().to_string(),
            limit: gates[binding].0.limit(),
            decision: decisions[binding],
        })
    }
}

/// What makes one decision bind more than another.
fn weight(decision: &Decision) -> (u8, Duration, u64) {
    let (rank, time) = match decision.denial() {
        None => (0, decision.wait()),
        Some(Denial::Later(after)) => (1, after),
        Some(Denial::Unknown | Denial::Full) => (2, Duration::ZERO),
        Some(Denial::Unavailable(after)) => (3, after),
        Some(Denial::NeedsPermit) => (4, Duration::ZERO),
        Some(Denial::Never) => (5, Duration::ZERO),
    };
    (rank, time, u64::MAX - decision.remaining())
}

/// A denied verdict as an error, for functions that return `Result`.
///
/// ```
/// let limiter = tidegate::Limiter::new();
/// let gate = limiter.gate("export", "1/day")?;
/// gate.reserve("ann").into_permit()?;
/// let refusal = gate.reserve("ann").into_permit().unwrap_err();
/// assert!(refusal.to_string().starts_with("denied by `export`: 1/day, 0 left, free again in "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Refusal {
    gate: String,
    limit: crate::Limit,
    decision: Decision,
}

impl Refusal {
    /// The name of the gate that refused.
    pub fn gate(&self) -> &str {
        &self.gate
    }

    /// Its limit.
    pub fn limit(&self) -> &crate::Limit {
        &self.limit
    }

    /// Its decision.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// The time after which the call would fit, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decision.retry_after()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gate, limit, decision } = self;
        write!(f, "denied by `{gate}`: {limit}, {} left, ", decision.remaining())?;
        match decision.denial() {
            Some(Denial::Later(after)) => write!(f, "free again in {after:?}"),
            Some(Denial::Never) => write!(f, "the call costs more than can ever be free"),
            Some(Denial::NeedsPermit) => write!(f, "a place must be held: use `reserve` or `acquire`"),
            Some(Denial::Full) => write!(f, "no room for another key"),
            Some(Denial::Unavailable(after)) => {
                write!(f, "the store does not answer; it is tried again in {after:?}")
            }
            Some(Denial::Unknown) | None => write!(f, "free when others are done"),
        }
    }
}

impl std::error::Error for Refusal {}
