//! Responses, byte by byte, and read back by an independent parser.

use crate::support::*;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use sfv::{BareItem, List, ListEntry, Parser};
use std::convert::Infallible;
use tidegate::http::{Headers, Refused};
use tidegate::rules::Rule;
use tidegate::{GateOptions, Overflow};
use tower::{Layer, Service, service_fn};

#[test]
fn a_refusal_is_a_problem_that_states_when_to_retry() {
    let (guard, clock) = guard_of(Rule::new("checkout", "1000/s burst 2").by("user"));
    for left in [1, 0] {
        let response = send(&guard, by("42", get("/")));
        assert_eq!((response.status.as_u16(), response.body.as_str()), (200, "served"));
        assert_eq!(response.header("ratelimit-policy"), Some("\"checkout\";q=1000;w=1"));
        assert_eq!(response.header("ratelimit"), Some(format!("\"checkout\";r={left};t=1").as_str()));
        assert_eq!(response.header("retry-after"), None);
    }
    let refused = send(&guard, by("42", get("/")));
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(refused.header("ratelimit-policy"), Some("\"checkout\";q=1000;w=1"));
    assert_eq!(refused.header("ratelimit"), Some("\"checkout\";r=0;t=1"));
    assert_eq!(
        refused.json(),
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": 429,
            "detail": "denied by `checkout`: 1000/s burst 2, 0 left, free again in 1 ms",
            "violated-policies": ["checkout"],
        })
    );
    // A microsecond before that time it is refused, and at that time it is not.
    clock.advance(std::time::Duration::from_micros(999));
    assert_eq!(send(&guard, by("42", get("/"))).status, 429);
    clock.advance(std::time::Duration::from_micros(1));
    assert_eq!(send(&guard, by("42", get("/"))).status, 200);
}

#[test]
fn seconds_are_rounded_up() {
    let (guard, clock) = guard_of(Rule::new("x", "1 per 10s").by("'all'"));
    assert_eq!(send(&guard, get("/")).header("ratelimit"), Some("\"x\";r=0;t=10"));
    clock.advance(ms(8_999));
    let refused = send(&guard, get("/"));
    assert_eq!(refused.header("retry-after"), Some("2"));
    assert_eq!(refused.header("ratelimit"), Some("\"x\";r=0;t=2"));
    assert_eq!(refused.detail(), "denied by `x`: 1 per 10s, 0 left, free again in 1.1 s");
}

#[test]
fn a_client_that_retries_after_the_stated_time_is_served() {
    let (guard, clock) = guard_of(Rule::new("x", "3 per 10s sliding-log").by("'all'"));
    let mut served = 0;
    for _ in 0..20 {
        let response = send(&guard, get("/"));
        match response.header("retry-after") {
            None => served += 1,
            Some(seconds) => {
                clock.advance(std::time::Duration::from_secs(seconds.parse().unwrap()));
                assert_eq!(send(&guard, get("/")).status, 200);
            }
        }
        clock.advance(ms(137));
    }
    assert!(served > 0);
}

