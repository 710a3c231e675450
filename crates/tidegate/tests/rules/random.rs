//! Random rules and requests, and what is compared of their rulings.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::time::Duration;
use tidegate::Limiter;
use tidegate::rules::{Missing, Outcome, Rule, Rules, RulesBuilder, Ruling};

/// What a ruling says: of each limit its rule, what became of the request, and the time to wait.
pub(crate) type Said = (bool, Vec<(String, Outcome, Option<Duration>)>);

/// Of rules in shadow only where the request was let through: otherwise they are not decided.
pub(crate) fn said(ruling: &Ruling) -> Said {
    let records = ruling.records().filter(|record| ruling.is_allowed() || !record.is_shadow());
    let said = |record: tidegate::rules::Record<'_>| {
        let after = record.decision().and_then(tidegate::Decision::retry_after);
        (record.policy().to_string(), record.outcome(), after)
    };
    (ruling.is_allowed(), records.map(said).collect())
}

/// A rule without its name.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    limits: Vec<&'static str>,
    on: &'static str,
    by: &'static str,
    missing: Missing,
    list: &'static str,
    plan: &'static str,
    cost: u64,
    is_shadow: bool,
}

impl Draft {
    pub(crate) fn is_by(&self, key: &str) -> bool {
        self.by == key
    }

    fn named(&self, name: &str) -> Rule {
        let mut rule = Rule::new(name, self.limits[0]).by(self.by).missing(self.missing);
        for limit in &self.limits[1..] {
            rule = rule.limit(*limit);
        }
        if !self.on.is_empty() {
            rule = rule.on(self.on);
        }
        if !self.plan.is_empty() {
            rule = rule.when("plan", self.plan);
        }
        let cost = self.cost;
        rule = match cost {
            0 => rule.cost_from("query:n", 2),
            1 => rule,
            // As a fixed cost, more than some of the limits allow is an error.
            _ => rule.cost_with(move |_| cost),
        };
        rule = match (self.list, self.by) {
            ("allow user", "user" | "user else ip") => rule.allow_keys(["user:ann"]),
            ("deny user", "user" | "user else ip") => rule.deny_keys(["user:bob"]),
            ("allow net", _) => rule.allow_networks(["192.0.2.0/25"]),
            ("deny net", _) => rule.deny_networks(["192.0.2.200"]),
            ("shown", _) => rule.show_keys(),
            _ => rule,
        };
        if self.is_shadow { rule.shadow() } else { rule }
    }
}

pub(crate) fn draft() -> impl Strategy<Value = Draft> {
    let limit = || {
        select(vec![
            "1/h",
            "2/h",
            "3 per 10s sliding-log",
            "5/min fixed-window",
            "1/h wait 1s",
            "2 concurrent",
        ])
    };
    let parts = (
        prop::collection::vec(limit(), 1..3),
        select(vec!["", "GET /a", "POST /a", "/a/{id}", "/{*rest}", "HEAD"]),
        select(vec!["ip", "user", "user else ip", "header:x-key", "path:2", "'all'", "number(query:n)"]),
        select(vec![Missing::Share, Missing::Skip, Missing::Refuse]),
        select(vec!["", "allow user", "deny user", "allow net", "deny net", "shown"]),
        select(vec!["", "", "pro", "free"]),
        select(vec![1, 1, 2, 0]),
        any::<bool>(),
    );
    parts
        // Of these routes, some have no second segment, which a key must not ask for.
        .prop_filter("the key is never there", |(_, on, by, ..)| {
            *by != "path:2" || !matches!(*on, "GET /a" | "POST /a")
        })
        .prop_map(|(limits, on, by, missing, list, plan, cost, is_shadow)| Draft {
            limits,
            on,
            by,
            missing,
            list,
            plan,
            cost,
            is_shadow,
        })
}

pub(crate) fn line() -> impl Strategy<Value = String> {
    let target = select(vec!["GET /a", "POST /a", "GET //a", "HEAD /a/7", "GET /a/7?n=2", "GET /b?n=1&n=2"]);
    let words = vec![
        "from 192.0.2.1",
        "from 192.0.2.200",
        "from 198.51.100.9",
        "user ann",
        "user bob",
        "header x-key=k1",
        "header x-key=k2",
        "entry plan=pro",
        "entry plan=free",
    ];
    (target, subsequence(words, 0..5)).prop_map(|(target, words)| format!("{target} {}", words.join(" ")))
}

/// The rules, named by their order.
pub(crate) fn builder(limiter: &Limiter, rules: &[Draft]) -> RulesBuilder {
    let named = rules.iter().enumerate().map(|(at, rule)| rule.named(&format!("r{at}")));
    named.fold(Rules::new(limiter), RulesBuilder::rule)
}

/// How many random cases a test runs.
pub(crate) fn cases() -> u32 {
    2_000 * std::env::var("TIDEGATE_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}
