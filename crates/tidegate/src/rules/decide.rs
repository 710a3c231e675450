//! The path of a request through the rules, one for all of them.
//!
//! What can be decided at once (memory, no wait, no slot to hold) is decided without a future.
//! Everything else is a future that owns what it needs.

use crate::algorithm::Mode;
use crate::clock::Timestamp;
use crate::decision::Decision;
use crate::limiter::Check;
use crate::pending::Pending;
use crate::permit::Permit;
use crate::rules::engine::{Engine, Rules};
use crate::rules::facts::{Fact, Facts};
use crate::rules::key::KeyBytes;
use crate::rules::list::List;
use crate::rules::record::Outcome;
use crate::rules::rule::Missing;
use crate::rules::rule_set::{CompiledRule, RuleSet, Timing};
use crate::rules::ruling::{AppliedRule, AppliedRules, RuleResult, Ruling};
use crate::transaction;
use crate::verdict::Verdict;
use smallvec::SmallVec;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// What becomes of the charges of a request that is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charges {
    /// Rates stay charged. The permits hold slots only.
    Final,
    /// The permits hold all that was charged, so that it can be settled at a true cost that is
    /// known afterwards, or taken back.
    Adjustable,
}

/// The rules that apply to a request, by their places, each with the pattern that fits.
pub(crate) type Matches<'a> = SmallVec<[(usize, Option<&'a str>); 4]>;

impl Rules {
    /// Decides a request: all rules that apply are charged, or none. Ready at once if all of them
    /// are in memory and nobody has to wait or to hold a slot. Dropped before, it gives back what
    /// it has reserved, as far as nobody has reserved after it.
    pub fn decide(&self, facts: &dyn Facts, charges: Charges) -> Pending<Ruling> {
        let engine = &self.engine;
        let (started, set) = (engine.started(), engine.set.load_full());
        let mut applied = AppliedRules::new();
        let mut is_refused = false;
        if self.is_on() {
            let matches = self.matches(&set, facts);
            engine.traffic.count(&set, &matches, || engine.limiter.clock().now());
            is_refused = self.apply(&set, facts, &matches, &mut applied).is_err();
        } else if engine.is_watched() {
            self.settle_all(&set, facts, Outcome::Off, &mut applied);
        }
        let mut ruling = Ruling::new(set, applied, !is_refused, started);
        if ruling.is_allowed && !is_immediate(&ruling, charges) {
            return Pending::new(engine.clone().decide_later(ruling, charges));
        }
        if ruling.is_allowed {
            decide_now(&mut ruling);
        }
        engine.record(&mut ruling);
        Pending::ready(ruling)
    }

    /// What [`decide`](Self::decide) would say, with nothing charged, counted or logged.
    pub fn explain(&self, facts: &dyn Facts) -> Pending<Ruling> {
        let set = self.engine.set.load_full();
        let mut applied = AppliedRules::new();
        let mut is_refused = false;
        if self.is_on() {
            is_refused = self.apply(&set, facts, &self.matches(&set, facts), &mut applied).is_err();
        } else {
            self.settle_all(&set, facts, Outcome::Off, &mut applied);
        }
        let mut ruling = Ruling::new(set, applied, !is_refused, None);
        Pending::new(async move {
            let in_force: SmallVec<[usize; 4]> = ruling.undecided(false).collect();
            let shadow: SmallVec<[usize; 4]> = ruling.undecided(true).collect();
            for at in in_force {
                let (decisions, wait) = peek(&ruling, at).await;
                ruling.is_allowed &= decisions.iter().all(Decision::is_allowed);
                ruling.wait = ruling.wait.max(wait);
                ruling.decide(at, decisions, wait);
            }
            for at in shadow {
                let (decisions, wait) = peek(&ruling, at).await;
                ruling.decide(at, decisions, wait);
            }
            ruling
        })
    }

