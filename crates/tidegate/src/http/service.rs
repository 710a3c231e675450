//! A service behind a guard: decides in `call`, with the request at hand.
//!
//! Never in `poll_ready`, where the request is not known yet.

use crate::http::body::Body;
use crate::http::future::GuardFuture;
use crate::http::guard::Guard;
use http::{Request, Response};
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// A service behind a [`Guard`]. Its errors are the inner service's own.
#[derive(Clone, Debug)]
pub struct GuardService<S> {
    /// Behind one pointer, because a router clones the service for each request.
    pub(crate) guard: Arc<Guard>,
    pub(crate) inner: S,
}

impl<S, A, B> Service<Request<A>> for GuardService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
{
    type Response = Response<Body<B>>;
    type Error = S::Error;
    type Future = GuardFuture<S, A>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> GuardFuture<S, A> {
        let facts = self.guard.facts(&request);
        let caller = self.guard.caller(&facts);
        match self.guard.decide(&facts).try_ready() {
            Ok(Ok(admission)) => GuardFuture::run(&mut self.inner, request, admission, caller),
            Ok(Err(response)) => GuardFuture::refused(response),
            Err(pending) => GuardFuture::wait(pending, request, self.inner.clone(), caller),
        }
    }
}
