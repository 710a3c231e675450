//! Which keys responses, the log, observers and renderers get.

use crate::observe::{logged, watched};
use crate::support::*;
use bytes::Bytes;
use http::Response;
use std::sync::{Arc, Mutex};
use tidegate::Refusal;
use tidegate::http::{GrpcStatus, Headers, Refused};
use tidegate::rules::{Rule, stored_key};
use tracing::Level;

/// 160 bits of the SHA-256 of `k-secret`, as `sha256sum` prints them.
const DIGEST: &str = "a9d47e48fea8e20cd2893475a2dfdbf3af90a947";

fn request(secret: &str) -> http::Request<()> {
    let cookie = format!("session={secret}");
    from(
        "203.0.113.9",
        by("user-42", with("x-api-key", secret, with("cookie", &cookie, get("/goods-7?t=q-1")))),
    )
}

#[test]
fn a_client_gets_no_key() {
    for key in ["user", "ip", "header:x-api-key", "cookie:session", "path:1", "query:t", "'internal-name'"] {
        let (guard, _) =
            build(|guard| guard.rule(Rule::new("x", "1/h").by(key)).headers(Headers::standard().legacy()));
        send(&guard, request("k-secret"));
        let refused = send(&guard, request("k-secret"));
        assert_eq!(refused.detail(), "denied by `x`: 1/h, 0 left, free again in 1 h");
        let all = format!("{refused:?}");
        for written in ["user-42", "203.0", "k-secret", &DIGEST[..12], "goods", "q-1", "internal", "pk="] {
            assert!(!all.contains(written), "{key}: {written} in {all}");
        }
    }
}

#[test]
fn a_client_does_not_learn_that_there_is_a_deny_list() {
    let (guard, _) = build(|guard| {
        guard.rule(Rule::new("x", "1/h").by("user").deny_keys(["user:eve"])).deny_networks(["192.0.2.0/24"])
    });
    for (request, says) in [
        (by("eve", get("/")), "denied by `x`: the request is not allowed"),
        (from("192.0.2.1", get("/")), "denied by the guard: the request is not allowed"),
    ] {
        let refused = send(&guard, request);
        assert_eq!((refused.status.as_u16(), refused.detail().as_str()), (403, says));
        assert_eq!(refused.json()["title"], "Forbidden");
    }
}

#[test]
fn a_handlers_refusal_has_no_key_for_the_client() {
    use axum::response::IntoResponse as _;
    let (limiter, _) = limiter();
    let gate = limiter.gate("x", "1/h").unwrap();
    assert!(gate.check("user:ann").is_allowed());
    let refusal = Refusal::new(&gate, "user:ann", gate.check("user:ann"));
    let grpc = GrpcStatus::new(&refusal);
    assert_eq!(grpc.message(), "denied by `x`: 1/h, 0 left, free again in 1 h");
    let details = String::from_utf8_lossy(&grpc.details()).into_owned();
    let body = refusal.into_response().into_body();
    let body = block_on(http_body_util::BodyExt::collect(body)).unwrap().to_bytes();
    let body = String::from_utf8_lossy(&body).into_owned();
    assert!(!format!("{details} {body}").contains("user:ann"), "{details} {body}");
}

#[test]
fn a_secret_is_in_no_response_no_log_line_and_no_record() {
    let rule = Rule::new("x", "1/h").by("header:x-api-key + cookie:session + path:1");
    let (guard, _, recorded) = watched([rule]);
    send(&guard, request("k-secret"));
    let mut refused = None;
    let lines = logged(Level::TRACE, || refused = Some(send(&guard, request("k-secret"))));
    let recorded = recorded.take();
    // Operators can find the client. A line of the log has room for 96 bytes of a key.
    let written = format!("header:x-api-key=#{DIGEST}+cookie:session=#{}", &DIGEST[..12]);
    assert!(lines[0].contains(&format!(" key={written}")), "{}", lines[0]);
    assert!(recorded[0].starts_with(&format!("[allowed] allowed by `x` for {written}")), "{}", recorded[0]);
    assert!(recorded[1].starts_with(&format!("[denied] denied by `x` for {written}")), "{}", recorded[1]);
    let all = format!("{refused:?} {lines:?} {recorded:?}");
    assert!(!all.contains("k-secret"), "{all}");

    // The store's key is the one that is recorded.
    let gate = guard.rules().limiter().get("x").unwrap();
    let whole = "header:x-api-key=k-secret+cookie:session=k-secret+path:1=goods-7";
    assert_eq!(gate.peek(whole).remaining(), 1);
    assert_eq!(gate.peek(&stored_key(whole)).remaining(), 0);
    let digested = format!("header:x-api-key=#{DIGEST}+cookie:session=#{DIGEST}+path:1=goods-7");
    assert_eq!(stored_key(whole), digested.as_bytes());

    // The digest is of the value as sent, also where it would be written escaped.
    for (secret, digest) in [
        ("a+b%c", "ce569c38c036521bd96f9903f01514c07cf74f0e"),
        (&"k".repeat(200)[..], "6de3c288691037361962041f2273f381658187e4"),
    ] {
        send(&guard, request(secret));
        let key = format!("header:x-api-key=#{digest}+cookie:session=#{digest}+path:1=goods-7");
        assert_eq!(gate.peek(&key).remaining(), 0, "{secret}");
    }
}

