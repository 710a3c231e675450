//! The PROXY protocol, versions 1 and 2: a header in which a load balancer names the client of a
//! connection, before the connection's own bytes.
//!
//! The reader takes bytes in any pieces, and keeps at most 232 of them, whatever length is
//! declared. It returns where the header ends, so that no byte after it is lost. It does not read
//! sockets, and skips the TLVs of version 2.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A line of version 1 with its end.
const LINE_MAX: usize = 107;
/// The fixed part of version 2, before what it declares.
const FIXED: usize = 16;
/// The largest addresses of version 2, those of unix sockets.
const ADDRESSES_MAX: usize = 216;
/// A whole header. TLVs with a client's certificate stay far below it, and nginx has the same
/// bound.
pub(crate) const HEADER_MAX: usize = 4_096;

const LINE_START: &[u8] = b"PROXY ";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Reads one header.
#[derive(Clone, Debug)]
pub(crate) struct HeaderReader {
    kept: [u8; FIXED + ADDRESSES_MAX],
    /// Bytes read, also those that are not kept.
    read: usize,
}

/// How far a reader has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// All bytes are the header's, and more are to come.
    More,
    /// The header ended after so many of the bytes.
    Done { used: usize, header: ProxyHeader },
}

/// The content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeader {
    /// The load balancer's own connection, or an unknown protocol: the socket's addresses count.
    Local,
    /// The client's address, and the address that it connected to.
    Client { from: SocketAddr, to: SocketAddr },
}

/// Why bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error("no PROXY header: the connection begins with something else")]
    Signature,
    #[error("a PROXY line of more than {LINE_MAX} bytes")]
    LineTooLong,
    #[error("a malformed PROXY line: expected `PROXY TCP4 192.0.2.1 192.0.2.2 56324 443`")]
    Line,
    #[error("a PROXY header of version {0}: only 1 and 2 are known")]
    Version(u8),
    #[error("an unknown command {0} in a PROXY header")]
    Command(u8),
    #[error("an unknown kind of addresses {0:#04x} in a PROXY header")]
    Family(u8),
    #[error("a PROXY header of {0} bytes: at most {HEADER_MAX} are read")]
    TooLong(usize),
    #[error("a PROXY header that ends within its addresses")]
    Addresses,
}

impl HeaderReader {
    pub(crate) fn new() -> Self {
        Self { kept: [0; FIXED + ADDRESSES_MAX], read: 0 }
    }

    /// Takes the next bytes of the connection.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Progress, HeaderError> {
        // Byte by byte, so that it does not matter in which pieces they came.
        for (at, byte) in bytes.iter().enumerate() {
            if let Some(header) = self.read_byte(*byte)? {
                return Ok(Progress::Done { used: at + 1, header });
            }
        }
        Ok(Progress::More)
    }

    fn read_byte(&mut self, byte: u8) -> Result<Option<ProxyHeader>, HeaderError> {
        if let Some(kept) = self.kept.get_mut(self.read) {
            *kept = byte;
        }
        self.read += 1;
        let kept = &self.kept[..self.read.min(self.kept.len())];
        let begins = |start: &[u8]| kept.iter().zip(start).all(|(one, other)| one == other);
        if begins(SIGNATURE) {
            self.version_2()
        } else if begins(LINE_START) {
            self.version_1()
        } else {
            Err(HeaderError::Signature)
        }
    }

    fn version_1(&self) -> Result<Option<ProxyHeader>, HeaderError> {
        let line = &self.kept[..self.read];
        if let Some(line) = line.strip_suffix(b"\r\n") {
            let header = std::str::from_utf8(line).ok().and_then(parse_line);
            return header.map(Some).ok_or(HeaderError::Line);
        }
        if self.read >= LINE_MAX { Err(HeaderError::LineTooLong) } else { Ok(None) }
    }

    fn version_2(&self) -> Result<Option<ProxyHeader>, HeaderError> {
        if self.read < FIXED {
            return Ok(None);
        }
        let [version_command, kind, high, low] = [self.kept[12], self.kept[13], self.kept[14], self.kept[15]];
        let declared = usize::from(u16::from_be_bytes([high, low]));
        if self.read == FIXED {
            check_fixed(version_command, kind, declared)?;
        }
        if self.read < FIXED + declared {
            return Ok(None);
        }
        if version_command & 0xf == 0 {
            return Ok(Some(ProxyHeader::Local));
        }
        let addresses = &self.kept[FIXED..FIXED + declared.min(ADDRESSES_MAX)];
        Ok(Some(parse_addresses(kind, addresses)))
    }
}

