//! What observers and the log get.

use crate::support::*;
use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use tidegate::http::{Guard, GuardBuilder};
use tidegate::rules::{Missing, Observer, Record, Rule};
use tidegate::{Limiter, ManualClock};
use tracing::Level;

/// Every sentence, with the outcome that metrics would count.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<Vec<String>>>);

impl Observer for Recorder {
    fn verdict(&self, record: &Record<'_>) {
        let shadow = if record.is_shadow() { " shadow" } else { "" };
        self.0.lock().unwrap().push(format!("[{}{shadow}] {record}", record.outcome()));
    }
}

impl Recorder {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

pub(crate) fn watched(rules: impl IntoIterator<Item = Rule>) -> (Guard, ManualClock, Recorder) {
    let recorded = Recorder::default();
    let (guard, clock) =
        build(|guard| rules.into_iter().fold(guard.observer(recorded.clone()), GuardBuilder::rule));
    (guard, clock, recorded)
}

#[test]
fn every_verdict_is_a_sentence() {
    let rule =
        Rule::new("checkout", "1000/s burst 1").by("user").deny_keys(["user:eve"]).allow_keys(["user:me"]);
    let (guard, _, recorded) = watched([rule]);
    send(&guard, by("42", get("/")));
    send(&guard, by("42", get("/")));
    send(&guard, by("eve", get("/")));
    send(&guard, by("me", get("/")));
    send(&guard, by("a\nb\0", get("/")));
    guard.rules().switch_off();
    send(&guard, by("42", get("/")));
    assert_eq!(
        recorded.take(),
        [
            "[allowed] allowed by `checkout` for user:42: 1000/s burst 1, 0 left",
            "[denied] denied by `checkout` for user:42: 1000/s burst 1, 0 left, free again in 1 ms",
            "[listed] denied by `checkout` for user:eve: on a deny list",
            "[exempt] exempt by `checkout` for user:me: on an allow list",
            "[allowed] allowed by `checkout` for user:a\\nb\\0: 1000/s burst 1, 0 left",
            "[off] let through by `checkout`: the rules are switched off",
        ]
    );
}

#[test]
fn rules_in_shadow_and_rules_that_do_not_apply_are_recorded_in_their_order() {
    let (guard, _, recorded) = watched([
        Rule::new("watch", "1/h").by("'x'").shadow(),
        Rule::new("live", "5/h").by("'x'"),
        Rule::new("skip", "1/h").by("user").missing(Missing::Skip),
        Rule::new("need", "1/h").by("user else header:x-k").missing(Missing::Refuse).shadow(),
    ]);
    send(&guard, get("/"));
    recorded.take();
    send(&guard, get("/"));
    assert_eq!(
        recorded.take(),
        [
            "[denied shadow] would be denied by `watch` for 'x': 1/h, 0 left, free again in 1 h",
            "[allowed] allowed by `live` for 'x': 5/h, 3 left",
            "[skipped] skipped by `skip`: the request does not say user",
            "[incomplete shadow] would be refused by `need`: the request does not say user else header:x-k",
        ]
    );
}

#[test]
fn a_request_that_would_queue_for_a_slot_would_not_be_denied() {
    let queues = Rule::new("queues", "1 concurrent queue 5 wait 2s").by("'x'").shadow();
    let (guard, _, recorded) = watched([queues, Rule::new("full", "1 concurrent").by("'x'").shadow()]);
    let mut shop = shop(&guard);
    let _held = now(tower::Service::call(&mut shop, get("/"))).unwrap();
    recorded.take();
    assert_eq!(now(tower::Service::call(&mut shop, get("/"))).unwrap().status(), 200);
    let end = "0 left, free when others are done";
    assert_eq!(
        recorded.take(),
        [
            format!(
                "[queued shadow] would be queued by `queues` for 'x': 1 concurrent queue 5 wait 2s, {end}"
            ),
            format!("[denied shadow] would be denied by `full` for 'x': 1 concurrent, {end}"),
        ]
    );
}

#[test]
fn rules_that_are_not_charged_are_recorded_as_such() {
    let (guard, _, recorded) = watched([Rule::new("a", "5/h").by("'x'"), Rule::new("b", "1/h").by("'x'")]);
    send(&guard, get("/"));
    recorded.take();
    send(&guard, get("/"));
    assert_eq!(
        recorded.take(),
        [
            "[not_charged] not charged by `a` for 'x': another rule refused",
            "[denied] denied by `b` for 'x': 1/h, 0 left, free again in 1 h",
        ]
    );
}

#[test]
fn a_wait_is_recorded_with_the_time_it_took() {
    #[derive(Clone, Default)]
    struct Times(Arc<Mutex<Vec<(u128, u128)>>>);
    impl Observer for Times {
        fn verdict(&self, record: &Record<'_>) {
            self.0.lock().unwrap().push((record.wait().as_millis(), record.took().as_millis()));
        }
    }
    let times = Times::default();
    let (guard, clock) =
        build(|guard| guard.rule(Rule::new("x", "1 per 10s wait 20s").by("'x'")).observer(times.clone()));
    let mut shop = shop(&guard);
    assert!(now(tower::Service::call(&mut shop, get("/"))).is_ok());
    let mut second = std::pin::pin!(tower::Service::call(&mut shop, get("/")));
    assert!(poll_once(second.as_mut()).is_pending());
    clock.advance(ms(10_500));
    assert!(poll_once(second).is_ready());
    assert_eq!(*times.0.lock().unwrap(), [(0, 0), (10_000, 10_500)]);
}

#[test]
fn a_wait_for_a_slot_is_recorded_as_a_wait() {
    let (guard, clock, recorded) = watched([Rule::new("x", "1 concurrent queue 1 wait 5s").by("'x'")]);
    let mut shop = shop(&guard);
    let first = now(tower::Service::call(&mut shop, get("/"))).unwrap();
    let mut second = std::pin::pin!(tower::Service::call(&mut shop, get("/")));
    assert!(poll_once(second.as_mut()).is_pending());
    clock.advance(ms(1_500));
    drop(first);
    assert!(poll_once(second).is_ready());
    let limit = "1 concurrent queue 1 wait 5s, 0 left";
    assert_eq!(
        recorded.take(),
        [
            format!("[allowed] allowed by `x` for 'x': {limit}"),
            format!("[waited] allowed by `x` for 'x' after 1.5 s: {limit}"),
        ]
    );
}

pub(crate) fn logged(level: Level, run: impl FnOnce()) -> Vec<String> {
    crate::logged::logged("tidegate::rules", level, run)
}

#[test]
fn refusals_are_logged_a_few_each_second_and_the_others_counted() {
    let clock = ManualClock::new();
    let limiter = Limiter::builder().clock(clock.clone()).max_keys(1000).build();
    let guard = Guard::new(&limiter).rule(Rule::new("x", "1/h").by("user")).log_refusals(3).build().unwrap();
    let lines = logged(Level::INFO, || {
        for _ in 0..1000 {
            send(&guard, by("42", get("/")));
        }
        clock.advance(ms(1000));
        send(&guard, by("42", get("/")));
    });
    assert_eq!(lines.len(), 4, "{lines:#?}");
    assert!(lines[0].starts_with("INFO "), "{}", lines[0]);
    for part in [
        "message=denied by `x` for user:42: 1/h, 0 left, free again in 1 h",
        "rule=\"x\"",
        "key=user:42",
        "outcome=\"denied\"",
        "shadow=false",
        "limit=1/h",
        "remaining=0",
        "retry_after_ms=3600000",
        "degraded=false",
        "suppressed=0",
    ] {
        assert!(lines[0].contains(part), "{part} in {}", lines[0]);
    }
    assert!(lines[3].contains("suppressed=996"), "{}", lines[3]);
}

#[test]
fn requests_let_through_are_logged_only_at_trace() {
    let (guard, _) = guard_of(Rule::new("x", "1/h").by("user"));
    assert!(logged(Level::DEBUG, || drop(send(&guard, by("ann", get("/"))))).is_empty());
    let lines = logged(Level::TRACE, || drop(send(&guard, by("bob", get("/")))));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].contains("TRACE message=allowed by `x` for user:bob: 1/h, 0 left"), "{}", lines[0]);
}

