//! CORS preflights, as browsers send them.

use crate::logged::logged;
use crate::support::*;
use http::Request;
use tidegate::rules::{Missing, Rule};
use tracing::Level;

/// A preflight as Chromium 156 sends it, but for `User-Agent`: no cookies, no credentials, no
/// header field of the page.
fn preflight(path: &str) -> Request<()> {
    Request::options(path)
        .header("accept", "*/*")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type,x-api-key")
        .header("origin", "http://127.0.0.1:8000")
        .header("sec-fetch-mode", "cors")
        .header("sec-fetch-site", "same-site")
        .header("sec-fetch-dest", "empty")
        .header("referer", "http://127.0.0.1:8000/")
        .header("accept-encoding", "gzip, deflate, br, zstd")
        .header("accept-language", "en-US,en;q=0.9")
        .body(())
        .unwrap()
}

fn by_key() -> Rule {
    Rule::new("api", "1/h").by("header:x-api-key").missing(Missing::Refuse)
}

#[test]
fn a_preflight_is_charged_and_refused_by_default() {
    // Any client can send one: without a CORS layer it reaches the handlers.
    let (guard, _) = guard_of(Rule::new("all", "1/h").by("'x'"));
    assert_eq!(send(&guard, preflight("/orders")).status, 200);
    assert_eq!(send(&guard, preflight("/orders")).status, 429);
    let (guard, _) = guard_of(by_key());
    assert_eq!(send(&guard, preflight("/orders")).status, 400);
}

#[test]
fn a_refused_preflight_is_logged_once() {
    let (guard, _) = guard_of(by_key());
    let lines = logged("tidegate::rules", Level::WARN, || {
        for _ in 0..3 {
            send(&guard, preflight("/orders"));
        }
    });
    assert_eq!(lines.len(), 1, "{lines:#?}");
    for part in ["a CORS preflight was refused", "put the CORS layer outside", ".pass_preflights()"] {
        assert!(lines[0].contains(part), "{}", lines[0]);
    }
    // Also where the ruling is a future.
    let (guard, _) = guard_of(Rule::new("slots", "1 concurrent").by("'x'"));
    let mut shop = shop(&guard);
    let _held = now(tower::Service::call(&mut shop, get("/"))).unwrap();
    let lines = logged("tidegate::rules", Level::WARN, || {
        assert_eq!(send_to(&mut shop, preflight("/")).status, 429);
    });
    assert_eq!(lines.len(), 1, "{lines:#?}");
}

#[test]
fn with_pass_preflights_a_preflight_passes_uncharged() {
    let (guard, _) = build(|guard| {
        let ip = Rule::new("ip", "1/h").on("/orders").by("ip");
        guard.rule(by_key()).rule(ip).deny_networks(["198.51.100.0/24"]).pass_preflights()
    });
    for _ in 0..5 {
        let passed = send(&guard, from("192.0.2.1", preflight("/orders")));
        assert_eq!((passed.status.as_u16(), passed.header("ratelimit")), (200, None));
    }
    let order = || with("x-api-key", "k1", from("192.0.2.1", post("/orders")));
    assert_eq!(send(&guard, order()).status, 200, "nothing was charged");
    assert_eq!(send(&guard, order()).status, 429);
    // A denied client stays denied.
    assert_eq!(send(&guard, from("198.51.100.7", preflight("/orders"))).status, 403);
    // Without both header fields it is no preflight, and is decided.
    for missing in ["origin", "access-control-request-method"] {
        let mut request = preflight("/orders");
        request.headers_mut().remove(missing);
        assert_eq!(send(&guard, request).status, 400, "without {missing}");
    }
    let mut get = preflight("/orders");
    *get.method_mut() = http::Method::GET;
    assert_eq!(send(&guard, get).status, 400);
}

#[test]
fn a_preflight_passes_a_single_rule_by_address_too() {
    let (guard, _) = build(|guard| guard.rule(Rule::new("ip", "2/h").by("ip")).pass_preflights());
    let mut shop = shop(&guard);
    let mut status = |request| send_to(&mut shop, from("192.0.2.1", request)).status;
    assert_eq!(status(get("/")), 200);
    for _ in 0..3 {
        assert_eq!(status(preflight("/")), 200);
    }
    assert_eq!(status(get("/")), 200);
    assert_eq!(status(get("/")), 429);
}

#[test]
fn preflights_have_limits_of_their_own_where_a_rule_names_options() {
    let (guard, _) = build(|guard| {
        let preflights = Rule::new("preflights", "2/h").on("OPTIONS").by("ip");
        guard.rule(by_key()).rule(preflights).pass_preflights()
    });
    for expected in [200, 200, 429] {
        assert_eq!(send(&guard, from("192.0.2.1", preflight("/orders"))).status, expected);
    }
    assert_eq!(send(&guard, from("192.0.2.2", preflight("/orders"))).status, 200);
}
