//! Full means a clear refusal that says which bound, and room comes back.

use crate::place::{Place, call, worker};
use tidegate_journal::{Bound, DeferError, JobError, Journal};

on_both! {
    a_full_method_refuses_and_others_do_not,
    full_in_all_refuses_everybody_and_an_end_makes_room,
    a_crowd_never_exceeds_the_bound_of_one_process,
    a_crowd_of_many_batches_never_exceeds_the_bound_of_one_process,
    a_repeated_key_is_answered_also_when_full,
    a_repeated_key_takes_no_room_from_the_others_of_its_batch,
    several_processes_exceed_a_bound_by_a_batch_each_at_most,
    counts_are_set_right_after_others_wrote_into_the_table,
}

fn bound(error: DeferError) -> Bound {
    match error {
        DeferError::Full { bound } => bound,
        other => panic!("{other}"),
    }
}

async fn a_full_method_refuses_and_others_do_not(place: &Place) {
    let journal = place.open(Journal::builder().method_max(2)).await.unwrap();
    journal.defer(call("ship", 1)).await.unwrap();
    let second = journal.defer(call("ship", 2)).await.unwrap();
    let error = journal.defer(call("ship", 3)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the journal is full: 2 records of `ship` are pending; refuse the call, or raise the bound"
    );
    assert_eq!(bound(error), Bound::Method { method: "ship".to_owned(), max: 2 });
    journal.defer(call("bill", 1)).await.unwrap();
    journal.cancel(&second).await.unwrap();
    journal.defer(call("ship", 3)).await.unwrap();
    assert_eq!((place.count("status = 0"), journal.stats().await.unwrap().refused), (3, 1));
}

async fn full_in_all_refuses_everybody_and_an_end_makes_room(place: &Place) {
    let journal = place.open(Journal::builder().pending_max(3)).await.unwrap();
    for method in ["ship", "bill", "ship"] {
        journal.defer(call(method, 1)).await.unwrap();
    }
    assert_eq!(bound(journal.defer(call("mail", 1)).await.unwrap_err()), Bound::All { max: 3 });
    let pass =
        worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) }).run_once().await.unwrap();
    assert_eq!(pass.done, 2);
    journal.defer(call("mail", 1)).await.unwrap();
    journal.defer(call("mail", 1)).await.unwrap();
    assert_eq!(bound(journal.defer(call("mail", 1)).await.unwrap_err()), Bound::All { max: 3 });
}

async fn a_crowd_never_exceeds_the_bound_of_one_process(place: &Place) {
    let journal = place.open(Journal::builder().pending_max(100).method_max(70)).await.unwrap();
    let crowd = (0..600).map(|nth| {
        let journal = journal.clone();
        tokio::spawn(async move {
            journal.defer(call(if nth % 2 == 0 { "ship" } else { "bill" }, nth)).await.is_ok()
        })
    });
    let mut recorded = 0;
    for caller in crowd.collect::<Vec<_>>() {
        recorded += u64::from(caller.await.unwrap());
    }
    assert_eq!((recorded, place.count("status = 0")), (100, 100));
    assert!(place.count("method_name = 'ship'") <= 70 && place.count("method_name = 'bill'") <= 70);
}

async fn a_repeated_key_is_answered_also_when_full(place: &Place) {
    let journal = place.open(Journal::builder().pending_max(1)).await.unwrap();
    let guid = journal.defer(call("ship", 1).key("17")).await.unwrap();
    bound(journal.defer(call("ship", 1).key("18")).await.unwrap_err());
    assert_eq!(journal.defer(call("ship", 1).key("17")).await.unwrap(), guid);
}

async fn a_crowd_of_many_batches_never_exceeds_the_bound_of_one_process(place: &Place) {
    for round in 0..3 {
        // A batch has a thousand at most: far from the bound several are under way at once.
        let builder = Journal::builder().pending_max(9_500).queue_max(20_000);
        let journal = place.open(builder.table(format!("round_{round}"))).await.unwrap();
        let crowd = (0..14_000).map(|nth| {
            let journal = journal.clone();
            tokio::spawn(async move { journal.defer(call("ship", nth)).await.is_ok() })
        });
        let mut recorded = 0;
        for caller in crowd.collect::<Vec<_>>() {
            recorded += u64::from(caller.await.unwrap());
        }
        let rows = place.sql(&format!("SELECT count(*) FROM round_{round}"));
        assert_eq!((recorded, rows.as_str()), (9_500, "9500"));
    }
}

