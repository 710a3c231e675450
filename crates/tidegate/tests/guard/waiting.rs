//! Waits, and what happens to requests that are given up.

use crate::support::*;
use http::Request;
use std::pin::pin;
use std::task::Poll;
use tidegate::http::Decided;
use tidegate::rules::Rule;
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt};

const LIMIT: &str = "1 per 10s wait 20s";

#[test]
fn a_request_waits_for_its_start() {
    let (guard, clock) = guard_of(Rule::new("x", LIMIT).by("'all'"));
    let mut shop = shop(&guard);
    assert_eq!(now(shop.call(get("/"))).unwrap().status(), 200);
    let mut second = pin!(shop.call(get("/")));
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(guard.rules().stats().waiting, 1);
    clock.advance(ms(9_999));
    assert!(poll_once(second.as_mut()).is_pending());
    clock.advance(ms(1));
    let Poll::Ready(Ok(response)) = poll_once(second) else { panic!("it is time") };
    assert_eq!(response.status(), 200);
    assert_eq!(guard.rules().stats().waiting, 0);
}

#[test]
fn a_request_that_would_wait_too_long_is_refused_at_once() {
    let (guard, _) = guard_of(Rule::new("x", LIMIT).by("'all'"));
    let mut shop = shop(&guard);
    assert_eq!(now(shop.call(get("/"))).unwrap().status(), 200);
    let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(shop.call(get("/")))).collect();
    assert!(waiting.iter_mut().all(|one| poll_once(one.as_mut()).is_pending()));
    let refused = block_on(whole(now(shop.call(get("/"))).unwrap()));
    assert_eq!(refused.status, 429);
    // The fourth could wait 20 s for the start at 30 s.
    assert_eq!(refused.header("retry-after"), Some("10"));
}

#[test]
fn a_client_that_goes_away_gives_its_start_back() {
    let (guard, clock) = guard_of(Rule::new("x", LIMIT).by("'all'"));
    let mut shop = shop(&guard);
    assert_eq!(now(shop.call(get("/"))).unwrap().status(), 200);
    let mut gone = Box::pin(shop.call(get("/")));
    assert!(poll_once(gone.as_mut()).is_pending());
    drop(gone);
    assert_eq!(guard.rules().stats().waiting, 0);
    let mut next = pin!(shop.call(get("/")));
    assert!(poll_once(next.as_mut()).is_pending());
    clock.advance(ms(10_000));
    assert!(poll_once(next).is_ready(), "the start of the one that went away");
}

#[test]
fn the_service_is_called_once_and_only_after_the_wait() {
    let (guard, clock) = guard_of(Rule::new("x", LIMIT).by("'all'"));
    let inner = Shop::default();
    let mut shop = guard.layer().layer(inner.clone());
    let served = || inner.served.load(std::sync::atomic::Ordering::SeqCst);
    assert!(now(shop.call(get("/"))).is_ok());
    let mut second = pin!(shop.call(get("/")));
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(served(), 1);
    clock.advance(ms(10_000));
    assert!(poll_once(second).is_ready());
    assert_eq!(served(), 2);
}

#[test]
fn a_request_that_waits_holds_no_permit_of_the_service_behind() {
    let (guard, clock) = guard_of(Rule::new("x", LIMIT).by("user"));
    let shop = guard.layer().layer(ConcurrencyLimit::new(Shop::default(), 1));
    let send = |user: &str| Box::pin(shop.clone().oneshot(by(user, get("/"))));
    assert_eq!(now(send("ann")).unwrap().status(), 200);
    let mut waits = send("ann");
    assert!(poll_once(waits.as_mut()).is_pending());
    // The one permit is free.
    assert_eq!(now(send("bob")).unwrap().status(), 200);
    // While another request holds it, a request that has waited long enough waits for it.
    let mut other = shop.clone();
    assert!(poll_once(pin!(ServiceExt::<Request<()>>::ready(&mut other))).is_ready());
    clock.advance(ms(10_000));
    assert!(poll_once(waits.as_mut()).is_pending());
    drop(other);
    let Poll::Ready(Ok(response)) = poll_once(waits.as_mut()) else { panic!("the permit is free again") };
    assert_eq!(response.status(), 200);
}

#[test]
fn when_as_many_wait_as_may_the_others_are_refused_with_a_time_to_retry() {
    let (guard, clock) = build(|guard| guard.rule(Rule::new("x", LIMIT).by("user")).max_waiting(1));
    let mut shop = shop(&guard);
    assert_eq!(now(shop.call(by("ann", get("/")))).unwrap().status(), 200);
    assert_eq!(now(shop.call(by("bob", get("/")))).unwrap().status(), 200);
    let mut waits = Box::pin(shop.call(by("ann", get("/"))));
    assert!(poll_once(waits.as_mut()).is_pending());
    let refused = block_on(whole(now(shop.call(by("bob", get("/")))).unwrap()));
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some("10")));
    // A request that need not wait is served all the same, and nothing was charged to bob.
    assert_eq!(now(shop.call(by("eve", get("/")))).unwrap().status(), 200);
    clock.advance(ms(10_000));
    assert_eq!(now(shop.call(by("bob", get("/")))).unwrap().status(), 200);
    drop(waits);
    let mut next = pin!(shop.call(by("bob", get("/"))));
    assert!(poll_once(next.as_mut()).is_pending(), "there is room to wait again");
}