#[test]
fn a_rule_that_a_layer_was_made_for_does_not_go_in_silence() {
    let rule = |name: &str| Rule::new(name, "1/h").by("'x'");
    let (guard, _) = build(|guard| guard.rule(rule("order")).rule(rule("all")));
    let order = guard.only(["order"]).unwrap();
    let lines = logged(Level::INFO, || {
        guard.replace([rule("orders"), rule("all")]).unwrap();
        guard.replace([rule("orders")]).unwrap();
    });
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].starts_with("WARN message=the rule `order` is gone"), "{}", lines[0]);
    assert_eq!(send(&order, get("/")).header("ratelimit"), None);
    guard.replace([rule("order")]).unwrap();
    assert!(send(&order, get("/")).header("ratelimit").is_some());
}

#[test]
fn a_key_by_address_without_addresses_is_warned_of_once() {
    let warned = |rules: &[&str], request: &dyn Fn() -> http::Request<()>| {
        let rules = rules.iter().enumerate().map(|(at, by)| Rule::new(&format!("r{at}"), "9/h").by(*by));
        let (guard, _) = build(|guard| rules.fold(guard, GuardBuilder::rule));
        logged(Level::WARN, || {
            for _ in 0..3 {
                assert_eq!(send(&guard, request()).status, 200);
                assert_eq!(send(&guard.clone(), request()).status, 200);
            }
        })
    };
    for rules in [&["ip"][..], &["user else ip"], &["ip", "user else ip"], &["'x'", "path:1 + ip"]] {
        let lines = warned(rules, &|| get("/x"));
        assert_eq!(lines.len(), 1, "{rules:?} {lines:#?}");
        assert!(
            lines[0].starts_with("WARN message=a key by `ip` met a request without a peer"),
            "{}",
            lines[0]
        );
        for write in ["into_make_service_with_connect_info::<SocketAddr>()", ".peer("] {
            assert!(lines[0].contains(write), "{}", lines[0]);
        }
        assert!(warned(rules, &|| from("192.0.2.1", get("/x"))).is_empty());
    }
    assert!(warned(&["user else ip"], &|| by("ann", get("/x"))).is_empty());
    assert!(warned(&["'x'"], &|| get("/x")).is_empty());
}

