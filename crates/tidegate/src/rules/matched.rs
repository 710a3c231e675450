//! Which rules have matched a request, so that one that never does is noticed.
//!
//! A rule with a wrong pattern looks like a route that nobody calls. What can never match is an
//! error when the rules are built. What could, but does not (the path has another prefix, no
//! layer applies the rule), is logged after an hour of traffic.
//!
//! Once each rule has matched or was logged, a request only reads here.

use crate::clock::Timestamp;
use crate::rules::apply::Matches;
use crate::rules::rule_set::{CompiledRule, RuleSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// How long a rule may match nothing, while requests come.
const PATIENCE: Duration = Duration::from_secs(3600);

/// No request has come yet.
const NEVER: u64 = u64::MAX;

/// Requests since the rules were made, counted while a rule awaits its first match.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: AtomicU64,
    /// When the rules are checked next for those whose hour is over, in microseconds of the limiter's
    /// clock; at the next request if that is 0. [`NEVER`] if all have matched or were logged.
    next_look_us: AtomicU64,
}

/// Whether a rule has matched since it has its patterns.
#[derive(Debug, Default)]
pub(crate) struct Matched {
    has_matched: AtomicBool,
    /// When the first request came after the rule was put in force, and how many had come before.
    since: OnceLock<(Timestamp, u64)>,
    /// Requests that it did not match, once it has matched or was logged.
    unmatched: OnceLock<u64>,
}

/// One rule of [`RulesStats`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RuleStats {
    /// The rule's name.
    pub name: String,
    /// True if it has applied to a request since it has its patterns.
    pub has_matched: bool,
    /// Requests that it did not apply to before the first that it did. Counted for an hour, until
    /// it is logged.
    pub unmatched: u64,
}

/// Figures of rules, as of now: [`Rules::stats`](crate::rules::Rules::stats).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RulesStats {
    /// Requests that wait for their start.
    pub waiting: usize,
    /// The rules in force, in their order.
    pub rules: Vec<RuleStats>,
}

impl RulesStats {
    /// The names of the rules that have applied to no request yet.
    pub fn unmatched(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter(|rule| !rule.has_matched).map(|rule| &*rule.name)
    }
}

impl Matched {
    /// Requests that it has not matched, of `requests` in all.
    fn unmatched_of(&self, requests: u64) -> u64 {
        let so_far = || self.since.get().map_or(0, |(_, before)| requests.saturating_sub(*before));
        self.unmatched.get().copied().unwrap_or_else(so_far)
    }

    pub(crate) fn stats(&self, name: &str, traffic: &Traffic) -> RuleStats {
        RuleStats {
            name: name.into(),
            has_matched: self.has_matched.load(Relaxed),
            unmatched: self.unmatched_of(traffic.requests.load(Relaxed)),
        }
    }
}

impl Traffic {
    /// Other rules are in force: checks them at the next request.
    pub(crate) fn look_again(&self) {
        self.next_look_us.store(0, Relaxed);
    }

    /// Counts a request that matches these rules, as long as others await their first match.
    pub(crate) fn count(&self, set: &RuleSet, matches: &Matches<'_>, now: impl FnOnce() -> Timestamp) {
        for (place, _) in matches {
            let matched = &set.rules[*place].matched;
            // Written once: a line that is only read stays in every core's cache.
            if !matched.has_matched.load(Relaxed) {
                // Unless it was logged before.
                let _ = matched.unmatched.set(matched.unmatched_of(self.requests.load(Relaxed)));
                matched.has_matched.store(true, Relaxed);
            }
        }
        let next_look_us = self.next_look_us.load(Relaxed);
        if next_look_us == NEVER {
            return;
        }
        self.requests.fetch_add(1, Relaxed);
        let now = now();
        if now.as_micros() >= next_look_us {
            self.look(set, now);
        }
    }

    /// Logs the rules whose hour is over, and sets the time of the next check.
    #[cold]
    fn look(&self, set: &RuleSet, now: Timestamp) {
        let requests = self.requests.load(Relaxed);
        let mut next_look_us = NEVER;
        for rule in set.rules.iter().filter(|rule| rule.matched.unmatched.get().is_none()) {
            let matched = &rule.matched;
            let (since, _) = *matched.since.get_or_init(|| (now, requests - 1));
            if now.since(since) < PATIENCE {
                next_look_us = next_look_us.min((since + PATIENCE).as_micros());
            } else {
                let unmatched = matched.unmatched_of(requests);
                if matched.unmatched.set(unmatched).is_ok() {
                    warn(rule, unmatched);
                }
            }
        }
        self.next_look_us.store(next_look_us, Relaxed);
    }
}

fn warn(rule: &CompiledRule, requests: u64) {
    let on: Vec<String> = rule.routes.iter().map(ToString::to_string).collect();
    tracing::warn!(
        target: "tidegate::rules",
        rule = &*rule.name,
        on = on.join(", "),
        requests,
        "a rule has matched no request in an hour of traffic: check that its patterns fit the paths that the layer sees \
         (in a nested router they are without the prefix), and that a layer applies it (`only`, `except`)"
    );
}
