//! What a request says, read within bounds: segments, query parameters, cookies, and the
//! percent signs in them.
//!
//! Nothing here allocates for a value that is short and plain. A text that is longer than
//! its bound is not read at all, and what it says is unclear: not the same as nothing, or a
//! client could choose not to have said it.

use http::header::COOKIE;
use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

/// Longer queries, and cookies of one request that are longer together, are not read.
const READ_MAX: usize = 8 * 1024;

/// Bytes of a value, on the stack as long as they are few.
pub(crate) type Bytes = SmallVec<[u8; 128]>;

/// What a request says of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said<T> {
    Nothing,
    Once(T),
    /// Twice, or where nobody reads it. Two of a kind are read differently by different
    /// programs, so whoever sends them would choose between two keys.
    Unclear,
}

impl<T> Said<T> {
    #[inline]
    pub(crate) fn map<U>(self, to: impl FnOnce(T) -> U) -> Said<U> {
        match self {
            Self::Nothing => Said::Nothing,
            Self::Once(value) => Said::Once(to(value)),
            Self::Unclear => Said::Unclear,
        }
    }

    #[inline]
    fn of(mut all: impl Iterator<Item = T>) -> Self {
        match (all.next(), all.next()) {
            (None, _) => Self::Nothing,
            (Some(only), None) => Self::Once(only),
            (Some(_), Some(_)) => Self::Unclear,
        }
    }
}

/// Where a percent-encoded text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartText {
    Path,
    /// Here `+` is a space, too.
    Query,
}

/// A value, borrowed where nothing in it had to be decoded.
pub(crate) enum Value<'a> {
    Plain(&'a [u8]),
    Decoded(Bytes),
}

impl AsRef<[u8]> for Value<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Plain(bytes) => bytes,
            Self::Decoded(bytes) => bytes,
        }
    }
}

impl std::ops::Deref for Value<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_ref()
    }
}

/// Percent signs decoded. One that is followed by anything but two hex digits stands for
/// itself.
pub(crate) fn decoded(raw: &[u8], part: PartText) -> Value<'_> {
    let is_space = |byte: u8| byte == b'+' && part == PartText::Query;
    if !raw.iter().any(|byte| *byte == b'%' || is_space(*byte)) {
        return Value::Plain(raw);
    }
    let mut out = Bytes::new();
    let mut at = 0;
    while let Some(byte) = raw.get(at) {
        let hex = |at: usize| raw.get(at).and_then(|digit| char::from(*digit).to_digit(16));
        match (byte, hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
                continue;
            }
            (byte, ..) if is_space(*byte) => out.push(b' '),
            (byte, ..) => out.push(*byte),
        }
        at += 1;
    }
    Value::Decoded(out)
}

/// The segment of a path, counted from 1.
pub(crate) fn segment(path: &str, number: usize) -> Option<&[u8]> {
    path.split('/').nth(number).map(str::as_bytes)
}

/// The value of a query parameter.
pub(crate) fn parameter<'a>(query: &'a str, name: &str) -> Said<Value<'a>> {
    if query.len() > READ_MAX {
        return Said::Unclear;
    }
    let value = |pair: &'a [u8]| {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let is_it = *decoded(&pair[..at], PartText::Query) == *name.as_bytes();
        is_it.then(|| pair.get(at + 1..).unwrap_or_default())
    };
    let pairs = query.as_bytes().split(|byte| *byte == b'&');
    Said::of(pairs.filter_map(value)).map(|raw| decoded(raw, PartText::Query))
}

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Said<&'a [u8]> {
    let lines = || headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes);
    let mut length = 0usize;
    for line in lines() {
        length = length.saturating_add(line.len());
        if length > READ_MAX {
            return Said::Unclear;
        }
    }
    let value = |pair: &'a [u8]| {
        let pair = pair.trim_ascii();
        let rest = pair.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        // A value may stand in quotes, which are no part of it.
        Some(rest.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(rest))
    };
    Said::of(lines().flat_map(|line| line.split(|byte| *byte == b';')).filter_map(value))
}

