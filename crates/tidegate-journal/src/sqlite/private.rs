//! The file is its owner's: parameters may be personal. SQLite makes the files beside it with the
//! same permissions.
//!
//! An administrator may share a file with a group, such as by 0660, and that stays so. One that
//! everybody may read was never meant to be: it is what a new file gets where nobody says anything.

use crate::JournalError;
use std::ffi::OsString;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

const OWNER_ONLY: u32 = 0o600;

/// Makes the file where there is none, and closes one that everybody may open; answers what could
/// not be closed.
pub(super) fn owner_only(path: &Path) -> Result<Vec<String>, JournalError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(OWNER_ONLY);
    options.open(path).map_err(|error| {
        JournalError::Open(format!("{}: unable to open database file: {error}", path.display()))
    })?;
    let names = ["", "-wal", "-shm"].map(|end| {
        let mut name = OsString::from(path);
        name.push(end);
        name
    });
    let mut notes = Vec::new();
    for name in names {
        // Those beside it may be gone at any moment.
        let Ok(found) = std::fs::metadata(&name) else { continue };
        if found.permissions().mode() & 0o007 == 0 {
            continue;
        }
        if let Err(error) = std::fs::set_permissions(&name, Permissions::from_mode(OWNER_ONLY)) {
            notes.push(format!("everybody may open {}: {error}; run chmod 600 on it", name.display()));
        }
    }
    Ok(notes)
}
