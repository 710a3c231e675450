//! How a request is decided: one path for all rules, and for all front ends.
//!
//! If all limits are in memory, without waits and slots, they are decided at once, without a
//! future. Otherwise the future owns what it needs. Which rules apply is in
//! [`apply`](crate::rules::apply).
//!
//! Most requests need less: see [`fast_path`](crate::rules::fast_path).

use crate::algorithm::Mode;
use crate::check::OwnedCheck;
use crate::decision::Decision;
use crate::pending::Pending;
use crate::permit::Permit;
use crate::rules::engine::{Engine, Rules};
use crate::rules::facts::Facts;
use crate::rules::key::KeyBytes;
use crate::rules::record::Record;
use crate::rules::rule_set::Timing;
use crate::rules::ruling::{AppliedRule, AppliedRules, Ruling};
use crate::transaction;
use crate::verdict::Verdict;
use smallvec::SmallVec;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// Whether the charges of an allowed request can change afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charges {
    /// Rates stay charged. The permits hold slots only.
    Final,
    /// The permits hold everything that was charged, so that it can be settled at the true cost,
    /// which is known afterwards, or refunded.
    Adjustable,
}

impl Rules {
    /// Decides a request: all rules that apply are charged, or none. The result is ready at once if
    /// all of them are in memory, and none waits or holds slots. A future that is dropped before
    /// gives back what it has reserved, unless others have reserved after it.
    pub fn decide(&self, facts: &dyn Facts, charges: Charges) -> Pending<Ruling> {
        let Err(ruling) = self.decide_or(facts, charges, None::<fn(Record<'_>) -> Infallible>);
        ruling
    }

    /// [`decide`](Self::decide) with [`Charges::Final`], for front ends that say little about most
    /// requests: if only one rule applies, its only limit is in memory, and it allows the request,
    /// then `allowed` gets the record, and no ruling is made, which takes longer than the decision.
    ///
    /// ```
    /// use tidegate::rules::{Facts, Record, Rules};
    /// # use tidegate::{Limiter, rules::Rule};
    ///
    /// /// Units that are left of the limit that binds.
    /// fn left(rules: &Rules, facts: &dyn Facts) -> Option<u64> {
    ///     let left = |record: Record<'_>| record.decision().map(|decision| decision.remaining());
    ///     rules.allow_or_decide(facts, left).unwrap_or_else(|ruling| left(ruling.blocking().binding()?))
    /// }
    ///
    /// struct Anybody;
    /// impl Facts for Anybody {}
    /// # let limiter = Limiter::new();
    /// let rules = Rules::new(&limiter).rule(Rule::new("all", "5/h").by("'everyone'")).build()?;
    /// assert_eq!(left(&rules, &Anybody), Some(4));
    /// # Ok::<(), tidegate::rules::RulesError>(())
    /// ```
    ///
    /// # Errors
    /// The ruling of any other request, allowed or not.
    #[expect(clippy::result_large_err, reason = "it is as large as what `decide` returns")]
    #[inline]
    pub fn allow_or_decide<T>(
        &self,
        facts: &dyn Facts,
        allowed: impl FnOnce(Record<'_>) -> T,
    ) -> Result<T, Pending<Ruling>> {
        self.decide_or(facts, Charges::Final, Some(allowed))
    }

    #[expect(clippy::result_large_err, reason = "it is as large as what `decide` returns")]
    #[inline]
    fn decide_or<T>(
        &self,
        facts: &dyn Facts,
        charges: Charges,
        allowed: Option<impl FnOnce(Record<'_>) -> T>,
    ) -> Result<T, Pending<Ruling>> {
        let engine = &self.engine;
        let (started, set) = (engine.started(), engine.set.load());
        let mut applied = AppliedRules::new();
        let mut is_allowed = true;
        if self.is_on() {
            let matches = self.matches(&set, facts);
            engine.traffic.count(&set, &matches, || engine.limiter.clock().now());
            if let Some(allowed) = allowed {
                let mut key = KeyBytes::new();
                if let Some(record) = engine.fast_path(&set, facts, &matches, &mut key) {
                    return Ok(allowed(record));
                }
            }
            is_allowed = self.apply(&set, facts, &matches, &mut applied);
        } else if engine.is_watched() {
            applied = self.off(&set, facts);
        }
        let mut ruling = Ruling::new(set.clone(), applied, is_allowed, started);
        if ruling.is_allowed && !is_immediate(&ruling, charges) {
            return Err(Pending::new(engine.clone().decide_later(ruling, charges)));
        }
        if ruling.is_allowed {
            decide_now(&mut ruling);
        }
        engine.record(&mut ruling);
        Err(Pending::ready(ruling))
    }

    /// What [`decide`](Self::decide) would decide now; nothing is charged, counted or logged.
    pub fn explain(&self, facts: &dyn Facts) -> Pending<Ruling> {
        let set = self.engine.set.load_full();
        let mut applied = AppliedRules::new();
        let mut is_allowed = true;
        if self.is_on() {
            is_allowed = self.apply(&set, facts, &self.matches(&set, facts), &mut applied);
        } else {
            applied = self.off(&set, facts);
        }
        let mut ruling = Ruling::new(set, applied, is_allowed, None);
        Pending::new(async move {
            for at in ruling.undecided().collect::<Vec<_>>() {
                let (decisions, wait) = peek(&ruling, at).await;
                if !ruling.is_shadow(at) {
                    ruling.is_allowed &= decisions.iter().all(Decision::is_allowed);
                    ruling.wait = ruling.wait.max(wait);
                }
                ruling.decide(at, decisions, wait);
            }
            ruling
        })
    }
}

fn is_immediate(ruling: &Ruling, charges: Charges) -> bool {
    let is_at_once = |at| ruling.policies(at).iter().all(|policy| policy.timing == Timing::Immediate);
    match charges {
        Charges::Final => ruling.undecided().all(is_at_once),
        // The permits of what is charged are made by the future.
        Charges::Adjustable => ruling.undecided().next().is_none(),
    }
}

/// Decides in memory, without waits.
fn decide_now(ruling: &mut Ruling) {
    let in_force = ruling.undecided_in_force();
    ruling.is_allowed = decide_together(ruling, &in_force);
    if ruling.is_allowed {
        for at in ruling.undecided_in_shadow() {
            decide_together(ruling, &[at]);
        }
    }
}

/// Decides all limits of these rules in memory, all or none; true if all were allowed.
fn decide_together(ruling: &mut Ruling, places: &[usize]) -> bool {
    if let [at] = *places
        && let [policy] = ruling.policies(at)
    {
        let applied = &ruling.applied[at];
        let decision = policy.gate.check_cost(&applied.key, applied.cost);
        ruling.decide(at, SmallVec::from_buf([decision]), Duration::ZERO);
        return decision.is_allowed();
    }
    let decisions = transaction::charge_in_memory(&ruling.checks(places), Mode::Check);
    let is_allowed = decisions.iter().all(Decision::is_allowed);
    distribute(ruling, places, &decisions, Duration::ZERO);
    is_allowed
}

/// Gives each of these rules its decisions.
fn distribute(ruling: &mut Ruling, places: &[usize], mut decisions: &[Decision], wait: Duration) {
    for at in places {
        let (own, rest) = decisions.split_at(ruling.policies(*at).len().min(decisions.len()));
        ruling.decide(*at, SmallVec::from_slice(own), wait);
        decisions = rest;
    }
}

/// What the limits of a rule would say, with nothing charged.
async fn peek(ruling: &Ruling, at: usize) -> (SmallVec<[Decision; 1]>, Duration) {
    let AppliedRule { key, cost, .. } = &ruling.applied[at];
    let mut decisions = SmallVec::new();
    for policy in ruling.policies(at) {
        let check = OwnedCheck::new(&policy.gate, key, *cost);
        let looked = policy.gate.backend().look(&check, *cost, Mode::Reserve).await;
        decisions.push(match looked {
            Some(decision) => decision,
            None => policy.gate.peek_cost_async(key, *cost).await,
        });
    }
    let wait = decisions.iter().map(Decision::wait).max().unwrap_or_default();
    (decisions, wait)
}

impl Engine {
    /// Decides a request that may wait, hold a slot, or needs another store.
    async fn decide_later(self: Arc<Self>, mut ruling: Ruling, charges: Charges) -> Ruling {
        let in_force = ruling.undecided_in_force();
        if !in_force.is_empty() {
            self.decide_in_force(&mut ruling, &in_force, charges).await;
        }
        if ruling.is_allowed {
            let shadow = ruling.undecided_in_shadow();
            for (at, verdict) in shadow.iter().zip(self.decide_shadow(&ruling, &shadow).await) {
                distribute(&mut ruling, &[*at], verdict.decisions(), verdict.wait());
                let permit = slots(&ruling, &[*at], verdict.into_permit().ok());
                ruling.permits.extend(permit);
            }
        }
        self.record(&mut ruling);
        ruling
    }

    /// Decides all rules in force, and waits for the start.
    async fn decide_in_force(&self, ruling: &mut Ruling, in_force: &[usize], charges: Charges) {
        let has = |is_it: fn(Timing) -> bool| {
            in_force.iter().any(|at| ruling.policies(*at).iter().any(|policy| is_it(policy.timing)))
        };
        let verdict = if has(Timing::waits) {
            match Waiting::begin(&self.waiting, self.waiting_max) {
                Some(_waiting) => self.limiter.acquire(&ruling.checks(in_force)).await,
                // As many requests wait as may: one that would have to wait is refused.
                None => self.limiter.hold_async(&ruling.checks(in_force)).await,
            }
        } else if has(Timing::holds_slots) {
            self.limiter.hold_async(&ruling.checks(in_force)).await
        } else if let [at] = *in_force
            && let [policy] = ruling.policies(at)
            && charges == Charges::Final
        {
            // One gate alone can spend what it has prefetched.
            let applied = &ruling.applied[at];
            let decision = policy.gate.check_cost_async(&applied.key, applied.cost).await;
            ruling.is_allowed = decision.is_allowed();
            return ruling.decide(at, SmallVec::from_buf([decision]), Duration::ZERO);
        } else {
            self.limiter.check_async(&ruling.checks(in_force)).await
        };
        (ruling.is_allowed, ruling.wait) = (verdict.is_allowed(), verdict.waited());
        distribute(ruling, in_force, verdict.decisions(), ruling.wait);
        let permit = verdict.into_permit().ok();
        let permit = match charges {
            Charges::Final => slots(ruling, in_force, permit),
            Charges::Adjustable => permit,
        };
        ruling.permits.extend(permit);
    }

    /// Decides the rules in shadow: each alone, and all at the same time, so that a remote store
    /// takes no longer for many than for one.
    async fn decide_shadow(&self, ruling: &Ruling, shadow: &[usize]) -> Vec<Verdict> {
        let reserve = |at: &usize| (self.limiter.reserve_async(&ruling.checks(&[*at])), None);
        let mut pending: Vec<(Pending<Verdict>, Option<Verdict>)> = shadow.iter().map(reserve).collect();
        poll_fn(|context| {
            for (future, verdict) in pending.iter_mut().filter(|(_, verdict)| verdict.is_none()) {
                if let Poll::Ready(ready) = Pin::new(future).poll(context) {
                    *verdict = Some(ready);
                }
            }
            let is_whole = pending.iter().all(|(_, verdict)| verdict.is_some());
            if is_whole { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        pending.into_iter().filter_map(|(_, verdict)| verdict).collect()
    }
}

/// The permit, if it holds a slot.
fn slots(ruling: &Ruling, places: &[usize], permit: Option<Permit>) -> Option<Permit> {
    let holds = |at: &usize| ruling.policies(*at).iter().any(|policy| policy.timing.holds_slots());
    permit.filter(|_| places.iter().any(holds))
}

/// One of the requests that wait.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(waiting: &'a AtomicUsize, max: usize) -> Option<Self> {
        let one_more = |now: usize| (now < max).then_some(now + 1);
        waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Self(waiting))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
