//! Opening the file: one process at a time, for its owner's eyes only.

use super::migrate::migrate;
use crate::secret::Secret;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use std::ffi::OsString;
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a lock is asked for, and how long: whoever served before may just be ending.
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

/// A file that cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct SaleOpenError {
    /// Which file.
    pub path: PathBuf,
    /// Why not, and what to do.
    pub what: String,
}

/// An open file.
pub(super) struct Opened {
    pub(super) path: PathBuf,
    pub(super) conn: Connection,
    pub(super) lock: File,
    pub(super) secret: Secret,
}

impl Opened {
    /// Takes the lock, makes the tables and the secret if they are not there.
    pub(super) async fn new(path: &Path) -> Result<Self, SaleOpenError> {
        let error = |what: String| SaleOpenError { path: path.to_owned(), what };
        let lock = lock(path).await.map_err(error)?;
        let path = path.to_owned();
        let at = path.clone();
        let opened = tokio::task::spawn_blocking(move || {
            owner_only(&at)?;
            let conn = connect(&at)?;
            migrate(&conn)?;
            let secret = secret(&conn)?;
            Ok((conn, secret))
        });
        let opened: Result<_, String> = opened.await.map_err(|panic| error(panic.to_string()))?;
        let (conn, secret) = opened.map_err(error)?;
        Ok(Self { path, conn, lock, secret })
    }
}

/// In a file beside it: SQLite's own locks are lost where the file is opened and closed again.
async fn lock(path: &Path) -> Result<File, String> {
    let mut name = OsString::from(path);
    name.push(".lock");
    let cannot = |error: std::io::Error| format!("its lock {} cannot be made: {error}", name.display());
    let file = private().open(&name).map_err(cannot)?;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(PAUSE).await,
            Err(TryLockError::Error(error)) => return Err(cannot(error)),
        }
    }
    Err("another process serves this file; stop it first, or name another file".into())
}

/// How the files are made: nobody but their owner reads them.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// SQLite makes the files beside it with the same permissions.
fn owner_only(path: &Path) -> Result<(), String> {
    let file = private().open(path).map_err(|error| error.to_string())?;
    #[cfg(unix)]
    {
        let only = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        file.set_permissions(only)
            .map_err(|error| format!("it holds a secret, and stays open to others: {error}"))?;
    }
    drop(file);
    Ok(())
}

pub(super) fn connect(path: &Path) -> Result<Connection, String> {
    let text = |error: rusqlite::Error| error.to_string();
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(text)?;
    conn.busy_timeout(Duration::from_secs(5)).map_err(text)?;
    conn.set_prepared_statement_cache_capacity(64);
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(text)?;
    if mode != "wal" {
        return Err(format!("no WAL here ({mode} instead); use a file on a local disk"));
    }
    // What was answered survives a power cut.
    conn.execute_batch("PRAGMA synchronous = FULL").map_err(text)?;
    Ok(conn)
}

/// Made once, kept in the file: paths and tokens stay good over a restart.
fn secret(conn: &Connection) -> Result<Secret, String> {
    let text = |error: rusqlite::Error| error.to_string();
    let found = "SELECT value FROM sale_settings WHERE name = 'secret'";
    let found: Option<String> = conn.query_row(found, [], |row| row.get(0)).optional().map_err(text)?;
    if let Some(found) = found {
        return Secret::from_hex(&found).ok_or_else(|| "its secret is no 64 hexadecimal digits".into());
    }
    let secret = Secret::random().map_err(|error| format!("no randomness for a secret: {error}"))?;
    let insert = "INSERT INTO sale_settings VALUES ('secret', ?1)";
    conn.execute(insert, [secret.to_hex()]).map_err(text)?;
    Ok(secret)
}
