//! Tables that others made are taken over without losing a row, once, by whoever comes first.

use crate::place::{Place, call, cases, server, worker};
use tidegate_journal::{JobError, Journal, JournalBuilder, JournalError, Status};

on_both! {
    opening_twice_and_at_once_makes_one_set_of_tables,
    a_table_of_a_newer_version_is_refused,
    another_table_has_another_name_and_shares_nothing,
    names_that_are_none_are_refused,
    what_must_exist_is_opened_and_nothing_is_made,
    a_journal_of_the_first_version_is_brought_up_to_date_with_its_records,
    a_journal_of_the_second_version_is_brought_up_to_date_with_its_leases,
}

async fn opening_twice_and_at_once_makes_one_set_of_tables(place: &Place) {
    let opening: Vec<_> = (0..8).map(|_| place.open(Journal::builder())).collect();
    for journal in futures_util::future::join_all(opening).await {
        journal.unwrap().defer(call("ship", 1)).await.unwrap();
    }
    place.journal().await;
    assert_eq!(place.count("1 = 1"), 8);
    assert_eq!(place.sql("SELECT max(version) FROM t_method_limit_log_version"), "4");
}

/// Whoever switches a new file to its log, or makes the tables, locks out the others for a
/// moment, and SQLite does not wait for that by itself.
#[test]
fn many_who_open_a_new_file_at_once_all_get_in() {
    for _ in 0..30 * cases() {
        crate::place::run(&Place::sqlite(), opening_twice_and_at_once_makes_one_set_of_tables);
    }
}

async fn a_table_of_a_newer_version_is_refused(place: &Place) {
    place.journal().await;
    let applied = if place.is_sqlite() { "0" } else { "now()" };
    place.sql(&format!("INSERT INTO t_method_limit_log_version VALUES (99, {applied})"));
    let error = place.open(Journal::builder()).await.unwrap_err().to_string();
    assert!(error.contains("has version 99, and this program knows 4: use a newer program"), "{error}");
}

async fn another_table_has_another_name_and_shares_nothing(place: &Place) {
    let (one, other) =
        (place.journal().await, place.open(Journal::builder().table("kept_calls")).await.unwrap());
    let guid = other.defer(call("ship", 1)).await.unwrap();
    assert_eq!(one.status(&guid).await.unwrap(), None);
    assert_eq!((place.count("1 = 1"), place.sql("SELECT count(*) FROM kept_calls").as_str()), (0, "1"));
}

async fn names_that_are_none_are_refused(place: &Place) {
    for name in ["", "1st", "a b", "x; drop table y", "T", &"x".repeat(41)] {
        let error = place.open(Journal::builder().table(name)).await.unwrap_err();
        assert!(matches!(error, JournalError::Named(_)), "{error}");
    }
}

/// The table as it was designed first, with its indexes, and rows of every kind.
const ORIGINAL: &str = "
    CREATE TABLE t_method_limit_log (
      is_delete bool NOT NULL DEFAULT false,
      update_time timestamp(6) without time zone NOT NULL DEFAULT CURRENT_TIMESTAMP,
      create_time timestamp(6) without time zone NOT NULL DEFAULT CURRENT_TIMESTAMP,
      method_name varchar(64),
      method_params jsonb,
      guid varchar(32) NOT NULL,
      status int2,
      CONSTRAINT pk_t_method_limit_log_guid PRIMARY KEY(guid));
    CREATE INDEX idx_t_method_limit_log_ctime ON t_method_limit_log USING btree (create_time);
    CREATE INDEX idx_t_method_limit_log_utime ON t_method_limit_log USING btree (update_time);
    INSERT INTO t_method_limit_log (guid, method_name, method_params, status, is_delete) VALUES
      ('pending', 'cancelTask', '{\"taskGuid\": \"a\"}', 0, false), ('done', 'cancelTask', '{}', 1, false),
      ('failed', 'cancelTask', '{}', 2, false), ('no status', 'cancelTask', '{\"taskGuid\": \"b\"}', NULL, false),
      ('no method', NULL, '{}', 0, false), ('nothing', NULL, NULL, NULL, false),
      ('deleted', 'cancelTask', '{}', 0, true), ('no params', 'cancelTask', NULL, 0, false);
    UPDATE t_method_limit_log SET create_time = '2024-03-01 12:00:00', update_time = '2024-03-01 12:00:00'
      WHERE guid IN ('done', 'failed')";

