//! The name of a record: 32 hexadecimal digits, unguessable, and in the order of time, so
//! that new records lie next to each other in the index.

use std::fmt;
use std::str::FromStr;

/// Names one record. Whoever holds it may ask for the record's status.
///
/// ```
/// use tidegate_journal::Guid;
///
/// let guid: Guid = "0190f3a2b4c87d1e8f00112233445566".parse()?;
/// assert_eq!(guid.to_string(), "0190f3a2b4c87d1e8f00112233445566");
/// # Ok::<(), tidegate_journal::GuidError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Guid(Box<str>);

/// What was given is no guid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a guid has 1 to {MAX} bytes of text, without control characters")]
pub struct GuidError;

/// Ours have 32, other programs' often 36.
const MAX: usize = 64;

impl Guid {
    /// A new one: 48 bits of time, 74 of randomness.
    pub(crate) fn new() -> Self {
        Self(uuid::Uuid::now_v7().simple().to_string().into())
    }

    /// One that a table holds. Others may have written it, in any form.
    pub(crate) fn stored(text: String) -> Self {
        Self(text.into())
    }

    /// Its digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Guid {
    type Err = GuidError;

    /// Takes what other programs wrote into the table, too: they have names of many kinds.
    fn from_str(text: &str) -> Result<Self, GuidError> {
        if (1..=MAX).contains(&text.len()) && !text.chars().any(char::is_control) {
            Ok(Self(text.into()))
        } else {
            Err(GuidError)
        }
    }
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl serde::Serialize for Guid {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_ones_differ_fit_the_column_and_can_be_read_back() {
        let (one, other) = (Guid::new(), Guid::new());
        assert_ne!(one, other);
        assert_eq!(one.as_str().len(), 32);
        assert_eq!(one.as_str().parse(), Ok(one.clone()));
    }

    #[test]
    fn what_cannot_be_a_guid_is_refused() {
        for text in ["", "a\0b", "a\nb", "\u{1b}[31m", "\u{9b}", &"a".repeat(65), &"é".repeat(33)] {
            assert_eq!(text.parse::<Guid>(), Err(GuidError), "{text}");
        }
    }

    #[test]
    fn what_other_programs_use_is_taken() {
        for text in ["0190f3a2-b4c8-7d1e-8f00-112233445566", "no status", "order 17/é", &"a".repeat(64)] {
            assert_eq!(text.parse::<Guid>().map(|guid| guid.to_string()), Ok(text.to_owned()));
        }
    }
}
