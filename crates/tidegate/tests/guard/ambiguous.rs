//! A client gains nothing by a value that is there twice or cannot be read: it is ambiguous, not
//! missing.

use crate::support::*;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use tidegate::http::Guard;
use tidegate::rules::{Missing, Rule, stored_key};
use tower::{Layer, Service};

/// A part of a key, and requests that have it in these ways.
struct Part {
    by: &'static str,
    /// With the value `k1`.
    clear: Request<Full<Bytes>>,
    ambiguous: Vec<Request<Full<Bytes>>>,
    silent: Request<Full<Bytes>>,
}

fn empty(request: Request<()>) -> Request<Full<Bytes>> {
    request.map(|()| Full::default())
}

fn json(body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let request = Request::post("/").header("content-type", "application/json");
    request.body(Full::new(body.into())).unwrap()
}

fn parts() -> Vec<Part> {
    let header = |values: &[&str]| {
        empty(values.iter().fold(get("/"), |request, value| with("authorization", value, request)))
    };
    let cookies = |values: &[&str]| {
        empty(values.iter().fold(get("/"), |request, value| with("cookie", value, request)))
    };
    let long = |length: usize| "x".repeat(length);
    let get = |path: &str| empty(get(path));
    vec![
        Part {
            by: "header:authorization",
            clear: header(&["k1"]),
            ambiguous: vec![header(&["k1", "k2"]), header(&["k1", "k1"]), header(&[&long(5000)])],
            silent: header(&[""]),
        },
        Part {
            by: "query:key",
            clear: get("/?key=k1"),
            ambiguous: vec![
                get("/?key=k1&key=k2"),
                get("/?key=k1&k%65y=k1"),
                get(&format!("/?key=k1&{}", long(8200))),
                get(&format!("/?key={}", long(5000))),
            ],
            silent: get("/?key="),
        },
        Part {
            by: "cookie:key",
            clear: cookies(&["a=b; key=k1"]),
            ambiguous: vec![
                cookies(&["key=k1; key=k2"]),
                cookies(&["key=k1", "key=k1"]),
                cookies(&["key=k1", &long(8200)]),
                cookies(&[&format!("key={}", long(5000))]),
            ],
            silent: cookies(&["a=b"]),
        },
        Part {
            by: "path:2",
            clear: get("/goods/k1"),
            ambiguous: vec![get(&format!("/goods/{}", long(5000)))],
            silent: get("/goods/"),
        },
        Part {
            by: "json:/key",
            clear: json(r#"{"key": "k1"}"#),
            ambiguous: vec![
                json(r#"{"key": "k1", "key": "k2"}"#),
                json(r#"{"key": ["k1"]}"#),
                json(r#"{"key": "k1""#),
                json(format!(r#"{{"key": "k1"{}}}"#, " ".repeat(70_000))),
                json(format!(r#"{{"key": "{}"}}"#, long(5000))),
                Request::post("/").body(Full::from(r#"{"key": "k1"}"#)).unwrap(),
            ],
            silent: json("{}"),
        },
    ]
}

/// The status of the response to a request, which a rule with `json:` can read.
fn status(guard: &Guard, request: &Request<Full<Bytes>>) -> u16 {
    let mut shop = guard.json_layer().layer(shop(guard));
    block_on(shop.call(request.clone())).unwrap().status().as_u16()
}

#[test]
fn a_rule_that_skips_a_missing_key_does_not_skip_an_ambiguous_one() {
    for Part { by, clear, ambiguous, silent } in parts() {
        let (guard, _) = guard_of(Rule::new("x", "1/h").by(by).missing(Missing::Skip));
        assert_eq!(status(&guard, &clear), 200);
        assert_eq!(status(&guard, &clear), 429);
        for _ in 0..3 {
            assert_eq!(status(&guard, &silent), 200, "{by}");
        }
        // All of them share one allowance, as requests without a key do.
        assert_eq!(status(&guard, &ambiguous[0]), 200, "{by}");
        for (at, request) in ambiguous.iter().enumerate() {
            assert_eq!(status(&guard, request), 429, "{by} {at}");
        }
        assert_eq!(guard.rules().limiter().get("x").unwrap().peek(&format!("(no {by})")).remaining(), 0);
    }
}

#[test]
fn what_is_ambiguous_chooses_no_other_alternative() {
    for Part { by, clear, ambiguous, silent } in parts() {
        let (guard, _) = guard_of(Rule::new("x", "1/h").by(format!("{by} else ip")));
        let from = |request: &Request<Full<Bytes>>, ip: &str| from(ip, request.clone());
        assert_eq!(status(&guard, &from(&clear, "192.0.2.1")), 200);
        assert_eq!(status(&guard, &from(&silent, "192.0.2.1")), 200, "{by}: an address of its own");
        for (at, request) in ambiguous.iter().enumerate() {
            // The first of them spends the shared allowance.
            let expected = if at == 0 { 200 } else { 429 };
            assert_eq!(
                status(&guard, &from(request, &format!("192.0.2.{}", 10 + at))),
                expected,
                "{by} {at}"
            );
        }
    }
}

#[test]
fn an_ambiguous_key_that_could_be_denied_does_not_pass() {
    for Part { by, clear, ambiguous, silent } in parts() {
        let denied = [format!("{by}=k1")];
        let rule = || Rule::new("x", "9/h").by(by);
        let (of_rule, _) = guard_of(rule().deny_keys(denied.clone()));
        let (of_guard, _) = build(|guard| guard.rule(rule()).deny_keys(denied.clone()));
        for guard in [of_rule, of_guard] {
            assert_eq!(status(&guard, &clear), 403);
            assert_eq!(status(&guard, &silent), 200);
            for (at, request) in ambiguous.iter().enumerate() {
                assert_eq!(status(&guard, request), 400, "{by} {at}");
            }
        }
    }
}

#[test]
fn a_rule_that_refuses_states_what_is_ambiguous() {
    for Part { by, ambiguous, silent, .. } in parts() {
        let (guard, _) = guard_of(Rule::new("x", "9/h").by(by).missing(Missing::Refuse));
        assert_eq!(status(&guard, &silent), 400);
        for (at, request) in ambiguous.iter().enumerate() {
            assert_eq!(status(&guard, request), 400, "{by} {at}");
        }
    }
    let (guard, _) = guard_of(Rule::new("x", "9/h").by("query:id").missing(Missing::Refuse));
    let refused = send(&guard, get("/?id=1&id=2"));
    assert_eq!(refused.detail(), "refused by `x`: the request does not clearly say query:id");
    assert_eq!(refused.json()["title"], "Bad Request");
    let rule = Rule::new("x", "9/h").by("query:id").missing(Missing::Refuse);
    let (guard, _) = build(|guard| guard.rule(rule).grpc());
    let grpc = send(&guard, grpc("/?id=1&id=2"));
    assert_eq!(grpc.header("grpc-status"), Some("3"));
}

fn numbered(by: &str) -> Vec<(&'static str, Request<Full<Bytes>>)> {
    let ways =
        ["7", "007", "+7", "7.0", "1e1", " 7", "0x7", "7a", "99999999999999999999999999999999999999999"];
    let plus = |text: &str| text.replace('+', "%2B").replace(' ', "%20");
    let request = |way: &&'static str| {
        let request = match by {
            "header:id" => with("id", way, get("/")),
            "cookie:id" => with("cookie", &format!("id={way}"), get("/")),
            "query:id" => get(&format!("/?id={}", plus(way))),
            "path:2" => get(&format!("/goods/{}", way.replace(' ', "%20"))),
            _ => return (*way, json(format!(r#"{{"id": "{way}"}}"#))),
        };
        (*way, empty(request))
    };
    ways.iter().map(request).collect()
}

#[test]
fn a_number_has_one_allowance_however_it_is_written() {
    for by in ["header:id", "cookie:id", "query:id", "path:2", "json:/id"] {
        let (guard, _) = guard_of(Rule::new("x", "3/h").by(format!("number({by}) else ip")));
        let remaining =
            |key: &str| guard.rules().limiter().get("x").unwrap().peek(&stored_key(key)).remaining();
        for (way, request) in numbered(by).iter().take(3) {
            assert_eq!(status(&guard, request), 200, "{by} {way}");
        }
        assert_eq!(remaining(&format!("{by}=7")), 0, "{by}");
        assert_eq!(status(&guard, &numbered(by)[1].1), 429, "{by}");
        // No other way to write it has an allowance of its own.
        let mut allowed = 0;
        for (_, request) in numbered(by).iter().skip(3) {
            allowed += u32::from(status(&guard, &from("192.0.2.1", request.clone())) == 200);
        }
        assert!(allowed <= 3, "{by} {allowed}");
        assert_eq!(remaining("ip:192.0.2.1"), 3, "{by}");
    }
    let (guard, _) = guard_of(Rule::new("x", "9/h").by("number(path:1)").missing(Missing::Refuse));
    let refused = send(&guard, get("/seven"));
    assert_eq!(refused.detail(), "refused by `x`: the request does not clearly say number(path:1)");
    assert_eq!(send(&guard, get("/")).detail(), "refused by `x`: the request does not say number(path:1)");
    let (guard, _) = guard_of(Rule::new("x", "1/h").by("number(path:1)").deny_keys(["path:1=7"]));
    assert_eq!(send(&guard, get("/+07")).status, 403);
}

#[test]
fn a_number_that_is_a_secret_is_kept_by_its_digest() {
    let (guard, _) = guard_of(Rule::new("x", "1/h").by("number(header:x-card)"));
    send(&guard, with("x-card", "04711", get("/")));
    assert_eq!(send(&guard, with("x-card", "4711", get("/"))).status, 429);
    let remaining = |key: &[u8]| guard.rules().limiter().get("x").unwrap().peek(key).remaining();
    assert_eq!(remaining(b"header:x-card=4711"), 1);
    assert_eq!(remaining(&stored_key("header:x-card=4711")), 0);
}

#[test]
fn a_body_that_no_layer_reads_is_ambiguous() {
    // Without `json_layer()`.
    let (guard, _) = guard_of(Rule::new("x", "1/h").by("json:/a").missing(Missing::Skip));
    assert_eq!(send(&guard, post("/")).status, 200);
    assert_eq!(send(&guard, post("/")).status, 429);
}
