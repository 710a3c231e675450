//! What SQLite's errors mean to us.

use crate::JournalError;
use rusqlite::ErrorCode;

/// An error, and whether the transaction may have been committed all the same.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) error: JournalError,
    pub(super) is_unknown: bool,
}

impl Fault {
    pub(super) fn closed() -> Self {
        Self { error: JournalError::Closed, is_unknown: false }
    }
}

pub(super) fn fault_of(error: &rusqlite::Error, is_commit: bool) -> Fault {
    let is_unknown = is_commit && error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure);
    Fault { error: meaning(error), is_unknown }
}

pub(super) fn meaning(error: &rusqlite::Error) -> JournalError {
    let text = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => JournalError::Locked(text),
        Some(ErrorCode::DiskFull) => JournalError::DiskFull(text),
        Some(ErrorCode::NotADatabase | ErrorCode::CannotOpen) => JournalError::Open(text),
        Some(
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied,
        ) => JournalError::Forbidden(text),
        Some(ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
            JournalError::Refused(text)
        }
        _ => JournalError::Failed(text),
    }
}
