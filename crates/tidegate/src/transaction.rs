//! Several checks that are decided together: all are charged, or none.
//!
//! What one store can decide together (memory, one server, one hash slot of a Cluster) is a
//! group, decided at one instant. A transaction over several groups decides one after the other,
//! memory first and then in the order of the checks; what the earlier ones charged goes back if a
//! later one is denied.

use crate::algorithm::Mode;
use crate::check::OwnedCheck;
use crate::clock::{StoreClock, Timestamp};
use crate::decision::Decision;
use crate::gate::Gate;
#[cfg(feature = "rules")]
use crate::limiter::Check;
use crate::pending::{Pending, block_on};
use crate::permit::{GroupCharge, Uncommitted};
use crate::store::memory::{self, HashedCheck};
use crate::store::{Charge, GroupId, KeySharing, hashed_in_memory};
use crate::verdict::Verdict;
use smallvec::SmallVec;

type Decisions = SmallVec<[Decision; 2]>;
type HashedChecks<'a> = SmallVec<[(&'a Gate, HashedCheck<'a>); 2]>;

/// Decides all checks, and waits on this thread for a store that is not in memory.
pub(crate) fn decide_blocking(checks: &[OwnedCheck], mode: Mode) -> Verdict {
    decide_in_memory(checks, mode)
        .unwrap_or_else(|| block_on(decide_groups(checks, mode, Uncommitted::default())))
}

/// Decides all checks once it is awaited: what is charged before could not always be refunded.
pub(crate) fn decide_later(checks: Vec<OwnedCheck>, mode: Mode) -> Pending<Verdict> {
    Pending::new(async move { decide(&checks, mode).await })
}

/// Decides all checks.
pub(crate) async fn decide(checks: &[OwnedCheck], mode: Mode) -> Verdict {
    match decide_in_memory(checks, mode) {
        Some(verdict) => verdict,
        // Boxed, so that its state takes no room where memory decides.
        None => Box::pin(decide_groups(checks, mode, Uncommitted::default())).await,
    }
}

/// Decides at once, if all gates are in memory.
fn decide_in_memory(checks: &[OwnedCheck], mode: Mode) -> Option<Verdict> {
    let hashed = checks.iter().map(hashed_in_memory).collect::<Option<HashedChecks<'_>>>()?;
    if has_two_limits_on_a_key(checks) {
        return None;
    }
    let decided = memory::decide(&hashed, mode);
    let charge = decided.charge.map(Charge::Memory);
    let group = charge.map(|charge| GroupCharge { checks: (0..checks.len()).collect(), charge });
    Some(Verdict::new(checks, decided.decisions, group.into_iter().collect(), decided.now))
}

/// Decides checks that are all in memory, and leaves charged what was.
#[cfg(feature = "rules")]
pub(crate) fn charge_in_memory(checks: &[Check<'_>], mode: Mode) -> Decisions {
    let hashed = checks.iter().filter_map(|check| {
        let gate = check.gate.backend().memory()?;
        Some((check.gate, HashedCheck::new(gate, gate.hash(check.key.as_bytes()), check.cost)))
    });
    memory::decide(&hashed.collect::<HashedChecks<'_>>(), mode).decisions
}

fn has_two_limits_on_a_key(checks: &[OwnedCheck]) -> bool {
    let differs = |one: &OwnedCheck| {
        checks.iter().any(|other| key_sharing(one, other) == KeySharing::CountedDifferently)
    };
    checks.iter().any(|check| check.limit().is_some() && differs(check))
}

/// Decides all checks, one group after the other. Slots that were queued for are `held`: their
/// checks are decided already.
pub(crate) async fn decide_groups(checks: &[OwnedCheck], mode: Mode, held: Uncommitted) -> Verdict {
    let clock = clock_of(checks, &held);
    let groups = groups(checks, &held);
    let (mut decisions, mut is_denied) = (Decisions::new(), false);
    for (at, check) in checks.iter().enumerate() {
        let backend = check.gate.backend();
        decisions.push(if held.holds(at) {
            backend.decision_of_queued(check)
        } else {
            let remote = backend.remote();
            let denied =
                remote.and_then(|remote| remote.known_denial(check, whole_cost(checks, check), mode));
            is_denied |= denied.is_some();
            denied.unwrap_or_else(|| Decision::not_checked(&check.deciding_limit()))
        });
    }
    let (mut charged, mut now) = (held, None);
    for group in groups {
        if is_denied {
            break;
        }
        let (decided, charge);
        (decided, charge, now) = group.decide(checks, mode).await;
        for (at, decision) in group.checks.iter().zip(decided) {
            is_denied |= !decision.is_allowed();
            decisions[*at] = decision;
        }
        charged.0.extend(charge.map(|charge| GroupCharge { checks: group.checks, charge }));
    }
    if is_denied {
        // Before looking, which takes its time.
        drop(charged);
        look(checks, mode, &mut decisions).await;
        charged = Uncommitted::default();
    }
    let now = now.or_else(|| clock.map(StoreClock::now)).unwrap_or_default();
    Verdict::new(checks, decisions, charged.commit(), now)
}

/// The clock of a transaction's start: of its first check whose slots are not held already, else
/// of its first. None without checks.
pub(crate) fn clock_of<'a>(checks: &'a [OwnedCheck], held: &Uncommitted) -> Option<&'a StoreClock> {
    let first = (0..checks.len()).find(|at| !held.holds(*at)).unwrap_or(0);
    Some(checks.get(first)?.gate.clock())
}

