//! Finds the client of a request: reads from the right what trusted proxies have written.
//!
//! Every proxy appends the address of its peer, so the right end of the list is the youngest. As
//! long as an address is a trusted proxy's, that proxy has written the hop to its left. The first
//! other address is the client, which can have written everything further left: that is never
//! read.

pub(crate) mod forwarded;
pub(crate) mod node;
pub(crate) mod peer;

use crate::caller::Client;
use crate::rules::network::{NetworkError, Networks};
use http::header::{FORWARDED, HeaderMap, HeaderName};
use std::net::IpAddr;
use std::sync::Arc;

/// How many hops are read: more proxies in a row do not exist.
const HOPS_MAX: usize = 64;
/// How many bytes are read in all; a proxy adds a few dozen.
const BYTES_MAX: usize = 8 * 1024;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Finds the client of a request: the peer, or the address that trusted proxies state.
///
/// ```
/// use http::HeaderMap;
/// use tidegate::http::ClientIp;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", "6.6.6.6, 203.0.113.9, 10.0.0.7".parse()?);
/// let proxy = Some("10.0.0.1".parse()?);
///
/// // No proxy is trusted: the header is not read.
/// assert_eq!(ClientIp::peer().find(proxy, &headers).unwrap().to_string(), "10.0.0.1");
///
/// // `6.6.6.6` was written by the client, `203.0.113.9` is the client's address.
/// let behind = ClientIp::behind(["10.0.0.0/8"])?;
/// assert_eq!(behind.find(proxy, &headers).unwrap().to_string(), "203.0.113.9");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # The rules
/// - A peer that is not a trusted proxy is the client; no header is read. Without a known
///   peer there is no client.
/// - Otherwise the header is read from the right, all its lines being one list. Trusted hops are
///   skipped, the first other address is the client. If all are trusted, the leftmost is.
/// - A hop that is empty, malformed or hidden (`unknown`, `for=_x`) ends the search. The client is
///   then the last address that a trusted hop has written, which is a proxy's: such requests share
///   one allowance, so a client cannot get a fresh one by sending garbage.
/// - At most 64 hops and 8 KiB are read; then the search ends in the same way.
///
/// An IPv4 address written as IPv6 (`::ffff:192.0.2.1`) is an IPv4 address everywhere.
///
/// # What a proxy must do
/// Append the address of its peer, or overwrite the header. One that passes the header on unchanged
/// must not be trusted: its client writes the right end then. One that copies a client's text into
/// `Forwarded` (`host=…`) has to quote it.
#[derive(Clone, Debug)]
pub struct ClientIp {
    trusted: Arc<Networks>,
    header: HeaderName,
    format: HeaderFormat,
    ipv4_bits: u8,
    ipv6_bits: u8,
}

/// The format of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderFormat {
    /// Addresses, separated by commas.
    List,
    /// Elements of RFC 7239.
    Forwarded,
    /// One address.
    One,
}

impl Default for ClientIp {
    fn default() -> Self {
        Self::peer()
    }
}

impl ClientIp {
    /// The client is the peer, the other end of the connection. No header is read. The default.
    pub fn peer() -> Self {
        Self {
            trusted: Arc::default(),
            header: X_FORWARDED_FOR,
            format: HeaderFormat::List,
            ipv4_bits: 32,
            ipv6_bits: Client::IPV6_BITS,
        }
    }

    /// Behind trusted proxies: networks (`10.0.0.0/8`, `fd00::/8`), addresses, or the sets
    /// `loopback` (127.0.0.0/8, ::1) and `private` (10.0.0.0/8, 172.16.0.0/12,
    /// 192.168.0.0/16, fc00::/7). Default header: `X-Forwarded-For`.
    ///
    /// Name the proxies, not the clients: a trusted peer can name any address.
    ///
    /// # Errors
    /// If a text is not a network, or there is none.
    pub fn behind<N: AsRef<str>>(proxies: impl IntoIterator<Item = N>) -> Result<Self, ClientIpError> {
        let trusted = Networks::parse(proxies)?;
        if trusted.is_empty() {
            return Err(ClientIpError::NobodyTrusted);
        }
        Ok(Self { trusted: Arc::new(trusted), ..Self::peer() })
    }

    /// Reads `Forwarded` (RFC 7239), from proxies that are trusted.
    ///
    /// # Errors
    /// If no proxy is trusted.
    pub fn forwarded(self) -> Result<Self, ClientIpError> {
        self.reading(FORWARDED, HeaderFormat::Forwarded)
    }

    /// Reads `X-Forwarded-For`, from proxies that are trusted.
    ///
    /// # Errors
    /// If no proxy is trusted.
    pub fn x_forwarded_for(self) -> Result<Self, ClientIpError> {
        self.reading(X_FORWARDED_FOR, HeaderFormat::List)
    }

