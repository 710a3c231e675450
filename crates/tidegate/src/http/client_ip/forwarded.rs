//! The elements of `Forwarded` (RFC 7239), from the right.
//!
//! Only the right end of a line was written by a trusted proxy. So the last element is searched
//! from there, outside quotes, and nothing to its left matters: a quote that a client leaves open
//! on the left hides nothing. The element is then parsed forwards, strictly, because a trusted
//! proxy has written all of it.

use crate::http::client_ip::node;
use std::net::IpAddr;

/// Where the last element of a line begins: after the last comma outside quotes. None if it
/// does not begin within the last `bytes_max` bytes, or a quoted string never begins.
pub(crate) fn last_element(line: &[u8], bytes_max: usize) -> Option<usize> {
    let floor = line.len().saturating_sub(bytes_max);
    let mut at = line.len();
    while at > floor {
        at -= 1;
        match line[at] {
            b',' => return Some(at + 1),
            b'"' => at = opening_quote(line, at, floor)?,
            _ => {}
        }
    }
    (floor == 0).then_some(0)
}

/// The quote that opens the string whose closing quote is at `closing`. Inside, a quote comes
/// after an odd number of backslashes.
fn opening_quote(line: &[u8], closing: usize, floor: usize) -> Option<usize> {
    // Counted at quotes only: at each byte of a long row of backslashes it would take quadratic time.
    let slashes = |at: usize| line[floor..at].iter().rev().take_while(|byte| **byte == b'\\').count();
    (floor..closing).rev().find(|at| line[*at] == b'"' && slashes(*at) % 2 == 0)
}

/// The address in the one `for` of an element. None if there is no such address, or
/// anything in the element is not as in the RFC (blanks around `;` are accepted).
pub(crate) fn address(element: &[u8]) -> Option<IpAddr> {
    let (mut found, mut node) = (None, Vec::new());
    let mut rest = element.trim_ascii();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(b";") {
            rest = after.trim_ascii_start();
            continue;
        }
        let name_end = rest.iter().position(|byte| !is_token(*byte))?;
        let (name, after) = rest.split_at(name_end);
        let value = after.strip_prefix(b"=")?;
        if name.is_empty() {
            return None;
        }
        node.clear();
        rest = read_value(value, &mut node)?.trim_ascii_start();
        if !rest.is_empty() && rest[0] != b';' {
            return None;
        }
        if name.eq_ignore_ascii_case(b"for") {
            // Twice in one element is not allowed, and does not state which one counts.
            if found.replace(node::address(&node)?).is_some() {
                return None;
            }
        }
    }
    found
}

/// Reads a value without its quotes and escapes; what comes after it.
fn read_value<'a>(value: &'a [u8], node: &mut Vec<u8>) -> Option<&'a [u8]> {
    let Some(quoted) = value.strip_prefix(b"\"") else {
        let end = value.iter().position(|byte| b"; \t".contains(byte)).unwrap_or(value.len());
        let (bare, rest) = value.split_at(end);
        if bare.iter().any(|byte| b"\"\\".contains(byte)) {
            return None;
        }
        node.extend_from_slice(bare);
        return Some(rest);
    };
    let mut bytes = quoted.iter();
    loop {
        match bytes.next()? {
            b'"' => return Some(bytes.as_slice()),
            b'\\' => node.push(*bytes.next()?),
            byte => node.push(*byte),
        }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(line: &str) -> Option<&str> {
        last_element(line.as_bytes(), 1_000).map(|start| &line[start..])
    }

    #[test]
    fn reads_the_examples_of_the_rfc() {
        for (element, ip) in [
            ("for=\"_gazonk\"", None),
            ("For=\"[2001:db8:cafe::17]:4711\"", Some("2001:db8:cafe::17")),
            ("for=192.0.2.60;proto=http;by=203.0.113.43", Some("192.0.2.60")),
            ("for=192.0.2.43", Some("192.0.2.43")),
            ("for=\"192.0.2.43:47011\"", Some("192.0.2.43")),
            (" for=198.51.100.17;by=203.0.113.60;proto=http;host=example.com", Some("198.51.100.17")),
            ("for=_hidden", None),
            ("for=_SEVKISEK", None),
            ("for=unknown", None),
            ("for=\"[2001:db8:cafe::17]\"", Some("2001:db8:cafe::17")),
        ] {
            assert_eq!(address(element.as_bytes()), ip.map(|ip| ip.parse().unwrap()), "{element}");
        }
    }

    #[test]
    fn reads_quotes_escapes_and_what_is_common() {
        for element in [
            r#"for="192.0.2.1""#,
            r#"for="\1\9\2.0.2.1""#,
            r#"host="a,b;for=6.6.6.6\"";for=192.0.2.1"#,
            r#"for=192.0.2.1;host="\\""#,
            "for=192.0.2.1; proto=https ; by=_x",
            ";;for=192.0.2.1;",
            "FOR=192.0.2.1",
        ] {
            assert_eq!(address(element.as_bytes()), Some("192.0.2.1".parse().unwrap()), "{element}");
        }
        assert_eq!(address(b"for=2001:db8::1"), Some("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn reads_nothing_out_of_what_is_malformed() {
        for element in [
            "",
            ";",
            "for",
            "for=",
            "=1.2.3.4",
            "proto=http",
            "192.0.2.1",
            "for=\"192.0.2.1",
            "for=192.0.2.1\"",
            "for=\"192.0.2.1\"x",
            "for=192.0.2.1 x",
            "for =192.0.2.1",
            "for= 192.0.2.1",
            "for=192.0.2.1;for=192.0.2.2",
            "for=192.0.2.1;host=\"a",
            "for=192.0.2.1;host=a\"b\"",
            "for=\"192.0.2.1\\",
            "for=192.0.2.1;\0=a",
            "for=192.0.2.1\0",
        ] {
            assert_eq!(address(element.as_bytes()), None, "{element:?}");
        }
        assert_eq!(address(b"for=\"\xff192.0.2.1\""), None);
        assert_eq!(address(&[b"for=\"", "1".repeat(1_000_000).as_bytes(), b"\""].concat()), None);
    }

    #[test]
    fn a_quoted_comma_splits_nothing() {
        assert_eq!(last(r#"for=1.1.1.1, for=2.2.2.2;host="a,b""#), Some(r#" for=2.2.2.2;host="a,b""#));
        assert_eq!(last(r#"for=1.1.1.1,host="\",\\";for=2.2.2.2"#), Some(r#"host="\",\\";for=2.2.2.2"#));
        assert_eq!(last(r#"host="\"x,""#), Some(r#"host="\"x,""#));
    }

    #[test]
    fn a_quote_left_open_on_the_left_swallows_nothing() {
        assert_eq!(last(r#"for="6.6.6.6, for=2.2.2.2"#), Some(" for=2.2.2.2"));
        assert_eq!(last(r#"for="6.6.6.6\, for="2.2.2.2""#), Some(r#" for="2.2.2.2""#));
        assert_eq!(last(r#"x="\\\,for="2.2.2.2""#), Some(r#"for="2.2.2.2""#));
        assert_eq!(last(r#"a""#), None);
    }

    #[test]
    fn looks_no_further_than_it_may() {
        assert_eq!(last_element(b"a,bcd", 4), Some(2));
        assert_eq!(last_element(b"a,bcd", 3), None);
        assert_eq!(last_element(b"abc", 3), Some(0));
        assert_eq!(last_element(b"", 0), Some(0));
        let quotes = [vec![b'\\'; 1_000_000], b"\"x\"".to_vec()].concat();
        assert_eq!(last_element(&quotes, 8_192), None);
    }
}
