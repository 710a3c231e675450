//! Base64 (RFC 4648), one way.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encode(bytes: &[u8], is_padded: bool) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digit = |at: usize| char::from(DIGITS[(word >> (18 - 6 * at)) as usize & 63]);
        out.extend((0..=chunk.len()).map(digit));
        out.extend((chunk.len()..3).filter(|_| is_padded).map(|_| '='));
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn encodes_like_the_examples_of_the_rfc() {
        let pairs = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")];
        for (plain, coded) in pairs {
            assert_eq!(super::encode(plain.as_bytes(), true), coded);
            assert_eq!(super::encode(plain.as_bytes(), false), coded.trim_end_matches('='));
        }
        assert_eq!(super::encode(&[0xfb, 0xff], false), "+/8");
    }
}
