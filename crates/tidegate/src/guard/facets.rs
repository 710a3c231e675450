//! What rules may ask about a request.
//!
//! The client's address is found when somebody asks for it, and once.

use super::client_ip::ClientIp;
use super::json_fields::JsonFields;
use super::peer::Peer;
use crate::caller::{Client, User, mapped};
use http::{Extensions, HeaderMap, Method, Request, Uri};
use std::cell::Cell;
use std::net::IpAddr;
#[cfg(feature = "axum")]
use std::net::SocketAddr;
use std::sync::Arc;

/// Where the guard finds the peer's address, if not in the usual places.
pub(super) type FindPeer = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

/// What is known about a request: what a rule's own functions get.
#[derive(Debug)]
pub struct Facets<'a> {
    method: &'a Method,
    uri: &'a Uri,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    finder: &'a ClientFinder,
    /// None as long as nobody has asked.
    client: Cell<Option<Option<Client>>>,
}

/// How a guard finds the client of a request.
#[derive(Clone, Default)]
pub(super) struct ClientFinder {
    pub(super) client_ip: ClientIp,
    pub(super) peer: Option<FindPeer>,
}

impl std::fmt::Debug for ClientFinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.client_ip.fmt(f)
    }
}

impl ClientFinder {
    /// The peer's address, [`mapped`].
    #[inline]
    fn peer(&self, extensions: &Extensions) -> Option<u128> {
        if let Some(find) = &self.peer {
            return find(extensions).map(mapped);
        }
        if let Some(peer) = extensions.get::<Peer>() {
            return Some(mapped(peer.ip()));
        }
        #[cfg(feature = "axum")]
        {
            use axum::extract::ConnectInfo;
            if let Some(ConnectInfo(address)) = extensions.get::<ConnectInfo<SocketAddr>>() {
                return Some(mapped(address.ip()));
            }
            if let Some(ConnectInfo(peer)) = extensions.get::<ConnectInfo<Peer>>() {
                return Some(mapped(peer.ip()));
            }
        }
        None
    }
}

impl<'a> Facets<'a> {
    pub(super) fn new<B>(request: &'a Request<B>, finder: &'a ClientFinder) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
            finder,
            client: Cell::new(None),
        }
    }

    #[cfg(feature = "axum")]
    pub(super) fn of_parts(parts: &'a http::request::Parts, finder: &'a ClientFinder) -> Self {
        let http::request::Parts { method, uri, headers, extensions, .. } = parts;
        Self { method, uri, headers, extensions, finder, client: Cell::new(None) }
    }

    /// The method.
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The target.
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The header fields, as they came.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// What the server and other layers have put there.
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The client, as the guard's [`ClientIp`] finds it.
    #[inline]
    pub fn client(&self) -> Option<Client> {
        if self.client.get().is_none() {
            self.find_client();
        }
        self.client.get().flatten()
    }

    #[inline(never)]
    fn find_client(&self) {
        let peer = self.finder.peer(self.extensions);
        let client = peer.map(|peer| self.finder.client_ip.find_mapped(peer, self.headers));
        self.client.set(Some(client));
    }

    /// The signed-in user, if the application has put a [`User`] into the extensions.
    pub fn user(&self) -> Option<&'a User> {
        self.extensions.get()
    }

    /// The pattern of the route that axum has chosen.
    pub(super) fn matched_path(&self) -> Option<&'a str> {
        #[cfg(feature = "axum")]
        return self.extensions.get().map(axum::extract::MatchedPath::as_str);
        #[cfg(not(feature = "axum"))]
        None
    }

    pub(super) fn json(&self, pointer: &str) -> Option<&'a str> {
        self.extensions.get::<JsonFields>()?.get(pointer)
    }
}
