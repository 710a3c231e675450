//! How the value of one part of a key is written (`7` of `path:2=7`), and whether a value in a list
//! has this form.
//!
//! Both are here, because a list that accepts another form would refuse no request.

use crate::caller::Client;
use crate::rules::facts::Fact;
use crate::rules::key::secret::{self, is_digest};
use crate::rules::key::{ClientValue, Form, KeyBytes, Part};
use crate::rules::route::methods;
use crate::rules::text::{PartText, decoded, shortest_number};
use std::fmt::{self, Display, Write};
use std::net::IpAddr;

/// Longer values are digested, whatever part they are of.
const WHOLE_MAX: usize = 128;
/// Longer values are ambiguous, so that no client can make the digest read megabytes.
pub(crate) const VALUE_MAX: usize = 4096;
/// How many bytes of a long value are written, the mark after them, and the digits of its digest.
const SHOWN: usize = 16;
const LONG_MARK: &[u8] = b"%#";
const LONG_DIGITS: usize = 32;
/// How the mark of a digest is escaped where a secret that is written whole begins with it.
const ESCAPED_MARK: &[u8] = b"%23";

/// How values of headers, cookies and `secret(…)` are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrets {
    Digested,
    Whole,
}

/// Writes a value that comes from a user, a client or a function.
pub(crate) fn write_value(part: &Part, value: &[u8], secrets: Secrets, key: &mut KeyBytes) -> Fact<()> {
    if value.is_empty() {
        return Fact::Missing;
    }
    if value.len() > VALUE_MAX {
        return Fact::Ambiguous;
    }
    let is_secret = part.value().is_some_and(ClientValue::is_secret);
    let is_digested = is_secret && secrets == Secrets::Digested;
    if is_number(part) {
        // A text that is no number here may be one for the handler.
        let Some((sign, digits)) = shortest_number(value) else { return Fact::Ambiguous };
        if is_digested {
            secret::write(key, &[sign, digits]);
        } else {
            key.extend_from_slice(sign);
            key.extend_from_slice(digits);
        }
    } else if is_digested || (is_secret && value.len() > WHOLE_MAX) {
        secret::write(key, &[value]);
    } else if is_secret && value[0] == secret::MARK {
        // It could otherwise be confused with the digest of another value.
        key.extend_from_slice(ESCAPED_MARK);
        escaped(key, &value[1..]);
    } else {
        plain(key, value);
    }
    Fact::Found(())
}

fn is_number(part: &Part) -> bool {
    part.value().is_some_and(|value| value.form == Form::Number)
}

/// Writes the method and the pattern of a route.
pub(crate) fn write_route(key: &mut KeyBytes, method: &str, pattern: &str) {
    key.extend_from_slice(route_method(method).as_bytes());
    key.push(b' ');
    plain(key, pattern.as_bytes());
}

/// `HEAD` is `GET`, as in routers: they share an allowance.
pub(crate) fn route_method(own: &str) -> &str {
    if own == "HEAD" { "GET" } else { method(own) }
}

/// Other methods are `OTHER`: a client could otherwise invent methods, and have an allowance for
/// each.
pub(crate) fn method(own: &str) -> &str {
    if methods::COMMON.contains(&own) { own } else { "OTHER" }
}

/// Writes a client as it displays itself. IPv4 addresses are most keys, and formatting one takes
/// longer than deciding about it.
pub(crate) fn write_client(key: &mut KeyBytes, client: Client) {
    match client.network() {
        (IpAddr::V4(address), 32) => {
            for (at, octet) in address.octets().into_iter().enumerate() {
                if at > 0 {
                    key.push(b'.');
                }
                key.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
        }
        _ => write_text(key, client),
    }
}

/// Writes a text as it is.
pub(crate) fn write_text(key: &mut KeyBytes, text: impl Display) {
    struct Writer<'a>(&'a mut KeyBytes);
    impl Write for Writer<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            self.0.extend_from_slice(text.as_bytes());
            Ok(())
        }
    }
    // Writing to a key does not fail. If a `Display` fails, the key is what it has written.
    let _ = write!(Writer(key), "{text}");
}

/// A value with its `+` and `%` escaped; a long one by its beginning and its digest.
#[inline]
pub(crate) fn plain(key: &mut KeyBytes, value: &[u8]) {
    if value.len() <= WHOLE_MAX {
        return escaped(key, value);
    }
    escaped(key, &value[..SHOWN]);
    // This is no escape, so no short value contains it.
    key.extend_from_slice(LONG_MARK);
    key.extend_from_slice(&secret::digest(&[value])[..LONG_DIGITS]);
}

#[inline]
fn escaped(key: &mut KeyBytes, value: &[u8]) {
    if !value.iter().any(|byte| matches!(byte, b'+' | b'%')) {
        key.extend_from_slice(value);
        return;
    }
    for byte in value {
        match byte {
            b'+' => key.extend_from_slice(b"%2B"),
            b'%' => key.extend_from_slice(b"%25"),
            byte => key.push(*byte),
        }
    }
}

/// True if a list may have this value of a part: as it is written, or, of a secret, whole or by its
/// digest.
pub(crate) fn is_value(part: &Part, text: &[u8]) -> bool {
    let is_secret = part.value().is_some_and(ClientValue::is_secret);
    if is_secret && is_digest(text) || !is_secret && !is_number(part) && is_long(text) {
        return true;
    }
    let mut written = KeyBytes::new();
    if write_value(part, &decoded(text, PartText::Path), Secrets::Whole, &mut written) != Fact::Found(()) {
        return false;
    }
    if !is_secret || is_number(part) {
        return *written == *text;
    }
    let text = text.strip_prefix(ESCAPED_MARK).map_or(text.to_vec(), |rest| [b"#", rest].concat());
    is_escaped(&text)
}

/// True if a plain value is written in this form.
pub(crate) fn is_plain_of(value: &str, text: &[u8]) -> bool {
    let mut written = KeyBytes::new();
    plain(&mut written, value.as_bytes());
    *written == *text
}

/// True if a list may have this pattern, of a route that only the router knows.
pub(crate) fn is_pattern(text: &[u8]) -> bool {
    let is_whole = || is_escaped(text) && decoded(text, PartText::Path).len() <= WHOLE_MAX;
    text.starts_with(b"/") && (is_long(text) || is_whole())
}

/// True if each `%` escapes a `+` or a `%`.
fn is_escaped(text: &[u8]) -> bool {
    let mut written = KeyBytes::new();
    escaped(&mut written, &decoded(text, PartText::Path));
    *written == *text
}

/// True for what [`plain`] writes of a long value.
fn is_long(text: &[u8]) -> bool {
    let Some(mark) = text.len().checked_sub(LONG_MARK.len() + LONG_DIGITS) else { return false };
    let (shown, rest) = text.split_at(mark);
    let Some(digits) = rest.strip_prefix(LONG_MARK) else { return false };
    is_escaped(shown)
        && decoded(shown, PartText::Path).len() == SHOWN
        && digits.iter().all(|byte| secret::HEX.contains(byte))
}
