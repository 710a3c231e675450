//! hyper's client under tower's retry, with a policy that honours `Retry-After`.
//!
//! The retrying clients on crates.io either wait by a schedule of their own, whatever the
//! answer says (`reqwest-retry`), or cannot be had without TLS (`reqwest-retry-after`).

use crate::support::{Log, Server};
use axum::Router;
use axum::body::Body;
use axum::routing::get;
use http::header::RETRY_AFTER;
use http::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tidegate::Limiter;
use tidegate::http::Guard;
use tidegate::rules::{Outcome, Rule};
use tower::retry::{Policy, RetryLayer};
use tower::{ServiceBuilder, ServiceExt};

/// Comes back when it is told to, at most so many times.
#[derive(Clone)]
struct WhenTold {
    times: u32,
    told: Arc<Mutex<Vec<Duration>>>,
}

impl<B, E> Policy<Request<Body>, Response<B>, E> for WhenTold {
    type Future = tokio::time::Sleep;

    fn retry(&mut self, _: &mut Request<Body>, answer: &mut Result<Response<B>, E>) -> Option<Self::Future> {
        let answer = answer.as_ref().ok()?;
        let is_worth_it = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
        let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?;
        let told = Duration::from_secs(seconds.parse().ok()?);
        if !is_worth_it.contains(&answer.status()) || self.times == 0 {
            return None;
        }
        self.times -= 1;
        self.told.lock().unwrap().push(told);
        Some(tokio::time::sleep(told))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        Some(Request::get(request.uri()).body(Body::empty()).unwrap())
    }
}

#[test]
fn a_client_that_honours_retry_after_needs_one_more_try() {
    let log = Log::default();
    let guard = Guard::new(&Limiter::new())
        .rule(Rule::new("look", "1 per 3s").by("ip"))
        .observer(log.clone())
        .build()
        .unwrap();
    let app = Router::new().route("/", get(|| async { "a lamp" })).layer(guard.layer());
    let server = Server::start(app);
    let url = server.url("/");

    let told = Arc::default();
    let policy = WhenTold { times: 3, told: Arc::clone(&told) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
        let retrying = ServiceBuilder::new().layer(RetryLayer::new(policy)).service(client.clone());
        let ask = || Request::get(&url).body(Body::empty()).unwrap();

        assert_eq!(retrying.clone().oneshot(ask()).await.unwrap().status(), 200);
        assert_eq!(client.request(ask()).await.unwrap().status(), 429);
        assert_eq!(retrying.oneshot(ask()).await.unwrap().status(), 200);
    });
    use Outcome::{Allowed, Denied};
    assert_eq!(log.outcomes(), [Allowed, Denied, Denied, Allowed]);
    let [told] = told.lock().unwrap()[..] else { panic!("told once") };
    log.assert_came_back_in_time(told);
}
