//! Why a gate cannot be defined or changed.

use crate::{Limit, LimitError};

/// Why a gate cannot be defined or changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// A check cannot bring this limit along: slots are held by the gate's own.
    #[error(
        "a check at gate `{name}` cannot be decided by `{limit}` instead of `{now}`: slots are held by the \
         gate's own limit; define a second gate"
    )]
    CheckLimit {
        /// The name.
        name: String,
        /// The limit in force.
        now: Box<Limit>,
        /// The limit of the check.
        limit: Box<Limit>,
    },
    /// Nothing can be taken ahead of such a limit.
    #[error(
        "gate `{name}` cannot be leased: `{limit}` promises its own pace, and nothing can be taken ahead of it"
    )]
    Lease {
        /// The name.
        name: String,
        /// The limit that was to be.
        limit: Box<Limit>,
    },
    /// Redis would have to read too long a list in one call.
    #[error(
        "gate `{name}` cannot be kept in Redis: `{limit}` has up to {entries} entries a key, at most {most} \
         are read there in time; write {instead}"
    )]
    Long {
        /// The name.
        name: String,
        /// The limit that was to be.
        limit: Box<Limit>,
        /// Entries that a key can have under it.
        entries: u64,
        /// Entries that a key may have.
        most: u64,
        /// What to write instead.
        instead: String,
    },
    /// The text is not a limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The name has a form that no gate can have.
    #[error("`{0}` is not a name of a gate: {rule}", rule = tidegate_limit::NAME_RULE)]
    Name(String),
    /// The name is defined with another limit already.
    #[error("gate `{name}` is in force as `{now}`: call `change` on it to make it `{limit}`")]
    Defined {
        /// The name.
        name: String,
        /// The limit in force.
        now: Box<Limit>,
        /// The limit that was to be.
        limit: Box<Limit>,
    },
    /// A concurrency limit and a rate cannot replace each other.
    #[error("gate `{name}` cannot change from `{now}` to `{limit}`: define a second gate and check both")]
    OtherKind {
        /// The name.
        name: String,
        /// The limit in force.
        now: Box<Limit>,
        /// The limit that was to be.
        limit: Box<Limit>,
    },
}
