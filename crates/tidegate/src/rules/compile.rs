//! How rules are put in force: parsed, checked, and given their gates.
//!
//! There are three steps. First, every rule is parsed and every change of a limit is checked, which
//! changes nothing. Then the new gates are defined, all or none: this is the only other step that can
//! fail, if other code defines a gate of that name at the same time. Last, the limits of the other
//! gates change, which cannot fail.

use crate::gate::Gate;
use crate::limiter::{GateDefinition, GateOptions, Limiter};
use crate::rules::error::RulesError;
use crate::rules::index::{ExactIndex, RouteIndex};
use crate::rules::key::KeyExpr;
use crate::rules::key::text::check_name;
use crate::rules::list::List;
use crate::rules::quota::Quota;
use crate::rules::route::Route;
use crate::rules::rule::{Missing, Rule, RuleCost};
use crate::rules::rule_set::{CompiledCost, CompiledRule, Policy, RuleSet, Timing};
use crate::rules::validate::{self, ClientText};
use crate::{Key, Limit};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};

/// Puts `rules` in force on `limiter` instead of `old`. RuleGates that stay keep their state. After an
/// error nothing has changed, and nothing had changed in between.
pub(crate) fn put_in_force(
    limiter: &Limiter,
    rules: Vec<Rule>,
    old: Option<&RuleSet>,
    client_text: &ClientText,
) -> Result<RuleSet, RulesError> {
    let mut names = HashSet::new();
    for rule in &rules {
        for at in 0..rule.limits.len() {
            if !names.insert(gate_name(&rule.name, at)) {
                return Err(RulesError::of(&rule.name, "the name is used twice; give each rule its own"));
            }
        }
    }
    let read = |rule| Draft::new(rule, client_text);
    let drafts: Vec<Draft> = rules.into_iter().map(read).collect::<Result<_, _>>()?;
    let mut gates = RuleGates::put_in_force(limiter, &drafts, old)?;
    let rules: Vec<CompiledRule> = drafts.into_iter().map(|draft| draft.compile(old, &mut gates)).collect();
    for gone in old.iter().flat_map(|old| old.policies()) {
        if gone.is_own && !names.contains(&*gone.name) {
            limiter.remove(&gone.name);
        }
    }
    let (mut index, mut entry_index) = (RouteIndex::default(), ExactIndex::default());
    for (place, rule) in (0..).zip(&rules) {
        match rule.when.first() {
            Some((name, value)) => entry_index.insert(place, name, value.as_bytes()),
            None => index.insert(place, &rule.routes),
        }
    }
    let places = rules.iter().enumerate().map(|(place, rule)| (rule.name.clone(), place)).collect();
    let reads_json = rules.iter().any(|rule| rule.pointers().next().is_some());
    Ok(RuleSet { rules, index, entry_index, places, reads_json })
}

/// A rule that was parsed. It is not in force yet.
struct Draft {
    name: String,
    limits: Vec<Limit>,
    routes: Vec<Route>,
    when: Vec<(String, String)>,
    key: KeyExpr,
    missing: Missing,
    cost: CompiledCost,
    is_shadow: bool,
    shows_keys: bool,
    allow: List,
    deny: List,
    options: GateOptions,
}

/// Leaves room for `/2` after a name of a gate.
const NAME_MAX: usize = 60;
const LIMITS_MAX: usize = 8;