/// What the transaction takes of the key of one of its checks.
fn whole_cost(checks: &[OwnedCheck], of: &OwnedCheck) -> u64 {
    let same = checks.iter().filter(|check| key_sharing(check, of) == KeySharing::CountedAlike);
    same.fold(0, |sum, check| sum.saturating_add(check.cost()))
}

/// How the keys of two checks relate.
pub(crate) fn key_sharing(one: &OwnedCheck, other: &OwnedCheck) -> KeySharing {
    if one.key() != other.key() {
        return KeySharing::Apart;
    }
    let of_gates = match (one.gate.backend().remote(), other.gate.backend().remote()) {
        (Some(one), Some(other)) => one.shares_keys(&**other),
        (None, None) if one.gate.is_same(&other.gate) => KeySharing::CountedAlike,
        _ => KeySharing::Apart,
    };
    let has_own = one.limit().is_some() || other.limit().is_some();
    match of_gates {
        KeySharing::Apart => KeySharing::Apart,
        _ if has_own && one.deciding_limit() == other.deciding_limit() => KeySharing::CountedAlike,
        _ if has_own => KeySharing::CountedDifferently,
        of_gates => of_gates,
    }
}

/// Looks at the checks that were not decided, because another one was denied: when the
/// transaction would fit depends on them as well. Nothing is charged.
async fn look(checks: &[OwnedCheck], mode: Mode, decisions: &mut Decisions) {
    let unchecked = (0..checks.len()).filter(|at| !decisions[*at].is_checked());
    // All are sent before the first is awaited: however many, they take as long as one.
    let looks: SmallVec<[(usize, Pending<Option<Decision>>); 2]> = unchecked
        .map(|at| {
            let (check, cost) = (&checks[at], whole_cost(checks, &checks[at]));
            (at, check.gate.backend().look(check, cost, mode))
        })
        .collect();
    for (at, look) in looks {
        if let Some(decision) = look.await {
            decisions[at] = decision;
        }
    }
}

/// Checks that are decided at one instant.
struct CheckGroup {
    checks: SmallVec<[usize; 2]>,
    /// None for memory.
    id: Option<GroupId>,
}

/// The checks that are not held already, in groups.
fn groups(checks: &[OwnedCheck], held: &Uncommitted) -> SmallVec<[CheckGroup; 2]> {
    let mut groups: SmallVec<[CheckGroup; 2]> = SmallVec::new();
    for (at, check) in checks.iter().enumerate().filter(|(at, _)| !held.holds(*at)) {
        let id = check.gate.backend().remote().map(|remote| remote.group(check.key()));
        // Two limits on one key are decided one after the other: together, each would be
        // decided on what was there before the other.
        let differs = |other: &usize| key_sharing(&checks[*other], check) == KeySharing::CountedDifferently;
        match groups.iter_mut().find(|group| group.id == id && !group.checks.iter().any(differs)) {
            Some(group) => group.checks.push(at),
            None => groups.push(CheckGroup { checks: SmallVec::from_elem(at, 1), id }),
        }
    }
    // Memory is decided first: it costs no call. Otherwise in the order of the checks.
    groups.sort_by_key(|group| group.id.is_some());
    groups
}

impl CheckGroup {
    /// The decisions, what was charged, and when, if that is known: in memory, to the instant.
    async fn decide(
        &self,
        checks: &[OwnedCheck],
        mode: Mode,
    ) -> (Decisions, Option<Charge>, Option<Timestamp>) {
        let own = || self.checks.iter().map(|at| &checks[*at]);
        let Some(remote) = checks[self.checks[0]].gate.backend().remote() else {
            let hashed: HashedChecks<'_> = own().filter_map(hashed_in_memory).collect();
            let decided = memory::decide(&hashed, mode);
            return (decided.decisions, decided.charge.map(Charge::Memory), Some(decided.now));
        };
        let own: SmallVec<[OwnedCheck; 2]> = own().cloned().collect();
        let decided = remote.clone().decide(&own, mode).await;
        (decided.decisions.into_iter().collect(), decided.charge.map(Charge::Remote), None)
    }
}
