//! A remote store, reachable or away.

use crate::support::*;
use axum::response::IntoResponse;
use std::time::{Duration, Instant};
use testkit::servers::{FaultProxy, RedisServer, Reply, wait_until};
use tidegate::http::{Guard, GuardBuilder};
use tidegate::rules::Rule;
use tidegate::{Fallback, GateOptions, Limiter, Redis, Refusal};

/// A port of this machine without a listener.
fn closed_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn limiter() -> Limiter {
    Limiter::builder().redis(Redis::at(&format!("redis://127.0.0.1:{}", closed_port())).unwrap()).build()
}

#[test]
fn a_rule_that_denies_while_redis_is_away_refuses_with_503() {
    let limiter = limiter();
    let deny = GateOptions::new().fallback(Fallback::Deny);
    let rule = Rule::new("x", "9/h").by("user").options(deny);
    let guard = Guard::new(&limiter).rule(rule).grpc().build().unwrap();
    let refused = send(&guard, by("ann", get("/")));
    assert_eq!(refused.status, 503);
    assert_eq!(
        refused.json()["type"],
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    );
    assert!(refused.json().get("violated-policies").is_none());
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let sentence = refused.detail();
    assert!(sentence.starts_with("denied by `x`: 9/h, "), "{sentence}");
    assert!(sentence.contains("the store does not answer; it is tried again in "), "{sentence}");
    let grpc = send(&guard, by("ann", grpc("/")));
    assert_eq!(grpc.header("grpc-status"), Some("14"));
}

/// Redis cannot hold a list that long, which must be known before anything changes.
#[test]
fn a_rule_that_redis_cannot_hold_changes_no_other_rule() {
    let limiter = limiter();
    let rule = |name: &str, limit: &str| Rule::new(name, limit).by("user");
    let guard = Guard::new(&limiter).rule(rule("a", "9/h")).rule(rule("b", "9/h")).build().unwrap();
    for wrong in [rule("b", "20000 per 1h sliding-log"), rule("new", "20000 per 1h sliding-log")] {
        let error = guard.replace([rule("a", "1/h"), rule("first", "1/h"), wrong]).unwrap_err();
        assert!(error.to_string().contains("cannot be kept in Redis"), "{error}");
        assert_eq!(limiter.get("a").unwrap().limit().to_string(), "9/h");
        assert!(limiter.get("first").is_none() && limiter.get("new").is_none());
    }
}

#[test]
fn no_secret_stands_in_the_name_of_a_key_in_redis() {
    let server = RedisServer::start();
    let patience = Duration::from_secs(10);
    let limiter = Limiter::builder().redis(Redis::at(&server.url()).unwrap().deadline(patience)).build();
    let guard = Guard::new(&limiter)
        .rule(Rule::new("rate", "1/h").limit("5 per 1h sliding-log").by("header:x-api-key + path:1"))
        .rule(Rule::new("session", "2/h").by("cookie:session else ip"))
        .rule(Rule::new("card", "3/h").by("number(header:x-card)"))
        .rule(Rule::new("watch", "3/h").by("header:x-api-key").shadow())
        .build()
        .unwrap();
    let request = || {
        let request = with("cookie", "session=k-session", with("x-card", "4711000815", get("/goods")));
        with("x-api-key", "k-secret", request)
    };
    assert_eq!(send(&guard, request()).status, 200);
    assert_eq!(send(&guard, request()).status, 429);
    let names: Vec<String> = server.cmd(&["KEYS", "*"]).items().iter().map(Reply::text).collect();
    for (gate, digest) in [
        // printf %s k-secret | sha256sum
        ("rate", "header:x-api-key=#a9d47e48fea8e20cd2893475a2dfdbf3af90a947+path:1=goods"),
        ("session", "cookie:session=#"),
        ("card", "header:x-card=#"),
        ("watch", "header:x-api-key=#a9d47e48fea8e20cd2893475a2dfdbf3af90a947"),
    ] {
        let is_it = |name: &String| name.contains(gate) && name.contains(digest);
        assert!(names.iter().any(is_it), "{gate} {digest} in {names:#?}");
    }
    for secret in ["k-secret", "k-session", "4711000815"] {
        assert!(!names.iter().any(|name| name.contains(secret)), "{secret} in {names:#?}");
    }
}

#[test]
fn a_refusal_that_a_handler_returns_is_503_too() {
    let deny = GateOptions::new().fallback(Fallback::Deny);
    let gate = limiter().gate_with("x", "9/h", deny).unwrap();
    let response = Refusal::new(&gate, "ann", gate.check("ann")).into_response();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert!(response.headers().contains_key("retry-after"));
}

#[test]
fn a_rule_that_allows_then_lets_through_up_to_its_cap() {
    let limiter = limiter();
    let allow = GateOptions::new().fallback(Fallback::allow("2/h").unwrap());
    let guard = Guard::new(&limiter).rule(Rule::new("x", "9/h").by("user").options(allow)).build().unwrap();
    assert_eq!(send(&guard, by("ann", get("/"))).status, 200);
    assert_eq!(send(&guard, by("bob", get("/"))).status, 200);
    assert_eq!(send(&guard, by("eve", get("/"))).status, 503);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "other processes run on real time")]
fn rules_in_shadow_are_checked_at_the_same_time() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.addr());
    let patience = Duration::from_secs(30);
    let limiter = Limiter::builder().redis(Redis::at(&proxy.url()).unwrap().deadline(patience)).build();
    let shadow = |at: usize| Rule::new(&format!("s{at}"), "9/h").by("user").shadow();
    let live = Rule::new("live", "9/h").by("user");
    let guard = (0..8).map(shadow).fold(Guard::new(&limiter).rule(live), GuardBuilder::rule);
    let guard = guard.build().unwrap();
    assert_eq!(send(&guard, by("ann", get("/"))).status, 200);
    let trip = Duration::from_millis(250);
    proxy.delay(trip);
    let started = Instant::now();
    assert_eq!(send(&guard, by("ann", get("/"))).status, 200);
    let took = started.elapsed();
    proxy.pass();
    // One after the other they would take nine round trips.
    assert!(took < trip * 6, "{took:?}");
    for at in 0..8 {
        assert_eq!(limiter.get(&format!("s{at}")).unwrap().peek("user:ann").remaining(), 7);
    }
    assert_eq!(limiter.redis_stats().unwrap().degraded, 0);
}

#[test]
fn in_redis_too_a_gate_changed_to_a_limit_with_a_wait_lets_no_request_start_early() {
    let server = RedisServer::start();
    let patience = std::time::Duration::from_secs(10);
    let limiter = Limiter::builder().redis(Redis::at(&server.url()).unwrap().deadline(patience)).build();
    let slots = Rule::new("slots", "2 concurrent").by("'all'");
    let guard = Guard::new(&limiter).rule(slots).rule(Rule::new("rate", "5/h").by("'all'")).build().unwrap();
    limiter.get("rate").unwrap().change("5/h wait 10h").unwrap();
    let free = || limiter.get("slots").unwrap().peek("'all'").remaining();
    let mut shop = shop(&guard);
    let held = block_on(tower::Service::call(&mut shop, get("/"))).unwrap();
    assert_eq!((held.status().as_u16(), free()), (200, 1), "a slot is held");
    for _ in 1..5 {
        assert_eq!(send(&guard, get("/")).status, 200);
        wait_until("the slot comes back", patience, || free() == 1);
    }
    let refused = send(&guard, get("/"));
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some());
    assert_eq!(free(), 1);
    drop(held);
    wait_until("both slots come back", patience, || free() == 2);
}
