//! Reserve and wait, under any executor: the future behind `acquire`.
//!
//! A rate is reserved at once and then slept for. A slot of a concurrency limit is
//! queued for. Of several checks, slots are taken in a fixed order first and the rates are
//! charged last, so that nothing is charged to a caller who gets no slot.

use crate::algorithm::Mode;
use crate::check::OwnedCheck;
use crate::clock::{MonotonicClock, StoreClock};
use crate::decision::Denial;
use crate::pending::block_on;
use crate::permit::{GroupCharge, Permit, Uncommitted};
use crate::sleep::Sleep;
use crate::store::{self, KeySharing, holds_slots};
use crate::transaction::{decide_groups, decide_in_memory, key_sharing};
use crate::verdict::Verdict;
use smallvec::SmallVec;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Waits for its start and then is the [`Verdict`]. Dropped before, it gives back
/// what it holds, as [`Permit::cancel`] does.
#[must_use = "a future does nothing unless it is awaited"]
pub struct Acquire {
    checks: Vec<OwnedCheck>,
    phase: Phase,
}

#[expect(clippy::large_enum_variant, reason = "waiting for a start in memory allocates nothing")]
enum Phase {
    Start,
    /// Another store decides, or slots are queued for.
    Deciding(Pin<Box<dyn Future<Output = DecidedBy> + Send>>),
    /// Everything is held; the start is to come.
    Sleeping(Verdict, Sleep),
    Done,
}

/// A verdict, and the clock that its start is on.
type DecidedBy = (Verdict, StoreClock);

impl Acquire {
    pub(crate) fn new(checks: Vec<OwnedCheck>) -> Self {
        Self { checks, phase: Phase::Start }
    }

    /// Waits on this thread, for code without an executor. Holds the thread all the
    /// while: in async code, await instead.
    pub fn blocking(self) -> Verdict {
        block_on(self)
    }

    fn start(&mut self) -> Phase {
        let checks = std::mem::take(&mut self.checks);
        let decided = decide_in_memory(&checks, Mode::Reserve);
        match decided {
            Some(verdict) if verdict.is_allowed() => sleeping((verdict, clock_of(&checks))),
            decided => Phase::Deciding(Box::pin(decide_and_queue(checks, decided))),
        }
    }
}

fn sleeping((verdict, clock): DecidedBy) -> Phase {
    let sleep = Sleep::until(clock, verdict.starts_at());
    Phase::Sleeping(verdict, sleep)
}

impl Future for Acquire {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Verdict> {
        loop {
            let next = match &mut self.phase {
                Phase::Start => self.start(),
                Phase::Deciding(deciding) => match deciding.as_mut().poll(context) {
                    Poll::Ready(ruled) => sleeping(ruled),
                    Poll::Pending => return Poll::Pending,
                },
                Phase::Sleeping(_, sleep) => {
                    if Pin::new(sleep).poll(context).is_pending() {
                        return Poll::Pending;
                    }
                    match std::mem::replace(&mut self.phase, Phase::Done) {
                        Phase::Sleeping(verdict, _) => return Poll::Ready(verdict),
                        other => other,
                    }
                }
                Phase::Done => panic!("`Acquire` was polled after it was ready"),
            };
            self.phase = next;
        }
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Phase::Sleeping(verdict, _) = std::mem::replace(&mut self.phase, Phase::Done) {
            drop(verdict.into_permit().map(Permit::cancel));
        }
    }
}

impl std::fmt::Debug for Acquire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acquire").field("checks", &self.checks).finish_non_exhaustive()
    }
}

/// The clock by which a verdict on these checks was made.
fn clock_of(checks: &[OwnedCheck]) -> StoreClock {
    checks
        .first()
        .map_or_else(|| StoreClock::Monotonic(MonotonicClock::new()), |check| check.gate.clock().clone())
}

async fn decide_and_queue(checks: Vec<OwnedCheck>, decided: Option<Verdict>) -> DecidedBy {
    let first = match decided {
        Some(verdict) => verdict,
        None => decide_groups(&checks, Mode::Reserve).await,
    };
    match slots_to_queue_for(&checks, &first) {
        Some(slots) => queue(checks, slots, first).await,
        None => (first, clock_of(&checks)),
    }
}

