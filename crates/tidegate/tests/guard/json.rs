//! Keys from JSON bodies, and bodies that arrive as they were sent.

use crate::support::*;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tidegate::http::{Guard, Replay};
use tidegate::rules::Rule;
use tower::{Layer, Service, ServiceBuilder, service_fn};

/// A body in given chunks, some of them not there yet, that counts how often it is polled.
struct Chunks {
    frames: VecDeque<Option<Result<Frame<Bytes>, &'static str>>>,
    polls: Arc<AtomicUsize>,
    declared_length: Option<u64>,
}

impl Chunks {
    fn new(chunks: &[&[u8]]) -> Self {
        let frame = |chunk: &&[u8]| Some(Ok(Frame::data(Bytes::copy_from_slice(chunk))));
        Self { frames: chunks.iter().map(frame).collect(), polls: Arc::default(), declared_length: None }
    }
}

impl Body for Chunks {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        match self.frames.pop_front() {
            Some(Some(frame)) => Poll::Ready(Some(frame)),
            Some(None) => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.declared_length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

fn guard() -> Guard {
    let rule = Rule::new("goods", "2/h").on("POST /orders").by("json:/order/goodsId");
    guard_of(rule).0
}

/// What the service behind both layers receives of a body.
type Received = (Vec<u8>, Option<HeaderMap>, Option<&'static str>);

async fn receive(mut body: Replay<Chunks>) -> Received {
    let (mut bytes, mut trailers, mut error) = (Vec::new(), None, None);
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => bytes.extend_from_slice(&data),
            Ok(Err(frame)) => trailers = frame.into_trailers().ok(),
            Err(cut) => {
                error = Some(cut);
                break;
            }
        }
    }
    (bytes, trailers, error)
}

/// The status, and what the service received if it was called.
fn send_body(guard: &Guard, max: usize, kind: &str, body: Chunks) -> (u16, Option<Received>) {
    let received = Arc::new(std::sync::Mutex::new(None));
    let service = {
        let received = received.clone();
        service_fn(move |request: Request<Replay<Chunks>>| {
            let received = received.clone();
            async move {
                *received.lock().unwrap() = Some(receive(request.into_body()).await);
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("x")))
            }
        })
    };
    let mut service =
        ServiceBuilder::new().layer(guard.json_layer().max_bytes(max)).layer(guard.layer()).service(service);
    let request = Request::post("/orders").header("content-type", kind).body(body).unwrap();
    let status = block_on(service.call(request)).unwrap().status().as_u16();
    (status, received.lock().unwrap().take())
}

const ORDER: &[u8] = br#"{"order": {"goodsId": 7, "count": 2}}"#;

fn remaining(guard: &Guard, key: &str) -> u64 {
    guard.rules().limiter().get("goods").unwrap().peek(key).remaining()
}

#[test]
fn a_field_is_a_key_and_the_body_arrives() {
    let guard = guard();
    for _ in 0..2 {
        let (status, received) =
            send_body(&guard, 100, "application/json; charset=utf-8", Chunks::new(&[ORDER]));
        assert_eq!((status, received.unwrap().0.as_slice()), (200, ORDER));
    }
    let (status, received) = send_body(&guard, 100, "application/vnd.shop+json", Chunks::new(&[ORDER]));
    assert_eq!((status, received), (429, None));
    assert_eq!(remaining(&guard, "json:/order/goodsId=7"), 0);
    let other = br#"{"order": {"goodsId": 8}}"#;
    assert_eq!(send_body(&guard, 100, "application/json", Chunks::new(&[other])).0, 200);
}

#[test]
fn what_is_too_long_broken_or_not_json_has_no_field() {
    for (kind, body) in [
        ("application/json", &[ORDER, &b" ".repeat(100)[..]].concat()[..]),
        ("application/json", &ORDER[..ORDER.len() - 1]),
        ("text/plain", ORDER),
        ("application/jsonp", ORDER),
    ] {
        let guard = guard();
        let (status, received) = send_body(&guard, 100, kind, Chunks::new(&[body]));
        assert_eq!((status, received.unwrap().0.as_slice()), (200, body));
        assert_eq!(remaining(&guard, "json:/order/goodsId=7"), 2, "{kind}");
        assert_eq!(remaining(&guard, "(no json:/order/goodsId)"), 1, "{kind}");
    }
}

