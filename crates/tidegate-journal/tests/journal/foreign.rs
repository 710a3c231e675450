//! Rows that other programs write into a table on SQLite, which takes anything: they run or
//! fail visibly, and hold nobody up.

use crate::migration::VERSION_1_ON_SQLITE as VERSION_1;
use crate::place::{Place, call, end, worker};
use std::time::{Duration, SystemTime};
use tidegate_journal::{Cancelled, Filter, Guid, JobError, Journal, Page, Record, Retried, Status};

/// The table as it was designed first, as others made it in a file.
fn original(params: &str) -> String {
    format!(
        "CREATE TABLE t_method_limit_log (is_delete boolean NOT NULL DEFAULT false,
           update_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
           create_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP, method_name varchar(64),
           method_params {params}, guid varchar(32) NOT NULL PRIMARY KEY, status int2);
         SELECT 1"
    )
}

/// In every way in which a program may have inserted rows before.
const LATE: &str = "
    INSERT INTO t_method_limit_log (guid, method_name, method_params, status) VALUES ('text-times', 'ship', '1', 0);
    INSERT INTO t_method_limit_log (guid, method_name, method_params) VALUES ('no-status', 'ship', '2');
    INSERT INTO t_method_limit_log (guid, method_name, method_params, status) VALUES ('bytes', 'ship', X'33', 0);
    INSERT INTO t_method_limit_log (guid, method_name, method_params, status) VALUES ('method', X'73686970', '4', 0);
    INSERT INTO t_method_limit_log (guid, method_name, method_params, status)
      VALUES (X'000102030405060708090A0B0C0D0EFF', 'ship', '5', 0);
    INSERT INTO t_method_limit_log (guid, method_name, method_params, status, create_time, update_time)
      SELECT 'milliseconds', 'ship', '6', 0, ms, ms FROM
      (SELECT CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS integer) AS ms);
    INSERT INTO t_method_limit_log (guid, method_name, method_params, status, create_time, update_time)
      SELECT 'seconds', 'ship', '7', 0, s, s FROM (SELECT CAST(strftime('%s', 'now') AS integer) AS s);
    INSERT INTO t_method_limit_log (guid, method_name, method_params, status, create_time, update_time)
      SELECT 'half-seconds', 'ship', '8', 0, s, s FROM (SELECT CAST(strftime('%s', 'now') AS integer) - 0.5 AS s);
    INSERT INTO t_method_limit_log (guid, method_name, method_params, status, create_time, update_time)
      VALUES ('no-time', 'ship', '9', 0, 'soon', X'00FF');
    INSERT INTO t_method_limit_log (guid, method_name, method_params, status) VALUES ('no-text', 'ship', X'FF00', 0);
    INSERT INTO t_method_limit_log (guid, method_name, method_params, status, update_time)
      VALUES ('old', 'ship', '1', 1, '2024-03-01 12:00:00');
    SELECT 1";

const NAMES: [&str; 10] = [
    "text-times",
    "no-status",
    "bytes",
    "method",
    "000102030405060708090a0b0c0d0eff",
    "milliseconds",
    "seconds",
    "half-seconds",
    "no-time",
    "no-text",
];

async fn found(journal: &Journal, name: &str) -> Record {
    let guid: Guid = name.parse().unwrap();
    journal.find(&guid).await.unwrap().unwrap_or_else(|| panic!("there is no {name}"))
}