/// Slots of one key, for one or several checks.
struct WantedSlots {
    checks: SmallVec<[usize; 2]>,
    costs: SmallVec<[u64; 2]>,
    queue_key: u64,
}

/// The slots that the checks need, if only slots are missing and may be waited for, in the order
/// in which everybody queues. So nobody waits for a slot and holds one that the other waits for.
fn slots_to_queue_for(checks: &[OwnedCheck], denied: &Verdict) -> Option<Vec<WantedSlots>> {
    if denied.is_allowed() || denied.is_degraded() {
        return None;
    }
    let mut slots: Vec<WantedSlots> = Vec::new();
    for (at, (check, decision)) in checks.iter().zip(denied.decisions()).enumerate() {
        match decision.denial() {
            None | Some(Denial::Busy) if holds_slots(&check.deciding_limit()) => {}
            None => continue,
            // Whether it fits is decided once the slots are held.
            Some(Denial::Busy) if !decision.is_checked() => continue,
            Some(_) => return None,
        }
        let queue_key = check.gate.backend().queue_key(check)?;
        let is_same = |other: &&mut WantedSlots| {
            let first = &checks[other.checks[0]];
            let is_one_queue = check.gate.is_same(&first.gate)
                && other.queue_key == queue_key
                && check.limit() == first.limit();
            is_one_queue || key_sharing(first, check) == KeySharing::CountedAlike
        };
        match slots.iter_mut().find(is_same) {
            Some(same) => {
                same.checks.push(at);
                same.costs.push(check.cost());
            }
            None => {
                let (checks, costs) = (SmallVec::from_elem(at, 1), SmallVec::from_elem(check.cost(), 1));
                slots.push(WantedSlots { checks, costs, queue_key });
            }
        }
    }
    slots.sort_by(|a, b| {
        let order = |slots: &WantedSlots| (checks[slots.checks[0]].gate.name(), slots.queue_key);
        order(a).cmp(&order(b))
    });
    Some(slots).filter(|slots| !slots.is_empty())
}

/// Queues for one key's slots after the other, and then reserves the rates.
async fn queue(checks: Vec<OwnedCheck>, slots: Vec<WantedSlots>, denied: Verdict) -> DecidedBy {
    let mut clock = clock_of(&checks);
    let since = clock.now();
    let mut held = Uncommitted::default();
    for WantedSlots { checks: of, costs, queue_key } in slots {
        let check = &checks[of[0]];
        match store::queue(check, queue_key, &costs).await {
            Some(charge) => held.0.push(GroupCharge { checks: of, charge }),
            None => return (denied, clock),
        }
    }
    let queued = clock.now().since(since);
    let rates: Vec<usize> = (0..checks.len()).filter(|at| !held.holds(*at)).collect();
    let rate_checks: Vec<OwnedCheck> = rates.iter().map(|at| checks[*at].clone()).collect();
    let decided = match decide_in_memory(&rate_checks, Mode::Reserve) {
        Some(verdict) => verdict,
        None => decide_groups(&rate_checks, Mode::Reserve).await,
    };
    if !rates.is_empty() {
        clock = clock_of(&rate_checks);
    }
    let decisions = (0..checks.len()).map(|at| match rates.iter().position(|rate| *rate == at) {
        Some(rate) => decided.decisions()[rate],
        None => checks[at].gate.backend().decision_of_queued(&checks[at]),
    });
    let decisions = decisions.collect();
    let verdict = if decided.is_allowed() {
        // Without rates it starts now.
        let now = if rates.is_empty() { clock.now() } else { decided.decided_at() };
        let mut groups = held.commit();
        groups.extend(decided.into_groups(&rates));
        Verdict::new(&checks, decisions, groups, now)
    } else {
        // The slots go back with `held`.
        Verdict::new(&checks, decisions, SmallVec::new(), clock.now())
    };
    (verdict.after(queued), clock)
}