#[derive(serde::Deserialize)]
struct CancelTask {
    #[serde(rename = "taskGuid")]
    task: String,
}

#[test]
fn the_original_table_is_taken_over_with_its_rows_and_its_times() {
    crate::place::run(&Place::postgres(), async |place: &Place| {
        // The old service wrote local time.
        let database = place.address().rsplit('/').next().unwrap().to_owned();
        place.sql(&format!("ALTER DATABASE {database} SET timezone = 'Asia/Shanghai'"));
        place.sql(ORIGINAL);
        let journal = place.journal().await;
        assert_eq!(place.count("1 = 1"), 8);
        let times =
            "SELECT extract(epoch FROM create_time)::int8 FROM t_method_limit_log WHERE guid = 'done'";
        assert_eq!(place.sql(times), "1709265600", "noon in Shanghai");
        assert_eq!(journal.stats().await.unwrap().pending, 3);
        // An old writer goes on.
        place.sql(
            "INSERT INTO t_method_limit_log (guid, method_name, method_params, status)
                   VALUES ('late', 'cancelTask', '{\"taskGuid\": \"c\"}', 0)",
        );
        let worker =
            worker(&journal).on("cancelTask", |call: CancelTask| async move { Ok::<_, JobError>(call.task) });
        let pass = worker.run_once().await.unwrap();
        assert_eq!(
            (pass.picked, pass.done, pass.failed, pass.purged),
            (4, 3, 1 + 2, 2),
            "the old ones are gone"
        );
        let rows = place.sql("SELECT guid, status FROM t_method_limit_log ORDER BY guid COLLATE \"C\"");
        let expected =
            ["deleted|4", "late|1", "no method|2", "no params|2", "no status|1", "nothing|2", "pending|1"];
        assert_eq!(rows.lines().collect::<Vec<_>>(), expected);
        let nameless = journal.find(&"nothing".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(nameless.status, Status::Failed);
        assert_eq!(nameless.last_error.as_deref(), Some("it was recorded without the name of a method"));
        assert_eq!(place.sql("SELECT result FROM t_method_limit_log WHERE guid = 'late'"), "\"c\"");
    });
}

async fn what_must_exist_is_opened_and_nothing_is_made(place: &Place) {
    let tables = if place.is_sqlite() {
        "SELECT count(*) FROM sqlite_master"
    } else {
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    };
    let refused = async |builder: JournalBuilder, expected: &str| {
        let error = place.open(builder.must_exist()).await.unwrap_err();
        assert!(matches!(&error, JournalError::Open(text) if text.contains(expected)), "{error}");
    };
    if place.is_sqlite() {
        refused(Journal::builder(), "there is no file").await;
        assert!(!place.path().exists(), "nothing is made");
    }
    // Somebody else's database stays as it is.
    place.sql("CREATE TABLE t_method_limit_log (guid text); SELECT 1");
    refused(Journal::builder(), "there is no journal with the table `t_method_limit_log` here").await;
    assert_eq!(place.sql(tables), "1");
    if place.is_sqlite() {
        assert_eq!(place.sql("PRAGMA journal_mode"), "delete");
    }
    place.sql("DROP TABLE t_method_limit_log; SELECT 1");
    let guid = place.journal().await.defer(call("ship", 1)).await.unwrap();
    refused(Journal::builder().table("other"), "`other`").await;
    let journal = place.open(Journal::builder().must_exist()).await.unwrap();
    assert_eq!(journal.status(&guid).await.unwrap(), Some(Status::Pending));
}

#[test]
fn a_table_of_the_same_kind_in_a_file_is_taken_over_too() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        place.sql(
            "CREATE TABLE t_method_limit_log (is_delete boolean NOT NULL DEFAULT false,
               update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
               create_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, method_name varchar(64),
               method_params text, guid varchar(32) NOT NULL PRIMARY KEY, status int2);
             INSERT INTO t_method_limit_log (guid, method_name, method_params, status, is_delete) VALUES
               ('pending', 'ship', '1', 0, false), ('no-status', 'ship', '2', NULL, false),
               ('no-method', NULL, NULL, NULL, false), ('deleted', 'ship', '3', 0, true), ('done', 'ship', '4', 1, false);
             UPDATE t_method_limit_log SET update_time = '2024-03-01 12:00:00' WHERE guid = 'done'",
        );
        let journal = place.journal().await;
        let pass =
            worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) }).run_once().await.unwrap();
        assert_eq!((pass.picked, pass.done, pass.failed, pass.purged), (2, 2, 1, 1));
        let rows = place.sql("SELECT guid, status FROM t_method_limit_log ORDER BY guid");
        assert_eq!(
            rows.lines().collect::<Vec<_>>(),
            ["deleted|4", "no-method|2", "no-status|1", "pending|1"]
        );
    });
}

