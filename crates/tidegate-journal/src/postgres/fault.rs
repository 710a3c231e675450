//! What PostgreSQL's errors mean to us, and which of them pass by themselves.

use crate::JournalError;
use std::error::Error as _;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// An error, and whether what was asked may have happened all the same.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) error: JournalError,
    pub(super) is_unknown: bool,
}

pub(super) fn fault_of(error: &Error) -> Fault {
    let Some(state) = error.code() else {
        // The connection broke: before the server saw the statement, or after it committed.
        let gone =
            error.is_closed() || error.source().is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
        let text = told(error);
        let error = if gone { JournalError::Gone(text) } else { JournalError::Failed(text) };
        return Fault { error, is_unknown: gone };
    };
    let text = told(error);
    let class = &state.code()[..2];
    let error = match class {
        "42" if *state == SqlState::INSUFFICIENT_PRIVILEGE => JournalError::Forbidden(text),
        "28" => JournalError::Forbidden(text),
        "53" if *state == SqlState::DISK_FULL => JournalError::DiskFull(text),
        "22" | "54" | "P0" => JournalError::Refused(text),
        // Two records took one key at the same moment: the next look sees which has it.
        "23" if *state == SqlState::UNIQUE_VIOLATION => JournalError::Gone(text),
        "23" => JournalError::Refused(text),
        // Broken connections, too many of them, a server that starts, stops or fails over;
        // deadlocks and conflicts, which are rolled back.
        "08" | "53" | "57" | "40" | "25" => JournalError::Gone(text),
        _ => JournalError::Failed(text),
    };
    // A server that is shut down ends statements before their commit, but may tell only after.
    let is_unknown = matches!(class, "08" | "57") && *state != SqlState::CANNOT_CONNECT_NOW;
    Fault { error, is_unknown }
}

/// The server's message with its code, or what broke.
fn told(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(db), _) => format!("{} (SQLSTATE {})", db.message(), db.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}
