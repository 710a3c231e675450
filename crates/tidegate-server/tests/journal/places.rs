//! Which journal is meant; and journals that are not there, or do not answer.

use crate::place::{PATIENCE, Place, Told, call, end, server, tidegate};
use std::net::TcpListener;
use std::process::Stdio;
use testkit::servers::FaultProxy;

const GUID: &str = "0190f3a2b4c87d1e8f00112233445566";

/// Every command, each complete.
const COMMANDS: [&[&str]; 7] = [
    &["list"],
    &["list", "--json", "--after", GUID],
    &["show", GUID],
    &["retry", GUID],
    &["cancel", GUID],
    &["purge"],
    &["run-once", "--exec", "ship=true"],
];

#[test]
fn a_file_that_is_not_there_is_told_and_not_made() {
    let folder = tempfile::tempdir().unwrap();
    for command in COMMANDS {
        for option in [&[][..], &["--sqlite", "other.db"]] {
            let args = [command, option].concat();
            let told = Told::of(tidegate(&args).current_dir(folder.path()).output().unwrap());
            let name = if option.is_empty() { "tidegate.db" } else { "other.db" };
            assert_eq!((told.code, told.out.as_str()), (1, ""), "{args:?}");
            assert!(told.err.contains(&format!("there is no file {name}; say which with")), "{told:?}");
        }
    }
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "nothing was made");
}

#[test]
fn what_is_no_journal_is_told_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (text, other) = (folder.path().join("notes.txt"), folder.path().join("other.db"));
    std::fs::write(&text, "some notes\n".repeat(1_000)).unwrap();
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE goods (id)").unwrap();
    let before = (std::fs::read(&text).unwrap(), std::fs::read(&other).unwrap());
    let run =
        |name: &str| Told::of(tidegate(&["list", "--sqlite", name]).current_dir(&folder).output().unwrap());
    let told = run("notes.txt");
    assert!(told.code == 1 && told.err.contains("not a database"), "{told:?}");
    let told = run("other.db");
    assert!(
        told.code == 1 && told.err.contains("no journal with the table `t_method_limit_log`"),
        "{told:?}"
    );
    let told = run(".");
    assert!(told.code == 1 && told.err.contains("cannot be opened"), "{told:?}");
    assert_eq!((std::fs::read(&text).unwrap(), std::fs::read(&other).unwrap()), before);
    let url = server().database();
    let told = Told::of(tidegate(&["list", "--postgres", &url]).output().unwrap());
    assert!(told.code == 1 && told.err.contains("no journal with the table"), "{told:?}");
    assert_eq!(server().sql_in(&url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), "0");
}

#[test]
fn the_variable_and_the_default_name_a_journal_too() {
    let (file, remote) = (Place::sqlite(), Place::postgres());
    let in_file = file.defer(call("ship", 1));
    let on_server = remote.defer(call("ship", 1));
    let path = &file.option[1];
    for (value, guid) in [
        (path.clone(), &in_file),
        (format!("sqlite:{path}"), &in_file),
        ("calls.db".to_owned(), &in_file),
        (remote.option[1].clone(), &on_server),
    ] {
        let mut command = tidegate(&["show", guid.as_str()]);
        let output = command.env("TIDEGATE_JOURNAL", &value).current_dir(&file.folder).output().unwrap();
        assert_eq!(Told::of(output).code, 0, "{value}");
    }
    // An option counts more.
    let mut command = tidegate(&["show", in_file.as_str(), "--sqlite", path]);
    assert_eq!(Told::of(command.env("TIDEGATE_JOURNAL", &remote.option[1]).output().unwrap()).code, 0);
    let told = file.run(&["list", "--postgres", &remote.option[1]]);
    assert!(told.code == 2 && told.err.contains("say which"), "{told:?}");
    let told = file.run(&["list", "--table", "drop table"]);
    assert!(told.code == 2 && told.err.contains("is no name for a table"), "{told:?}");
}

/// The journal waits for 5 s for a server; the rest is for a busy machine.
#[test]
fn a_server_that_does_not_answer_is_told_in_time_and_without_its_password() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let silent = FaultProxy::start(&server().addr());
    silent.stall();
    for addr in [closed.to_string(), silent.addr()] {
        let url = format!("postgres://app:hunter2@{addr}/calls");
        let mut command = tidegate(&["list", "--postgres", &url]);
        let told = end(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(), PATIENCE);
        assert_eq!((told.code, told.out.as_str()), (1, ""));
        assert!(
            told.err.contains(&format!("PostgreSQL at {addr}/calls: the database does not answer")),
            "{told:?}"
        );
        assert!(!told.err.contains("hunter2"), "{told:?}");
    }
    for url in ["postgres://app:hunter2@127.0.0.1:x/calls", "postgres://app:hunter2", "app:hunter2"] {
        let told = Told::of(tidegate(&["list", "--postgres", url]).output().unwrap());
        assert!(told.code == 2 && told.err.contains("write postgres://"), "{told:?}");
        assert!(!told.err.contains("hunter2"), "{told:?}");
    }
}

#[test]
fn a_user_who_may_only_read_can_look_and_is_told_about_the_rest() {
    let place = Place::postgres();
    let guid = place.defer(call("ship", 1));
    let url = &place.option[1];
    server().sql("CREATE ROLE only_reads LOGIN IN ROLE tidegate_ro");
    let url = url.replace("postgres@", "only_reads@");
    let run = |args: &[&str]| Told::of(tidegate(args).args(["--postgres", &url]).output().unwrap());
    assert!(run(&["list"]).out.contains(guid.as_str()));
    assert_eq!(run(&["show", guid.as_str()]).code, 0);
    for args in [&["cancel", guid.as_str()][..], &["run-once", "--exec", "ship=true"], &["run-once"]] {
        let told = run(args);
        assert!(told.code == 1 && told.err.contains("the database refuses: permission denied"), "{told:?}");
    }
    assert_eq!(place.find(&guid).attempts, 0);
}
