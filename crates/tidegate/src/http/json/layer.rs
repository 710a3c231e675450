//! Reads JSON bodies for rules that need a field of them.
//!
//! It is a layer of its own, outside of the guard's: a service without such a rule keeps its
//! bodies, and their type, unchanged. What it reads is bounded in bytes and in time; it does not
//! limit how long the rest of a body may take.

use crate::clock::Timestamp;
use crate::http::body::Body as ResponseBody;
use crate::http::guard::Guard;
use crate::http::json::fields::JsonFields;
use crate::http::json::replay::Replay;
use crate::http::response::ResponseForm;
use crate::http::text;
use crate::rules::Fact;
use crate::sleep::Sleep;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body::Body;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

/// Default of [`JsonLayer::max_bytes`].
const MAX_BYTES: usize = 64 * 1024;
/// Default of [`JsonLayer::body_timeout`].
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the bodies that rules with `json:` parts need, up to a bound, and passes them on whole as
/// [`Replay`]. It goes outside of [`Guard::layer`]:
///
/// ```
/// use tidegate::http::Guard;
/// use tidegate::rules::Rule;
/// use tower::ServiceBuilder;
///
/// let limiter = tidegate::Limiter::new();
/// let guard = Guard::new(&limiter)
///     .rule(Rule::new("goods", "1000/s").on("POST /orders").by("json:/order/goodsId"))
///     .build()?;
/// let layers = ServiceBuilder::new().layer(guard.json_layer()).layer(guard.layer());
/// # let _ = layers;
/// # Ok::<(), tidegate::rules::RulesError>(())
/// ```
///
/// A body is read only if a rule that applies to the request needs it, no deny list has the
/// client's network, and its content type is `application/json` or ends in `+json`. The fields of a
/// body that is longer than the bound, broken, or not read are ambiguous (see
/// [`Missing`](crate::rules::Missing)); a cost that is read from one is the rule's maximum. A request
/// whose body does not come in time is refused.
///
/// Nested guards may have a JSON layer each, in any order.
#[derive(Clone, Debug)]
pub struct JsonLayer {
    guard: Guard,
    max_bytes: usize,
    body_timeout: Duration,
}

impl JsonLayer {
    pub(crate) fn new(guard: Guard) -> Self {
        Self { guard, max_bytes: MAX_BYTES, body_timeout: BODY_TIMEOUT }
    }

    /// How many bytes of a body are read at most. Default: 64 KiB.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// How long a body that a rule needs may take, on the limiter's clock. Then the request is
    /// refused (408, [`Outcome::SlowBody`]), and its connection is closed. It was not charged, and
    /// has held no slot of this guard. Where only rules in shadow need the body, or rules that have
    /// the client's network on their allow lists, it is passed on unread instead. Default: 10 s.
    /// `Duration::MAX` waits for ever.
    ///
    /// [`Outcome::SlowBody`]: crate::rules::Outcome::SlowBody
    #[must_use]
    pub fn body_timeout(mut self, timeout: Duration) -> Self {
        self.body_timeout = timeout;
        self
    }
}

impl<S> Layer<S> for JsonLayer {
    type Service = JsonService<S>;

    fn layer(&self, inner: S) -> JsonService<S> {
        JsonService { layer: self.clone(), inner }
    }
}

/// A service behind a [`JsonLayer`].
#[derive(Clone, Debug)]
pub struct JsonService<S> {
    layer: JsonLayer,
    inner: S,
}

impl<S, B, A> Service<Request<B>> for JsonService<S>
where
    S: Service<Request<Replay<B>>, Response = Response<A>> + Clone,
    B: Body<Data = Bytes> + Unpin,
{
    type Response = Response<ResponseBody<A>>;
    type Error = S::Error;
    type Future = JsonFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> JsonFuture<S, B> {
        let pointers = self.layer.pointers(&request);
        let is_too_long = request.body().size_hint().lower() > self.layer.max_bytes as u64;
        let is_empty = request.body().is_end_stream();
        let is_read = !pointers.is_empty() && !is_empty && !is_too_long && is_json(request.headers());
        let (mut head, body) = request.into_parts();
        if !is_read {
            match pointers.is_empty() {
                true => {}
                false if is_empty => JsonFields::of_no_body(pointers).add_to(&mut head.extensions),
                false => JsonFields::of_unread_body(pointers).add_unread_to(&mut head.extensions),
            }
            let request = Request::from_parts(head, Replay::new(body));
            return JsonFuture { state: State::Running { future: self.inner.call(request) } };
        }
        let request = Request::from_parts(head, Replay::new(body));
        let reading = Reading {
            request: Some(request),
            pointers,
            is_read: false,
            deadline: None,
            service: self.inner.clone(),
        };
        JsonFuture { state: State::Reading { layer: self.layer.clone(), reading } }
    }
}

impl JsonLayer {
    /// The fields that the rules which apply to this request need.
    fn pointers<B>(&self, request: &Request<B>) -> Vec<Box<str>> {
        self.guard.rules.json_pointers(&self.guard.facts(request))
    }

