//! The facts of an HTTP request.
//!
//! The client's address and the normalised path are computed when they are needed, and once.

use crate::caller::{Client, User};
use crate::http::client_ip::ClientIp;
use crate::http::client_ip::peer::Peer;
use crate::http::json::fields::JsonFields;
use crate::http::text;
use crate::rules::network;
use crate::rules::{Fact, FactValue, Facts, RequestPath};
#[cfg(feature = "axum")]
use axum::extract::ConnectInfo;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, HOST, ORIGIN};
use http::{Extensions, HeaderMap, Method, Uri, Version};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;
#[cfg(feature = "axum")]
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Finds the peer's address, for servers that do not put it where axum does.
pub(crate) type FindPeer = Arc<dyn Fn(&Extensions) -> Option<IpAddr> + Send + Sync>;

/// Finds an entry of a request.
pub(crate) type FindEntry = Box<dyn Fn(&RequestFacts<'_>) -> Option<String> + Send + Sync>;

/// The facts of an HTTP request: the argument of the functions of
/// [`GuardBuilder::entry`](crate::http::GuardBuilder::entry).
#[derive(Debug)]
pub struct RequestFacts<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    sources: &'a FactSources,
    path: RequestPath<'a>,
    client: Cell<Option<Option<Client>>>,
}

/// Where a guard finds facts that are not in the head of a request, and of what it has warned.
#[derive(Default)]
pub(crate) struct FactSources {
    pub(crate) client_ip: ClientIp,
    pub(crate) peer: Option<FindPeer>,
    pub(crate) entries: Vec<(Box<str>, FindEntry)>,
    /// Whether only rules that name the method apply to preflights.
    pub(crate) passes_preflights: bool,
    /// Whether the log was warned that a request came without a peer.
    is_peer_warned: AtomicBool,
    /// Whether the log was warned that no layer reads bodies for a rule.
    is_json_warned: AtomicBool,
}

impl fmt::Debug for FactSources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.client_ip.fmt(f)
    }
}

impl FactSources {
    /// The peer's address.
    #[inline]
    fn peer(&self, extensions: &Extensions) -> Option<IpAddr> {
        if let Some(find) = &self.peer {
            return find(extensions);
        }
        let peer = Peer::of(extensions).map(Peer::ip);
        #[cfg(feature = "axum")]
        let peer =
            peer.or_else(|| extensions.get().map(|ConnectInfo(peer): &ConnectInfo<SocketAddr>| peer.ip()));
        peer
    }
}

/// Logs, once, what the application should set up in another way.
#[cold]
pub(crate) fn warn_once(is_warned: &AtomicBool, what: impl fmt::Display) {
    if !is_warned.swap(true, Ordering::Relaxed) {
        tracing::warn!(target: "tidegate::rules", "{what}");
    }
}

impl<'a> RequestFacts<'a> {
    #[inline]
    pub(crate) fn new<B>(request: &'a http::Request<B>, sources: &'a FactSources) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
            sources,
            path: RequestPath::new(request.uri().path()),
            client: Cell::new(None),
        }
    }

    #[cfg(feature = "axum")]
    pub(crate) fn of_parts(parts: &'a http::request::Parts, sources: &'a FactSources) -> Self {
        let http::request::Parts { method, uri, version, headers, extensions, .. } = parts;
        let (path, client) = (RequestPath::new(uri.path()), Cell::new(None));
        Self { method, uri, version: *version, headers, extensions, sources, path, client }
    }

    /// The target, as received.
    pub fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The version of HTTP.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The header fields, as received.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The extensions, into which the server and other layers put values.
    pub fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The client, for the scope in which the service runs: no warning if it is not known.
    #[inline]
    pub(crate) fn caller_client(&self) -> Option<Client> {
        if let Some(known) = self.client.get() {
            return known;
        }
        let FactSources { client_ip, .. } = self.sources;
        let client = client_ip.find(self.sources.peer(self.extensions), self.headers);
        self.client.set(Some(client));
        client
    }

    /// The signed-in user, if the application has put a [`User`] into the extensions.
    pub(crate) fn caller_user(&self) -> Option<&'a User> {
        User::of(self.extensions)
    }

    /// True for a CORS preflight.
    pub(crate) fn is_preflight(&self) -> bool {
        *self.method == Method::OPTIONS
            && self.headers.contains_key(ORIGIN)
            && self.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }
}

