//! Networks by their text, and whether an address is in one of them.
//!
//! An IPv4 address written as IPv6 is an IPv4 address, in networks too, and so is one that
//! NAT64 has translated.

use crate::Client;
use crate::caller::nat64;
use ipnet::{IpNet, Ipv4Net};
use std::net::{IpAddr, Ipv4Addr};

/// A set of networks, merged and sorted: a look-up is a binary search, so that the list of
/// a whole cloud costs no more than a handful.
#[derive(Clone, Debug, Default)]
pub(crate) struct Networks(Vec<IpNet>);

/// Why a text is not a network.
///
/// ```
/// use tidegate::http::ClientIp;
/// let error = ClientIp::behind(["10.0.0.1/8"]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "`10.0.0.1/8` has bits to the right of its prefix: write `10.0.0.0/8` for the network, \
///      or `10.0.0.1` for the address alone"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// It is neither a network, nor an address, nor the name of a set.
    #[error(
        "`{0}` is not a network: write one such as `10.0.0.0/8` or `fd00::/8`, an address such as \
         `192.0.2.1`, or one of the sets `loopback` and `private`"
    )]
    Text(String),
    /// It has bits outside its prefix.
    #[error(
        "`{text}` has bits to the right of its prefix: write `{network}` for the network, or `{address}` \
         for the address alone"
    )]
    HostBits {
        /// The text.
        text: String,
        /// The network that the address is in.
        network: String,
        /// The address.
        address: IpAddr,
    },
    /// It is all of NAT64, whose clients are counted by their IPv4 addresses.
    #[error(
        "`{0}` is all of NAT64 (64:ff9b::/96), whose clients are counted by their IPv4 addresses: write \
         their IPv4 networks, such as `203.0.113.0/24`, or `0.0.0.0/0` for every IPv4 address"
    )]
    Nat64(String),
}

const LOOPBACK: [&str; 2] = ["127.0.0.0/8", "::1/128"];
/// RFC 1918 and RFC 4193.
const PRIVATE: [&str; 4] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];

impl Networks {
    pub(crate) fn parse<N: AsRef<str>>(texts: impl IntoIterator<Item = N>) -> Result<Self, NetworkError> {
        let mut all = Vec::new();
        for text in texts {
            let text = text.as_ref().trim();
            let set: &[&str] = match text {
                "loopback" => &LOOPBACK,
                "private" => &PRIVATE,
                one => &[one],
            };
            for one in set {
                all.push(network(one)?);
            }
        }
        let mut all = IpNet::aggregate(&all);
        all.sort_unstable();
        Ok(Self(all))
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if any address of the client is in one of them: a client is counted as one, and listed as
    /// one.
    pub(crate) fn meet(&self, client: Client) -> bool {
        let (first, bits) = client.network();
        let is_within = |net: &IpNet| Client::within(net.network(), bits, bits) == client;
        // If none has its first address, the next one that begins may be within the client.
        self.contain(first) || self.0.get(self.begun_at(first)).is_some_and(is_within)
    }

    pub(crate) fn contain(&self, ip: IpAddr) -> bool {
        let ip = canonical(ip);
        // They do not overlap: only the last that begins at or before it can hold it.
        self.0[..self.begun_at(ip)].last().is_some_and(|net| net.contains(&ip))
    }

    /// How many of them begin at this address or before it.
    fn begun_at(&self, ip: IpAddr) -> usize {
        self.0.partition_point(|net| net.network() <= ip)
    }
}

/// An IPv4 address written as IPv6 is an IPv4 address, and so is one that NAT64 has translated.
/// Not if it is private, loopback or the like: NAT64 must not translate those (RFC 6052, 3.1), so
/// such an address is not the neighbour that a trusted network names.
fn canonical(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => match nat64(ip) {
            Some(translated) if !is_local(translated) => IpAddr::V4(translated),
            _ => IpAddr::V6(ip),
        },
        ip => ip,
    }
}

/// True for a translated address that NAT64 must not make.
#[cfg(feature = "tower")]
pub(crate) fn is_forged(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if nat64(ip).is_some_and(is_local))
}

fn is_local(ip: Ipv4Addr) -> bool {
    // The last is the space of providers' own NAT, 100.64.0.0/10.
    ip.is_private()
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.octets()[0] == 0
        || ip.is_multicast()
        || ip.is_broadcast()
        || ip.to_bits() >> 22 == 0x6440_0000 >> 22
}

/// Bits of an IPv6 address before the IPv4 address that is written in it.
const MAPPED_BITS: u8 = 96;
/// Bits that `64:ff9b::` itself has: a network with fewer is not about NAT64.
const NAT64_BITS_MIN: u8 = 32;

