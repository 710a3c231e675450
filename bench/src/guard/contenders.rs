//! The layers that are measured, the service behind them, and the ways to call them.
//!
//! How they are timed is in `overhead`.

use super::by_hand::ByHand;
use super::overhead::{Cloned, Routed, Segment, Situation};
use crate::Fallible;
use axum::body::Body;
use axum::response::IntoResponse;
use axum::routing::get_service;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Request, Response};
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::sync::Arc;
use std::task::{Context, Poll};
use tidegate::Limiter;
use tidegate::http::{Guard, Headers};
use tidegate::rules::Rule;
use tower::{Layer, Service};
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

/// How a service is called.
#[derive(Clone, Copy)]
pub enum Call {
    /// Cloned for each request, as axum's router does.
    Cloned,
    /// By axum's router itself, which also boxes the service, its future and its body.
    Routed,
}

impl Call {
    pub fn of<S, B: 'static>(self, service: S) -> Box<dyn Segment>
    where
        S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Response: IntoResponse + 'static,
        S::Future: Future + Send + 'static,
    {
        match self {
            Self::Cloned => Box::new(Cloned(service)),
            Self::Routed => Box::new(Routed(get_service(service))),
        }
    }
}

/// Responds at once with nothing, or with nothing but a content type.
#[derive(Clone, Default)]
pub struct Bare {
    pub has_content_type: bool,
}

impl Service<Request<Body>> for Bare {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        black_box(request);
        let mut response = Response::new(Body::empty());
        if self.has_content_type {
            let text = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, text);
        }
        ready(Ok(response))
    }
}

impl Situation {
    fn bare(self) -> Bare {
        Bare { has_content_type: self == Self::LivedIn }
    }

    pub fn limit(self) -> &'static str {
        match self {
            Self::Allowed => "1000000/s",
            Self::LivedIn => "1000000/h",
            Self::Denied => "1/day",
        }
    }
}

pub fn bare(call: Call, situation: Situation) -> Box<dyn Segment> {
    call.of(situation.bare())
}

/// Ours with one rule by client, which nobody exceeds, or nobody passes.
pub fn tidegate(call: Call, situation: Situation, headers: Headers) -> Fallible<Box<dyn Segment>> {
    let rule = Rule::new("clients", situation.limit()).by("ip");
    let guard = Guard::new(&Limiter::new()).headers(headers).rule(rule).build()?;
    Ok(call.of(guard.layer().layer(situation.bare())))
}

type GovernorConfig = tower_governor::governor::GovernorConfig<
    tower_governor::key_extractor::PeerIpKeyExtractor,
    governor::middleware::StateInformationMiddleware,
>;

/// A layer written for the rule of [`tidegate`].
pub fn by_hand(call: Call, situation: Situation) -> Fallible<Box<dyn Segment>> {
    let gate = Limiter::new().gate("clients", situation.limit())?;
    Ok(call.of(ByHand::new(gate, situation.bare())))
}

/// tower-governor with the same limit and with its header fields.
pub fn tower_governor(call: Call, situation: Situation) -> Fallible<Box<dyn Segment>> {
    let mut config = GovernorConfigBuilder::default();
    match situation {
        Situation::Allowed => config.per_nanosecond(1_000).burst_size(1_000_000),
        Situation::LivedIn => config.per_nanosecond(3_600_000).burst_size(1_000_000),
        Situation::Denied => config.per_second(86_400).burst_size(1),
    };
    let config: GovernorConfig =
        config.use_headers().finish().ok_or("tower-governor does not take the limit")?;
    Ok(call.of(GovernorLayer::<_, _, Body>::new(Arc::new(config)).layer(situation.bare())))
}
