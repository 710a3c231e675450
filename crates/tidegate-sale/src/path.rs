//! The one-time path: signed, not stored.
//!
//! ```text
//!   random 16 ‖ expiry 5 (s) ‖ epoch 4 ‖ signature 16   → 55 characters
//! ```
//!
//! The signature also covers the goods and the user. A guess is refused without asking
//! anybody; a path that is right can be used once, because the reserve keeps the random
//! bytes of those that were, with their order, until the sale ends.

use crate::goods::{GoodsId, UserId};
use crate::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

const TAG: &[u8] = b"tidegate path v1\0";
const BYTES: usize = 16 + 5 + 4 + 16;

/// The random part of a path: what is remembered of a used one.
pub(crate) type PathId = [u8; 16];

/// A path that is right, for the user and the goods that it was checked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) epoch: u32,
    /// Seconds since 1970.
    pub(crate) expires: u64,
}

impl Path {
    /// A new one.
    pub(crate) fn new(epoch: u32, expires: u64) -> Result<Self, getrandom::Error> {
        let mut id = PathId::default();
        getrandom::fill(&mut id)?;
        Ok(Self { id, epoch, expires: expires & ((1 << 40) - 1) })
    }

    /// As it stands in an address.
    pub(crate) fn sign(&self, secret: &Secret, goods: &GoodsId, user: &UserId) -> String {
        let mut bytes = [0; BYTES];
        bytes[..25].copy_from_slice(&self.head());
        bytes[25..].copy_from_slice(&secret.mac(&parts(goods, user, &self.head()))[..16]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads one. None says nothing about why.
    pub(crate) fn verify(text: &str, secret: &Secret, goods: &GoodsId, user: &UserId) -> Option<Self> {
        let mut bytes = [0; BYTES];
        // Exactly as long as one is; anything else is not decoded.
        if text.len() != BYTES.div_ceil(3) * 4 - 1 {
            return None;
        }
        let read = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes).ok()?;
        let (head, tag) = bytes.get(..read)?.split_at_checked(25)?;
        if tag.len() != 16 || !secret.has_signed(&parts(goods, user, head), tag) {
            return None;
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Some(Self {
            id: head[..16].try_into().ok()?,
            expires: number(&head[16..21]),
            epoch: u32::try_from(number(&head[21..])).ok()?,
        })
    }

    fn head(&self) -> [u8; 25] {
        let mut head = [0; 25];
        head[..16].copy_from_slice(&self.id);
        head[16..21].copy_from_slice(&self.expires.to_be_bytes()[3..]);
        head[21..].copy_from_slice(&self.epoch.to_be_bytes());
        head
    }
}

/// Ids contain no zero byte, so what is signed can be read in one way only.
fn parts<'a>(goods: &'a GoodsId, user: &'a UserId, head: &'a [u8]) -> [&'a [u8]; 6] {
    [TAG, goods.as_str().as_bytes(), b"\0", user.as_str().as_bytes(), b"\0", head]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_good_for_its_user_and_goods_only() {
        let secret = Secret::random().unwrap();
        let (phone, watch): (GoodsId, GoodsId) = ("phone".parse().unwrap(), "watch".parse().unwrap());
        let (ann, bob): (UserId, UserId) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let path = Path::new(7, 1_900_000_000).unwrap();
        let text = path.sign(&secret, &phone, &ann);
        assert_eq!(text.len(), 55);
        assert_eq!(Path::verify(&text, &secret, &phone, &ann), Some(path));
        assert_eq!(Path::verify(&text, &secret, &phone, &bob), None);
        assert_eq!(Path::verify(&text, &secret, &watch, &ann), None);
        assert_eq!(Path::verify(&text, &Secret::random().unwrap(), &phone, &ann), None);
        for at in 0..text.len() {
            let mut forged = text.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert_eq!(Path::verify(&forged, &secret, &phone, &ann), None, "character {at}");
        }
        for bad in ["", "randomPath", &"A".repeat(55), &"é".repeat(28), &"A".repeat(1 << 20)] {
            assert_eq!(Path::verify(bad, &secret, &phone, &ann), None);
        }
    }

    #[test]
    fn no_two_paths_are_the_same() {
        let ids: std::collections::HashSet<PathId> =
            (0..10_000).map(|_| Path::new(1, 1).unwrap().id).collect();
        assert_eq!(ids.len(), 10_000);
    }
}
