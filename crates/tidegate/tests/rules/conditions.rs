//! Rules that apply by their entries.

use crate::line::decide;
use tidegate::rules::{Missing, Rule, Rules};
use tidegate::{Limiter, ManualClock};

fn rules(rules: impl IntoIterator<Item = Rule>) -> Rules {
    let limiter = Limiter::builder().clock(ManualClock::new()).build();
    rules.into_iter().fold(Rules::new(&limiter), |builder, rule| builder.rule(rule)).build().unwrap()
}

#[test]
fn a_rule_applies_where_all_its_entries_have_their_values() {
    let rules = rules([
        Rule::new("pro", "2/h").when("plan", "pro").by("entry:tenant"),
        Rule::new("pro-export", "1/h").when("plan", "pro").when("task", "export").by("entry:tenant"),
        Rule::new("all", "9/h").by("'everyone'"),
    ]);
    assert_eq!(decide(&rules, "entry plan=free"), "allowed by `all` for 'everyone': 9/h, 8 left");
    let export = "entry plan=pro entry task=export entry tenant=acme";
    assert_eq!(decide(&rules, export), "allowed by `pro-export` for entry:tenant=acme: 1/h, 0 left");
    assert_eq!(
        decide(&rules, export),
        "denied by `pro-export` for entry:tenant=acme: 1/h, 0 left, free again in 1 h"
    );
    assert_eq!(
        decide(&rules, "entry plan=pro entry tenant=acme"),
        "allowed by `pro` for entry:tenant=acme: 2/h, 0 left",
        "the refused request has charged nothing"
    );
}

#[test]
fn an_entry_that_stands_twice_has_no_value_and_chooses_no_key() {
    let rules = rules([
        Rule::new("pro", "2/h").when("plan", "pro").by("'pro'"),
        Rule::new("tenants", "1/h").by("entry:tenant else ip").missing(Missing::Refuse),
    ]);
    let twice = "entry plan=pro entry plan=free entry tenant=a entry tenant=b from 192.0.2.1";
    assert_eq!(
        decide(&rules, twice),
        "refused by `tenants`: the request does not clearly say entry:tenant else ip"
    );
}

#[test]
fn a_rule_with_a_route_and_an_entry_wants_both() {
    let rules = rules([Rule::new("x", "1/h").on("POST /goods/{id}").when("plan", "pro").by("path:2")]);
    assert_eq!(decide(&rules, "POST /goods/7"), "no rule applies");
    assert_eq!(decide(&rules, "GET /goods/7 entry plan=pro"), "no rule applies");
    assert_eq!(decide(&rules, "entry plan=pro"), "no rule applies");
    assert_eq!(decide(&rules, "POST /goods/7 entry plan=pro"), "allowed by `x` for path:2=7: 1/h, 0 left");
}
