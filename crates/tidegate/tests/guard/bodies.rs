//! Bodies that several guards read, and bodies that come slowly.

use crate::logged::logged;
use crate::support::*;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tidegate::http::{Guard, GuardBuilder, Refused};
use tidegate::rules::{Missing, Observer, Record, Rule};
use tidegate::{Limiter, ManualClock};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tracing::Level;

fn order(body: &'static str) -> Request<Full<Bytes>> {
    Request::post("/orders").header("content-type", "application/json").body(body.into()).unwrap()
}

const ORDER: &str = r#"{"goods": 7, "coupon": "spring"}"#;

/// Two guards, each with a rule by a field of its own.
fn two_guards(goods: &str, coupon: &str) -> (Guard, Guard) {
    let (limiter, _) = limiter();
    let guard = |name: &str, by: &str| {
        Guard::new(&limiter).rule(Rule::new(name, "9/h").by(by.to_owned())).build().unwrap()
    };
    (guard("by-goods", goods), guard("by-coupon", coupon))
}

fn used(guard: &Guard, rule: &str, key: &str) -> u64 {
    9 - guard.rules().limiter().get(rule).unwrap().peek(key).remaining()
}

#[test]
fn two_json_layers_do_not_overwrite_each_others_fields() {
    let keys = ("json:/goods", "json:/coupon");
    let assert_both = |one: &Guard, other: &Guard, status: StatusCode, nesting: &str| {
        assert_eq!(status, 200, "{nesting}");
        assert_eq!(used(one, "by-goods", "json:/goods=7"), 1, "{nesting}");
        assert_eq!(used(other, "by-coupon", "json:/coupon=spring"), 1, "{nesting}");
    };
    let (one, other) = two_guards(keys.0, keys.1);
    let mut shop = ServiceBuilder::new()
        .layer(one.json_layer())
        .layer(other.json_layer())
        .layer(one.layer())
        .layer(other.layer())
        .service(Shop::default());
    let status = block_on(shop.call(order(ORDER))).unwrap().status();
    assert_both(&one, &other, status, "both JSON layers outside, first guard first");

    let (one, other) = two_guards(keys.0, keys.1);
    let mut shop = ServiceBuilder::new()
        .layer(other.json_layer())
        .layer(one.json_layer())
        .layer(one.layer())
        .layer(other.layer())
        .service(Shop::default());
    let status = block_on(shop.call(order(ORDER))).unwrap().status();
    assert_both(&one, &other, status, "both JSON layers outside, second guard first");

    let (one, other) = two_guards(keys.0, keys.1);
    let mut shop = ServiceBuilder::new()
        .layer(one.json_layer())
        .layer(one.layer())
        .layer(other.json_layer())
        .layer(other.layer())
        .service(Shop::default());
    let status = block_on(shop.call(order(ORDER))).unwrap().status();
    assert_both(&one, &other, status, "each guard within its own");

    let (one, other) = two_guards(keys.0, keys.1);
    let mut shop = ServiceBuilder::new()
        .layer(one.json_layer())
        .layer(other.json_layer())
        .layer(other.layer())
        .layer(one.layer())
        .service(Shop::default());
    let status = block_on(shop.call(order(ORDER))).unwrap().status();
    assert_both(&one, &other, status, "the outer JSON layer with the inner guard");
}

#[test]
fn two_choices_of_one_guard_may_have_a_json_layer_each() {
    let (guard, _) = build(|guard| {
        guard
            .rule(Rule::new("by-goods", "9/h").by("json:/goods"))
            .rule(Rule::new("by-coupon", "9/h").by("json:/coupon"))
    });
    let (goods, coupons) = (guard.only(["by-goods"]).unwrap(), guard.except(["by-goods"]).unwrap());
    let mut shop = ServiceBuilder::new()
        .layer(goods.json_layer())
        .layer(coupons.json_layer())
        .layer(goods.layer())
        .layer(coupons.layer())
        .service(Shop::default());
    assert_eq!(block_on(shop.call(order(ORDER))).unwrap().status(), 200);
    assert_eq!(used(&guard, "by-goods", "json:/goods=7"), 1);
    assert_eq!(used(&guard, "by-coupon", "json:/coupon=spring"), 1);
}

