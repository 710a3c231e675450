//! `init`: a team without Rust begins.

use crate::place::{Told, lines, server, tidegate};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use tempfile::TempDir;

/// An empty folder, or an empty database.
struct Fresh {
    folder: TempDir,
    option: [String; 2],
}

impl Fresh {
    fn both() -> [Self; 2] {
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let path = one.path().join("calls.db").display().to_string();
        [
            Self { folder: one, option: ["--sqlite".to_owned(), path] },
            Self { folder: other, option: ["--postgres".to_owned(), server().database()] },
        ]
    }

    fn run(&self, args: &[&str]) -> Told {
        Told::of(tidegate(args).args(&self.option).current_dir(self.folder.path()).output().unwrap())
    }

    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let told = self.run(args);
        assert_eq!((told.code, told.err.as_str()), (0, ""), "{args:?}: {told:?}");
        told.out
    }

    /// As a program in any other language.
    fn sql(&self, statements: &str) {
        if self.option[0] == "--postgres" {
            server().sql_in(&self.option[1], statements);
        } else {
            rusqlite::Connection::open(&self.option[1]).unwrap().execute_batch(statements).unwrap();
        }
    }
}

#[test]
fn a_team_without_rust_makes_a_journal_records_a_call_in_sql_and_replays_it() {
    for place in Fresh::both() {
        assert!(place.run(&["list"]).err.contains("say which with"), "there is none yet");
        assert_eq!(place.ok(&["init"]), "made `t_method_limit_log`\n");
        place.sql(
            "INSERT INTO t_method_limit_log (guid, method_name, method_params) VALUES ('order-17', 'ship', '{\"order\": 17}')",
        );
        let pass = place.ok(&["run-once", "--exec", "ship=cat", "--json"]);
        assert_eq!(lines(&pass)[0]["done"], 1, "{pass}");
        let record = place.ok(&["show", "order-17", "--params", "--json"]);
        let record = &lines(&record)[0];
        assert_eq!((&record["status"], &record["result"]["order"]), (&"done".into(), &17.into()));
        // Run again, it changes nothing.
        assert_eq!(lines(&place.ok(&["init", "--json"]))[0]["outcome"], "found");
        assert_eq!(lines(&place.ok(&["list", "--json"])).len(), 1);
        assert_eq!(place.ok(&["init", "--table", "kept_calls"]), "made `kept_calls`\n");
    }
}

#[test]
fn a_table_that_others_made_is_taken_over_with_its_rows() {
    for place in Fresh::both() {
        let (time, json) =
            if place.option[0] == "--sqlite" { ("timestamp", "text") } else { ("timestamp(6)", "jsonb") };
        place.sql(&format!(
            "CREATE TABLE t_method_limit_log (is_delete bool NOT NULL DEFAULT false,
               update_time {time} NOT NULL DEFAULT CURRENT_TIMESTAMP,
               create_time {time} NOT NULL DEFAULT CURRENT_TIMESTAMP,
               method_name varchar(64), method_params {json}, guid varchar(32) NOT NULL PRIMARY KEY, status int2);
             INSERT INTO t_method_limit_log (guid, method_name, method_params) VALUES ('old', 'ship', '1')"
        ));
        assert!(place.run(&["list"]).err.contains("tidegate journal init"), "it says what to do");
        assert_eq!(place.ok(&["init"]), "took over `t_method_limit_log` with its rows\n");
        assert_eq!(lines(&place.ok(&["run-once", "--exec", "ship=true", "--json"]))[0]["done"], 1);
    }
}

#[test]
fn what_cannot_be_made_is_told() {
    let [file, remote] = Fresh::both();
    let told = Told::of(tidegate(&["init", "--sqlite", "no/such/folder.db"]).output().unwrap());
    assert!(told.code == 1 && told.err.contains("no/such/folder.db"), "{told:?}");
    let told = file.run(&["init", "--table", "drop table"]);
    assert!(told.code == 2 && told.err.contains("is no name for a table"), "{told:?}");
    assert!(!Path::new(&file.option[1]).exists(), "nothing is made");
    server().sql("CREATE ROLE makes_nothing LOGIN");
    let url = remote.option[1].replace("postgres@", "makes_nothing@");
    let told = Told::of(tidegate(&["init", "--postgres", &url]).output().unwrap());
    assert!(told.code == 1 && told.err.contains("the database refuses: permission denied"), "{told:?}");
}

#[test]
fn the_file_is_its_owners_alone() {
    let [place, _] = Fresh::both();
    place.ok(&["init"]);
    let mode = std::fs::metadata(&place.option[1]).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