impl Draft {
    fn new(rule: Rule, client_text: &ClientText) -> Result<Self, RulesError> {
        let Rule { name, limits, on, when, key, cost, missing, is_shadow, shows_keys, allow, deny, options } =
            rule;
        let is_part = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_part) {
            let what = "a name is 1 to 60 letters, digits or any of `._-:/`; write for example `checkout`";
            return Err(RulesError::of(&name, what));
        }
        let of = |what: &dyn std::fmt::Display| RulesError::of(&name, what);
        if limits.len() > LIMITS_MAX {
            return Err(of(&format!("at most {LIMITS_MAX} limits, not {}", limits.len())));
        }
        let limits: Vec<Limit> = limits.into_iter().collect::<Result<_, _>>().map_err(|error| of(&error))?;
        let route = |text: &String| {
            Route::parse(text).map_err(|what| of(&format!("`{}` is no route: {what}", Key::new(text))))
        };
        let routes: Vec<Route> = on.iter().map(route).collect::<Result<_, _>>()?;
        let key = match key {
            Some(key) => key.map_err(|error| of(&error))?,
            None => {
                let what = "whose allowance is it? write `.by(\"ip\")`, `.by(\"user else ip\")`, or \
                            `.by(\"'everyone'\")` for one allowance for all";
                return Err(of(&what));
            }
        };
        validate::check_segments(&key, &routes).map_err(|what| of(&what))?;
        let cost = cost_of(cost, &limits).map_err(|what| of(&what))?;
        let keys = [validate::Keys { expr: &key, routes: &routes, client_text }];
        for (name, list) in [("allow_keys", &allow), ("deny_keys", &deny)] {
            validate::check_list(name, list, &keys).map_err(|what| of(&what))?;
        }
        let list = |listed| List::parse(listed).map_err(|error| of(&error));
        let (allow, deny) = (list(&allow)?, list(&deny)?);
        for (entry, _) in &when {
            check_name("entry", entry).map_err(|error| of(&error))?;
        }
        Ok(Self {
            limits,
            routes,
            when,
            key,
            missing,
            cost,
            is_shadow,
            shows_keys,
            allow,
            deny,
            options,
            name,
        })
    }

    /// The rule with its gates, which are in force.
    fn compile(self, old: Option<&RuleSet>, gates: &mut RuleGates) -> CompiledRule {
        let policy = |at| gates.take(&gate_name(&self.name, at));
        let policies: SmallVec<[Policy; 1]> = (0..self.limits.len()).filter_map(policy).collect();
        let before = old.and_then(|old| old.get(&self.name));
        // If the patterns are the same, the count of its matches continues.
        let same = before.filter(|rule| rule.routes == self.routes && rule.when == self.when);
        CompiledRule {
            shows_keys: self.shows_keys,
            shared_key: format!("(no {})", self.key).into_bytes().into(),
            sampler: before.map(|rule| rule.sampler.clone()).unwrap_or_default(),
            matched: same.map(|rule| rule.matched.clone()).unwrap_or_default(),
            name: self.name.into(),
            policies,
            routes: self.routes,
            when: self.when,
            key: self.key,
            missing: self.missing,
            cost: self.cost,
            is_shadow: self.is_shadow,
            allow: self.allow,
            deny: self.deny,
        }
    }
}

/// The gate of a rule's limit: the rule's name, then `name/2`.
fn gate_name(rule: &str, at: usize) -> String {
    if at == 0 { rule.into() } else { format!("{rule}/{}", at + 1) }
}

fn cost_of(cost: RuleCost, limits: &[Limit]) -> Result<CompiledCost, String> {
    match cost {
        RuleCost::Units(units) => {
            limits.iter().try_for_each(|limit| limit.check_cost(units))?;
            Ok(CompiledCost::Units(units))
        }
        RuleCost::Custom(cost) => Ok(CompiledCost::Custom(cost)),
        RuleCost::Part { text, max } => {
            let key: KeyExpr = text.parse().map_err(|error| format!("as a cost, {error}"))?;
            let part = key.cost_part().cloned();
            let what = "a cost comes from one `header:…`, `query:…`, `json:…` or `entry:…`, with a maximum of at least 1; \
                        write for example `.cost_from(\"query:count\", 50)`";
            part.filter(|_| max > 0).map(|part| CompiledCost::Part { part, max }).ok_or_else(|| what.into())
        }
    }
}

/// The gates of all rules in force, by name, and whether the rules have defined each.
struct RuleGates(HashMap<String, (Gate, bool)>);

impl RuleGates {
    /// Checks everything, then defines and changes.
    fn put_in_force(limiter: &Limiter, drafts: &[Draft], old: Option<&RuleSet>) -> Result<Self, RulesError> {
        let known: HashMap<&str, &Policy> =
            old.iter().flat_map(|old| old.policies()).map(|policy| (&*policy.name, policy)).collect();
        let (mut stay, mut come) = (Vec::new(), Vec::new());
        for draft in drafts {
            for (at, limit) in draft.limits.iter().enumerate() {
                let name = gate_name(&draft.name, at);
                match known.get(&*name) {
                    Some(policy) => {
                        let refused = |error| RulesError::of(&draft.name, error);
                        policy.gate.accepts(limit).map_err(refused)?;
                        stay.push((name, *policy, limit));
                    }
                    None => {
                        let definition =
                            GateDefinition { name, limit: limit.clone(), options: &draft.options };
                        come.push((draft, definition));
                    }
                }
            }
        }
        let (owners, definitions): (Vec<&Draft>, Vec<GateDefinition<'_>>) = come.into_iter().unzip();
        let refused = |(at, error): (usize, _)| RulesError::of(&owners[at].name, error);
        let defined = limiter.define_all(&definitions).map_err(refused)?;
        let new = definitions.into_iter().map(|one| one.name).zip(defined);
        let mut gates: HashMap<String, (Gate, bool)> = new.collect();
        for (name, policy, limit) in stay {
            policy.gate.put_in_force(limit.clone());
            gates.insert(name, (policy.gate.clone(), policy.is_own));
        }
        Ok(Self(gates))
    }

    fn take(&mut self, name: &str) -> Option<Policy> {
        let (gate, is_own) = self.0.remove(name)?;
        let limit = gate.limit();
        let (quota, timing) = (Quota::new(name, &limit), Timing::of(&gate, &limit));
        Some(Policy { quota, timing, name: name.into(), gate, limit, is_own })
    }
}
