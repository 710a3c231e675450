//! A layer written by hand for the one rule of the suite: what is left of ours if everything goes
//! that this rule does not need.
//!
//! Kept is what users of every rule see: a limit that can change live, the client's text as its key,
//! both header fields, and the caller while the service runs. Gone are other rules, lists, methods,
//! paths, proxies, waits, slots, observers and the log, and requests that are refused.

use arc_swap::ArcSwap;
use axum::extract::ConnectInfo;
use http::header::HeaderName;
use http::{HeaderValue, Request, Response};
use pin_project_lite::pin_project;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tidegate::{Caller, Client, Gate};
use tower::Service;

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

#[derive(Clone)]
pub struct ByHand<S> {
    rule: Arc<ArcSwap<OnlyRule>>,
    inner: S,
}

struct OnlyRule {
    gate: Gate,
    policy: HeaderValue,
}

impl<S> ByHand<S> {
    pub fn new(gate: Gate, inner: S) -> Self {
        let policy = HeaderValue::from_static("\"clients\";q=1000000;w=1");
        Self { rule: Arc::new(ArcSwap::from_pointee(OnlyRule { gate, policy })), inner }
    }
}

impl<S, A, B> Service<Request<A>> for ByHand<S>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = ByHandFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let peer: Option<&ConnectInfo<SocketAddr>> = request.extensions().get();
        let ip = peer.map(|ConnectInfo(peer)| peer.ip());
        let rule = self.rule.load();
        let mut line = String::new();
        if let Some(IpAddr::V4(ip)) = ip {
            let mut key = *b"ip:               ";
            let mut length = 3;
            for octet in ip.octets() {
                let mut digits = itoa::Buffer::new();
                let digits = digits.format(octet).as_bytes();
                key[length..length + digits.len()].copy_from_slice(digits);
                length += digits.len() + 1;
            }
            let decision = rule.gate.check(&key[..length - 1]);
            line.reserve(64);
            line.push_str("\"clients\";r=");
            line.push_str(itoa::Buffer::new().format(decision.remaining()));
            line.push_str(";t=");
            line.push_str(itoa::Buffer::new().format(decision.reset_after().as_secs() + 1));
        }
        let fields = Some((rule.policy.clone(), line));
        let caller = ip.map_or(Caller::new(), |ip| Caller::new().client(Client::new(ip)));
        let future = caller.enter(|| self.inner.call(request));
        ByHandFuture { future, fields, caller }
    }
}

pin_project! {
    pub struct ByHandFuture<F> {
        #[pin]
        future: F,
        fields: Option<(HeaderValue, String)>,
        caller: Caller,
    }
}

impl<F, B, E> Future for ByHandFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let mut response = ready!(this.caller.enter(|| this.future.poll(context)))?;
        if let Some((policy, line)) = this.fields.take() {
            response.headers_mut().append(POLICY, policy);
            if let Ok(line) = HeaderValue::try_from(line) {
                response.headers_mut().append(LIMIT, line);
            }
        }
        Poll::Ready(Ok(response))
    }
}
