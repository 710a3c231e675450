//! A store that is away.

use crate::support::*;
use axum::response::IntoResponse;
use tidegate::guard::{Guard, Rule};
use tidegate::{Fallback, Limiter, Options, Redis, Refusal};

/// A port of this machine that nobody listens on.
fn nobody() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn limiter() -> Limiter {
    Limiter::builder().redis(Redis::at(&format!("redis://127.0.0.1:{}", nobody())).unwrap()).build()
}

#[test]
fn a_rule_that_denies_then_answers_503() {
    let limiter = limiter();
    let deny = Options::new().fallback(Fallback::Deny);
    let guard = Guard::new(&limiter).rule(Rule::new("x", "9/h").by("user").options(deny)).build().unwrap();
    let refused = ask(&guard, by("ann", get("/")));
    assert_eq!(refused.status, 503);
    assert_eq!(
        refused.json()["type"],
        "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
    );
    assert!(refused.json().get("violated-policies").is_none());
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let said = refused.detail();
    assert!(said.starts_with("denied by `x` for user:ann: 9/h, "), "{said}");
    assert!(said.contains("the store does not answer; it is tried again in "), "{said}");
    let grpc = ask(&guard, by("ann", with("content-type", "application/grpc", get("/"))));
    assert_eq!(grpc.header("grpc-status"), Some("14"));
}

#[test]
fn a_refusal_that_a_handler_returns_is_503_too() {
    let deny = Options::new().fallback(Fallback::Deny);
    let gate = limiter().gate_with("x", "9/h", deny).unwrap();
    let answer = Refusal::new(&gate, "ann", gate.check("ann")).into_response();
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
    assert!(answer.headers().contains_key("retry-after"));
}

#[test]
fn a_rule_that_allows_then_lets_through_up_to_its_cap() {
    let limiter = limiter();
    let allow = Options::new().fallback(Fallback::allow("2/h").unwrap());
    let guard = Guard::new(&limiter).rule(Rule::new("x", "9/h").by("user").options(allow)).build().unwrap();
    assert_eq!(ask(&guard, by("ann", get("/"))).status, 200);
    assert_eq!(ask(&guard, by("bob", get("/"))).status, 200);
    assert_eq!(ask(&guard, by("eve", get("/"))).status, 503);
}
