//! The folder of a sale: its database, and what only its owner may read.

use anyhow::Context as _;
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use tidegate_sale::Secret;

pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes it if it is not there, for its owner alone.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.with_context(|| format!("the folder {}", path.display()))?;
        Ok(Self { path: path.into() })
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join("sale.db")
    }

    pub(super) fn admin_file(&self) -> PathBuf {
        self.path.join("admin-token")
    }

    /// What paths and buyers' tokens are signed with; made once.
    pub(super) fn secret(&self) -> anyhow::Result<Secret> {
        let file = self.path.join("secret");
        let text = kept(&file, || Ok(Secret::random()?.to_hex()))?;
        Secret::from_hex(&text).with_context(|| {
            format!("{} is no secret: it has 64 hexadecimal digits. Removed, a new one is made", file.display())
        })
    }

    /// What operators sign in with; made once.
    pub(super) fn admin_token(&self) -> anyhow::Result<String> {
        kept(&self.admin_file(), || Ok(Secret::random()?.to_hex()[..32].to_owned()))
    }
}

/// What stands in a file, which is made for its owner alone if it is not there. Of two
/// processes that make it at once, both read the same in the end.
fn kept(file: &Path, make: impl FnOnce() -> anyhow::Result<String>) -> anyhow::Result<String> {
    let read = || fs::read_to_string(file).map(|text| text.trim().to_owned());
    match read() {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        read => return read.with_context(|| file.display().to_string()),
    }
    // Whole or not at all: written beside it, then linked under its name.
    let draft = file.with_extension(format!("{}", std::process::id()));
    let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft).and_then(
        |mut out| {
            let text = make().map_err(std::io::Error::other)?;
            writeln!(out, "{text}").and_then(|()| out.sync_all())
        },
    );
    let linked = written.and_then(|()| fs::hard_link(&draft, file));
    let _ = fs::remove_file(&draft);
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => read(),
    }
    .with_context(|| file.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_is_made_once_stays_and_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let sale = Folder::open(&folder.path().join("a/b")).unwrap();
        let (secret, admin) = (sale.secret().unwrap(), sale.admin_token().unwrap());
        assert_eq!((sale.secret().unwrap(), sale.admin_token().unwrap()), (secret, admin.clone()));
        assert_eq!(admin.len(), 32);
        for (name, mode) in [("secret", 0o600), ("admin-token", 0o600), ("", 0o700)] {
            let found = fs::metadata(sale.path.join(name)).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "{name}");
        }
        assert_eq!(fs::read_dir(&sale.path).unwrap().count(), 2, "nothing else is left");
    }

    #[test]
    fn a_broken_secret_is_told_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let sale = Folder::open(folder.path()).unwrap();
        fs::write(folder.path().join("secret"), "short").unwrap();
        assert!(sale.secret().unwrap_err().to_string().contains("64 hexadecimal digits"));
        assert_eq!(fs::read_to_string(folder.path().join("secret")).unwrap(), "short");
    }
}
