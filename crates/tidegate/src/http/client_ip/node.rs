//! The address of one hop as proxies write it: with a port, in brackets, with a zone.
//!
//! Shared by `X-Forwarded-For`, `Forwarded` and named headers. A text that hides an address
//! (`unknown`, `_hidden`) is no address.

use std::net::{IpAddr, Ipv6Addr};

/// No address with brackets, zone and port is longer.
const NODE_BYTES_MAX: usize = 96;

/// The address of `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`,
/// `fe80::1%eth0`; canonical. None for anything else.
pub(crate) fn address(node: &[u8]) -> Option<IpAddr> {
    if node.len() > NODE_BYTES_MAX {
        return None;
    }
    let node = std::str::from_utf8(node).ok()?;
    let ip = if let Some(bracketed) = node.strip_prefix('[') {
        let (ip, port) = bracketed.split_once(']')?;
        let is_right = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        IpAddr::V6(ipv6(ip).filter(|_| is_right)?)
    } else if let Some((ip, port)) = node.split_once(':')
        && ip.contains('.')
    {
        IpAddr::V4(ip.parse().ok().filter(|_| is_port(port))?)
    } else if node.contains(':') {
        IpAddr::V6(ipv6(node)?)
    } else {
        IpAddr::V4(node.parse().ok()?)
    };
    Some(ip.to_canonical())
}

/// A zone names one of the proxy's own links: it does not distinguish clients.
fn ipv6(text: &str) -> Option<Ipv6Addr> {
    let Some((ip, zone)) = text.split_once('%') else { return text.parse().ok() };
    let is_zone = !zone.is_empty() && zone.bytes().all(is_name);
    is_zone.then(|| ip.parse().ok()).flatten()
}

/// A number, or a name that hides it (RFC 7239, 6.2).
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(hidden) => !hidden.is_empty() && hidden.bytes().all(is_name),
        None => port(text).is_some(),
    }
}

/// The number of a port: up to five digits, without a sign.
pub(crate) fn port(text: &str) -> Option<u16> {
    let is_number = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_addresses_as_proxies_write_them() {
        for (text, ip) in [
            ("192.0.2.1", "192.0.2.1"),
            ("192.0.2.1:0", "192.0.2.1"),
            ("192.0.2.1:65535", "192.0.2.1"),
            ("192.0.2.1:_port", "192.0.2.1"),
            ("2001:DB8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:47011", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1"),
            ("::ffff:c000:201", "192.0.2.1"),
            ("fe80::1%eth0", "fe80::1"),
            ("[fe80::1%25]:80", "fe80::1"),
            ("::", "::"),
        ] {
            assert_eq!(address(text.as_bytes()), Some(ip.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn anything_else_is_no_address() {
        for text in [
            "",
            " ",
            "unknown",
            "_hidden",
            "localhost",
            "1.2.3",
            "1.2.3.4.5",
            "256.1.1.1",
            "01.2.3.4",
            "1.2.3.4:",
            "1.2.3.4:65536",
            "1.2.3.4:+80",
            "1.2.3.4:080000",
            "1.2.3.4:_",
            "1.2.3.4:80:80",
            "[1.2.3.4]",
            "[::1",
            "::1]",
            "[::1]80",
            "[::1]:",
            "[::1]:x",
            "[]",
            "[[::1]]",
            "fe80::1%",
            "fe80::1%a b",
            "::1 ",
            " ::1",
            "::1,::2",
            "1.2.3.4\0",
            "\"1.2.3.4\"",
            "::ffff:1.2.3.4:80x",
        ] {
            assert_eq!(address(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(address(b"1.2.3.4\xff"), None);
        assert_eq!(address(format!("fe80::1%{}", "x".repeat(1_000)).as_bytes()), None);
    }
}