#[test]
fn no_more_is_read_than_it_takes() {
    let chunk = &[b' '; 40][..];
    let body = Chunks::new(&[chunk; 50]);
    let polls = body.polls.clone();
    // A guard that refuses every request without the field: how much was read before?
    let refusing = guard_of(Rule::new("x", "1/h").by("json:/a").cost_with(|_| 2)).0;
    assert_eq!(send_body(&refusing, 100, "application/json", body).0, 429);
    assert_eq!(polls.load(Ordering::SeqCst), 3, "120 bytes are more than 100");

    let mut body = Chunks::new(&[chunk; 50]);
    body.declared_length = Some(2000);
    let polls = body.polls.clone();
    assert_eq!(send_body(&refusing, 100, "application/json", body).0, 429);
    assert_eq!(polls.load(Ordering::SeqCst), 0, "its declared length is too long");

    // Where no rule needs a field, nothing is read.
    let body = Chunks::new(&[ORDER]);
    let polls = body.polls.clone();
    let plain = guard_of(Rule::new("x", "1/h").by("'all'").cost_with(|_| 2)).0;
    assert_eq!(send_body(&plain, 100, "application/json", body).0, 429);
    let body = Chunks::new(&[ORDER]);
    let elsewhere = guard_of(Rule::new("x", "1/h").on("GET /{*all}").by("json:/a")).0;
    let untouched = body.polls.clone();
    let seen = service_fn(|_: Request<Replay<Chunks>>| async { Ok::<_, Infallible>(Response::new(())) });
    let mut service = elsewhere.json_layer().layer(seen);
    let request = Request::post("/orders").header("content-type", "application/json").body(body).unwrap();
    assert!(now(service.call(request)).is_ok());
    assert_eq!((polls.load(Ordering::SeqCst), untouched.load(Ordering::SeqCst)), (0, 0));
}

#[test]
fn a_cost_can_come_from_the_body() {
    let rule = Rule::new("goods", "10/h").by("json:/order/goodsId").cost_from("json:/order/count", 5);
    let guard = guard_of(rule).0;
    assert_eq!(send_body(&guard, 100, "application/json", Chunks::new(&[ORDER])).0, 200);
    assert_eq!(remaining(&guard, "json:/order/goodsId=7"), 8);
}

