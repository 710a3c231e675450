//! Which rules apply to which requests.

use crate::support::*;
use tidegate::http::Guard;
use tidegate::rules::{Missing, Rule};

#[test]
fn a_rule_applies_to_its_method_and_pattern() {
    let (guard, _) = guard_of(Rule::new("order", "1/h").on("POST /goods/{id}/order").by("path:2"));
    assert_eq!(send(&guard, post("/goods/7/order")).status, 200);
    assert_eq!(send(&guard, post("/goods/7/order")).status, 429);
    assert_eq!(send(&guard, post("/goods/8/order")).status, 200);
    let elsewhere = send(&guard, get("/goods/7/order"));
    assert_eq!(elsewhere.status, 200);
    assert_eq!(elsewhere.header("ratelimit"), None);
}

#[test]
fn a_rule_on_get_is_met_by_head_too() {
    let (guard, _) = guard_of(Rule::new("goods", "2/h").on("GET /goods/{id}").by("path:2"));
    let head = || http::Request::head("/goods/7").body(()).unwrap();
    assert_eq!(send(&guard, get("/goods/7")).status, 200);
    assert_eq!(send(&guard, head()).status, 200);
    assert_eq!(send(&guard, head()).status, 429);
    assert_eq!(send(&guard, post("/goods/7")).header("ratelimit"), None);

    let (guard, _) = guard_of(Rule::new("goods", "1/h").on("HEAD /goods/{id}").by("path:2"));
    assert_eq!(send(&guard, get("/goods/7")).header("ratelimit"), None);
}

#[test]
fn a_rule_can_be_about_a_method_alone() {
    let (guard, _) = guard_of(Rule::new("writes", "2/h").on("POST").on("PUT").by("'all'"));
    assert_eq!(send(&guard, post("/")).status, 200);
    assert_eq!(send(&guard, post("/goods/7/order?x=1")).status, 200);
    assert_eq!(send(&guard, http::Request::put("/any").body(()).unwrap()).status, 429);
    assert_eq!(send(&guard, get("/")).header("ratelimit"), None);
    // The route is the one that axum has chosen.
    let (guard, _) = guard_of(Rule::new("writes", "2/h").on("POST").by("route").missing(Missing::Refuse));
    assert_eq!(send(&guard, post("/")).status, 400);
}

#[test]
fn head_and_get_are_one_route_and_two_methods() {
    let head = || http::Request::head("/goods/7").body(()).unwrap();
    let (guard, _) = guard_of(Rule::new("goods", "1/h").on("/goods/{id}").by("route"));
    assert_eq!(send(&guard, get("/goods/7")).status, 200);
    assert_eq!(send(&guard, head()).status, 429);
    let (guard, _) = guard_of(Rule::new("goods", "1/h").by("method"));
    assert_eq!(send(&guard, get("/goods/7")).status, 200);
    assert_eq!(send(&guard, head()).status, 200);
}

#[test]
fn several_rules_are_charged_all_or_none() {
    let (guard, _) = build(|guard| {
        guard.rule(Rule::new("in-all", "10/h").by("'everyone'")).rule(Rule::new("per-user", "2/h").by("user"))
    });
    for _ in 0..2 {
        assert_eq!(send(&guard, by("ann", get("/"))).status, 200);
    }
    for _ in 0..5 {
        assert_eq!(send(&guard, by("ann", get("/"))).status, 429);
    }
    // Five refusals later, eight are left for the others.
    let left = guard.rules().limiter().get("in-all").unwrap().peek("'everyone'").remaining();
    assert_eq!(left, 8);
    let response = send(&guard, by("bob", get("/")));
    assert_eq!(response.header("ratelimit"), Some("\"in-all\";r=7;t=1080, \"per-user\";r=1;t=1800"));
    assert_eq!(response.header("ratelimit-policy"), Some("\"in-all\";q=10;w=3600, \"per-user\";q=2;w=3600"));
}

#[test]
fn several_limits_of_one_rule_are_charged_all_or_none() {
    let (guard, clock) = guard_of(Rule::new("api", "2/s").limit("3/h").by("user"));
    assert_eq!(send(&guard, by("ann", get("/"))).status, 200);
    assert_eq!(send(&guard, by("ann", get("/"))).status, 200);
    let refused = send(&guard, by("ann", get("/")));
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["api"]));
    clock.advance(ms(1000));
    assert_eq!(send(&guard, by("ann", get("/"))).status, 200);
    let refused = send(&guard, by("ann", get("/")));
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["api/2"]));
    assert_eq!(guard.rules().limiter().get("api").unwrap().peek("user:ann").remaining(), 1);
}