fn list(text: &str) -> List {
    Parser::new(text).parse::<List>().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn members(text: &str) -> Vec<(String, Vec<(String, BareItem)>)> {
    let member = |entry: ListEntry| {
        let ListEntry::Item(item) = entry else { panic!("not an item: {entry:?}") };
        let name = item.bare_item.as_string().expect("a name is a string").as_str().to_string();
        (name, item.params.into_iter().map(|(key, value)| (key.as_str().to_string(), value)).collect())
    };
    list(text).into_iter().map(member).collect()
}

#[test]
fn an_independent_parser_reads_what_was_meant() {
    let (guard, _) = build(|guard| {
        guard
            .rule(Rule::new("a-1.b:c/d_e", "100/min").by("user").show_keys())
            .rule(Rule::new("burst", "5/s burst 20").limit("1000000000000/week fixed-window").by("user"))
            .rule(Rule::new("slots", "10 concurrent").by("user"))
    });
    let response = send(&guard, by("\u{e4}nn", get("/")));
    let integer = |number: i64| BareItem::from(sfv::Integer::try_from(number).unwrap());
    let has = |params: &[(String, BareItem)], name: &str, value: BareItem| {
        assert!(params.contains(&(name.into(), value.clone())), "{name}={value:?} in {params:?}");
    };
    let policies = members(response.header("ratelimit-policy").unwrap());
    let names: Vec<&str> = policies.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a-1.b:c/d_e", "burst", "burst/2", "slots"]);
    has(&policies[0].1, "q", integer(100));
    has(&policies[0].1, "w", integer(60));
    has(&policies[1].1, "q", integer(20));
    has(&policies[1].1, "w", integer(4));
    has(&policies[2].1, "q", integer(1_000_000_000_000));
    assert!(policies[3].1.iter().all(|(name, _)| name != "w"));
    let limits = members(response.header("ratelimit").unwrap());
    has(&limits[0].1, "r", integer(99));
    has(&limits[0].1, "t", integer(1));
    has(&limits[1].1, "r", integer(19));
    has(&limits[3].1, "r", integer(9));
    assert!(limits[3].1.iter().all(|(name, _)| name != "t"));
    has(&limits[0].1, "pk", BareItem::ByteSequence("user:\u{e4}nn".as_bytes().to_vec()));
    assert!(limits[1].1.iter().all(|(name, _)| name != "pk"), "only of a rule that shows its keys");
}

#[test]
fn older_fields_by_choice_and_none_at_all() {
    let (guard, _) = build(|guard| {
        guard
            .rule(Rule::new("a", "100/min").by("'x'"))
            .rule(Rule::new("b", "7 per 10s").by("'x'"))
            .headers(Headers::none().legacy())
    });
    let response = send(&guard, get("/"));
    assert_eq!(response.header("x-ratelimit-limit"), Some("7"));
    assert_eq!(response.header("x-ratelimit-remaining"), Some("6"));
    assert_eq!(response.header("x-ratelimit-reset"), Some("2"));
    assert_eq!(response.header("ratelimit"), None);

    let (guard, _) = build(|guard| guard.rule(Rule::new("a", "1/h").by("'x'")).headers(Headers::none()));
    assert!(send(&guard, get("/")).headers.is_empty());
    let refused = send(&guard, get("/"));
    assert_eq!(refused.header("retry-after"), Some("3600"));
    assert_eq!(refused.header("ratelimit-policy"), None);
}

#[test]
fn header_fields_of_the_service_stay() {
    let (guard, _) =
        build(|guard| guard.rule(Rule::new("a", "9/h").by("'x'")).headers(Headers::standard().legacy()));
    let upstream = service_fn(|_: Request<()>| async {
        let response = Response::builder()
            .header("ratelimit", "\"own\";r=1;t=2")
            .header("ratelimit-policy", "\"own\";q=5;w=9")
            .header("x-ratelimit-limit", "5")
            .body(Full::<Bytes>::from("x"));
        Ok::<_, Infallible>(response.unwrap())
    });
    let response = block_on(guard.layer().layer(upstream).call(get("/"))).unwrap();
    let lines = |name: &str| {
        let lines = response.headers().get_all(name).iter().map(|value| value.to_str().unwrap());
        lines.collect::<Vec<_>>().join(", ")
    };
    assert_eq!(lines("ratelimit"), "\"own\";r=1;t=2, \"a\";r=8;t=400");
    assert_eq!(members(&lines("ratelimit-policy")).len(), 2);
    assert_eq!(lines("x-ratelimit-limit"), "5");
    assert_eq!(lines("x-ratelimit-remaining"), "8");
}

#[test]
fn a_refusal_can_look_like_the_house() {
    fn in_house(refused: &Refused<'_>) -> Response<Bytes> {
        let body = serde_json::json!({
            "code": refused.status().as_u16(),
            "message": format!("busy, come back in {} s", refused.retry_after_seconds().unwrap_or(0)),
            "data": null,
        });
        Response::builder()
            .status(200)
            .header("x-rule", refused.rule())
            .body(body.to_string().into())
            .unwrap()
    }
    let (guard, _) = build(|guard| guard.rule(Rule::new("seckill", "1 per 5s").by("'x'")).render(in_house));
    send(&guard, get("/"));
    let response = send(&guard, get("/"));
    assert_eq!(response.status, 200);
    assert_eq!(response.header("x-rule"), Some("seckill"));
    assert_eq!(response.header("retry-after"), Some("5"));
    assert_eq!(response.header("ratelimit"), Some("\"seckill\";r=0;t=5"));
    assert_eq!(response.body, r#"{"code":429,"data":null,"message":"busy, come back in 5 s"}"#);
}

#[test]
fn the_services_errors_pass_unchanged() {
    let (guard, _) = guard_of(Rule::new("a", "9/h").by("'x'"));
    let broken = service_fn(|_: Request<()>| async { Err::<Response<Full<Bytes>>, _>("broken") });
    assert_eq!(block_on(guard.layer().layer(broken).call(get("/"))).unwrap_err(), "broken");
}

#[test]
fn of_two_refusals_the_later_one_counts() {
    let (guard, _) = build(|guard| {
        guard.rule(Rule::new("slow", "1/h").by("'x'")).rule(Rule::new("fast", "1 per 10s").by("'x'"))
    });
    send(&guard, get("/"));
    let refused = send(&guard, get("/"));
    assert_eq!(refused.header("retry-after"), Some("3600"));
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["slow", "fast"]));
    assert!(refused.detail().starts_with("denied by `slow`"));
}

#[test]
fn a_known_time_is_stated_beside_an_unknown_one() {
    let (guard, _) = build(|guard| {
        guard.rule(Rule::new("slots", "1 concurrent").by("'x'")).rule(Rule::new("rate", "1/h").by("'x'"))
    });
    let held = now(shop(&guard).call(get("/"))).unwrap();
    let refused = send(&guard, get("/"));
    assert_eq!(refused.header("retry-after"), Some("3600"));
    assert!(refused.detail().starts_with("denied by `rate`"), "{}", refused.detail());
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["slots", "rate"]));
    drop(held);
}

#[test]
fn a_store_that_is_full_is_not_the_clients_fault() {
    let options = GateOptions::new().max_keys(1).overflow(Overflow::Refuse);
    let (guard, _) = guard_of(Rule::new("x", "5/h").by("user").options(options));
    let refused = (0..10_000).map(|user| send(&guard, by(&user.to_string(), get("/"))));
    let refused = refused.into_iter().find(|response| response.status != 200).unwrap();
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, None));
    let kind = refused.json()["type"].as_str().unwrap().to_string();
    assert!(kind.ends_with("#temporary-reduced-capacity"), "{kind}");
    assert!(refused.detail().ends_with("no room for another key"), "{}", refused.detail());
}
