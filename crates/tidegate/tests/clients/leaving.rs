//! Clients that go away: while they wait for their start, and in the middle of an answer.

use crate::support::{Server, soon};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::routing::get;
use http_body_util::StreamBody;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::http::Guard;
use tidegate::rules::Rule;
use tidegate::{Limiter, ManualClock};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

fn guard_of(rule: Rule) -> (Guard, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).max_keys(100).build();
    (Guard::new(&limiter).rule(rule).build().unwrap(), clock)
}

#[test]
fn who_leaves_while_it_waits_gives_its_start_to_the_next() {
    let (guard, clock) = guard_of(Rule::new("look", "1 per 10s wait 20s").by("'everyone'"));
    let app = Router::new().route("/", get(|| async { "a lamp" })).layer(guard.layer());
    let server = Server::start(app);
    assert!(server.get("/").rest().starts_with("HTTP/1.1 200 OK"));

    let leaving = server.get("/");
    soon("the second waits for its start at 10 s", || guard.rules().stats().waiting == 1);
    leaving.close();
    soon("the server has noticed that it left", || guard.rules().stats().waiting == 0);

    let next = server.get("/");
    soon("the third waits", || guard.rules().stats().waiting == 1);
    let last = server.get("/");
    soon("the fourth waits", || guard.rules().stats().waiting == 2);
    clock.advance(Duration::from_secs(10));
    soon("the third starts at 10 s, not at 20 s", || next.is_answered());
    assert_eq!(guard.rules().stats().waiting, 1);
    assert!(!last.is_answered(), "the fourth starts at 20 s");
    let answer = next.rest();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("a lamp"), "{answer}");
    clock.advance(Duration::from_secs(10));
    assert!(last.rest().ends_with("a lamp"));
}

/// A guard with one place, and a page whose parts come when the test sends them.
fn slow_page() -> (Guard, Server, UnboundedSender<&'static str>) {
    let (guard, _) = guard_of(Rule::new("page", "1 concurrent").by("'everyone'"));
    let (parts, page) = unbounded_channel();
    let page: Page = Arc::new(Mutex::new(Some(page)));
    let app = Router::new().route("/", get(read_slowly)).layer(guard.layer()).with_state(page);
    (guard, Server::start(app), parts)
}

type Page = Arc<Mutex<Option<UnboundedReceiver<&'static str>>>>;

async fn read_slowly(State(page): State<Page>) -> Body {
    let parts = page.lock().unwrap().take().expect("one reader is let in");
    let frames = futures_util::stream::unfold(parts, |mut parts| async {
        let part = parts.recv().await?;
        let frame = http_body::Frame::data(Bytes::from_static(part.as_bytes()));
        Some((Ok::<_, Infallible>(frame), parts))
    });
    Body::new(StreamBody::new(frames))
}

fn places(guard: &Guard) -> u64 {
    guard.rules().limiter().get("page").unwrap().peek("'everyone'").remaining()
}

#[test]
fn a_place_is_held_until_a_slow_body_is_read_to_its_end() {
    let (guard, server, parts) = slow_page();
    let mut reader = server.get("/");
    parts.send("first part, ").unwrap();
    assert!(reader.read_until("first part, ").starts_with("HTTP/1.1 200 OK"));
    assert_eq!(places(&guard), 0);
    let refused = server.get("/").rest();
    assert!(refused.starts_with("HTTP/1.1 429"), "{refused}");
    assert!(!refused.contains("retry-after"), "nobody knows when: {refused}");

    parts.send("last part").unwrap();
    drop(parts);
    assert!(reader.rest().contains("last part"));
    soon("the place is free", || places(&guard) == 1);
}

#[test]
fn who_leaves_in_the_middle_of_a_body_frees_the_place() {
    let (guard, server, parts) = slow_page();
    let mut reader = server.get("/");
    parts.send("first part, ").unwrap();
    reader.read_until("first part, ");
    assert_eq!(places(&guard), 0);
    reader.close();
    // The rest of the page never comes, so it is not a failing write that frees it.
    soon("the place is free", || places(&guard) == 1);
    assert!(parts.is_closed(), "nobody reads the page any more");
}