fn network(text: &str) -> Result<IpNet, NetworkError> {
    let wrong = || NetworkError::Text(crate::Key::new(text).to_string());
    // The standard library's parser accepts no leading zeros: some programs read those as octal,
    // and then it is another network.
    let (ip, bits) = text.split_once('/').map_or((text, None), |(ip, bits)| (ip, Some(bits)));
    let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
    let net = match bits {
        None => IpNet::from(ip),
        // A sign is no digit, though numbers may have one.
        Some(bits) if bits.starts_with('+') => return Err(wrong()),
        Some(bits) => bits.parse().ok().and_then(|bits| IpNet::new(ip, bits).ok()).ok_or_else(wrong)?,
    };
    if net.addr() != net.network() {
        let network = net.trunc().to_string();
        return Err(NetworkError::HostBits { text: text.into(), network, address: net.addr() });
    }
    let IpNet::V6(v6) = net else { return Ok(net) };
    let translated = nat64(v6.addr());
    if translated == Some(Ipv4Addr::UNSPECIFIED) && (NAT64_BITS_MIN..=MAPPED_BITS).contains(&v6.prefix_len())
    {
        return Err(NetworkError::Nat64(text.into()));
    }
    match v6.addr().to_ipv4_mapped().or(translated) {
        Some(ip) if v6.prefix_len() >= MAPPED_BITS => {
            Ipv4Net::new(ip, v6.prefix_len() - MAPPED_BITS).map(IpNet::V4).map_err(|_| wrong())
        }
        _ => Ok(net),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn holds_what_is_written_and_nothing_else() {
        let networks =
            Networks::parse(["10.0.0.0/8", "192.0.2.1", " fd00::/8 ", "::ffff:198.51.100.0/120", "loopback"])
                .unwrap();
        for inside in [
            "10.255.0.1",
            "::ffff:10.0.0.1",
            "192.0.2.1",
            "fd12::1",
            "198.51.100.7",
            "::ffff:198.51.100.7",
            "127.8.9.1",
            "::1",
        ] {
            assert!(networks.contain(ip(inside)), "{inside}");
        }
        for outside in ["11.0.0.1", "192.0.2.2", "fe00::1", "198.51.101.0", "::2", "192.168.0.1"] {
            assert!(!networks.contain(ip(outside)), "{outside}");
        }
        assert!(!Networks::default().contain(ip("127.0.0.1")));
    }

    #[test]
    fn a_translated_address_is_where_its_ipv4_address_is() {
        let networks = Networks::parse(["203.0.113.0/24", "64:ff9b::198.51.100.0/120", "private"]).unwrap();
        for inside in ["64:ff9b::203.0.113.9", "64:ff9b::198.51.100.7", "198.51.100.7", "10.0.0.1"] {
            assert!(networks.contain(ip(inside)), "{inside}");
        }
        // A translated address is never a private neighbour, or this machine itself.
        for outside in ["64:ff9b::203.0.114.9", "64:ff9b::10.0.0.1", "64:ff9b:1::203.0.113.9"] {
            assert!(!networks.contain(ip(outside)), "{outside}");
        }
        let loopback = Networks::parse(["loopback"]).unwrap();
        assert!(!loopback.contain(ip("64:ff9b::127.0.0.1")));
        // As clients they are counted by their IPv4 address all the same, and deny lists compare clients.
        for inside in ["64:ff9b::203.0.113.9", "64:ff9b::198.51.100.7", "64:ff9b::10.0.0.1"] {
            assert!(networks.meet(Client::new(ip(inside))), "{inside}");
        }
        assert!(!networks.meet(Client::new(ip("64:ff9b::203.0.114.9"))));
    }

    #[test]
    fn all_of_nat64_is_no_network_of_clients() {
        for text in ["64:ff9b::/96", "64:ff9b::/64", "64:ff9b::/32"] {
            let error = Networks::parse([text]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{text}` is all of NAT64")), "{error}");
            assert!(error.contains("write their IPv4 networks"), "{error}");
        }
        for other in ["64:ff9b:1::/48", "64:ff9b::/128", "64:ff9b::/97", "::/0"] {
            assert!(Networks::parse([other]).is_ok(), "{other}");
        }
    }

    #[test]
    fn private_is_what_the_two_rfcs_say() {
        let private = Networks::parse(["private"]).unwrap();
        for inside in ["10.1.2.3", "172.31.255.255", "192.168.1.1", "fc00::1", "fdff::"] {
            assert!(private.contain(ip(inside)), "{inside}");
        }
        for outside in ["172.32.0.0", "127.0.0.1", "169.254.0.1", "100.64.0.1", "fe80::1", "::1"] {
            assert!(!private.contain(ip(outside)), "{outside}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_what_to_write() {
        for wrong in [
            "",
            "10.0.0.0/33",
            "localhost",
            "10.0.0",
            "fd00::/129",
            "10.0.0.0/8,",
            "010.0.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
        ] {
            let error = Networks::parse([wrong]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{wrong}` is not a network: write one such as")), "{error}");
        }
        let error = Networks::parse(["fd00::1/8"]).unwrap_err().to_string();
        assert!(error.contains("write `fd00::/8`"), "{error}");
    }

    proptest! {
        #[test]
        fn the_search_agrees_with_a_look_at_each(
            nets in prop::collection::vec((0u32..64, 24u8..=32), 0..12),
            low in 0u32..64,
        ) {
            // Few bits, so that networks touch, overlap and hold each other.
            let nets: Vec<Ipv4Net> =
                nets.iter().map(|(ip, bits)| Ipv4Net::new((ip << 3).into(), *bits).unwrap().trunc()).collect();
            let networks = Networks::parse(nets.iter().map(ToString::to_string)).unwrap();
            for host in 0..8 {
                let ip = std::net::Ipv4Addr::from((low << 3) + host);
                prop_assert_eq!(networks.contain(ip.into()), nets.iter().any(|net| net.contains(&ip)));
            }
        }
    }
}
