//! Who may open the file of a journal on SQLite: parameters may be personal.

use crate::place::{Place, call};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use tidegate_journal::Journal;

/// The permissions of the file and of those beside it, by name.
fn modes(place: &Place) -> Vec<(String, u32)> {
    let folder = place.path().parent().unwrap().read_dir().unwrap();
    let mode = |entry: std::fs::DirEntry| {
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        (entry.file_name().into_string().unwrap(), mode)
    };
    let mut all: Vec<_> = folder.map(|entry| mode(entry.unwrap())).collect();
    all.sort();
    all
}

fn all(mode: u32) -> Vec<(String, u32)> {
    ["journal.db", "journal.db-shm", "journal.db-wal"].map(|name| (name.to_owned(), mode)).into()
}

fn chmod(place: &Place, mode: u32) {
    for (name, _) in modes(place) {
        let path = place.path().with_file_name(name);
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn a_file_that_everybody_may_open_is_closed_to_all_but_its_owner() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let journal = place.journal().await;
        journal.defer(call("ship", 1)).await.unwrap();
        assert_eq!(modes(place), all(0o600), "as it is made");
        // As an older release left it, which still runs.
        chmod(place, 0o644);
        place.open(Journal::builder().must_exist()).await.unwrap();
        assert_eq!(modes(place), all(0o644), "who only looks changes nothing");
        let again = place.journal().await;
        assert_eq!(modes(place), all(0o600));
        assert_eq!(again.notes(), [""; 0]);
    });
}

#[test]
fn a_file_that_is_shared_with_a_group_stays_so() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        std::fs::write(place.path(), "").unwrap();
        chmod(place, 0o660);
        let journal = place.journal().await;
        journal.defer(call("ship", 1)).await.unwrap();
        assert_eq!(modes(place), all(0o660));
    });
}
