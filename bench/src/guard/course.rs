//! The bare service, and how long a layered one takes longer.

use super::Situation;
use crate::rounds::Measured;
use axum::body::Body;
use axum::extract::ConnectInfo;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tidegate::http::Peer;
use tidegate::{Gate, User};
use tower::Service;

const CLIENTS: u32 = 1_000;
/// Calls between two looks at the clock, layered and bare in turns.
const TURN: usize = 2_000;
const TURNS: usize = 100;
/// Until then pages and branches are news, which makes everybody slower.
const WARM_UP: Duration = Duration::from_millis(400);

/// Answers at once with nothing, or with nothing but a content type.
#[derive(Clone)]
pub struct Bare {
    has_type: bool,
}

impl Bare {
    pub fn new(situation: Situation) -> Self {
        Self { has_type: situation == Situation::LivedIn }
    }
}

impl Service<Request<Body>> for Bare {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        black_box(request);
        let mut answer = Response::new(Body::empty());
        if self.has_type {
            answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        }
        ready(Ok(answer))
    }
}

/// The bare service behind some layer.
pub trait Layered {
    /// Answers one request; tells with what.
    fn status(&mut self, request: Request<Body>) -> StatusCode;
}

impl<S, B> Layered for S
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
{
    fn status(&mut self, request: Request<Body>) -> StatusCode {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(())) = self.poll_ready(&mut context) else {
            unreachable!("the bare service is always ready")
        };
        let mut answer = pin!(self.call(request));
        match answer.as_mut().poll(&mut context) {
            Poll::Ready(Ok(answer)) => black_box(answer).status(),
            Poll::Ready(Err(never)) => match never {},
            // Would be counted as wrong: nothing here has to wait.
            Poll::Pending => StatusCode::IM_A_TEAPOT,
        }
    }
}

pub struct Course {
    expected: StatusCode,
    clients: Vec<SocketAddr>,
    bare: Bare,
    /// Who is signed in, in each request.
    user: Option<User>,
}

impl Course {
    pub fn new(situation: Situation) -> Self {
        let expected = match situation {
            Situation::Allowed | Situation::LivedIn => StatusCode::OK,
            Situation::Denied => StatusCode::TOO_MANY_REQUESTS,
        };
        let first = u32::from(Ipv4Addr::new(198, 18, 0, 0));
        let client = |nth| SocketAddr::from((Ipv4Addr::from(first + nth), 50_000));
        let clients: Vec<SocketAddr> = (0..CLIENTS).map(client).collect();
        let user = (situation == Situation::LivedIn).then(|| {
            // As where a listener has accepted a connection.
            black_box(Peer::new(clients[0]));
            User::new("ann")
        });
        Self { expected, clients, bare: Bare::new(situation), user }
    }

    /// Nanoseconds that a call to each contender takes longer than one to the bare service: the
    /// medians of many turns, as one in which the host took the processor away says nothing.
    pub fn run(&self, contenders: &mut [Box<dyn Contender>]) -> Vec<Measured> {
        let mut bare = self.bare.clone();
        // Each client's first call: what it has then is used up where everything is to be denied.
        for one in contenders.iter_mut() {
            one.turn(self, self.clients.len());
        }
        while thread_time() < WARM_UP {
            for one in contenders.iter_mut() {
                one.turn(self, TURN);
            }
            bare.turn(self, TURN);
        }
        let mut series: Vec<(Vec<f64>, usize)> = contenders.iter().map(|_| (Vec::new(), 0)).collect();
        for _ in 0..TURNS {
            for (one, (overheads, wrong)) in contenders.iter_mut().zip(&mut series) {
                let (with, odd) = one.turn(self, TURN);
                let without = if one.is_layer() { bare.turn(self, TURN).0 } else { Duration::ZERO };
                *wrong += odd;
                overheads.push((with.as_nanos() as f64 - without.as_nanos() as f64) / TURN as f64);
            }
        }
        let median = |(mut overheads, wrong): (Vec<f64>, usize)| {
            overheads.sort_by(f64::total_cmp);
            Measured { value: overheads[TURNS / 2], wrong: wrong as f64 / (TURN * TURNS) as f64 }
        };
        series.into_iter().map(median).collect()
    }
}

/// Whoever is measured.
pub trait Contender {
    /// Calls of all clients in turn: how long they took, and how many answers were not as expected.
    fn turn(&mut self, course: &Course, calls: usize) -> (Duration, usize);

    fn is_layer(&self) -> bool {
        true
    }
}

// Everybody's loop is a function of its own: within another one it depends on the others how its
// pieces lie in memory.
impl<S: Layered> Contender for S {
    #[inline(never)]
    fn turn(&mut self, course: &Course, calls: usize) -> (Duration, usize) {
        let mut odd = 0;
        let start = thread_time();
        for client in course.clients.iter().cycle().take(calls) {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(ConnectInfo(*client));
            if let Some(user) = &course.user {
                request.extensions_mut().insert(user.clone());
            }
            odd += usize::from(self.status(request) != course.expected);
        }
        (thread_time().saturating_sub(start), odd)
    }
}

/// What a layer that says the allowance cannot do without: a decision by the client's address, and
/// two fields in the head of an answer, one of them written anew.
pub struct Floor(pub Gate);

impl Contender for Floor {
    #[inline(never)]
    fn turn(&mut self, course: &Course, calls: usize) -> (Duration, usize) {
        let policy = HeaderValue::from_static("\"clients\";q=1000000;w=1");
        let mut odd = 0;
        let start = thread_time();
        for client in course.clients.iter().cycle().take(calls) {
            let SocketAddr::V4(client) = client else { unreachable!("all clients have IPv4 addresses") };
            odd += usize::from(!self.0.check(&black_box(client).ip().octets()).is_allowed());
            let mut head = HeaderMap::with_capacity(2);
            head.insert(HeaderName::from_static("ratelimit-policy"), policy.clone());
            if let Ok(value) = HeaderValue::from_bytes(black_box(b"\"clients\";r=999999;t=1")) {
                head.insert(HeaderName::from_static("ratelimit"), value);
            }
            black_box(head);
        }
        (thread_time().saturating_sub(start), odd)
    }

    fn is_layer(&self) -> bool {
        false
    }
}

/// The processor time of this thread: what others do on the machine does not count.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
