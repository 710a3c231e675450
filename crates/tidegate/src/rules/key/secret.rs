//! Secrets in keys: written by their digest, so that no log, no response and no name of a key in
//! Redis contains them.
//!
//! A value of a header or a cookie is usually an API key or a session. All other parts are written
//! as they are, unless the key has `secret(…)`: they are names, not passwords.
//!
//! The digest is SHA-256 without a key, so that an operator can compute it with `sha256sum`. It does
//! not protect a secret that can be guessed, such as a PIN.

use crate::rules::key::KeyBytes;
use crate::rules::text::{PartText, decoded};
use sha2::{Digest, Sha256};

/// The prefix of a digest. No value that is written whole begins with it.
pub(crate) const MARK: u8 = b'#';

/// Bytes of a digest: to find two values with the same one takes 2⁸⁰ computations. Not 16, which is
/// how the Redis store ends names that it shortens itself.
const BYTES: usize = 20;

pub(crate) const HEX: &[u8; 16] = b"0123456789abcdef";

/// The first 160 bits of the SHA-256 of a value in pieces, as hex digits.
pub(crate) fn digest(pieces: &[&[u8]]) -> [u8; 2 * BYTES] {
    let mut hasher = Sha256::new();
    pieces.iter().for_each(|piece| hasher.update(piece));
    let mut digits = [0; 2 * BYTES];
    for (pair, byte) in digits.as_chunks_mut::<2>().0.iter_mut().zip(hasher.finalize()) {
        *pair = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]];
    }
    digits
}

/// Writes a secret: `#` and its digest.
pub(crate) fn write(key: &mut KeyBytes, pieces: &[&[u8]]) {
    key.push(MARK);
    key.extend_from_slice(&digest(pieces));
}

/// The prefixes of secret values in a written key.
const SECRETS: [&[u8]; 3] = [b"header:", b"cookie:", b"secret("];

/// The key in the store, for [`Gate::peek`](crate::Gate::peek) and
/// [`Gate::reset`](crate::Gate::reset): secrets that are written whole are replaced by their
/// digests.
///
/// ```
/// use tidegate::rules::stored_key;
///
/// let key = stored_key("user:42+header:x-api-key=k1");
/// assert_eq!(key, b"user:42+header:x-api-key=#6ab9f1eb8f7d3388f4f9d586f66e99fd54080df2");
/// assert_eq!(stored_key(&key), key);
/// ```
///
/// In values, `+` and `%` are written `%2B` and `%25`. The keys of a rule with
/// [`show_keys`](crate::rules::Rule::show_keys) are stored as they are.
pub fn stored_key<K: AsRef<[u8]> + ?Sized>(key: &K) -> Vec<u8> {
    let mut stored = Vec::with_capacity(key.as_ref().len());
    // No value has a `+`, so each of them separates two parts.
    for (at, part) in key.as_ref().split(|byte| *byte == b'+').enumerate() {
        if at > 0 {
            stored.push(b'+');
        }
        let is_secret = SECRETS.iter().any(|begin| part.starts_with(begin));
        match part.iter().position(|byte| *byte == b'=').filter(|_| is_secret) {
            Some(end) if !is_digest(&part[end + 1..]) => {
                stored.extend_from_slice(&part[..=end]);
                stored.push(MARK);
                stored.extend_from_slice(&digest(&[&decoded(&part[end + 1..], PartText::Path)]));
            }
            _ => stored.extend_from_slice(part),
        }
    }
    stored
}

/// True for what [`write`] writes.
pub(crate) fn is_digest(value: &[u8]) -> bool {
    let is_digit = |byte: &u8| HEX.contains(byte);
    matches!(value, [MARK, digits @ ..] if digits.len() == 2 * BYTES && digits.iter().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_what_sha256sum_says() {
        // printf %s k-secret | sha256sum
        let digits = digest(&[b"k-", b"secret"]);
        assert_eq!(&digits, b"a9d47e48fea8e20cd2893475a2dfdbf3af90a947");
        assert!(is_digest(format!("#{}", String::from_utf8_lossy(&digits)).as_bytes()));
        assert!(!is_digest(&digits));
    }

    #[test]
    fn every_secret_of_a_key_is_replaced_and_nothing_else() {
        let stored = |key: &str| String::from_utf8(stored_key(key)).unwrap();
        let digit = |value: &str| String::from_utf8(digest(&[value.as_bytes()]).to_vec()).unwrap();
        assert_eq!(stored("user:42+path:2=7"), "user:42+path:2=7");
        assert_eq!(stored("header:x-k=a=b"), format!("header:x-k=#{}", digit("a=b")));
        assert_eq!(
            stored("cookie:s=a%2Bb+secret(query:t)=%25"),
            format!("cookie:s=#{}+secret(query:t)=#{}", digit("a+b"), digit("%"))
        );
        assert_eq!(stored("(no header:x-k)"), "(no header:x-k)");
    }
}
