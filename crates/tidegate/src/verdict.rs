//! What a front end renders: all decisions, and which one binds.

use crate::algorithm::Plan;
use crate::ask::{MemoryAsk, Side};
use crate::clock::Timestamp;
use crate::decision::{Decision, Denial};
use crate::key::Key;
use crate::permit::{Charge, Permit};
use crate::refusal::Refusal;
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
    /// The key that binds, as people read it; only of a denial, which alone names it.
    key: Option<Box<str>>,
    permit: Option<Permit>,
    /// How long places were queued for before it was decided.
    queued: Duration,
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
        Self { decisions, binding, gates, key: None, permit, queued: Duration::ZERO }
    }

    /// Decided after this time in queues.
    pub(crate) fn after(self, queued: Duration) -> Self {
        Self { queued, ..self }
    }

    /// Names the key that binds, given the key of a check by its place.
    pub(crate) fn of_key<'a>(mut self, key: impl FnOnce(usize) -> &'a [u8]) -> Self {
        if self.permit.is_none() {
            self.key = Some(Key::new(key(self.binding)).to_string().into());
        }
        self
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
        Self { permit, ..whole }.of_key(|at| &asks[at].key)
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

    /// How long a call that was allowed by `acquire` has waited in all: in queues for places,
    /// and then for its start.
    pub fn waited(&self) -> Duration {
        self.queued + self.wait()
    }

    /// The time after which a denied request would fit, where that is known: the longest of
    /// its checks' times. Where a check was not asked ([`Decision::is_asked`]) it can take
    /// longer.
    pub fn retry_after(&self) -> Option<Duration> {
        self.decisions.get(self.binding).and_then(Decision::retry_after)
    }

    /// One decision for each check, in their order.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// The decision that binds: of a denial the one that takes longest to come
    /// right, as far as that is known, otherwise the one with the longest wait or the
    /// least left.
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

    /// The key that a denial is about, of the gate that binds: printable and bounded, as
    /// [`Key`] shows it. Empty if everything was allowed.
    pub fn key(&self) -> &str {
        self.key.as_deref().unwrap_or("")
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
        self.permit.ok_or_else(|| {
            let key = self.key.map_or_else(String::new, String::from);
            Refusal::of(&gates[binding].0, key, decisions[binding])
        })
    }
}

/// What makes one decision bind more than another.
pub(crate) fn weight(decision: &Decision) -> (u8, Duration, u64) {
    let (rank, time) = match decision.denial() {
        None => (0, decision.wait()),
        // Nobody has asked: it binds nobody.
        Some(Denial::Unknown) if !decision.is_asked() => (0, Duration::ZERO),
        // A time that is known beats one that nobody knows: before it, coming back is in vain.
        Some(Denial::Unknown | Denial::Full) => (1, Duration::ZERO),
        Some(Denial::Later(after)) => (2, after),
        Some(Denial::Unavailable(after)) => (3, after),
        Some(Denial::NeedsPermit | Denial::Unidentified) => (4, Duration::ZERO),
        Some(Denial::Never) => (5, Duration::ZERO),
    };
    (rank, time, u64::MAX - decision.remaining())
}