    /// Reads one address from a header that the trusted peer sets itself, such as
    /// `cf-connecting-ip` or `x-real-ip`. Without exactly one line with one address, the
    /// client is the peer.
    ///
    /// Only for a peer that overwrites this header on every request, and that clients cannot
    /// bypass.
    ///
    /// # Errors
    /// If the name is not a header's, or is that of a list, which has its own method, or if no proxy
    /// is trusted.
    pub fn header(self, name: &str) -> Result<Self, ClientIpError> {
        let shown = || crate::Key::new(name).to_string();
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| ClientIpError::Header(shown()))?;
        if header == X_FORWARDED_FOR || header == FORWARDED {
            return Err(ClientIpError::List(shown()));
        }
        self.reading(header, HeaderFormat::One)
    }

    /// Without a trusted proxy no header would ever be read, which is an error.
    fn reading(self, header: HeaderName, format: HeaderFormat) -> Result<Self, ClientIpError> {
        if self.trusted.is_empty() {
            return Err(ClientIpError::NobodyTrusted);
        }
        Ok(Self { header, format, ..self })
    }

    /// IPv4 addresses with the same leading bits are one client. Default: 32.
    #[must_use]
    pub fn ipv4_bits(self, bits: u8) -> Self {
        Self { ipv4_bits: bits, ..self }
    }

    /// IPv6 addresses with the same leading bits are one client. Default: 64, because the owner of
    /// one address of a /64 has all of them.
    #[must_use]
    pub fn ipv6_bits(self, bits: u8) -> Self {
        Self { ipv6_bits: bits, ..self }
    }

    /// True if this peer is one of the trusted proxies.
    pub fn is_trusted(&self, peer: IpAddr) -> bool {
        self.trusted.contain(peer.to_canonical())
    }

    /// True if this is how a client is written.
    pub(crate) fn is_client(&self, text: &str) -> bool {
        let address = text.split_once('/').map_or(text, |(address, _)| address);
        let client = |ip| Client::within(ip, self.ipv4_bits, self.ipv6_bits);
        address.parse().is_ok_and(|ip| client(ip).to_string() == text)
    }

    /// The client, by its network.
    #[inline]
    pub fn find(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<Client> {
        // Most guards trust no proxy.
        let ip = if self.trusted.is_empty() { peer } else { self.address(peer, headers) };
        Some(Client::within(ip?, self.ipv4_bits, self.ipv6_bits))
    }

    /// The client's whole address, canonical: the peer's, or the one that it names if it is trusted.
    pub fn address(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = peer?.to_canonical();
        if !self.trusted.contain(peer) {
            return Some(peer);
        }
        let mut lines = headers.get_all(&self.header).iter().map(http::HeaderValue::as_bytes);
        Some(match self.format {
            HeaderFormat::One => match (lines.next(), lines.next()) {
                (Some(line), None) => node::address(line.trim_ascii()).unwrap_or(peer),
                _ => peer,
            },
            HeaderFormat::List | HeaderFormat::Forwarded => {
                self.walk(peer, lines.rev(), &mut Work::default())
            }
        })
    }

    /// The client of a trusted peer. `lines` come last first.
    fn walk<'a>(&self, peer: IpAddr, lines: impl Iterator<Item = &'a [u8]>, work: &mut Work) -> IpAddr {
        let mut vouched = peer;
        for line in lines {
            let mut rest = Some(line);
            while let Some(left) = rest {
                let Some((further_left, hop)) = self.format.last_hop(left, work) else { return vouched };
                let Some(ip) = self.format.address(hop) else { return vouched };
                vouched = ip;
                if !self.trusted.contain(ip) {
                    return vouched;
                }
                rest = further_left;
            }
        }
        vouched
    }
}

impl HeaderFormat {
    /// The last hop of a line, and what is left of its comma if there is one. None if it
    /// is not found within the bounds.
    fn last_hop<'a>(self, line: &'a [u8], work: &mut Work) -> Option<(Option<&'a [u8]>, &'a [u8])> {
        let bytes_max = BYTES_MAX - work.bytes;
        let start = match self {
            Self::Forwarded => forwarded::last_element(line, bytes_max),
            Self::List | Self::One => {
                let floor = line.len().saturating_sub(bytes_max);
                let comma = line[floor..].iter().rposition(|byte| *byte == b',');
                comma.map(|comma| floor + comma + 1).or((floor == 0).then_some(0))
            }
        };
        work.hops += 1;
        let Some(start) = start.filter(|_| work.hops <= HOPS_MAX) else {
            work.bytes += bytes_max.min(line.len());
            return None;
        };
        work.bytes += line.len() - start;
        let rest = start.checked_sub(1).map(|comma| &line[..comma]);
        Some((rest, &line[start..]))
    }

    fn address(self, hop: &[u8]) -> Option<IpAddr> {
        match self {
            Self::Forwarded => forwarded::address(hop),
            Self::List | Self::One => node::address(hop.trim_ascii()),
        }
    }
}