#[test]
fn a_body_whose_cost_cannot_be_read_costs_the_maximum() {
    let spent = |kind: &str, body: &[u8]| {
        let guard = guard_of(Rule::new("x", "100/h").by("'all'").cost_from("json:/count", 50)).0;
        let (status, received) = send_body(&guard, 60, kind, Chunks::new(&[body]));
        assert_eq!((status, received.unwrap().0.as_slice()), (200, body));
        100 - guard.rules().limiter().get("x").unwrap().peek("'all'").remaining()
    };
    let json = |body: &str| spent("application/json", body.as_bytes());
    assert_eq!(json(r#"{"count": 7}"#), 7);
    assert_eq!(json(r#"{"count": 70}"#), 50);
    // It is JSON without the field.
    for lacks in ["{}", r#"{"other": 7}"#, "[7]", "7", r#"{"count": null}"#, r#"{"x": {"count": 7}}"#] {
        assert_eq!(json(lacks), 1, "{lacks}");
    }
    for ambiguous in [
        &format!(r#"{{"count": 7{}}}"#, " ".repeat(60)),
        r#"{"count": 7, "count": 7}"#,
        r#"{"count": 7, "c\u006funt": 1}"#,
        r#"{"count": 7"#,
        r#"{"count": 7} {}"#,
        r#"{"count": [7]}"#,
        r#"{"count": {}}"#,
        r#"{"count": "many"}"#,
        r#"{"count": -7}"#,
    ] {
        assert_eq!(json(ambiguous), 50, "{ambiguous}");
    }
    assert_eq!(spent("text/plain", br#"{"count": 7}"#), 50);
}

#[test]
fn a_request_without_a_body_costs_one() {
    let guard = guard_of(Rule::new("x", "100/h").by("'all'").cost_from("json:/count", 50)).0;
    let shop = service_fn(|_: Request<Replay<Full<Bytes>>>| async {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("x")))
    });
    let mut shop = ServiceBuilder::new().layer(guard.json_layer()).layer(guard.layer()).service(shop);
    assert_eq!(block_on(shop.call(get("/").map(|()| Full::default()))).unwrap().status(), 200);
    assert_eq!(guard.rules().limiter().get("x").unwrap().peek("'all'").remaining(), 99);
    // Some clients send a content type with an empty body, too.
    let mut request = get("/").map(|()| Full::default());
    request.headers_mut().insert("content-type", "application/json".parse().unwrap());
    assert_eq!(block_on(shop.call(request)).unwrap().status(), 200);
    assert_eq!(guard.rules().limiter().get("x").unwrap().peek("'all'").remaining(), 98);
}

#[test]
fn a_body_whose_declared_length_is_too_long_costs_the_maximum() {
    let guard = guard_of(Rule::new("x", "100/h").by("'all'").cost_from("json:/count", 50)).0;
    let mut body = Chunks::new(&[br#"{"count": 7}"#]);
    body.declared_length = Some(61);
    assert_eq!(send_body(&guard, 60, "application/json", body).0, 200);
    assert_eq!(guard.rules().limiter().get("x").unwrap().peek("'all'").remaining(), 50);
}

#[test]
fn a_cost_that_no_layer_reads_is_the_maximum() {
    let (guard, _) = guard_of(Rule::new("x", "100/h").by("'all'").cost_from("json:/count", 50));
    // Without `json_layer()`.
    assert_eq!(send(&guard, post("/orders")).status, 200);
    assert_eq!(guard.rules().limiter().get("x").unwrap().peek("'all'").remaining(), 50);
}

#[test]
fn an_error_in_the_body_arrives_as_one() {
    let guard = guard();
    let mut body = Chunks::new(&[&ORDER[..5]]);
    body.frames.push_back(Some(Err("cut")));
    let (status, received) = send_body(&guard, 100, "application/json", body);
    assert_eq!((status, received), (200, Some((ORDER[..5].to_vec(), None, Some("cut")))));
    assert_eq!(remaining(&guard, "(no json:/order/goodsId)"), 1);
}

#[test]
fn the_size_of_a_body_stays_what_it_was() {
    let guard = guard();
    let sizes = service_fn(|request: Request<Replay<Full<Bytes>>>| async move {
        let body = request.into_body();
        assert!(!body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(ORDER.len() as u64));
        Ok::<_, Infallible>(Response::new(()))
    });
    let mut service = guard.json_layer().layer(sizes);
    for kind in ["application/json", "text/plain"] {
        let body = Full::new(Bytes::from_static(ORDER));
        let request = Request::post("/orders").header("content-type", kind).body(body).unwrap();
        assert_eq!(block_on(service.call(request)).unwrap().status(), 200, "{kind}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_body_arrives_unchanged_however_it_is_cut(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        cuts in prop::collection::vec(0usize..300, 0..8),
        pauses in prop::collection::vec(any::<bool>(), 10),
        has_trailers: bool,
        max in 0usize..350,
    ) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.push(0);
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        let mut body = Chunks::new(&chunks);
        let mut trailers = None;
        if has_trailers {
            let mut map = HeaderMap::new();
            map.insert("x-sum", "1".parse().unwrap());
            trailers = Some(map.clone());
            body.frames.push_back(Some(Ok(Frame::trailers(map))));
        }
        for (at, pause) in pauses.iter().enumerate() {
            if *pause && at < body.frames.len() {
                body.frames.insert(at, None);
            }
        }
        let (status, received) = send_body(&guard(), max, "application/json", body);
        prop_assert_eq!(status, 200);
        prop_assert_eq!(received, Some((bytes, trailers, None)));
    }
}