#[test]
fn a_renderer_gets_the_sentence_for_clients_and_the_key_by_its_digest() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let render = {
        let seen = seen.clone();
        move |refused: &Refused<'_>| {
            let key = refused.key().map(|key| key.to_string());
            seen.lock().unwrap().push((refused.to_string(), key.unwrap(), refused.record().to_string()));
            Response::new(Bytes::new())
        }
    };
    let (guard, _) = build(|guard| {
        guard.rule(Rule::new("x", "1/h").by("header:x-api-key").cost_with(|_| 2)).render(render)
    });
    send(&guard, request("k-secret"));
    let why = "1/h, 1 left, the call costs more than can ever be free";
    let key = format!("header:x-api-key=#{DIGEST}");
    let record = format!("denied by `x` for {key}: {why}");
    assert_eq!(*seen.lock().unwrap(), [(format!("denied by `x`: {why}"), key, record)]);
}

#[test]
fn one_switch_shows_keys_to_clients_and_operators_alike() {
    let rule = || Rule::new("x", "1/h").by("header:x-tenant").deny_keys(["header:x-tenant=evil"]).show_keys();
    let (guard, _) = build(|guard| guard.rule(rule()).grpc());
    let of = |tenant: &str| with("x-tenant", tenant, get("/"));
    let passed = send(&guard, of("acme"));
    // base64 of `header:x-tenant=acme`
    let pk = "pk=:aGVhZGVyOngtdGVuYW50PWFjbWU=:";
    assert_eq!(passed.header("ratelimit"), Some(format!("\"x\";r=0;t=3600;{pk}").as_str()));
    let mut refused = None;
    let lines = logged(Level::INFO, || refused = Some(send(&guard, of("acme"))));
    let refused = refused.unwrap();
    let says = "denied by `x` for header:x-tenant=acme: 1/h, 0 left, free again in 1 h";
    assert_eq!(refused.detail(), says);
    assert!(refused.header("ratelimit").unwrap().ends_with(pk));
    assert!(lines[0].contains(says) && lines[0].contains(" key=header:x-tenant=acme "), "{}", lines[0]);
    let grpc = send(&guard, with("x-tenant", "acme", grpc("/")));
    assert_eq!(grpc.header("grpc-message"), Some(says));
    assert_eq!(send(&guard, of("evil")).detail(), "denied by `x` for header:x-tenant=evil: on a deny list");
    assert_eq!(guard.rules().limiter().get("x").unwrap().peek("header:x-tenant=acme").remaining(), 0);
}

#[test]
fn a_list_has_a_secret_whole_or_by_its_digest() {
    let digested = format!("header:x-api-key=#{DIGEST}");
    for listed in ["header:x-api-key=k-secret", &digested] {
        let rule = || Rule::new("x", "1/h").by("header:x-api-key");
        let (denied, _) = guard_of(rule().deny_keys([listed]));
        assert_eq!(send(&denied, request("k-secret")).status, 403, "{listed}");
        assert_eq!(send(&denied, request("other")).status, 200, "{listed}");
        let (guarded, _) = build(|guard| guard.rule(rule()).deny_keys([listed]));
        assert_eq!(send(&guarded, request("k-secret")).status, 403, "{listed}");
        let (allowed, _) = guard_of(rule().allow_keys([listed]));
        for _ in 0..3 {
            assert_eq!(send(&allowed, request("k-secret")).status, 200, "{listed}");
        }
        // The digest is not the secret.
        let posing = format!("#{DIGEST}");
        assert_eq!(send(&allowed, request(&posing)).status, 200, "{listed}");
        assert_eq!(send(&allowed, request(&posing)).status, 429, "{listed}");
    }
}

#[test]
fn with_show_keys_no_client_can_pose_as_another_by_a_digest() {
    let rule = Rule::new("x", "1/h").by("header:x-api-key").allow_keys(["header:x-api-key=k-secret"]);
    let (guard, _) = guard_of(rule.show_keys());
    let posing = format!("#{DIGEST}");
    assert_eq!(send(&guard, request(&posing)).status, 200);
    assert_eq!(send(&guard, request(&posing)).status, 429);
    assert_eq!(
        guard.rules().limiter().get("x").unwrap().peek(&format!("header:x-api-key=%23{DIGEST}")).remaining(),
        0
    );
}

#[test]
fn what_a_key_calls_secret_is_kept_as_one() {
    let rule = Rule::new("x", "1/h")
        .by("secret(query:token) + path:1")
        .deny_keys(["secret(query:token)=evil+path:1=a"]);
    let (guard, _, recorded) = watched([rule]);
    assert_eq!(send(&guard, get("/a?token=k-secret")).status, 200);
    assert_eq!(send(&guard, get("/a?token=k-secret")).status, 429);
    assert_eq!(send(&guard, get("/a?token=evil")).status, 403);
    assert_eq!(send(&guard, get("/a?token=1&token=2")).status, 400, "it may be the denied one");
    let recorded = recorded.take();
    let written = format!("[allowed] allowed by `x` for secret(query:token)=#{DIGEST}+path:1=a: ");
    assert!(recorded[0].starts_with(&written), "{}", recorded[0]);
    assert!(!format!("{recorded:?}").contains("k-secret"), "{recorded:?}");
}