    /// The fields of a JSON body that the rules which apply to a request ask for, by their
    /// pointers: none if its client's network is on a deny list, so nobody reads a body of such a
    /// client.
    pub fn json_pointers(&self, facts: &dyn Facts) -> Vec<Box<str>> {
        let set = self.engine.set.load();
        let mut pointers: Vec<Box<str>> = Vec::new();
        if !set.reads_json || !self.is_on() {
            return pointers;
        }
        let matches = self.matches(&set, facts);
        for pointer in matches.iter().flat_map(|(place, _)| set.rules[*place].pointers()) {
            if !pointers.iter().any(|known| **known == *pointer) {
                pointers.push(pointer.into());
            }
        }
        if !pointers.is_empty() && self.network_denier(&set, facts, &matches).is_some() {
            pointers.clear();
        }
        pointers
    }

    /// The refusal of a request whose body did not come in time, in the name of the first rule that
    /// needs it. None if no rule in force insists on it: then the request goes on, and what the
    /// body says is ambiguous. `started` is when the body was waited for first.
    pub fn refuse_slow_body(&self, facts: &dyn Facts, started: Timestamp) -> Option<Ruling> {
        let (engine, set) = (&*self.engine, self.engine.set.load_full());
        if !self.is_on() || engine.allow.exempts_client_of(facts) {
            return None;
        }
        let insists = |rule: &CompiledRule| {
            rule.pointers().next().is_some() && !rule.is_shadow && !rule.allow.exempts_client_of(facts)
        };
        let applies = self.matches(&set, facts).into_iter().map(|(place, _)| place);
        let place = applies.into_iter().find(|place| insists(&set.rules[*place]))?;
        let slow = AppliedRule::settled(Some(place), KeyBytes::new(), Outcome::SlowBody);
        let started = engine.started().map(|_| started);
        let mut ruling = Ruling::new(set, AppliedRules::from_buf([slow]), false, started);
        engine.record(&mut ruling);
        Some(ruling)
    }

