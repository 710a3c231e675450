//! Allow and deny lists.

use crate::support::*;
use tidegate::guard::Rule;

#[test]
fn who_is_allowed_is_not_asked() {
    let rule =
        Rule::new("x", "1/h").by("user else ip").allow_networks(["10.0.0.0/8"]).allow_keys(["user:boss"]);
    let (guard, _) = guard_of(rule);
    for _ in 0..3 {
        assert_eq!(ask(&guard, from("10.1.2.3", get("/"))).status, 200);
        assert_eq!(ask(&guard, by("boss", get("/"))).status, 200);
    }
    assert_eq!(ask(&guard, from("11.1.2.3", get("/"))).status, 200);
    assert_eq!(ask(&guard, from("11.1.2.3", get("/"))).status, 429);
}

#[test]
fn who_is_denied_is_forbidden_and_nothing_is_charged() {
    let rule =
        Rule::new("x", "5/h").by("user else ip").deny_networks(["2001:db8::/32"]).deny_keys(["user:eve"]);
    let (guard, _) = guard_of(rule);
    let refused = ask(&guard, by("eve", get("/")));
    assert_eq!(refused.status, 403);
    assert_eq!(refused.header("retry-after"), None);
    assert_eq!(refused.json()["title"], "Forbidden");
    assert_eq!(refused.detail(), "denied by `x`: the request is not allowed");
    assert_eq!(ask(&guard, from("2001:db8::1", get("/"))).status, 403);
    assert_eq!(guard.limiter().get("x").unwrap().peek("user:eve").remaining(), 5);
}

#[test]
fn the_guards_lists_come_before_all_rules() {
    let (guard, _) = build(|guard| {
        guard
            .rule(Rule::new("x", "1/h").on("/x").by("ip"))
            .allow_networks(["10.0.0.0/8", "192.0.2.7"])
            .deny_networks(["10.6.6.0/24"])
            .deny_keys(["ip:203.0.113.9"])
    });
    assert_eq!(ask(&guard, from("10.6.6.6", get("/x"))).status, 403);
    // Also where no rule applies.
    let refused = ask(&guard, from("10.6.6.6", get("/y")));
    assert_eq!(refused.detail(), "denied by the guard: the request is not allowed");
    for _ in 0..3 {
        assert_eq!(ask(&guard, from("10.1.1.1", get("/x"))).status, 200);
        assert_eq!(ask(&guard, from("192.0.2.7", get("/x"))).status, 200);
    }
    assert_eq!(ask(&guard, from("203.0.113.9", get("/x"))).status, 403);
    assert_eq!(ask(&guard, from("203.0.113.9", get("/y"))).status, 200);
}

#[test]
fn a_shadow_rules_deny_list_refuses_nobody() {
    let (guard, _) = guard_of(Rule::new("x", "1/h").by("ip").deny_networks(["0.0.0.0/0"]).shadow());
    assert_eq!(ask(&guard, from("10.1.1.1", get("/"))).status, 200);
}
