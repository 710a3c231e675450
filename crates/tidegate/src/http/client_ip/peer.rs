//! The peer of a connection.

#[cfg(feature = "axum")]
use axum::extract::ConnectInfo;
use http::Extensions;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The other end of a connection: the socket's peer, or the client that a trusted load balancer has
/// named in its PROXY header.
///
/// An IPv4 address written as IPv6, as dual-stack sockets have it, is an IPv4 address.
///
/// ```
/// use tidegate::http::Peer;
/// let peer = Peer::new("[::ffff:203.0.113.9]:50000".parse()?);
/// assert_eq!(peer.to_string(), "203.0.113.9:50000");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    addr: SocketAddr,
    via: Option<SocketAddr>,
}

impl Peer {
    /// The peer of a socket.
    pub fn new(addr: SocketAddr) -> Self {
        Self { addr: canonical(addr), via: None }
    }

    /// The client that the load balancer at `via` has named.
    #[cfg(feature = "listen")]
    pub(crate) fn named(addr: SocketAddr, via: SocketAddr) -> Self {
        Self { via: Some(canonical(via)), ..Self::new(addr) }
    }

    /// The peer among these, if the server has put one there.
    #[inline]
    pub(crate) fn of(extensions: &Extensions) -> Option<&Self> {
        let peer = extensions.get();
        #[cfg(feature = "axum")]
        let peer = peer.or_else(|| extensions.get().map(|ConnectInfo(peer)| peer));
        peer
    }

    /// Its address and port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its address.
    pub fn ip(&self) -> IpAddr {
        self.addr.ip()
    }

    /// The load balancer that named it, if one did.
    pub fn via(&self) -> Option<SocketAddr> {
        self.via
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.addr.fmt(f)
    }
}

fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}
