//! What rules may ask about a request.
//!
//! The client's address and the normalised path are found when somebody asks for them, and once.

use crate::caller::{Client, User, mapped};
use crate::http::client_ip::ClientIp;
use crate::http::client_ip::peer::Peer;
use crate::http::json::fields::{Field, JsonFields};
use crate::rules::network;
use crate::rules::route::path::Paths;
#[cfg(feature = "axum")]
use axum::extract::ConnectInfo;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, ORIGIN};
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};
use std::cell::Cell;
#[cfg(feature = "axum")]
use std::net::SocketAddr;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the guard finds the peer's address, if not in the usual places.
pub(crate) type FindPeer = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

/// What is known about a request: what a rule's own functions get.
#[derive(Debug)]
pub struct Facets<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    finder: &'a ClientFinder,
    paths: Paths<'a>,
    /// Whether it is a preflight that only rules about `OPTIONS` apply to.
    is_free_preflight: Cell<bool>,
    /// Whether it is known who the client is, or that nobody is.
    is_client_known: Cell<bool>,
    client: Cell<Option<Client>>,
}

/// How a guard finds the client of a request, and what it has warned of.
#[derive(Default)]
pub(crate) struct ClientFinder {
    pub(crate) client_ip: ClientIp,
    pub(crate) peer: Option<FindPeer>,
    /// Whether the log was warned that a request came without a peer.
    is_peer_warned: AtomicBool,
    /// Whether the log was warned that no layer reads bodies for a rule.
    is_json_warned: AtomicBool,
}

impl std::fmt::Debug for ClientFinder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.client_ip.fmt(f)
    }
}

impl ClientFinder {
    #[inline(always)]
    pub(crate) fn client(&self, extensions: &Extensions, headers: &HeaderMap) -> Option<Client> {
        Some(self.client_ip.find_mapped(self.peer(extensions)?, headers))
    }

    /// Says, once, that a key by `ip` has met a request without a peer's address. Otherwise
    /// one allowance for everybody would look like one for each client.
    #[cold]
    fn warn_of_no_peer(&self) {
        if !self.is_peer_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "tidegate::guard",
                "a key by `ip` met a request without a peer's address: all such requests count as one client, \
                 or as the rule's `missing` says. With axum, write \
                 `app.into_make_service_with_connect_info::<SocketAddr>()`; with another server, tell the guard \
                 where the address is: `.peer(|extensions| ...)`"
            );
        }
    }

    /// Warns, once, that a rule asks for a field of a body that no layer has looked into.
    /// Otherwise one allowance for everybody would look like one for each value.
    #[cold]
    fn warn_of_no_json_layer(&self, pointer: &str) {
        if !self.is_json_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                target: "tidegate::guard",
                "a rule asks for `json:{pointer}`, but nothing reads the body for it: all such requests share \
                 one allowance, or are refused if the rule's `missing` says so. Add the guard's JSON layer \
                 outside of its layer, around the same routes: \
                 `.layer(guard.layer()).layer(guard.json_layer())` with axum, \
                 `.layer(guard.json_layer()).layer(guard.layer())` with tower's `ServiceBuilder`"
            );
        }
    }

    /// The peer's address, [`mapped`].
    #[inline]
    fn peer(&self, extensions: &Extensions) -> Option<u128> {
        if self.peer.is_some() || Peer::is_any() {
            return self.peer_elsewhere(extensions);
        }
        of_axum(extensions)
    }

    /// Where there may be more than the framework's own word. Apart, as most have no more.
    #[inline(never)]
    fn peer_elsewhere(&self, extensions: &Extensions) -> Option<u128> {
        if let Some(find) = &self.peer {
            return find(extensions).map(mapped);
        }
        if let Some(peer) = extensions.get::<Peer>() {
            return Some(mapped(peer.ip()));
        }
        let of_axum = of_axum(extensions);
        #[cfg(feature = "axum")]
        let of_axum = of_axum.or_else(|| {
            let ConnectInfo(peer) = extensions.get::<ConnectInfo<Peer>>()?;
            Some(mapped(peer.ip()))
        });
        of_axum
    }
}

