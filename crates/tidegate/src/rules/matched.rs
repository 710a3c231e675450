//! Which rules have matched a request, so that one that never does is noticed.
//!
//! A rule with a wrong pattern looks like a route that nobody calls. What can never match is an
//! error when the guard is built. What could, but does not (the path has another prefix, no layer
//! applies the rule), is logged after an hour of traffic.
//!
//! Once each rule has matched or was logged, a request only reads here.

use crate::clock::Timestamp;
use crate::rules::rule_set::{Ready, RuleSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long a rule may match nothing, while requests come.
const PATIENCE: Duration = Duration::from_secs(3600);

/// No request has come yet.
const NEVER: u64 = u64::MAX;

/// Whether a rule has matched since it has its patterns.
#[derive(Debug)]
pub(crate) struct Matched {
    has_matched: AtomicBool,
    /// Whether it was logged that it matches nothing.
    is_logged: AtomicBool,
    /// When the first request did not match, in microseconds of the limiter's clock.
    since_us: AtomicU64,
    /// Requests that did not match, until one did or the rule was logged.
    unmatched: AtomicU64,
}

/// One rule of [`GuardStats`].
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

/// A guard's figures, as of now: [`Guard::stats`](crate::http::Guard::stats).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardStats {
    /// Requests that wait for their start.
    pub waiting: usize,
    /// The rules in force, in their order.
    pub rules: Vec<RuleStats>,
}

impl GuardStats {
    /// The names of the rules that have applied to no request yet.
    pub fn unmatched(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().filter(|rule| !rule.has_matched).map(|rule| &*rule.name)
    }
}

impl Default for Matched {
    fn default() -> Self {
        Self {
            has_matched: AtomicBool::new(false),
            is_logged: AtomicBool::new(false),
            since_us: AtomicU64::new(NEVER),
            unmatched: AtomicU64::new(0),
        }
    }
}

impl Clone for Matched {
    fn clone(&self) -> Self {
        Self {
            has_matched: AtomicBool::new(self.has_matched.load(Ordering::Relaxed)),
            is_logged: AtomicBool::new(self.is_logged.load(Ordering::Relaxed)),
            since_us: AtomicU64::new(self.since_us.load(Ordering::Relaxed)),
            unmatched: AtomicU64::new(self.unmatched.load(Ordering::Relaxed)),
        }
    }
}

impl Matched {
    /// A request matches. Written once: a line that is only read stays in every core's cache.
    #[inline]
    pub(crate) fn mark(&self) {
        if !self.has_matched.load(Ordering::Relaxed) {
            self.has_matched.store(true, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    pub(crate) fn has_matched(&self) -> bool {
        self.has_matched.load(Ordering::Relaxed)
    }

    pub(crate) fn stats(&self, name: &str) -> RuleStats {
        RuleStats {
            name: name.into(),
            has_matched: self.has_matched(),
            unmatched: self.unmatched.load(Ordering::Relaxed),
        }
    }

    /// True if it has neither matched nor been logged.
    pub(crate) fn awaits_match(&self) -> bool {
        !self.has_matched() && !self.is_logged.load(Ordering::Relaxed)
    }

    /// Counts a request that does not match; how many there were, if it is time to log it.
    fn count_unmatched(&self, now: Timestamp) -> Option<u64> {
        let unmatched = self.unmatched.fetch_add(1, Ordering::Relaxed) + 1;
        let (now_us, relaxed) = (now.as_micros(), Ordering::Relaxed);
        match self.since_us.compare_exchange(NEVER, now_us, relaxed, relaxed) {
            Err(since_us) if now.since(Timestamp::from_micros(since_us)) >= PATIENCE => {
                (!self.is_logged.swap(true, relaxed)).then_some(unmatched)
            }
            _ => None,
        }
    }
}

impl RuleSet {
    /// Counts a request for the rules that have matched none yet, and logs those whose hour is
    /// over.
    #[cold]
    pub(crate) fn look_for_unmatched(&self, now: Timestamp) {
        let mut is_any_awaited = false;
        for rule in self.rules.iter().filter(|rule| rule.matched.awaits_match()) {
            match rule.matched.count_unmatched(now) {
                Some(requests) => warn(rule, requests),
                None => is_any_awaited = true,
            }
        }
        if !is_any_awaited {
            self.awaits_match.store(false, Ordering::Relaxed);
        }
    }
}

fn warn(rule: &Ready, requests: u64) {
    let on: Vec<String> = rule.routes.iter().map(ToString::to_string).collect();
    tracing::warn!(
        target: "tidegate::guard",
        rule = &*rule.name,
        on = on.join(", "),
        requests,
        "a rule has matched no request in an hour of traffic: check that its patterns fit the paths that the layer sees \
         (in a nested router they are without the prefix), and that a layer applies it (`only`, `except`)"
    );
}
