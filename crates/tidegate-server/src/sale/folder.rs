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

    /// Leaves what buyers' tokens are signed with beside the database, which owns it, for
    /// the storm and for whoever signs buyers in.
    pub(super) fn share_secret(&self, secret: &Secret) -> anyhow::Result<()> {
        let file = self.path.join("secret");
        let draft = draft(&file, &secret.to_hex()).and_then(|draft| fs::rename(draft, &file));
        draft.with_context(|| file.display().to_string())
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
    let text = make()?;
    let linked = draft(file, &text).and_then(|draft| {
        let linked = fs::hard_link(&draft, file);
        fs::remove_file(&draft).and(linked)
    });
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => read(),
    }
    .with_context(|| file.display().to_string())
}

/// Writes a file for its owner alone, beside the one that it is to become.
fn draft(file: &Path, text: &str) -> std::io::Result<PathBuf> {
    let draft = file.with_extension(std::process::id().to_string());
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    writeln!(out, "{text}")?;
    out.sync_all()?;
    Ok(draft)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_is_made_once_stays_and_is_its_owners() {
        let folder = tempfile::tempdir().unwrap();
        let sale = Folder::open(&folder.path().join("a/b")).unwrap();
        let admin = sale.admin_token().unwrap();
        assert_eq!(sale.admin_token().unwrap(), admin);
        for _ in 0..2 {
            let secret = Secret::random().unwrap();
            sale.share_secret(&secret).unwrap();
            let text = fs::read_to_string(sale.path.join("secret")).unwrap();
            assert_eq!(Secret::from_hex(&text), Some(secret));
        }
        assert_eq!(admin.len(), 32);
        for (name, mode) in [("secret", 0o600), ("admin-token", 0o600), ("", 0o700)] {
            let found = fs::metadata(sale.path.join(name)).unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode, "{name}");
        }
        assert_eq!(fs::read_dir(&sale.path).unwrap().count(), 2, "nothing else is left");
    }
}
