//! The accept loop: accepts connections while there are free slots, and drives their handshakes.
//!
//! It does not read from a connection: a slow one must not delay the others.

use super::connection::ConnectionSlots;
use super::handshake::handshake;
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

/// Pause after an error of `accept` that is not one connection's, such as too many open files:
/// the next call would fail in the same way.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// When all slots are taken, the gate is checked again after this time: a slot that another process
/// gave back, or a raised limit, wakes nobody.
const FULL_PAUSE: Duration = Duration::from_millis(100);
/// The key of the limit in all.
const ALL: &str = "all";

/// A connection that is accepted, and waits for a slot.
pub(super) struct WaitingConnection {
    stream: TcpStream,
    peer: SocketAddr,
    slot: SlotRequest,
    has_waited: bool,
}

/// A slot that is not granted yet, and how many connections were closed before it was requested: if
/// there are more by now, another request is worthwhile.
struct SlotRequest {
    closed: u64,
    state: SlotRequestState,
}

enum SlotRequestState {
    Checking(Box<Pending<Verdict>>),
    Full(Sleep),
}

impl Listener {
    /// The next connection that has its slots. Errors of the system's `accept` are
    /// counted, and it goes on. No connection is lost if the future is dropped.
    pub async fn accept(&mut self) -> Connection {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// [`accept`](Self::accept), for a future of your own.
    pub fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<Connection> {
        loop {
            match Pin::new(&mut self.handshakes).poll_next(context) {
                Poll::Ready(Some(Ok(connection))) => return Poll::Ready(connection),
                Poll::Ready(Some(Err(rejected))) => {
                    self.stats.counts().count_rejected(&rejected);
                    continue;
                }
                Poll::Ready(None) | Poll::Pending => {}
            }
            if let Some(mut waiting) = self.waiting.take() {
                match self.poll_slot(&mut waiting, context) {
                    Poll::Ready(slot) => self.begin_handshake(waiting.stream, waiting.peer, Some(slot)),
                    Poll::Pending => {
                        self.waiting = Some(waiting);
                        return Poll::Pending;
                    }
                }
                continue;
            }
            if self.handshakes.len() >= self.headers_max {
                return Poll::Pending;
            }
            if let Some(pause) = &mut self.pause {
                ready!(Pin::new(pause).poll(context));
                self.pause = None;
            }
            match ready!(self.tcp.poll_accept(context)) {
                Ok((stream, peer)) => self.begin(stream, peer),
                Err(error) => {
                    self.stats.counts().accept_errors.fetch_add(1, Ordering::Relaxed);
                    self.pause = (!is_connection_error(&error)).then(|| self.sleep(ERROR_PAUSE));
                }
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, peer: SocketAddr) {
        // Closed before it costs anything.
        if self.settings.proxies.as_ref().is_some_and(|proxies| !proxies.contain(peer.ip())) {
            self.stats.counts().untrusted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match &self.in_all {
            Some(gate) => {
                let slot = self.request_slot(gate);
                self.waiting = Some(WaitingConnection { stream, peer, slot, has_waited: false });
            }
            None => self.begin_handshake(stream, peer, None),
        }
    }

    fn begin_handshake(&self, stream: TcpStream, peer: SocketAddr, slot: Option<Permit>) {
        let slots = ConnectionSlots::new(slot, self.stats.counts().clone());
        self.handshakes.push(Box::pin(handshake(slots, stream, peer, self.settings.clone())));
    }

    fn request_slot(&self, gate: &Gate) -> SlotRequest {
        let closed = self.stats.counts().closed.load(Ordering::Acquire);
        SlotRequest { closed, state: SlotRequestState::Checking(Box::new(gate.reserve_cost_async(ALL, 1))) }
    }

    fn poll_slot(&self, waiting: &mut WaitingConnection, context: &mut Context<'_>) -> Poll<Permit> {
        let counts = self.stats.counts();
        // Before the state is read: a slot that comes back afterwards wakes this task.
        counts.listener.register(context.waker());
        loop {
            match &mut waiting.slot.state {
                SlotRequestState::Checking(pending) => {
                    if let Ok(slot) = ready!(Pin::new(pending).poll(context)).into_permit() {
                        return Poll::Ready(slot);
                    }
                    counts.waited.fetch_add(u64::from(!waiting.has_waited), Ordering::Relaxed);
                    waiting.has_waited = true;
                    waiting.slot.state = SlotRequestState::Full(self.sleep(FULL_PAUSE));
                }
                SlotRequestState::Full(pause) => {
                    if counts.closed.load(Ordering::Acquire) == waiting.slot.closed {
                        ready!(Pin::new(pause).poll(context));
                    }
                    let Some(gate) = &self.in_all else { return Poll::Pending };
                    waiting.slot = self.request_slot(gate);
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

/// True for an error of one connection: the next `accept` may well succeed.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}
