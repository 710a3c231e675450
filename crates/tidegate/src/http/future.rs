//! The future of a guarded service: decides, runs the service, adds the fields to its response.

use crate::caller::{Caller, Entered};
use crate::http::admission::Admission;
use crate::http::body::Body;
use crate::http::guard::Guard;
use crate::http::response::ResponseForm;
use crate::pending::Pending;
use crate::rules::Ruling;
use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_service::Service;

pin_project! {
    /// The future of [`GuardService`](crate::http::GuardService). Dropped while it waits, it gives
    /// back what it has reserved, as far as nobody has reserved after it.
    pub struct GuardFuture<S: Service<Request<A>>, A> {
        #[pin]
        state: State<S, S::Future, A>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, A> {
        Refused { response: Option<Box<Response<Bytes>>> },
        Running {
            #[pin]
            future: F,
            admission: Admission,
            caller: Caller,
        },
        Deciding { deciding: Box<Deciding<S, A>> },
    }
}

/// A request that is not decided yet. Boxed, so that futures of decided requests stay small.
struct Deciding<S, A> {
    guard: Guard,
    ruling: RulingState,
    form: ResponseForm,
    request: Option<Request<A>>,
    /// A clone that is polled for readiness once the request may go on. The service that was ready
    /// when the request came stays free for others: what a ready service reserves (a permit of a
    /// `ConcurrencyLimit`, say) must not be held during a wait.
    service: S,
    caller: Caller,
}

enum RulingState {
    Pending(Pending<Ruling>),
    Admitted(Option<Admission>),
}

impl<S: Service<Request<A>>, A> GuardFuture<S, A> {
    pub(crate) fn refused(response: Box<Response<Bytes>>) -> Self {
        Self { state: State::Refused { response: Some(response) } }
    }

    /// Lets a request through to the service.
    pub(crate) fn run(
        service: &mut S,
        mut request: Request<A>,
        mut admission: Admission,
        mut caller: Caller,
    ) -> Self {
        admission.add_to_request(request.extensions_mut());
        let lent = Entered::known(&mut caller);
        let future = service.call(request);
        drop(lent);
        Self { state: State::Running { future, admission, caller } }
    }

    pub(crate) fn deciding(
        guard: Guard,
        pending: Pending<Ruling>,
        form: ResponseForm,
        request: Request<A>,
        service: S,
        caller: Caller,
    ) -> Self {
        let ruling = RulingState::Pending(pending);
        let deciding = Deciding { guard, ruling, form, request: Some(request), service, caller };
        Self { state: State::Deciding { deciding: Box::new(deciding) } }
    }
}

impl<S: Service<Request<A>>, A> Deciding<S, A> {
    /// The next state, once the request is refused or the service is ready for it.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<GuardFuture<S, A>, S::Error>> {
        if let RulingState::Pending(pending) = &mut self.ruling {
            let ruling = ready!(Pin::new(pending).poll(context));
            match self.guard.admit(ruling, self.form) {
                Ok(admission) => self.ruling = RulingState::Admitted(Some(admission)),
                Err(response) => return Poll::Ready(Ok(GuardFuture::refused(response))),
            }
        }
        ready!(self.service.poll_ready(context))?;
        let RulingState::Admitted(admission) = &mut self.ruling else { return Poll::Pending };
        let (Some(request), Some(admission)) = (self.request.take(), admission.take()) else {
            panic!("`GuardFuture` was polled after it was ready")
        };
        let caller = std::mem::take(&mut self.caller);
        Poll::Ready(Ok(GuardFuture::run(&mut self.service, request, admission, caller)))
    }
}

impl<S, A, B> Future for GuardFuture<S, A>
where
    S: Service<Request<A>, Response = Response<B>>,
{
    type Output = Result<Response<Body<B>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self;
        if let StateProj::Deciding { deciding } = this.as_mut().project().state.project() {
            let next = ready!(deciding.poll(context))?;
            this.set(next);
        }
        match this.project().state.project() {
            StateProj::Running { future, admission, caller } => {
                let lent = Entered::known(caller);
                let response = ready!(future.poll(context));
                drop(lent);
                Poll::Ready(response.map(|mut response| {
                    admission.add_fields(response.headers_mut());
                    response.map(|body| Body::of_service(body, admission.take_permits()))
                }))
            }
            StateProj::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response.map(Body::of_refusal))),
                None => panic!("`GuardFuture` was polled after it was ready"),
            },
            StateProj::Deciding { .. } => unreachable!("it was decided above"),
        }
    }
}

impl<S: Service<Request<A>>, A> fmt::Debug for GuardFuture<S, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardFuture").finish_non_exhaustive()
    }
}
