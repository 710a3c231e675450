//! The fast path: a request that meets a single rule with a single limit in memory, and is allowed.
//!
//! Most requests to most services are like that. Making a [`Ruling`](crate::rules::Ruling), which
//! owns what it says, takes longer than deciding one. Every other request takes the full path, also
//! one that is denied here, which is then decided a second time: a denial writes nothing.
//! `tests/rules/at_once.rs` holds both paths equal.

use crate::rules::apply::Matches;
use crate::rules::engine::Engine;
use crate::rules::facts::{Fact, Facts};
use crate::rules::key::{KeyBytes, Part, Source};
use crate::rules::record::Record;
use crate::rules::rule::RuleCost;
use crate::rules::rule_set::{CompiledRule, RuleSet, Timing};
use std::time::Duration;

impl CompiledRule {
    /// True if nothing but its limit and the request's key decides, at once, without a function of
    /// the application, which might be called twice.
    pub(crate) fn has_fast_path(&self) -> bool {
        let is_ours = |part: &Part| match part {
            Part::Ip | Part::User | Part::Method | Part::Route | Part::Constant(_) => true,
            Part::Value(value) => value.source != Source::Entry,
            Part::Custom { .. } => false,
        };
        matches!(&self.policies[..], [policy] if policy.timing == Timing::Immediate)
            && matches!(self.cost, RuleCost::Units(_))
            && self.key.alternatives.iter().flatten().all(is_ours)
            && !self.is_shadow
            && self.allow.is_empty()
            && self.deny.is_empty()
    }
}

impl Engine {
    /// The record of a request that the fast path allows. None if the full path has to decide; then
    /// nothing was charged.
    #[inline]
    pub(crate) fn fast_path<'a>(
        &self,
        set: &'a RuleSet,
        facts: &dyn Facts,
        matches: &Matches<'_>,
        key: &'a mut KeyBytes,
    ) -> Option<Record<'a>> {
        let [(place, route)] = **matches else { return None };
        let rule = &set.rules[place];
        if !rule.is_fast || self.has_lists() || self.is_watched() {
            return None;
        }
        let (RuleCost::Units(cost), [policy]) = (&rule.cost, &rule.policies[..]) else { return None };
        if rule.write_key(facts, route, key) != Fact::Found(()) {
            return None;
        }
        let decision = policy.gate.check_cost(key, *cost);
        let record = || Record::of_rule(Some(rule), key).decided(policy, decision, true, Duration::ZERO);
        decision.is_allowed().then(record)
    }
}
