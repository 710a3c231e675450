//! A TCP listener that limits connections, in all and by client, and reads the PROXY
//! protocol. It does not speak HTTP or TLS: what it accepts goes to a server.

mod accept;
#[cfg(feature = "axum")]
mod axum;
mod connection;
mod handshake;
mod idle;
mod proxy_protocol;
mod stats;

pub use connection::Connection;
pub use stats::ListenerStats;

use crate::clock::StoreClock;
use crate::rules::network::{NetworkError, Networks};
use crate::sleep::Sleep;
use crate::{Algorithm, Client, Clock, Gate, Limit, MonotonicClock, Permit};
use futures_util::stream::FuturesUnordered;
use socket2::SockRef;
use stats::Counts;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};

/// A `TcpListener` that limits connections, in all and by client, and reads the PROXY
/// protocol.
///
/// ```
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate::Limiter;
/// use tidegate::listener::Listener;
///
/// let limiter = Limiter::new();
/// let mut listener = Listener::bind("0.0.0.0:8080")
///     .await?
///     .connections(limiter.gate("connections", "10000 concurrent")?)?
///     .connections_by_client(limiter.gate("connections.client", "20 concurrent")?)?;
/// let stats = listener.stats();
/// loop {
///     let connection = listener.accept().await;
///     println!("{} connected, {} are open", connection.peer(), stats.open());
///     // Serve it in a task; its slots are free again when it is dropped.
/// }
/// # }
/// ```
///
/// - *In all*: when all slots are taken, no more connections are accepted until one is free. At
///   most one connection is already accepted then and waits, unread; all others wait in the
///   system's queue. None is closed.
/// - *By client*: a connection is closed at once if its client has as many as it may have.
///   It would otherwise wait for its own client, at the cost of all others.
///
/// The slots are those of gates, which have names, and whose limits can be changed while the
/// listener runs ([`Gate::change`]). A gate in Redis limits across processes, with one check for
/// each connection. A gate's `queue` and `wait` do not count here.
///
/// A silent connection does not keep its slots:
/// [`first_byte_timeout`](Self::first_byte_timeout), [`idle_timeout`](Self::idle_timeout).
#[cfg_attr(
    feature = "axum",
    doc = r##"
`axum::serve` takes it as it is. A handler gets the [`Peer`](crate::http::Peer) as `ConnectInfo`:

```
# async fn run() -> Result<(), Box<dyn std::error::Error>> {
use axum::{Router, extract::ConnectInfo, routing::get};
use tidegate::http::Peer;
use tidegate::listener::Listener;

let app = Router::new().route("/", get(|ConnectInfo(peer): ConnectInfo<Peer>| async move { peer.to_string() }));
let listener = Listener::bind("0.0.0.0:8080").await?;
axum::serve(listener, app.into_make_service_with_connect_info::<Peer>()).await?;
# Ok(())
# }
```
"##
)]
///
/// As a `Stream` of connections it never ends and never fails.
pub struct Listener {
    tcp: TcpListener,
    in_all: Option<Gate>,
    headers_max: usize,
    settings: Arc<Settings>,
    counts: Arc<Counts>,
    /// The connection that is accepted, and waits for a slot.
    waiting: Option<SlotWait>,
    /// Connections that have a slot, and whose PROXY header is read.
    handshakes: FuturesUnordered<Handshake>,
    pause: Option<Sleep>,
}

/// Default of [`Listener::backlog`]. When a sale opens, thousands of clients connect within a
/// second; one that finds the queue full is not refused, but tries again after a second, then
/// after three.
const BACKLOG: u32 = 4_096;

type SlotWait = Pin<Box<dyn Future<Output = (TcpStream, SocketAddr, Permit)> + Send>>;

type Handshake = Pin<Box<dyn Future<Output = Option<Connection>> + Send>>;

/// What every handshake needs.
#[derive(Clone)]
struct Settings {
    by_client: Option<Gate>,
    /// The networks that may send a PROXY header, and have to.
    proxies: Option<Networks>,
    header_timeout: Duration,
    first_byte_timeout: Duration,
    idle_timeout: Duration,
    ipv4_bits: u8,
    ipv6_bits: u8,
    clock: StoreClock,
}

impl Settings {
    fn sleep(&self, time: Duration) -> Sleep {
        Sleep::until(self.clock.clone(), self.clock.now() + time)
    }
}