#[test]
fn a_json_rule_without_its_layer_is_warned_of_once() {
    for rule in [
        Rule::new("goods", "9/h").by("json:/goods"),
        Rule::new("goods", "9/h").by("number(json:/goods)"),
        Rule::new("goods", "9/h").by("'all'").cost_from("json:/goods", 1),
        Rule::new("goods", "9/h").by("json:/goods").shadow(),
    ] {
        let (guard, _) = guard_of(rule);
        let order = || with("content-type", "application/json", post("/orders"));
        let lines = logged(Level::WARN, || {
            for _ in 0..3 {
                assert_eq!(send(&guard, order()).status, 200);
            }
        });
        assert_eq!(lines.len(), 1, "{lines:#?}");
        let start = "WARN message=a rule needs `json:/goods`, but no JSON layer reads the body";
        assert!(lines[0].starts_with(start), "{}", lines[0]);
        assert!(lines[0].contains("`.layer(guard.layer()).layer(guard.json_layer())`"), "{}", lines[0]);
    }
}

#[test]
fn there_is_no_warning_if_the_json_layer_is_there() {
    let rules = ["json:/goods", "json:/goods else ip"];
    for (kind, body) in [
        ("application/json", r#"{"goods": 7}"#),
        ("application/json", "{}"),
        ("application/json", ""),
        ("application/json", "broken"),
        ("application/json", r#"{"goods": "much too long to be read"}"#),
        ("text/plain", "goods"),
    ] {
        let rules = rules.iter().enumerate().map(|(at, by)| Rule::new(&format!("r{at}"), "9/h").by(*by));
        let (guard, _) = build(|guard| rules.fold(guard, GuardBuilder::rule));
        let mut shop = tower::ServiceBuilder::new()
            .layer(guard.json_layer().max_bytes(16))
            .layer(guard.layer())
            .service(Shop::default());
        let lines = logged(Level::WARN, || {
            let request = from("192.0.2.1", with("content-type", kind, post("/orders")));
            let request = request.map(|()| http_body_util::Full::<bytes::Bytes>::from(body));
            assert_eq!(block_on(tower::Service::call(&mut shop, request)).unwrap().status(), 200);
        });
        assert!(lines.is_empty(), "{kind} {body}: {lines:#?}");
    }
}

/// An observer that does nothing.
#[derive(Default)]
struct Watching;

impl Observer for Watching {}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn an_observer_makes_no_difference(
        requests in prop::collection::vec((0u8..4, 0u8..3, 0u64..900), 1..40),
    ) {
        let rules = || [
            Rule::new("order", "3 per 2s").on("POST /goods/{id}").by("path:2 + user").cost_from("query:n", 3),
            Rule::new("per-user", "2/s").on("GET /{*all}").by("user"),
            Rule::new("in-all", "9 per 2s").on("GET /goods/{id}").by("'all'"),
        ];
        let (plain, plain_clock) = build(|guard| rules().into_iter().fold(guard, GuardBuilder::rule));
        let (watched, watched_clock) =
            build(|guard| rules().into_iter().fold(guard.observer(Watching), GuardBuilder::rule));
        for (who, what, later) in requests {
            let request = || {
                let request = match what {
                    0 => post(&format!("/goods/{}?n={}", who % 2, who)),
                    1 => get("/goods/1"),
                    _ => get("/about"),
                };
                // One of them has no user.
                if who == 0 { request } else { by(&who.to_string(), request) }
            };
            let (one, other) = (send(&plain, request()), send(&watched, request()));
            prop_assert_eq!((one.status, one.headers, one.body), (other.status, other.headers, other.body));
            plain_clock.advance(ms(later));
            watched_clock.advance(ms(later));
        }
    }
}
