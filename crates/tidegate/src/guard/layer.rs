//! The tower layer: judges in `call`, with the request at hand.
//!
//! Never in `poll_ready`, where nobody knows yet whose request it will be.

use super::body::Body;
use super::decide::{Begun, Judged, Passage};
use super::facets::Facets;
use super::guarded::Guard;
use super::rules::RuleSet;
use crate::Caller;
use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use tower_layer::Layer;
use tower_service::Service;

/// [`Guard::layer`].
#[derive(Clone, Debug)]
pub struct GuardLayer {
    guard: Guard,
}

impl GuardLayer {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard }
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = GuardService<S>;

    fn layer(&self, inner: S) -> GuardService<S> {
        GuardService { rules: Cached::new(&self.guard), guard: self.guard.clone(), inner }
    }
}

/// A service behind a [`Guard`]. Its errors are the inner service's own.
#[derive(Clone, Debug)]
pub struct GuardService<S> {
    guard: Guard,
    rules: Cached,
    inner: S,
}

/// The rules in force as this service has seen them last: looking whether they are still
/// is one read, where taking them anew is two locked operations.
#[derive(Clone)]
struct Cached {
    version: u64,
    rules: Arc<RuleSet>,
}

impl Cached {
    fn new(guard: &Guard) -> Self {
        // Read before the rules: at worst they are newer than it says.
        let version = guard.shared.version.load(Ordering::Acquire);
        Self { version, rules: guard.shared.rules.load_full() }
    }

    #[inline]
    fn get(&mut self, guard: &Guard) -> &Arc<RuleSet> {
        if guard.shared.version.load(Ordering::Acquire) != self.version {
            *self = Self::new(guard);
        }
        &self.rules
    }
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "version {}", self.version)
    }
}

impl<S, A, B> Service<Request<A>> for GuardService<S>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
{
    type Response = Response<Body<B>>;
    type Error = S::Error;
    type Future = GuardFuture<S, A>;

    #[inline]
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<A>) -> GuardFuture<S, A> {
        let rules = self.rules.get(&self.guard);
        let mut passage = Passage::default();
        let facets = Facets::new(&request, &self.guard.shared.finder);
        let state = match self.guard.begin(rules, &facets, &mut passage) {
            Begun::Passed => go_on(&mut self.inner, request, passage),
            Begun::Refused(answer) => State::Refused { answer: Some(answer) },
            Begun::Asking(asking) => {
                // The one that was made ready is the one that will be called.
                let clone = self.inner.clone();
                let service = std::mem::replace(&mut self.inner, clone);
                State::Asking { asking: Box::new(Asking { asking, request: Some(request), service }) }
            }
        };
        GuardFuture { state }
    }
}

/// Lets a request through to the service.
#[inline(always)]
fn go_on<S, A>(inner: &mut S, mut request: Request<A>, mut passage: Passage) -> State<S, S::Future, A>
where
    S: Service<Request<A>>,
{
    if let Some(decided) = passage.decided.take() {
        request.extensions_mut().insert(*decided);
    }
    let lent = passage.caller.as_mut().map(Caller::lend);
    let future = inner.call(request);
    drop(lent);
    State::Running { future, passage }
}

pin_project! {
    /// The future of [`GuardService`]. Dropped while it waits, it gives back what it has
    /// reserved, as far as nobody has reserved after it.
    pub struct GuardFuture<S: Service<Request<A>>, A> {
        #[pin]
        state: State<S, S::Future, A>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, A> {
        Refused { answer: Option<Box<Response<Bytes>>> },
        Running { #[pin] future: F, passage: Passage },
        Asking { asking: Box<Asking<S, A>> },
    }
}

/// A request that is not judged yet. Boxed, so that those that are need not carry it.
struct Asking<S, A> {
    asking: Pin<Box<dyn Future<Output = Judged> + Send>>,
    request: Option<Request<A>>,
    service: S,
}

impl<S, A, B> Future for GuardFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Output = Result<Response<Body<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Refused { answer } => match answer.take() {
                    Some(answer) => return Poll::Ready(Ok(answer.map(Body::of_refusal))),
                    None => panic!("`GuardFuture` was polled after it was ready"),
                },
                StateProj::Running { future, passage } => {
                    let Passage { fields, permits, caller, .. } = passage;
                    let _lent = caller.as_mut().map(Caller::lend);
                    // In one go: an answer is large to move.
                    return future.poll(context).map_ok(|mut answer| {
                        std::mem::take(fields).add_to(answer.headers_mut());
                        answer.map(|body| Body::of_service(body, std::mem::take(permits)))
                    });
                }
                StateProj::Asking { asking } => {
                    let Asking { asking, request, service } = &mut **asking;
                    match (ready!(asking.as_mut().poll(context)), request.take()) {
                        (Ok(passage), Some(request)) => go_on(service, request, passage),
                        (Err(answer), _) => State::Refused { answer: Some(answer) },
                        (Ok(_), None) => panic!("`GuardFuture` was polled after it was ready"),
                    }
                }
            };
            this.state.set(next);
        }
    }
}

impl<S: Service<Request<A>>, A> fmt::Debug for GuardFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardFuture").finish_non_exhaustive()
    }
}
