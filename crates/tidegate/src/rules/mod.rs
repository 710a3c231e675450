//! Rules: which requests are limited, by which limits and under which key. They know no protocol.
//!
//! A front end hands over the [`Facts`] of a request and gets a [`Ruling`]: each rule's
//! [`Record`], which one binds, how long the request has waited, and the permits to hold. So a
//! front end is two functions: one that reads facts, one that renders a ruling. `http` is one.

pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod facts;
pub(crate) mod rule;

pub(crate) mod compile;
pub(crate) mod index;
pub(crate) mod key;
pub(crate) mod list;
pub(crate) mod network;
pub(crate) mod quota;
pub(crate) mod route;
pub(crate) mod rule_set;
pub(crate) mod text;
pub(crate) mod validate;

#[cfg(feature = "serde")]
pub(crate) mod file;

pub(crate) mod apply;
pub(crate) mod decide;
pub(crate) mod fast_path;
pub(crate) mod ruling;

pub(crate) mod matched;
pub(crate) mod observe;
pub(crate) mod record;

pub use decide::Charges;
pub use engine::{Rules, RulesBuilder};
pub use error::RulesError;
pub use facts::{Fact, FactValue, Facts};
#[cfg(feature = "serde")]
pub use file::error::RuleFileError;
#[cfg(feature = "serde")]
pub use file::{RuleFile, RuleFileData};
pub use key::secret::stored_key;
pub use key::{KeyError, KeyExpr};
pub use matched::{RuleStats, RulesStats};
pub use network::NetworkError;
pub use observe::Observer;
pub use quota::Quota;
pub use record::{Outcome, Record};
pub use route::path::RequestPath;
pub use rule::{Missing, Rule};
pub use ruling::Ruling;
