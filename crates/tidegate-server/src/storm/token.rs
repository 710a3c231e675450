//! Tokens for the crowd, signed as the sale's own.

use crate::exit::Usage;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Environment variable with the sale's secret.
pub(super) const VARIABLE: &str = "TIDEGATE_SALE_SECRET";
/// The file in the sale's folder that holds it.
const FILE: &str = "secret";
/// What keeps a user's token from being taken for something else that the secret signs.
const USER: &[u8] = b"tidegate user v1\0";

/// Signs in one user after the other.
pub(super) struct Tokens {
    /// Has read the secret and the tag already.
    mac: Hmac<Sha256>,
    expiry: String,
}

impl Tokens {
    /// Tokens of the sale with this secret, good for this long from now on.
    pub(super) fn new(secret: &[u8; 32], good_for: Duration) -> Self {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length will do");
        mac.update(USER);
        let expires = now().duration_since(UNIX_EPOCH).unwrap_or_default().saturating_add(good_for);
        Self { mac, expiry: expires.as_secs().to_string() }
    }

    /// Writes the token of this user: `v1.<user>.<expiry>.<signature>`.
    pub(super) fn write(&self, user: &str, out: &mut Vec<u8>) {
        let mut mac = self.mac.clone();
        for part in [user.as_bytes(), b"\0", self.expiry.as_bytes()] {
            mac.update(part);
        }
        out.extend_from_slice(b"v1.");
        base64url(user.as_bytes(), out);
        out.push(b'.');
        out.extend_from_slice(self.expiry.as_bytes());
        out.push(b'.');
        base64url(&mac.finalize().into_bytes(), out);
    }
}

/// At most 64 bytes.
fn base64url(bytes: &[u8], out: &mut Vec<u8>) {
    let mut text = [0; 88];
    if let Ok(len) = URL_SAFE_NO_PAD.encode_slice(bytes, &mut text) {
        out.extend_from_slice(&text[..len]);
    }
}

#[expect(clippy::disallowed_methods, reason = "tokens expire by the calendar")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// The secret, as it was given, or else as the sale on this machine has left it in its folder.
pub(super) fn secret(given: Option<&str>, folder: &Path) -> Result<[u8; 32], Usage> {
    if let Some(text) = given {
        return from_hex(text)
            .ok_or_else(|| Usage(format!("--secret, or {VARIABLE}: a secret is 64 hexadecimal digits")));
    }
    let file = folder.join(FILE);
    let text = std::fs::read_to_string(&file).map_err(|error| {
        let file = file.display();
        Usage(format!(
            "the sale's secret, with which buyers are signed in, is not in {file} ({error}): \
            start `tidegate sale` there, name its folder with --data, or give the secret in {VARIABLE}"
        ))
    })?;
    from_hex(&text)
        .ok_or_else(|| Usage(format!("{} is no secret: it has 64 hexadecimal digits", file.display())))
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.trim().as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 64 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_what_the_sale_reads() {
        // From another implementation: Python's hmac, with these three.
        let tokens = Tokens { expiry: "2000000000".to_owned(), ..Tokens::new(&[7; 32], Duration::ZERO) };
        let mut token = Vec::new();
        tokens.write("storm-ab-1", &mut token);
        let expected = "v1.c3Rvcm0tYWItMQ.2000000000.GJOqIfCtj-nCDLTUdiTWw0ti8WTUENWpV05gos5VDwU";
        assert_eq!(String::from_utf8(token).unwrap(), expected);
    }

    #[test]
    fn a_secret_comes_from_the_option_or_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let hex = "0123456789abcdefABCDEF000000000000000000000000000000000000000000";
        let missing = secret(None, folder.path()).unwrap_err().0;
        assert!(missing.contains("--data") && missing.contains(VARIABLE), "{missing}");
        std::fs::write(folder.path().join("secret"), format!("{hex}\n")).unwrap();
        let read = secret(None, folder.path()).unwrap();
        assert_eq!((read[0], read[1], read[8], read[31]), (0x01, 0x23, 0xab, 0));
        assert_eq!(secret(Some(hex), Path::new("/nowhere")).unwrap(), read);
        for bad in ["", "abc", &hex[1..], &"+1".repeat(32), &"é".repeat(32)] {
            assert!(secret(Some(bad), folder.path()).is_err(), "{bad}");
        }
    }
}