#[inline]
fn of_axum(extensions: &Extensions) -> Option<u128> {
    #[cfg(feature = "axum")]
    return extensions.get().map(|ConnectInfo(peer): &ConnectInfo<SocketAddr>| mapped(peer.ip()));
    #[cfg(not(feature = "axum"))]
    {
        let _ = extensions;
        None
    }
}

impl<'a> Facets<'a> {
    pub(crate) fn new<B>(request: &'a Request<B>, finder: &'a ClientFinder) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
            finder,
            paths: Paths::new(request.uri().path()),
            is_free_preflight: Cell::new(false),
            is_client_known: Cell::new(false),
            client: Cell::new(None),
        }
    }

    #[cfg(feature = "axum")]
    pub(crate) fn of_parts(parts: &'a http::request::Parts, finder: &'a ClientFinder) -> Self {
        let http::request::Parts { method, uri, version, headers, extensions, .. } = parts;
        Self {
            method,
            uri,
            version: *version,
            headers,
            extensions,
            finder,
            paths: Paths::new(uri.path()),
            is_free_preflight: Cell::default(),
            is_client_known: Cell::default(),
            client: Cell::default(),
        }
    }

    /// The method.
    pub fn method(&self) -> &'a Method {
        self.method
    }

    /// The target, as it came. Its path can be written in many ways: [`path`](Self::path) is one
    /// for all of them.
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The version of HTTP.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The path, normalised as in RFC 3986 §6.2.2 (percent-encoded letters, digits and `-._~`
    /// decoded, dot segments removed), with doubled slashes as one: `/goods/7` for
    /// `//goods/x/../%37`. A service whose router takes the path as it came sees `uri().path()`:
    /// where a client must not choose between the two, compare them.
    pub fn path(&self) -> &str {
        self.paths.normal()
    }

    /// All readings of the path.
    #[inline]
    pub(crate) fn paths(&self) -> &Paths<'a> {
        &self.paths
    }

    /// True if a browser asks whether a page of another origin may send a request.
    pub(crate) fn is_preflight(&self) -> bool {
        *self.method == Method::OPTIONS
            && self.headers.contains_key(ORIGIN)
            && self.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// From now on only rules that name `OPTIONS` apply.
    pub(crate) fn set_free_preflight(&self) {
        self.is_free_preflight.set(true);
    }

    #[inline]
    pub(crate) fn is_free_preflight(&self) -> bool {
        self.is_free_preflight.get()
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
    pub fn client(&self) -> Option<Client> {
        if !self.is_client_known.replace(true) {
            self.client.set(self.finder.client(self.extensions, self.headers));
        }
        self.client.get()
    }

    /// True if the client's address is one that NAT64 must not make (RFC 6052, 3.1): a private IPv4
    /// address or the like, written as a translated one. Whoever can send from it has chosen it.
    pub(crate) fn is_address_forged(&self) -> bool {
        let peer = self.finder.peer(self.extensions).map(|peer| Ipv6Addr::from_bits(peer).into());
        let address = self.finder.client_ip.address(peer, self.headers);
        address.is_some_and(network::is_forged)
    }

    /// The same for a key, where it matters if there is none.
    pub(crate) fn client_of_key(&self) -> Option<Client> {
        let client = self.client();
        if client.is_none() {
            self.finder.warn_of_no_peer();
        }
        client
    }

    /// The signed-in user, if the application has put a [`User`] into the extensions.
    pub fn user(&self) -> Option<&'a User> {
        User::of(self.extensions)
    }

    /// The pattern of the route that axum has chosen.
    pub(crate) fn matched_path(&self) -> Option<&'a str> {
        #[cfg(feature = "axum")]
        return self.extensions.get().map(axum::extract::MatchedPath::as_str);
        #[cfg(not(feature = "axum"))]
        None
    }

    /// What the body says there; unclear without a [`JsonLayer`](crate::http::JsonLayer).
    pub(crate) fn json(&self, pointer: &str) -> &'a Field {
        let found = self.extensions.get::<JsonFields>().and_then(|fields| fields.get(pointer));
        found.unwrap_or_else(|| {
            self.finder.warn_of_no_json_layer(pointer);
            &Field::Unclear
        })
    }
}
