//! The bytes of a key, on the stack as long as they are few.

use std::fmt;
use std::ops::Deref;

/// Bytes that need no allocation.
const SHORT_MAX: usize = 96;

/// The bytes of a key.
///
/// Not a `SmallVec`: what makes one general (any place, any length, what is there not even
/// initialized) takes as many instructions as writing the key of a client.
pub(crate) struct KeyBytes {
    short: [u8; SHORT_MAX],
    length: usize,
    /// All of them, if they are more.
    long: Vec<u8>,
}

impl KeyBytes {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { short: [0; SHORT_MAX], length: 0, long: Vec::new() }
    }

    pub(crate) fn from_slice(bytes: &[u8]) -> Self {
        let mut key = Self::new();
        key.extend_from_slice(bytes);
        key
    }

    #[inline]
    pub(crate) fn extend_from_slice(&mut self, bytes: &[u8]) {
        match self.short.get_mut(self.length..self.length + bytes.len()) {
            Some(room) if self.long.is_empty() => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            _ => self.extend_long(bytes),
        }
    }

    #[cold]
    fn extend_long(&mut self, bytes: &[u8]) {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short[..self.length]);
        }
        self.long.extend_from_slice(bytes);
        self.length = self.long.len();
    }

    #[inline]
    pub(crate) fn push(&mut self, byte: u8) {
        self.extend_from_slice(&[byte]);
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.length = 0;
        self.long.clear();
    }
}

impl Default for KeyBytes {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for KeyBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.short.get(..self.length).filter(|_| self.long.is_empty()).unwrap_or(&self.long)
    }
}

impl AsRef<[u8]> for KeyBytes {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Write for KeyBytes {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_what_was_put_in_wherever_they_are() {
        for piece in [1, 3, 7, 24, 95, 96, 97, 200] {
            let (mut key, mut all) = (KeyBytes::new(), Vec::new());
            for nth in 0..40_u8 {
                let bytes = vec![nth; piece];
                key.extend_from_slice(&bytes);
                key.push(b'+');
                all.extend_from_slice(&bytes);
                all.push(b'+');
                assert_eq!(*key, *all);
            }
            key.clear();
            assert!(key.is_empty());
            key.extend_from_slice(b"again");
            assert_eq!(*key, *b"again");
        }
    }
}
