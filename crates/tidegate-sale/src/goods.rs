//! What is sold, and who buys.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes of an id.
const ID_MAX: usize = 64;

/// A text that is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an id is 1 to 64 letters, digits or any of `._-`; write for example `phone-15`")]
pub struct IdError;

/// Checked once: nothing in it has a meaning in a key, a query, an address or a log line.
fn check(text: &str) -> Result<Arc<str>, IdError> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if text.is_empty() || text.len() > ID_MAX || !text.bytes().all(is_part) {
        return Err(IdError);
    }
    Ok(text.into())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                check(text).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0.as_ref().into()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id! {
    /// One kind of goods in one sale.
    GoodsId
}

id! {
    /// A buyer, as the authenticator knows them; never from an open parameter.
    UserId
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_short_and_plain() {
        for good in ["1001", "phone-15", "a.b_c", &"x".repeat(64)] {
            assert_eq!(good.parse::<GoodsId>().unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a/b", "a{b}", "ä", "a\0", "a\n", "a:b", &"x".repeat(65)] {
            assert_eq!(bad.parse::<UserId>(), Err(IdError), "{bad:?}");
        }
    }
}
