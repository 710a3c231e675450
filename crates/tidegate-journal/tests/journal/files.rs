//! The file of a journal on SQLite: who may open it, as parameters may be personal, and that opening it
//! takes nothing from those who have it open.

use crate::place::{Place, call};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use tidegate_journal::{Journal, JournalError};

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
        // As umask 002 makes files.
        chmod(place, 0o664);
        place.journal().await;
        assert_eq!(modes(place), all(0o660), "only what others may do is taken away");
    });
}

#[test]
fn a_file_that_is_no_database_keeps_its_permissions() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        std::fs::write(place.path(), "a letter to all, ".repeat(100)).unwrap();
        chmod(place, 0o644);
        let error = place.open(Journal::builder()).await.unwrap_err();
        assert!(matches!(error, JournalError::Open(_)), "{error:?}");
        assert_eq!(modes(place), [("journal.db".to_owned(), 0o644)]);
    });
}

/// On POSIX a process that closes a file loses all of its locks on it, also those that SQLite took
/// through another handle. Other processes may then take the file for theirs alone. An older SQLite
/// does so as it closes it, and removes the log that the others go on writing to.
#[test]
fn a_second_open_in_a_process_does_not_lose_the_locks_of_the_first() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let first = place.journal().await;
        first.defer(call("ship", 1)).await.unwrap();
        let second = place.journal().await;
        let taken = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "files::takes_a_file_for_itself_alone_in_vain", "--ignored", "--nocapture"])
            .env("TIDEGATE_JOURNAL", place.address())
            .stdout(Stdio::null())
            .status();
        assert!(taken.unwrap().success(), "others find it free");
        assert_eq!(modes(place), all(0o600), "the log is still there");
        second.defer(call("ship", 2)).await.unwrap();
        drop((first, second));
        assert_eq!(place.count("status = 0"), 2);
    });
}

#[test]
#[ignore = "a child of another test"]
fn takes_a_file_for_itself_alone_in_vain() {
    let Ok(path) = std::env::var("TIDEGATE_JOURNAL") else { return };
    let conn = rusqlite::Connection::open(path).unwrap();
    conn.busy_timeout(std::time::Duration::ZERO).unwrap();
    // By the locks of the file itself: those of the file beside it are not asked then.
    conn.pragma_update(None, "locking_mode", "EXCLUSIVE").unwrap();
    let taken = conn.query_row("SELECT count(*) FROM t_method_limit_log", [], |row| row.get::<_, i64>(0));
    assert_eq!(taken.unwrap_err().to_string(), "database is locked");
}
