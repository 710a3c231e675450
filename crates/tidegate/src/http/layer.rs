//! The tower layer: judges in `call`, with the request at hand.
//!
//! Never in `poll_ready`, where nobody knows yet whose request it will be.

use crate::caller::{Caller, Client, Entered, User};
use crate::http::body::Body;
use crate::http::facts::Facets;
use crate::http::guard::Guard;
use crate::http::response::fields::Brief;
use crate::rules::decide::{Begun, Judged, More, Passage, add_fields};
use crate::rules::rule_set::RuleSet;
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
    pub(crate) fn new(guard: Guard) -> Self {
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

/// Lets a request through to the service. No function, because a request that is handed on to
/// one is moved once more.
macro_rules! run {
    ($inner:expr, $request:ident, $passage:ident) => {{
        let Passage { brief, caller: Caller { client, mut user }, mut more } = $passage;
        if let Some(decided) = more.as_mut().and_then(|more| more.decided.take()) {
            decided.add_to($request.extensions_mut());
        }
        let lent = Entered::known(client, &mut user);
        let future = $inner.call($request);
        drop(lent);
        GuardFuture { state: State::Running { future, brief, client, user, more } }
    }};
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

    #[inline(never)]
    fn call(&mut self, mut request: Request<A>) -> GuardFuture<S, A> {
        let rules = self.rules.get(&self.guard);
        let facets = Facets::new(&request, &self.guard.shared.finder);
        match self.guard.begin(rules, &facets) {
            Begun::Judged(Ok(passage)) => run!(self.inner, request, passage),
            Begun::Judged(Err(answer)) => GuardFuture::refused(answer),
            Begun::Asking(asking) => {
                let asked = Asked::Waiting(asking);
                let asking = Asking { asked, request: Some(request), service: self.inner.clone() };
                GuardFuture { state: State::Asking { asking: Box::new(asking) } }
            }
        }
    }
}

impl<S: Service<Request<A>>, A> GuardFuture<S, A> {
    fn refused(answer: Box<Response<Bytes>>) -> Self {
        Self { state: State::Refused { answer: Some(answer) } }
    }
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
        Running {
            #[pin]
            future: F,
            brief: Option<Brief>,
            client: Option<Client>,
            user: Option<User>,
            more: Option<Box<More>>,
        },
        Asking { asking: Box<Asking<S, A>> },
    }
}

/// A request that is not judged yet. Boxed, so that those that are need not carry it.
struct Asking<S, A> {
    asked: Asked,
    request: Option<Request<A>>,
    /// Made ready once the request may go on. The one that was ready when it came stays behind
    /// for others: what a service sets aside for whoever finds it ready (a place of a
    /// `ConcurrencyLimit`, say) is nothing to hold while waiting.
    service: S,
}

enum Asked {
    Waiting(Pin<Box<dyn Future<Output = Judged> + Send>>),
    Passed(Passage),
}

impl<S: Service<Request<A>>, A> Asking<S, A> {
    /// What the request takes along, once the service is ready for it; or the answer.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Judged, S::Error>> {
        if let Asked::Waiting(asking) = &mut self.asked {
            match ready!(asking.as_mut().poll(context)) {
                Ok(passage) => self.asked = Asked::Passed(passage),
                refused => return Poll::Ready(Ok(refused)),
            }
        }
        ready!(self.service.poll_ready(context))?;
        let Asked::Passed(passage) = &mut self.asked else { return Poll::Pending };
        Poll::Ready(Ok(Ok(std::mem::take(passage))))
    }
}

impl<S, A, B> Future for GuardFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Output = Result<Response<Body<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self;
        if let StateProj::Asking { asking } = this.as_mut().project().state.project() {
            let judged = ready!(asking.poll(context))?;
            let Asking { request, service, .. } = &mut **asking;
            let next = match (judged, request.take()) {
                (Ok(passage), Some(mut request)) => run!(service, request, passage),
                (Err(answer), _) => Self::refused(answer),
                (Ok(_), None) => panic!("`GuardFuture` was polled after it was ready"),
            };
            this.set(next);
        }
        match this.project().state.project() {
            StateProj::Running { future, brief, client, user, more } => {
                let lent = Entered::known(*client, user);
                let mut polled = future.poll(context);
                // In place: an answer is large to move.
                if let Poll::Ready(Ok(answer)) = &mut polled {
                    add_fields(*brief, more, answer.headers_mut());
                }
                drop(lent);
                polled.map_ok(|answer| answer.map(|body| Body::of_service(body, more.take())))
            }
            StateProj::Refused { answer } => match answer.take() {
                Some(answer) => Poll::Ready(Ok(answer.map(Body::of_refusal))),
                None => panic!("`GuardFuture` was polled after it was ready"),
            },
            StateProj::Asking { .. } => unreachable!("it was judged above"),
        }
    }
}

impl<S: Service<Request<A>>, A> fmt::Debug for GuardFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardFuture").finish_non_exhaustive()
    }
}
