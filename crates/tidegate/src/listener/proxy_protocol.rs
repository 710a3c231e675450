//! The PROXY protocol, versions 1 and 2: a header in which a load balancer names the client of a
//! connection, before the connection's own bytes.
//!
//! It says where the header ends, so that no byte after it is lost. It does not read sockets, and
//! skips the TLVs of version 2.

use crate::http::client_ip::node::port;
use std::array;
use std::net::{IpAddr, SocketAddr};

/// A line of version 1 with its end.
const LINE_MAX: usize = 107;
/// The fixed part of version 2, before what it declares.
const FIXED: usize = 16;
/// The largest addresses of version 2, those of unix sockets.
const ADDRESSES_MAX: usize = 216;
/// A whole header, whatever length it declares. TLVs with a client's certificate stay far below it,
/// and nginx has the same bound.
pub(crate) const HEADER_MAX: usize = 4_096;

const LINE_START: &[u8] = b"PROXY ";
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The content of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeader {
    /// The load balancer's own connection, or an unknown protocol: the socket's address counts.
    Local,
    /// The client's address.
    Client(SocketAddr),
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

/// The header of a connection that begins with these bytes, and how long it is. None if more bytes
/// are to come.
pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(usize, ProxyHeader)>, HeaderError> {
    let begins = |start: &[u8]| bytes.iter().zip(start).all(|(one, other)| one == other);
    if begins(SIGNATURE) {
        version_2(bytes)
    } else if begins(LINE_START) {
        version_1(bytes)
    } else {
        Err(HeaderError::Signature)
    }
}

fn version_1(bytes: &[u8]) -> Result<Option<(usize, ProxyHeader)>, HeaderError> {
    let line = &bytes[..bytes.len().min(LINE_MAX)];
    let Some(end) = line.windows(2).position(|end| end == b"\r\n") else {
        return if line.len() == LINE_MAX { Err(HeaderError::LineTooLong) } else { Ok(None) };
    };
    let header = std::str::from_utf8(&line[..end]).ok().and_then(parse_line);
    Ok(Some((end + 2, header.ok_or(HeaderError::Line)?)))
}

fn version_2(bytes: &[u8]) -> Result<Option<(usize, ProxyHeader)>, HeaderError> {
    let Some(&[version_command, kind, high, low]) = bytes.get(SIGNATURE.len()..FIXED) else {
        return Ok(None);
    };
    let declared = usize::from(u16::from_be_bytes([high, low]));
    check_fixed(version_command, kind, declared)?;
    let Some(addresses) = bytes.get(FIXED..FIXED + declared) else { return Ok(None) };
    let is_local = version_command & 0xf == 0;
    let header = if is_local { ProxyHeader::Local } else { parse_addresses(kind, addresses) };
    Ok(Some((FIXED + declared, header)))
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

/// The first of two addresses, and after both its port: the client's.
fn parse_addresses(kind: u8, addresses: &[u8]) -> ProxyHeader {
    let port = |at: usize| u16::from_be_bytes([addresses[at], addresses[at + 1]]);
    match kind >> 4 {
        1 => client(array::from_fn::<u8, 4, _>(|at| addresses[at]).into(), port(8)),
        2 => client(array::from_fn::<u8, 16, _>(|at| addresses[at]).into(), port(32)),
        // Not over IP: there is only the socket's address.
        _ => ProxyHeader::Local,
    }
}

/// The line without its end.
fn parse_line(line: &str) -> Option<ProxyHeader> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        // The protocol ignores the rest of the line.
        [_, "UNKNOWN", ..] => Some(ProxyHeader::Local),
        [_, family @ ("TCP4" | "TCP6"), from, to, from_port, to_port] => {
            let ip = |word: &str| {
                let ip: IpAddr = word.parse().ok()?;
                (ip.is_ipv4() == (family == "TCP4")).then_some(ip)
            };
            let (from, _) = ip(from).zip(ip(to))?;
            let (port, _) = port(from_port).zip(port(to_port))?;
            Some(client(from, port))
        }
        _ => None,
    }
}

fn client(ip: IpAddr, port: u16) -> ProxyHeader {
    ProxyHeader::Client(SocketAddr::new(ip.to_canonical(), port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The header of a connection that begins with these bytes, and the bytes after it.
    fn read(bytes: &[u8]) -> Result<(ProxyHeader, &[u8]), Option<HeaderError>> {
        let (length, header) = parse(bytes).map_err(Some)?.ok_or(None)?;
        Ok((header, &bytes[length..]))
    }

    fn header(from: &str) -> ProxyHeader {
        ProxyHeader::Client(from.parse().unwrap())
    }

    fn v2(version_command: u8, kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[version_command, kind], &length, body].concat()
    }

    const INET: [u8; 12] = [192, 168, 0, 1, 192, 168, 0, 11, 0xdc, 0x04, 0x01, 0xbb];

    #[test]
    fn reads_the_lines_of_the_specification() {
        for (line, expected) in [
            ("PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n", header("255.255.255.255:65535")),
            (
                "PROXY TCP6 ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
                header("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"),
            ),
            ("PROXY UNKNOWN\r\n", ProxyHeader::Local),
            (
                // The longest line there is: 107 bytes.
                "PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n",
                ProxyHeader::Local,
            ),
            ("PROXY TCP4 192.168.0.1 192.168.0.11 56324 443\r\n", header("192.168.0.1:56324")),
            ("PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n", header("192.0.2.1:1")),
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
        let v4 = header("192.168.0.1:56324");
        let v6 = header("[2020:2020:2020:2020:2020:2020:2020:2020]:80");
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
        fn any_pieces_say_the_same(bytes in header_like(), cuts in prop::collection::vec(0usize..500, 0..8)) {
            for cut in cuts.into_iter().map(|cut| cut.min(bytes.len())) {
                // The first bytes say that more are to come, or all that can be said.
                match parse(&bytes[..cut]) {
                    Ok(None) => {}
                    early => prop_assert_eq!(early, parse(&bytes)),
                }
            }
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
