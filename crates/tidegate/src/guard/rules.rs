//! The rules in force: an immutable snapshot, swapped whole.
//!
//! Making one is two steps. First every rule is read, which changes nothing; then their
//! gates are defined or changed, and put back if one of them cannot be.

use super::error::GuardError;
use super::facets::Facets;
use super::fields::PolicyText;
use super::key::{KeyExpr, Part};
use super::key_bytes::KeyBytes;
use super::key_write::{self, Found, Secrets};
use super::list::List;
use super::route::Route;
use super::rule::{Cost, CostOf, Listed, Missing, Rule};
use crate::ask::Side;
use crate::gate::Gate;
use crate::limiter::{Limiter, Options};
use crate::sampler::Sampler;
use crate::{Algorithm, Limit};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::sync::Arc;

/// The rules in force.
pub(super) struct RuleSet {
    pub(super) rules: Vec<Ready>,
}

/// A rule, checked and with its gates.
pub(super) struct Ready {
    pub(super) name: Box<str>,
    pub(super) policies: SmallVec<[Policy; 1]>,
    pub(super) routes: Vec<Route>,
    pub(super) key: KeyExpr,
    pub(super) missing: Missing,
    /// The key that requests without one share.
    pub(super) shared_key: Box<[u8]>,
    cost: ReadyCost,
    pub(super) is_shadow: bool,
    /// True if its keys are whole everywhere, and clients may see them.
    pub(super) shows_keys: bool,
    pub(super) allow: List,
    pub(super) deny: List,
    pub(super) sampler: Arc<Sampler>,
    /// True if no gate of it waits, holds a place or lives elsewhere.
    pub(super) is_instant: bool,
    /// True if it is instant, in force, without lists, has one limit and tells no keys.
    pub(super) is_simple: bool,
    /// True if it is simple, for all paths, by the client's address, and a unit each.
    pub(super) is_by_client: bool,
}

/// One limit of a rule, in force.
pub(super) struct Policy {
    pub(super) gate: Gate,
    pub(super) name: Arc<str>,
    pub(super) limit: Limit,
    pub(super) text: PolicyText,
    pub(super) is_place: bool,
    pub(super) waits: bool,
    /// Defined by this guard, so taken away with the rule.
    is_own: bool,
}

enum ReadyCost {
    Units(u64),
    Part { part: Part, max: u64 },
    Custom(CostOf),
}

impl Ready {
    /// Whether it applies; the pattern that fits, if it has any.
    #[inline]
    pub(super) fn applies(&self, facets: &Facets<'_>) -> Option<Option<&str>> {
        if self.routes.is_empty() {
            return Some(None);
        }
        let path = facets.uri().path();
        let fits = |route: &&Route| route.is_for(facets.method(), path);
        self.routes.iter().find(fits).map(Route::pattern)
    }

    #[inline]
    pub(super) fn cost(&self, facets: &Facets<'_>) -> u64 {
        match &self.cost {
            ReadyCost::Units(units) => *units,
            ReadyCost::Part { part, max } => match key_write::number(part, facets) {
                None => 1,
                Some(Ok(units)) => units.clamp(1, *max),
                Some(Err(())) => *max,
            },
            ReadyCost::Custom(cost) => cost(facets),
        }
    }

    /// The key of a request. `route` is the pattern that fits.
    #[inline]
    pub(super) fn write_key(&self, facets: &Facets<'_>, route: Option<&str>, key: &mut KeyBytes) -> Found {
        let secrets = if self.shows_keys { Secrets::Whole } else { Secrets::Digested };
        key_write::write(&self.key, secrets, facets, route, key)
    }

    /// The JSON pointers that it asks for.
    pub(super) fn pointers(&self) -> impl Iterator<Item = &str> {
        let cost = match &self.cost {
            ReadyCost::Part { part: Part::Json(pointer), .. } => Some(&**pointer),
            _ => None,
        };
        self.key.pointers().chain(cost)
    }
}

