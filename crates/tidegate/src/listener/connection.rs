//! A connection that holds its places.

use super::silence::{Side, Silence};
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

/// An accepted connection. Holds its places, in all and of its client, until it is dropped.
///
/// Reading and writing fail with `TimedOut` once it has been silent for too long
/// ([`Listener::first_byte_timeout`](super::Listener::first_byte_timeout),
/// [`Listener::idle_timeout`](super::Listener::idle_timeout)); a server drops it then.
///
/// With hyper, wrap it in `hyper_util::rt::TokioIo`, and put [`peer`](Self::peer) into the
/// extensions of its requests.
pub struct Connection {
    // Dropped in this order: a place is free when the socket is closed, not before.
    stream: TcpStream,
    places: Places,
    peer: Peer,
    client: Client,
    silence: Silence,
    is_timed_out: bool,
}

impl Connection {
    pub(super) fn new(
        stream: TcpStream,
        places: Places,
        peer: Peer,
        client: Client,
        silence: Silence,
    ) -> Self {
        Self { stream, places, peer, client, silence, is_timed_out: false }
    }

    /// Who is at the other end.
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

    /// What the socket says, unless it says nothing for too long.
    fn or_silent<T>(
        &mut self,
        side: Side,
        context: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            return polled;
        }
        let error = ready!(self.silence.poll(side, context));
        if !std::mem::replace(&mut self.is_timed_out, true) {
            self.places.counts.idle.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(Err(error))
    }

    fn written(
        &mut self,
        context: &mut Context<'_>,
        polled: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if matches!(polled, Poll::Ready(Ok(1..))) {
            self.silence.broken();
        }
        self.or_silent(Side::Write, context, polled)
    }
}

/// The places of a connection.
pub(super) struct Places {
    held: [Option<Permit>; 2],
    counts: Arc<Counts>,
}

impl Places {
    /// A connection is in, with a place in all if those are limited.
    pub(super) fn new(in_all: Option<Permit>, counts: Arc<Counts>) -> Self {
        counts.accepted.fetch_add(1, Ordering::AcqRel);
        Self { held: [in_all, None], counts }
    }

    pub(super) fn hold_for_client(&mut self, permit: Permit) {
        self.held[1] = Some(permit);
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // Before the listener hears of it: it looks for a free place then. The client's
        // first: whoever gets the place in all asks for it next.
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
            self.silence.broken();
        }
        self.or_silent(Side::Read, context, polled)
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
            .field("places", &self.places.held)
            .finish_non_exhaustive()
    }
}
