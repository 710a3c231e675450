//! Rules that would never match a request.

use crate::support::*;
use std::time::Duration;
use tidegate::http::{Guard, GuardBuilder};
use tidegate::rules::{Missing, Rule};
use tracing::Level;

use crate::logged::logged;

const HOUR: Duration = Duration::from_secs(3600);

/// The error of one wrong rule.
fn error_of(rule: Rule) -> String {
    let (limiter, _) = limiter();
    let built = Guard::new(&limiter).rule(rule).build();
    assert!(limiter.gates().is_empty(), "a guard that was not built defines nothing");
    built.expect_err("it was built without a word").to_string()
}

fn rule() -> Rule {
    Rule::new("b", "1/day").by("'everyone'")
}

#[test]
fn a_typo_in_a_method_does_not_let_everything_through() {
    assert_eq!(
        error_of(rule().on("PSOT /b")),
        "rule `b`: `PSOT /b` is no route: `PSOT` is not a registered method: write `POST`; \
         for a method of your own write `extension:PSOT`"
    );
    assert!(error_of(rule().on("post /b")).contains("write `POST`"));
    assert!(error_of(rule().on("ANY /b")).contains("leave it out to mean any"));
    let (guard, _) = guard_of(rule().on("extension:FETCH /b"));
    let fetch = || http::Request::builder().method("FETCH").uri("/b").body(()).unwrap();
    assert_eq!(send(&guard, fetch()).status, 200);
    assert_eq!(send(&guard, fetch()).status, 429);
    assert_eq!(send(&guard, get("/b")).header("ratelimit"), None);
}

#[test]
fn a_pattern_of_another_router_does_not_let_everything_through() {
    assert_eq!(
        error_of(rule().on("POST /goods/:id")),
        "rule `b`: `POST /goods/:id` is no route: `:id` would match only these letters: write `{id}` for any \
         (a literal one begins with `%3A`)"
    );
    for (wrong, write) in [
        ("/files/*rest", "write `{*rest}`"),
        ("/goods/<id>", "write `{id}`"),
        ("/goods/{id:[0-9]+}", "write `{id}`"),
        ("/goods//{id}", "write `/goods/{id}`"),
        ("/goods/../{id}", "write the path without it"),
        ("OPTIONS *", "leave the path out"),
    ] {
        assert!(error_of(rule().on(wrong)).contains(write), "{wrong}");
    }
    // Percent-encoded, it is a literal.
    let (guard, _) = guard_of(rule().on("/goods/%3Aid"));
    assert_eq!(send(&guard, get("/goods/:id")).status, 200);
    assert_eq!(send(&guard, get("/goods/%3aid")).status, 429);
}

#[test]
fn a_segment_that_its_paths_do_not_have_is_no_key() {
    let order = |by: &'static str| Rule::new("order", "1/s").on("POST /goods/{id}").by(by);
    assert!(
        error_of(order("path:3")).contains("`path:3` is never there"),
        "everybody would share one allowance"
    );
    assert!(error_of(order("path:1")).ends_with("; write `path:2`"), "everybody would share one allowance");
    assert!(error_of(order("number(path:1)")).contains("never a number"));
    let (guard, _) = guard_of(order("path:1 + path:2"));
    assert_eq!(send(&guard, post("/goods/7")).status, 200);
}

#[test]
fn a_listed_key_that_no_request_can_have_is_an_error() {
    let by_user = || Rule::new("x", "1/s").by("user else ip");
    let says = "no key is written as number 2 of `deny_keys`: write `user:…` or `ip:…`";
    assert!(error_of(by_user().deny_keys(["user:eve", "mallory"])).contains(says));
    assert!(error_of(by_user().allow_keys(["ip:10.0.0.0/8"])).contains("there is `allow_networks`"));
    // The error must not contain an API key.
    let error = error_of(Rule::new("x", "1/s").by("header:x-api-key").deny_keys(["k-secret"]));
    assert!(error.contains("write `header:x-api-key=…`") && !error.contains("k-secret"), "{error}");

    let (limiter, _) = limiter();
    let of_guard = |key: &'static str| Guard::new(&limiter).rule(by_user()).deny_keys([key]).build();
    assert!(of_guard("eve").unwrap_err().to_string().contains(says.split("number").next().unwrap()));
    let guard = of_guard("user:eve").unwrap();
    assert_eq!(send(&guard, by("eve", get("/"))).status, 403);
    let lines = logged("tidegate::rules", Level::WARN, || {
        guard.replace([Rule::new("x", "1/s").by("header:x-k")]).unwrap();
    });
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("keys of `deny_keys` have no effect"), "{}", lines[0]);
    assert!(lines[0].contains("idle=1"), "{}", lines[0]);
}

#[test]
fn a_layer_without_rules_is_an_error() {
    let (guard, _) = guard_of(rule());
    let error = guard.only(Vec::<String>::new()).unwrap_err().to_string();
    assert!(error.starts_with("`only` without a name limits nothing"), "{error}");
}

/// Warnings while `run` runs.
fn warned(run: impl FnOnce()) -> Vec<String> {
    logged("tidegate::rules", Level::WARN, run)
}

