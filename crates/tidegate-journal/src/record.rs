//! What the journal knows of a call: its status, and how it came to it.

use crate::Guid;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// Where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Waits for its turn: `status = 0`.
    Pending,
    /// A worker has it: `status = 0` with a lease that has not ended.
    Running,
    /// `status = 1`.
    Done,
    /// Will not be tried again, and `last_error` says why: `status = 2`.
    Failed,
    /// Its deadline passed before it could start: `status = 3`.
    Expired,
    /// Somebody asked for that: `status = 4`.
    Cancelled,
    /// Any other number: another program wrote it, or a newer version. It has ended as far as this
    /// one knows: it does not run, retention removes it, and it can be tried again. -1 stands for
    /// what is no small number at all, which SQLite takes, too.
    #[serde(untagged)]
    Other(i16),
}

impl Status {
    /// The number in the table.
    pub fn code(self) -> i16 {
        match self {
            Self::Pending | Self::Running => 0,
            Self::Done => 1,
            Self::Failed => 2,
            Self::Expired => 3,
            Self::Cancelled => 4,
            Self::Other(code) => code,
        }
    }

    /// Neither pending nor running.
    pub fn has_ended(self) -> bool {
        self.code() != 0
    }

    /// What the table says.
    pub(crate) fn read(code: i16, is_leased: bool) -> Self {
        match code {
            0 if is_leased => Self::Running,
            0 => Self::Pending,
            1 => Self::Done,
            2 => Self::Failed,
            3 => Self::Expired,
            4 => Self::Cancelled,
            other => Self::Other(other),
        }
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Other(code) => return f.pad(&code.to_string()),
        })
    }
}

/// One record, whole.
#[derive(Clone)]
#[non_exhaustive]
pub struct Record {
    /// Its name.
    pub guid: Guid,
    /// The method; a table that was taken over may hold records without one.
    pub method: Option<String>,
    /// Its parameters, as JSON. Whoever shows records to people decides whether to show these.
    pub params: String,
    /// Where it stands.
    pub status: Status,
    /// How often it was started.
    pub attempts: u32,
    /// 0 to 9, the highest first.
    pub priority: u8,
    /// When it was recorded.
    pub create_time: SystemTime,
    /// When it last changed; being taken up by a worker is no change.
    pub update_time: SystemTime,
    /// When it is looked at next: its next attempt, or the end of its lease.
    pub next_time: SystemTime,
    /// By when it has to start.
    pub deadline: Option<SystemTime>,
    /// Who has it, while it runs.
    pub lease_owner: Option<String>,
    /// What makes recording it twice harmless.
    pub key: Option<String>,
    /// Why the last attempt failed, or why it ended.
    pub last_error: Option<String>,
    /// What the handler returned, as JSON.
    pub result: Option<String>,
}

/// Without parameters, key, result and error, which may be personal and must not get into a log
/// by accident.
impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("guid", &self.guid)
            .field("method", &self.method)
            .field("status", &self.status)
            .field("attempts", &self.attempts)
            .field("priority", &self.priority)
            .field("create_time", &self.create_time)
            .field("update_time", &self.update_time)
            .field("next_time", &self.next_time)
            .field("deadline", &self.deadline)
            .field("lease_owner", &self.lease_owner)
            .finish_non_exhaustive()
    }
}

/// Which records to list; everything unless said.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub(crate) status: Option<Status>,
    pub(crate) method: Option<String>,
}

impl Filter {
    /// Everything.
    pub fn all() -> Self {
        Self::default()
    }

    /// Only records that stand so.
    #[must_use]
    pub fn status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }

    /// Only records of this method.
    #[must_use]
    pub fn method(mut self, method: impl Into<String>) -> Self {
        self.method = Some(method.into());
        self
    }
}

/// A part of a list, the newest first.
#[derive(Clone, Debug)]
pub struct Page {
    pub(crate) len: u32,
    pub(crate) after: Option<Position>,
}

/// Where a page ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) create_time: SystemTime,
    pub(crate) guid: Guid,
}

impl Page {
    /// The first `len` records, 1,000 at most.
    pub fn first(len: u32) -> Self {
        Self { len: len.clamp(1, 1_000), after: None }
    }

    /// The `len` that come after this record.
    pub fn after(len: u32, record: &Record) -> Self {
        let after = Position { create_time: record.create_time, guid: record.guid.clone() };
        Self { after: Some(after), ..Self::first(len) }
    }
}

/// What came of a wish to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It had not started, and never will.
    Pending,
    /// It is cancelled, and its handler is asked to stop: at once in this process, with its
    /// next sign of life in another. What it still does is not recorded.
    Running,
    /// Too late: it stands so.
    AlreadyEnded(Status),
    /// There is no such record.
    Unknown,
}

/// What came of a wish to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retried {
    /// It is pending again, with all its attempts and without a deadline.
    Pending,
    /// Nothing to try again: it is pending, running or done.
    Refused(Status),
    /// Another record has its idempotency key by now, and is pending, running or done.
    Superseded,
    /// There is no such record.
    Unknown,
}

impl Retried {
    /// Why a record that stands so was not tried again.
    pub(crate) fn refused(status: Status) -> Self {
        match status {
            Status::Pending | Status::Running | Status::Done => Self::Refused(status),
            Status::Failed | Status::Expired | Status::Cancelled | Status::Other(_) => Self::Superseded,
        }
    }
}