/// How much a search has read.
#[derive(Debug, Default)]
struct Work {
    hops: usize,
    bytes: usize,
}

/// Why a `ClientIp` cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientIpError {
    /// A trusted proxy is not a network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// No proxy is trusted, so no header would ever be read.
    #[error(
        "no proxy is trusted, so no header is ever read: name them, as in \
         `ClientIp::behind([\"10.0.3.0/24\"])`, or write `ClientIp::peer()` alone"
    )]
    NobodyTrusted,
    /// The name is not one.
    #[error("`{0}` is not the name of a header: write for example `cf-connecting-ip`")]
    Header(String),
    /// The name is that of a list.
    #[error("`{0}` is a list of hops, not one address: call `x_forwarded_for()` or `forwarded()` instead")]
    List(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client of `lines`, and the work; the peer is 10.0.0.1, and 10.0.0.0/8 is trusted.
    fn walk(client_ip: &ClientIp, lines: &[&[u8]]) -> (String, Work) {
        let mut work = Work::default();
        let peer = "10.0.0.1".parse().unwrap();
        let ip = client_ip.walk(peer, lines.iter().rev().copied(), &mut work);
        (ip.to_string(), work)
    }

    fn list() -> ClientIp {
        ClientIp::behind(["10.0.0.0/8"]).unwrap()
    }

    #[test]
    fn a_megabyte_of_header_is_looked_at_no_further_than_the_client() {
        let spoofed = "6.6.6.6, ".repeat(120_000) + "203.0.113.9, 10.0.0.2";
        let (client, work) = walk(&list(), &[spoofed.as_bytes()]);
        assert_eq!((client.as_str(), work.hops), ("203.0.113.9", 2));
        assert!(work.bytes <= "6, 203.0.113.9, 10.0.0.2".len(), "{work:?}");

        let spoofed = "for=\"6.6.6.6,".repeat(80_000) + ", for=203.0.113.9, for=10.0.0.2";
        let (client, work) = walk(&list().forwarded().unwrap(), &[spoofed.as_bytes()]);
        assert_eq!((client.as_str(), work.hops), ("203.0.113.9", 2));
        assert!(work.bytes <= ", for=203.0.113.9, for=10.0.0.2".len(), "{work:?}");
    }

    #[test]
    fn thousands_of_trusted_hops_end_at_the_bound() {
        for (client_ip, hop) in [(list(), "10.0.0.3,"), (list().forwarded().unwrap(), "for=10.0.0.3,")] {
            let hops = hop.repeat(10_000) + hop.trim_end_matches(',');
            let (client, work) = walk(&client_ip, &[hops.as_bytes()]);
            assert_eq!(client, "10.0.0.3");
            assert_eq!(work.hops, HOPS_MAX + 1);
            let lines = vec![hop.trim_end_matches(',').as_bytes(); 10_000];
            let (client, work) = walk(&client_ip, &lines);
            assert_eq!((client.as_str(), work.hops), ("10.0.0.3", HOPS_MAX + 1));
        }
    }

    #[test]
    fn a_megabyte_in_one_hop_ends_at_the_bound() {
        let blanks = " ".repeat(1 << 20) + "10.0.0.2";
        let quote = "x".repeat(1 << 20) + "\"";
        for (client_ip, line) in [
            (list(), blanks.as_bytes()),
            (list(), &[0; 1 << 20]),
            (list().forwarded().unwrap(), blanks.as_bytes()),
            (list().forwarded().unwrap(), quote.as_bytes()),
            (list().forwarded().unwrap(), &[b'\\'; 1 << 20]),
            (list().forwarded().unwrap(), &[b'"'; (1 << 20) + 1]),
        ] {
            let (client, work) = walk(&client_ip, &[line]);
            assert_eq!(client, "10.0.0.1");
            assert!(work.bytes <= BYTES_MAX && work.hops == 1, "{work:?}");
        }
    }

    #[test]
    fn the_bound_is_where_it_is_said_to_be() {
        for (client_ip, hop) in [(list(), "10.0.0.2"), (list().forwarded().unwrap(), "for=10.0.0.2")] {
            // Even the comma has to be within the bound.
            for (blanks, seen) in
                [(BYTES_MAX - hop.len(), "10.0.0.1"), (BYTES_MAX - hop.len() - 1, "10.0.0.2")]
            {
                let line = format!(",{}{hop}", " ".repeat(blanks));
                assert_eq!(walk(&client_ip, &[line.as_bytes()]).0, seen, "{blanks} blanks");
            }
        }
    }

    #[test]
    fn bytes_that_no_header_has_end_the_walk() {
        for line in [&b"203.0.113.9, \0"[..], b"203.0.113.9, 10.0.0.2\0", b"203.0.113.9,\xff", b"\0,\0"] {
            assert_eq!(walk(&list(), &[line]).0, "10.0.0.1");
            assert_eq!(walk(&list().forwarded().unwrap(), &[line]).0, "10.0.0.1");
        }
    }
}