    /// The response to a request whose body is too slow. None if no rule in force needs the body:
    /// then the request goes on, and its fields are ambiguous.
    fn refuse_slow<B>(&self, request: &Request<B>, started: Timestamp) -> Option<Response<Bytes>> {
        let ruling = self.guard.rules.refuse_slow_body(&self.guard.facts(request), started)?;
        let mut response = *self.guard.refuse(&ruling, ResponseForm::Http);
        if request.version() <= Version::HTTP_11 {
            // The rest of the body would otherwise have to be read before the next request.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Some(response)
    }
}

/// `application/json`, or any type that ends in `+json`. Not gRPC's: there, JSON is in frames.
fn is_json(headers: &HeaderMap) -> bool {
    // Two content types count as none: the service could use the other one.
    let Fact::Found(kind) = text::header(headers, CONTENT_TYPE) else { return false };
    let Ok(kind) = std::str::from_utf8(kind) else { return false };
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.ends_with("+json") && !kind.starts_with("application/grpc"))
}

pin_project! {
    /// The future of [`JsonService`].
    pub struct JsonFuture<S: Service<Request<Replay<B>>>, B: Body> {
        #[pin]
        state: State<S, S::Future, B>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F, B: Body> {
        Reading { layer: JsonLayer, reading: Reading<S, B> },
        Running { #[pin] future: F },
    }
}

/// A request whose body is being read.
struct Reading<S, B: Body> {
    request: Option<Request<Replay<B>>>,
    pointers: Vec<Box<str>>,
    /// Whether the body was read, or will not be.
    is_read: bool,
    /// When waiting for it began, and when it ends.
    deadline: Option<(Timestamp, Sleep)>,
    /// A clone that is polled for readiness once the body is there. The service that was ready when
    /// the request came stays free for others: what a ready service reserves (a permit of a
    /// `ConcurrencyLimit`, say) must not be held while a body comes.
    service: S,
}

impl<S, B> Reading<S, B>
where
    S: Service<Request<Replay<B>>>,
    B: Body<Data = Bytes> + Unpin,
{
    /// The call of the service, or the response to a request whose body is too slow.
    fn poll(
        &mut self,
        layer: &JsonLayer,
        context: &mut Context<'_>,
    ) -> Poll<Result<Called<S::Future>, S::Error>> {
        let Some(request) = &mut self.request else { panic!("`JsonFuture` was polled after it was ready") };
        if !self.is_read {
            let is_whole = match Pin::new(request.body_mut()).poll_read(context, layer.max_bytes) {
                Poll::Ready(is_whole) => is_whole,
                Poll::Pending => {
                    let begun = ready!(poll_deadline(&mut self.deadline, layer, context));
                    if let Some(answer) = layer.refuse_slow(request, begun) {
                        self.request = None;
                        return Poll::Ready(Ok(Called::Refused(answer)));
                    }
                    false
                }
            };
            let pointers = std::mem::take(&mut self.pointers);
            if is_whole {
                let fields = JsonFields::find(pointers, request.body().as_slice());
                fields.add_to(request.extensions_mut());
            } else {
                JsonFields::of_unread_body(pointers).add_unread_to(request.extensions_mut());
            }
            (self.is_read, self.deadline) = (true, None);
        }
        ready!(self.service.poll_ready(context))?;
        let Some(request) = self.request.take() else { return Poll::Pending };
        Poll::Ready(Ok(Called::Service(self.service.call(request))))
    }
}

/// The result of reading the body of a request.
enum Called<F> {
    Service(F),
    Refused(Response<Bytes>),
}

/// Ready once the body is too slow, with the time at which waiting began. Most bodies are there at
/// the first poll, and set no timer.
fn poll_deadline(
    deadline: &mut Option<(Timestamp, Sleep)>,
    layer: &JsonLayer,
    context: &mut Context<'_>,
) -> Poll<Timestamp> {
    let (begun, sleep) = deadline.get_or_insert_with(|| {
        let clock = layer.guard.rules.limiter().clock().clone();
        let now = clock.now();
        (now, Sleep::until(clock, now + layer.body_timeout))
    });
    Pin::new(sleep).poll(context).map(|()| *begun)
}

impl<S, B, A> Future for JsonFuture<S, B>
where
    S: Service<Request<Replay<B>>, Response = Response<A>>,
    B: Body<Data = Bytes> + Unpin,
{
    type Output = Result<Response<ResponseBody<A>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let StateProj::Reading { layer, reading } = this.state.as_mut().project() {
            let future = match ready!(reading.poll(layer, context))? {
                Called::Service(future) => future,
                Called::Refused(answer) => return Poll::Ready(Ok(answer.map(ResponseBody::of_refusal))),
            };
            this.state.set(State::Running { future });
        }
        match this.state.project() {
            StateProj::Running { future } => future
                .poll(context)
                .map_ok(|answer| answer.map(|body| ResponseBody::of_service(body, Vec::new()))),
            StateProj::Reading { .. } => unreachable!("it was read above"),
        }
    }
}

impl<S: Service<Request<Replay<B>>>, B: Body> fmt::Debug for JsonFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonFuture").finish_non_exhaustive()
    }
}