#[test]
fn a_layer_that_reads_less_takes_nothing_from_one_that_reads_more() {
    for is_outer in [true, false] {
        let (one, other) = two_guards("json:/goods", "json:/goods + json:/coupon");
        let (few, many) = (one.json_layer().max_bytes(8), other.json_layer());
        let guards = ServiceBuilder::new().layer(one.layer()).layer(other.layer());
        let status = if is_outer {
            let mut shop =
                ServiceBuilder::new().layer(few).layer(many).layer(guards).service(Shop::default());
            block_on(shop.call(order(ORDER))).unwrap().status()
        } else {
            let mut shop =
                ServiceBuilder::new().layer(many).layer(few).layer(guards).service(Shop::default());
            block_on(shop.call(order(ORDER))).unwrap().status()
        };
        assert_eq!(status, 200);
        assert_eq!(used(&one, "by-goods", "json:/goods=7"), 1, "{is_outer}");
        assert_eq!(used(&other, "by-coupon", "json:/goods=7+json:/coupon=spring"), 1, "{is_outer}");
    }
}

/// A body that begins, and goes on when the test sends the rest.
#[derive(Clone, Default)]
struct Slow(Arc<Mutex<SlowState>>);

#[derive(Default)]
struct SlowState {
    frames: Vec<&'static str>,
    is_over: bool,
    waker: Option<std::task::Waker>,
}

impl Slow {
    fn send(&self, frame: &'static str, is_over: bool) {
        let mut state = self.0.lock().unwrap();
        state.frames.push(frame);
        state.is_over = is_over;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

impl Body for Slow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut state = self.0.lock().unwrap();
        if !state.frames.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(state.frames.remove(0).into()))));
        }
        if state.is_over {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

fn slow_order() -> (Slow, Request<Slow>) {
    let body = Slow::default();
    body.send(r#"{"goods":"#, false);
    let request = Request::post("/orders").header("content-type", "application/json").body(body.clone());
    (body, request.unwrap())
}

/// Every outcome and its sentence.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Observer for Recorder {
    fn verdict(&self, record: &Record<'_>) {
        let took = record.took().as_secs();
        self.0.lock().unwrap().push(format!("[{}] {record}; it took {took} s", record.outcome()));
    }
}

fn slow_guard(rule: Rule, with: impl FnOnce(GuardBuilder) -> GuardBuilder) -> (Guard, ManualClock, Recorder) {
    let (recorded, clock) = (Recorder::default(), ManualClock::new());
    let limiter = Limiter::builder().clock(clock.clone()).max_keys(100).build();
    let guard = with(Guard::new(&limiter).rule(rule).observer(recorded.clone())).build().unwrap();
    (guard, clock, recorded)
}

#[test]
fn a_slow_json_body_is_refused_when_its_time_is_over() {
    let rule = Rule::new("goods", "2 concurrent").by("json:/goods");
    let (guard, clock, recorded) = slow_guard(rule, |guard| guard);
    let shop = Shop::default();
    let mut service =
        ServiceBuilder::new().layer(guard.json_layer()).layer(guard.layer()).service(shop.clone());
    let (_body, request) = slow_order();
    let mut response = pin!(service.call(request));
    assert!(poll_once(response.as_mut()).is_pending());
    clock.advance(ms(9_999));
    assert!(poll_once(response.as_mut()).is_pending(), "10 s are its time");
    // It holds no slot while its body comes.
    assert_eq!(guard.rules().limiter().get("goods").unwrap().peek("(no json:/goods)").remaining(), 2);
    clock.advance(ms(1));
    let Poll::Ready(Ok(response)) = poll_once(response.as_mut()) else { panic!("it waits for ever") };
    assert_eq!(response.status(), 408);
    assert_eq!(response.headers()["content-type"], "application/problem+json");
    assert_eq!(response.headers()["connection"], "close");
    let body = block_on(response.into_body().collect()).unwrap().to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["title"], "Request Timeout");
    assert_eq!(problem["detail"], "refused by `goods`: the request's body did not come in time");
    // Neither served, nor charged.
    assert_eq!(shop.served.load(std::sync::atomic::Ordering::SeqCst), 0);
    for key in ["(no json:/goods)", "json:/goods=7"] {
        assert_eq!(guard.rules().limiter().get("goods").unwrap().peek(key).remaining(), 2, "{key}");
    }
    let sentence = "[slow_body] refused by `goods`: the request's body did not come in time; it took 10 s";
    assert_eq!(*recorded.0.lock().unwrap(), [sentence]);
}