#[test]
fn a_role_reads_and_writes_another_reads_and_comments_tell_the_data_classes() {
    crate::place::run(&Place::postgres(), async |place: &Place| {
        let builder = || Journal::builder().roles("kept_rw", "kept_ro");
        let journal = place.open(builder()).await.unwrap();
        assert!(journal.notes().is_empty(), "{:?}", journal.notes());
        let guid = journal.defer(call("ship", 1)).await.unwrap();
        place.sql("CREATE ROLE app LOGIN IN ROLE kept_rw; CREATE ROLE eye LOGIN IN ROLE kept_ro; CREATE ROLE nobody LOGIN");
        let database = place.address().rsplit('/').next().unwrap().to_owned();
        let as_user = |user: &str| server().url_of(user, &database);
        // The program needs no more than its role once the tables are there.
        let app = Journal::builder().roles("kept_rw", "kept_ro").postgres(&as_user("app")).await.unwrap();
        app.defer(call("ship", 2)).await.unwrap();
        let pass =
            worker(&app).on("ship", |_: u32| async { Ok::<_, JobError>(()) }).run_once().await.unwrap();
        assert_eq!(pass.done, 2);
        let eye = Journal::builder().roles("kept_rw", "kept_ro").postgres(&as_user("eye")).await.unwrap();
        assert_eq!(eye.status(&guid).await.unwrap(), Some(Status::Done));
        let refused = eye.defer(call("ship", 3)).await.unwrap_err();
        assert!(format!("{refused:?}").contains("Forbidden"), "{refused:?}");
        let error = Journal::postgres(&as_user("nobody")).await.unwrap_err();
        assert!(matches!(error, JournalError::Forbidden(_)), "{error}");
        // A user who may not make roles is told what an administrator has to do.
        let other = Journal::builder().roles("other_rw", "other_ro").postgres(&as_user("app")).await.unwrap();
        let note = &other.notes()[0];
        assert!(
            note.contains("CREATE ROLE other_rw NOLOGIN; GRANT SELECT, INSERT, UPDATE, DELETE"),
            "{note}"
        );
        place.sql("CREATE ROLE there_rw");
        let there = Journal::builder().roles("there_rw", "kept_ro").postgres(&as_user("app")).await.unwrap();
        let note = &there.notes()[0];
        assert!(note.contains("As an administrator: GRANT SELECT, INSERT"), "{note}");
        let comments = place.sql(
            "SELECT col_description('t_method_limit_log'::regclass, attnum) FROM pg_attribute
            WHERE attrelid = 't_method_limit_log'::regclass AND attnum > 0",
        );
        assert!(
            comments.lines().count() == 20 && comments.lines().all(|line| line.starts_with(['S'])),
            "{comments}"
        );
    });
}

