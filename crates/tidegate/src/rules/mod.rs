//! Rules: which requests meet which limits under which key.

pub(crate) mod error;
#[allow(dead_code, reason = "the rule set is moved onto it next")]
pub(crate) mod index;
pub(crate) mod rule;
pub(crate) mod rule_set;

pub(crate) mod key;
pub(crate) mod list;
pub(crate) mod network;
pub(crate) mod route;
pub(crate) mod validate;

#[cfg(feature = "serde")]
pub(crate) mod file;

pub(crate) mod decide;
pub(crate) mod judge;
pub(crate) mod pending;

pub(crate) mod matched;
pub(crate) mod observe;
pub(crate) mod record;

pub use error::GuardError;
#[cfg(feature = "serde")]
pub use file::error::RuleFileError;
#[cfg(feature = "serde")]
pub use file::{RuleFile, RuleFileData};
pub use key::secret::stored_key;
pub use key::{KeyError, KeyExpr};
pub use matched::{GuardStats, RuleStats};
pub use network::NetworkError;
pub use observe::Observer;
pub use record::{Outcome, Record};
pub use rule::{Missing, Rule};
