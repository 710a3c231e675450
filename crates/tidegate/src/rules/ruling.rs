//! What the rules have decided about one request: each rule's record, which one binds, and the
//! permits to hold.
//!
//! It owns all of it, so a front end can keep it for as long as the request lasts.

use crate::clock::Timestamp;
use crate::decision::{Decision, Denial};
use crate::limiter::Check;
use crate::permit::Permit;
use crate::rules::key::KeyBytes;
use crate::rules::record::{Outcome, Record};
use crate::rules::rule_set::{CompiledRule, Policy, RuleSet, Timing};
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What the rules have decided about one request.
#[must_use = "a ruling that is not read limits nothing"]
pub struct Ruling {
    pub(crate) set: Arc<RuleSet>,
    /// The rules that apply, in their order.
    pub(crate) applied: AppliedRules,
    pub(crate) is_allowed: bool,
    /// How long the request has waited for its start.
    pub(crate) wait: Duration,
    pub(crate) permits: Vec<Permit>,
    /// When deciding began, if there is an observer, which gets how long it takes.
    pub(crate) started: Option<Timestamp>,
    pub(crate) took: Duration,
}

/// A rule that applies to a request.
pub(crate) struct AppliedRule {
    /// Its index in the rule set; none for the lists of all rules.
    pub(crate) rule: Option<usize>,
    pub(crate) key: KeyBytes,
    pub(crate) cost: u64,
    pub(crate) result: RuleResult,
}

pub(crate) type AppliedRules = SmallVec<[AppliedRule; 1]>;

impl AppliedRule {
    #[inline]
    pub(crate) fn undecided(rule: usize) -> Self {
        Self { rule: Some(rule), key: KeyBytes::new(), cost: 0, result: RuleResult::Undecided }
    }

    pub(crate) fn settled(rule: Option<usize>, key: KeyBytes, outcome: Outcome) -> Self {
        Self { rule, key, cost: 0, result: RuleResult::Settled(outcome) }
    }
}

/// What a rule has decided about a request.
#[derive(Debug)]
pub(crate) enum RuleResult {
    /// Its limits are not decided yet.
    Undecided,
    /// It is decided without its limits: by a list, a missing fact, or because the rules are off.
    Settled(Outcome),
    /// One decision for each of its limits.
    Decided { decisions: SmallVec<[Decision; 1]>, wait: Duration },
}

impl Ruling {
    pub(crate) fn new(
        set: Arc<RuleSet>,
        applied: AppliedRules,
        is_allowed: bool,
        started: Option<Timestamp>,
    ) -> Self {
        let (wait, took) = (Duration::ZERO, Duration::ZERO);
        Self { set, applied, is_allowed, wait, permits: Vec::new(), started, took }
    }

    /// True if the request may go on. It has waited already, for [`wait`](Self::wait).
    pub fn is_allowed(&self) -> bool {
        self.is_allowed
    }

    /// How long the request has waited for its start.
    pub fn wait(&self) -> Duration {
        self.wait
    }

