//! Whom a request comes from, against a reference that sees the hops before they are text,
//! and against clients who write whatever they like.

#![cfg(feature = "tower")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tidegate::Client;
use tidegate::http::ClientIp;

const TRUSTED: [&str; 4] = ["10.0.0.0/8", "fd00::/8", "192.0.2.7", "::ffff:198.51.100.0/120"];

fn is_trusted(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            let [a, b, c, d] = ip.octets();
            a == 10 || [a, b, c, d] == [192, 0, 2, 7] || [a, b, c] == [198, 51, 100]
        }
        IpAddr::V6(ip) => ip.octets()[0] == 0xfd,
    }
}

/// Hops from left to right; one that is no address is none.
fn reference(peer: IpAddr, hops: &[Option<IpAddr>]) -> IpAddr {
    let mut client = peer.to_canonical();
    for hop in hops.iter().rev() {
        match hop {
            Some(ip) if is_trusted(client) => client = ip.to_canonical(),
            _ => break,
        }
    }
    client
}

#[derive(Clone, Copy, Debug)]
enum Header {
    List,
    Forwarded,
}

impl Header {
    fn client_ip(self) -> ClientIp {
        let behind = ClientIp::behind(TRUSTED).unwrap();
        match self {
            Self::List => behind,
            Self::Forwarded => behind.forwarded().unwrap(),
        }
    }

    fn name(self) -> HeaderName {
        match self {
            Self::List => HeaderName::from_static("x-forwarded-for"),
            Self::Forwarded => http::header::FORWARDED,
        }
    }

    fn headers<L: AsRef<[u8]>>(self, lines: impl IntoIterator<Item = L>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(self.name(), HeaderValue::from_bytes(line.as_ref()).unwrap());
        }
        headers
    }
}

fn ip() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| Ipv4Addr::from(octets).into()),
        (0u8..9).prop_map(|low| Ipv4Addr::new(10, 0, 0, low).into()),
        (0u8..9).prop_map(|low| Ipv4Addr::new(192, 0, 2, low).into()),
        any::<u8>().prop_map(|low| Ipv4Addr::new(198, 51, 100, low).to_ipv6_mapped().into()),
        any::<[u16; 8]>().prop_map(|segments| Ipv6Addr::from(segments).into()),
        (0u16..9).prop_map(|low| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, low).into()),
    ]
}

fn untrusted_ip() -> impl Strategy<Value = IpAddr> {
    ip().prop_filter("not a proxy", |ip| !is_trusted(*ip))
}

fn trusted_ip() -> impl Strategy<Value = IpAddr> {
    ip().prop_filter("a proxy", |ip| is_trusted(*ip))
}

/// An address as one of the ways to write it.
fn node(ip: IpAddr, way: u8, port: u16) -> String {
    match (ip, way % 5) {
        (IpAddr::V4(ip), 0) => format!("{ip}:{port}"),
        (IpAddr::V4(ip), 1) => ip.to_ipv6_mapped().to_string(),
        (IpAddr::V4(ip), 2) => format!("[{}]:{port}", ip.to_ipv6_mapped()),
        (IpAddr::V6(ip), 0) => format!("[{ip}]"),
        (IpAddr::V6(ip), 1) => format!("[{ip}]:{port}"),
        (IpAddr::V6(ip), 2) => format!("{ip}%eth{way}"),
        (IpAddr::V6(ip), 3) => ip.to_string().to_uppercase(),
        (ip, _) => ip.to_string(),
    }
}

