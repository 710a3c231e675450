//! The key of a check, and its hash under a secret.
//!
//! The memory store keeps no keys, only 64-bit hashes (SipHash-1-3 under a random secret of each
//! gate, so that a client cannot make keys collide). Two of n keys share a hash by chance with odds of about
//! n²/2⁶⁵: one in 370,000 at ten million keys.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

/// The key of a check, which has an allowance of its own: any bytes, borrowed, with a bounded
/// form for people.
///
/// ```
/// use tidegate::Key;
/// assert_eq!(Key::new("user:42").to_string(), "user:42");
/// assert_eq!(Key::new("a\0b\n").to_string(), r"a\0b\n");
/// assert!(Key::new(&"x".repeat(10_000)).to_string().len() < 200);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key<'a>(&'a [u8]);

/// Bytes of a key that are displayed before it is cut.
const DISPLAYED_MAX: usize = 96;

impl<'a> Key<'a> {
    /// The key of these bytes.
    pub fn new<K: AsRef<[u8]> + ?Sized>(key: &'a K) -> Self {
        Self(key.as_ref())
    }

    /// The bytes as they came.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Display for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let displayed = &self.0[..self.0.len().min(DISPLAYED_MAX)];
        for chunk in displayed.utf8_chunks() {
            for c in chunk.valid().chars() {
                match c {
                    '\0' => f.write_str("\\0")?,
                    c if c.is_control() || c == '\\' => write!(f, "{}", c.escape_default())?,
                    c => write!(f, "{c}")?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        if self.0.len() > DISPLAYED_MAX {
            write!(f, "…({} bytes, #{:016x})", self.0.len(), digest(self.0))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// True for the display of a key that was cut, from which the key cannot be told.
#[cfg(feature = "rules")]
pub(crate) fn is_cut(displayed: &[u8]) -> bool {
    let Ok(displayed) = std::str::from_utf8(displayed) else { return false };
    let Some((_, end)) = displayed.rsplit_once("…(") else { return false };
    let Some((bytes, digest)) = end.split_once(" bytes, #") else { return false };
    let is_hex = |digits: &str| digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    bytes.bytes().all(|byte| byte.is_ascii_digit()) && digest.strip_suffix(')').is_some_and(is_hex)
}

/// A digest without a secret: the same bytes read the same everywhere.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    KeyHasher { k0: 0, k1: 0 }.hash(bytes)
}

/// SipHash-1-3 of a whole slice under a 128-bit secret.
#[derive(Clone, Debug)]
pub(crate) struct KeyHasher {
    k0: u64,
    k1: u64,
}

impl KeyHasher {
    /// A new secret.
    pub(crate) fn random() -> Self {
        let word = || RandomState::new().build_hasher().finish();
        Self { k0: word(), k1: word() }
    }

    #[inline]
    pub(crate) fn hash(&self, bytes: &[u8]) -> u64 {
        let mut v = [
            self.k0 ^ 0x736f_6d65_7073_6575,
            self.k1 ^ 0x646f_7261_6e64_6f6d,
            self.k0 ^ 0x6c79_6765_6e65_7261,
            self.k1 ^ 0x7465_6462_7974_6573,
        ];
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            absorb(&mut v, u64::from_le_bytes(*word));
        }
        absorb(&mut v, ((bytes.len() as u64) << 56) | tail(rest));
        v[2] ^= 0xff;
        (0..3).for_each(|_| round(&mut v));
        v[0] ^ v[1] ^ v[2] ^ v[3]
    }
}

/// Up to seven bytes as a little-endian number.
#[inline]
fn tail(rest: &[u8]) -> u64 {
    let half = |at: usize| rest.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes);
    match (rest.len(), half(0)) {
        (4.., Some(low)) => {
            // Two overlapping halves instead of a loop over bytes.
            let back = rest.len() - 4;
            let high = half(back).map_or(0, u64::from);
            u64::from(low) | (high << (8 * back))
        }
        _ => rest.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte)),
    }
}

#[inline(always)]
fn absorb(v: &mut [u64; 4], word: u64) {
    v[3] ^= word;
    round(v);
    v[0] ^= word;
}

#[inline(always)]
fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_like_the_standard_library_under_the_same_secret() {
        // `DefaultHasher::new()` is SipHash-1-3 with a zero secret.
        let ours = KeyHasher { k0: 0, k1: 0 };
        for length in 0..70 {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 37 + 11) as u8).collect();
            let mut theirs = std::hash::DefaultHasher::new();
            theirs.write(&bytes);
            assert_eq!(ours.hash(&bytes), theirs.finish(), "{length} bytes");
        }
    }

    #[test]
    fn two_secrets_hash_apart() {
        assert_ne!(KeyHasher::random().hash(b"user:1"), KeyHasher::random().hash(b"user:1"));
    }
}
