//! The accept loop: accepts connections while there are free slots, and drives their handshakes.
//!
//! It does not read from a connection: a slow one must not delay the others.

use super::connection::ConnectionSlots;
use super::handshake::handshake;
use super::stats::Counts;
use super::{Connection, Listener, Settings};
use crate::{Gate, Permit};
use futures_util::future::select;
use futures_util::stream::Stream;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
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
                Poll::Ready(Some(Some(connection))) => return Poll::Ready(connection),
                Poll::Ready(Some(None)) => continue,
                Poll::Ready(None) | Poll::Pending => {}
            }
            if let Some(waiting) = &mut self.waiting {
                let (stream, peer, slot) = ready!(waiting.as_mut().poll(context));
                self.waiting = None;
                self.begin_handshake(stream, peer, Some(slot));
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
                    self.counts.accept_errors.fetch_add(1, Ordering::Relaxed);
                    self.pause = (!is_connection_error(&error)).then(|| self.settings.sleep(ERROR_PAUSE));
                }
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, peer: SocketAddr) {
        // Closed before it costs anything.
        if self.settings.proxies.as_ref().is_some_and(|proxies| !proxies.contain(peer.ip())) {
            self.counts.untrusted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match self.in_all.clone() {
            Some(gate) => {
                let slot = slot_in_all(gate, self.counts.clone(), self.settings.clone());
                self.waiting = Some(Box::pin(async move { (stream, peer, slot.await) }));
            }
            None => self.begin_handshake(stream, peer, None),
        }
    }

    fn begin_handshake(&self, stream: TcpStream, peer: SocketAddr, slot: Option<Permit>) {
        let slots = ConnectionSlots::new(slot, self.counts.clone());
        self.handshakes.push(Box::pin(handshake(slots, stream, peer, self.settings.clone())));
    }
}

/// A slot, once one is free.
async fn slot_in_all(gate: Gate, counts: Arc<Counts>, settings: Arc<Settings>) -> Permit {
    let mut is_counted = false;
    loop {
        // Before the slot is requested: if more are closed by then, another request is worthwhile.
        let closed = counts.closed.load(Ordering::Acquire);
        if let Ok(slot) = gate.reserve_cost_async(ALL, 1).await.into_permit() {
            return slot;
        }
        if !std::mem::replace(&mut is_counted, true) {
            counts.waited.fetch_add(1, Ordering::Relaxed);
        }
        let has_closed = poll_fn(|context| {
            // Before the count is read: a slot that comes back afterwards wakes this task.
            counts.listener.register(context.waker());
            if counts.closed.load(Ordering::Acquire) == closed { Poll::Pending } else { Poll::Ready(()) }
        });
        select(has_closed, settings.sleep(FULL_PAUSE)).await;
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
