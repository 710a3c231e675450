//! Requests of hostile clients are read within bounds.
//!
//! A text beyond its bound has no parts, which proves that it was not searched.

use crate::support::*;
use http::{HeaderValue, Request};
use tidegate::rules::{Missing, Rule};

const MEGABYTE: usize = 1 << 20;

fn remaining(guard: &tidegate::http::Guard, key: &str) -> u64 {
    guard.rules().limiter().get("x").unwrap().peek(key).remaining()
}

#[test]
fn a_header_of_a_megabyte_is_not_a_key() {
    let (guard, _) = guard_of(Rule::new("x", "5/h").by("header:x-k"));
    let huge = HeaderValue::from_bytes(&vec![b'a'; MEGABYTE]).unwrap();
    let mut request = get("/");
    request.headers_mut().insert("x-k", huge);
    assert_eq!(send(&guard, request).status, 200);
    assert_eq!(remaining(&guard, "(no header:x-k)"), 4);
}

#[test]
fn bytes_beyond_ascii_are_a_key_and_written_escaped() {
    let (guard, _) = guard_of(Rule::new("x", "1/h").by("header:x-k").show_keys());
    let request = || {
        let mut request = get("/");
        request.headers_mut().insert("x-k", HeaderValue::from_bytes(b"\xff\xfe\tb").unwrap());
        request
    };
    assert_eq!(send(&guard, request()).status, 200);
    let refused = send(&guard, request());
    let sentence = "denied by `x` for header:x-k=\\xff\\xfe\\tb: 1/h, 0 left, free again in 1 h";
    assert_eq!(refused.detail(), sentence);
}

#[test]
fn a_decoded_nul_or_newline_reaches_no_header_and_no_line() {
    let rule = Rule::new("x", "1/h").by("path:1 + query:q").show_keys();
    let (guard, _) = build(|guard| guard.rule(rule).grpc());
    let path = "/a%00%0Ab?q=%0D%0Aset-cookie:%20x";
    assert_eq!(send(&guard, get(path)).status, 200);
    let refused = send(&guard, get(path));
    assert_eq!(refused.status, 429);
    assert!(refused.headers.get("set-cookie").is_none());
    let sentence =
        "denied by `x` for path:1=a\\0\\nb+query:q=\\r\\nset-cookie: x: 1/h, 0 left, free again in 1 h";
    assert_eq!(refused.detail(), sentence);
    let grpc = send(&guard, grpc(path));
    assert!(grpc.header("grpc-message").unwrap().contains("\\r\\nset-cookie"));
}

#[test]
fn thousands_of_cookies_and_parameters_are_not_searched() {
    let by = |key: &str| guard_of(Rule::new("x", "5/h").by(key.to_string())).0;
    let guard = by("cookie:s");
    let mut request = get("/");
    for at in 0..5_000 {
        request.headers_mut().append("cookie", format!("c{at}=v").parse().unwrap());
    }
    request.headers_mut().append("cookie", "s=1".parse().unwrap());
    assert_eq!(send(&guard, request).status, 200);
    assert_eq!(remaining(&guard, "(no cookie:s)"), 4);

    let guard = by("query:q");
    let query: String = (0..9_000).map(|at| format!("p{}=v&", at % 10)).collect();
    assert_eq!(send(&guard, get(&format!("/?{query}q=1"))).status, 200);
    assert_eq!(remaining(&guard, "(no query:q)"), 4);
}

#[test]
fn a_path_of_many_segments_is_one_walk() {
    let (guard, _) = guard_of(Rule::new("x", "5/h").on("/{*rest}").by("path:64"));
    let path = format!("/{}", "a/".repeat(30_000));
    assert_eq!(send(&guard, get(&path)).status, 200);
    assert_eq!(remaining(&guard, "path:64=a"), 4);
}

#[test]
fn a_bad_cost_is_the_highest_not_the_lowest() {
    let (guard, _) = guard_of(Rule::new("x", "100/h").by("'x'").cost_from("header:x-cost", 10));
    let cost = |value: &[u8]| {
        let mut request = get("/");
        request.headers_mut().insert("x-cost", HeaderValue::from_bytes(value).unwrap());
        let before = remaining(&guard, "'x'");
        send(&guard, request);
        before - remaining(&guard, "'x'")
    };
    assert_eq!(cost(b"2"), 2);
    assert_eq!(cost(b"99999999999999999999999"), 10);
    assert_eq!(cost(b"\xff"), 10);
    assert_eq!(cost(b""), 10);
}

#[test]
fn what_is_not_a_path_matches_nothing() {
    let (guard, _) = guard_of(Rule::new("x", "1/h").on("/{*rest}").by("'x'").missing(Missing::Refuse));
    let request = || Request::builder().method("OPTIONS").uri("*").body(()).unwrap();
    assert_eq!(send(&guard, request()).status, 200);
    assert_eq!(send(&guard, request()).status, 200);
    let connect = || Request::builder().method("CONNECT").uri("example.com:443").body(()).unwrap();
    assert_eq!(send(&guard, connect()).status, 200);
}