/// An element with that node, as one of the ways to write it.
fn element(node: &str, way: u8) -> String {
    match way % 6 {
        0 => format!("for=\"{node}\""),
        1 => format!("proto=https;FOR=\"{node}\";by=_b"),
        2 => format!(r#"host="a,b;for=6.6.6.6,\"\\";for="{node}""#),
        3 => format!(r#"for="{node}";host="\\""#),
        4 => format!("for=\"{}\"", node.chars().map(|c| format!("\\{c}")).collect::<String>()),
        _ => format!("by=\"[fd00::1]:_x\"; for={node}"),
    }
}

const GARBAGE: [&str; 10] =
    ["", " ", "unknown", "_hidden", "1.2.3", "10.0.0.1:", "[fd00::1", "10.0.0.1 10.0.0.2", "\u{fffd}", "\\"];

const BROKEN_ELEMENTS: [&str; 9] = [
    "",
    "for=_hidden",
    "for=unknown",
    "by=10.0.0.1",
    "for=10.0.0.1;for=10.0.0.1",
    "for=\"10.0.0.1\"\"",
    "for=10.0.0.1;host=a\"b\"",
    "10.0.0.1",
    "for=\"10.0.0.1\\\"",
];

/// A hop: what it means and how it is written.
fn hop(header: Header) -> impl Strategy<Value = (Option<IpAddr>, String)> {
    let written = (ip(), any::<u8>(), any::<u16>(), any::<u8>()).prop_map(move |(ip, way, port, form)| {
        let node = node(ip, way, port);
        (Some(ip), if let Header::List = header { node } else { element(&node, form) })
    });
    let broken: &[&str] = if let Header::List = header { &GARBAGE } else { &BROKEN_ELEMENTS };
    prop_oneof![6 => written, 1 => prop::sample::select(broken).prop_map(|text| (None, text.to_string()))]
}

/// Lines of hops; blanks around them vary.
fn lines(header: Header) -> impl Strategy<Value = Vec<Vec<(Option<IpAddr>, String)>>> {
    prop::collection::vec(prop::collection::vec(hop(header), 1..4), 0..4)
}

fn agrees_with_the_reference(
    header: Header,
    peer: IpAddr,
    lines: &[Vec<(Option<IpAddr>, String)>],
    comma: &str,
) -> Result<(), TestCaseError> {
    let text = |line: &Vec<(Option<IpAddr>, String)>| {
        line.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(comma)
    };
    let texts: Vec<String> = lines.iter().map(text).collect();
    let hops: Vec<Option<IpAddr>> = lines.iter().flatten().map(|(ip, _)| *ip).collect();
    let found = header.client_ip().address(Some(peer), &header.headers(&texts));
    prop_assert_eq!(found, Some(reference(peer, &hops)), "{:?}", texts);
    Ok(())
}

/// What a client may send in a header.
fn any_line() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        Just(b'\t'),
        0x20u8..0x7f,
        0x80u8..=0xff,
        prop::sample::select(&b"\",;\\=[]:%_. 10for"[..]),
    ];
    prop_oneof![
        prop::collection::vec(byte, 0..60),
        ip().prop_map(|ip| ip.to_string().into_bytes()),
        ip().prop_map(|ip| format!("for=\"{ip}\", for=\"").into_bytes()),
        ip().prop_map(|ip| format!("for={ip};host=\"\\").into_bytes()),
    ]
}

type Walk = fn(Header, IpAddr, &HeaderMap) -> Option<IpAddr>;

/// Whatever a client writes to the left of what the proxies add, in their line or in lines
/// of its own, it is found where it called from.
fn nothing_on_the_left_matters(header: Header, walk: Walk) -> Result<(), String> {
    let case = (
        untrusted_ip(),
        prop::collection::vec(trusted_ip(), 0..3),
        trusted_ip(),
        prop::collection::vec(any_line(), 0..3),
        any_line(),
        any::<u8>(),
    );
    let mut runner = TestRunner::default();
    let checked = runner.run(&case, |(client, proxies, peer, own_lines, prefix, way)| {
        let hops = std::iter::once(client).chain(proxies).map(|ip| match header {
            Header::List => node(ip, way, 80),
            Header::Forwarded => element(&node(ip, way, 80), way),
        });
        let by_proxies = hops.collect::<Vec<_>>().join(", ");
        let after_prefix = [&prefix[..], b", ", by_proxies.as_bytes()].concat();
        for line in [after_prefix, by_proxies.into_bytes()] {
            let headers = header.headers(own_lines.iter().chain([&line]));
            prop_assert_eq!(walk(header, peer, &headers), Some(client.to_canonical()), "{:?}", headers);
        }
        Ok(())
    });
    checked.map_err(|error| error.to_string())
}

fn ours(header: Header, peer: IpAddr, headers: &HeaderMap) -> Option<IpAddr> {
    header.client_ip().address(Some(peer), headers)
}

proptest! {
    #[test]
    fn x_forwarded_for_agrees_with_the_reference(
        peer in ip(), lines in lines(Header::List), comma in prop::sample::select(&[",", ", ", " ,\t"][..]),
    ) {
        agrees_with_the_reference(Header::List, peer, &lines, comma)?;
    }

    #[test]
    fn forwarded_agrees_with_the_reference(
        peer in ip(), lines in lines(Header::Forwarded), comma in prop::sample::select(&[",", ", ", " ,\t"][..]),
    ) {
        agrees_with_the_reference(Header::Forwarded, peer, &lines, comma)?;
    }

    #[test]
    fn headers_of_an_untrusted_peer_never_matter(
        peer in untrusted_ip(), lines in prop::collection::vec(any_line(), 0..4),
    ) {
        for header in [Header::List, Header::Forwarded] {
            let headers = header.headers(&lines);
            prop_assert_eq!(ours(header, peer, &headers), Some(peer.to_canonical()));
            prop_assert_eq!(ClientIp::peer().address(Some(peer), &headers), Some(peer.to_canonical()));
        }
    }

    #[test]
    fn any_bytes_from_a_trusted_peer_are_survived(
        peer in trusted_ip(), lines in prop::collection::vec(any_line(), 0..4),
    ) {
        for header in [Header::List, Header::Forwarded] {
            prop_assert!(ours(header, peer, &header.headers(&lines)).is_some());
        }
    }
}

#[test]
fn nothing_that_a_client_writes_changes_who_it_is() {
    nothing_on_the_left_matters(Header::List, ours).unwrap();
    nothing_on_the_left_matters(Header::Forwarded, ours).unwrap();
}