/// Everything that can be wrong with a header of version 2 is known after its fixed part.
fn check_fixed(version_command: u8, kind: u8, declared: usize) -> Result<(), HeaderError> {
    let (version, command) = (version_command >> 4, version_command & 0xf);
    if version != 2 {
        return Err(HeaderError::Version(version));
    }
    if FIXED + declared > HEADER_MAX {
        return Err(HeaderError::TooLong(FIXED + declared));
    }
    match command {
        // The load balancer's own connection: the rest of the header does not count.
        0 => return Ok(()),
        1 => {}
        other => return Err(HeaderError::Command(other)),
    }
    let needed = match (kind >> 4, kind & 0xf) {
        (0, 0..=2) => 0,
        (1, 0..=2) => 12,
        (2, 0..=2) => 36,
        (3, 0..=2) => ADDRESSES_MAX,
        _ => return Err(HeaderError::Family(kind)),
    };
    if declared < needed { Err(HeaderError::Addresses) } else { Ok(()) }
}

fn parse_addresses(kind: u8, addresses: &[u8]) -> ProxyHeader {
    let port = |at: usize| u16::from_be_bytes([addresses[at], addresses[at + 1]]);
    match kind >> 4 {
        1 => {
            let ip = |at: usize| {
                Ipv4Addr::new(addresses[at], addresses[at + 1], addresses[at + 2], addresses[at + 3])
            };
            client(ip(0).into(), port(8), ip(4).into(), port(10))
        }
        2 => {
            let ip = |at: usize| {
                let mut octets = [0; 16];
                octets.copy_from_slice(&addresses[at..at + 16]);
                Ipv6Addr::from(octets)
            };
            client(ip(0).into(), port(32), ip(16).into(), port(34))
        }
        // Not over IP: there are only the socket's addresses.
        _ => ProxyHeader::Local,
    }
}

/// The line without its end.
fn parse_line(line: &str) -> Option<ProxyHeader> {
    let mut words = line.split(' ').skip(1);
    let (from, to): (IpAddr, IpAddr) = match words.next()? {
        // The protocol ignores the rest of the line.
        "UNKNOWN" => return Some(ProxyHeader::Local),
        "TCP4" => {
            (words.next()?.parse::<Ipv4Addr>().ok()?.into(), words.next()?.parse::<Ipv4Addr>().ok()?.into())
        }
        "TCP6" => {
            (words.next()?.parse::<Ipv6Addr>().ok()?.into(), words.next()?.parse::<Ipv6Addr>().ok()?.into())
        }
        _ => return None,
    };
    let header = client(from, port(words.next()?)?, to, port(words.next()?)?);
    words.next().is_none().then_some(header)
}

fn port(word: &str) -> Option<u16> {
    let is_number = word.bytes().all(|byte| byte.is_ascii_digit()) && word.len() <= 5;
    is_number.then(|| word.parse().ok()).flatten()
}

