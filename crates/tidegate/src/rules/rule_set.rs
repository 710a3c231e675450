//! The rules in force: an immutable snapshot, swapped whole.
//!
//! Making one is three steps. Every rule is read and every change of a limit is checked, which
//! changes nothing. Then the gates that are new are defined, all or none: the only step that can
//! still fail, if somebody else defines a gate of that name at the same time. Then the limits
//! of the others change, which cannot fail.

use crate::gate::Gate;
use crate::http::client_ip::ClientIp;
use crate::http::facts::Facets;
use crate::http::response::fields::PolicyText;
use crate::limiter::{Definition, GateOptions, Limiter};
use crate::rules::error::GuardError;
use crate::rules::key::bytes::KeyBytes;
use crate::rules::key::secret::stored_key;
use crate::rules::key::value::Secrets;
use crate::rules::key::write::{self, Found, KeyInput};
use crate::rules::key::{KeyExpr, Part};
use crate::rules::list::List;
use crate::rules::matched::Matched;
use crate::rules::route::Route;
use crate::rules::rule::{Cost, CostOf, Listed, Missing, Rule};
use crate::rules::validate;
use crate::sampler::Sampler;
use crate::{Algorithm, Key, Limit};
use http::Method;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The rules in force.
pub(crate) struct RuleSet {
    pub(crate) rules: Vec<Ready>,
    /// Whether a rule has neither matched a request nor been logged for it.
    pub(crate) awaits_match: AtomicBool,
}

/// A rule, checked and with its gates.
pub(crate) struct Ready {
    pub(crate) name: Box<str>,
    pub(crate) policies: SmallVec<[Policy; 1]>,
    pub(crate) routes: Vec<Route>,
    pub(crate) key: KeyExpr,
    pub(crate) missing: Missing,
    /// The key that requests without one share.
    pub(crate) shared_key: Box<[u8]>,
    cost: ReadyCost,
    pub(crate) is_shadow: bool,
    /// True if its keys are whole everywhere, and clients may see them.
    pub(crate) shows_keys: bool,
    pub(crate) allow: List,
    pub(crate) deny: List,
    pub(crate) sampler: Arc<Sampler>,
    pub(crate) matched: Matched,
    /// True if no gate of it waits, holds a place or lives elsewhere.
    pub(crate) is_instant: bool,
    /// True if it is instant, in force, without lists, has one limit and tells no keys.
    pub(crate) is_simple: bool,
}

/// One limit of a rule, in force.
pub(crate) struct Policy {
    pub(crate) gate: Gate,
    pub(crate) name: Arc<str>,
    pub(crate) limit: Limit,
    pub(crate) text: PolicyText,
    pub(crate) is_place: bool,
    pub(crate) waits: bool,
    /// Defined by this guard, so taken away with the rule.
    is_own: bool,
}

enum ReadyCost {
    Units(u64),
    Part { part: Part, max: u64 },
    Custom(CostOf),
}

impl Ready {
    /// Whether it is about a request; the pattern that fits, if it has any.
    #[inline]
    pub(crate) fn is_about(&self, facets: &Facets<'_>) -> Option<Option<&str>> {
        if self.routes.is_empty() {
            return (!facets.is_free_preflight()).then_some(None);
        }
        facets.paths().readings().find_map(|path| self.route_of(facets, path)).map(Route::pattern)
    }

    /// [`is_about`](Self::is_about) of a request that it is asked about.
    #[inline]
    pub(crate) fn applies(&self, facets: &Facets<'_>) -> Option<Option<&str>> {
        let found = self.is_about(facets);
        if found.is_some() {
            self.matched.mark();
        }
        found
    }

    /// The route that this reading of the path fits.
    #[inline]
    fn route_of(&self, facets: &Facets<'_>, path: &str) -> Option<&Route> {
        let is_meant =
            |route: &Route| !facets.is_free_preflight() || route.method.as_ref() == Some(&Method::OPTIONS);
        self.routes.iter().find(|route| is_meant(route) && route.is_for(facets.method(), path))
    }

    #[inline]
    pub(crate) fn cost(&self, facets: &Facets<'_>) -> u64 {
        match &self.cost {
            ReadyCost::Units(units) => *units,
            ReadyCost::Part { part, max } => match write::number(part, facets) {
                None => 1,
                Some(Ok(units)) => units.clamp(1, *max),
                Some(Err(())) => *max,
            },
            ReadyCost::Custom(cost) => cost(facets),
        }
    }

    /// The key of a request. `route` is the pattern that fits.
    #[inline]
    pub(crate) fn write_key(&self, facets: &Facets<'_>, route: Option<&str>, key: &mut KeyBytes) -> Found {
        let secrets = if self.shows_keys { Secrets::Whole } else { Secrets::Digested };
        let fits = |path: &str| self.routes.is_empty() || self.route_of(facets, path).is_some();
        write::write(&self.key, &KeyInput { facets, route, secrets, fits: &fits }, key)
    }

    /// One of its keys, as lists have it.
    #[inline]
    pub(crate) fn listed_key<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        if self.shows_keys { Cow::Owned(stored_key(key)) } else { Cow::Borrowed(key) }
    }

    /// The JSON pointers that it asks for.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = &str> {
        let cost = match &self.cost {
            ReadyCost::Part { part: Part::Json(pointer), .. } => Some(&**pointer),
            _ => None,
        };
        self.key.pointers().chain(cost)
    }
}