#[test]
fn requests_without_a_key_share_skip_or_are_refused() {
    let rule = |missing| Rule::new("keys", "2/h").by("header:x-api-key").missing(missing);
    let (share, _) = guard_of(rule(Missing::Share));
    assert_eq!(send(&share, get("/")).status, 200);
    assert_eq!(send(&share, with("x-api-key", "", get("/"))).status, 200);
    let refused = send(&share, get("/"));
    assert_eq!(refused.status, 429);
    let sentence = "denied by `keys`: 2/h, 0 left, free again in 30 min";
    assert_eq!(refused.detail(), sentence);
    assert_eq!(send(&share, with("x-api-key", "k1", get("/"))).status, 200);

    let (skip, _) = guard_of(rule(Missing::Skip));
    for _ in 0..5 {
        assert_eq!(send(&skip, get("/")).status, 200);
    }

    let (refuse, _) = guard_of(rule(Missing::Refuse));
    let refused = send(&refuse, get("/"));
    assert_eq!(refused.status, 400);
    assert_eq!(refused.json()["type"], "about:blank");
    assert_eq!(refused.detail(), "refused by `keys`: the request does not say header:x-api-key");
    assert_eq!(refused.header("retry-after"), None);
}

#[test]
fn a_cost_comes_from_the_request_within_its_bounds() {
    let spent = |path: &str| {
        let (guard, _) = guard_of(Rule::new("tickets", "100/h").by("'all'").cost_from("query:count", 10));
        assert_eq!(send(&guard, get(path)).status, 200);
        100 - guard.rules().limiter().get("tickets").unwrap().peek("'all'").remaining()
    };
    assert_eq!(spent("/?count=3"), 3);
    assert_eq!(spent("/"), 1);
    assert_eq!(spent("/?count=0"), 1);
    assert_eq!(spent("/?count=11"), 10);
    assert_eq!(spent("/?count=-3"), 10);
    assert_eq!(spent("/?count=1e1"), 10);
    assert_eq!(spent("/?count=1&count=2"), 10);
    assert_eq!(spent("/?count="), 10);
    assert_eq!(spent("/?coun%74=3"), 3);
    assert_eq!(spent("/?coun%74=3&coun%74=3"), 10);
    assert_eq!(spent("/?discount=3"), 1, "another name");

    let (guard, _) = guard_of(Rule::new("x", "100/h").by("'all'").cost(7));
    send(&guard, get("/"));
    assert_eq!(guard.rules().limiter().get("x").unwrap().peek("'all'").remaining(), 93);

    let by_length = |facts: &dyn tidegate::rules::Facts| facts.path().unwrap().raw().len() as u64;
    let (guard, _) = guard_of(Rule::new("x", "100/h").by("'all'").cost_with(by_length));
    send(&guard, get("/12345"));
    assert_eq!(guard.rules().limiter().get("x").unwrap().peek("'all'").remaining(), 94);
}

#[test]
fn a_cost_that_never_fits_has_no_time_to_retry() {
    let (guard, _) = guard_of(Rule::new("x", "5/h").by("'all'").cost_with(|_| 6));
    let refused = send(&guard, get("/"));
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), None);
    assert_eq!(refused.detail(), "denied by `x`: 5/h, 5 left, the call costs more than can ever be free");
}

#[test]
fn a_rule_in_shadow_refuses_no_request_and_charges_only_those_let_through() {
    let (guard, _) = build(|guard| {
        guard.rule(Rule::new("new", "1/h").by("'all'").shadow()).rule(Rule::new("old", "3/h").by("'all'"))
    });
    for _ in 0..3 {
        let response = send(&guard, get("/"));
        assert_eq!(response.status, 200);
        assert!(!response.header("ratelimit").unwrap().contains("new"), "{response:?}");
    }
    assert_eq!(send(&guard, get("/")).status, 429);
    assert_eq!(guard.rules().limiter().get("new").unwrap().peek("'all'").remaining(), 0);

    let (guard, _) = build(|guard| {
        guard.rule(Rule::new("new", "9/h").by("'all'").shadow()).rule(Rule::new("old", "3/h").by("'all'"))
    });
    for _ in 0..8 {
        send(&guard, get("/"));
    }
    assert_eq!(guard.rules().limiter().get("new").unwrap().peek("'all'").remaining(), 6);
}

