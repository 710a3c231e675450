//! Ends that the database refuses as they are: entered all the same, and nobody else waits.

use crate::place::{Place, call, end, worker};
use serde::{Serialize, Serializer, ser::Error as _};
use tidegate_journal::{JobError, Status};

on_both! {
    a_nul_in_what_a_replay_says_is_left_out,
    what_the_database_refuses_to_keep_is_left_out_and_told,
}

/// Cannot be written, and says so in words that no column of PostgreSQL holds.
struct Unwritable;

impl Serialize for Unwritable {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(S::Error::custom("no\0thing"))
    }
}

async fn a_nul_in_what_a_replay_says_is_left_out(place: &Place) {
    let journal = place.journal().await;
    let running = worker(&journal)
        .on("note", |_: u32| async { Ok::<_, JobError>(Unwritable) })
        .on("fail", |_: u32| async { Err::<(), _>(JobError::permanent("no\0thing")) })
        .on("text", |_: u32| async { Ok::<_, JobError>("no\0thing") })
        .start();
    for (method, status, error) in [
        ("note", Status::Done, Some("done; its result cannot be written as JSON: nothing")),
        ("fail", Status::Failed, Some("nothing")),
        ("text", Status::Done, None),
    ] {
        let guid = journal.defer(call(method, 1)).await.unwrap();
        let record = end(&journal, &guid).await;
        assert_eq!((record.status, record.last_error.as_deref()), (status, error));
    }
    running.stop().await;
}

async fn what_the_database_refuses_to_keep_is_left_out_and_told(place: &Place) {
    let journal = place.journal().await;
    let refuse = if place.is_sqlite() {
        "CREATE TRIGGER refuse BEFORE UPDATE ON t_method_limit_log
         WHEN NEW.result LIKE '%poison%' OR NEW.last_error LIKE '%poison%'
         BEGIN SELECT RAISE(ABORT, 'no such thing here'); END"
    } else {
        "ALTER TABLE t_method_limit_log ADD CONSTRAINT refuse
         CHECK (coalesce(result, '') || coalesce(last_error, '') NOT LIKE '%poison%')"
    };
    place.sql(&format!("{refuse}; SELECT 1"));
    let texts = ["a", "poison", "b", "fails", "c"];
    let guids = texts.map(|text| journal.defer(call("ship", text)));
    let guids = futures_util::future::try_join_all(guids).await.unwrap();
    let ship = |text: String| async move {
        if text == "fails" { Err(JobError::permanent("poison")) } else { Ok(text) }
    };
    let pass = worker(&journal).on("ship", ship).run_once().await.unwrap();
    assert_eq!((pass.done, pass.failed), (4, 1));
    let records = guids.iter().map(|guid| journal.find(guid));
    let records = futures_util::future::try_join_all(records).await.unwrap();
    let results: Vec<_> = records.iter().map(|one| one.as_ref().unwrap().result.as_deref()).collect();
    assert_eq!(results, [Some(r#""a""#), None, Some(r#""b""#), None, Some(r#""c""#)]);
    for nth in [1, 3] {
        let error = records[nth].as_ref().unwrap().last_error.as_deref().unwrap();
        assert_eq!(error, "what it said was not kept: the database refuses it");
    }
}
