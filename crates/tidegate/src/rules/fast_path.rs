//! The fast path: a request that meets a single rule with a single limit in memory, and is allowed.
//!
//! Most requests to most services are like that. Making a [`Ruling`](crate::rules::Ruling), which
//! owns what it says, takes longer than deciding one. Every other request takes the full path, also
//! one that is denied here: it is decided a second time, which only reads. `tests/rules/at_once.rs`
//! holds both paths equal.

use crate::rules::apply::Matches;
use crate::rules::engine::Engine;
use crate::rules::facts::{Fact, Facts};
use crate::rules::key::{KeyBytes, Part, Source};
use crate::rules::record::Record;
use crate::rules::rule::RuleCost;
use crate::rules::rule_set::{CompiledRule, Policy, RuleSet, Timing};
use std::time::Duration;

impl CompiledRule {
    /// The limit that decides alone and at once, and what a request costs. None if a list or a
    /// shadow has a say, or if a function of the application would have to be called, which a denied
    /// request would call twice.
    fn only_limit(&self) -> Option<(&Policy, u64)> {
        let is_ours = |part: &Part| match part {
            Part::Ip | Part::User | Part::Method | Part::Route | Part::Constant(_) => true,
            Part::Value(value) => match value.source {
                Source::Header | Source::Path(_) | Source::Query | Source::Cookie | Source::Json => true,
                Source::Entry => false,
            },
            Part::Custom { .. } => false,
        };
        let (RuleCost::Units(cost), [policy]) = (&self.cost, &self.policies[..]) else { return None };
        let is_alone = policy.timing == Timing::Immediate
            && self.key.alternatives.iter().flatten().all(is_ours)
            && !self.is_shadow
            && self.allow.is_empty()
            && self.deny.is_empty();
        is_alone.then_some((policy, *cost))
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
        if self.has_lists() || self.is_watched() {
            return None;
        }
        let rule = &set.rules[place];
        let (policy, cost) = rule.only_limit()?;
        if rule.write_key(facts, route, key) != Fact::Found(()) {
            return None;
        }
        let decision = policy.gate.check_cost(key, cost);
        let record = || Record::of_rule(Some(rule), key).decided(policy, decision, true, Duration::ZERO);
        decision.is_allowed().then(record)
    }
}
