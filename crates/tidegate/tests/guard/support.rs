//! A shop behind a guard, and requests to it.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use std::convert::Infallible;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate::http::{Body, Guard, GuardBuilder, GuardService, Peer};
use tidegate::rules::Rule;
use tidegate::{Limiter, ManualClock, User};
use tower::{Layer, Service};

/// A limiter on a clock that stands still.
pub(crate) fn limiter() -> (Limiter, ManualClock) {
    let clock = ManualClock::new();
    (Limiter::builder().clock(clock.clone()).max_keys(20_000).build(), clock)
}

/// One rule, on a clock that stands still.
pub(crate) fn guard_of(rule: Rule) -> (Guard, ManualClock) {
    let (limiter, clock) = limiter();
    (Guard::new(&limiter).rule(rule).build().unwrap(), clock)
}

pub(crate) fn build(with: impl FnOnce(GuardBuilder) -> GuardBuilder) -> (Guard, ManualClock) {
    let (limiter, clock) = limiter();
    (with(Guard::new(&limiter)).build().unwrap(), clock)
}

/// Responds 200 with `served`, and counts.
#[derive(Clone, Default)]
pub(crate) struct Shop {
    pub(crate) served: Arc<AtomicUsize>,
}

impl<B> Service<Request<B>> for Shop {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        self.served.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Response::new(Full::from("served"))))
    }
}

pub(crate) fn shop(guard: &Guard) -> GuardService<Shop> {
    guard.layer().layer(Shop::default())
}

/// A response with its body read.
#[derive(Debug)]
pub(crate) struct WholeResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: String,
}

impl WholeResponse {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn detail(&self) -> String {
        self.json()["detail"].as_str().unwrap().to_string()
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

pub(crate) fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Polls what must be ready by now.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match poll_once(std::pin::pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

pub(crate) async fn whole(response: Response<Body<Full<Bytes>>>) -> WholeResponse {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    WholeResponse {
        status: head.status,
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

/// Sends one request through the guard, to a shop of its own.
pub(crate) fn send<B>(guard: &Guard, request: Request<B>) -> WholeResponse {
    send_to(&mut shop(guard), request)
}

pub(crate) fn send_to<B>(shop: &mut GuardService<Shop>, request: Request<B>) -> WholeResponse {
    block_on(async {
        let response = shop.call(request).await.unwrap();
        whole(response).await
    })
}

pub(crate) fn get(path: &str) -> Request<()> {
    Request::get(path).body(()).unwrap()
}

pub(crate) fn post(path: &str) -> Request<()> {
    Request::post(path).body(()).unwrap()
}

/// As gRPC clients send it.
pub(crate) fn grpc(path: &str) -> Request<()> {
    let mut request = with("content-type", "application/grpc+proto", post(path));
    *request.version_mut() = http::Version::HTTP_2;
    request
}

/// From this address.
pub(crate) fn from<B>(ip: &str, mut request: Request<B>) -> Request<B> {
    let ip: IpAddr = ip.parse().unwrap();
    request.extensions_mut().insert(Peer::new(SocketAddr::new(ip, 4321)));
    request
}

/// On behalf of this user.
pub(crate) fn by<B>(user: &str, mut request: Request<B>) -> Request<B> {
    request.extensions_mut().insert(User::new(user));
    request
}

pub(crate) fn with<B>(name: &'static str, value: &str, mut request: Request<B>) -> Request<B> {
    request.headers_mut().append(name, value.parse().unwrap());
    request
}

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
