//! How rules are put in force: parsed, checked, and given their gates.
//!
//! There are three steps. First, every rule is parsed and every change of a limit is checked, which
//! changes nothing. Then the new gates are defined, all or none: this is the only other step that can
//! fail, if other code defines a gate of that name at the same time. Last, the limits of the other
//! gates change, which cannot fail.

use crate::limiter::{GateDefinition, GateOptions, Limiter};
use crate::rules::error::RulesError;
use crate::rules::key::text::check_name;
use crate::rules::key::{ClientValue, KeyExpr};
use crate::rules::list::List;
use crate::rules::route::Route;
use crate::rules::rule::{Rule, RuleCost};
use crate::rules::rule_set::{CompiledRule, Policy, RuleSet};
use crate::rules::validate::{self, ClientText};
use crate::{Key, Limit};
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A rule that is parsed and not in force yet: without its gates.
pub(crate) struct Draft {
    pub(crate) rule: CompiledRule,
    limits: Vec<Limit>,
    options: GateOptions,
}

/// Leaves room for `/2` after a name of a gate.
const NAME_MAX: usize = 60;
const LIMITS_MAX: usize = 8;

/// Parses rules, and checks each by itself.
pub(crate) fn parse(rules: Vec<Rule>, client_text: &ClientText) -> Result<Vec<Draft>, RulesError> {
    let mut names = HashSet::new();
    for rule in &rules {
        if !(0..rule.limits.len()).all(|at| names.insert(gate_name(&rule.name, at))) {
            return Err(RulesError::of(&rule.name, "the name is used twice; give each rule its own"));
        }
    }
    let parse = |rule: Rule| {
        let name = rule.name.clone();
        parse_rule(rule, client_text).map_err(|what| RulesError::of(&name, what))
    };
    rules.into_iter().map(parse).collect()
}

fn parse_rule(rule: Rule, client_text: &ClientText) -> Result<Draft, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
    if rule.name.is_empty() || rule.name.len() > NAME_MAX || !rule.name.chars().all(is_part) {
        let what = "a name is 1 to 60 letters, digits or any of `._-:/`; write for example `checkout`";
        return Err(what.into());
    }
    if rule.limits.len() > LIMITS_MAX {
        return Err(format!("at most {LIMITS_MAX} limits, not {}", rule.limits.len()));
    }
    let limits: Vec<Limit> =
        rule.limits.into_iter().collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    let route = |text: &String| {
        Route::parse(text).map_err(|what| format!("`{}` is no route: {what}", Key::new(text)))
    };
    let routes: Vec<Route> = rule.on.iter().map(route).collect::<Result<_, _>>()?;
    let no_key = "whose allowance is it? write `.by(\"ip\")`, `.by(\"user else ip\")`, or \
                  `.by(\"'everyone'\")` for one allowance for all";
    let key = rule.key.ok_or(no_key)?.map_err(|error| error.to_string())?;
    validate::check_segments(&key, &routes)?;
    for (entry, _) in &rule.when {
        check_name("entry", entry).map_err(|error| error.to_string())?;
    }
    let compiled = CompiledRule {
        shared_key: format!("(no {key})").into_bytes().into(),
        sampler: Arc::default(),
        matched: Arc::default(),
        name: rule.name.into(),
        policies: SmallVec::new(),
        routes,
        when: rule.when,
        key,
        missing: rule.missing,
        cost: cost_of(rule.cost, &limits)?,
        is_shadow: rule.is_shadow,
        shows_keys: rule.shows_keys,
        allow: List::parse(&rule.allow).map_err(|error| error.to_string())?,
        deny: List::parse(&rule.deny).map_err(|error| error.to_string())?,
    };
    validate::check_lists(&rule.allow, &rule.deny, &[&compiled], client_text)?;
    Ok(Draft { rule: compiled, limits, options: rule.options })
}

/// Puts rules in force on `limiter` instead of `old`. Gates that stay keep their state. After an error
/// nothing has changed, and nothing had changed in between.
pub(crate) fn put_in_force(
    limiter: &Limiter,
    drafts: Vec<Draft>,
    old: Option<&RuleSet>,
) -> Result<RuleSet, RulesError> {
    let mut gone: HashMap<&str, &Policy> =
        old.iter().flat_map(|old| old.policies()).map(|policy| (&*policy.name, policy)).collect();
    let (mut owners, mut new) = (Vec::new(), Vec::new());
    for Draft { rule, limits, options } in &drafts {
        for (at, limit) in limits.iter().enumerate() {
            let name = gate_name(&rule.name, at);
            if let Some(policy) = gone.get(&*name) {
                policy.gate.accepts(limit).map_err(|error| RulesError::of(&rule.name, error))?;
            } else {
                owners.push(&rule.name);
                new.push(GateDefinition { name, limit: limit.clone(), options });
            }
        }
    }
    let refused = |(at, error): (usize, _)| RulesError::of(owners[at], error);
    let mut new = limiter.define_all(&new).map_err(refused)?.into_iter();
    let mut policy = |(name, limit): (String, Limit)| {
        let (gate, is_own) = match gone.remove(&*name) {
            Some(policy) => {
                policy.gate.put_in_force(limit);
                (policy.gate.clone(), policy.is_own)
            }
            None => new.next()?,
        };
        Some(Policy::new(name, gate, is_own))
    };
    let compile = |Draft { mut rule, limits, .. }: Draft| {
        let names = (0..).map(|at| gate_name(&rule.name, at));
        rule.policies = names.zip(limits).filter_map(&mut policy).collect();
        if let Some(before) = old.and_then(|old| old.get(&rule.name)) {
            rule.sampler = before.sampler.clone();
            // If the patterns are the same, the count of its matches continues.
            if before.routes == rule.routes && before.when == rule.when {
                rule.matched = before.matched.clone();
            }
        }
        rule
    };
    let rules = drafts.into_iter().map(compile).collect();
    for (name, _) in gone.iter().filter(|(_, policy)| policy.is_own) {
        limiter.remove(name);
    }
    Ok(RuleSet::new(rules))
}

/// The gate of a rule's limit: the rule's name, then `name/2`.
fn gate_name(rule: &str, at: usize) -> String {
    if at == 0 { rule.into() } else { format!("{rule}/{}", at + 1) }
}

fn cost_of(cost: RuleCost<String>, limits: &[Limit]) -> Result<RuleCost<ClientValue>, String> {
    match cost {
        RuleCost::Units(units) => {
            limits.iter().try_for_each(|limit| limit.check_cost(units))?;
            Ok(RuleCost::Units(units))
        }
        RuleCost::Custom(cost) => Ok(RuleCost::Custom(cost)),
        RuleCost::Part { part, max } => {
            let key: KeyExpr = part.parse().map_err(|error| format!("as a cost, {error}"))?;
            let part = key.cost_part().cloned().filter(|_| max > 0);
            let what = "a cost comes from one `header:…`, `query:…`, `json:…` or `entry:…`, with a maximum of at least 1; \
                        write for example `.cost_from(\"query:count\", 50)`";
            Ok(RuleCost::Part { part: part.ok_or(what)?, max })
        }
    }
}
