//! Reads JSON bodies for rules that ask for a field of them.
//!
//! A layer of its own, outside of the guard's: whoever has no such rule keeps bodies
//! untouched and their type as it was. How long a slow body may take is the server's
//! matter, as for any other reader of it.

use super::facets::Facets;
use super::guarded::Guard;
use super::json_fields::JsonFields;
use super::replay::Replay;
use super::text::{self, Said};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request};
use http_body::Body;
use pin_project_lite::pin_project;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tower_layer::Layer;
use tower_service::Service;

/// Bytes that are read unless said otherwise.
const MAX_BYTES: usize = 64 * 1024;

/// Reads the bodies that rules with `json:` parts ask for, up to a bound, and passes them
/// on whole as [`Replay`]. It goes outside of [`Guard::layer`]:
///
/// ```
/// use tidegate::guard::{Guard, Rule};
/// use tower::ServiceBuilder;
///
/// let limiter = tidegate::Limiter::new();
/// let guard = Guard::new(&limiter)
///     .rule(Rule::new("goods", "1000/s").on("POST /orders").by("json:/order/goodsId"))
///     .build()?;
/// let layers = ServiceBuilder::new().layer(guard.json_layer()).layer(guard.layer());
/// # let _ = layers;
/// # Ok::<(), tidegate::guard::GuardError>(())
/// ```
///
/// A body is read only if a rule that applies to the request asks for it and its content
/// type is `application/json` or ends in `+json`. The fields of one that is longer than
/// the bound, broken, or not read are unclear (see [`Missing`](super::Missing)); where a cost
/// is to be read from them, it is the most that the rule says.
#[derive(Clone, Debug)]
pub struct JsonLayer {
    guard: Guard,
    max_bytes: usize,
}

impl JsonLayer {
    pub(super) fn new(guard: Guard) -> Self {
        Self { guard, max_bytes: MAX_BYTES }
    }

    /// Bytes of a body that are read at most; 64 KiB unless said.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
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

impl<S, B> Service<Request<B>> for JsonService<S>
where
    S: Service<Request<Replay<B>>> + Clone,
    B: Body<Data = Bytes> + Unpin,
{
    type Response = S::Response;
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
            if !pointers.is_empty() && is_empty {
                head.extensions.insert(JsonFields::of_no_body(pointers));
            }
            let request = Request::from_parts(head, Replay::new(body));
            return JsonFuture { state: State::Running { future: self.inner.call(request) } };
        }
        let body = Replay::new(body);
        // The one that was made ready is the one that will be called.
        let clone = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, clone);
        let max_bytes = self.layer.max_bytes;
        JsonFuture { state: State::Reading { request: Some((head, body)), pointers, service, max_bytes } }
    }
}

impl JsonLayer {
    /// The pointers that the rules ask for which apply to this request.
    fn pointers<B>(&self, request: &Request<B>) -> Vec<Box<str>> {
        let shared = &self.guard.shared;
        let rules = shared.rules.load();
        let asks = |rule: &&super::rules::Ready| {
            rule.pointers().next().is_some() && self.guard.choice.has(&rule.name)
        };
        let mut asking = rules.rules.iter().filter(asks).peekable();
        if asking.peek().is_none() || !self.guard.is_on() {
            return Vec::new();
        }
        let facets = Facets::new(request, &shared.finder);
        let mut pointers: Vec<Box<str>> = Vec::new();
        for rule in asking.filter(|rule| rule.applies(&facets).is_some()) {
            for pointer in rule.pointers() {
                if !pointers.iter().any(|known| **known == *pointer) {
                    pointers.push(pointer.into());
                }
            }
        }
        pointers
    }
}

/// `application/json`, or any type that ends in `+json`.
fn is_json(headers: &HeaderMap) -> bool {
    // Two types are none: the service could take the other one.
    let Said::Once(kind) = text::header(headers, &CONTENT_TYPE) else { return false };
    let Ok(kind) = std::str::from_utf8(kind) else { return false };
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
        || kind
            .len()
            .checked_sub(5)
            .and_then(|at| kind.get(at..))
            .is_some_and(|end| end.eq_ignore_ascii_case("+json"))
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
        Reading {
            request: Option<(http::request::Parts, Replay<B>)>,
            pointers: Vec<Box<str>>,
            service: S,
            max_bytes: usize,
        },
        Running { #[pin] future: F },
    }
}

impl<S, B> Future for JsonFuture<S, B>
where
    S: Service<Request<Replay<B>>>,
    B: Body<Data = Bytes> + Unpin,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Running { future } => return future.poll(context),
                StateProj::Reading { request, pointers, service, max_bytes } => {
                    let is_whole = match request {
                        Some((_, body)) => ready!(Pin::new(body).poll_read(context, *max_bytes)),
                        None => false,
                    };
                    let Some((mut head, body)) = request.take() else {
                        panic!("`JsonFuture` was polled after it was ready")
                    };
                    if is_whole {
                        let fields = JsonFields::find(std::mem::take(pointers), body.as_slice());
                        head.extensions.insert(fields);
                    }
                    State::Running { future: service.call(Request::from_parts(head, body)) }
                }
            };
            this.state.set(next);
        }
    }
}

impl<S: Service<Request<Replay<B>>>, B: Body> fmt::Debug for JsonFuture<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonFuture").finish_non_exhaustive()
    }
}
