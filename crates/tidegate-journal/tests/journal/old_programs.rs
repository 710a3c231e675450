//! Programs that knew the original table go on writing into it after it was taken over, in ways
//! that were legal before.

use crate::place::{Place, call, end, worker};
use std::time::Duration;
use tidegate_journal::{Cancelled, Filter, Guid, JobError, Journal, Page, Retried, Status};

on_both! {
    an_old_program_may_insert_no_status_after_the_table_was_taken_over,
    what_a_writer_in_local_time_recorded_in_the_future_is_due_now,
    a_status_that_nobody_knows_is_shown_as_it_is_and_can_be_tried_again,
    an_empty_name_of_a_method_is_none_and_fails_at_once,
}

/// The table as it was designed first, as each database takes it.
fn original(place: &Place) {
    let (time, json) = if place.is_sqlite() { ("timestamp", "text") } else { ("timestamp(6)", "jsonb") };
    place.sql(&format!(
        "CREATE TABLE t_method_limit_log (is_delete bool NOT NULL DEFAULT false,
           update_time {time} NOT NULL DEFAULT CURRENT_TIMESTAMP,
           create_time {time} NOT NULL DEFAULT CURRENT_TIMESTAMP,
           method_name varchar(64), method_params {json}, guid varchar(32) NOT NULL PRIMARY KEY, status int2);
         SELECT 1"
    ));
}

/// Inserts a row as an old program does: columns of its own choice.
fn insert(place: &Place, columns: &str, values: &str) {
    place.sql(&format!(
        "INSERT INTO t_method_limit_log (method_params, {columns}) VALUES ('1', {values}); SELECT 1"
    ));
}

fn ship(journal: &Journal) -> tidegate_journal::Worker {
    worker(journal).on("ship", |n: u32| async move { Ok::<_, JobError>(n) })
}

fn guid(name: &str) -> Guid {
    name.parse().unwrap()
}

async fn an_old_program_may_insert_no_status_after_the_table_was_taken_over(place: &Place) {
    original(place);
    let journal = place.journal().await;
    insert(place, "guid, method_name, status", "'late', 'ship', NULL");
    assert_eq!(journal.status(&guid("late")).await.unwrap(), Some(Status::Pending));
    assert_eq!(ship(&journal).run_once().await.unwrap().done, 1);
    // In a table that was made here, too: others may write into it.
    let made = place.open(Journal::builder().table("made")).await.unwrap();
    place.sql("INSERT INTO made (guid, method_name, method_params, status) VALUES ('a', 'ship', '1', NULL); SELECT 1");
    assert_eq!(ship(&made).run_once().await.unwrap().done, 1);
}

/// It was pending for ever: shown as such, and never looked for.
#[test]
fn a_record_whose_status_is_taken_away_by_hand_runs_again() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let journal = place.journal().await;
        let guid = journal.defer(call("ship", 1)).await.unwrap();
        assert_eq!(ship(&journal).run_once().await.unwrap().done, 1);
        place.sql("UPDATE t_method_limit_log SET status = NULL");
        assert_eq!(journal.status(&guid).await.unwrap(), Some(Status::Pending));
        assert_eq!(ship(&journal).run_once().await.unwrap().done, 1);
    });
}

async fn what_a_writer_in_local_time_recorded_in_the_future_is_due_now(place: &Place) {
    original(place);
    let later = if place.is_sqlite() { "datetime('now', '+8 hours')" } else { "now() + interval '8 hours'" };
    let columns = "guid, method_name, status, create_time, update_time";
    insert(place, columns, &format!("'early', 'ship', 0, {later}, {later}"));
    let journal = place.journal().await;
    insert(place, columns, &format!("'late', 'ship', 0, {later}, {later}"));
    insert(place, "guid, method_name, status, create_time", &format!("'half', 'ship', 0, {later}"));
    // Its deadline is by the right time.
    let soon = if place.is_sqlite() { "(unixepoch() + 3600) * 1000000" } else { "now() + interval '1 hour'" };
    insert(place, &format!("{columns}, deadline"), &format!("'by', 'ship', 0, {later}, {later}, {soon}"));
    let pass = ship(&journal).run_once().await.unwrap();
    assert_eq!((pass.picked, pass.done), (4, 4), "{pass}");
    let listed = journal.list(Filter::all(), Page::first(10)).await.unwrap();
    assert!(listed.iter().all(|record| record.status == Status::Done), "{listed:?}");
    assert_eq!(journal.purge(Duration::ZERO, |_| ()).await.unwrap(), 4);
}

async fn a_status_that_nobody_knows_is_shown_as_it_is_and_can_be_tried_again(place: &Place) {
    original(place);
    insert(place, "guid, method_name, status", "'seven', 'ship', 7");
    let journal = place.journal().await;
    insert(place, "guid, method_name, status", "'minus', 'ship', -3");
    let seven = guid("seven");
    assert_eq!(ship(&journal).run_once().await.unwrap().picked, 0);
    assert_eq!(journal.status(&seven).await.unwrap(), Some(Status::Other(7)));
    assert_eq!(journal.status(&guid("minus")).await.unwrap(), Some(Status::Other(-3)));
    assert_eq!(Status::Other(7).to_string(), "7");
    let listed = journal.list(Filter::all().status(Status::Other(7)), Page::first(10)).await.unwrap();
    assert_eq!(listed.iter().map(|record| &record.guid).collect::<Vec<_>>(), [&seven]);
    assert!(journal.list(Filter::all().status(Status::Failed), Page::first(9)).await.unwrap().is_empty());
    assert_eq!(journal.cancel(&seven).await.unwrap(), Cancelled::AlreadyEnded(Status::Other(7)));
    assert_eq!(journal.retry(&seven).await.unwrap(), Retried::Pending);
    assert_eq!(ship(&journal).run_once().await.unwrap().done, 1);
    assert_eq!(end(&journal, &seven).await.status, Status::Done);
    assert_eq!(journal.purge(Duration::ZERO, |_| ()).await.unwrap(), 2);
}

/// It waited for an hour, as one whose method no worker knows.
async fn an_empty_name_of_a_method_is_none_and_fails_at_once(place: &Place) {
    original(place);
    insert(place, "guid, method_name, status", "'early', '', 0");
    let journal = place.journal().await;
    insert(place, "guid, method_name, status", "'late', '', 0");
    let ours = journal.defer(call("ship", 1)).await.unwrap();
    let pass = ship(&journal).run_once().await.unwrap();
    assert_eq!((pass.done, pass.failed), (1, 2), "{pass}");
    for name in ["early", "late"] {
        let record = journal.find(&guid(name)).await.unwrap().unwrap();
        assert_eq!((record.status, record.method.as_deref()), (Status::Failed, Some("")));
        assert_eq!(record.last_error.as_deref(), Some("it was recorded without the name of a method"));
    }
    // It is neither counted nor taken off the counts.
    assert_eq!(journal.retry(&guid("late")).await.unwrap(), Retried::Pending);
    assert_eq!(journal.stats().await.unwrap().pending, 0);
    assert_eq!(journal.cancel(&guid("late")).await.unwrap(), Cancelled::Pending);
    let wrong = "SELECT method_name FROM t_method_limit_log_count GROUP BY 1 HAVING sum(pending) <> 0";
    assert_eq!(place.sql(wrong), "");
    assert_eq!(end(&journal, &ours).await.status, Status::Done);
}
