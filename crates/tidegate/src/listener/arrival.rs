//! From an accepted socket with a place to a connection: its PROXY header, then its
//! client's place. Runs beside the accept loop, which it never holds up.

use super::Settings;
use super::connection::{Connection, Places};
use super::proxy_protocol::{HeaderError, HeaderReader, Progress, Told};
use super::silence::Silence;
use crate::http::client_ip::peer::Peer;
use crate::sleep::Sleep;
use crate::{Client, Denial, Refusal};
use futures_util::future::{Either, select};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Why a connection was closed.
#[derive(Debug)]
pub(super) enum Turned {
    /// Its client has as many connections as it may.
    Client,
    /// Nobody could say how many its client has.
    Undecided,
    /// Its PROXY header is not one.
    Header(SocketAddr, HeaderError),
    /// It ended within its PROXY header.
    Ended,
    /// Its PROXY header did not come in time.
    Late,
}

/// Bytes of a header that are looked at together.
const CHUNK: usize = 256;
const KEEPALIVE_TIME: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// (The places come before the socket, as arguments are dropped from the last on: a place is
/// free when the socket is closed, not before.)
pub(super) async fn arrive(
    mut places: Places,
    stream: TcpStream,
    socket_peer: SocketAddr,
    settings: Arc<Settings>,
) -> Result<Connection, Turned> {
    let peer = match &settings.proxies {
        Some(_) => named_peer(&stream, socket_peer, &settings).await?,
        None => Peer::new(socket_peer),
    };
    let client = Client::within(peer.ip(), settings.ipv4_bits, settings.ipv6_bits);
    if let Some(gate) = &settings.by_client {
        let verdict = gate.reserve_cost_async(&client.to_string(), 1).await;
        places.hold_for_client(verdict.into_permit().map_err(|refusal| turned_by(&refusal))?);
    }
    // Answers are written whole: waiting for more to send with them only delays them.
    let _ = stream.set_nodelay(true);
    // A peer that is gone without a word is noticed, also where silence is allowed.
    let alive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&alive);
    let silence = Silence::new(settings.clock.clone(), settings.timeouts);
    Ok(Connection::new(stream, places, peer, client, silence))
}

fn turned_by(refusal: &Refusal) -> Turned {
    match refusal.decision().denial() {
        Some(Denial::Full | Denial::Unavailable(_)) => Turned::Undecided,
        _ => Turned::Client,
    }
}

/// Whom the PROXY header names, if it comes in time.
async fn named_peer(
    stream: &TcpStream,
    socket_peer: SocketAddr,
    settings: &Settings,
) -> Result<Peer, Turned> {
    let late = Sleep::until(settings.clock.clone(), settings.clock.now() + settings.header_timeout);
    match select(pin!(read_header(stream, socket_peer)), pin!(late)).await {
        Either::Left((Ok(Told::Client { from, .. }), _)) => Ok(Peer::named(from, socket_peer)),
        Either::Left((Ok(Told::Nothing), _)) => Ok(Peer::new(socket_peer)),
        Either::Left((Err(turned), _)) => Err(turned),
        Either::Right(_) => Err(Turned::Late),
    }
}

/// Takes the header off the stream and leaves everything behind it.
async fn read_header(stream: &TcpStream, socket_peer: SocketAddr) -> Result<Told, Turned> {
    let mut reader = HeaderReader::new();
    let mut chunk = [0; CHUNK];
    loop {
        // Looked at first and taken afterwards, as only then it is known where it ends.
        let seen = stream.peek(&mut chunk).await.map_err(|_| Turned::Ended)?;
        if seen == 0 {
            return Err(Turned::Ended);
        }
        let progress = reader.read(&chunk[..seen]).map_err(|error| Turned::Header(socket_peer, error))?;
        let (used, told) = match progress {
            Progress::More => (seen, None),
            Progress::Done { used, told } => (used, Some(told)),
        };
        take(stream, &mut chunk[..used]).await.map_err(|_| Turned::Ended)?;
        if let Some(told) = told {
            return Ok(told);
        }
    }
}

/// Takes as many bytes as were seen before.
async fn take(stream: &TcpStream, mut seen: &mut [u8]) -> io::Result<()> {
    while !seen.is_empty() {
        stream.readable().await?;
        match stream.try_read(seen) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(taken) => seen = &mut seen[taken..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
