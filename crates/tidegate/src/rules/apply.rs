//! Which rules apply to a request, under which keys, and what is settled without their limits:
//! lists, missing facts, bodies that do not come. Limits are decided in
//! [`decide`](crate::rules::decide).

use crate::clock::Timestamp;
use crate::rules::engine::{Engine, Rules};
use crate::rules::facts::{Fact, Facts};
use crate::rules::index::Candidates;
use crate::rules::key::value::write_client;
use crate::rules::key::{KeyBytes, Part};
use crate::rules::list::List;
use crate::rules::record::Outcome;
use crate::rules::route::path::RequestPath;
use crate::rules::rule::Missing;
use crate::rules::rule_set::{CompiledRule, RuleSet};
use crate::rules::ruling::{AppliedRule, AppliedRules, RuleResult, Ruling};
use smallvec::SmallVec;

/// The rules that apply to a request, by their index, each with the pattern that matches.
pub(crate) type Matches<'a> = SmallVec<[(usize, Option<&'a str>); 4]>;

impl Rules {
    /// The rules that apply to a request.
    pub(crate) fn matches<'s>(&self, set: &'s RuleSet, facts: &dyn Facts) -> Matches<'s> {
        let mut candidates = Candidates::new();
        let readings = facts.path().into_iter().flat_map(RequestPath::readings);
        set.index.candidates(facts.method().unwrap_or_default(), readings, &mut candidates);
        set.entry_index.candidates(&|name| facts.entry(name).found(), &mut candidates);
        let mut matches = Matches::new();
        for place in &candidates {
            let (place, rule) = (*place as usize, &set.rules[*place as usize]);
            if let Some(route) = rule.applies(facts)
                && self.choice.has(&rule.name)
            {
                matches.push((place, route));
            }
        }
        matches
    }

    /// All rules that apply, while the rules are switched off.
    pub(crate) fn off(&self, set: &RuleSet, facts: &dyn Facts) -> AppliedRules {
        let off = |(place, _)| AppliedRule::settled(Some(place), KeyBytes::new(), Outcome::Off);
        self.matches(set, facts).into_iter().map(off).collect()
    }

    /// Finds the keys and costs of the rules that apply, and settles those that lists or missing
    /// facts settle.
    ///
    /// False if one of those refuses the request: then nothing is left to decide.
    #[must_use = "a refused request must not be decided"]
    pub(crate) fn apply(
        &self,
        set: &RuleSet,
        facts: &dyn Facts,
        matches: &Matches<'_>,
        applied: &mut AppliedRules,
    ) -> bool {
        let engine = &*self.engine;
        // Networks need no key, so they come first: the body of a denied client is never read.
        if let Some(denied) = self.denied_by_network(set, facts, matches) {
            applied.push(denied);
            return false;
        }
        let is_exempt = engine.allow.exempts_client_of(facts);
        for (place, route) in matches {
            let rule = &set.rules[*place];
            let at = applied.len();
            applied.push(AppliedRule::undecided(*place));
            // The key is written where it stays: bytes that were just written are slow to copy.
            let AppliedRule { key, cost, result, .. } = &mut applied[at];
            let found = rule.write_key(facts, *route, key);
            let outcome = self.outcome_without_limits(rule, facts, found, key, is_exempt);
            if found != Fact::Found(()) {
                key.clear();
                key.extend_from_slice(if outcome.is_none() { &rule.shared_key } else { &[] });
            }
            match outcome {
                Some(outcome) => *result = RuleResult::Settled(outcome),
                None => *cost = rule.cost(facts),
            }
            if outcome.is_some_and(Outcome::is_refusal) && !rule.is_shadow {
                applied.retain(|applied| !matches!(applied.result, RuleResult::Undecided));
                return false;
            }
        }
        true
    }

    /// The outcome by lists and missing facts; none if the limits decide.
    fn outcome_without_limits(
        &self,
        rule: &CompiledRule,
        facts: &dyn Facts,
        found: Fact<()>,
        key: &[u8],
        is_exempt: bool,
    ) -> Option<Outcome> {
        let Engine { allow, deny, .. } = &*self.engine;
        let is_key_on = |own: &List, all: &List| {
            let has_keys = found == Fact::Found(()) && (own.has_keys() || all.has_keys());
            let has = |key: &[u8]| own.has_key(key) || all.has_key(key);
            has_keys && has(&rule.listed_key(key))
        };
        if rule.deny.has_client_of(facts) || is_key_on(&rule.deny, deny) {
            return Some(Outcome::Listed);
        }
        if found == Fact::Ambiguous && (rule.deny.has_keys() || deny.has_keys()) {
            // The key may be one of those.
            return Some(Outcome::Ambiguous);
        }
        let is_exempt = is_exempt
            || rule.allow.exempts_client_of(facts)
            || (is_key_on(&rule.allow, allow) && !facts.is_client_forged());
        if is_exempt { Some(Outcome::Exempt) } else { without_key(found, rule.missing) }
    }

    /// The refusal of a client whose network is on a deny list.
    fn denied_by_network(
        &self,
        set: &RuleSet,
        facts: &dyn Facts,
        matches: &Matches<'_>,
    ) -> Option<AppliedRule> {
        let mut key = KeyBytes::new();
        if self.engine.deny.has_client_of(facts) {
            key.extend_from_slice(Part::Ip.tag().as_bytes());
            facts.client().into_iter().for_each(|client| write_client(&mut key, client));
            return Some(AppliedRule::settled(None, key, Outcome::Listed));
        }
        let (place, route) = *matches.iter().find(|(place, _)| set.rules[*place].denies_network(facts))?;
        let rule = &set.rules[place];
        let reads_body = rule.pointers().next().is_some();
        if reads_body || rule.write_key(facts, route, &mut key) != Fact::Found(()) {
            key.clear();
        }
        Some(AppliedRule::settled(Some(place), key, Outcome::Listed))
    }

    /// The fields of a JSON body that the rules which apply to a request need, by their pointers:
    /// none if the client's network is on a deny list, so that the body of such a client is not read.
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
        let is_denied = || {
            let by_rule = matches.iter().any(|(place, _)| set.rules[*place].denies_network(facts));
            by_rule || self.engine.deny.has_client_of(facts)
        };
        if !pointers.is_empty() && is_denied() {
            pointers.clear();
        }
        pointers
    }

    /// The refusal of a request whose body did not come in time, by the first rule that needs it.
    /// None if no rule in force needs it: then the request goes on, and the fields of the body are
    /// ambiguous. `started` is when waiting for the body began.
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
}

impl CompiledRule {
    fn denies_network(&self, facts: &dyn Facts) -> bool {
        !self.is_shadow && self.deny.has_client_of(facts)
    }
}

/// The outcome by the key alone; none if the limits decide, under the request's own key or the one
/// that is shared.
pub(crate) fn without_key(found: Fact<()>, missing: Missing) -> Option<Outcome> {
    match (found, missing) {
        (Fact::Found(()), _) | (Fact::Missing, Missing::Share) => None,
        (Fact::Missing, Missing::Skip) => Some(Outcome::Skipped),
        (Fact::Missing, Missing::Refuse) => Some(Outcome::Incomplete),
        // Not skipped: a client could otherwise evade the rule by sending a value twice.
        (Fact::Ambiguous, Missing::Share | Missing::Skip) => None,
        (Fact::Ambiguous, Missing::Refuse) => Some(Outcome::Ambiguous),
    }
}
