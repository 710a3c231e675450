//! The file itself.

use super::OnFile;
use crate::embedded::Embedded;
use crate::engine::Engine;
use crate::suite::{Harness as _, buy, open, phone, sale};
use rusqlite::Connection;
use std::sync::Arc;

async fn refused(path: &std::path::Path) -> String {
    Embedded::open(path).await.err().expect("it cannot be opened").to_string()
}

#[tokio::test]
async fn two_cannot_serve_one_file() {
    let mut place = OnFile::start().await;
    let text = refused(&place.path()).await;
    assert!(text.contains("another process serves this file"), "{text}");
    place.reopen().await;
}

#[tokio::test]
async fn a_file_that_is_not_ours_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE mine (a)").unwrap();
    assert!(refused(&path).await.contains("another program's file"));
    std::fs::write(&path, "no database, but long enough to be read as one: ".repeat(100)).unwrap();
    assert!(refused(&path).await.contains("not a database"));
    let nowhere = folder.path().join("nowhere").join("sale.db");
    assert!(refused(&nowhere).await.contains("sale.db"));
    let newer = folder.path().join("newer.db");
    Connection::open(&newer).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    assert!(refused(&newer).await.contains("use a newer program"));
}

#[cfg(unix)]
#[tokio::test]
async fn only_its_owner_reads_the_file_and_the_secret_is_kept() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut place = OnFile::start().await;
    open(&*place.engine(), sale(10)).await;
    for entry in std::fs::read_dir(place.folder.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", entry.path().display());
    }
    let secret = place.engine.secret().clone();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    place.reopen().await;
    assert!(*place.engine.secret() == secret);
    let mode = std::fs::metadata(place.path()).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "an open file is closed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_is_only_dropped_lets_go_of_its_file() {
    let OnFile { folder, engine } = OnFile::start().await;
    open(&*engine, sale(10)).await;
    buy(&*engine, "ann", 1).await;
    drop(engine);
    let again: Arc<dyn Engine> = Arc::new(Embedded::open(&folder.path().join("sale.db")).await.unwrap());
    assert_eq!(again.known(&phone()).unwrap().left, Some(9));
}
