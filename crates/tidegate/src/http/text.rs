//! Values in the head of an HTTP request, read within bounds: query parameters, cookies, header
//! fields.
//!
//! A text that is longer than its bound is not read, and its values are ambiguous. They are not
//! missing: a client could otherwise evade a rule with a long text.

use crate::rules::facts::{Fact, FactValue};
use crate::rules::text::{PartText, decoded};
use http::header::{AsHeaderName, COOKIE};
use http::{HeaderMap, HeaderValue};

/// Longer queries, and cookies of one request that are longer together, are not read.
const READ_MAX: usize = 8 * 1024;

/// The value of a query parameter.
pub(crate) fn parameter<'a>(query: &'a str, name: &str) -> Fact<FactValue<'a>> {
    if query.len() > READ_MAX {
        return Fact::Ambiguous;
    }
    let value = |pair: &'a [u8]| {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let is_it = *decoded(&pair[..at], PartText::Query) == *name.as_bytes();
        is_it.then(|| pair.get(at + 1..).unwrap_or_default())
    };
    let pairs = query.as_bytes().split(|byte| *byte == b'&');
    Fact::once(pairs.filter_map(value)).map(|raw| decoded(raw, PartText::Query))
}

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Fact<&'a [u8]> {
    let lines = || headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    if lines().map(<[u8]>::len).sum::<usize>() > READ_MAX {
        return Fact::Ambiguous;
    }
    let value = |pair: &'a [u8]| {
        let pair = pair.trim_ascii();
        let rest = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        // A value may be in quotes, which are not part of it.
        Some(rest.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(rest))
    };
    Fact::once(lines().flat_map(|line| line.split(|byte| *byte == b';')).filter_map(value))
}

/// The value of a header.
pub(crate) fn header(headers: &HeaderMap, name: impl AsHeaderName) -> Fact<&[u8]> {
    Fact::once(headers.get_all(name).iter().map(HeaderValue::as_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_found_by_its_decoded_name() {
        let get = |query: &str, name: &str| parameter(query, name).map(|value| value.to_vec());
        assert_eq!(get("a=1&goods%49d=7", "goodsId"), Fact::Found(b"7".to_vec()));
        assert_eq!(get("goodsId", "goodsId"), Fact::Found(Vec::new()));
        assert_eq!(get("goodsId=7&goodsId=8", "goodsId"), Fact::Ambiguous);
        assert_eq!(get("xgoodsId=7", "goodsId"), Fact::Missing);
        assert_eq!(get(&format!("goodsId=7&{}", "a=b&".repeat(5000)), "goodsId"), Fact::Ambiguous);
    }

    #[test]
    fn a_cookie_is_found_in_any_line() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "a=1; session=\"s7\"".parse().unwrap());
        headers.append(COOKIE, "b=2".parse().unwrap());
        assert_eq!(cookie(&headers, "session"), Fact::Found(&b"s7"[..]));
        assert_eq!(cookie(&headers, "b"), Fact::Found(&b"2"[..]));
        assert_eq!(cookie(&headers, "c"), Fact::Missing);
        headers.append(COOKIE, "session=other".parse().unwrap());
        assert_eq!(cookie(&headers, "session"), Fact::Ambiguous);
        headers.append(COOKIE, "x".repeat(READ_MAX).parse().unwrap());
        assert_eq!(cookie(&headers, "c"), Fact::Ambiguous);
    }
}