    /// The rules that apply to a request.
    pub(crate) fn matches<'s>(&self, set: &'s RuleSet, facts: &dyn Facts) -> Matches<'s> {
        let mut matches = Matches::new();
        for (place, rule) in set.rules.iter().enumerate() {
            if let Some(route) = rule.applies(facts)
                && self.choice.has(&rule.name)
            {
                matches.push((place, route));
            }
        }
        matches
    }

    /// Settles all rules that apply without their limits.
    fn settle_all(&self, set: &RuleSet, facts: &dyn Facts, outcome: Outcome, applied: &mut AppliedRules) {
        let settle = |(place, _)| AppliedRule::settled(Some(place), KeyBytes::new(), outcome);
        applied.extend(self.matches(set, facts).into_iter().map(settle));
    }

    /// Finds the keys and costs of the rules that apply, and settles those that lists or missing
    /// facts settle.
    ///
    /// # Errors
    /// If a list or a missing fact refuses the request. Nothing is left to decide then.
    fn apply(
        &self,
        set: &RuleSet,
        facts: &dyn Facts,
        matches: &Matches<'_>,
        applied: &mut AppliedRules,
    ) -> Result<(), Refused> {
        let engine = &*self.engine;
        // Networks need no key, so they come first, and nobody reads a body of such a client.
        match self.network_denier(set, facts, matches) {
            None => {}
            Some(Denier::AllRules) => {
                let key = facts.client().map(|client| format!("ip:{client}")).unwrap_or_default();
                return refuse(applied, None, KeyBytes::from_slice(key.as_bytes()), Outcome::Listed);
            }
            Some(Denier::Rule(place, route)) => {
                let (rule, mut key) = (&set.rules[place], KeyBytes::new());
                let reads_body = rule.pointers().next().is_some();
                if reads_body || rule.write_key(facts, route, &mut key) != Fact::Found(()) {
                    key.clear();
                }
                return refuse(applied, Some(place), key, Outcome::Listed);
            }
        }
        let is_exempt = engine.allow.exempts_client_of(facts);
        for (place, route) in matches {
            let rule = &set.rules[*place];
            let mut key = KeyBytes::new();
            let found = rule.write_key(facts, *route, &mut key);
            let is_found = found == Fact::Found(());
            let is_key_on = |own: &List, all: &List| {
                let has_keys = is_found && (own.has_keys() || all.has_keys());
                let has = |key: &[u8]| own.has_key(key) || all.has_key(key);
                has_keys && has(&rule.listed_key(&key))
            };
            let outcome = if rule.deny.has_client_of(facts) || is_key_on(&rule.deny, &engine.deny) {
                Some(Outcome::Listed)
            } else if found == Fact::Ambiguous && (rule.deny.has_keys() || engine.deny.has_keys()) {
                // It may be one of those.
                Some(Outcome::Ambiguous)
            } else if is_exempt
                || rule.allow.exempts_client_of(facts)
                || (is_key_on(&rule.allow, &engine.allow) && !facts.is_client_forged())
            {
                Some(Outcome::Exempt)
            } else {
                without_key(found, rule.missing)
            };
            match outcome {
                None => {
                    if !is_found {
                        key = KeyBytes::from_slice(&rule.shared_key);
                    }
                    let (rule, cost) = (Some(*place), rule.cost(facts));
                    applied.push(AppliedRule { rule, key, cost, result: RuleResult::Undecided });
                }
                Some(outcome) => {
                    if !is_found {
                        key.clear();
                    }
                    if outcome.is_refusal() && !rule.is_shadow {
                        return refuse(applied, Some(*place), key, outcome);
                    }
                    applied.push(AppliedRule::settled(Some(*place), key, outcome));
                }
            }
        }
        Ok(())
    }

    /// Whose deny list has the client's network, if it is refused for that.
    pub(crate) fn network_denier<'s>(
        &self,
        set: &RuleSet,
        facts: &dyn Facts,
        matches: &Matches<'s>,
    ) -> Option<Denier<'s>> {
        if self.engine.deny.has_client_of(facts) {
            return Some(Denier::AllRules);
        }
        let denies = |rule: &CompiledRule| !rule.is_shadow && rule.deny.has_client_of(facts);
        let rule = matches.iter().find(|(place, _)| denies(&set.rules[*place]));
        rule.map(|(place, route)| Denier::Rule(*place, *route))
    }
}

/// Whose deny list has the network of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denier<'a> {
    AllRules,
    /// By its place, with the pattern that fits.
    Rule(usize, Option<&'a str>),
}

/// A list or a missing fact refuses the request.
struct Refused;

fn refuse(
    applied: &mut AppliedRules,
    rule: Option<usize>,
    key: KeyBytes,
    outcome: Outcome,
) -> Result<(), Refused> {
    applied.retain(|applied| !matches!(applied.result, RuleResult::Undecided));
    applied.push(AppliedRule::settled(rule, key, outcome));
    Err(Refused)
}

/// What becomes of a request by its key alone; none if its limits decide, under its own key or
/// the one that is shared.
pub(crate) fn without_key(found: Fact<()>, missing: Missing) -> Option<Outcome> {
    match (found, missing) {
        (Fact::Found(()), _) | (Fact::Missing, Missing::Share) => None,
        (Fact::Missing, Missing::Skip) => Some(Outcome::Skipped),
        (Fact::Missing, Missing::Refuse) => Some(Outcome::Incomplete),
        // Skipped would be what a client gains by it.
        (Fact::Ambiguous, Missing::Share | Missing::Skip) => None,
        (Fact::Ambiguous, Missing::Refuse) => Some(Outcome::Ambiguous),
    }
}

fn is_immediate(ruling: &Ruling, charges: Charges) -> bool {
    let mut undecided = ruling.undecided(false).chain(ruling.undecided(true)).peekable();
    let is_charged = undecided.peek().is_some();
    let is_all =
        undecided.all(|at| ruling.policies(at).iter().all(|policy| policy.timing == Timing::Immediate));
    is_all && !(is_charged && charges == Charges::Adjustable)
}

