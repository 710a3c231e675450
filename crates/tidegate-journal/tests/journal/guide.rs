//! The guide's statements run as they stand there, so they cannot rot.

use crate::place::{Place, call, seen, worker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tidegate_journal::{JobError, KEY_MAX, METHOD_MAX, PARAMS_MAX};

on_both! {
    the_statements_for_looking_inside_tell_what_they_say,
    a_call_is_recorded_without_rust_as_the_guide_says,
}

const GUIDE: &str = include_str!("../../../../docs/journal.md");

/// The statements of one block of the section, each with what its comment says it tells.
fn statements(nth: usize) -> Vec<(&'static str, &'static str)> {
    let (_, section) = GUIDE.split_once("\n## Looking inside\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let block = section.split("```sql\n").nth(nth + 1).unwrap().split("```").next().unwrap();
    block.split("-- ").skip(1).map(|text| text.split_once('\n').unwrap()).collect()
}

async fn the_statements_for_looking_inside_tell_what_they_say(place: &Place) {
    let journal = place.journal().await;
    journal.defer(call("wait", 0)).await.unwrap();
    journal.defer(call("fail", 0)).await.unwrap();
    let runs = journal.defer(call("run", 0)).await.unwrap();
    let has_begun = Arc::new(AtomicBool::new(false));
    let begun = has_begun.clone();
    let running = worker(&journal)
        .name("worker-7")
        .grace(Duration::ZERO)
        .on("fail", |_: u32| async { Err::<(), _>(JobError::permanent("the courier is ill")) })
        .on("run", move |_: u32| {
            begun.store(true, Ordering::SeqCst);
            std::future::pending::<Result<(), JobError>>()
        })
        .start();
    seen("one runs and one has failed", || {
        has_begun.load(Ordering::SeqCst) && place.count("status = 2") == 1
    })
    .await;
    // What is the same on both stands only in the first block.
    let all = if place.is_sqlite() {
        [statements(0)[0]].into_iter().chain(statements(1)).collect()
    } else {
        statements(0)
    };
    let mut told = Vec::new();
    for (what, statement) in all {
        let rows = place.sql(statement.trim());
        match what {
            "what waits or runs, by method" => {
                let mut rows: Vec<&str> = rows.lines().map(|row| row.rsplit_once('|').unwrap().0).collect();
                rows.sort_unstable();
                assert_eq!(rows, ["run|1", "wait|1"]);
            }
            "what runs, and where" => {
                assert!(
                    rows.starts_with(&format!("{runs}|run|worker-7|2")) && rows.lines().count() == 1,
                    "{rows}"
                );
            }
            "why things failed within a day" => assert_eq!(rows, "fail|the courier is ill|1"),
            other => panic!("the guide has a new statement: say here what `{other}` tells"),
        }
        told.push(what);
    }
    assert_eq!(told.len(), 3, "{told:?}");
    running.stop().await;
}

async fn a_call_is_recorded_without_rust_as_the_guide_says(place: &Place) {
    let journal = place.journal().await;
    let (_, section) = GUIDE.split_once("\n### Without Rust\n").unwrap();
    let statement = section.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
    place.sql(statement.trim());
    let ship =
        worker(&journal).on("ship", |params: serde_json::Value| async move { Ok::<_, JobError>(params) });
    assert_eq!(ship.run_once().await.unwrap().done, 1);
    let record = journal.find(&"order-17".parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(record.result.as_deref(), Some(r#"{"order":17}"#));
    let age = journal.now().await.unwrap().duration_since(record.create_time).unwrap_or_default();
    assert!(age < Duration::from_secs(600), "{record:?}");
}

#[test]
fn the_guide_has_the_bounds_of_the_code() {
    let (_, section) = GUIDE.split_once("\n## Bounds\n").unwrap();
    let bound = format!("{METHOD_MAX} bytes; {KEY_MAX} bytes; {} KiB", PARAMS_MAX / 1024);
    assert!(section.contains(&bound), "{bound}");
}