#[test]
fn the_property_catches_a_walk_that_takes_the_leftmost() {
    let leftmost: Walk = |_, peer, headers| {
        let first = headers.values().next()?.to_str().ok()?.split(',').next()?.trim().parse();
        first.ok().or(Some(peer)).map(|ip| ip.to_canonical())
    };
    nothing_on_the_left_matters(Header::List, leftmost).unwrap_err();
}

#[test]
fn the_property_catches_a_walk_that_reads_quotes_from_the_left() {
    let from_the_left: Walk = |header, peer, headers| {
        let text = headers.get_all(header.name()).iter().flat_map(|line| [line.as_bytes(), b","].concat());
        let (mut elements, mut is_quoted) = (vec![Vec::new()], false);
        for byte in text {
            is_quoted ^= byte == b'"';
            if byte == b',' && !is_quoted {
                elements.push(Vec::new());
            } else {
                elements.last_mut()?.push(byte);
            }
        }
        header.client_ip().address(Some(peer), &header.headers(elements.iter().filter(|e| !e.is_empty())))
    };
    nothing_on_the_left_matters(Header::Forwarded, from_the_left).unwrap_err();
}

#[test]
fn a_million_addresses_of_one_network_are_one_client() {
    let behind = ClientIp::behind(["10.0.0.1"]).unwrap();
    let client = |low: u64| {
        let ip = Ipv6Addr::from_bits((0x2001_0db8_u128 << 96) | u128::from(low));
        behind.find(Some("10.0.0.1".parse().unwrap()), &Header::List.headers([ip.to_string()])).unwrap()
    };
    let first = client(0);
    assert_eq!(first.to_string(), "2001:db8::/64");
    assert!((1..1_000_000u64).all(|low| client(low.wrapping_mul(0x9e37_79b9_7f4a_7c15)) == first));
}

#[test]
fn bits_say_what_is_one_client() {
    let peer: IpAddr = "203.0.113.9".parse().unwrap();
    let client_ip = ClientIp::peer().ipv4_bits(24).ipv6_bits(48);
    let find = |ip: IpAddr| client_ip.find(Some(ip), &HeaderMap::new()).unwrap();
    assert_eq!(find(peer).to_string(), "203.0.113.0/24");
    assert_eq!(find("2001:db8:1:2::3".parse().unwrap()).to_string(), "2001:db8:1::/48");
    assert_eq!(ClientIp::peer().find(Some(peer), &HeaderMap::new()), Some(Client::new(peer)));
    assert_eq!(ClientIp::peer().find(None, &HeaderMap::new()), None);
    assert_eq!(
        ClientIp::behind(["0.0.0.0/0", "::/0"]).unwrap().find(None, &Header::List.headers(["::1"])),
        None
    );
}

#[test]
fn a_named_header_counts_once_and_from_a_trusted_peer_only() {
    let client_ip = ClientIp::behind(["10.0.0.0/8"]).unwrap().header("CF-Connecting-IP").unwrap();
    let found = |peer: &str, lines: &[&str]| {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append("cf-connecting-ip", line.parse().unwrap());
        }
        headers.insert("x-forwarded-for", "6.6.6.6".parse().unwrap());
        client_ip.address(Some(peer.parse().unwrap()), &headers).unwrap().to_string()
    };
    assert_eq!(found("10.0.0.1", &["203.0.113.9"]), "203.0.113.9");
    assert_eq!(found("::ffff:10.0.0.1", &[" ::ffff:203.0.113.9 "]), "203.0.113.9");
    assert_eq!(found("10.0.0.1", &["10.9.9.9"]), "10.9.9.9");
    assert_eq!(found("192.0.2.1", &["203.0.113.9"]), "192.0.2.1");
    assert_eq!(found("10.0.0.1", &[]), "10.0.0.1");
    assert_eq!(found("10.0.0.1", &["203.0.113.9, 6.6.6.6"]), "10.0.0.1");
    assert_eq!(found("10.0.0.1", &["6.6.6.6", "203.0.113.9"]), "10.0.0.1");
}

#[test]
fn wrong_settings_say_what_to_write() {
    let said = |error: Result<ClientIp, tidegate::http::ClientIpError>| error.unwrap_err().to_string();
    assert_eq!(
        said(ClientIp::peer().header("client ip")),
        "`client ip` is not the name of a header: write for example `cf-connecting-ip`"
    );
    assert_eq!(
        said(ClientIp::peer().header("X-Forwarded-For")),
        "`X-Forwarded-For` is a list of hops, not one address: call `x_forwarded_for()` or `forwarded()` instead"
    );
    assert!(said(ClientIp::behind(["nginx"])).starts_with("`nginx` is not a network: write"));
    for never_reads in [
        ClientIp::peer().header("cf-connecting-ip"),
        ClientIp::peer().forwarded(),
        ClientIp::peer().x_forwarded_for(),
        ClientIp::behind([""; 0]),
    ] {
        assert_eq!(
            said(never_reads),
            "no proxy is trusted, so no header is ever read: name them, as in \
             `ClientIp::behind([\"10.0.3.0/24\"])`, or write `ClientIp::peer()` alone"
        );
    }
}
