//! Slots of concurrency limits: held until the body has ended.

use crate::support::*;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use tidegate::http::Guard;
use tidegate::rules::Rule;
use tower::{Layer, Service, service_fn};

/// Frames that are ready when they are polled.
struct Frames(VecDeque<Result<Frame<Bytes>, &'static str>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(self.0.pop_front())
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(
            self.0.iter().flatten().filter_map(Frame::data_ref).map(|d| d.len() as u64).sum(),
        )
    }
}

type GuardedResponse = Response<tidegate::http::Body<Frames>>;

fn call(guard: &Guard, frames: Vec<Result<Frame<Bytes>, &'static str>>) -> GuardedResponse {
    let frames = std::rc::Rc::new(std::cell::Cell::new(Some(Frames(frames.into()))));
    let service = service_fn(move |_: Request<()>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(frames.take().unwrap())))
    });
    now(guard.layer().layer(service).call(get("/"))).unwrap()
}

fn data(text: &'static str) -> Result<Frame<Bytes>, &'static str> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn one_slot() -> (Guard, impl Fn() -> u64) {
    let (guard, _) = guard_of(Rule::new("x", "1 concurrent").by("'all'"));
    let gate = guard.rules().limiter().get("x").unwrap();
    (guard, move || gate.peek("'all'").remaining())
}

#[test]
fn a_slot_is_held_until_the_body_has_ended() {
    let (guard, free) = one_slot();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    let mut response = call(&guard, vec![data("ab"), data("c"), Ok(Frame::trailers(trailers.clone()))]);
    assert_eq!(free(), 0);
    assert_eq!(response.headers()["ratelimit"], "\"x\";r=0");
    let body = response.body_mut();
    assert_eq!(body.size_hint().exact(), Some(3));
    assert_eq!(now(body.frame()).unwrap().unwrap().into_data().unwrap(), "ab");
    assert_eq!(now(body.frame()).unwrap().unwrap().into_data().unwrap(), "c");
    assert!(!body.is_end_stream());
    assert_eq!(free(), 0);
    assert_eq!(now(body.frame()).unwrap().unwrap().into_trailers().unwrap(), trailers);
    assert!(body.is_end_stream());
    assert_eq!(free(), 1, "nobody asks a body again that says it has ended");
}

#[test]
fn a_slot_comes_back_when_the_body_is_dropped_or_fails() {
    let (guard, free) = one_slot();
    let response = call(&guard, vec![data("ab"), data("c")]);
    assert_eq!(free(), 0);
    drop(response);
    assert_eq!(free(), 1);

    let mut response = call(&guard, vec![data("ab"), Err("cut"), data("never")]);
    assert!(now(response.body_mut().frame()).unwrap().is_ok());
    assert_eq!(free(), 0);
    assert_eq!(now(response.body_mut().frame()).unwrap().unwrap_err(), "cut");
    assert_eq!(free(), 1);
}

#[test]
fn a_slot_comes_back_when_the_service_fails_or_the_client_goes_away() {
    let (guard, free) = one_slot();
    let broken = service_fn(|_: Request<()>| async { Err::<Response<Frames>, _>("broken") });
    assert!(now(guard.layer().layer(broken).call(get("/"))).is_err());
    assert_eq!(free(), 1);

    let stuck = service_fn(|_: Request<()>| std::future::pending::<Result<Response<Frames>, Infallible>>());
    let mut response = Box::pin(guard.layer().layer(stuck).call(get("/")));
    assert!(poll_once(response.as_mut()).is_pending());
    assert_eq!(free(), 0);
    drop(response);
    assert_eq!(free(), 1);
}

#[test]
fn a_request_that_finds_no_slot_is_refused_or_queues() {
    let (guard, _) = one_slot();
    let held = call(&guard, vec![data("ab")]);
    let refused = send(&guard, get("/"));
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), None, "nobody knows when");
    assert_eq!(refused.detail(), "denied by `x`: 1 concurrent, 0 left, free when others are done");
    drop(held);

    let (guard, _) = guard_of(Rule::new("x", "1 concurrent queue 1 wait 5s").by("'all'"));
    let held = call(&guard, vec![data("ab")]);
    let mut shop = shop(&guard);
    let mut queued = pin!(shop.call(get("/")));
    assert!(poll_once(queued.as_mut()).is_pending());
    drop(held);
    assert!(poll_once(queued).is_ready());
}

#[test]
fn a_concurrency_limit_in_shadow_counts_the_requests_in_progress() {
    let (guard, _) = guard_of(Rule::new("x", "1 concurrent").by("'all'").shadow());
    let gate = guard.rules().limiter().get("x").unwrap();
    let first = call(&guard, vec![data("ab")]);
    let second = call(&guard, vec![data("ab")]);
    assert_eq!((second.status().as_u16(), gate.peek("'all'").remaining()), (200, 0));
    drop(first);
    assert_eq!(gate.peek("'all'").remaining(), 1);
}

#[test]
fn a_rate_is_not_given_back_with_the_slot() {
    let (guard, _) = guard_of(Rule::new("x", "5 concurrent").limit("10/h").by("'all'"));
    drop(call(&guard, vec![data("ab")]));
    assert_eq!(guard.rules().limiter().get("x").unwrap().peek("'all'").remaining(), 5);
    assert_eq!(guard.rules().limiter().get("x/2").unwrap().peek("'all'").remaining(), 9);
}