fn client(from: IpAddr, from_port: u16, to: IpAddr, to_port: u16) -> ProxyHeader {
    let from = SocketAddr::new(from.to_canonical(), from_port);
    ProxyHeader::Client { from, to: SocketAddr::new(to.to_canonical(), to_port) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The header of a connection that begins with these bytes, and the bytes after it.
    fn read(bytes: &[u8]) -> Result<(ProxyHeader, &[u8]), Option<HeaderError>> {
        match HeaderReader::new().read(bytes) {
            Ok(Progress::Done { used, header }) => Ok((header, &bytes[used..])),
            Ok(Progress::More) => Err(None),
            Err(error) => Err(Some(error)),
        }
    }

    fn header(from: &str, to: &str) -> ProxyHeader {
        ProxyHeader::Client { from: from.parse().unwrap(), to: to.parse().unwrap() }
    }

    fn v2(version_command: u8, kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[version_command, kind], &length, body].concat()
    }

    const INET: [u8; 12] = [192, 168, 0, 1, 192, 168, 0, 11, 0xdc, 0x04, 0x01, 0xbb];

    #[test]
    fn reads_the_lines_of_the_specification() {
        for (line, expected) in [
            (
                "PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n",
                header("255.255.255.255:65535", "255.255.255.255:65535"),
            ),
            (
                "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
                header(
                    "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
                    "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535",
                ),
            ),
            ("PROXY UNKNOWN\r\n", ProxyHeader::Local),
            (
                // The longest line there is: 107 bytes.
                "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
                ProxyHeader::Local,
            ),
            (
                "PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n",
                header("192.168.0.1:56324", "192.168.0.11:443"),
            ),
            ("PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", header("192.0.2.1:1", "[::1]:2")),
        ] {
            let request = format!("{line}GET / HTTP/1.1\r\nHost: 192.168.0.11\r\n\r\n");
            let rest = &request.as_bytes()[line.len()..];
            assert_eq!(read(request.as_bytes()), Ok((expected, rest)), "{line}");
        }
    }

    #[test]
    fn lines_that_are_not_right_are_refused() {
        for line in [
            "PROXY \r\n",
            "PROXY TCP4\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY  TCP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY tcp4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 \r\n",
            "PROXY TCP4 1.2.3.04 1.2.3.4 1 2\r\n",
            "PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n",
            "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\nPROXY\r\n",
        ] {
            assert_eq!(read(line.as_bytes()), Err(Some(HeaderError::Line)), "{line:?}");
        }
        assert_eq!(read(b"PROXY TCP4 \xff\r\n"), Err(Some(HeaderError::Line)));
        assert_eq!(read(&[b"PROXY UNKNOWN ", &[b'x'; 92][..]].concat()), Err(None));
        assert_eq!(read(&[b"PROXY UNKNOWN ", &[b'x'; 93][..]].concat()), Err(Some(HeaderError::LineTooLong)));
    }

    #[test]
    fn anything_else_is_refused_at_its_first_byte() {
        assert_eq!(read(b"GET / HTTP/1.1\r\n"), Err(Some(HeaderError::Signature)));
        assert_eq!(read(b"PROXX"), Err(Some(HeaderError::Signature)));
        assert_eq!(read(b"\r\n\r\n\0\r\nQUIX"), Err(Some(HeaderError::Signature)));
        assert_eq!(read(b"\r\n\r\n\0\r\nQUIT\n"), Err(None));
        assert_eq!(read(b""), Err(None));
    }

    #[test]
    fn reads_version_2_with_every_kind_of_address() {
        let inet6 = [[0x20; 16], [0x30; 16]].concat();
        let inet6 = [&inet6[..], &[0, 80, 1, 187]].concat();
        let v4 = header("192.168.0.1:56324", "192.168.0.11:443");
        let v6 = header(
            "[2020:2020:2020:2020:2020:2020:2020:2020]:80",
            "[3030:3030:3030:3030:3030:3030:3030:3030]:443",
        );
        let with_tlvs = [&INET[..], &[0x04, 0x00, 0x01, 0xaa], &[0xee; 3_000]].concat();
        for (header, expected) in [
            (v2(0x21, 0x11, &INET), v4),
            (v2(0x21, 0x12, &INET), v4),
            (v2(0x21, 0x11, &with_tlvs), v4),
            (v2(0x21, 0x21, &inet6), v6),
            (v2(0x21, 0x31, &[7; 216]), ProxyHeader::Local),
            (v2(0x21, 0x31, &[7; 400]), ProxyHeader::Local),
            (v2(0x21, 0x00, &[]), ProxyHeader::Local),
            (v2(0x21, 0x00, &[1, 2, 3]), ProxyHeader::Local),
            (v2(0x20, 0x00, &[]), ProxyHeader::Local),
            (v2(0x20, 0x11, &INET), ProxyHeader::Local),
            (v2(0x20, 0xff, &[1]), ProxyHeader::Local),
        ] {
            let all = [&header[..], b"PROXY rest"].concat();
            assert_eq!(read(&all), Ok((expected, &b"PROXY rest"[..])), "{header:?}");
            assert_eq!(read(&header[..header.len() - 1]), Err(None));
        }
    }

    #[test]
    fn version_2_that_is_not_right_is_refused_after_its_fixed_part() {
        let long = vec![0; HEADER_MAX - FIXED + 1];
        for (header, error) in [
            (v2(0x11, 0x11, &INET), HeaderError::Version(1)),
            (v2(0x22, 0x11, &INET), HeaderError::Command(2)),
            (v2(0x21, 0x41, &INET), HeaderError::Family(0x41)),
            (v2(0x21, 0x13, &INET), HeaderError::Family(0x13)),
            (v2(0x21, 0x11, &INET[..11]), HeaderError::Addresses),
            (v2(0x21, 0x21, &INET), HeaderError::Addresses),
            (v2(0x21, 0x31, &[0; 215]), HeaderError::Addresses),
            (v2(0x21, 0x11, &long), HeaderError::TooLong(HEADER_MAX + 1)),
            (v2(0x20, 0x00, &long), HeaderError::TooLong(HEADER_MAX + 1)),
        ] {
            assert_eq!(read(&header[..FIXED]), Err(Some(error)), "{error}");
        }
        assert!(read(&v2(0x21, 0x11, &long[1..])).is_ok());
    }

    fn header_like() -> impl Strategy<Value = Vec<u8>> {
        let v1 = prop::sample::select(
            &["PROXY TCP4 1.2.3.4 5.6.7.8 9 10\r\n", "PROXY UNKNOWN x\r\n", "PROXY TCP4 "][..],
        );
        let v1 = v1.prop_map(|line| line.as_bytes().to_vec());
        let kind = prop::sample::select(&[0x00, 0x11, 0x21, 0x31, 0x44][..]);
        let v2 = (0x1fu8..0x24, kind, prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(command, kind, body)| v2(command, kind, &body));
        (prop_oneof![v1, v2, Just(Vec::new())], prop::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(header, rest)| [header, rest].concat())
    }

    proptest! {
        #[test]
        fn any_pieces_say_the_same(bytes in header_like(), mut cuts in prop::collection::vec(0usize..500, 0..8)) {
            let mut reader = HeaderReader::new();
            let mut in_pieces = Err(None);
            cuts.iter_mut().for_each(|cut| *cut = (*cut).min(bytes.len()));
            cuts.push(bytes.len());
            cuts.sort_unstable();
            let mut start = 0;
            for cut in cuts {
                match reader.read(&bytes[start..cut]) {
                    Ok(Progress::More) => start = cut,
                    Ok(Progress::Done { used, header }) => {
                        in_pieces = Ok((header, &bytes[start + used..]));
                        break;
                    }
                    Err(error) => {
                        in_pieces = Err(Some(error));
                        break;
                    }
                }
            }
            prop_assert_eq!(in_pieces, read(&bytes));
        }

        #[test]
        fn no_bytes_are_read_beyond_the_bound(bytes in prop::collection::vec(any::<u8>(), 0..300), v2 in any::<bool>()) {
            let start = if v2 { SIGNATURE } else { LINE_START };
            let mut all = [start, &bytes].concat();
            all.resize(HEADER_MAX, b'x');
            // By then it is a header, or it is refused.
            prop_assert_ne!(read(&all), Err(None));
        }
    }
}
