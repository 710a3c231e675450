//! A server: asked, killed, started again, and gone with its folder.

use super::{SOON, is_gone};
use std::path::PathBuf;
use testkit::servers::{PostgresServer, wait_until};

#[test]
fn a_server_keeps_what_it_committed_through_a_kill_and_leaves_nothing_behind() {
    let server = PostgresServer::with(&["deadlock_timeout=50ms"]);
    let (url, other) = (server.database(), server.database());
    assert_ne!(url, other);
    server.sql_in(&url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)");
    assert_eq!(server.sql_in(&url, "SELECT n, 'a' FROM kept"), "7|a");
    assert!(server.try_sql_in(&other, "SELECT n FROM kept").unwrap_err().contains("does not exist"));
    assert_eq!(server.sql("SHOW deadlock_timeout") + &server.sql("SHOW fsync"), "50mson");
    let first = server.pid().unwrap();
    server.restart();
    assert!(is_gone(first));
    assert_eq!(server.sql_in(&url, "SELECT n FROM kept"), "7");
    server.stop();
    assert!(server.try_sql_in(&url, "SELECT 1").is_err());
    server.restart();
    let (pid, folder) = (server.pid().unwrap(), PathBuf::from(server.sql("SHOW data_directory")));
    drop(server);
    wait_until("the server and its folder are gone", SOON, || is_gone(pid) && !folder.exists());
}
