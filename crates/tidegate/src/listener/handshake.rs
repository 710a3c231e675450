//! From an accepted socket to a connection: reads its PROXY header, then takes its client's slot.
//!
//! It runs beside the accept loop, and never delays it.

use super::Settings;
use super::connection::{Connection, ConnectionSlots};
use super::idle::IdleTimer;
use super::proxy_protocol::{self, HeaderError, ProxyHeader};
use crate::http::client_ip::peer::Peer;
use crate::sleep::Sleep;
use crate::{Client, Denial, Refusal};
use futures_util::future::{Either, select};
use socket2::{SockRef, TcpKeepalive};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Why a connection was closed.
#[derive(Debug)]
pub(super) enum Rejected {
    /// Its client has as many connections as it may have.
    ClientLimit,
    /// The store could not decide how many its client has.
    Undecided,
    /// It does not begin with a PROXY header.
    BadHeader(SocketAddr, HeaderError),
    /// It ended within its PROXY header.
    EndedInHeader,
    /// Its PROXY header did not come in time.
    LateHeader,
}

/// Bytes of a header that are peeked at together.
const CHUNK: usize = 256;
const KEEPALIVE_TIME: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// (The slots are an argument before the socket, because arguments are dropped from the last on: a
/// slot is free once the socket is closed, not before.)
pub(super) async fn handshake(
    mut slots: ConnectionSlots,
    mut stream: TcpStream,
    socket_peer: SocketAddr,
    settings: Arc<Settings>,
) -> Result<Connection, Rejected> {
    let peer = match &settings.proxies {
        Some(_) => proxied_peer(&mut stream, socket_peer, &settings).await?,
        None => Peer::new(socket_peer),
    };
    let client = Client::within(peer.ip(), settings.ipv4_bits, settings.ipv6_bits);
    if let Some(gate) = &settings.by_client {
        let verdict = gate.reserve_cost_async(&client.to_string(), 1).await;
        slots.hold_for_client(verdict.into_permit().map_err(|refusal| rejected_by(&refusal))?);
    }
    // Responses are written whole: waiting for more bytes to send would only delay them.
    let _ = stream.set_nodelay(true);
    // Detects a peer that has disappeared, also where the idle timeout is switched off.
    let alive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&alive);
    let idle_timer = IdleTimer::new(settings.clock.clone(), settings.timeouts);
    Ok(Connection::new(stream, slots, peer, client, idle_timer))
}

fn rejected_by(refusal: &Refusal) -> Rejected {
    match refusal.decision().denial() {
        Some(Denial::Full | Denial::Unavailable(_)) => Rejected::Undecided,
        _ => Rejected::ClientLimit,
    }
}

/// The peer that the PROXY header names, if it comes in time.
async fn proxied_peer(
    stream: &mut TcpStream,
    socket_peer: SocketAddr,
    settings: &Settings,
) -> Result<Peer, Rejected> {
    let late = Sleep::until(settings.clock.clone(), settings.clock.now() + settings.header_timeout);
    match select(pin!(read_header(stream, socket_peer)), pin!(late)).await {
        Either::Left((Ok(ProxyHeader::Client(from)), _)) => Ok(Peer::named(from, socket_peer)),
        Either::Left((Ok(ProxyHeader::Local), _)) => Ok(Peer::new(socket_peer)),
        Either::Left((Err(rejected), _)) => Err(rejected),
        Either::Right(_) => Err(Rejected::LateHeader),
    }
}

/// Reads the header from the stream, and leaves everything after it.
async fn read_header(stream: &mut TcpStream, socket_peer: SocketAddr) -> Result<ProxyHeader, Rejected> {
    let (mut kept, mut chunk) = (Vec::new(), [0; CHUNK]);
    loop {
        // Peeked at first and read afterwards, because only then its end is known.
        let (before, seen) = (kept.len(), stream.peek(&mut chunk).await.unwrap_or(0));
        if seen == 0 {
            return Err(Rejected::EndedInHeader);
        }
        kept.extend_from_slice(&chunk[..seen]);
        let header = proxy_protocol::parse(&kept).map_err(|error| Rejected::BadHeader(socket_peer, error))?;
        let end = header.map_or(kept.len(), |(length, _)| length);
        let taken = stream.read_exact(&mut chunk[..end - before]).await;
        taken.map_err(|_| Rejected::EndedInHeader)?;
        if let Some((_, header)) = header {
            return Ok(header);
        }
    }
}