impl RuleSet {
    /// True if there is a rule of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.rules.iter().any(|rule| *rule.name == *name)
    }

    /// The text of the policy of this name.
    pub(super) fn policy(&self, name: &str) -> Option<&PolicyText> {
        self.policies().find(|policy| *policy.name == *name).map(|policy| &policy.text)
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.rules.iter().flat_map(|rule| &rule.policies)
    }

    /// Puts `rules` in force on `limiter` instead of `old`. Gates that stay keep their
    /// state; without success everything is as it was.
    pub(super) fn replace(
        limiter: &Limiter,
        rules: Vec<Rule>,
        old: Option<&Self>,
    ) -> Result<Self, GuardError> {
        let mut names = HashSet::new();
        for rule in &rules {
            for at in 0..rule.limits.len() {
                if !names.insert(gate_name(&rule.name, at)) {
                    return Err(GuardError::of(&rule.name, "the name stands twice; give each rule its own"));
                }
            }
        }
        let drafts: Vec<Draft> = rules.into_iter().map(Draft::new).collect::<Result<_, _>>()?;
        let mut undo = Undo { limiter, changed: Vec::new(), defined: Vec::new(), is_done: false };
        let rules = drafts.into_iter().map(|draft| draft.define(old, &mut undo));
        let new = Self { rules: rules.collect::<Result<_, _>>()? };
        undo.is_done = true;
        for gone in old.iter().flat_map(|old| old.policies()) {
            if gone.is_own && new.policy(&gone.name).is_none() {
                limiter.remove(&gone.name);
            }
        }
        Ok(new)
    }
}

/// A rule that was read. Nothing is in force yet.
struct Draft {
    name: String,
    limits: Vec<Limit>,
    routes: Vec<Route>,
    key: KeyExpr,
    missing: Missing,
    cost: ReadyCost,
    is_shadow: bool,
    shows_keys: bool,
    allow: List,
    deny: List,
    options: Options,
}

/// Leaves room for `/2` after a name of a gate.
const NAME_MAX: usize = 60;
const LIMITS_MAX: usize = 8;

impl Draft {
    fn new(rule: Rule) -> Result<Self, GuardError> {
        let Rule { name, limits, on, key, cost, missing, is_shadow, shows_keys, allow, deny, options } = rule;
        let is_part = |c: char| c.is_ascii_alphanumeric() || "._-:/".contains(c);
        if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_part) {
            let what = "a name is 1 to 60 letters, digits or any of `._-:/`; write for example `checkout`";
            return Err(GuardError::of(&name, what));
        }
        let of = |what: &dyn std::fmt::Display| GuardError::of(&name, what);
        if limits.len() > LIMITS_MAX {
            return Err(of(&format!("at most {LIMITS_MAX} limits, not {}", limits.len())));
        }
        let limits: Vec<Limit> = limits.into_iter().collect::<Result<_, _>>().map_err(|error| of(&error))?;
        let route = |text: &String| {
            Route::parse(text).map_err(|what| {
                of(&format!("`{text}` is no route: {what}; write for example `POST /goods/{{id}}/order`, or `POST` alone"))
            })
        };
        let routes = on.iter().map(route).collect::<Result<_, _>>()?;
        let key = match key {
            Some(key) => key.map_err(|error| of(&error))?,
            None => {
                let what = "whose allowance is it? write `.by(\"ip\")`, `.by(\"user else ip\")`, or \
                            `.by(\"'everyone'\")` for one allowance for all";
                return Err(of(&what));
            }
        };
        let cost = cost_of(cost, &limits).map_err(|what| of(&what))?;
        let (allow, deny) = (list(&allow).map_err(|what| of(&what))?, list(&deny).map_err(|what| of(&what))?);
        Ok(Self { limits, routes, key, missing, cost, is_shadow, shows_keys, allow, deny, options, name })
    }

    fn define(self, old: Option<&RuleSet>, undo: &mut Undo<'_>) -> Result<Ready, GuardError> {
        let mut policies: SmallVec<[Policy; 1]> = SmallVec::new();
        for (at, limit) in self.limits.iter().enumerate() {
            let name = gate_name(&self.name, at);
            let known = old.and_then(|old| old.policies().find(|policy| *policy.name == *name));
            let gate = match known {
                Some(known) => undo.change(&known.gate, limit),
                None => undo.define(&name, limit, &self.options),
            };
            let (gate, is_new) = gate.map_err(|error| GuardError::of(&self.name, error))?;
            policies.push(policy(gate, &name, is_new || known.is_some_and(|known| known.is_own)));
        }
        let before = old.and_then(|old| old.rules.iter().find(|rule| *rule.name == *self.name));
        let is_memory = |policy: &Policy| matches!(policy.gate.side, Side::Memory(_));
        let is_instant = policies.iter().all(|policy| is_memory(policy) && !policy.is_place && !policy.waits);
        let has_lists = !self.allow.is_empty() || !self.deny.is_empty();
        let is_simple =
            is_instant && policies.len() == 1 && !self.is_shadow && !self.shows_keys && !has_lists;
        let is_by_client = is_simple
            && self.routes.is_empty()
            && matches!(self.key.alternatives.first().map(Vec::as_slice), Some([Part::Ip]))
            && matches!(self.cost, ReadyCost::Units(1));
        Ok(Ready {
            is_instant,
            is_simple,
            is_by_client,
            shows_keys: self.shows_keys,
            shared_key: format!("(no {})", self.key).into_bytes().into(),
            sampler: before.map(|rule| rule.sampler.clone()).unwrap_or_default(),
            name: self.name.into(),
            policies,
            routes: self.routes,
            key: self.key,
            missing: self.missing,
            cost: self.cost,
            is_shadow: self.is_shadow,
            allow: self.allow,
            deny: self.deny,
        })
    }
}