#[test]
fn without_waiting_slots_and_rates_are_still_all_or_none() {
    let (guard, _) = build(|guard| {
        guard
            .rule(Rule::new("slots", "2 concurrent queue 5 wait 9s").by("'all'"))
            .rule(Rule::new("rate", "1 per 10s wait 20s").by("user"))
            .max_waiting(0)
    });
    let mut shop = shop(&guard);
    let slots = || guard.rules().limiter().get("slots").unwrap().peek("'all'").remaining();
    let first = now(shop.call(by("ann", get("/")))).unwrap();
    assert_eq!((first.status().as_u16(), slots()), (200, 1));
    // The rate refuses: the slot comes back.
    let refused = now(shop.call(by("ann", get("/")))).unwrap();
    assert_eq!((refused.status().as_u16(), slots()), (429, 1));
    let second = now(shop.call(by("bob", get("/")))).unwrap();
    assert_eq!((second.status().as_u16(), slots()), (200, 0));
    // The slot limit refuses: the rate is not charged.
    assert_eq!(now(shop.call(by("eve", get("/")))).unwrap().status(), 429);
    assert_eq!(guard.rules().limiter().get("rate").unwrap().peek("user:eve").remaining(), 1);
    drop((first, second));
    assert_eq!(now(shop.call(by("eve", get("/")))).unwrap().status(), 200);
}

#[test]
fn a_rule_in_shadow_delays_no_request() {
    let (guard, _) = guard_of(Rule::new("x", LIMIT).by("'all'").shadow());
    let mut shop = shop(&guard);
    for _ in 0..5 {
        assert_eq!(now(shop.call(get("/"))).unwrap().status(), 200);
    }
}

#[test]
fn a_handler_sees_how_long_it_waited() {
    let (guard, clock) = build(|guard| guard.rule(Rule::new("x", LIMIT).by("'all'")).decided_extension());
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let handler = {
        let seen = seen.clone();
        tower::service_fn(move |request: http::Request<()>| {
            let decided = request.extensions().get::<Decided>().cloned().unwrap();
            seen.lock().unwrap().push((decided.wait(), decided.remaining(), decided.policy("x").is_some()));
            async { Ok::<_, std::convert::Infallible>(http::Response::new(())) }
        })
    };
    let mut service = guard.layer().layer(handler);
    assert!(now(service.call(get("/"))).is_ok());
    let mut second = pin!(service.call(get("/")));
    assert!(poll_once(second.as_mut()).is_pending());
    clock.advance(ms(10_000));
    assert!(poll_once(second).is_ready());
    assert_eq!(*seen.lock().unwrap(), [(ms(0), Some(0), true), (ms(10_000), Some(0), true)]);
}

/// A bug: a rate whose gate was changed to one with a wait let requests run before their start.
#[test]
fn a_gate_changed_to_a_limit_with_a_wait_lets_no_request_start_early() {
    let (guard, clock) = build(|guard| {
        guard.rule(Rule::new("slots", "50 concurrent").by("'all'")).rule(Rule::new("rate", "5/s").by("'all'"))
    });
    guard.rules().limiter().get("rate").unwrap().change("5/s wait 10s").unwrap();
    let mut shop = shop(&guard);
    let mut started =
        |tries: usize| (0..tries).filter(|_| now(shop.call(get("/"))).unwrap().status() == 200).count();
    assert_eq!(started(20), 5);
    clock.advance(ms(1000));
    assert_eq!(started(20), 5, "nobody who was refused has used up a start");
    let refused = send(&guard, get("/"));
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some("1")));
    assert_eq!(guard.rules().limiter().get("slots").unwrap().peek("'all'").remaining(), 50);
}

#[test]
fn a_wait_for_a_slot_is_recorded() {
    let (guard, clock) = build(|guard| {
        guard.rule(Rule::new("x", "1 concurrent queue 1 wait 5s").by("'all'")).decided_extension()
    });
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let handler = {
        let seen = seen.clone();
        tower::service_fn(move |request: http::Request<()>| {
            seen.lock().unwrap().push(request.extensions().get::<Decided>().unwrap().wait());
            async { Ok::<_, std::convert::Infallible>(http::Response::new(String::from("x"))) }
        })
    };
    let mut service = guard.layer().layer(handler);
    let first = now(service.call(get("/"))).unwrap();
    let mut second = pin!(service.call(get("/")));
    assert!(poll_once(second.as_mut()).is_pending());
    clock.advance(ms(1_200));
    drop(first);
    assert!(poll_once(second).is_ready());
    assert_eq!(*seen.lock().unwrap(), [ms(0), ms(1_200)]);
}

#[test]
fn a_wait_for_a_slot_and_then_for_a_rate_is_recorded_whole() {
    let (guard, clock) = build(|guard| {
        guard
            .rule(Rule::new("slots", "1 concurrent queue 1 wait 5s").by("'all'"))
            .rule(Rule::new("rate", "1 per 2s wait 9s").by("'all'"))
            .decided_extension()
    });
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let handler = {
        let seen = seen.clone();
        tower::service_fn(move |request: http::Request<()>| {
            seen.lock().unwrap().push(request.extensions().get::<Decided>().unwrap().wait());
            async { Ok::<_, std::convert::Infallible>(http::Response::new(String::from("x"))) }
        })
    };
    let mut service = guard.layer().layer(handler);
    let first = now(service.call(get("/"))).unwrap();
    let mut second = pin!(service.call(get("/")));
    assert!(poll_once(second.as_mut()).is_pending());
    clock.advance(ms(500));
    drop(first);
    assert!(poll_once(second.as_mut()).is_pending(), "it has the slot, and waits for the rate");
    clock.advance(ms(1_500));
    assert!(poll_once(second).is_ready());
    assert_eq!(*seen.lock().unwrap(), [ms(0), ms(2_000)]);
}
