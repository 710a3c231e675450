//! Allow and deny lists.

use crate::logged::logged;
use crate::support::*;
use tidegate::http::Guard;
use tidegate::rules::Rule;
use tracing::Level;

#[test]
fn a_client_on_an_allow_list_is_not_limited() {
    let rule =
        Rule::new("x", "1/h").by("user else ip").allow_networks(["10.0.0.0/8"]).allow_keys(["user:boss"]);
    let (guard, _) = guard_of(rule);
    for _ in 0..3 {
        assert_eq!(send(&guard, from("10.1.2.3", get("/"))).status, 200);
        assert_eq!(send(&guard, by("boss", get("/"))).status, 200);
    }
    assert_eq!(send(&guard, from("11.1.2.3", get("/"))).status, 200);
    assert_eq!(send(&guard, from("11.1.2.3", get("/"))).status, 429);
}

#[test]
fn a_client_on_a_deny_list_is_forbidden_and_nothing_is_charged() {
    let rule =
        Rule::new("x", "5/h").by("user else ip").deny_networks(["2001:db8::/32"]).deny_keys(["user:eve"]);
    let (guard, _) = guard_of(rule);
    let refused = send(&guard, by("eve", get("/")));
    assert_eq!(refused.status, 403);
    assert_eq!(refused.header("retry-after"), None);
    assert_eq!(refused.json()["title"], "Forbidden");
    assert_eq!(refused.detail(), "denied by `x`: the request is not allowed");
    assert_eq!(send(&guard, from("2001:db8::1", get("/"))).status, 403);
    assert_eq!(guard.rules().limiter().get("x").unwrap().peek("user:eve").remaining(), 5);
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
    assert_eq!(send(&guard, from("10.6.6.6", get("/x"))).status, 403);
    // Also where no rule applies.
    let refused = send(&guard, from("10.6.6.6", get("/y")));
    assert_eq!(refused.detail(), "denied by the guard: the request is not allowed");
    for _ in 0..3 {
        assert_eq!(send(&guard, from("10.1.1.1", get("/x"))).status, 200);
        assert_eq!(send(&guard, from("192.0.2.7", get("/x"))).status, 200);
    }
    assert_eq!(send(&guard, from("203.0.113.9", get("/x"))).status, 403);
    assert_eq!(send(&guard, from("203.0.113.9", get("/y"))).status, 200);
}

#[test]
fn the_deny_list_of_a_rule_in_shadow_refuses_no_request() {
    let (guard, _) = guard_of(Rule::new("x", "1/h").by("ip").deny_networks(["0.0.0.0/0"]).shadow());
    assert_eq!(send(&guard, from("10.1.1.1", get("/"))).status, 200);
}

/// The digest of `k-secret`, as the log has it.
const DIGEST: &str = "#a9d47e48fea8e20cd2893475a2dfdbf3af90a947";

/// A rule with `show_keys` has its keys whole, and a list may have either form.
#[test]
fn a_listed_secret_is_found_with_and_without_show_keys() {
    let long = "k".repeat(129);
    for (sent, listed) in [
        ("k-secret", "k-secret"),
        ("k-secret", DIGEST),
        (&*long, &*long),
        ("#abc", "#abc"),
        // As in the log of a rule with `show_keys`.
        ("#abc", "%23abc"),
        ("a+b", "a%2Bb"),
    ] {
        let key = format!("header:x-tenant={listed}");
        let of = || with("x-tenant", sent, get("/"));
        let rule = || Rule::new("x", "1/h").by("header:x-tenant");
        for rule in [rule(), rule().show_keys()] {
            let (denied, _) = guard_of(rule.clone().deny_keys([key.clone()]));
            assert_eq!(send(&denied, of()).status, 403, "{rule:?}: {sent} as {listed}");
            let (denied, _) = build(|guard| guard.rule(rule.clone()).deny_keys([key.clone()]));
            assert_eq!(send(&denied, of()).status, 403, "{rule:?}: {sent} as {listed}");
            let (allowed, _) = guard_of(rule.clone().allow_keys([key.clone()]));
            let passed = (0..3).filter(|_| send(&allowed, of()).status == 200).count();
            assert_eq!(passed, 3, "{rule:?}: {sent} as {listed}");
            assert_eq!(send(&denied, with("x-tenant", "other", get("/"))).status, 200);
        }
    }
}

/// A long key that the log has cut can be no key.
#[test]
fn a_listed_key_that_the_log_has_cut_is_an_error() {
    let (limiter, _) = limiter();
    let written = tidegate::Key::new(&format!("user:{}", "x".repeat(100))).to_string();
    let rule = || Rule::new("x", "1/h").by("user");
    let says = "number 1 of `deny_keys` is a key that the log has cut: write all of it";
    let error = Guard::new(&limiter).rule(rule().deny_keys([&*written])).build().unwrap_err().to_string();
    assert!(error.ends_with(says), "{error}");
    let error = Guard::new(&limiter).rule(rule()).deny_keys([&*written]).build().unwrap_err().to_string();
    assert!(error.ends_with(says), "{error}");
    // A secret is never shortened like this.
    let key = "header:x=kkkkkkkkkkkkkkkk%#00112233445566778899aabbccddeeff";
    let rule = Rule::new("x", "1/h").by("header:x").show_keys().deny_keys([key]);
    assert!(Guard::new(&limiter).rule(rule).build().is_err());
}