/// The gate of a rule's limit: the rule's name, then `name/2`.
fn gate_name(rule: &str, at: usize) -> String {
    if at == 0 { rule.into() } else { format!("{rule}/{}", at + 1) }
}

fn policy(gate: Gate, name: &str, is_own: bool) -> Policy {
    let limit = gate.limit();
    let (is_place, queues) = match limit.algorithm() {
        Algorithm::Concurrency { queue } => (true, *queue > 0),
        Algorithm::LeakyQueue { queue } => (false, *queue > 0),
        _ => (false, false),
    };
    let waits = queues || !limit.wait().is_zero();
    Policy { text: PolicyText::new(name, &limit), name: name.into(), gate, limit, is_place, waits, is_own }
}

fn cost_of(cost: Cost, limits: &[Limit]) -> Result<ReadyCost, String> {
    match cost {
        Cost::Units(units) => {
            limits.iter().try_for_each(|limit| limit.check_cost(units))?;
            Ok(ReadyCost::Units(units))
        }
        Cost::Custom(cost) => Ok(ReadyCost::Custom(cost)),
        Cost::Part { text, max } => {
            let key: KeyExpr = text.parse().map_err(|error| format!("as a cost, {error}"))?;
            let part = match key.alternatives.as_slice() {
                [parts] => match parts.as_slice() {
                    [part @ (Part::Header(_) | Part::Query(_) | Part::Json(_))] => Some(part.clone()),
                    _ => None,
                },
                _ => None,
            };
            let what = "a cost comes from one `header:…`, `query:…` or `json:…`, with a maximum of at least 1; \
                        write for example `.cost_from(\"query:count\", 50)`";
            part.filter(|_| max > 0).map(|part| ReadyCost::Part { part, max }).ok_or_else(|| what.into())
        }
    }
}

pub(super) fn list(listed: &Listed) -> Result<List, String> {
    let mut list = List::default();
    list.add_networks(&listed.networks).map_err(|error| error.to_string())?;
    list.add_keys(&listed.keys);
    Ok(list)
}

/// What was changed so far; put back unless it is done.
struct Undo<'a> {
    limiter: &'a Limiter,
    changed: Vec<(Gate, Limit)>,
    defined: Vec<String>,
    is_done: bool,
}

impl Undo<'_> {
    fn change(&mut self, gate: &Gate, limit: &Limit) -> Result<(Gate, bool), crate::GateError> {
        let before = gate.limit();
        if before != *limit {
            gate.change(limit.clone())?;
            self.changed.push((gate.clone(), before));
        }
        Ok((gate.clone(), false))
    }

    fn define(
        &mut self,
        name: &str,
        limit: &Limit,
        options: &Options,
    ) -> Result<(Gate, bool), crate::GateError> {
        let is_new = self.limiter.get(name).is_none();
        let gate = self.limiter.gate_with(name, limit.clone(), options.clone())?;
        if is_new {
            self.defined.push(name.into());
        }
        Ok((gate, is_new))
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        for (gate, before) in self.changed.drain(..) {
            // It was in force until now, so it can be again.
            let _ = gate.change(before);
        }
        for name in self.defined.drain(..) {
            self.limiter.remove(&name);
        }
    }
}