impl Facts for RequestFacts<'_> {
    fn client(&self) -> Option<Client> {
        let client = self.caller_client();
        if client.is_none() {
            // One allowance for all clients would otherwise look like one for each.
            warn_once(
                &self.sources.is_peer_warned,
                "a key by `ip` met a request without a peer's address: all such requests count as one client, \
                 unless the rule's `missing` skips or refuses them. With axum, write \
                 `app.into_make_service_with_connect_info::<SocketAddr>()`; with another server, set where the \
                 address is: `.peer(|extensions| ...)`",
            );
        }
        client
    }

    /// True for an address that NAT64 must not make (RFC 6052, 3.1): a private IPv4 address or the
    /// like, written as a translated one. A client that sends from it has chosen it.
    fn is_client_forged(&self) -> bool {
        let peer = self.sources.peer(self.extensions);
        self.sources.client_ip.address(peer, self.headers).is_some_and(network::is_forged)
    }

    fn user(&self) -> Option<&str> {
        self.caller_user().map(User::as_str)
    }

    fn method(&self) -> Option<&str> {
        Some(self.method.as_str())
    }

    fn needs_named_method(&self) -> bool {
        self.sources.passes_preflights && self.is_preflight()
    }

    fn path(&self) -> Option<&RequestPath<'_>> {
        Some(&self.path)
    }

    fn route(&self) -> Option<&str> {
        #[cfg(feature = "axum")]
        return self.extensions.get().map(axum::extract::MatchedPath::as_str);
        #[cfg(not(feature = "axum"))]
        None
    }

    /// As received; `host` is also found where HTTP/2 has it, in the target.
    fn header(&self, name: &str) -> Fact<FactValue<'_>> {
        let field = text::header(self.headers, name).map(Cow::Borrowed);
        match (&field, self.uri.host()) {
            (Fact::Missing, Some(host)) if name == HOST => Fact::Found(Cow::Borrowed(host.as_bytes())),
            _ => field,
        }
    }

    fn query(&self, name: &str) -> Fact<FactValue<'_>> {
        self.uri.query().map_or(Fact::Missing, |query| text::parameter(query, name))
    }

    fn cookie(&self, name: &str) -> Fact<FactValue<'_>> {
        text::cookie(self.headers, name).map(Cow::Borrowed)
    }

    /// The field of the body; ambiguous without a [`JsonLayer`](crate::http::JsonLayer).
    fn json(&self, pointer: &str) -> Fact<FactValue<'_>> {
        let found = self.extensions.get().and_then(|JsonFields(fields)| fields.get(pointer));
        if found.is_none() {
            // One allowance for all requests would otherwise look like one for each value.
            warn_once(
                &self.sources.is_json_warned,
                format_args!(
                    "a rule needs `json:{pointer}`, but no JSON layer reads the body: all such requests share \
                     one allowance, unless the rule's `missing` refuses them. Add the guard's JSON layer \
                     outside of its layer, around the same routes: \
                     `.layer(guard.layer()).layer(guard.json_layer())` with axum, \
                     `.layer(guard.json_layer()).layer(guard.layer())` with tower's `ServiceBuilder`"
                ),
            );
        }
        match found {
            Some(Fact::Found(text)) => Fact::Found(Cow::Borrowed(text.as_bytes())),
            Some(Fact::Missing) => Fact::Missing,
            Some(Fact::Ambiguous) | None => Fact::Ambiguous,
        }
    }

    /// The value that the function of [`GuardBuilder::entry`](crate::http::GuardBuilder::entry)
    /// returns.
    fn entry(&self, name: &str) -> Fact<FactValue<'_>> {
        let find = self.sources.entries.iter().find(|(own, _)| **own == *name);
        find.and_then(|(_, find)| find(self)).map(|value| Cow::Owned(value.into_bytes())).into()
    }
}
