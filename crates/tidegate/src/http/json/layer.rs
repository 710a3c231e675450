//! Reads JSON bodies for rules that need a field of them.
//!
//! It is a layer of its own, outside of the guard's: a service without such a rule keeps its
//! bodies, and their type, unchanged. What it reads is bounded in bytes and in time; it does not
//! limit how long the rest of a body may take.

use crate::caller::Caller;
use crate::clock::Timestamp;
use crate::http::body::Body as ResponseBody;
use crate::http::future::{Admission, AdmissionResult, GuardFuture, Wait};
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
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tower_layer::Layer;
use tower_service::Service;

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
        Self { guard, max_bytes: 64 * 1024, body_timeout: Duration::from_secs(10) }
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
        let rules = &self.layer.guard.rules;
        let pointers = rules.json_pointers(&self.layer.guard.facts(&request));
        let is_too_long = request.body().size_hint().lower() > self.layer.max_bytes as u64;
        let is_empty = request.body().is_end_stream();
        let is_read = !pointers.is_empty() && !is_empty && !is_too_long && is_json(request.headers());
        let mut request = request.map(Replay::new);
        if is_read {
            let clock = rules.limiter().clock().clone();
            let begun = clock.now();
            let late = Sleep::until(clock, begun + self.layer.body_timeout);
            let reading = Reading { layer: self.layer.clone(), pointers, begun, late };
            return GuardFuture::wait(reading, request, self.inner.clone(), Caller::default());
        }
        if !pointers.is_empty() {
            let body = if is_empty { Fact::Missing } else { Fact::Ambiguous };
            JsonFields::add(request.extensions_mut(), pointers, body);
        }
        GuardFuture::run(&mut self.inner, request, Admission::default(), Caller::default())
    }
}

impl JsonLayer {
    /// The response to a request whose body is too slow. None if no rule in force needs the body:
    /// then the request goes on, and its fields are ambiguous.
    fn refuse_slow<B>(&self, request: &Request<B>, started: Timestamp) -> Option<Box<Response<Bytes>>> {
        let ruling = self.guard.rules.refuse_slow_body(&self.guard.facts(request), started)?;
        let mut response = self.guard.refuse(&ruling, ResponseForm::Http);
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

/// The future of [`JsonService`].
pub type JsonFuture<S, B> = GuardFuture<S, Replay<B>, Reading>;

/// A request waits until its body is read, or too slow.
pub struct Reading {
    layer: JsonLayer,
    pointers: Vec<Box<str>>,
    begun: Timestamp,
    late: Sleep,
}

impl<B: Body<Data = Bytes> + Unpin> Wait<Replay<B>> for Reading {
    fn poll_admission(
        &mut self,
        request: &mut Request<Replay<B>>,
        context: &mut Context<'_>,
    ) -> Poll<AdmissionResult> {
        let is_whole = match Pin::new(request.body_mut()).poll_read(context, self.layer.max_bytes) {
            Poll::Ready(is_whole) => is_whole,
            Poll::Pending => {
                ready!(Pin::new(&mut self.late).poll(context));
                if let Some(response) = self.layer.refuse_slow(request, self.begun) {
                    return Poll::Ready(Err(response));
                }
                false
            }
        };
        let mut extensions = std::mem::take(request.extensions_mut());
        let body = if is_whole { Fact::Found(request.body().as_slice()) } else { Fact::Ambiguous };
        JsonFields::add(&mut extensions, std::mem::take(&mut self.pointers), body);
        *request.extensions_mut() = extensions;
        Poll::Ready(Ok(Admission::default()))
    }
}
