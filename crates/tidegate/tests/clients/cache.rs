//! nginx with `proxy_cache` in front: what one client is refused, no other client is served.

use crate::curl::{curl, header};
use crate::support::Server;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use axum::routing::get;
use bytes::Bytes;
use testkit::servers::Nginx;
use tidegate::http::{Guard, Refused};
use tidegate::rules::Rule;
use tidegate::{Limiter, ManualClock, Refusal, limited};

/// Keeps whatever it may keep, for a minute.
fn cache(upstream: &Server) -> Nginx {
    let upstream = upstream.address;
    Nginx::http(|port| {
        format!(
            "proxy_cache_path cache keys_zone=pages:1m;
             server {{
                 listen 127.0.0.1:{port};
                 location / {{
                     proxy_pass http://{upstream};
                     proxy_cache pages;
                     proxy_cache_valid any 1m;
                     add_header X-Cache $upstream_cache_status always;
                 }}
             }}"
        )
    })
}

fn limiter() -> Limiter {
    Limiter::builder().clock(ManualClock::new()).max_keys(100).build()
}

/// One request for each key; pages say nothing of caches.
fn pages(with: impl FnOnce(tidegate::http::GuardBuilder) -> tidegate::http::GuardBuilder) -> Server {
    let rule = Rule::new("pages", "1/h").by("header:x-api-key");
    let guard = with(Guard::new(&limiter()).rule(rule)).build().unwrap();
    let page = || async { "the page" };
    Server::start(Router::new().route("/page", get(page)).route("/other", get(page)).layer(guard.layer()))
}

/// The status, whether it came from the cache, and the body.
fn ask(nginx: &Nginx, path: &str, key: &str, line: &str) -> (String, String, String) {
    let answer = curl(&["-H", &format!("x-api-key: {key}"), "-H", line, &nginx.url(path)]);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap();
    (status.into(), header(head, "X-Cache").unwrap_or_default().into(), body.into())
}

fn is(answer: &(String, String, String), status: &str, cached: &str) -> bool {
    (answer.0.as_str(), answer.1.as_str()) == (status, cached)
}

/// Somebody who has nothing left asks for the page so. Others must get it all the same.
#[track_caller]
fn assert_not_kept(nginx: &Nginx, line: &str, status: &str) {
    assert!(is(&ask(nginx, "/other", "hostile", "accept: */*"), "200", "MISS"));
    let refused = ask(nginx, "/page", "hostile", line);
    let served = ask(nginx, "/page", "honest", "accept: */*");
    assert!(is(&served, "200", "MISS") && served.2 == "the page", "{line} poisoned the page: {served:?}");
    assert!(is(&refused, status, "MISS") && refused.2 != "the page", "{refused:?}");
    // The cache does its work: pages are kept, and cost nobody anything.
    for key in ["honest", "hostile", "another"] {
        let kept = ask(nginx, "/page", key, "accept: */*");
        assert!(is(&kept, "200", "HIT") && kept.2 == "the page", "{kept:?}");
    }
}

#[test]
fn one_request_that_claims_to_be_grpc_does_not_poison_a_page_for_everyone() {
    for kind in ["application/grpc", "application/grpcfoo", "application/grpc-web-text"] {
        let server = pages(|guard| guard);
        assert_not_kept(&cache(&server), &format!("content-type: {kind}"), "429");
    }
}

#[test]
fn a_plain_refusal_is_not_kept() {
    let server = pages(|guard| guard);
    assert_not_kept(&cache(&server), "accept: */*", "429");
}

#[test]
fn a_refusal_that_a_renderer_wanted_to_be_kept_is_not() {
    fn busy(_: &Refused<'_>) -> Response<Bytes> {
        let response = Response::builder().header("cache-control", "public, max-age=60");
        response.body("busy".into()).unwrap()
    }
    let server = pages(|guard| guard.render(busy));
    assert_not_kept(&cache(&server), "accept: */*", "200");
}

#[limited("1/h", name = "page", prefix = "", key = key, limiter = limiter)]
async fn page(limiter: &Limiter, key: &str) -> Result<&'static str, Refusal> {
    Ok("the page")
}

#[test]
fn a_refusal_that_a_limited_handler_returns_is_not_kept() {
    async fn handler(State(limiter): State<Limiter>, headers: HeaderMap) -> Result<&'static str, Refusal> {
        page(&limiter, headers["x-api-key"].to_str().unwrap_or_default()).await
    }
    let app = Router::new().route("/page", get(handler)).route("/other", get(handler));
    let server = Server::start(app.with_state(limiter()));
    assert_not_kept(&cache(&server), "accept: */*", "429");
}