#[test]
fn a_rule_that_matches_nothing_for_an_hour_of_traffic_is_logged_once() {
    let rules = || {
        [Rule::new("order", "9/s").on("POST /shop/goods/{id}").by("'x'"), Rule::new("all", "99/s").by("'x'")]
    };
    let (guard, clock) = build(|guard| rules().into_iter().fold(guard, GuardBuilder::rule));
    // An hour without requests does not count.
    clock.advance(HOUR * 5);
    let quiet = warned(|| {
        for _ in 0..3 {
            assert_eq!(send(&guard, post("/goods/7")).status, 200);
        }
        clock.advance(HOUR - ms(1));
        send(&guard, post("/goods/7"));
    });
    assert!(quiet.is_empty(), "{quiet:#?}");
    assert_eq!(guard.rules().stats().unmatched().collect::<Vec<_>>(), ["order"]);

    clock.advance(ms(1));
    let lines = warned(|| {
        for _ in 0..3 {
            send(&guard, post("/goods/7"));
            clock.advance(HOUR);
        }
    });
    assert_eq!(lines.len(), 1, "{lines:#?}");
    for part in [
        "WARN message=a rule has matched no request in an hour of traffic: check that",
        "on=\"POST /shop/goods/{id}\"",
        "rule=\"order\"",
        "requests=5",
    ] {
        assert!(lines[0].contains(part), "{part} in {}", lines[0]);
    }
    // It is in the stats until it matches one.
    let order = |guard: &Guard| guard.rules().stats().rules[0].clone();
    assert_eq!((order(&guard).has_matched, order(&guard).unmatched), (false, 5));
    assert_eq!(send(&guard, post("/shop/goods/7")).status, 200);
    assert!(order(&guard).has_matched);
    assert_eq!(guard.rules().stats().unmatched().count(), 0);
}

#[test]
fn a_rule_that_has_matched_a_request_is_not_logged() {
    let on = |name: &str, path: &str| Rule::new(name, "9/h").on(path).by("'x'");
    let (guard, clock) = build(|guard| {
        guard
            .rule(on("a", "/a"))
            .rule(on("shadow", "/b").shadow())
            .rule(on("skips", "/b").by("user").missing(Missing::Skip))
            .rule(Rule::new("ip", "9/h").by("ip"))
    });
    let lines = warned(|| {
        for path in ["/a", "/b", "/c"] {
            send(&guard, from("192.0.2.1", get(path)));
            clock.advance(HOUR);
        }
    });
    assert!(lines.is_empty(), "{lines:#?}");
    assert_eq!(guard.rules().stats().unmatched().count(), 0);
}

#[test]
fn a_rule_that_no_layer_applies_is_logged() {
    let rule = |name: &str| Rule::new(name, "9/h").by("'x'");
    let (guard, clock) = build(|guard| guard.rule(rule("order")).rule(rule("forgotten")));
    let order = guard.only(["order"]).unwrap();
    let lines = warned(|| {
        send(&order, get("/"));
        clock.advance(HOUR);
        send(&order, get("/"));
    });
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("rule=\"forgotten\" on=\"\" requests=2"), "{}", lines[0]);
}

#[test]
fn rules_that_are_replaced_often_are_logged_all_the_same() {
    let rule = |limit: &str, path: &str| Rule::new("a", limit).on(path).by("'x'");
    let (guard, clock) = build(|guard| guard.rule(rule("1/h", "/a")));
    let lines = warned(|| {
        for at in 2..9 {
            send(&guard, get("/"));
            clock.advance(HOUR / 4);
            guard.replace([rule(&format!("{at}/h"), "/a")]).unwrap();
        }
    });
    assert_eq!(lines.len(), 1, "{lines:#?}");
    // With another pattern, it is another rule.
    guard.replace([rule("1/h", "/")]).unwrap();
    assert_eq!(guard.rules().stats().rules[0].unmatched, 0);
    send(&guard, get("/"));
    assert!(guard.rules().stats().rules[0].has_matched);
}

#[test]
fn a_guard_that_is_switched_off_logs_no_rule_as_unmatched() {
    let (guard, clock) = guard_of(rule().on("/a"));
    guard.rules().switch_off();
    let lines = warned(|| {
        for _ in 0..3 {
            send(&guard, get("/a"));
            clock.advance(HOUR);
        }
    });
    assert!(lines.is_empty(), "{lines:#?}");
}

#[test]
fn a_rule_that_was_logged_has_matched_once_a_layer_applies_it() {
    let rule = || Rule::new("ip", "9/day").by("ip");
    let (guard, clock) = guard_of(rule().on("/"));
    assert_eq!(send(&guard, from("192.0.2.1", get("/"))).status, 200);
    guard.replace([rule()]).unwrap();
    let nothing = guard.except(["ip"]).unwrap();
    let lines = warned(|| {
        for _ in 0..2 {
            send(&nothing, from("192.0.2.1", get("/")));
            clock.advance(HOUR);
        }
    });
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert_eq!(guard.rules().stats().unmatched().count(), 1);
    let passed = send(&guard, from("192.0.2.1", get("/")));
    assert!(passed.header("ratelimit").is_some(), "the rule applies");
    assert_eq!(guard.rules().stats().unmatched().count(), 0);
}

#[test]
fn the_error_of_a_star_for_every_request_states_to_leave_on_out() {
    for any in ["*", "ANY", "ALL"] {
        let says = "leave `.on` out, as a rule without it applies to all";
        assert!(error_of(rule().on(any)).ends_with(says), "{any}: {}", error_of(rule().on(any)));
    }
    assert!(error_of(rule().on("GET *")).ends_with("leave the path out to mean any: write `GET`"));
}
