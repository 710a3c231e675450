//! The future of a guarded service: waits for the decision, runs the service, adds the fields to its
//! response. A JSON layer's waits for the body instead.

use crate::caller::{Caller, Entered};
use crate::http::body::Body;
use crate::http::extension::Decided;
use crate::http::response::fields::Fields;
use crate::pending::Pending;
use crate::permit::Permit;
use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

/// What a request that may go on carries.
#[derive(Debug, Default)]
pub struct Admission {
    /// For its response.
    pub(crate) fields: Option<Fields>,
    /// Held until the response's body has ended.
    pub(crate) permits: Vec<Permit>,
    /// For its handler.
    pub(crate) decided: Option<Box<Decided>>,
}

/// The admission of a request that may go on, or the response to one that is refused.
pub(crate) type AdmissionResult = Result<Admission, Box<Response<Bytes>>>;

/// What a request waits for before the service is called.
pub trait Wait<A> {
    #[doc(hidden)]
    fn poll_admission(
        &mut self,
        request: &mut Request<A>,
        context: &mut Context<'_>,
    ) -> Poll<AdmissionResult>;
}

/// The guard's decision.
impl<A> Wait<A> for Pending<AdmissionResult> {
    fn poll_admission(&mut self, _: &mut Request<A>, context: &mut Context<'_>) -> Poll<AdmissionResult> {
        Pin::new(self).poll(context)
    }
}

pin_project! {
    /// The future of [`GuardService`](crate::http::GuardService). Dropped while it waits, it gives
    /// back what it has reserved, as far as nobody has reserved after it.
    pub struct GuardFuture<S: Service<Request<A>>, A, W = Pending<AdmissionResult>> {
        #[pin]
        state: State<S, S::Future, A, W>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, A, W> {
        Refused { response: Option<Box<Response<Bytes>>> },
        Running {
            #[pin]
            future: F,
            admission: Admission,
            caller: Caller,
        },
        Waiting { waiting: Box<PendingRequest<S, A, W>> },
    }
}

/// A request that cannot go on yet. Boxed, so that futures of decided requests stay small.
struct PendingRequest<S, A, W> {
    request: Option<Request<A>>,
    /// None once it is over.
    wait: Option<W>,
    admission: Admission,
    /// A clone that is polled for readiness once the request may go on. The service that was ready
    /// when the request came stays free for others: what a ready service reserves (a permit of a
    /// `ConcurrencyLimit`, say) must not be held during a wait.
    service: S,
    caller: Caller,
}

impl<S: Service<Request<A>>, A, W: Wait<A>> GuardFuture<S, A, W> {
    pub(crate) fn refused(response: Box<Response<Bytes>>) -> Self {
        Self { state: State::Refused { response: Some(response) } }
    }

    /// Lets a request through to the service.
    ///
    /// Inlined, because a request that is passed to a function is copied.
    #[inline(always)]
    pub(crate) fn run(
        service: &mut S,
        mut request: Request<A>,
        mut admission: Admission,
        mut caller: Caller,
    ) -> Self {
        if let Some(decided) = admission.decided.take() {
            decided.add_to(request.extensions_mut());
        }
        let entered = Entered::known(&mut caller);
        let future = service.call(request);
        drop(entered);
        Self { state: State::Running { future, admission, caller } }
    }

    pub(crate) fn wait(wait: W, request: Request<A>, service: S, caller: Caller) -> Self {
        let (request, wait, admission) = (Some(request), Some(wait), Admission::default());
        Self {
            state: State::Waiting {
                waiting: Box::new(PendingRequest { request, wait, admission, service, caller }),
            },
        }
    }
}

impl<S: Service<Request<A>>, A, W: Wait<A>> PendingRequest<S, A, W> {
    /// The next state, once the request is refused or the service is ready for it.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<GuardFuture<S, A, W>, S::Error>> {
        let request = self.request.as_mut().expect("it waits until the service is called with it");
        if let Some(wait) = &mut self.wait {
            match ready!(wait.poll_admission(request, context)) {
                Ok(admission) => (self.wait, self.admission) = (None, admission),
                Err(response) => return Poll::Ready(Ok(GuardFuture::refused(response))),
            }
        }
        ready!(self.service.poll_ready(context))?;
        let request = self.request.take().expect("it was there above");
        let (admission, caller) = (std::mem::take(&mut self.admission), std::mem::take(&mut self.caller));
        Poll::Ready(Ok(GuardFuture::run(&mut self.service, request, admission, caller)))
    }
}

impl<S, A, W, B> Future for GuardFuture<S, A, W>
where
    S: Service<Request<A>, Response = Response<B>>,
    W: Wait<A>,
{
    type Output = Result<Response<Body<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self;
        if let StateProj::Waiting { waiting } = this.as_mut().project().state.project() {
            let next = ready!(waiting.poll(context))?;
            this.set(next);
        }
        match this.project().state.project() {
            StateProj::Running { future, admission, caller } => {
                let entered = Entered::known(caller);
                let mut polled = future.poll(context);
                drop(entered);
                // In place: a response is large to move.
                if let Poll::Ready(Ok(response)) = &mut polled
                    && let Some(fields) = admission.fields.take()
                {
                    fields.add_to(response.headers_mut());
                }
                let guarded = |body| Body::of_service(body, std::mem::take(&mut admission.permits));
                polled.map_ok(|response| response.map(guarded))
            }
            StateProj::Refused { response } => {
                let response = response.take().expect("`GuardFuture` is not polled after it was ready");
                Poll::Ready(Ok(response.map(Body::of_refusal)))
            }
            StateProj::Waiting { .. } => unreachable!("it was over above"),
        }
    }
}

impl<S: Service<Request<A>>, A, W> fmt::Debug for GuardFuture<S, A, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardFuture").finish_non_exhaustive()
    }
}
