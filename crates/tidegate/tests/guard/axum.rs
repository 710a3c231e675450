//! Behind axum's router.

use crate::support::{block_on, build, by, from, get, post};
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, FromRef};
use axum::routing::{get as on_get, post as on_post};
use http::{Request, Response};
use http_body_util::BodyExt;
use std::net::SocketAddr;
use tidegate::Caller;
use tidegate::http::{Admitted, Decided, Guard};
use tidegate::rules::Rule;
use tower::{Service, ServiceBuilder};

fn call(app: &Router, request: Request<()>) -> Response<Body> {
    let request = request.map(|()| Body::empty());
    block_on(app.clone().call(request)).unwrap()
}

fn text(response: Response<Body>) -> String {
    let bytes = block_on(response.into_body().collect()).unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_router_is_guarded_as_a_whole_and_by_route() {
    let (guard, _) = build(|guard| {
        guard.rule(Rule::new("route", "2/h").by("route")).rule(Rule::new("order", "1/h").by("path:2"))
    });
    let order = guard.only(["order"]).unwrap();
    let route = guard.except(["order"]).unwrap();
    let app: Router = Router::new()
        .route("/goods/{id}", on_get(|| async { "goods" }))
        .route("/goods/{id}/order", on_post(|| async { "ordered" }).layer(order.layer()))
        // Inside the router, so that axum has chosen the route already.
        .route_layer(route.layer());
    assert_eq!(call(&app, get("/goods/1")).headers()["ratelimit"], "\"route\";r=1;t=1800");
    assert_eq!(call(&app, get("/goods/2")).status(), 200);
    let refused = call(&app, get("/goods/3"));
    assert_eq!(refused.status(), 429);
    let left = |key: &str| guard.rules().limiter().get("route").unwrap().peek(key).remaining();
    assert_eq!(left("route:GET /goods/{id}"), 0, "the pattern is the key");
    let ordered = call(&app, post("/goods/1/order"));
    assert_eq!(ordered.headers().get_all("ratelimit").iter().count(), 2);
    let refused = call(&app, post("/goods/1/order"));
    assert!(text(refused).contains("denied by `order`: 1/h"));
    assert_eq!(call(&app, get("/none")).status(), 404);
}

#[test]
fn the_peer_is_where_axum_puts_it() {
    let (guard, _) = build(|guard| guard.rule(Rule::new("x", "1/h").by("ip")));
    let app: Router = Router::new().route("/", on_get(|| async { "x" })).layer(guard.layer());
    let peer = |ip: &str| {
        let mut request = get("/");
        let address: SocketAddr = format!("{ip}:99").parse().unwrap();
        request.extensions_mut().insert(ConnectInfo(address));
        request
    };
    assert_eq!(call(&app, peer("192.0.2.1")).status(), 200);
    assert_eq!(call(&app, peer("192.0.2.2")).status(), 200);
    let refused = call(&app, peer("192.0.2.1"));
    assert_eq!(refused.status(), 429);
    assert_eq!(guard.rules().limiter().get("x").unwrap().peek("ip:192.0.2.1").remaining(), 0);
}

#[test]
fn a_handler_gets_the_decisions_and_the_caller() {
    let (guard, _) = build(|guard| guard.rule(Rule::new("x", "5/h").by("user else ip")).decided_extension());
    async fn handler(decided: Decided, other: Option<Decided>) -> String {
        assert!(other.is_some());
        // Read by a function without access to the request.
        tokio::task::yield_now().await;
        let caller = Caller::current();
        let (client, user) = (caller.client_ip().unwrap(), caller.user_id().unwrap().clone());
        format!("{:?} left for {user} at {client}", decided.remaining())
    }
    let app: Router = Router::new().route("/", on_get(handler)).layer(guard.layer());
    let response = text(call(&app, from("192.0.2.1", by("ann", get("/")))));
    assert_eq!(response, "Some(4) left for ann at 192.0.2.1");
    assert_eq!(Caller::current(), Caller::new());

    let open: Router = Router::new().route("/", on_get(handler));
    assert_eq!(call(&open, get("/")).status(), 500, "nobody guards it");
}

#[test]
fn a_handler_that_wants_to_know_is_served_while_the_guard_is_off() {
    let (guard, _) = build(|guard| guard.rule(Rule::new("x", "1/h").by("'all'")).decided_extension());
    async fn handler(decided: Decided) -> String {
        format!("{:?} left, {} policies", decided.remaining(), decided.policies().count())
    }
    let app: Router = Router::new().route("/", on_get(handler)).layer(guard.layer());
    guard.rules().switch_off();
    for _ in 0..3 {
        assert_eq!(text(call(&app, get("/"))), "None left, 0 policies");
    }
    guard.rules().switch_on();
    assert_eq!(text(call(&app, get("/"))), "Some(0) left, 1 policies");
}

#[test]
fn a_handler_behind_two_layers_sees_what_both_decided() {
    let (guard, _) = build(|guard| {
        guard
            .rule(Rule::new("order", "3/h").by("'all'"))
            .rule(Rule::new("per-user", "9/h").by("'all'"))
            .decided_extension()
    });
    async fn handler(decided: Decided) -> String {
        let names: Vec<&str> = decided.policies().map(|(name, _)| name).collect();
        format!("{names:?}, {:?} left", decided.remaining())
    }
    let order = guard.only(["order"]).unwrap();
    let app: Router = Router::new()
        .route("/", on_get(handler).layer(order.layer()))
        .layer(guard.except(["order"]).unwrap().layer());
    assert_eq!(text(call(&app, get("/"))), "[\"per-user\", \"order\"], Some(2) left");
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
fn a_handler_can_be_guarded_from_the_apps_state() {
    let (guard, _) = build(|guard| {
        guard
            .rule(Rule::new("x", "2/h").by("user"))
            .rule(Rule::new("slots", "1 concurrent").by("'all'"))
            .decided_extension()
    });
    async fn handler(admitted: Admitted) -> (Admitted, String) {
        let left =
            admitted.decided().and_then(|decided| decided.policy("x")).map(tidegate::Decision::remaining);
        (admitted, format!("{left:?}"))
    }
    let app: Router = Router::new().route("/", on_get(handler)).with_state(App { guard: guard.clone() });
    let response = call(&app, by("ann", get("/")));
    assert_eq!(response.headers()["ratelimit"], "\"x\";r=1;t=1800, \"slots\";r=0");
    assert_eq!(text(response), "Some(1)");
    assert_eq!(guard.rules().limiter().get("slots").unwrap().peek("'all'").remaining(), 1);
    assert_eq!(call(&app, by("ann", get("/"))).status(), 200);
    let refused = call(&app, by("ann", get("/")));
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
}

#[test]
fn json_keys_work_in_a_router() {
    let (guard, _) = build(|guard| guard.rule(Rule::new("x", "1/h").by("json:/id")));
    async fn echo(body: String) -> String {
        body
    }
    let layers = ServiceBuilder::new().layer(guard.json_layer()).layer(guard.layer());
    let app: Router = Router::new().route("/", on_post(echo)).layer(layers);
    let send = |json: &'static str| {
        let request = Request::post("/").header("content-type", "application/json").body(Body::from(json));
        block_on(app.clone().call(request.unwrap())).unwrap()
    };
    assert_eq!(text(send(r#"{"id": 1}"#)), r#"{"id": 1}"#);
    assert_eq!(send(r#"{"id": 2}"#).status(), 200);
    assert_eq!(send(r#"{ "id" : 1 }"#).status(), 429);
}

#[test]
fn inside_a_nested_router_a_rule_meets_the_path_that_is_left() {
    let (guard, _) = build(|guard| {
        guard
            .rule(Rule::new("inside", "9/h").on("/goods/{id}").by("path:2"))
            .rule(Rule::new("whole", "9/h").on("/api/goods/{id}").by("path:3"))
            .rule(Rule::new("route", "9/h").by("route"))
    });
    let goods = || Router::new().route("/goods/{id}", on_get(|| async { "goods" }));
    let policies = |app: &Router| {
        let response = call(app, get("/api/goods/7"));
        response.headers()["ratelimit-policy"].to_str().unwrap().to_string()
    };
    let inside: Router = Router::new().nest("/api", goods().route_layer(guard.layer()));
    assert!(policies(&inside).starts_with("\"inside\""));
    let outside: Router = Router::new().nest("/api", goods()).layer(guard.layer());
    assert!(policies(&outside).starts_with("\"whole\""));
    // The pattern of axum is the whole one in both routers.
    let left = |key: &str| guard.rules().limiter().get("route").unwrap().peek(key).remaining();
    assert_eq!(left("route:GET /api/goods/{id}"), 7);
}
