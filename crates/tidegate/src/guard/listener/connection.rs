//! A connection that holds its places.

use super::super::peer::Peer;
use super::stats::Counts;
use crate::{Client, Permit};
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// An accepted connection. Holds its places, in all and of its client, until it is dropped.
///
/// With hyper, wrap it in `hyper_util::rt::TokioIo`, and put [`peer`](Self::peer) into the
/// extensions of its requests.
pub struct Connection {
    // Dropped in this order: a place is free when the socket is closed, not before.
    stream: TcpStream,
    places: Places,
    peer: Peer,
    client: Client,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, places: Places, peer: Peer, client: Client) -> Self {
        Self { stream, places, peer, client }
    }

    /// Who is at the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// The address of who is at the other end, as a trusted PROXY header or the socket
    /// has it.
    pub fn peer_addr(&self) -> std::net::SocketAddr {
        self.peer.addr()
    }

    /// The client that the connection was counted for.
    pub fn client(&self) -> Client {
        self.client
    }

    /// The socket.
    pub fn get_ref(&self) -> &TcpStream {
        &self.stream
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
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
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