#[test]
fn a_secret_number_is_listed_by_its_digest_too() {
    // printf %s 7 | sha256sum
    let digested = "header:x-card=#7902699be42c8a8e46fbbb4501726517e86b22c5";
    let rule = || Rule::new("x", "9/h").by("number(header:x-card)");
    for listed in ["header:x-card=7", digested] {
        for rule in [rule(), rule().show_keys()] {
            let (limiter, _) = limiter();
            let guard = Guard::new(&limiter).rule(rule.clone()).deny_keys([listed]).build();
            let guard = guard.unwrap_or_else(|error| panic!("{listed}: {error}"));
            assert_eq!(send(&guard, with("x-card", "007", get("/"))).status, 403, "{rule:?}: {listed}");
            assert_eq!(send(&guard, with("x-card", "8", get("/"))).status, 200, "{rule:?}: {listed}");
            let lines = logged("tidegate::rules", Level::WARN, || guard.replace([rule]).unwrap());
            assert!(lines.is_empty(), "{listed}: {lines:#?}");
        }
    }
}

#[test]
fn a_listed_route_that_no_request_has_is_an_error() {
    let (limiter, _) = limiter();
    let rule = || Rule::new("x", "9/h").on("POST /goods/{id}").on("GET /carts").by("route");
    let errors_of = |key: &'static str| {
        let of_rule = Guard::new(&limiter).rule(rule().deny_keys([key])).build();
        let of_guard = Guard::new(&limiter).rule(rule()).deny_keys([key]).build();
        (of_rule.map_err(|error| error.to_string()), of_guard.map_err(|error| error.to_string()))
    };
    for wrong in [
        "route:POST /goods/7",
        "route:POST /goods/:id",
        "route:GET /goods/{id}",
        "route:PSOT /goods/{id}",
        "route:HEAD /carts",
        "route:post /goods/{id}",
        "route:POST goods/{id}",
    ] {
        let (of_rule, of_guard) = errors_of(wrong);
        for error in [of_rule.expect_err(wrong), of_guard.expect_err(wrong)] {
            assert!(error.contains("number 1 of `deny_keys`: write `route:POST /goods/{id}`"), "{error}");
        }
    }
    let (guard, _) = guard_of(rule().deny_keys(["route:POST /goods/{id}", "route:GET /carts"]));
    assert_eq!(send(&guard, post("/goods/7")).status, 403);
    assert_eq!(send(&guard, http::Request::head("/carts").body(()).unwrap()).status, 403);
    // Without a pattern it is the router's, which is not known here.
    let any = Rule::new("x", "9/h").by("route").deny_keys(["route:GET /goods/{id}", "route:OTHER /a"]);
    assert!(Guard::new(&limiter).rule(any).build().is_ok());
}

/// NAT64 translates no private address, so a client with such an address has chosen it.
#[test]
fn a_private_address_written_as_translated_exempts_no_client_and_evades_no_deny_list() {
    for forged in ["64:ff9b::10.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::192.168.1.1"] {
        let plain = forged.trim_start_matches("64:ff9b::");
        let rule = || Rule::new("x", "1/h").by("ip");
        let lists = ["private", "loopback"];
        let key = [format!("ip:{plain}")];
        for (name, (guard, _)) in [
            ("rule's networks", guard_of(rule().allow_networks(lists))),
            ("guard's networks", build(|guard| guard.rule(rule()).allow_networks(lists))),
            ("rule's keys", guard_of(rule().allow_keys(key.clone()))),
            ("guard's keys", build(|guard| guard.rule(rule()).allow_keys(key.clone()))),
        ] {
            let statuses = [(); 2].map(|()| send(&guard, from(forged, get("/"))).status.as_u16());
            assert_eq!(statuses, [200, 429], "{name}: {forged}");
            for _ in 0..3 {
                assert_eq!(send(&guard, from(plain, get("/"))).status, 200, "{name}: {plain}");
            }
        }
        for (guard, _) in [
            guard_of(rule().deny_networks(lists)),
            build(|guard| guard.rule(rule()).deny_networks(lists)),
            guard_of(rule().deny_keys(key.clone())),
        ] {
            assert_eq!(send(&guard, from(forged, get("/"))).status, 403, "{forged}");
        }
    }
    // An address that a translator makes is listed by its IPv4 address.
    let (guard, _) = guard_of(Rule::new("x", "1/h").by("ip").allow_networks(["203.0.113.0/24"]));
    for _ in 0..3 {
        assert_eq!(send(&guard, from("64:ff9b::203.0.113.9", get("/"))).status, 200);
    }
}