#[test]
fn switched_off_everything_passes_and_nothing_is_charged() {
    let (guard, _) = guard_of(Rule::new("x", "1/h").by("'all'"));
    guard.rules().switch_off();
    assert!(!guard.rules().is_on());
    for _ in 0..5 {
        let response = send(&guard, get("/"));
        assert_eq!((response.status.as_u16(), response.header("ratelimit")), (200, None));
    }
    guard.rules().switch_on();
    assert_eq!(send(&guard, get("/")).status, 200);
    assert_eq!(send(&guard, get("/")).status, 429);
}

#[test]
fn a_guard_for_one_route_shares_its_state() {
    let (guard, _) =
        build(|guard| guard.rule(Rule::new("a", "2/h").by("'all'")).rule(Rule::new("b", "2/h").by("'all'")));
    let (only, except) = (guard.only(["a"]).unwrap(), guard.except(["a"]).unwrap());
    send(&only, get("/"));
    send(&except, get("/"));
    send(&guard, get("/"));
    assert_eq!(send(&only, get("/")).json()["violated-policies"], serde_json::json!(["a"]));
    assert_eq!(send(&except, get("/")).json()["violated-policies"], serde_json::json!(["b"]));
    let error = guard.only(["c"]).unwrap_err().to_string();
    assert_eq!(error, "there is no rule `c`; there are `a`, `b`");
}

#[test]
fn the_error_of_a_wrong_rule_states_what_to_write() {
    let build = |rules: Vec<Rule>| {
        let (limiter, _) = limiter();
        let built = rules.into_iter().fold(Guard::new(&limiter), tidegate::http::GuardBuilder::rule).build();
        assert!(limiter.gates().is_empty(), "a guard that was not built defines nothing");
        built.unwrap_err().to_string()
    };
    let rule = || Rule::new("x", "1/s").by("ip");
    for (rules, says) in [
        (vec![Rule::new("x", "1000/s burst fast").by("ip")], "rule `x`: `burst` needs a number"),
        (vec![Rule::new("x", "1/s").by("usr")], "rule `x`: `usr` is not a part of a key"),
        (vec![Rule::new("x", "1/s")], "rule `x`: whose allowance is it? write `.by(\"ip\")`"),
        (vec![rule(), rule()], "rule `x`: the name is used twice"),
        (vec![rule().limit("2/h"), Rule::new("x/2", "1/s").by("ip")], "rule `x/2`: the name is used twice"),
        (vec![Rule::new("a b", "1/s").by("ip")], "rule `a b`: a name is 1 to 60 letters"),
        (vec![Rule::new("a\n", "1/s").by("ip")], "rule `a\\n`: a name is"),
        (vec![rule().on("goods")], "rule `x`: `goods` is no route: the path `goods` must start with `/`"),
        (vec![rule().cost_from("ip", 5)], "rule `x`: a cost comes from one `header:…`"),
        (vec![rule().cost_from("query:n", 0)], "rule `x`: a cost comes from one"),
        (vec![rule().cost(0)], "rule `x`: a call that costs 0 is never refused: write how much of `1/s` it"),
        (
            vec![rule().cost(2)],
            "rule `x`: a call costs 2, and `1/s` never has more than 1: none would ever run",
        ),
        (
            vec![Rule::new("x", "9/s").limit("3 concurrent").by("ip").cost(4)],
            "rule `x`: a call costs 4, and `3 concurrent` never has more than 3",
        ),
        (vec![rule().deny_networks(["10.0.0.0/40"])], "rule `x`: `10.0.0.0/40` is not a network"),
    ] {
        let error = build(rules);
        assert!(error.starts_with(says), "{error}");
    }
}

#[test]
fn a_guard_that_cannot_be_built_takes_its_gates_back() {
    let (limiter, _) = limiter();
    limiter.gate("taken", "7/s").unwrap();
    let error = Guard::new(&limiter)
        .rule(Rule::new("first", "1/s").by("ip"))
        .rule(Rule::new("taken", "1/s").by("ip"))
        .build()
        .unwrap_err();
    assert_eq!(error.rule(), Some("taken"));
    assert!(limiter.get("first").is_none());
    assert!(limiter.get("taken").is_some());
}
