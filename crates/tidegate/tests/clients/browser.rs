//! Chromium, as a process: a page of one origin calls services of another, each behind a guard.
//!
//! Only a browser knows which requests it asks leave for, and what of an answer a page may see.

use crate::support::{Log, Server};
use axum::Router;
use axum::response::Html;
use axum::routing::{get, post};
use http::{HeaderName, Method, header};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use testkit::servers::Browser;
use tidegate::Limiter;
use tidegate::http::{Guard, GuardBuilder};
use tidegate::rules::{Missing, Outcome, Rule};
use tower_http::cors::{Any, CorsLayer};

/// How long a browser may take to start, and to call a few services of this machine.
const AT_MOST: Duration = Duration::from_secs(60);

/// Calls each service twice, and says what it could see of the answers, a line each.
const PAGE: &str = r#"<!doctype html><script type="module">
const seen = [];
for (const url of [URLS]) for (let nth = 0; nth < 2; nth++) {
  try {
    const headers = { "content-type": "application/json", "x-api-key": "k1" };
    const answer = await fetch(url, { method: "POST", headers, body: "{}" });
    const after = answer.headers.get("retry-after"), left = answer.headers.get("ratelimit");
    seen.push(`${answer.status} retry-after ${after} ratelimit ${left}`);
  } catch (error) {
    seen.push(String(error));
  }
}
await fetch("/seen", { method: "POST", body: seen.join("\n") });
</script>"#;

/// One order an hour by API key, which a preflight never has.
fn guard(log: &Log) -> GuardBuilder {
    let rule = Rule::new("api", "1/h").by("header:x-api-key").missing(Missing::Refuse);
    Guard::new(&Limiter::new()).rule(rule).observer(log.clone())
}

fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::POST])
        .allow_headers([header::CONTENT_TYPE, HeaderName::from_static("x-api-key")])
        .expose_headers([header::RETRY_AFTER, HeaderName::from_static("ratelimit")])
}

fn orders() -> Router {
    Router::new().route("/orders", post(|| async { "ordered" }))
}

fn page(urls: &[String], seen: Sender<String>) -> Router {
    let urls: Vec<String> = urls.iter().map(|url| format!("{url:?}")).collect();
    let html = PAGE.replace("URLS", &urls.join(", "));
    let tell = move |body: String| async move { seen.send(body).unwrap() };
    Router::new().route("/", get(move || async move { Html(html) })).route("/seen", post(tell))
}

#[test]
fn a_page_of_another_origin_reads_refusals_where_the_cors_layer_is_outside() {
    let logs = [Log::default(), Log::default(), Log::default()];
    let build = |builder: GuardBuilder| builder.build().unwrap().layer();
    let [outside, inside, passing] = [
        // In axum the layer that is added last comes first.
        orders().layer(build(guard(&logs[0]))).layer(cors()),
        orders().layer(cors()).layer(build(guard(&logs[1]))),
        orders().layer(cors()).layer(build(guard(&logs[2]).pass_preflights())),
    ];
    let services = [outside, inside, passing].map(Server::start);
    let (sender, receiver) = channel();
    let page = Server::start(page(&services.each_ref().map(|service| service.url("/orders")), sender));
    let browser = Browser::open(&page.url("/"));
    let seen = receiver.recv_timeout(AT_MOST).expect("the page says what it saw");
    drop(browser);

    let lines: Vec<&str> = seen.lines().collect();
    let failed = "TypeError: Failed to fetch";
    let [first, second, inside @ .., passed, unread] = &lines[..] else { panic!("{seen}") };
    assert_eq!(*first, "200 retry-after null ratelimit \"api\";r=0;t=3600");
    assert!(second.starts_with("429 retry-after 3"), "{second}");
    assert!(second.contains(" ratelimit \"api\";r=0;t=3"), "{second}");
    // The preflight was refused: the page is told of a fault of the network.
    assert_eq!(inside, [failed, failed]);
    // The preflight passes. But a refusal that no CORS layer has seen cannot be read.
    assert_eq!(*passed, *first);
    assert_eq!(*unread, failed);

    use Outcome::{Allowed, Denied, Incomplete};
    assert_eq!(logs[0].outcomes(), [Allowed, Denied], "the CORS layer has answered the preflights");
    assert!(logs[1].outcomes().iter().all(|outcome| *outcome == Incomplete), "{:?}", logs[1].outcomes());
    assert_eq!(logs[2].outcomes(), [Allowed, Denied], "preflights are not judged");
}
