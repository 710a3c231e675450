//! What can go wrong with the database, and what became of the record then.

use crate::{CallError, Guid};

/// Why a call was not recorded, or is not known to be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeferError {
    /// It could never be recorded.
    #[error(transparent)]
    Call(#[from] CallError),
    /// There is no room. Nothing was recorded.
    #[error("the journal is full: {bound}; refuse the call, or raise the bound")]
    Full {
        /// Which bound.
        bound: Bound,
    },
    /// The database did not take it. Nothing was recorded.
    #[error("nothing was recorded")]
    NotRecorded(#[source] JournalError),
    /// There is no journal: the program has set none. Nothing was recorded.
    #[error(
        "there is no journal to record it: call `Journal::set_global` first, or write `defer(journal = ...)`"
    )]
    NoJournal,
    /// Waiting on this thread would wait for ever: the server is reached through the runtime
    /// whose only thread this is. Nothing was recorded.
    #[error(
        "a runtime of one thread cannot wait for a server on that thread: make the function async, \
         or use a runtime of several threads"
    )]
    OneThread,
    /// The database fell silent while it committed: the record may exist. Repeating the call
    /// with an idempotency key ([`Call::key`](crate::Call::key)) is safe, and so is asking
    /// for the guid later.
    #[error("it is not known whether {guid} was recorded; repeat it with its idempotency key")]
    Unknown {
        /// The record's name, if it exists.
        guid: Guid,
        /// What happened.
        source: JournalError,
    },
}

/// Which bound was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bound {
    /// Pending records of one method.
    Method {
        /// Its name.
        method: String,
        /// The bound.
        max: u64,
    },
    /// Pending records in all.
    All {
        /// The bound.
        max: u64,
    },
    /// Callers of this process that wait for their commit.
    Queue {
        /// The bound.
        max: usize,
    },
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Method { method, max } => write!(f, "{max} records of `{method}` are pending"),
            Self::All { max } => write!(f, "{max} records are pending in all"),
            Self::Queue { max } => write!(f, "{max} callers wait for their commit"),
        }
    }
}

/// What the database did instead of what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// It cannot be opened as it is.
    #[error("the journal cannot be opened: {0}")]
    Open(String),
    /// What it was told is no name or no address.
    #[error("the journal cannot be opened: {0}")]
    Named(String),
    /// Somebody else holds the file's lock for longer than we wait.
    #[error("the file is locked by another process ({0}); find who holds a transaction open on it")]
    Locked(String),
    /// There is no room left on the disk.
    #[error("the disk is full ({0}); make room, and the journal goes on by itself")]
    DiskFull(String),
    /// The server cannot be reached, or does not answer in time. It is tried again by itself.
    #[error("the database does not answer: {0}")]
    Gone(String),
    /// The user may not do that.
    #[error("the database refuses: {0}; grant the role that the migration made, or run it once as owner")]
    Forbidden(String),
    /// It does not take what it was given, and never will.
    #[error("the database refuses what it was given: {0}")]
    Refused(String),
    /// Anything else that the database said.
    #[error("the database failed: {0}")]
    Failed(String),
    /// The journal was shut down, or its thread is gone.
    #[error("the journal is closed")]
    Closed,
}

impl JournalError {
    /// Worth trying again without changing anything.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Locked(_) | Self::DiskFull(_) | Self::Gone(_))
    }
}
