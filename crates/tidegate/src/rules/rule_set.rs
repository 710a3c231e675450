//! The rules in force: an immutable snapshot, swapped whole.
//!
//! It is compiled from what users write in [`compile`](crate::rules::compile).

use crate::gate::Gate;
use crate::rules::facts::{Fact, Facts};
use crate::rules::index::{ExactIndex, RouteIndex};
use crate::rules::key::secret::stored_key;
use crate::rules::key::{ClientValue, KeyExpr};
use crate::rules::list::List;
use crate::rules::matched::Matched;
use crate::rules::quota::Quota;
use crate::rules::route::Route;
use crate::rules::rule::{Missing, RuleCost};
use crate::sampler::Sampler;
use crate::{Algorithm, Limit};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// The rules in force.
pub(crate) struct RuleSet {
    pub(crate) rules: Vec<CompiledRule>,
    pub(crate) index: RouteIndex,
    /// Rules that apply to requests with an entry, by their first entry.
    pub(crate) entry_index: ExactIndex,
    /// The index of each rule, by name.
    pub(crate) places: HashMap<Box<str>, usize>,
    /// True if a key or a cost of a rule is read from a JSON body.
    pub(crate) reads_json: bool,
}

/// A rule, checked and with its gates.
pub(crate) struct CompiledRule {
    pub(crate) name: Box<str>,
    pub(crate) policies: SmallVec<[Policy; 1]>,
    pub(crate) routes: Vec<Route>,
    pub(crate) when: Vec<(String, String)>,
    pub(crate) key: KeyExpr,
    pub(crate) missing: Missing,
    /// The key that requests without a key share.
    pub(crate) shared_key: Box<[u8]>,
    pub(crate) cost: RuleCost<ClientValue>,
    pub(crate) is_shadow: bool,
    /// True if its keys are written whole everywhere, and clients get them.
    pub(crate) shows_keys: bool,
    pub(crate) allow: List,
    pub(crate) deny: List,
    pub(crate) sampler: Arc<Sampler>,
    pub(crate) matched: Arc<Matched>,
}

/// One limit of a rule, in force.
pub(crate) struct Policy {
    pub(crate) gate: Gate,
    pub(crate) name: Arc<str>,
    pub(crate) limit: Limit,
    pub(crate) quota: Quota,
    pub(crate) timing: Timing,
    /// True if this rule set has defined the gate, so that it is removed with the rule.
    pub(crate) is_own: bool,
}

impl Policy {
    pub(crate) fn new(name: String, gate: Gate, is_own: bool) -> Self {
        let limit = gate.limit();
        let (quota, timing) = (Quota::new(&name, &limit), Timing::of(&gate, &limit));
        Self { quota, timing, name: name.into(), gate, limit, is_own }
    }
}

/// When a limit can be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timing {
    /// At once: it is in memory, and has neither waits nor slots.
    Immediate,
    /// It is in a remote store.
    Remote,
    /// A request may wait for its start.
    Waits,
    /// It is a number of slots, which a request holds.
    HoldsSlots,
    /// It is a number of slots with a queue.
    QueuesForSlots,
}

impl Timing {
    pub(crate) fn of(gate: &Gate, limit: &Limit) -> Self {
        let waits = !limit.wait().is_zero();
        match limit.algorithm() {
            Algorithm::Concurrency { queue } if *queue > 0 || waits => Self::QueuesForSlots,
            Algorithm::Concurrency { .. } => Self::HoldsSlots,
            Algorithm::LeakyQueue { queue } if *queue > 0 => Self::Waits,
            _ if waits => Self::Waits,
            _ if gate.backend().memory().is_none() => Self::Remote,
            _ => Self::Immediate,
        }
    }

    pub(crate) fn holds_slots(self) -> bool {
        matches!(self, Self::HoldsSlots | Self::QueuesForSlots)
    }

    pub(crate) fn waits(self) -> bool {
        matches!(self, Self::Waits | Self::QueuesForSlots)
    }
}

impl RuleSet {
    pub(crate) fn new(rules: Vec<CompiledRule>) -> Self {
        let (mut index, mut entry_index) = (RouteIndex::default(), ExactIndex::default());
        for (place, rule) in (0..).zip(&rules) {
            match rule.when.first() {
                Some((name, value)) => entry_index.insert(place, name, value.as_bytes()),
                None => index.insert(place, &rule.routes),
            }
        }
        let places = rules.iter().enumerate().map(|(place, rule)| (rule.name.clone(), place)).collect();
        let reads_json = rules.iter().any(|rule| rule.pointers().next().is_some());
        Self { rules, index, entry_index, places, reads_json }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&CompiledRule> {
        self.places.get(name).map(|place| &self.rules[*place])
    }

    pub(crate) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.rules.iter().flat_map(|rule| &rule.policies)
    }
}

impl CompiledRule {
    /// Whether it applies to a request, by method, path and entries; the pattern that matches, if the
    /// rule has one.
    pub(crate) fn applies(&self, facts: &dyn Facts) -> Option<Option<&str>> {
        let has =
            |name: &str, value: &str| facts.entry(name).found().is_some_and(|own| *own == *value.as_bytes());
        if !self.when.iter().all(|(name, value)| has(name, value)) {
            return None;
        }
        if self.routes.is_empty() {
            return (!facts.needs_named_method()).then_some(None);
        }
        match facts.path() {
            Some(path) => path.readings().find_map(|path| self.route_of(facts, Some(path))),
            None => self.route_of(facts, None),
        }
        .map(Route::pattern)
    }

    /// The route that matches this reading of the path.
    fn route_of(&self, facts: &dyn Facts, path: Option<&str>) -> Option<&Route> {
        let is_meant =
            |route: &Route| !facts.needs_named_method() || route.method.as_deref() == facts.method();
        let fits = |route: &Route| path.map_or(route.pattern.is_none(), |path| route.is_for_path(path));
        let is_for = |route: &&Route| is_meant(route) && route.is_for_method(facts.method()) && fits(route);
        self.routes.iter().find(is_for)
    }

    pub(crate) fn cost(&self, facts: &dyn Facts) -> u64 {
        match &self.cost {
            RuleCost::Units(units) => *units,
            // An ambiguous cost must not be the cheapest.
            RuleCost::Part { part, max } => match part.number(facts) {
                Fact::Found(units) => units.clamp(1, *max),
                Fact::Missing => 1,
                Fact::Ambiguous => *max,
            },
            RuleCost::Custom(cost) => cost(facts),
        }
    }

    /// Whether the rule applies to this reading of the path.
    pub(crate) fn fits(&self, facts: &dyn Facts, path: &str) -> bool {
        self.routes.is_empty() || self.route_of(facts, Some(path)).is_some()
    }

    /// A key of the rule in the form of lists.
    pub(crate) fn listed_key<'k>(&self, key: &'k [u8]) -> Cow<'k, [u8]> {
        if self.shows_keys { Cow::Owned(stored_key(key)) } else { Cow::Borrowed(key) }
    }

    /// The JSON pointers that it needs.
    pub(crate) fn pointers(&self) -> impl Iterator<Item = &str> {
        let cost = match &self.cost {
            RuleCost::Part { part, .. } => part.pointer(),
            RuleCost::Units(_) | RuleCost::Custom(_) => None,
        };
        self.key.pointers().chain(cost)
    }
}