/// The value of a header.
#[inline]
pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Said<&'a [u8]> {
    Said::of(headers.get_all(name).iter().map(HeaderValue::as_bytes))
}

/// Digits of the largest number that programs read as one: `u128::MAX`.
const DIGITS_MAX: usize = 39;

/// The sign and the digits of a whole number in its shortest form: 7 for `007` and `+7`.
pub(crate) fn shortest_number(text: &[u8]) -> Option<(&'static [u8], &[u8])> {
    let (sign, digits): (&[u8], _) = match text {
        [b'-', digits @ ..] => (b"-", digits),
        [b'+', digits @ ..] => (b"", digits),
        digits => (b"", digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    match &digits[zeros..] {
        [] => Some((b"", b"0")),
        digits if digits.len() > DIGITS_MAX => None,
        digits => Some((sign, digits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_signs_are_decoded_once() {
        assert_eq!(*decoded(b"a%20b+c", PartText::Query), *b"a b c");
        assert_eq!(*decoded(b"a%20b+c", PartText::Path), *b"a b+c");
        assert_eq!(*decoded(b"%2541%zz%4", PartText::Path), *b"%41%zz%4");
    }

    #[test]
    fn a_parameter_is_found_by_its_decoded_name() {
        let get = |query: &str, name: &str| parameter(query, name).map(|value| value.to_vec());
        assert_eq!(get("a=1&goods%49d=7", "goodsId"), Said::Once(b"7".to_vec()));
        assert_eq!(get("goodsId", "goodsId"), Said::Once(Vec::new()));
        assert_eq!(get("goodsId=7&goodsId=8", "goodsId"), Said::Unclear);
        assert_eq!(get("xgoodsId=7", "goodsId"), Said::Nothing);
        assert_eq!(get(&format!("goodsId=7&{}", "a=b&".repeat(5000)), "goodsId"), Said::Unclear);
    }

    #[test]
    fn a_cookie_is_found_in_any_line() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "a=1; session=\"s7\"".parse().unwrap());
        headers.append(COOKIE, "b=2".parse().unwrap());
        assert_eq!(cookie(&headers, "session"), Said::Once(&b"s7"[..]));
        assert_eq!(cookie(&headers, "b"), Said::Once(&b"2"[..]));
        assert_eq!(cookie(&headers, "c"), Said::Nothing);
        headers.append(COOKIE, "session=other".parse().unwrap());
        assert_eq!(cookie(&headers, "session"), Said::Unclear);
        headers.append(COOKIE, "x".repeat(READ_MAX).parse().unwrap());
        assert_eq!(cookie(&headers, "c"), Said::Unclear);
    }

    #[test]
    fn a_number_has_one_shortest_form() {
        let shortest =
            |text: &str| shortest_number(text.as_bytes()).map(|(sign, digits)| [sign, digits].concat());
        for (text, short) in [
            ("7", "7"),
            ("007", "7"),
            ("+7", "7"),
            ("-07", "-7"),
            ("0", "0"),
            ("-000", "0"),
            ("+0", "0"),
            (&u128::MAX.to_string(), &u128::MAX.to_string()),
            (&format!("{}1", "0".repeat(4000)), "1"),
        ] {
            assert_eq!(shortest(text).as_deref(), Some(short.as_bytes()), "{text}");
        }
        for text in ["", "+", "-", "+-7", "7 ", " 7", "7.0", "7e0", "0x7", "seven", "1_000", "\u{667}"] {
            assert_eq!(shortest(text), None, "{text}");
        }
        assert_eq!(shortest(&"1".repeat(40)), None);
    }

    #[test]
    fn segments_count_from_one() {
        assert_eq!(segment("/goods/7/order", 2), Some(&b"7"[..]));
        assert_eq!(segment("/goods/7/order", 4), None);
        assert_eq!(segment("/", 1), Some(&b""[..]));
    }
}
