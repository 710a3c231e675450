//! From an accepted socket to a connection: reads its PROXY header, then takes its client's slot.
//!
//! It runs beside the accept loop, and never delays it.

use super::Settings;
use super::connection::{Connection, ConnectionSlots};
use super::idle::IdleTimer;
use super::proxy_protocol::{self, HeaderError, ProxyHeader};
use super::stats::Counts;
use crate::http::client_ip::peer::Peer;
use crate::{Client, Denial};
use futures_util::future::{Either, select};
use socket2::{SockRef, TcpKeepalive};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Bytes of a header that are peeked at together.
const CHUNK: usize = 256;
const KEEPALIVE_TIME: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The connection; none if it was rejected, which is counted.
///
/// (The slots are an argument before the socket, because arguments are dropped from the last on: a
/// slot is free once the socket is closed, not before.)
pub(super) async fn handshake(
    mut slots: ConnectionSlots,
    mut stream: TcpStream,
    socket_peer: SocketAddr,
    settings: Arc<Settings>,
) -> Option<Connection> {
    let peer = match &settings.proxies {
        Some(_) => proxied_peer(&mut stream, socket_peer, &settings, &slots.counts).await?,
        None => Peer::new(socket_peer),
    };
    let client = Client::within(peer.ip(), settings.ipv4_bits, settings.ipv6_bits);
    if let Some(gate) = &settings.by_client {
        match gate.reserve_cost_async(&client.to_string(), 1).await.into_permit() {
            Ok(slot) => slots.of_client = Some(slot),
            Err(refusal) => match refusal.decision().denial() {
                Some(Denial::Full | Denial::Unavailable(_)) => return rejected(&slots.counts.undecided),
                _ => return rejected(&slots.counts.refused),
            },
        }
    }
    // Responses are written whole: waiting for more bytes to send would only delay them.
    let _ = stream.set_nodelay(true);
    // Detects a peer that has disappeared, also where the idle timeout is switched off.
    let alive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&alive);
    let idle_timer = IdleTimer::new(settings);
    Some(Connection { stream, slots, peer, client, idle_timer, is_timed_out: false })
}

fn rejected<T>(count: &AtomicU64) -> Option<T> {
    count.fetch_add(1, Ordering::Relaxed);
    None
}

/// The peer that the PROXY header names, if it comes in time.
async fn proxied_peer(
    stream: &mut TcpStream,
    socket_peer: SocketAddr,
    settings: &Settings,
    counts: &Counts,
) -> Option<Peer> {
    let late = settings.sleep(settings.header_timeout);
    match select(pin!(read_header(stream)), late).await {
        Either::Left((Ok(ProxyHeader::Client(from)), _)) => Some(Peer::named(from, socket_peer)),
        Either::Left((Ok(ProxyHeader::Local), _)) => Some(Peer::new(socket_peer)),
        Either::Left((Err(error), _)) => {
            if let Some(error) = error {
                *counts.last_bad_header() = Some((socket_peer, error));
            }
            rejected(&counts.bad_headers)
        }
        Either::Right(_) => rejected(&counts.late_headers),
    }
}

/// Reads the header from the stream, and leaves everything after it. The error is none if the stream
/// ended within the header.
async fn read_header(stream: &mut TcpStream) -> Result<ProxyHeader, Option<HeaderError>> {
    let (mut kept, mut chunk) = (Vec::new(), [0; CHUNK]);
    loop {
        // Peeked at first and read afterwards, because only then its end is known.
        let (before, seen) = (kept.len(), stream.peek(&mut chunk).await.unwrap_or(0));
        if seen == 0 {
            return Err(None);
        }
        kept.extend_from_slice(&chunk[..seen]);
        let header = proxy_protocol::parse(&kept)?;
        let end = header.map_or(kept.len(), |(length, _)| length);
        stream.read_exact(&mut chunk[..end - before]).await.map_err(|_| None)?;
        if let Some((_, header)) = header {
            return Ok(header);
        }
    }
}
