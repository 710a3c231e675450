//! A key as bytes: readable for an operator, unambiguous for the store, bounded.
//!
//! Every part is its tag and its value (`user:42`, `path:2=7`), parts are joined by `+`.
//! Tags and constants never contain `+` or `%`, and in values both are escaped, so the
//! bytes can be split in one way only. Nothing is allocated for keys up to 96 bytes.

use super::facets::Facets;
use super::json_fields::Field;
use super::key::{KeyExpr, Part};
use super::key_bytes::KeyBytes;
use super::text::{self, PartText};
use http::Method;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Longer values are digested.
const WHOLE_MAX: usize = 128;
/// Longer values count as missing: a stranger does not make us digest megabytes.
const VALUE_MAX: usize = 4096;
/// Bytes of a digested value that are shown.
const SHOWN: usize = 16;

/// The key of a request, or none if a part is missing in every alternative. `route` is
/// the pattern of the rule that fits.
pub(super) fn write(expr: &KeyExpr, facets: &Facets<'_>, route: Option<&str>, key: &mut KeyBytes) -> bool {
    expr.alternatives.iter().any(|parts| {
        key.clear();
        parts.iter().enumerate().all(|(at, part)| {
            if at > 0 {
                key.push(b'+');
            }
            write_part(part, facets, route, key).is_some()
        })
    })
}

/// What one part says, for a cost: none if it says nothing, an error if it is no number,
/// stands there twice or was not read. Whoever sends that is not to pay the least.
pub(super) fn number(part: &Part, facets: &Facets<'_>) -> Option<Result<u64, ()>> {
    let read = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or(());
    match part {
        Part::Header(name) => {
            let mut lines = facets.headers().get_all(name).iter();
            let first = lines.next()?;
            // Two of them are not a number.
            Some(if lines.next().is_some() { Err(()) } else { read(first.as_bytes()) })
        }
        Part::Query(name) => {
            let query = facets.uri().query()?;
            if query.len() > text::READ_MAX {
                return Some(Err(()));
            }
            let mut values = text::parameters(query, name);
            let first = values.next()?;
            Some(if values.next().is_some() { Err(()) } else { read(&first) })
        }
        Part::Json(pointer) => match facets.json(pointer) {
            Field::Missing => None,
            Field::Text(text) => Some(read(text.as_bytes())),
            Field::Unclear => Some(Err(())),
        },
        _ => None,
    }
}

fn write_part(part: &Part, facets: &Facets<'_>, route: Option<&str>, key: &mut KeyBytes) -> Option<()> {
    match part {
        Part::Ip => {
            let client = facets.client()?;
            match client.as_ipv4() {
                Some(ip) => {
                    let (words, length) = ipv4(ip);
                    key.extend_from_slice(&words.map(u64::to_le_bytes).as_flattened()[..length]);
                }
                None => write!(key, "ip:{client}").ok()?,
            }
            Some(())
        }
        Part::User => {
            let user = facets.user()?;
            key.extend_from_slice(b"user:");
            value(key, user.as_str().as_bytes())
        }
        Part::Header(name) => {
            let found = text::header(facets.headers(), name)?;
            named(key, b"header:", name.as_str());
            value(key, found)
        }
        Part::Path(number) => {
            let found = text::segment(facets.uri().path(), *number)?;
            let _ = write!(key, "path:{number}=");
            bounded(key, found, PartText::Path)
        }
        Part::Query(name) => {
            let found = text::parameter(facets.uri().query()?, name)?;
            named(key, b"query:", name);
            value(key, &found)
        }
        Part::Cookie(name) => {
            let found = text::cookie(facets.headers(), name)?;
            named(key, b"cookie:", name);
            value(key, found)
        }
        Part::Method => {
            key.extend_from_slice(b"method:");
            key.extend_from_slice(method(facets.method()));
            Some(())
        }
        Part::Route => {
            let pattern = route.or_else(|| facets.matched_path())?;
            key.extend_from_slice(b"route:");
            key.extend_from_slice(method(facets.method()));
            key.push(b' ');
            value(key, pattern.as_bytes())
        }
        Part::Json(pointer) => {
            let Field::Text(found) = facets.json(pointer) else { return None };
            named(key, b"json:", pointer);
            value(key, found.as_bytes())
        }
        Part::Constant(text) => {
            key.push(b'\'');
            key.extend_from_slice(text.as_bytes());
            key.push(b'\'');
            Some(())
        }
        Part::Custom { name, find } => {
            let found = find(facets)?;
            key.extend_from_slice(name.as_bytes());
            key.push(b':');
            value(key, found.as_bytes())
        }
    }
}

