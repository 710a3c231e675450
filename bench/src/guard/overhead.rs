//! How much longer a layered service takes than the bare one behind it.
//!
//! Knows requests and times; what is measured is in `contenders` and `rules`.

use crate::rounds::Measured;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::MethodRouter;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use std::convert::Infallible;
use std::future::Future;
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate::{Gate, User};
use tower::Service;

/// Calls between two readings of the clock; layered and bare segments alternate.
pub const SEGMENT: usize = 2_000;
const SEGMENTS: usize = 100;
/// Fewer where a segment takes so long that they would take longer together.
const SEGMENTS_MIN: usize = 3;
const TIME_MAX: Duration = Duration::from_secs(5);
/// Before that, page faults and unpredicted branches make everybody slower.
const WARM_UP: Duration = Duration::from_millis(400);

/// What requests meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Situation {
    /// Clients with a whole allowance, responses without fields of their own.
    Allowed,
    /// What a layer meets in a service: signed-in users, clients that have used some of their
    /// allowance, responses with a content type.
    LivedIn,
    /// Every request is denied.
    Denied,
}

impl Situation {
    pub fn expected(self) -> StatusCode {
        match self {
            Self::Allowed | Self::LivedIn => StatusCode::OK,
            Self::Denied => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

/// What a request is made from.
pub struct Template {
    pub client: SocketAddr,
    pub uri: Uri,
    pub user: Option<User>,
}

impl Template {
    pub fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = self.uri.clone();
        request.extensions_mut().insert(ConnectInfo(self.client));
        if let Some(user) = &self.user {
            request.extensions_mut().insert(user.clone());
        }
        request
    }
}

/// The address of the nth client.
pub fn client(nth: u32) -> SocketAddr {
    let first = u32::from(Ipv4Addr::new(198, 18, 0, 0));
    SocketAddr::from((Ipv4Addr::from(first + nth), 50_000))
}

/// Requests of a thousand clients to one route.
pub fn requests(situation: Situation) -> Rc<[Template]> {
    const CLIENTS: u32 = 1_000;
    let user = (situation == Situation::LivedIn).then(|| User::new("ann"));
    (0..CLIENTS)
        .map(|nth| Template { client: client(nth), uri: Uri::from_static("/"), user: user.clone() })
        .collect()
}

/// What is measured.
pub struct Contender {
    pub target: Box<dyn Segment>,
    /// The service behind the layer, called in the same way: the figure is the difference to it.
    pub bare: Option<Box<dyn Segment>>,
    pub requests: Rc<[Template]>,
    pub expected: StatusCode,
}

/// Whatever takes requests.
pub trait Segment {
    /// That many calls: how long they took, and how many responses were not as expected.
    fn segment(&mut self, requests: &[Template], expected: StatusCode, calls: usize) -> (Duration, usize);
}

/// A service that is cloned for each request.
pub struct Cloned<S>(pub S);

/// axum's router, which clones the boxed service for each request.
pub struct Routed(pub MethodRouter);

/// What no layer that announces the allowance can do without: a decision by the client's address,
/// and two header fields, one of them formatted anew.
pub struct Floor(pub Gate);

/// Nanoseconds that a call to each contender takes longer than one to the bare service: the
/// medians of many segments, as one in which the host took the processor away says nothing.
pub fn measure(contenders: &mut [Contender]) -> Vec<Measured> {
    // Each request once: where everything is to be denied, this uses the allowances up.
    for one in contenders.iter_mut() {
        one.with_layer(one.requests.len());
    }
    while thread_time() < WARM_UP {
        for one in contenders.iter_mut() {
            one.with_layer(SEGMENT);
            one.without_layer(SEGMENT);
        }
    }
    let mut series: Vec<(Vec<f64>, usize)> = contenders.iter().map(|_| (Vec::new(), 0)).collect();
    let begun = thread_time();
    let mut segments = 0;
    while segments < SEGMENTS_MIN || (segments < SEGMENTS && thread_time() - begun < TIME_MAX) {
        segments += 1;
        for (one, (overheads, wrong)) in contenders.iter_mut().zip(&mut series) {
            let (with, wrong_now) = one.with_layer(SEGMENT);
            let without = one.without_layer(SEGMENT);
            *wrong += wrong_now;
            overheads.push((with.as_nanos() as f64 - without.as_nanos() as f64) / SEGMENT as f64);
        }
    }
    let median = |(mut overheads, wrong): (Vec<f64>, usize)| {
        overheads.sort_by(f64::total_cmp);
        Measured { value: overheads[segments / 2], wrong: wrong as f64 / (SEGMENT * segments) as f64 }
    };
    series.into_iter().map(median).collect()
}

impl Contender {
    fn with_layer(&mut self, calls: usize) -> (Duration, usize) {
        self.target.segment(&self.requests, self.expected, calls)
    }

    fn without_layer(&mut self, calls: usize) -> Duration {
        let bare = self.bare.as_mut();
        bare.map_or(Duration::ZERO, |bare| bare.segment(&self.requests, StatusCode::OK, calls).0)
    }
}

// Everybody's loop is a function of its own: within another one it depends on the others how its
// pieces lie in memory.
impl<S, B> Segment for Cloned<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
{
    #[inline(never)]
    fn segment(&mut self, requests: &[Template], expected: StatusCode, calls: usize) -> (Duration, usize) {
        timed(requests, calls, |template| status(&mut self.0.clone(), template) == Some(expected))
    }
}

impl Segment for Routed {
    #[inline(never)]
    fn segment(&mut self, requests: &[Template], expected: StatusCode, calls: usize) -> (Duration, usize) {
        timed(requests, calls, |template| status(&mut self.0, template) == Some(expected))
    }
}

impl Segment for Floor {
    #[inline(never)]
    fn segment(&mut self, requests: &[Template], _: StatusCode, calls: usize) -> (Duration, usize) {
        let policy = HeaderValue::from_static("\"clients\";q=1000000;w=1");
        timed(requests, calls, |template| {
            let SocketAddr::V4(client) = template.client else {
                unreachable!("all clients have IPv4 addresses")
            };
            let decision = self.0.check(&black_box(client).ip().octets());
            let mut head = HeaderMap::with_capacity(2);
            head.insert(HeaderName::from_static("ratelimit-policy"), policy.clone());
            if let Ok(value) = HeaderValue::from_bytes(black_box(b"\"clients\";r=999999;t=1")) {
                head.insert(HeaderName::from_static("ratelimit"), value);
            }
            black_box(head);
            decision.is_allowed()
        })
    }
}

/// How long the calls took, and how many were not right.
#[inline(always)]
fn timed(
    requests: &[Template],
    calls: usize,
    mut is_right: impl FnMut(&Template) -> bool,
) -> (Duration, usize) {
    let mut wrong = 0;
    let start = thread_time();
    for template in requests.iter().cycle().take(calls) {
        wrong += usize::from(!is_right(template));
    }
    (thread_time().saturating_sub(start), wrong)
}

#[inline(always)]
fn status<S, B>(service: &mut S, template: &Template) -> Option<StatusCode>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    respond(service, template.request()).map(|response| response.status())
}

/// The response to one request; none if it is not ready at once, as nothing here has to wait.
#[inline(always)]
pub fn respond<S, B>(service: &mut S, request: Request<Body>) -> Option<Response<B>>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Ok(())) = service.poll_ready(&mut context) else { return None };
    let mut response = pin!(service.call(request));
    match response.as_mut().poll(&mut context) {
        Poll::Ready(Ok(response)) => Some(black_box(response)),
        Poll::Ready(Err(never)) => match never {},
        Poll::Pending => None,
    }
}

/// The processor time of this thread: what others do on the machine does not count.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
