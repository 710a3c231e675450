//! The file is its owner's: parameters may be personal. SQLite makes the files beside it with the
//! same permissions.
//!
//! An administrator may share a file with a group, such as by 0660, and that stays so. One that
//! everybody may read was never meant to be: it is what a new file gets where nobody says anything.
//!
//! A file that is there is never opened here. On POSIX a process that closes a file loses all of its
//! locks on it, also those of SQLite.

use crate::JournalError;
use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

const GROUP_WRITES: u32 = 0o020;

/// Makes the file where there is none.
pub(super) fn make(path: &Path) -> Result<(), JournalError> {
    let mut options = OpenOptions::new();
    match options.write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => {
            let why = format!("{}: unable to open database file: {error}", path.display());
            Err(JournalError::Open(why))
        }
    }
}

/// Closes a file that everybody may open; answers what could not be closed. A group that may write
/// was meant to: it stays in.
pub(super) fn close_to_others(path: &Path) -> Vec<String> {
    let names = ["", "-wal", "-shm"].map(|end| {
        let mut name = OsString::from(path);
        name.push(end);
        name
    });
    let mut notes = Vec::new();
    for name in names {
        // Those beside it may be gone at any moment.
        let Ok(found) = std::fs::metadata(&name) else { continue };
        let mode = found.permissions().mode();
        if mode & 0o007 == 0 {
            continue;
        }
        let kept = mode & if mode & GROUP_WRITES == 0 { 0o700 } else { 0o770 };
        if let Err(error) = std::fs::set_permissions(&name, Permissions::from_mode(kept)) {
            let name = name.display();
            notes.push(format!("everybody may open {name}: {error}; run chmod {kept:o} on it"));
        }
    }
    notes
}