fn named(key: &mut KeyBytes, kind: &[u8], name: &str) {
    key.extend_from_slice(kind);
    key.extend_from_slice(name.as_bytes());
    key.push(b'=');
}

/// Methods that anybody could make up would each have an allowance of their own.
fn method(method: &Method) -> &[u8] {
    match *method {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::PATCH
        | Method::DELETE
        | Method::OPTIONS
        | Method::CONNECT
        | Method::TRACE => method.as_str().as_bytes(),
        _ => b"OTHER",
    }
}

/// Decodes what is short enough to be looked at.
fn bounded(key: &mut KeyBytes, raw: &[u8], part: PartText) -> Option<()> {
    if raw.len() > VALUE_MAX {
        return None;
    }
    value(key, &text::decoded(raw, part))
}

/// A value with its `+` and `%` escaped; the digest of a long one.
#[inline]
fn value(key: &mut KeyBytes, value: &[u8]) -> Option<()> {
    if value.is_empty() || value.len() > VALUE_MAX {
        return None;
    }
    if value.len() <= WHOLE_MAX {
        escaped(key, value);
        return Some(());
    }
    escaped(key, &value[..SHOWN]);
    // No escape looks like this, so no short value does.
    key.extend_from_slice(b"%#");
    for byte in &Sha256::digest(value)[..16] {
        let _ = write!(key, "{byte:02x}");
    }
    Some(())
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

/// The key of an address, first byte lowest, and how long it is: as [`Client`](crate::Client)
/// shows it, without the machinery of formatting.
#[inline(always)]
pub(super) fn ipv4(ip: Ipv4Addr) -> ([u64; 3], usize) {
    let [a, b, c, d] = ip.octets();
    let ((left, left_bits), (right, right_bits)) = (two_octets(a, b), two_octets(c, d));
    let start = TAG_BITS + left_bits;
    let text = u128::from(TAG) | (u128::from(left) << TAG_BITS) | (u128::from(right) << start);
    let rest = u128::from(right) >> (128 - start);
    // Without the last dot.
    ([text as u64, (text >> 64) as u64, rest as u64], (start + right_bits) as usize / 8 - 1)
}

const TAG: u32 = u32::from_le_bytes(*b"ip:\0");
const TAG_BITS: u32 = 24;

/// Two octets as text, with a dot behind each, and how many bits that is.
#[inline]
fn two_octets(left: u8, right: u8) -> (u64, u32) {
    let (left, left_bits) = OCTETS[usize::from(left)];
    let (right, right_bits) = OCTETS[usize::from(right)];
    (u64::from(left) | (u64::from(right) << left_bits), left_bits + right_bits)
}

/// The digits of each octet with a dot behind them, first byte lowest, and how many bits
/// that is.
static OCTETS: [(u32, u32); 256] = {
    let mut octets = [(0, 0); 256];
    let mut octet = 0;
    while octet < 256 {
        let (mut text, mut bits, mut rest) = (b'.' as u32, 8, octet as u32);
        loop {
            text = (text << 8) | (b'0' as u32 + rest % 10);
            bits += 8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        octets[octet] = (text, bits);
        octet += 1;
    }
    octets
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_it_is_shown() {
        for octet in 0..=255 {
            let each = [[octet, 0, 10, 255], [255, 255, 255, octet], [0, octet, 0, 1]];
            for ip in each.map(Ipv4Addr::from) {
                let (words, length) = ipv4(ip);
                let text = words.map(u64::to_le_bytes);
                assert_eq!(&text.as_flattened()[..length], format!("ip:{ip}").as_bytes());
            }
        }
    }
}
