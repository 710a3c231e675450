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
    pub(super) stream: TcpStream,
    pub(super) slots: ConnectionSlots,
    pub(super) peer: Peer,
    pub(super) client: Client,
    pub(super) idle_timer: IdleTimer,
    pub(super) is_timed_out: bool,
}

impl Connection {
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

    /// How many bytes came or went, or `TimedOut` once the socket was silent for too long.
    fn or_timed_out(
        &mut self,
        direction: Direction,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(Ok(1..)) => self.idle_timer.reset(),
            Poll::Ready(_) => {}
            Poll::Pending => {
                let error = ready!(self.idle_timer.poll(direction, context));
                if !std::mem::replace(&mut self.is_timed_out, true) {
                    self.slots.counts.idle.fetch_add(1, Ordering::Relaxed);
                }
                return Poll::Ready(Err(error));
            }
        }
        polled
    }
}

/// The slots of a connection: one of all, one of its client.
pub(super) struct ConnectionSlots {
    in_all: Option<Permit>,
    pub(super) of_client: Option<Permit>,
    pub(super) counts: Arc<Counts>,
}

impl ConnectionSlots {
    /// Counts a connection as open, with a slot if connections are limited in all.
    pub(super) fn new(in_all: Option<Permit>, counts: Arc<Counts>) -> Self {
        counts.accepted.fetch_add(1, Ordering::AcqRel);
        Self { in_all, of_client: None, counts }
    }
}

impl Drop for ConnectionSlots {
    fn drop(&mut self) {
        // Before the listener is woken, which then requests a slot. The client's slot first: the
        // connection that gets the slot in all needs it next.
        drop(self.of_client.take());
        drop(self.in_all.take());
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
        let polled = polled.map_ok(|()| buffer.filled().len() - before);
        self.or_timed_out(Direction::Read, context, polled).map_ok(drop)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_timed_out(Direction::Write, context, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.or_timed_out(Direction::Write, context, polled)
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
            .field("slots", &[&self.slots.in_all, &self.slots.of_client])
            .finish_non_exhaustive()
    }
}