/// What must be so of the rows above, whenever they came.
async fn they_run_or_fail_and_hold_nobody_up(place: &Place) {
    let journal = place.journal().await;
    let ours = journal.defer(call("ship", 100)).await.unwrap();
    let listed = journal.list(Filter::all(), Page::first(100)).await.unwrap();
    assert_eq!(listed.len(), NAMES.len() + 2);
    let now = journal.now().await.unwrap();
    for name in NAMES {
        let record = found(&journal, name).await;
        assert_eq!((name, record.status), (name, Status::Pending));
        for time in [record.create_time, record.update_time, record.next_time] {
            let apart = now.duration_since(time).unwrap_or_else(|ahead| ahead.duration());
            assert!(apart < Duration::from_secs(600), "{name}: {record:?}");
        }
    }
    let pass =
        worker(&journal).on("ship", |n: u32| async move { Ok::<_, JobError>(n) }).run_once().await.unwrap();
    assert_eq!((pass.picked, pass.done, pass.failed, pass.purged), (11, 10, 1, 1));
    assert_eq!(found(&journal, ours.as_str()).await.status, Status::Done);
    for (nth, name) in NAMES[..9].iter().enumerate() {
        let record = found(&journal, name).await;
        assert_eq!(record.result, Some((nth + 1).to_string()), "{name}: {record:?}");
    }
    let record = found(&journal, "no-text").await;
    assert_eq!(record.status, Status::Failed);
    assert!(record.last_error.as_deref().unwrap().starts_with("the parameters do not fit"), "{record:?}");
    assert_eq!(journal.stats().await.unwrap().pending, 0);
    assert_eq!(journal.purge(Duration::ZERO, |_| ()).await.unwrap(), 11);
}

#[test]
fn what_old_programs_insert_later_runs_or_fails_and_holds_nobody_up() {
    for params in ["text", "jsonb"] {
        crate::place::run(&Place::sqlite(), async |place: &Place| {
            place.sql(&original(params));
            place.journal().await;
            place.sql(LATE);
            let overdue = place.journal().await.stats().await.unwrap().overdue;
            assert!(overdue.unwrap_or_default() < Duration::from_secs(600), "{overdue:?}");
            they_run_or_fail_and_hold_nobody_up(place).await;
        });
    }
}

#[test]
fn what_they_inserted_under_the_version_before_does_too() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        place.sql(&original("text"));
        place.sql(VERSION_1);
        place.sql(LATE);
        they_run_or_fail_and_hold_nobody_up(place).await;
    });
}

#[test]
fn times_that_were_set_by_hand_are_read_and_purged() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let journal = place.journal().await;
        let guid = journal.defer(call("ship", 1)).await.unwrap();
        worker(&journal).on("ship", |n: u32| async move { Ok::<_, JobError>(n) }).run_once().await.unwrap();
        place.sql("UPDATE t_method_limit_log SET update_time = '2024-03-01 12:00:00'");
        let record = found(&journal, guid.as_str()).await;
        assert_eq!(record.update_time, SystemTime::UNIX_EPOCH + Duration::from_secs(1_709_294_400));
        assert_eq!(journal.list(Filter::all(), Page::first(9)).await.unwrap().len(), 1);
        assert_eq!(worker(&journal).run_once().await.unwrap().purged, 1);
    });
}

/// Text lies behind all numbers: such a lease would never end.
#[test]
fn a_lease_that_was_set_by_hand_keeps_nothing_from_being_claimed_or_expired() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let journal = place.journal().await;
        let kept = journal.defer(call("ship", 1)).await.unwrap();
        let late = journal.defer(call("late", 2).deadline_in(Duration::ZERO)).await.unwrap();
        place.sql(
            "UPDATE t_method_limit_log SET lease_owner = 'by hand', lease_until = '2024-03-01 12:00:00'",
        );
        journal.expire().await.unwrap();
        assert_eq!(end(&journal, &late).await.status, Status::Expired);
        worker(&journal).on("ship", |n: u32| async move { Ok::<_, JobError>(n) }).run_once().await.unwrap();
        assert_eq!(end(&journal, &kept).await.status, Status::Done);
    });
}

