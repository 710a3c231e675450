//! The accept loop: accepts while there are places, and sees arrivals through.

use super::arrival::arrive;
use super::connection::Places;
use super::{Connection, Listener};
use crate::sleep::Sleep;
use crate::{Gate, Pending, Permit, Verdict};
use futures_util::stream::Stream;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::net::TcpStream;

/// After an error of `accept` that is not one connection's, such as too many open files:
/// the next try would say the same.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// A place that something else gave back, or a raised limit, is seen after this time.
const FULL_PAUSE: Duration = Duration::from_millis(100);
/// The key of the places in all.
const ALL: &str = "all";

/// Accepted, and waiting for its place in all.
pub(super) struct InHand {
    stream: TcpStream,
    peer: SocketAddr,
    place: Wanted,
    has_waited: bool,
}

/// A place in all that is not there yet, and the connections that were closed before it was
/// asked for: if there are more by now, it is worth asking again.
struct Wanted {
    closed: u64,
    state: WantedState,
}

enum WantedState {
    Asked(Box<Pending<Verdict>>),
    Full(Sleep),
}

impl Listener {
    /// The next connection that has its places. Errors of the system's `accept` are
    /// counted and got over. Nothing is lost if the future is dropped.
    pub async fn accept(&mut self) -> Connection {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// [`accept`](Self::accept), for a future of your own.
    pub fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<Connection> {
        loop {
            match Pin::new(&mut self.arrivals).poll_next(context) {
                Poll::Ready(Some(Ok(connection))) => return Poll::Ready(connection),
                Poll::Ready(Some(Err(turned))) => {
                    self.stats.counts().turned_away(&turned);
                    continue;
                }
                Poll::Ready(None) | Poll::Pending => {}
            }
            if let Some(mut in_hand) = self.in_hand.take() {
                match self.poll_place(&mut in_hand, context) {
                    Poll::Ready(place) => self.let_in(in_hand.stream, in_hand.peer, Some(place)),
                    Poll::Pending => {
                        self.in_hand = Some(in_hand);
                        return Poll::Pending;
                    }
                }
                continue;
            }
            if self.arrivals.len() >= self.headers_max {
                return Poll::Pending;
            }
            if let Some(pause) = &mut self.pause {
                ready!(Pin::new(pause).poll(context));
                self.pause = None;
            }
            match ready!(self.tcp.poll_accept(context)) {
                Ok((stream, peer)) => self.take_in_hand(stream, peer),
                Err(error) => {
                    self.stats.counts().accept_errors.fetch_add(1, Ordering::Relaxed);
                    self.pause = (!is_one_connections(&error)).then(|| self.sleep(ERROR_PAUSE));
                }
            }
        }
    }

    fn take_in_hand(&mut self, stream: TcpStream, peer: SocketAddr) {
        // Closed before it costs anything.
        if self.settings.proxies.as_ref().is_some_and(|proxies| !proxies.contain(peer.ip())) {
            self.stats.counts().untrusted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match &self.in_all {
            Some(gate) => {
                let place = self.ask(gate);
                self.in_hand = Some(InHand { stream, peer, place, has_waited: false });
            }
            None => self.let_in(stream, peer, None),
        }
    }

    fn let_in(&self, stream: TcpStream, peer: SocketAddr, place: Option<Permit>) {
        let places = Places::new(place, self.stats.counts().clone());
        self.arrivals.push(Box::pin(arrive(places, stream, peer, self.settings.clone())));
    }

    fn ask(&self, gate: &Gate) -> Wanted {
        let closed = self.stats.counts().closed.load(Ordering::Acquire);
        Wanted { closed, state: WantedState::Asked(Box::new(gate.reserve_cost_async(ALL, 1))) }
    }

    fn poll_place(&self, in_hand: &mut InHand, context: &mut Context<'_>) -> Poll<Permit> {
        let counts = self.stats.counts();
        // Before anything is looked at: a place that comes back afterwards wakes this.
        counts.listener.register(context.waker());
        loop {
            match &mut in_hand.place.state {
                WantedState::Asked(asked) => {
                    if let Ok(place) = ready!(Pin::new(asked).poll(context)).into_permit() {
                        return Poll::Ready(place);
                    }
                    counts.waited.fetch_add(u64::from(!in_hand.has_waited), Ordering::Relaxed);
                    in_hand.has_waited = true;
                    in_hand.place.state = WantedState::Full(self.sleep(FULL_PAUSE));
                }
                WantedState::Full(pause) => {
                    if counts.closed.load(Ordering::Acquire) == in_hand.place.closed {
                        ready!(Pin::new(pause).poll(context));
                    }
                    let Some(gate) = &self.in_all else { return Poll::Pending };
                    in_hand.place = self.ask(gate);
                }
            }
        }
    }

    fn sleep(&self, time: Duration) -> Sleep {
        let clock = self.settings.clock.clone();
        let until = clock.now() + time;
        Sleep::until(clock, until)
    }
}

impl Stream for Listener {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_accept(context).map(|connection| Some(Ok(connection)))
    }
}

/// True if the next `accept` may well succeed.
fn is_one_connections(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
