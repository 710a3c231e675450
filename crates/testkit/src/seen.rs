//! What a caller sees of one decision, in whole microseconds, so that a model, a
//! library and a remote store can be compared field by field.

use std::fmt;

/// How a question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Decide now, never wait.
    Check,
    /// As `Check`, but write nothing.
    Peek,
    /// May be allowed with a wait, up to the limit's longest.
    Reserve,
}

/// Why not, and when it would fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denied {
    /// The same call would be allowed after this many microseconds, if nobody else came.
    Later(u64),
    /// It depends on others, or on how cold the key is.
    Unknown,
    /// It cannot fit, however long the caller waits.
    Never,
    /// Held units need a permit, which a check does not give.
    NeedsPermit,
    /// The store has no room for one more key.
    Full,
}

/// One decision as its caller sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Allowed, now or after `wait_us`.
    pub allowed: bool,
    /// The wait of an allowed call; 0 for a denied one.
    pub wait_us: u64,
    /// Why not, for a denied call.
    pub denial: Option<Denied>,
    /// Units that could start now.
    pub remaining: u64,
    /// What `remaining` is counted against.
    pub limit: u64,
    /// Time until the key is as good as new.
    pub reset_us: u64,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.allowed, self.denial) {
            (true, None) if self.wait_us == 0 => write!(f, "allowed")?,
            (true, None) => write!(f, "allowed after {}us", self.wait_us)?,
            (false, Some(why)) if self.wait_us == 0 => write!(f, "denied {why:?}")?,
            other => write!(f, "contradictory {other:?} wait {}us", self.wait_us)?,
        }
        write!(f, " ({} of {} left, new in {}us)", self.remaining, self.limit, self.reset_us)
    }
}
