//! The names of keys in Redis, as an operator sees them: `prefix:1:gate:{subject}`.
//!
//! The subject is the hash tag, so that all limits of one subject live in one slot of
//! a Cluster. One that is long, empty, or could be taken for something else stands as
//! its beginning and a digest. The `1` is the version of the state's format: releases
//! that write another one never read this.

use sha2::{Digest, Sha256};
use std::borrow::Cow;

const FORMAT: &str = "1";
/// The hash tag of the set of nodes.
pub(crate) const NODES: &str = "nodes";
/// Longer subjects are digested.
const LONGEST: usize = 96;
/// Characters of a digested subject that stay readable.
const READABLE: usize = 24;
const DIGEST_BYTES: usize = 16;

/// The subject as it stands in a key's name.
pub(crate) fn subject(key: &[u8]) -> Cow<'_, [u8]> {
    if is_plain(key) {
        return Cow::Borrowed(key);
    }
    let is_readable = |byte: &u8| byte.is_ascii_graphic() && !b"{}#".contains(byte);
    let mut readable: Vec<u8> = key.iter().copied().take_while(is_readable).take(READABLE).collect();
    readable.push(b'#');
    for byte in Sha256::digest(key).iter().take(DIGEST_BYTES) {
        readable.extend_from_slice(format!("{byte:02x}").as_bytes());
    }
    Cow::Owned(readable)
}

/// Safe to read in a terminal, to print in a log, and to hash as a tag.
fn is_plain(key: &[u8]) -> bool {
    let is_plain = |c: char| !c.is_control() && !c.is_whitespace() && c != '{' && c != '}';
    let is_text = || std::str::from_utf8(key).is_ok_and(|text| text.chars().all(is_plain));
    !key.is_empty() && key.len() <= LONGEST && !is_digest(key) && is_text()
}

/// Ends as a digested subject does.
fn is_digest(key: &[u8]) -> bool {
    let Some(at) = key.len().checked_sub(1 + 2 * DIGEST_BYTES) else { return false };
    key[at] == b'#' && key[at + 1..].iter().all(u8::is_ascii_hexdigit)
}

/// The name of a key, followed by `part` for the sets that belong to a key of slots.
pub(crate) fn name(prefix: &str, gate: &str, subject: &[u8], part: &str) -> Vec<u8> {
    let (prefix, format, gate, part) =
        (prefix.as_bytes(), FORMAT.as_bytes(), gate.as_bytes(), part.as_bytes());
    [prefix, b":", format, b":", gate, b":{", subject, b"}", part].concat()
}

/// The set of nodes that are alive.
pub(crate) fn nodes(prefix: &str) -> Vec<u8> {
    format!("{prefix}:{FORMAT}:{{{NODES}}}").into_bytes()
}

/// The hash slot of a key: its subject is the hash tag.
pub(crate) fn hash_slot(key: &[u8]) -> u16 {
    hash_slot_of_tag(&subject(key))
}

/// CRC16 (XMODEM) modulo 16,384.
fn hash_slot_of_tag(tag: &[u8]) -> u16 {
    let step = |crc: u16, byte: &u8| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    };
    tag.iter().fold(0, step) % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name_of(key: &[u8]) -> String {
        String::from_utf8(name("tg", "checkout", &subject(key), "")).unwrap()
    }

    #[test]
    fn plain_subjects_are_read_as_they_are() {
        assert_eq!(name_of(b"user:42"), "tg:1:checkout:{user:42}");
        assert_eq!(name_of("张三".as_bytes()), "tg:1:checkout:{张三}");
        assert_eq!(name_of(b"a#b"), "tg:1:checkout:{a#b}");
    }

    #[test]
    fn hostile_and_long_subjects_are_digested_and_stay_apart() {
        let long = [b'x'; 5_000];
        let digest_of_x = subject(b"x\n").into_owned();
        let hostile: [&[u8]; 9] =
            [b"", b"\0", b"a b", b"a\r\nSET x", b"{tag}", b"}", b"\xff\xfe", &long, &digest_of_x];
        let mut names: Vec<String> = hostile.iter().map(|key| name_of(key)).collect();
        for name in &names {
            assert!(name.len() < 100 && name.chars().all(|c| c.is_ascii_graphic()), "{name}");
            assert_eq!((name.matches('{').count(), name.matches('}').count()), (1, 1), "{name}");
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), hostile.len());
    }

    #[test]
    fn hash_slots_are_those_of_redis() {
        // CRC16 of the same by another implementation, modulo 16,384.
        for (tag, expected) in [("123456789", 12_739), ("foo", 12_182), ("user:42", 15880), ("", 0)] {
            assert_eq!(hash_slot_of_tag(tag.as_bytes()), expected, "{tag}");
        }
    }
}
