//! What went wrong while writing, and whose fault it is.

use crate::engine;
use crate::goods::GoodsId;
use rusqlite::ErrorCode;
use std::sync::Arc;

/// Whose fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The file's: full, locked, not writable. Nothing was written; later it may go.
    File,
    /// That of one of those in the transaction. Alone, the others go.
    One,
    /// Someone else changed the stock of these goods.
    Moved(GoodsId),
    /// Nobody's that is known: it may have been written all the same.
    Unknown,
    /// The engine has stopped.
    Stopped,
}

#[derive(Clone, Debug)]
pub(super) struct WriteFault {
    pub(super) kind: Kind,
    pub(super) what: Arc<str>,
}

impl WriteFault {
    pub(super) fn stopped() -> Self {
        Self { kind: Kind::Stopped, what: "the sale is stopping".into() }
    }

    pub(super) fn moved(goods: &GoodsId) -> Self {
        let what = "the stock in the file is not what this process left there: somebody else writes to it; \
                    stop that, then `resume`";
        Self { kind: Kind::Moved(goods.clone()), what: what.into() }
    }

    /// Of a commit: a failed write of the log may still have reached the disk, and memory may
    /// run short after that write.
    pub(super) fn of_commit(error: &rusqlite::Error) -> Self {
        let fault = Self::from(error);
        match error.sqlite_error_code() {
            Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => {
                Self { kind: Kind::Unknown, ..fault }
            }
            _ => fault,
        }
    }

    /// Why a sale is held after a commit whose outcome is unknown.
    pub(super) fn unknown(&self) -> String {
        format!("the file may not have taken what was written: {}; `resume` reads it again", self.what)
    }

    /// True if the others in the transaction may be tried without it.
    pub(super) fn is_of_one(&self) -> bool {
        matches!(self.kind, Kind::One | Kind::Moved(_))
    }
}

impl From<&rusqlite::Error> for WriteFault {
    fn from(error: &rusqlite::Error) -> Self {
        use ErrorCode as Code;
        let kind = match error.sqlite_error_code() {
            Some(
                Code::DatabaseBusy
                | Code::DatabaseLocked
                | Code::DiskFull
                | Code::SystemIoFailure
                | Code::ReadOnly
                | Code::PermissionDenied
                | Code::OutOfMemory
                | Code::CannotOpen
                | Code::NotADatabase
                | Code::DatabaseCorrupt
                | Code::FileLockingProtocolFailed,
            ) => Kind::File,
            _ => Kind::One,
        };
        Self { kind, what: error.to_string().into() }
    }
}

impl From<rusqlite::Error> for WriteFault {
    fn from(error: rusqlite::Error) -> Self {
        Self::from(&error)
    }
}

impl From<WriteFault> for engine::Fault {
    fn from(fault: WriteFault) -> Self {
        Self { what: fault.what.as_ref().into() }
    }
}
