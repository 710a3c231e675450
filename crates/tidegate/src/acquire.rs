//! Reserve and wait, under any executor: the future behind `acquire`.
//!
//! A rate is reserved at once and then slept for. A slot of a concurrency limit is
//! queued for. Of several checks, slots are taken in a fixed order first and the rates are
//! charged last, so that nothing is charged to a caller who gets no slot.

use crate::algorithm::Mode;
use crate::check::OwnedCheck;
use crate::clock::StoreClock;
use crate::decision::Denial;
use crate::pending::Pending;
use crate::permit::{GroupCharge, Uncommitted};
use crate::sleep::Sleep;
use crate::store::{self, KeySharing, holds_slots};
use crate::transaction::{clock_of, decide, decide_groups, key_sharing};
use crate::verdict::Verdict;
use smallvec::{SmallVec, smallvec};

/// Waits for its start and then is the [`Verdict`]. Dropped before, it gives back
/// what it holds, as [`Permit::cancel`](crate::Permit::cancel) does.
pub type Acquire = Pending<Verdict>;

/// Decides all checks once it is awaited, and waits for their start.
pub(crate) fn acquire(checks: Vec<OwnedCheck>) -> Acquire {
    Pending::new(async move {
        let first = decide(&checks, Mode::Reserve).await;
        let (mut verdict, clock) = match slots_to_queue_for(&checks, &first) {
            // Boxed, so that its state takes no room where nobody queues.
            Some(slots) => Box::pin(queue(&checks, slots, first)).await,
            None => (first, clock_of(&checks, &Uncommitted::default())),
        };
        if let (Ok(permit), Some(clock)) = (&mut verdict.result, clock) {
            // Dropped before the start, it goes back.
            let uncommitted = Uncommitted(std::mem::take(&mut permit.groups));
            Sleep::until(clock.clone(), permit.starts_at()).await;
            permit.groups = uncommitted.commit();
        }
        verdict
    })
}

/// Slots of one key, for one or several checks.
struct WantedSlots {
    checks: SmallVec<[usize; 2]>,
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
            let is_one_queue = check.gate.is_same(&first.gate) && other.queue_key == queue_key;
            is_one_queue || key_sharing(first, check) == KeySharing::CountedAlike
        };
        match slots.iter_mut().find(is_same) {
            Some(same) => same.checks.push(at),
            None => slots.push(WantedSlots { checks: smallvec![at], queue_key }),
        }
    }
    slots.sort_by_key(|slots| (checks[slots.checks[0]].gate.name(), slots.queue_key));
    Some(slots).filter(|slots| !slots.is_empty())
}

/// Queues for one key's slots after the other, and then reserves the rates. Also the clock that
/// the start is on.
async fn queue(
    checks: &[OwnedCheck],
    slots: Vec<WantedSlots>,
    denied: Verdict,
) -> (Verdict, Option<&StoreClock>) {
    let clock = checks[0].gate.clock();
    let since = clock.now();
    let mut held = Uncommitted::default();
    for WantedSlots { checks: of, queue_key } in slots {
        let costs: SmallVec<[u64; 2]> = of.iter().map(|at| checks[*at].cost()).collect();
        match store::queue(&checks[of[0]], queue_key, &costs).await {
            Some(charge) => held.0.push(GroupCharge { checks: of, charge }),
            None => return (denied, Some(clock)),
        }
    }
    let queued = clock.now().since(since);
    let clock = clock_of(checks, &held);
    let mut verdict = decide_groups(checks, Mode::Reserve, held).await;
    verdict.queued = queued;
    (verdict, clock)
}