#[test]
fn a_method_whose_name_is_no_text_fails_as_unknown_and_holds_nobody_up() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        place.sql(&original("text"));
        let journal = place.journal().await;
        place.sql(
            "INSERT INTO t_method_limit_log (guid, method_name, method_params, status)
               VALUES ('as-text', CAST(X'7368FF6970' AS text), '1', 0), ('as-bytes', X'FE', '1', 0);
             INSERT INTO t_method_limit_log (guid, method_name, method_params, status, deadline)
               VALUES ('late', X'FD', '1', 0, 1);
             SELECT 1",
        );
        let ours = journal.defer(call("ship", 1)).await.unwrap();
        let ship = || worker(&journal).on("ship", |n: u32| async move { Ok::<_, JobError>(n) });
        let passes = ship();
        let pass = passes.run_once().await.unwrap();
        assert_eq!((pass.done, pass.expired, pass.failed), (1, 1, 0), "{pass}");
        assert_eq!(passes.stats().methods["\u{fffd}"].expired, 1);
        assert_eq!(found(&journal, ours.as_str()).await.status, Status::Done);
        let stats = journal.stats().await.unwrap();
        assert_eq!((stats.pending, stats.methods["sh\u{fffd}ip"].pending), (2, 1));
        let cancelled = journal.cancel(&"as-bytes".parse().unwrap()).await.unwrap();
        assert_eq!(cancelled, Cancelled::Pending);
        assert_eq!(journal.retry(&"as-bytes".parse().unwrap()).await.unwrap(), Retried::Pending);
        let running = ship().orphan_after(Duration::from_millis(200)).start();
        for name in ["as-text", "as-bytes"] {
            let record = end(&journal, &name.parse().unwrap()).await;
            assert_eq!(record.status, Status::Failed);
            assert!(record.last_error.as_deref().unwrap().starts_with("no worker knows"), "{record:?}");
        }
        running.stop().await;
        assert_eq!(journal.stats().await.unwrap().pending, 0);
    });
}

#[test]
fn a_mark_of_deletion_in_words_means_what_it_says() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        place.sql(&original("text"));
        place.sql(
            "INSERT INTO t_method_limit_log (guid, method_name, method_params, status, is_delete)
                     VALUES ('early', 'ship', '1', 0, 'False'), ('early-gone', 'ship', '1', 1, 'true');
                   SELECT 1",
        );
        let journal = place.journal().await;
        place.sql("INSERT INTO t_method_limit_log (guid, method_name, method_params, status, is_delete)
                     VALUES ('f', 'ship', '1', 0, 'f'), ('false', 'ship', '1', 0, 'false'), ('no', 'ship', '1', 0, ''),
                            ('t', 'ship', '1', 0, 't'), ('true', 'ship', '1', 0, 'TRUE'), ('one', 'ship', '1', 0, X'31');
                   SELECT 1");
        let pass = worker(&journal)
            .on("ship", |n: u32| async move { Ok::<_, JobError>(n) })
            .run_once()
            .await
            .unwrap();
        assert_eq!(pass.done, 4, "{pass}");
        for name in ["early", "f", "false", "no"] {
            assert_eq!(found(&journal, name).await.status, Status::Done, "{name}");
        }
        for name in ["t", "true", "one", "early-gone"] {
            assert_eq!(journal.status(&name.parse().unwrap()).await.unwrap(), None, "{name}");
        }
        assert_eq!(journal.purge(Duration::ZERO, |_| ()).await.unwrap(), 8);
    });
}

#[test]
fn names_of_many_kinds_can_be_looked_for_tried_again_and_cancelled() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        place.sql(&original("text"));
        let journal = place.journal().await;
        for name in ["0190f3a2-b4c8-7d1e-8f00-112233445566", "order 17", "bestellung-\u{fc}"] {
            place.sql(&format!(
                "INSERT INTO t_method_limit_log (guid, method_name, method_params, status)
                   VALUES ('{name}', 'ship', '1', 0)"
            ));
            let guid: Guid = name.parse().unwrap();
            assert_eq!(found(&journal, name).await.guid, guid);
            assert_eq!(journal.cancel(&guid).await.unwrap(), Cancelled::Pending);
            assert_eq!(journal.retry(&guid).await.unwrap(), Retried::Pending);
        }
    });
}