/// The original table grants its rights by itself; the tables that are made beside it have to follow.
#[test]
fn roles_that_had_the_original_table_get_those_beside_it() {
    crate::place::run(&Place::postgres(), async |place: &Place| {
        place.sql(
            "CREATE ROLE bos_task_center_rw; CREATE ROLE bos_task_center_ro; CREATE ROLE bos_owner LOGIN;
             CREATE ROLE bos_job LOGIN IN ROLE bos_task_center_rw; CREATE ROLE bos_eye LOGIN IN ROLE bos_task_center_ro;
             GRANT CREATE ON SCHEMA public TO bos_owner",
        );
        let database = place.address().rsplit('/').next().unwrap().to_owned();
        let as_user = |user: &str| server().url_of(user, &database);
        server().sql_in(
            &as_user("bos_owner"),
            &format!(
                "{ORIGINAL};
                 GRANT SELECT, UPDATE, INSERT, DELETE ON t_method_limit_log TO bos_task_center_rw;
                 GRANT SELECT ON t_method_limit_log TO bos_task_center_ro"
            ),
        );
        let open = async |user: &str| {
            let builder = Journal::builder().roles("bos_task_center_rw", "bos_task_center_ro");
            let journal = builder.postgres(&as_user(user)).await.unwrap();
            assert!(journal.notes().is_empty(), "{user}: {:?}", journal.notes());
            journal
        };
        open("bos_owner").await;
        let job = open("bos_job").await;
        let guid = job.defer(call("ship", 1)).await.unwrap();
        let pass =
            worker(&job).on("ship", |_: u32| async { Ok::<_, JobError>(()) }).run_once().await.unwrap();
        assert_eq!(pass.done, 1);
        let eye = open("bos_eye").await;
        assert_eq!(eye.status(&guid).await.unwrap(), Some(Status::Done));
        assert_eq!(eye.stats().await.unwrap().pending, 3);
        let refused = eye.defer(call("ship", 2)).await.unwrap_err();
        assert!(format!("{refused:?}").contains("Forbidden"), "{refused:?}");
    });
}

/// What the first version added to the original table in a file.
pub(crate) const VERSION_1_ON_SQLITE: &str = "
    ALTER TABLE t_method_limit_log ADD COLUMN attempts integer NOT NULL DEFAULT 0;
    ALTER TABLE t_method_limit_log ADD COLUMN max_attempts integer;
    ALTER TABLE t_method_limit_log ADD COLUMN lapses integer NOT NULL DEFAULT 0;
    ALTER TABLE t_method_limit_log ADD COLUMN priority integer NOT NULL DEFAULT 5;
    ALTER TABLE t_method_limit_log ADD COLUMN next_time integer NOT NULL DEFAULT 0;
    ALTER TABLE t_method_limit_log ADD COLUMN deadline integer;
    ALTER TABLE t_method_limit_log ADD COLUMN lease_owner varchar(64);
    ALTER TABLE t_method_limit_log ADD COLUMN lease_until integer;
    ALTER TABLE t_method_limit_log ADD COLUMN lease_no integer NOT NULL DEFAULT 0;
    ALTER TABLE t_method_limit_log ADD COLUMN idempotency_key varchar(128);
    ALTER TABLE t_method_limit_log ADD COLUMN last_error text;
    ALTER TABLE t_method_limit_log ADD COLUMN result text;
    CREATE TABLE t_method_limit_log_count (method_name text PRIMARY KEY, pending integer NOT NULL) WITHOUT ROWID;
    CREATE TABLE t_method_limit_log_method (method_name text PRIMARY KEY, seen_time integer NOT NULL DEFAULT 0,
      missed_since integer, missed_time integer) WITHOUT ROWID;
    CREATE TABLE t_method_limit_log_clock (now integer NOT NULL);
    INSERT INTO t_method_limit_log_clock VALUES (0);
    CREATE TABLE t_method_limit_log_version (version integer PRIMARY KEY, applied_time integer NOT NULL);
    INSERT INTO t_method_limit_log_version VALUES (1, 0);
    CREATE INDEX idx_t_method_limit_log_ctime ON t_method_limit_log (create_time);
    CREATE INDEX idx_t_method_limit_log_utime ON t_method_limit_log (update_time);
    CREATE INDEX idx_t_method_limit_log_due ON t_method_limit_log (method_name, priority, next_time)
      WHERE status = 0 AND is_delete = 0;
    CREATE INDEX idx_t_method_limit_log_ended ON t_method_limit_log (update_time) WHERE (status <> 0 OR is_delete);
    CREATE INDEX idx_t_method_limit_log_deadline ON t_method_limit_log (deadline)
      WHERE status = 0 AND is_delete = 0 AND deadline IS NOT NULL;
    CREATE UNIQUE INDEX uk_t_method_limit_log_key ON t_method_limit_log (method_name, idempotency_key)
      WHERE idempotency_key IS NOT NULL;
    SELECT 1";

