//! The same request gets the same ruling at every door: through HTTP's tower layer and through a
//! line of text.

use crate::line::LineFacts;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tidegate::http::{Guard, Peer};
use tidegate::rules::{Charges, Missing, Rule, Rules};
use tidegate::{Limiter, ManualClock, User};
use tower::{Layer, Service};

/// Entries of a request, as an authentication would put them there.
#[derive(Clone)]
struct Entries(Vec<(String, String)>);

fn rules() -> [Rule; 5] {
    [
        Rule::new("order", "2/h").on("POST /goods/{id}/order").by("number(path:2)"),
        Rule::new("user", "3/h").by("user else ip").deny_keys(["user:eve"]),
        Rule::new("key", "2/h").on("GET").by("header:x-key").missing(Missing::Skip),
        Rule::new("plan", "1/h").when("plan", "free").by("entry:plan + user").missing(Missing::Refuse),
        Rule::new("net", "9/h").by("ip").deny_networks(["198.51.100.0/24"]),
    ]
}

fn limiter() -> Limiter {
    Limiter::builder().clock(ManualClock::new()).build()
}

/// Sends a line's request through the layer; the status.
fn send(guard: &Guard, line: &str) -> StatusCode {
    let facts = LineFacts::parse(line);
    let mut request = Request::builder().method(facts.method.unwrap_or("GET")).uri(facts.target());
    for (name, value) in &facts.headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(()).unwrap();
    let extensions = request.extensions_mut();
    if let Some(client) = facts.client {
        extensions.insert(Peer::new((client, 50_000).into()));
    }
    if let Some(user) = facts.user {
        extensions.insert(User::new(user));
    }
    let entries = facts.entries.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    extensions.insert(Entries(entries.collect()));
    let shop = tower::service_fn(|_: Request<()>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::new()))))
    });
    let mut response = pin!(guard.layer().layer(shop).call(request));
    match response.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(response)) => response.status(),
        other => panic!("it waits: {other:?}"),
    }
}

#[test]
fn every_door_gives_the_same_ruling() {
    let plan = |facts: &tidegate::http::RequestFacts<'_>| {
        let Entries(entries) = facts.extensions().get()?;
        entries.iter().find(|(name, _)| name == "plan").map(|(_, value)| value.clone())
    };
    let builder = rules().into_iter().fold(Guard::new(&limiter()), |builder, rule| builder.rule(rule));
    let guard = builder.entry("plan", plan).build().unwrap();
    let builder = rules().into_iter().fold(Rules::new(&limiter()), |builder, rule| builder.rule(rule));
    let rules = builder.build().unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..3 {
        for line in [
            "POST /goods/7/order from 192.0.2.1 user ann",
            "POST //goods/x/../%37/order from 192.0.2.2 user bob",
            "POST /goods/007/order from 192.0.2.3 user cid",
            "GET /goods/7 from 192.0.2.4 header x-key=k1",
            "HEAD /goods/7 from 192.0.2.5 header x-key=k1",
            "GET /goods/7 from 192.0.2.6 header x-key=k1 header x-key=k2",
            "GET / user eve from 192.0.2.7",
            "GET / user dan from 198.51.100.9",
            "GET / user fay entry plan=free from 192.0.2.8",
            "GET / entry plan=free from 192.0.2.9",
            "GET / entry plan=pro user gil from 192.0.2.10",
        ] {
            let ruling = rules.decide(&LineFacts::parse(line), Charges::Final).blocking();
            let outcome = ruling.binding().unwrap().outcome();
            let expected = match outcome.as_str() {
                _ if ruling.is_allowed() => 200,
                "denied" => 429,
                "listed" => 403,
                "incomplete" | "ambiguous" => 400,
                other => panic!("{other}"),
            };
            assert_eq!(send(&guard, line), expected, "{line}: {ruling:?}");
            seen.insert(expected);
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [200, 400, 403, 429], "every kind of ruling was seen");
}
