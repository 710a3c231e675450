//! What a front end holds and gives back.

use crate::line::LineFacts;
use std::sync::Arc;
use tidegate::rules::{Charges, Rule, Rules};
use tidegate::{Limiter, ManualClock, Permit};

fn tokens() -> (Rules, Limiter) {
    let limiter = Limiter::builder().clock(ManualClock::new()).build();
    let rule = Rule::new("tokens", "1000/h").by("user").cost_from("query:max", 500);
    (Rules::new(&limiter).rule(rule).build().expect("the rule is right"), limiter)
}

fn permits(rules: &Rules, charges: Charges) -> Vec<Permit> {
    let facts = LineFacts::parse("POST /chat?max=400 user ann");
    let ruling = rules.decide(&facts, charges).blocking();
    assert!(ruling.is_allowed());
    ruling.into_permits()
}

#[test]
fn a_front_end_settles_a_rate_after_its_response() {
    let (rules, limiter) = tokens();
    let left = || limiter.get("tokens").unwrap().peek("user:ann").remaining();
    let [permit] = permits(&rules, Charges::Adjustable).try_into().unwrap();
    assert_eq!(left(), 600);
    permit.settle(150);
    assert_eq!(left(), 850);
    let [permit] = permits(&rules, Charges::Adjustable).try_into().unwrap();
    permit.cancel();
    assert_eq!(left(), 850);
}

#[test]
fn a_final_charge_of_a_rate_leaves_nothing_to_hold() {
    let (rules, limiter) = tokens();
    assert!(permits(&rules, Charges::Final).is_empty());
    assert_eq!(limiter.get("tokens").unwrap().peek("user:ann").remaining(), 600);
}

#[test]
fn slots_are_held_until_the_permits_are_dropped() {
    let limiter = Limiter::builder().clock(ManualClock::new()).build();
    let rules = Rules::new(&limiter).rule(Rule::new("slots", "1 concurrent").by("'all'")).build().unwrap();
    let decide = || rules.decide(&LineFacts::parse(""), Charges::Final).blocking();
    let held = decide().into_permits();
    assert!(!decide().is_allowed());
    drop(held);
    assert!(decide().is_allowed());
}

/// A request once was late by 20 ms, because it was the last that used ten thousand old rules, and
/// freed them.
#[test]
fn rules_that_were_replaced_are_freed_by_whoever_replaces_rules() {
    let used = Arc::new(());
    let counted = used.clone();
    let old = Rule::new("a", "9/h").by("'x'").cost_with(move |_| Arc::strong_count(&counted) as u64);
    let limiter = Limiter::builder().clock(ManualClock::new()).build();
    let rules = Rules::new(&limiter).rule(old).build().unwrap();
    let facts = LineFacts::parse("GET /");
    let request = rules.decide(&facts, Charges::Final).blocking();
    let new = || [Rule::new("a", "9/h").by("'x'")];
    rules.replace(new()).unwrap();
    drop(request);
    assert_eq!(Arc::strong_count(&used), 2, "the request has not freed them");
    rules.replace(new()).unwrap();
    assert_eq!(Arc::strong_count(&used), 1);
    // Nobody uses those of before: they are not kept.
    let counted = used.clone();
    rules
        .replace([Rule::new("a", "9/h").by("'x'").cost_with(move |_| Arc::strong_count(&counted) as u64)])
        .unwrap();
    rules.replace(new()).unwrap();
    assert_eq!(Arc::strong_count(&used), 1);
}