impl Listener {
    /// Listens on an address, without any limit yet, and with a [`backlog`](Self::backlog) of
    /// 4,096.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        Self::new(TcpListener::bind(addr).await?).backlog(BACKLOG)
    }

    /// Accepts from this listener, without any limit yet. Its backlog stays what it is: 128, if
    /// it is tokio's or the standard library's.
    pub fn new(tcp: TcpListener) -> Self {
        Self {
            tcp,
            in_all: None,
            headers_max: 1_024,
            settings: Arc::new(Settings {
                by_client: None,
                proxies: None,
                header_timeout: Duration::from_secs(5),
                // Clients send at once; a response may take its time.
                first_byte_timeout: Duration::from_secs(10),
                idle_timeout: Duration::from_mins(5),
                ipv4_bits: 32,
                ipv6_bits: Client::IPV6_BITS,
                clock: StoreClock::Monotonic(MonotonicClock::new()),
            }),
            counts: Arc::default(),
            waiting: None,
            handshakes: FuturesUnordered::new(),
            pause: None,
        }
    }

    /// How many connections may wait in the system's queue until they are accepted. The system
    /// cuts it to its own maximum (on Linux `net.core.somaxconn`). Default: 4,096 after
    /// [`bind`](Self::bind).
    ///
    /// When the queue is full, the client gets no error: its system tries again after a second,
    /// then after three more, and so on, until the queue has room.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn backlog(self, connections: u32) -> io::Result<Self> {
        // Listening again changes nothing but the length of the queue.
        SockRef::from(&self.tcp).listen(i32::try_from(connections).unwrap_or(i32::MAX))?;
        Ok(self)
    }

    /// Limits connections in all.
    ///
    /// # Errors
    /// If the gate's limit is not a concurrency limit.
    pub fn connections(mut self, gate: Gate) -> Result<Self, ListenerError> {
        self.in_all = Some(concurrency_gate(gate)?);
        Ok(self)
    }

    /// Limits connections by client. The key is the client's address, as
    /// [`ClientIp`](crate::http::ClientIp) writes it.
    ///
    /// # Errors
    /// If the gate's limit is not a concurrency limit.
    pub fn connections_by_client(mut self, gate: Gate) -> Result<Self, ListenerError> {
        self.settings().by_client = Some(concurrency_gate(gate)?);
        Ok(self)
    }

    /// Expects the PROXY protocol, version 1 or 2, on every connection. It is believed from
    /// these networks only (written as for [`ClientIp::behind`](crate::http::ClientIp::behind));
    /// connections from elsewhere, and those that begin with something else, are closed.
    ///
    /// Headers are read beside the accept loop: a slow one does not delay other connections.
    ///
    /// # Errors
    /// If a text is not a network, or there is none.
    pub fn proxy_protocol<N: AsRef<str>>(
        mut self,
        trusted: impl IntoIterator<Item = N>,
    ) -> Result<Self, ListenerError> {
        let trusted = Networks::parse(trusted)?;
        if trusted.is_empty() {
            return Err(ListenerError::NobodyTrusted);
        }
        self.settings().proxies = Some(trusted);
        Ok(self)
    }

    /// How long a PROXY header may take. Default: 5 s.
    #[must_use]
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.settings().header_timeout = timeout;
        self
    }

    /// How long a connection may be open before its first byte comes or goes, after its PROXY
    /// header if it has one. Then reading and writing fail, and the server drops it. Default:
    /// 10 s. `Duration::MAX` is for ever: then silent connections keep their slots, and as many of
    /// them as there are slots block the listener.
    #[must_use]
    pub fn first_byte_timeout(mut self, timeout: Duration) -> Self {
        self.settings().first_byte_timeout = timeout;
        self
    }

    /// How long a connection may be silent after that, in both directions. Default: 5 minutes. It
    /// should be longer than the slowest response takes to begin, and than a proxy keeps its idle
    /// connections.
    ///
    /// A client that sends a byte now and then is not silent: how long a request may take is a
    /// setting of the server.
    #[must_use]
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.settings().idle_timeout = timeout;
        self
    }

    /// How many PROXY headers are read at the same time, at least one. When as many are, no more
    /// connections are accepted until one has arrived or timed out. Default: 1,024.
    #[must_use]
    pub fn headers_at_once(mut self, headers: usize) -> Self {
        self.headers_max = headers.max(1);
        self
    }

    /// IPv4 addresses with the same leading bits are one client. Default: 32.
    #[must_use]
    pub fn ipv4_bits(mut self, bits: u8) -> Self {
        self.settings().ipv4_bits = bits;
        self
    }

    /// IPv6 addresses with the same leading bits are one client. Default: 64.
    #[must_use]
    pub fn ipv6_bits(mut self, bits: u8) -> Self {
        self.settings().ipv6_bits = bits;
        self
    }

    /// The clock for timeouts and pauses. Default: the process's monotonic one.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.settings().clock = StoreClock::Other(Arc::new(clock));
        self
    }

    fn settings(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }

    /// What the listener counts.
    pub fn stats(&self) -> ListenerStats {
        ListenerStats(self.counts.clone())
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// If the system call fails.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("tcp", &self.tcp)
            .field("in_all", &self.in_all)
            .field("by_client", &self.settings.by_client)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

fn concurrency_gate(gate: Gate) -> Result<Gate, ListenerError> {
    let limit = gate.limit();
    if matches!(limit.algorithm(), Algorithm::Concurrency { .. }) {
        Ok(gate)
    } else {
        Err(ListenerError::NotPlaces { gate: gate.name().into(), limit })
    }
}

/// Why a listener cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenerError {
    /// The gate's limit is a rate.
    #[error(
        "gate `{gate}` is in force as `{limit}`, but a connection holds a slot: write a limit such as \
         `20 concurrent`"
    )]
    NotPlaces {
        /// The gate's name.
        gate: String,
        /// Its limit.
        limit: Limit,
    },
    /// PROXY headers are expected, but no network may send one.
    #[error(
        "`proxy_protocol` names no network, so every connection would be closed: write the load \
         balancer's, such as `10.0.3.0/24`, or leave it out"
    )]
    NobodyTrusted,
    /// A trusted load balancer is not a network.
    #[error(transparent)]
    Network(#[from] NetworkError),
}
