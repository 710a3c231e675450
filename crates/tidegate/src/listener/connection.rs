//! A connection that holds its slots, and fails once it was silent for too long.

use super::idle::{Direction, IdleTimer};
use super::stats::Counts;
use crate::http::client_ip::peer::Peer;
use crate::{Client, Permit};
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// An accepted connection. Holds its slots, in all and of its client, until it is dropped.
///
/// Reading and writing fail with `TimedOut` once it has been silent for too long
/// ([`Listener::first_byte_timeout`](super::Listener::first_byte_timeout),
/// [`Listener::idle_timeout`](super::Listener::idle_timeout)); a server drops it then.
///
/// With hyper, wrap it in `hyper_util::rt::TokioIo`, and put [`peer`](Self::peer) into the
/// extensions of its requests.
pub struct Connection {
    // Dropped in this order: a slot is free once the socket is closed, not before.
    stream: TcpStream,
    slots: ConnectionSlots,
    peer: Peer,
    client: Client,
    idle_timer: IdleTimer,
    is_timed_out: bool,
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        slots: ConnectionSlots,
        peer: Peer,
        client: Client,
        idle_timer: IdleTimer,
    ) -> Self {
        Self { stream, slots, peer, client, idle_timer, is_timed_out: false }
    }

    /// The other end of the connection.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The client that the connection was counted for.
    pub fn client(&self) -> Client {
        self.client
    }

    /// The socket.
    pub fn get_ref(&self) -> &TcpStream {
        &self.stream
    }

    /// The result of polling the socket, or `TimedOut` once it was silent for too long.
    fn or_timed_out<T>(
        &mut self,
        direction: Direction,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            return polled;
        }
        let error = ready!(self.idle_timer.poll(direction, context));
        if !std::mem::replace(&mut self.is_timed_out, true) {
            self.slots.counts.idle.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(Err(error))
    }

    fn written(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.idle_timer.reset();
        }
        self.or_timed_out(Direction::Write, context, polled)
    }
}

/// The slots of a connection: one of all, one of its client.
pub(super) struct ConnectionSlots {
    held: [Option<Permit>; 2],
    counts: Arc<Counts>,
}

impl ConnectionSlots {
    /// Counts a connection as open, with a slot if connections are limited in all.
    pub(super) fn new(in_all: Option<Permit>, counts: Arc<Counts>) -> Self {
        counts.accepted.fetch_add(1, Ordering::AcqRel);
        Self { held: [in_all, None], counts }
    }

    pub(super) fn hold_for_client(&mut self, permit: Permit) {
        self.held[1] = Some(permit);
    }
}

impl Drop for ConnectionSlots {
    fn drop(&mut self) {
        // Before the listener is woken, which then requests a slot. The client's slot first: the
        // connection that gets the slot in all needs it next.
        let [in_all, of_client] = &mut self.held;
        drop(of_client.take());
        drop(in_all.take());
        self.counts.closed.fetch_add(1, Ordering::AcqRel);
        self.counts.listener.wake();
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.idle_timer.reset();
        }
        self.or_timed_out(Direction::Read, context, polled)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(context, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .field("client", &self.client)
            .field("slots", &self.slots.held)
            .finish_non_exhaustive()
    }
}
