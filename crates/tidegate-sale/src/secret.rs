//! The secret that paths and users' tokens are signed with.

use crate::goods::UserId;
use crate::time::now_ms;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;
use std::time::Duration;

/// 32 random bytes that all processes of a sale share. Whoever knows them can sign in as
/// anybody and make paths.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// If the system has no randomness to give.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// From 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let text = text.trim().as_bytes();
        let mut bytes = [0; 32];
        if text.len() != 64 || !text.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(text.chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(bytes))
    }

    /// As [`from_hex`](Self::from_hex) reads it.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What signs these parts. Their lengths are fixed, or they are told apart by a zero
    /// byte that cannot stand in them.
    pub(crate) fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.hmac(parts).finalize().into_bytes().into()
    }

    /// Whether `tag` is the start of what signs these parts, in time that does not tell.
    pub(crate) fn has_signed(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.hmac(parts).verify_truncated_left(tag).is_ok()
    }

    fn hmac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        // A key shorter than a block counts as filled up with zeros.
        let mut block = [0; 64];
        block[..32].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

const USER: &[u8] = b"tidegate user v1\0";
/// Longer tokens are not looked at.
const TOKEN_MAX: usize = 256;

/// Tokens that say who a user is, until they expire: `v1.<user>.<expiry>.<signature>`.
#[derive(Clone, Debug)]
pub struct SignedTokens {
    /// Has read the secret and the tag already.
    mac: Hmac<Sha256>,
}

impl SignedTokens {
    /// Signed with this secret.
    pub fn new(secret: &Secret) -> Self {
        Self { mac: secret.hmac(&[USER]) }
    }

    /// A token for a user, good for this long.
    pub fn issue(&self, user: &UserId, good_for: Duration) -> String {
        let expiry = (now_ms() / 1000 + good_for.as_secs()).to_string();
        let mac = self.signature(user.as_str(), &expiry).finalize().into_bytes();
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        format!("v1.{}.{expiry}.{}", encode(user.as_str().as_bytes()), encode(&mac))
    }

    /// Whose token it is; none if it is forged or has expired.
    pub fn verify(&self, token: &str) -> Option<UserId> {
        if token.len() > TOKEN_MAX {
            return None;
        }
        let mut fields = token.strip_prefix("v1.")?.split('.');
        let (user, expiry, mac) = (fields.next()?, fields.next()?, fields.next()?);
        let user: UserId = String::from_utf8(URL_SAFE_NO_PAD.decode(user).ok()?).ok()?.parse().ok()?;
        let mac = URL_SAFE_NO_PAD.decode(mac).ok().filter(|mac| mac.len() == 32)?;
        let is_signed =
            fields.next().is_none() && self.signature(user.as_str(), expiry).verify_slice(&mac).is_ok();
        let expires: u64 = expiry.parse().ok()?;
        (is_signed && now_ms() / 1000 < expires).then_some(user)
    }

    fn signature(&self, user: &str, expiry: &str) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        for part in [user.as_bytes(), b"\0", expiry.as_bytes()] {
            mac.update(part);
        }
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_tells_its_user_and_nothing_else_does() {
        let secret = Secret::random().unwrap();
        assert_eq!(Secret::from_hex(&secret.to_hex()), Some(secret.clone()));
        for bad in ["", "abc", &secret.to_hex()[1..], &"+1".repeat(32), &"é".repeat(32)] {
            assert_eq!(Secret::from_hex(bad), None, "{bad}");
        }
        let tokens = SignedTokens::new(&secret);
        let ann: UserId = "ann".parse().unwrap();
        let token = tokens.issue(&ann, Duration::from_secs(60));
        assert_eq!(tokens.verify(&token), Some(ann.clone()));
        assert_eq!(SignedTokens::new(&Secret::random().unwrap()).verify(&token), None, "another secret");
        assert_eq!(tokens.verify(&tokens.issue(&ann, Duration::ZERO)), None, "expired");
        for at in 0..token.len() {
            let mut forged = token.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(tokens.verify(&String::from_utf8(forged).unwrap()), None, "byte {at}");
        }
        // From another implementation: Python's hmac, with these.
        let known = SignedTokens::new(&Secret([7; 32])).signature("storm-ab-1", "2000000000");
        let text = URL_SAFE_NO_PAD.encode(known.finalize().into_bytes());
        assert_eq!(text, "GJOqIfCtj-nCDLTUdiTWw0ti8WTUENWpV05gos5VDwU");
        for bad in ["", "v1", "v1...", "v1.YW5u.99999999999.", &"v1.".repeat(200)] {
            assert_eq!(tokens.verify(bad), None, "{bad:?}");
        }
    }
}