/// The same on PostgreSQL.
const VERSION_1_ON_POSTGRES: &str = "
    ALTER TABLE t_method_limit_log
      ALTER COLUMN create_time TYPE timestamptz(6), ALTER COLUMN update_time TYPE timestamptz(6),
      ADD COLUMN attempts int4 NOT NULL DEFAULT 0, ADD COLUMN max_attempts int2,
      ADD COLUMN lapses int4 NOT NULL DEFAULT 0, ADD COLUMN priority int2 NOT NULL DEFAULT 5,
      ADD COLUMN next_time timestamptz(6) NOT NULL DEFAULT now(), ADD COLUMN deadline timestamptz(6),
      ADD COLUMN lease_owner varchar(64), ADD COLUMN lease_until timestamptz(6),
      ADD COLUMN lease_no int8 NOT NULL DEFAULT 0, ADD COLUMN idempotency_key varchar(128),
      ADD COLUMN last_error text, ADD COLUMN result text;
    DELETE FROM t_method_limit_log;
    ALTER TABLE t_method_limit_log ALTER COLUMN status SET DEFAULT 0, ALTER COLUMN status SET NOT NULL;
    CREATE INDEX idx_t_method_limit_log_due ON t_method_limit_log (method_name, priority, next_time)
      WHERE status = 0 AND NOT is_delete;
    CREATE INDEX idx_t_method_limit_log_ended ON t_method_limit_log (update_time) WHERE (status <> 0 OR is_delete);
    CREATE INDEX idx_t_method_limit_log_deadline ON t_method_limit_log (deadline)
      WHERE status = 0 AND NOT is_delete AND deadline IS NOT NULL;
    CREATE UNIQUE INDEX uk_t_method_limit_log_key ON t_method_limit_log (method_name, idempotency_key)
      WHERE idempotency_key IS NOT NULL;
    CREATE TABLE t_method_limit_log_count (method_name varchar(64) NOT NULL, slot int2 NOT NULL, pending int8 NOT NULL,
      PRIMARY KEY (method_name, slot)) WITH (fillfactor = 50);
    CREATE TABLE t_method_limit_log_method (method_name varchar(64) PRIMARY KEY, seen_time timestamptz(6) NOT NULL,
      missed_since timestamptz(6), missed_time timestamptz(6));
    CREATE TABLE t_method_limit_log_version (version int4 PRIMARY KEY, applied_time timestamptz(6) NOT NULL DEFAULT now());
    INSERT INTO t_method_limit_log_version VALUES (1);
    SELECT 1";

async fn a_journal_of_the_first_version_is_brought_up_to_date_with_its_records(place: &Place) {
    if place.is_sqlite() {
        place.sql(
            "CREATE TABLE t_method_limit_log (is_delete boolean NOT NULL DEFAULT false,
               update_time integer NOT NULL, create_time integer NOT NULL, method_name varchar(64),
               method_params text, guid varchar(32) NOT NULL PRIMARY KEY, status smallint NOT NULL DEFAULT 0);
             SELECT 1",
        );
        place.sql(VERSION_1_ON_SQLITE);
    } else {
        place.sql(ORIGINAL);
        place.sql(VERSION_1_ON_POSTGRES);
    }
    let now = if place.is_sqlite() { "CAST(strftime('%s', 'now') AS integer) * 1000000" } else { "now()" };
    place.sql(&format!(
        "INSERT INTO t_method_limit_log
           (guid, method_name, method_params, status, create_time, update_time, next_time, idempotency_key)
         VALUES ('failed', 'ship', '1', 2, {now}, {now}, {now}, 'a'), ('pending', 'ship', '2', 0, {now}, {now}, {now}, 'b'),
                ('done', 'ship', '3', 1, {now}, {now}, {now}, 'c')"
    ));
    let count = if place.is_sqlite() { "('ship', 1)" } else { "('ship', 0, 1)" };
    place.sql(&format!("INSERT INTO t_method_limit_log_count VALUES {count}"));
    // Who only looks changes nothing.
    let error = place.open(Journal::builder().must_exist()).await.unwrap_err().to_string();
    assert!(error.contains("has version 1, and this program needs 4"), "{error}");
    let opening: Vec<_> = (0..4).map(|_| place.open(Journal::builder())).collect();
    for journal in futures_util::future::join_all(opening).await {
        journal.unwrap();
    }
    let journal = place.open(Journal::builder().must_exist()).await.unwrap();
    assert_eq!(place.sql("SELECT max(version) FROM t_method_limit_log_version"), "4");
    assert_eq!(journal.stats().await.unwrap().pending, 1);
    assert_eq!(journal.defer(call("ship", 0).key("b")).await.unwrap().as_str(), "pending");
    assert_eq!(journal.defer(call("ship", 0).key("c")).await.unwrap().as_str(), "done");
    assert_ne!(journal.defer(call("ship", 4).key("a")).await.unwrap().as_str(), "failed");
    let pass =
        worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) }).run_once().await.unwrap();
    assert_eq!((pass.picked, pass.done), (2, 2));
    assert_eq!(place.count("1 = 1"), 4);
}

