//! A key as people and clients are shown it: what a client keeps secret by its digest.
//!
//! Values of headers and cookies are API keys and sessions as a rule, and a log, a body or
//! a screen is no place for those. The store's key stays as it is. All other parts are
//! shown: they are names, not passwords.

use super::key::{KeyExpr, Part};
use sha2::{Digest, Sha256};
use std::io::Write;

/// Hex digits of a digest: enough to tell keys apart, too few to stand for one.
const DIGITS: usize = 12;

/// True if a key of this expression has parts that are not shown.
pub(super) fn has_secrets(expr: &KeyExpr) -> bool {
    let is_secret = |part: &Part| matches!(part.said(), Part::Header(_) | Part::Cookie(_));
    expr.alternatives.iter().flatten().any(is_secret)
}

/// `header:x-api-key=#3f9a2c41d07e` for `header:x-api-key=k1`: the beginning of the
/// SHA-256 of the value, as it was sent.
pub(super) fn without_secrets(key: &[u8]) -> Vec<u8> {
    let mut shown = Vec::with_capacity(key.len());
    // No value has a `+`, so each of them separates two parts.
    for (at, part) in key.split(|byte| *byte == b'+').enumerate() {
        if at > 0 {
            shown.push(b'+');
        }
        let is_secret = part.starts_with(b"header:") || part.starts_with(b"cookie:");
        match part.iter().position(|byte| *byte == b'=').filter(|_| is_secret) {
            Some(end) => {
                shown.extend_from_slice(&part[..=end]);
                shown.push(b'#');
                digest(&part[end + 1..], &mut shown);
            }
            None => shown.extend_from_slice(part),
        }
    }
    shown
}

/// The first digits of the SHA-256 of a value that was written into a key.
fn digest(written: &[u8], to: &mut Vec<u8>) {
    let is_digest = |pair: &[u8]| pair == b"%#";
    if let Some(at) = written.windows(2).position(is_digest) {
        // It was long, and this is its digest.
        to.extend(written[at + 2..].iter().take(DIGITS));
        return;
    }
    let value = super::text::decoded(written, super::text::PartText::Path);
    for byte in &Sha256::digest(&*value)[..DIGITS / 2] {
        let _ = write!(to, "{byte:02x}");
    }
}
