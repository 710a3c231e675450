//! No cache may store a refusal: it would refuse all later requests.

use crate::support::*;
use axum::Router;
use axum::extract::FromRef;
use axum::response::IntoResponse;
use axum::routing::get as on_get;
use bytes::Bytes;
use http::Response;
use tidegate::http::{Admitted, Guard, Refused};
use tidegate::rules::{Missing, Rule};
use tidegate::{GateOptions, Overflow, Refusal};
use tower::Service;

#[test]
fn every_refusal_forbids_caches_to_keep_it() {
    let (guard, _) = build(|guard| {
        guard
            .rule(Rule::new("rate", "1/h").on("/rate").by("'x'"))
            .rule(Rule::new("waits", "1/h wait 1s").on("/waits").by("'x'"))
            .rule(Rule::new("key", "1/h").on("/key").by("header:x-k").missing(Missing::Refuse))
            .rule(Rule::new("list", "1/h").on("/list").by("user").deny_keys(["user:eve"]))
            .deny_networks(["192.0.2.0/24"])
    });
    for path in ["/rate", "/waits"] {
        let passed = send(&guard, get(path));
        assert_eq!(
            (passed.status.as_u16(), passed.header("cache-control")),
            (200, None),
            "the service's own"
        );
    }
    let full = GateOptions::new().max_keys(1).overflow(Overflow::Refuse);
    let (full, _) = guard_of(Rule::new("full", "5/h").by("user").options(full));
    let unavailable = (0..10_000).map(|user| send(&full, by(&user.to_string(), get("/"))));
    let unavailable = unavailable.into_iter().find(|response| response.status != 200).unwrap();
    for (status, refused) in [
        (429, send(&guard, get("/rate"))),
        (429, send(&guard, get("/waits"))),
        (400, send(&guard, get("/key"))),
        (403, send(&guard, by("eve", get("/list")))),
        (403, send(&guard, from("192.0.2.1", get("/")))),
        (503, unavailable),
    ] {
        assert_eq!(refused.status, status);
        assert_eq!(refused.header("cache-control"), Some("no-store"), "{refused:?}");
    }
}

#[test]
fn a_renderer_cannot_let_caches_keep_a_refusal() {
    let lines = |cache_controls: &'static [&'static str]| {
        let render = move |_: &Refused<'_>| {
            let response = cache_controls
                .iter()
                .fold(Response::builder(), |response, line| response.header("cache-control", *line));
            response.body(Bytes::from("busy")).unwrap()
        };
        let rule = Rule::new("x", "1/h").by("'x'").cost_with(|_| 2);
        let (guard, _) = build(|guard| guard.rule(rule).render(render));
        let refused = send(&guard, get("/"));
        assert_eq!((refused.status.as_u16(), refused.body.as_str()), (200, "busy"));
        let lines = refused.headers.get_all("cache-control").iter().map(|line| line.to_str().unwrap());
        lines.collect::<Vec<_>>().join(" | ")
    };
    assert_eq!(lines(&[]), "no-store");
    assert_eq!(lines(&["public, max-age=60"]), "no-store");
    assert_eq!(lines(&["max-age=60", "x-no-store"]), "no-store");
    // A field that forbids it already is not changed.
    assert_eq!(lines(&["private, No-Store"]), "private, No-Store");
    assert_eq!(lines(&["private", "no-store"]), "private | no-store");
}

#[derive(Clone)]
struct App {
    guard: Guard,
}

impl FromRef<App> for Guard {
    fn from_ref(app: &App) -> Self {
        app.guard.clone()
    }
}

#[test]
fn a_handlers_refusal_and_an_extractors_forbid_it_too() {
    let (limiter, _) = limiter();
    let gate = limiter.gate("x", "1/h").unwrap();
    assert!(gate.check("ann").is_allowed());
    for (status, refusal) in
        [(429, Refusal::new(&gate, "ann", gate.check("ann"))), (400, Refusal::unidentified(&gate))]
    {
        let response = refusal.into_response();
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["cache-control"], "no-store");
    }

    async fn handler(_: Admitted) -> &'static str {
        "seen"
    }
    let (guard, _) = guard_of(Rule::new("x", "1/h").by("'x'").cost_with(|_| 2));
    let mut app: Router = Router::new().route("/", on_get(handler)).with_state(App { guard });
    let response = block_on(app.call(get("/").map(|()| axum::body::Body::empty()))).unwrap();
    assert_eq!(response.status(), 429);
    assert_eq!(response.headers()["cache-control"], "no-store");
}