    /// One record for each limit of each rule that applies, in the order of the rules, including
    /// those of rules in [shadow](crate::rules::Rule::shadow).
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.applied.iter().flat_map(|applied| self.records_of(applied))
    }

    /// The rule that applies; none for the lists of all rules.
    pub(crate) fn rule_of(&self, applied: &AppliedRule) -> Option<&CompiledRule> {
        applied.rule.map(|place| &self.set.rules[place])
    }

    /// True if a rule in shadow would have refused the request.
    pub(crate) fn has_shadow_refusal(&self) -> bool {
        self.applied.len() > 1 && self.records().any(|record| record.outcome.is_refusal())
    }

    /// The record that binds: of several refusals the one that lasts longest, as far as that is
    /// known; of an allowed request the one with the longest wait or the least left. None if no rule
    /// applies.
    pub fn binding(&self) -> Option<Record<'_>> {
        let refuses = |record: &Record<'_>| record.outcome.is_refusal();
        let in_force = self.records().filter(|record| !record.is_shadow);
        in_force.max_by_key(|record| (refuses(record), record.decision.as_ref().map(crate::verdict::weight)))
    }

    /// The time after which a refused request would fit, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        if self.is_allowed { None } else { self.binding()?.decision?.retry_after() }
    }

    /// What an allowed request holds: its slots, and with
    /// [`Charges::Adjustable`](crate::rules::Charges) everything that it was charged. Dropping the
    /// permits gives the slots back.
    pub fn into_permits(self) -> Vec<Permit> {
        self.permits
    }

    /// The rules whose limits are not decided yet, by their place among those that apply.
    pub(crate) fn undecided(&self) -> impl Iterator<Item = usize> {
        let is_undecided = |applied: &AppliedRule| matches!(applied.result, RuleResult::Undecided);
        self.applied.iter().enumerate().filter(move |(_, applied)| is_undecided(applied)).map(|(at, _)| at)
    }

    /// Those of them that are in force.
    pub(crate) fn undecided_in_force(&self) -> SmallVec<[usize; 4]> {
        self.undecided().filter(|at| !self.is_shadow(*at)).collect()
    }

    /// Those of them that are in shadow.
    pub(crate) fn undecided_in_shadow(&self) -> SmallVec<[usize; 4]> {
        self.undecided().filter(|at| self.is_shadow(*at)).collect()
    }

    pub(crate) fn is_shadow(&self, at: usize) -> bool {
        self.rule_of(&self.applied[at]).is_some_and(|rule| rule.is_shadow)
    }

    /// The limits of a rule that applies.
    pub(crate) fn policies(&self, at: usize) -> &[Policy] {
        self.rule_of(&self.applied[at]).map_or(&[], |rule| &rule.policies)
    }

    /// The checks of these rules: one for each of their limits.
    pub(crate) fn checks(&self, places: &[usize]) -> SmallVec<[Check<'_>; 4]> {
        let of = |at: &usize| {
            let applied = &self.applied[*at];
            self.policies(*at)
                .iter()
                .map(move |policy| Check::new(&policy.gate, &applied.key).cost(applied.cost))
        };
        places.iter().flat_map(of).collect()
    }

    /// Sets the decisions of a rule that applies.
    pub(crate) fn decide(&mut self, at: usize, decisions: SmallVec<[Decision; 1]>, wait: Duration) {
        self.applied[at].result = RuleResult::Decided { decisions, wait };
    }

    /// One record for each limit of a rule that applies, or one for all of them.
    pub(crate) fn records_of<'a>(&'a self, applied: &'a AppliedRule) -> impl Iterator<Item = Record<'a>> {
        let rule = self.rule_of(applied);
        let record = Record { took: self.took, ..Record::of_rule(rule, &applied.key) };
        let (settled, decisions, wait) = match &applied.result {
            RuleResult::Undecided => (None, &[][..], Duration::ZERO),
            RuleResult::Settled(outcome) => (Some(*outcome), &[][..], Duration::ZERO),
            RuleResult::Decided { decisions, wait } => (None, &decisions[..], *wait),
        };
        let expr = rule.map(|rule| &rule.key);
        let settled = settled.map(|outcome| Record { outcome, expr, ..record });
        let is_allowed =
            if record.is_shadow { decisions.iter().all(Decision::is_allowed) } else { self.is_allowed };
        let policies = rule.map_or(&[][..], |rule| &rule.policies);
        let decided = policies
            .iter()
            .zip(decisions)
            .map(move |(policy, decision)| record.decided(policy, *decision, is_allowed, wait));
        settled.into_iter().chain(decided)
    }
}

impl<'a> Record<'a> {
    /// Of a rule that applies, before it is decided; without a rule, of the lists of all rules.
    #[inline]
    pub(crate) fn of_rule(rule: Option<&'a CompiledRule>, key: &'a [u8]) -> Self {
        let record = Self::new(rule.map_or("", |rule| &rule.name), key);
        Self {
            is_shadow: rule.is_some_and(|rule| rule.is_shadow),
            shows_keys: rule.is_some_and(|rule| rule.shows_keys),
            ..record
        }
    }

    /// Of a limit of the rule; `is_allowed` says whether the request is.
    #[inline]
    pub(crate) fn decided(
        self,
        policy: &'a Policy,
        decision: Decision,
        is_allowed: bool,
        wait: Duration,
    ) -> Self {
        Self {
            policy: &policy.name,
            limit: Some(&policy.limit),
            quota: Some(&policy.quota),
            decision: Some(decision),
            outcome: match (is_allowed, wait.is_zero()) {
                (true, true) => Outcome::Allowed,
                (true, false) => Outcome::Waited,
                (false, _) if self.is_shadow && is_queued(policy, &decision) => Outcome::Queued,
                (false, _) => Outcome::of_denied(&decision),
            },
            wait,
            ..self
        }
    }
}

/// True if no slot is free now. A rule in shadow does not queue, so no more is known.
fn is_queued(policy: &Policy, decision: &Decision) -> bool {
    policy.timing == Timing::QueuesForSlots
        && decision.is_checked()
        && decision.denial() == Some(Denial::Busy)
}

impl fmt::Debug for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Ruling");
        out.field("is_allowed", &self.is_allowed).field("wait", &self.wait);
        out.field("records", &self.records().map(|record| record.to_string()).collect::<Vec<_>>()).finish()
    }
}
