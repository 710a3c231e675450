//! Rules that are changed live.

use crate::support::*;
use std::pin::pin;
use tidegate::rules::Rule;
use tower::Service;

#[test]
fn a_changed_limit_keeps_what_was_used() {
    let (guard, _) = guard_of(Rule::new("x", "10/h").by("user"));
    for _ in 0..8 {
        assert_eq!(send(&guard, by("ann", get("/"))).status, 200);
    }
    guard.replace([Rule::new("x", "12/h").by("user")]).unwrap();
    for _ in 0..4 {
        let response = send(&guard, by("ann", get("/")));
        assert_eq!(response.status, 200);
        assert_eq!(response.header("ratelimit-policy"), Some("\"x\";q=12;w=3600"));
    }
    assert_eq!(send(&guard, by("ann", get("/"))).status, 429);
}

#[test]
fn a_rule_that_stays_keeps_its_state_while_others_come_and_go() {
    let a = || Rule::new("a", "2/h").by("'x'");
    let (guard, _) = build(|guard| guard.rule(a()).rule(Rule::new("b", "1/h").on("/b").by("'x'")));
    send(&guard, get("/"));
    guard.replace([Rule::new("c", "9/h").by("'x'"), a()]).unwrap();
    assert_eq!(guard.rules().names(), ["c", "a"]);
    assert!(guard.rules().limiter().get("b").is_none());
    assert_eq!(send(&guard, get("/b")).header("ratelimit"), Some("\"c\";r=8;t=400, \"a\";r=0;t=3600"));
    assert_eq!(send(&guard, get("/")).status, 429);
}

#[test]
fn rules_that_cannot_be_put_in_force_change_nothing() {
    let (guard, _) = build(|guard| {
        guard.rule(Rule::new("a", "2/h").by("'x'")).rule(Rule::new("b", "3 concurrent").by("'x'"))
    });
    for wrong in [
        vec![
            Rule::new("new", "1/h").by("'x'"),
            Rule::new("a", "5/h").by("'x'"),
            Rule::new("b", "3/s").by("'x'"),
        ],
        vec![Rule::new("a", "5/h").by("'x'"), Rule::new("b", "nonsense").by("'x'")],
        vec![Rule::new("a", "5/h").by("'x'"), Rule::new("a", "6/h").by("'x'")],
    ] {
        let error = guard.replace(wrong).unwrap_err();
        assert!(error.rule().is_some(), "{error}");
        assert_eq!(guard.rules().names(), ["a", "b"]);
        assert_eq!(guard.rules().limiter().get("a").unwrap().limit().to_string(), "2/h");
        assert!(guard.rules().limiter().get("new").is_none());
    }
    send(&guard, get("/"));
    send(&guard, get("/"));
    assert_eq!(send(&guard, get("/")).status, 429);
}

/// A bug once had the limits of the first rules in force until a later one failed.
#[test]
fn rules_that_cannot_be_put_in_force_let_no_request_in_meanwhile() {
    let slots = |slots: u32| Rule::new("slots", format!("{slots} concurrent queue 5 wait 1h")).by("'x'");
    let (guard, _) = build(|guard| guard.rule(slots(1)).rule(Rule::new("rate", "9/h").by("'x'")));
    let mut shop = shop(&guard);
    let held = now(shop.call(get("/"))).unwrap();
    let mut waits = pin!(shop.call(get("/")));
    assert!(poll_once(waits.as_mut()).is_pending());
    let error = guard.replace([slots(2), Rule::new("rate", "9 concurrent").by("'x'")]).unwrap_err();
    assert_eq!(error.rule(), Some("rate"));
    assert!(poll_once(waits.as_mut()).is_pending(), "a limit that was never in force has let it in");
    drop(held);
    assert!(poll_once(waits).is_ready());
}

#[test]
fn no_request_meets_a_limit_that_is_not_put_in_force() {
    let (guard, _) = build(|guard| {
        guard.rule(Rule::new("a", "2/h").by("'x'")).rule(Rule::new("b", "3 concurrent").by("'x'"))
    });
    let limiter = guard.rules().limiter().clone();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let gate = limiter.get("a").unwrap();
            let mut seen = std::collections::BTreeSet::new();
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                seen.insert(gate.limit().to_string());
                seen.extend(limiter.get("new").map(|gate| gate.name().to_string()));
            }
            seen
        });
        for _ in 0..2_000 {
            let rule = |name: &str, limit: &str| Rule::new(name, limit).by("'x'");
            let rules = [rule("new", "1/h"), rule("a", "5/h"), rule("b", "3/s")];
            assert!(guard.replace(rules).is_err());
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(reader.join().unwrap().into_iter().collect::<Vec<_>>(), ["2/h"]);
    });
}

/// Of two new rules, the second cannot be put in force: other code has a gate of that name.
#[test]
fn of_new_rules_all_gates_are_defined_or_none() {
    let (guard, _) = guard_of(Rule::new("a", "2/h").by("'x'"));
    guard.rules().limiter().gate("theirs", "7/s").unwrap();
    let rule = |name: &str, limit: &str| Rule::new(name, limit).by("'x'");
    let error = guard.replace([rule("a", "5/h"), rule("new", "1/h"), rule("theirs", "1/s")]).unwrap_err();
    assert_eq!(error.rule(), Some("theirs"));
    assert_eq!(guard.rules().limiter().get("a").unwrap().limit().to_string(), "2/h");
    assert!(guard.rules().limiter().get("new").is_none());
    guard.replace([rule("a", "5/h"), rule("new", "1/h"), rule("theirs", "7/s")]).unwrap();
    assert_eq!(guard.rules().limiter().get("a").unwrap().limit().to_string(), "5/h");
}

#[test]
fn a_gate_of_somebody_else_is_shared_and_left_alone() {
    let (limiter, _) = limiter();
    let gate = limiter.gate("shared", "5/h").unwrap();
    let guard =
        tidegate::http::Guard::new(&limiter).rule(Rule::new("shared", "5/h").by("'x'")).build().unwrap();
    send(&guard, get("/"));
    assert_eq!(gate.peek("'x'").remaining(), 4);
    guard.replace([]).unwrap();
    assert!(limiter.get("shared").is_some());
}

#[test]
fn requests_that_wait_go_on_under_the_old_rules() {
    let (guard, clock) = guard_of(Rule::new("x", "1 per 10s wait 20s").by("'x'"));
    let mut shop = shop(&guard);
    assert!(now(shop.call(get("/"))).is_ok());
    let mut waits = pin!(shop.call(get("/")));
    assert!(poll_once(waits.as_mut()).is_pending());
    guard.replace([]).unwrap();
    assert!(poll_once(waits.as_mut()).is_pending());
    assert_eq!(send(&guard, get("/")).status, 200);
    clock.advance(ms(10_000));
    assert!(poll_once(waits).is_ready());
}

#[test]
fn a_service_that_runs_already_sees_the_new_rules() {
    let (guard, _) = guard_of(Rule::new("x", "1/h").by("'x'"));
    let mut shop = shop(&guard);
    assert_eq!(now(shop.call(get("/"))).unwrap().status(), 200);
    assert_eq!(now(shop.call(get("/"))).unwrap().status(), 429);
    guard.replace([Rule::new("y", "1/h").by("'x'")]).unwrap();
    assert_eq!(now(shop.clone().call(get("/"))).unwrap().status(), 200);
    let refused = block_on(whole(now(shop.call(get("/"))).unwrap()));
    assert!(refused.detail().starts_with("denied by `y`"));
}