async fn a_repeated_key_takes_no_room_from_the_others_of_its_batch(place: &Place) {
    let journal = place.open(Journal::builder().method_max(10)).await.unwrap();
    for nth in 0..9 {
        journal.defer(call("ship", nth).key(nth.to_string())).await.unwrap();
    }
    // Those that are there, the last one that has room, and the same again in the same batch.
    let keys: Vec<u32> = (0..9).chain([9, 9, 9]).chain(0..9).collect();
    let all = keys.iter().map(|key| journal.defer(call("ship", key).key(key.to_string())));
    let guids = futures_util::future::join_all(all).await;
    assert!(guids.iter().all(Result::is_ok), "{guids:?}");
    assert_eq!(place.count("status = 0"), 10);
    let full = ["10", "10", "0"].map(|key| journal.defer(call("ship", 0).key(key)));
    let answers = futures_util::future::join_all(full).await;
    assert_eq!(
        answers.into_iter().map(|answer| answer.map_err(bound).is_ok()).collect::<Vec<_>>(),
        [false, false, true]
    );
}

async fn several_processes_exceed_a_bound_by_a_batch_each_at_most(place: &Place) {
    let mut crowd = Vec::new();
    for _ in 0..3 {
        let journal = place.open(Journal::builder().pending_max(200)).await.unwrap();
        crowd.extend((0..300).map(|nth| {
            let journal = journal.clone();
            tokio::spawn(async move { journal.defer(call("ship", nth)).await.is_ok() })
        }));
    }
    let mut recorded = 0;
    for caller in crowd {
        recorded += u64::from(caller.await.unwrap());
    }
    assert_eq!(place.count("status = 0"), recorded);
    // A batch is what waited here at once, at most 300 of each of the two others.
    let most = if place.is_sqlite() { 200 } else { 800 };
    assert!((200..=most).contains(&recorded), "{recorded}");
    let journal = place.open(Journal::builder().pending_max(200)).await.unwrap();
    bound(journal.defer(call("ship", 0)).await.unwrap_err());
}

async fn counts_are_set_right_after_others_wrote_into_the_table(place: &Place) {
    let journal = place.journal().await;
    journal.defer(call("ship", 1)).await.unwrap();
    place.sql(
        "INSERT INTO t_method_limit_log (guid, method_name, method_params, status, create_time, update_time)
               SELECT 'by hand', 'bill', '1', 0, create_time, update_time FROM t_method_limit_log",
    );
    assert_eq!(journal.stats().await.unwrap().pending, 1, "not known yet");
    let pass = worker(&journal)
        .on("ship", |_: u32| async { Ok::<_, JobError>(()) })
        .on("bill", |_: u32| async { Ok::<_, JobError>(()) })
        .run_once()
        .await
        .unwrap();
    assert_eq!(pass.done, 2, "what others wrote is replayed like the rest");
    assert_eq!(journal.stats().await.unwrap().pending, 0, "and the pass has counted it first");
    journal.defer(call("bill", 1)).await.unwrap();
    assert_eq!(journal.stats().await.unwrap().methods["bill"].pending, 1);
}

#[test]
fn counts_that_two_set_right_at_once_are_set_right_once() {
    crate::place::run(&Place::postgres(), async |place: &Place| {
        let journals = [place.journal().await, place.journal().await, place.journal().await];
        for round in 0..20 {
            place.sql(&format!(
                "INSERT INTO t_method_limit_log (guid, method_name, method_params)
                 SELECT 'by hand {round}-' || i, 'bill', '1' FROM generate_series(1, 2000) i"
            ));
            // Each pass begins with a count.
            let passes = journals.iter().map(|journal| async { worker(journal).run_once().await.unwrap() });
            futures_util::future::join_all(passes).await;
            assert_eq!(journals[0].stats().await.unwrap().pending, 2_000 * (round + 1));
        }
    });
}

#[test]
fn a_queue_of_callers_that_is_full_refuses_at_once() {
    crate::place::run(&Place::sqlite(), async |place: &Place| {
        let journal = place.open(Journal::builder().queue_max(4)).await.unwrap();
        // Somebody else writes for a while, so that nobody's commit gets through.
        let other = rusqlite::Connection::open(place.path()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let waiting: Vec<_> = (0..40)
            .map(|nth| {
                let journal = journal.clone();
                tokio::spawn(async move { journal.defer(call("ship", nth)).await })
            })
            .collect();
        crate::place::until("somebody is refused", async || {
            (journal.stats().await.unwrap().refused > 0).then_some(())
        })
        .await;
        other.execute_batch("COMMIT").unwrap();
        let mut recorded = 0;
        for one in waiting {
            match one.await.unwrap() {
                Ok(_) => recorded += 1,
                Err(error) => assert_eq!(bound(error), Bound::Queue { max: 4 }),
            }
        }
        assert_eq!(place.count("1 = 1"), recorded);
        assert!((1..40).contains(&recorded), "{recorded}");
    });
}
