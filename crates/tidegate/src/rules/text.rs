//! How texts in a request are read: percent signs, segments of a path, whole numbers.
//!
//! A value without percent signs needs no allocation.

use crate::rules::facts::FactValue;
use std::borrow::Cow;

/// The part of a request that a percent-encoded text is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartText {
    Path,
    /// Here `+` is a space, too.
    Query,
}

/// Percent-decodes a text. A percent sign without two hex digits after it stays as it is.
pub(crate) fn decoded(raw: &[u8], part: PartText) -> FactValue<'_> {
    let is_space = |byte: u8| byte == b'+' && part == PartText::Query;
    if !raw.iter().any(|byte| *byte == b'%' || is_space(*byte)) {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(first) = rest.first() {
        let (byte, length) = match decoded_byte(rest) {
            Some(byte) => (byte, 3),
            None if is_space(*first) => (b' ', 1),
            None => (*first, 1),
        };
        out.push(byte);
        rest = &rest[length..];
    }
    Cow::Owned(out)
}

/// The byte that a percent sign and two hex digits stand for, if a text begins with those.
pub(crate) fn decoded_byte(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = text else { return None };
    let digit = |digit: &u8| char::from(*digit).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

/// The segment of a path, counted from 1.
pub(crate) fn segment(path: &str, number: usize) -> Option<&[u8]> {
    path.split('/').nth(number).map(str::as_bytes)
}

/// Digits of the largest number that programs read: `u128::MAX`.
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
