//! What the rules have decided about one request: each rule's record, which one binds, and the
//! permits to hold.
//!
//! It owns all of it, so a front end can keep it for as long as the request lasts.

use crate::clock::Timestamp;
use crate::decision::{Decision, Denial};
use crate::key::Key;
use crate::limiter::Check;
use crate::permit::Permit;
use crate::rules::key::KeyBytes;
use crate::rules::record::{Outcome, Record};
use crate::rules::rule_set::{CompiledRule, Policy, RuleSet};
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
        self.records_with_rules().map(|(_, record)| record)
    }

    /// The same, each with its rule; none for the lists of all rules.
    pub(crate) fn records_with_rules(&self) -> impl Iterator<Item = (Option<&CompiledRule>, Record<'_>)> {
        self.applied.iter().flat_map(|applied| {
            let rule = applied.rule.map(|place| &self.set.rules[place]);
            self.records_of(rule, applied).map(move |record| (rule, record))
        })
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

    fn is_shadow(&self, at: usize) -> bool {
        self.applied[at].rule.is_some_and(|place| self.set.rules[place].is_shadow)
    }

    /// The limits of a rule that applies.
    pub(crate) fn policies(&self, at: usize) -> &[Policy] {
        self.applied[at].rule.map_or(&[], |place| &self.set.rules[place].policies)
    }

    /// The checks of a rule that applies: one for each of its limits.
    pub(crate) fn checks(&self, at: usize) -> impl Iterator<Item = Check<'_>> {
        let applied = &self.applied[at];
        self.policies(at).iter().map(|policy| Check::new(&policy.gate, &applied.key).cost(applied.cost))
    }

    /// Sets the decisions of a rule that applies.
    pub(crate) fn decide(&mut self, at: usize, decisions: SmallVec<[Decision; 1]>, wait: Duration) {
        self.applied[at].result = RuleResult::Decided { decisions, wait };
    }

    fn records_of<'a>(
        &'a self,
        rule: Option<&'a CompiledRule>,
        applied: &'a AppliedRule,
    ) -> impl Iterator<Item = Record<'a>> {
        let (settled, decisions) = match &applied.result {
            RuleResult::Undecided => (None, &[][..]),
            RuleResult::Settled(outcome) => (Some(*outcome), &[][..]),
            RuleResult::Decided { decisions, .. } => (None, &decisions[..]),
        };
        let settled = settled.map(|outcome| Record {
            key: (!applied.key.is_empty()).then(|| Key::new(&applied.key)),
            expr: rule.map(|rule| &rule.key),
            ..self.record(rule, rule.map_or("", |rule| &rule.name), outcome)
        });
        let decided = rule.into_iter().flat_map(move |rule| {
            rule.policies.iter().zip(decisions).map(move |(policy, decision)| Record {
                key: Some(Key::new(&applied.key)),
                limit: Some(&policy.limit),
                quota: Some(&policy.quota),
                decision: Some(*decision),
                wait: self.wait_of(applied),
                ..self.record(Some(rule), &policy.name, self.outcome(rule, policy, applied, decision))
            })
        });
        settled.into_iter().chain(decided)
    }

    fn record<'a>(&'a self, rule: Option<&'a CompiledRule>, policy: &'a str, outcome: Outcome) -> Record<'a> {
        Record {
            rule: rule.map_or("", |rule| &rule.name),
            policy,
            key: None,
            limit: None,
            quota: None,
            decision: None,
            outcome,
            is_shadow: rule.is_some_and(|rule| rule.is_shadow),
            shows_keys: rule.is_some_and(|rule| rule.shows_keys),
            wait: Duration::ZERO,
            took: self.took,
            expr: None,
        }
    }

    /// How long the request waited for this rule.
    fn wait_of(&self, applied: &AppliedRule) -> Duration {
        match &applied.result {
            RuleResult::Decided { wait, .. } => *wait,
            RuleResult::Undecided | RuleResult::Settled(_) => Duration::ZERO,
        }
    }

    fn outcome(
        &self,
        rule: &CompiledRule,
        policy: &Policy,
        applied: &AppliedRule,
        decision: &Decision,
    ) -> Outcome {
        let RuleResult::Decided { decisions, wait } = &applied.result else { return Outcome::NotCharged };
        let is_allowed =
            if rule.is_shadow { decisions.iter().all(Decision::is_allowed) } else { self.is_allowed };
        match (is_allowed, wait.is_zero()) {
            (true, true) => Outcome::Allowed,
            (true, false) => Outcome::Waited,
            // A rule in shadow does not queue, so only is known that no slot is free now.
            (false, _)
                if rule.is_shadow
                    && policy.timing.holds_slots()
                    && policy.timing.waits()
                    && decision.is_checked()
                    && decision.denial() == Some(Denial::Busy) =>
            {
                Outcome::Queued
            }
            (false, _) => Outcome::of_denied(decision),
        }
    }
}

impl fmt::Debug for Ruling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Ruling");
        out.field("is_allowed", &self.is_allowed).field("wait", &self.wait);
        out.field("records", &self.records().map(|record| record.to_string()).collect::<Vec<_>>()).finish()
    }
}