#[test]
fn a_body_that_comes_in_time_is_decided_by_its_fields() {
    let (guard, clock, _) = slow_guard(Rule::new("goods", "9/h").by("json:/goods"), |guard| guard);
    let mut service = ServiceBuilder::new()
        .layer(guard.json_layer().body_timeout(ms(2_000)))
        .layer(guard.layer())
        .service(Shop::default());
    let (body, request) = slow_order();
    let mut response = pin!(service.call(request));
    assert!(poll_once(response.as_mut()).is_pending());
    clock.advance(ms(1_999));
    body.send(" 7}", true);
    let Poll::Ready(Ok(response)) = poll_once(response.as_mut()) else { panic!("it is whole") };
    assert_eq!(response.status(), 200);
    assert_eq!(used(&guard, "goods", "json:/goods=7"), 1);
    // No timer is left.
    assert!(tidegate::Clock::timer(&clock).is_empty());
}

#[test]
fn the_bound_in_bytes_ends_a_slow_body_before_its_time() {
    let (guard, _, _) = slow_guard(Rule::new("goods", "9/h").by("json:/goods"), |guard| guard);
    let mut service = ServiceBuilder::new()
        .layer(guard.json_layer().max_bytes(16))
        .layer(guard.layer())
        .service(Shop::default());
    let (body, request) = slow_order();
    let mut response = pin!(service.call(request));
    assert!(poll_once(response.as_mut()).is_pending());
    body.send(" 7, and so on, never to end", false);
    assert!(poll_once(response.as_mut()).is_ready());
    assert_eq!(used(&guard, "goods", "(no json:/goods)"), 1);
}

#[test]
fn slow_bodies_are_rendered_too() {
    let in_house = |refused: &Refused<'_>| {
        let mut response = Response::new(Bytes::from(format!("{}: {refused}", refused.outcome())));
        *response.status_mut() = refused.status();
        response
    };
    let (guard, clock, _) =
        slow_guard(Rule::new("goods", "9/h").by("json:/goods"), |guard| guard.render(in_house));
    let mut service =
        ServiceBuilder::new().layer(guard.json_layer()).layer(guard.layer()).service(Shop::default());
    let (_body, request) = slow_order();
    let mut response = pin!(service.call(request));
    assert!(poll_once(response.as_mut()).is_pending());
    clock.advance(ms(10_000));
    let Poll::Ready(Ok(response)) = poll_once(response.as_mut()) else { panic!("it waits for ever") };
    assert_eq!(response.status(), 408);
    let body = block_on(response.into_body().collect()).unwrap().to_bytes();
    assert_eq!(body, "slow_body: refused by `goods`: the request's body did not come in time");
}

#[test]
fn a_slow_body_that_no_rule_in_force_needs_goes_on_unread() {
    let by_goods = || Rule::new("goods", "9/h").by("json:/goods");
    let goes_on = |rule: Rule, with: &dyn Fn(GuardBuilder) -> GuardBuilder, is_off: bool| {
        let (guard, clock, _) = slow_guard(rule, with);
        let shop = Shop::default();
        let mut service =
            ServiceBuilder::new().layer(guard.json_layer()).layer(guard.layer()).service(shop.clone());
        let (_body, request) = slow_order();
        let mut response = pin!(service.call(from("192.0.2.1", request)));
        assert!(poll_once(response.as_mut()).is_pending());
        if is_off {
            guard.rules().switch_off();
        }
        clock.advance(ms(10_000));
        let Poll::Ready(Ok(response)) = poll_once(response.as_mut()) else { panic!("it waits for ever") };
        assert_eq!(response.status(), 200);
        assert_eq!(shop.served.load(std::sync::atomic::Ordering::SeqCst), 1);
    };
    goes_on(by_goods().shadow(), &|guard| guard, false);
    goes_on(by_goods().allow_networks(["192.0.2.0/24"]), &|guard| guard, false);
    goes_on(by_goods(), &|guard| guard.allow_networks(["192.0.2.0/24"]), false);
    goes_on(by_goods(), &|guard| guard, true);
}

