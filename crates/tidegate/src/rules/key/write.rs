//! A key as bytes: readable for an operator, unambiguous for the store, bounded, and without
//! what clients keep secret.
//!
//! Every part is its tag and its value (`user:42`, `path:2=7`), parts are joined by `+`.
//! Tags and constants never contain `+` or `%`, and in values both are escaped, so the
//! bytes can be split in one way only. How a tag and a value are written is in
//! [`key_value`](crate::rules::key::value). Nothing is allocated for keys up to 96 bytes.

use crate::http::facts::Facets;
use crate::http::json::fields::Field;
use crate::http::text::{self, PartText, Said, Value};
use crate::rules::key::bytes::KeyBytes;
use crate::rules::key::value::{Secrets, VALUE_MAX, method, write_route, write_tag, write_value};
use crate::rules::key::{KeyExpr, Part};
use crate::rules::route::path::Paths;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Whether a key, or a part of one, was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Found {
    Whole,
    /// The request does not say it.
    Missing,
    /// The request says it twice, or so that it is not read. Whoever sends that must not gain
    /// by it: neither another alternative of the key, nor that the rule does not apply.
    Unclear,
}

/// What a key is written from: a request, and what its rule knows of it.
pub(crate) struct KeyInput<'a> {
    pub(crate) facets: &'a Facets<'a>,
    /// The pattern of the rule that fits.
    pub(crate) route: Option<&'a str>,
    pub(crate) secrets: Secrets,
    /// Whether this reading of the path is one that the rule is about.
    pub(crate) fits: &'a dyn Fn(&str) -> bool,
}

/// The key of a request: the first alternative of which nothing is missing.
pub(crate) fn write(expr: &KeyExpr, input: &KeyInput<'_>, key: &mut KeyBytes) -> Found {
    for parts in &expr.alternatives {
        match write_all(parts, input, key) {
            Found::Missing => {}
            found => return found,
        }
    }
    Found::Missing
}

fn write_all(parts: &[Part], input: &KeyInput<'_>, key: &mut KeyBytes) -> Found {
    key.clear();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            key.push(b'+');
        }
        match write_part(part, input, key) {
            Found::Whole => {}
            found => return found,
        }
    }
    Found::Whole
}

/// What one part says, for a cost: none if it says nothing, an error if it is no number,
/// stands there twice or was not read. Whoever sends that is not to pay the least.
pub(crate) fn number(part: &Part, facets: &Facets<'_>) -> Option<Result<u64, ()>> {
    let read = |bytes: &[u8]| std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or(());
    match said(part, facets, &|_| true) {
        Said::Nothing => None,
        Said::Once(value) => Some(read(&value)),
        Said::Unclear => Some(Err(())),
    }
}

/// What the client says there, of the parts that are the client's words.
#[inline]
fn said<'f>(part: &Part, facets: &'f Facets<'_>, fits: &dyn Fn(&str) -> bool) -> Said<Value<'f>> {
    match part {
        Part::Header(name) => text::header(facets.headers(), name).map(Value::Plain),
        Part::Path(number) => segment(facets.paths(), *number, fits),
        Part::Query(name) => facets.uri().query().map_or(Said::Nothing, |query| text::parameter(query, name)),
        Part::Cookie(name) => text::cookie(facets.headers(), name).map(Value::Plain),
        Part::Json(pointer) => match facets.json(pointer) {
            Field::Missing => Said::Nothing,
            Field::Text(text) => Said::Once(Value::Plain(text.as_bytes())),
            Field::Unclear => Said::Unclear,
        },
        _ => Said::Nothing,
    }
}

/// A segment of the path, decoded. Programs read some paths differently (`/goods/8/../7`): where
/// two readings that the rule is about differ in it, nobody knows which one the service takes.
#[inline]
fn segment<'f>(paths: &'f Paths<'_>, number: usize, fits: &dyn Fn(&str) -> bool) -> Said<Value<'f>> {
    let mut found: Option<Said<Value<'f>>> = None;
    for path in paths.readings() {
        if !paths.is_normal() && !fits(path) {
            continue;
        }
        let own = match text::segment(path, number) {
            None => Said::Nothing,
            // Not even decoded.
            Some(raw) if raw.len() > VALUE_MAX => return Said::Unclear,
            Some(raw) => Said::Once(text::decoded(raw, PartText::Path)),
        };
        let is_same = match (&found, &own) {
            (None, _) | (Some(Said::Nothing), Said::Nothing) => true,
            (Some(Said::Once(before)), Said::Once(own)) => **before == **own,
            _ => false,
        };
        if !is_same {
            return Said::Unclear;
        }
        found = Some(own);
    }
    found.unwrap_or(Said::Nothing)
}

fn write_part(part: &Part, input: &KeyInput<'_>, key: &mut KeyBytes) -> Found {
    let KeyInput { facets, route, secrets, fits } = *input;
    match part {
        Part::Ip => {
            let Some(client) = facets.client_of_key() else { return Found::Missing };
            match client.as_ipv4() {
                Some(ip) => {
                    let (words, length) = ipv4(ip);
                    key.extend_from_slice(&words.map(u64::to_le_bytes).as_flattened()[..length]);
                }
                // Writing to a key does not fail.
                None => drop(write!(key, "ip:{client}")),
            }
            Found::Whole
        }
        Part::User => {
            let Some(user) = facets.user() else { return Found::Missing };
            write_tag(part, key);
            write_value(part, user.as_str().as_bytes(), secrets, key)
        }
        Part::Header(_)
        | Part::Path(_)
        | Part::Query(_)
        | Part::Cookie(_)
        | Part::Json(_)
        | Part::Number(_)
        | Part::Secret(_) => match said(part.said(), facets, fits) {
            Said::Nothing => Found::Missing,
            Said::Unclear => Found::Unclear,
            Said::Once(found) => {
                write_tag(part, key);
                write_value(part, &found, secrets, key)
            }
        },
        Part::Method => {
            write_tag(part, key);
            key.extend_from_slice(method(facets.method()));
            Found::Whole
        }
        Part::Route => {
            let Some(pattern) = route.or_else(|| facets.matched_path()) else { return Found::Missing };
            write_tag(part, key);
            write_route(key, facets.method(), pattern);
            Found::Whole
        }
        Part::Constant(_) => {
            write_tag(part, key);
            Found::Whole
        }
        Part::Custom { find, .. } => {
            let Some(found) = find(facets) else { return Found::Missing };
            write_tag(part, key);
            write_value(part, found.as_bytes(), secrets, key)
        }
    }
}

/// The key of an address, first byte lowest, and how long it is: as [`Client`](crate::Client)
/// shows it, without the machinery of formatting.
#[inline]
fn ipv4(ip: Ipv4Addr) -> ([u64; 3], usize) {
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