impl RuleSet {
    /// True if there is a rule of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.rules.iter().any(|rule| *rule.name == *name)
    }

    /// The text of the policy of this name.
    pub(crate) fn policy(&self, name: &str) -> Option<&PolicyText> {
        self.policies().find(|policy| *policy.name == *name).map(|policy| &policy.text)
    }

    pub(crate) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.rules.iter().flat_map(|rule| &rule.policies)
    }

    /// True if a rule has neither matched a request nor been logged for it.
    #[inline(always)]
    pub(crate) fn awaits_match(&self) -> bool {
        self.awaits_match.load(Ordering::Relaxed)
    }

    /// Puts `rules` in force on `limiter` instead of `old`. Gates that stay keep their
    /// state; without success nothing has changed, not even for a moment.
    pub(crate) fn replace(
        limiter: &Limiter,
        rules: Vec<Rule>,
        old: Option<&Self>,
        client_ip: &ClientIp,
    ) -> Result<Self, GuardError> {
        let mut names = HashSet::new();
        for rule in &rules {
            for at in 0..rule.limits.len() {
                if !names.insert(gate_name(&rule.name, at)) {
                    return Err(GuardError::of(&rule.name, "the name stands twice; give each rule its own"));
                }
            }
        }
        let read = |rule| Draft::new(rule, client_ip);
        let drafts: Vec<Draft> = rules.into_iter().map(read).collect::<Result<_, _>>()?;
        let gates = Gates::put_in_force(limiter, &drafts, old)?;
        let rules: Vec<Ready> = drafts.into_iter().map(|draft| draft.ready(old, &gates)).collect();
        let awaits_match = AtomicBool::new(rules.iter().any(|rule| rule.matched.awaits_match()));
        let new = Self { rules, awaits_match };
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
    options: GateOptions,
}

/// Leaves room for `/2` after a name of a gate.
const NAME_MAX: usize = 60;
const LIMITS_MAX: usize = 8;

impl Draft {
    fn new(rule: Rule, client_ip: &ClientIp) -> Result<Self, GuardError> {
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
        let keys = [validate::Keys { expr: &key, routes: &routes, client_ip }];
        for (name, list) in [("allow_keys", &allow), ("deny_keys", &deny)] {
            validate::check_list(name, list, &keys).map_err(|what| of(&what))?;
        }
        let (allow, deny) = (list(&allow).map_err(|what| of(&what))?, list(&deny).map_err(|what| of(&what))?);
        Ok(Self { limits, routes, key, missing, cost, is_shadow, shows_keys, allow, deny, options, name })
    }

    /// The rule with its gates, which are in force.
    fn ready(self, old: Option<&RuleSet>, gates: &Gates) -> Ready {
        let policies: SmallVec<[Policy; 1]> =
            (0..self.limits.len()).filter_map(|at| gates.policy(&gate_name(&self.name, at))).collect();
        let before = old.and_then(|old| old.rules.iter().find(|rule| *rule.name == *self.name));
        let is_memory = |policy: &Policy| policy.gate.backend().memory().is_some();
        let is_instant = policies.iter().all(|policy| is_memory(policy) && !policy.is_place && !policy.waits);
        let has_lists = !self.allow.is_empty() || !self.deny.is_empty();
        let is_simple =
            is_instant && policies.len() == 1 && !self.is_shadow && !self.shows_keys && !has_lists;
        // With the same patterns, what it has matched counts.
        let same = before.filter(|rule| rule.routes == self.routes);
        Ready {
            is_instant,
            is_simple,
            shows_keys: self.shows_keys,
            shared_key: format!("(no {})", self.key).into_bytes().into(),
            sampler: before.map(|rule| rule.sampler.clone()).unwrap_or_default(),
            matched: same.map(|rule| rule.matched.clone()).unwrap_or_default(),
            name: self.name.into(),
            policies,
            routes: self.routes,
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

pub(crate) fn list(listed: &Listed) -> Result<List, String> {
    let mut list = List::default();
    list.add_networks(&listed.networks).map_err(|error| error.to_string())?;
    list.add_keys(&listed.keys);
    Ok(list)
}

/// The gates of all rules, in force, by name; whether this guard has defined each.
struct Gates(HashMap<String, (Gate, bool)>);

impl Gates {
    /// Checks everything, then defines and changes.
    fn put_in_force(limiter: &Limiter, drafts: &[Draft], old: Option<&RuleSet>) -> Result<Self, GuardError> {
        let known: HashMap<&str, &Policy> =
            old.iter().flat_map(|old| old.policies()).map(|policy| (&*policy.name, policy)).collect();
        let (mut stay, mut come) = (Vec::new(), Vec::new());
        for draft in drafts {
            for (at, limit) in draft.limits.iter().enumerate() {
                let name = gate_name(&draft.name, at);
                match known.get(&*name) {
                    Some(policy) => {
                        let refused = |error| GuardError::of(&draft.name, error);
                        policy.gate.accepts(limit).map_err(refused)?;
                        stay.push((name, *policy, limit));
                    }
                    None => {
                        let definition = Definition { name, limit: limit.clone(), options: &draft.options };
                        come.push((draft, definition));
                    }
                }
            }
        }
        let (owners, definitions): (Vec<&Draft>, Vec<Definition<'_>>) = come.into_iter().unzip();
        let refused = |(at, error): (usize, _)| GuardError::of(&owners[at].name, error);
        let defined = limiter.define_all(&definitions).map_err(refused)?;
        let new = definitions.into_iter().map(|one| one.name).zip(defined);
        let mut gates: HashMap<String, (Gate, bool)> = new.collect();
        for (name, policy, limit) in stay {
            policy.gate.put_in_force(limit.clone());
            gates.insert(name, (policy.gate.clone(), policy.is_own));
        }
        Ok(Self(gates))
    }

    fn policy(&self, name: &str) -> Option<Policy> {
        self.0.get(name).map(|(gate, is_own)| policy(gate.clone(), name, *is_own))
    }
}