#[test]
fn a_slow_body_is_passed_on_where_no_rule_needs_it() {
    let (guard, clock, _) = slow_guard(Rule::new("all", "9/h").by("'all'"), |guard| guard);
    let mut service = guard.json_layer().layer(Shop::default());
    let (_body, request) = slow_order();
    assert_eq!(now(service.call(request)).unwrap().status(), 200);
    assert!(tidegate::Clock::timer(&clock).is_empty());
}

#[test]
fn a_slow_body_holds_no_permit_of_the_service_behind() {
    let (guard, clock, _) = slow_guard(Rule::new("goods", "9/h").by("json:/goods"), |guard| guard);
    let shop = ServiceBuilder::new()
        .layer(guard.json_layer())
        .layer(guard.layer())
        .service(ConcurrencyLimit::new(Shop::default(), 1));
    let send = |request: Request<Slow>| Box::pin(shop.clone().oneshot(request));
    let (first, request) = slow_order();
    let mut slow = send(request);
    assert!(poll_once(slow.as_mut()).is_pending());
    let (second, request) = slow_order();
    second.send(" 8}", true);
    // The one permit is free.
    let Poll::Ready(Ok(response)) = poll_once(send(request).as_mut()) else {
        panic!("it waits for the slow one")
    };
    assert_eq!(response.status(), 200);
    // While another request holds it, a request with its body read waits for it, without a timeout.
    let mut other = shop.clone();
    assert!(poll_once(pin!(ServiceExt::<Request<Slow>>::ready(&mut other))).is_ready());
    first.send(" 7}", true);
    assert!(poll_once(slow.as_mut()).is_pending());
    clock.advance(ms(20_000));
    assert!(poll_once(slow.as_mut()).is_pending());
    drop(other);
    let Poll::Ready(Ok(response)) = poll_once(slow.as_mut()) else { panic!("the permit is free again") };
    assert_eq!(response.status(), 200);
}

/// A body that must not be read.
struct Untouched;

impl Body for Untouched {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("the body is read");
    }
}

fn untouched(request: Request<()>) -> Request<Untouched> {
    with("content-type", "application/json", request).map(|()| Untouched)
}

fn status_of(guard: &Guard, request: Request<Untouched>) -> StatusCode {
    let mut shop =
        ServiceBuilder::new().layer(guard.json_layer()).layer(guard.layer()).service(Shop::default());
    block_on(shop.call(request)).unwrap().status()
}

/// The request would be refused in any case, after a slow body.
#[test]
fn the_body_of_a_client_in_a_denied_network_is_not_read() {
    let goods = || Rule::new("goods", "9/h").by("json:/goods").missing(Missing::Refuse);
    let denied = ["198.51.100.0/24"];
    for (name, (guard, _)) in [
        ("the guard's list", build(|guard| guard.rule(goods()).deny_networks(denied))),
        ("the rule's list", guard_of(goods().deny_networks(denied))),
        (
            "the list of a rule behind",
            build(|guard| guard.rule(goods()).rule(Rule::new("ip", "9/h").by("ip").deny_networks(denied))),
        ),
    ] {
        let lines = logged("tidegate::rules", Level::WARN, || {
            let request = untouched(from("198.51.100.7", post("/orders")));
            assert_eq!(status_of(&guard, request), 403, "{name}");
        });
        assert!(!lines.iter().any(|line| line.contains("json_layer")), "{name}: {lines:#?}");
    }
    // A client that only a rule in shadow denies is served, and its body is read.
    let (guard, _) = build(|guard| {
        let shadow = Rule::new("shadow", "9/h").by("ip").deny_networks(denied).shadow();
        guard.rule(goods()).rule(shadow)
    });
    let mut shop =
        ServiceBuilder::new().layer(guard.json_layer()).layer(guard.layer()).service(Shop::default());
    let request = from("198.51.100.7", order(ORDER));
    assert_eq!(block_on(shop.call(request)).unwrap().status(), 200);
    assert_eq!(used(&guard, "goods", "json:/goods=7"), 1);
}

#[test]
fn the_body_of_a_preflight_that_passes_is_not_read() {
    let goods = Rule::new("goods", "9/h").by("json:/goods");
    let (guard, _) = build(|guard| guard.rule(goods).pass_preflights());
    let preflight = Request::options("/orders")
        .header("origin", "http://127.0.0.1:8000")
        .header("access-control-request-method", "POST")
        .body(())
        .unwrap();
    assert_eq!(status_of(&guard, untouched(preflight)), 200);
}