/// Decides in memory, without waits.
fn decide_now(ruling: &mut Ruling) {
    let live: SmallVec<[usize; 4]> = ruling.undecided(false).collect();
    ruling.is_allowed = decide_together(ruling, &live);
    if ruling.is_allowed {
        let shadow: SmallVec<[usize; 4]> = ruling.undecided(true).collect();
        for at in shadow {
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
    let checks: SmallVec<[Check<'_>; 4]> = places.iter().flat_map(|at| ruling.checks(*at)).collect();
    let decisions = transaction::charge_in_memory(&checks, Mode::Check);
    drop(checks);
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
        let looked = policy.gate.backend().look(key, *cost, Mode::Reserve).await;
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
        let live: SmallVec<[usize; 4]> = ruling.undecided(false).collect();
        if !live.is_empty() {
            self.decide_in_force(&mut ruling, &live, charges).await;
        }
        if ruling.is_allowed {
            let shadow: SmallVec<[usize; 4]> = ruling.undecided(true).collect();
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
    async fn decide_in_force(&self, ruling: &mut Ruling, live: &[usize], charges: Charges) {
        let has = |is_it: fn(Timing) -> bool| {
            live.iter().any(|at| ruling.policies(*at).iter().any(|policy| is_it(policy.timing)))
        };
        let checks: SmallVec<[Check<'_>; 4]> = live.iter().flat_map(|at| ruling.checks(*at)).collect();
        let verdict = if has(Timing::waits) {
            match Waiting::begin(&self.waiting, self.waiting_max) {
                Some(_waiting) => self.limiter.acquire(&checks).await,
                // As many wait as may: whoever would have to wait is refused.
                None => self.limiter.hold_async(&checks).await,
            }
        } else if has(Timing::holds_slots) {
            self.limiter.hold_async(&checks).await
        } else if let [at] = *live
            && let [policy] = ruling.policies(at)
            && charges == Charges::Final
        {
            // One gate alone can spend what it has taken ahead.
            drop(checks);
            let applied = &ruling.applied[at];
            let decision = policy.gate.check_cost_async(&applied.key, applied.cost).await;
            ruling.is_allowed = decision.is_allowed();
            return ruling.decide(at, SmallVec::from_buf([decision]), Duration::ZERO);
        } else {
            self.limiter.check_async(&checks).await
        };
        drop(checks);
        (ruling.is_allowed, ruling.wait) = (verdict.is_allowed(), verdict.waited());
        distribute(ruling, live, verdict.decisions(), ruling.wait);
        let permit = verdict.into_permit().ok();
        let permit = match charges {
            Charges::Final => slots(ruling, live, permit),
            Charges::Adjustable => permit,
        };
        ruling.permits.extend(permit);
    }

    /// Decides the rules in shadow: each alone, and all at the same time, so that however many
    /// they are, a remote store takes no longer than for one.
    async fn decide_shadow(&self, ruling: &Ruling, shadow: &[usize]) -> Vec<Verdict> {
        let reserve = |at: &usize| {
            let checks: SmallVec<[Check<'_>; 2]> = ruling.checks(*at).collect();
            (self.limiter.reserve_async(&checks), None)
        };
        let mut pending: Vec<(Pending<Verdict>, Option<Verdict>)> = shadow.iter().map(reserve).collect();
        poll_fn(|context| {
            let mut is_whole = true;
            for (future, verdict) in pending.iter_mut().filter(|(_, verdict)| verdict.is_none()) {
                match Pin::new(future).poll(context) {
                    Poll::Ready(ready) => *verdict = Some(ready),
                    Poll::Pending => is_whole = false,
                }
            }
            if is_whole { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        pending.into_iter().filter_map(|(_, verdict)| verdict).collect()
    }
}

/// The permit, if there is a slot in it to hold.
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