async fn a_journal_of_the_second_version_is_brought_up_to_date_with_its_leases(place: &Place) {
    let journal = place.journal().await;
    let (free, leased) = (journal.defer(call("ship", 1)).await, journal.defer(call("ship", 2)).await);
    let (free, leased) = (free.unwrap(), leased.unwrap());
    drop(journal);
    let hour = if place.is_sqlite() { "+ 3600000000" } else { "+ interval '1 hour'" };
    place.sql(&format!(
        "UPDATE t_method_limit_log SET lease_owner = 'an older one', lease_no = 1,
           lease_until = create_time {hour}, next_time = create_time {hour} WHERE guid = '{leased}'"
    ));
    place.sql(if place.is_sqlite() {
        "DROP TRIGGER tr_t_method_limit_log_foreign;
         CREATE TRIGGER tr_t_method_limit_log_foreign AFTER INSERT ON t_method_limit_log WHEN NEW.status IS NULL
         BEGIN UPDATE t_method_limit_log SET status = 0 WHERE rowid = NEW.rowid; END;
         SELECT 1"
    } else {
        "ALTER TABLE t_method_limit_log RESET (fillfactor), DROP COLUMN lease_time;
         DROP TRIGGER tr_t_method_limit_log_no_status ON t_method_limit_log;
         DROP FUNCTION t_method_limit_log_no_status"
    });
    place.sql("DELETE FROM t_method_limit_log_version WHERE version >= 3");
    let journal = place.journal().await;
    assert_eq!(place.sql("SELECT max(version) FROM t_method_limit_log_version"), "4");
    if place.is_sqlite() {
        // The trigger is the one of today.
        place.sql("INSERT INTO t_method_limit_log (guid, create_time, update_time, is_delete) VALUES ('a', 'now', 'now', 'yes')");
        assert_eq!(place.count("guid = 'a' AND is_delete = 1"), 1);
    }
    if !place.is_sqlite() {
        let options = "SELECT reloptions FROM pg_class WHERE relname = 't_method_limit_log'";
        assert_eq!(place.sql(options), "{fillfactor=45}");
    }
    let pass =
        worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) }).run_once().await.unwrap();
    assert_eq!((pass.picked, pass.done), (1, 1));
    assert_eq!(journal.status(&free).await.unwrap(), Some(Status::Done));
    assert_eq!(journal.status(&leased).await.unwrap(), Some(Status::Running));
}

/// The function of the trigger stays when the tables go.
#[test]
fn a_journal_whose_tables_were_dropped_is_made_again() {
    crate::place::run(&Place::postgres(), async |place: &Place| {
        drop(place.journal().await);
        place.sql(
            "DO $$ DECLARE one record; BEGIN
               FOR one IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
                 EXECUTE format('DROP TABLE %I CASCADE', one.tablename);
               END LOOP; END $$",
        );
        let journal = place.journal().await;
        journal.defer(call("ship", 1)).await.unwrap();
    });
}
