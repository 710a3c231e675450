//! Records as their callers see them: recorded, found, waited for, cancelled, tried again.

use crate::place::{PATIENCE, Place, call, end, status, until, worker};
use std::time::Duration;
use tidegate_journal::{Cancelled, DeferError, Filter, Guid, JobError, Journal, Page, Retried, Status};

on_both! {
    a_record_is_there_when_defer_returns_and_survives_its_journal,
    the_same_key_gives_the_first_guid_and_another_method_another,
    a_thousand_callers_at_once_each_get_a_record_of_their_own,
    one_caller_with_more_calls_than_may_wait_is_answered_for_each_in_order,
    one_caller_with_many_calls_gets_them_through_a_small_queue,
    a_crowd_with_one_key_makes_one_record,
    a_record_that_is_marked_as_deleted_owns_no_key,
    a_key_is_free_again_once_its_record_failed_expired_or_was_cancelled,
    a_crowd_with_the_key_of_a_failed_record_makes_one_record,
    a_record_whose_key_is_another_s_by_now_is_not_tried_again,
    a_second_try_and_a_new_call_at_once_leave_the_key_to_one_of_them,
    what_nobody_recorded_is_unknown,
    a_pending_record_is_cancelled_for_good,
    an_ended_record_cannot_be_cancelled,
    failed_expired_and_cancelled_records_can_be_tried_again_and_done_ones_not,
    waiting_ends_with_the_record_or_with_the_patience,
    waiting_sees_what_another_process_ends,
    lists_come_in_pages_the_newest_first,
    statistics_tell_depth_and_age,
    what_is_printed_for_a_log_has_nothing_private,
}

async fn a_record_is_there_when_defer_returns_and_survives_its_journal(place: &Place) {
    let journal = place.journal().await;
    let params = serde_json::json!({ "task": "täsk 7", "type": 3, "nested": [1.5, null, true] });
    let guid = journal.defer(call("cancel_task", &params).priority(7)).await.unwrap();
    let row =
        place.sql("SELECT guid, method_name, status, is_delete, attempts, priority FROM t_method_limit_log");
    let no = if place.is_sqlite() { "0" } else { "f" };
    assert_eq!(row, format!("{guid}|cancel_task|0|{no}|0|7"));
    drop(journal);
    let record = place.journal().await.find(&guid).await.unwrap().unwrap();
    assert_eq!(record.status, Status::Pending);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&record.params).unwrap(), params);
    assert_eq!((record.method.as_deref(), record.priority, record.attempts), (Some("cancel_task"), 7, 0));
    assert!(record.deadline.is_none() && record.result.is_none() && record.lease_owner.is_none());
}

async fn the_same_key_gives_the_first_guid_and_another_method_another(place: &Place) {
    let journal = place.journal().await;
    let first = journal.defer(call("ship", 1).key("17")).await.unwrap();
    assert_eq!(journal.defer(call("ship", 2).key("17")).await.unwrap(), first);
    assert_ne!(journal.defer(call("bill", 1).key("17")).await.unwrap(), first);
    assert_ne!(journal.defer(call("ship", 1).key("18")).await.unwrap(), first);
    assert_ne!(journal.defer(call("ship", 1)).await.unwrap(), first);
    let stats = journal.stats().await.unwrap();
    assert_eq!((stats.deferred, stats.repeated, stats.pending), (4, 1, 4));
    // Also once it has ended, for as long as it is kept.
    worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) }).run_once().await.unwrap();
    assert_eq!(journal.defer(call("ship", 3).key("17")).await.unwrap(), first);
    assert_eq!(status(&journal, &first).await, Status::Done);
}

async fn a_thousand_callers_at_once_each_get_a_record_of_their_own(place: &Place) {
    let journal = place.journal().await;
    let callers: Vec<_> = (0..1_000u32)
        .map(|nth| {
            let journal = journal.clone();
            tokio::spawn(async move { (nth, journal.defer(call("count", nth)).await.unwrap()) })
        })
        .collect();
    let mut guids = std::collections::HashSet::new();
    for caller in callers {
        let (nth, guid) = caller.await.unwrap();
        assert_eq!(journal.find(&guid).await.unwrap().unwrap().params, nth.to_string());
        assert!(guids.insert(guid));
    }
    assert_eq!(place.count("status = 0"), 1_000);
    assert_eq!(journal.stats().await.unwrap().pending, 1_000);
}

async fn one_caller_with_more_calls_than_may_wait_is_answered_for_each_in_order(place: &Place) {
    const CALLS: usize = 25_000;
    let journal = place.journal().await;
    let calls = (0..CALLS).map(|nth| match nth {
        12_345 => call("count", nth).key(""),
        20_000 | 20_001 => call("count", nth).key("twice"),
        _ => call("count", nth),
    });
    let calls: Vec<_> = calls.collect();
    // Spawned, as a program would: the future can go to another thread.
    let other = journal.clone();
    let deferred = tokio::spawn(async move { other.defer_all(calls).await }).await.unwrap();
    assert_eq!(deferred.len(), CALLS);
    assert!(matches!(deferred[12_345], Err(DeferError::Call(_))), "{:?}", deferred[12_345]);
    let rows = place.sql("SELECT guid, method_params FROM t_method_limit_log");
    let recorded: std::collections::HashMap<&str, usize> = rows
        .lines()
        .map(|row| row.split_once('|').unwrap())
        .map(|(guid, nth)| (guid, nth.parse().unwrap()))
        .collect();
    assert_eq!(recorded.len(), CALLS - 2);
    for (nth, guid) in deferred.iter().enumerate().filter(|(nth, _)| *nth != 12_345) {
        let expected = if nth == 20_001 { 20_000 } else { nth };
        assert_eq!(recorded[guid.as_ref().unwrap().as_str()], expected);
    }
    let stats = journal.stats().await.unwrap();
    assert_eq!((stats.pending, stats.deferred, stats.repeated, stats.refused), (24_998, 24_998, 1, 0));
    assert!(journal.defer_all([]).await.is_empty());
}

async fn one_caller_with_many_calls_gets_them_through_a_small_queue(place: &Place) {
    for (callers, calls) in [(1, 20), (4, 100)] {
        let journal = place.open(Journal::builder().queue_max(callers)).await.unwrap();
        // Two at once share what there is.
        let all = || journal.defer_all((0..calls).map(|nth| call("count", nth)));
        let (one, other) = tokio::join!(all(), all());
        assert!(one.iter().chain(&other).all(Result::is_ok), "{one:?}, {other:?}");
    }
    assert_eq!(place.count("status = 0"), 240);
}

async fn a_crowd_with_one_key_makes_one_record(place: &Place) {
    let (one, other) = (place.journal().await, place.journal().await);
    let callers: Vec<_> = (0..200)
        .map(|nth| {
            let journal = if nth % 2 == 0 { one.clone() } else { other.clone() };
            tokio::spawn(async move { journal.defer(call("ship", nth).key("the one")).await.unwrap() })
        })
        .collect();
    let mut guids = std::collections::HashSet::new();
    for caller in callers {
        guids.insert(caller.await.unwrap());
    }
    assert_eq!((guids.len(), place.count("1 = 1")), (1, 1));
    assert_eq!(one.stats().await.unwrap().pending, 1);
}

async fn a_record_that_is_marked_as_deleted_owns_no_key(place: &Place) {
    let journal = place.journal().await;
    for ends in [false, true] {
        let first = journal.defer(call("ship", 1).key("17")).await.unwrap();
        if ends {
            worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) }).run_once().await.unwrap();
        }
        place.sql("UPDATE t_method_limit_log SET is_delete = true");
        let second = journal.defer(call("ship", 2).key("17")).await.unwrap();
        assert_ne!(second, first);
        assert_eq!(status(&journal, &second).await, Status::Pending);
        place.sql("UPDATE t_method_limit_log SET is_delete = true");
    }
}

/// A record under this key that failed, one that expired, and one that was cancelled.
async fn ended_in_vain(journal: &Journal, key: &str) -> [Guid; 3] {
    let fails = || worker(journal).on("ship", |_: u32| async { Err::<(), _>(JobError::permanent("no")) });
    let failed = journal.defer(call("ship", 1).key(key)).await.unwrap();
    fails().run_once().await.unwrap();
    let expired = journal.defer(call("ship", 2).key(key).deadline_in(Duration::ZERO)).await.unwrap();
    fails().run_once().await.unwrap();
    let cancelled = journal.defer(call("ship", 3).key(key)).await.unwrap();
    journal.cancel(&cancelled).await.unwrap();
    [failed, expired, cancelled]
}

async fn a_key_is_free_again_once_its_record_failed_expired_or_was_cancelled(place: &Place) {
    let journal = place.journal().await;
    let [failed, expired, cancelled] = ended_in_vain(&journal, "17").await;
    assert_eq!(status(&journal, &failed).await, Status::Failed);
    assert_eq!(status(&journal, &expired).await, Status::Expired);
    assert_eq!(status(&journal, &cancelled).await, Status::Cancelled);
    assert_eq!(journal.find(&failed).await.unwrap().unwrap().key.as_deref(), Some("17"), "its history stays");
    let last = journal.defer(call("ship", 4).key("17")).await.unwrap();
    assert_eq!(
        journal.defer(call("ship", 5).key("17")).await.unwrap(),
        last,
        "one that waits answers for it"
    );
    worker(&journal).on("ship", |n: u32| async move { Ok::<_, JobError>(n) }).run_once().await.unwrap();
    assert_eq!(journal.find(&last).await.unwrap().unwrap().result.as_deref(), Some("4"));
    assert_eq!(journal.defer(call("ship", 6).key("17")).await.unwrap(), last, "and one that is done");
    assert_eq!((place.count("1 = 1"), journal.stats().await.unwrap().pending), (4, 0));
}

async fn a_crowd_with_the_key_of_a_failed_record_makes_one_record(place: &Place) {
    let (one, other) = (place.journal().await, place.journal().await);
    ended_in_vain(&one, "the one").await;
    let callers: Vec<_> = (0..200)
        .map(|nth| {
            let journal = if nth % 2 == 0 { one.clone() } else { other.clone() };
            tokio::spawn(async move { journal.defer(call("ship", nth).key("the one")).await.unwrap() })
        })
        .collect();
    let mut guids = std::collections::HashSet::new();
    for caller in callers {
        guids.insert(caller.await.unwrap());
    }
    assert_eq!((guids.len(), place.count("status = 0"), place.count("1 = 1")), (1, 1, 4));
    assert_eq!(one.stats().await.unwrap().pending, 1);
}

async fn a_record_whose_key_is_another_s_by_now_is_not_tried_again(place: &Place) {
    let journal = place.journal().await;
    let old = ended_in_vain(&journal, "17").await;
    let live = journal.defer(call("ship", 4).key("17")).await.unwrap();
    for guid in &old {
        assert_eq!(journal.retry(guid).await.unwrap(), Retried::Superseded);
    }
    worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) }).run_once().await.unwrap();
    assert_eq!(journal.retry(&old[0]).await.unwrap(), Retried::Superseded, "done holds it too");
    assert_eq!(status(&journal, &live).await, Status::Done);
    // Nobody's any more: the first who asks gets it.
    place.sql(&format!("DELETE FROM t_method_limit_log WHERE guid = '{live}'"));
    assert_eq!(journal.retry(&old[0]).await.unwrap(), Retried::Pending);
    assert_eq!(journal.retry(&old[1]).await.unwrap(), Retried::Superseded);
    assert_eq!(journal.defer(call("ship", 5).key("17")).await.unwrap(), old[0]);
    assert_eq!(journal.stats().await.unwrap().pending, 1);
}

async fn a_second_try_and_a_new_call_at_once_leave_the_key_to_one_of_them(place: &Place) {
    let (one, other) = (place.journal().await, place.journal().await);
    for round in 0..20 {
        let key = round.to_string();
        let old = one.defer(call("ship", 1).key(&key)).await.unwrap();
        one.cancel(&old).await.unwrap();
        let (retried, new) = tokio::join!(one.retry(&old), other.defer(call("ship", 2).key(&key)));
        let is_retried = retried.unwrap() == Retried::Pending;
        assert_eq!(new.unwrap() == old, is_retried);
        assert_eq!(place.count(&format!("status = 0 AND idempotency_key = '{key}'")), 1);
    }
    assert_eq!(one.stats().await.unwrap().pending, 20);
}

async fn what_nobody_recorded_is_unknown(place: &Place) {
    let journal = place.journal().await;
    let guid: Guid = "0190f3a2b4c87d1e8f00112233445566".parse().unwrap();
    assert_eq!(journal.status(&guid).await.unwrap(), None);
    assert!(journal.wait(&guid, PATIENCE).await.unwrap().is_none());
    assert_eq!(journal.cancel(&guid).await.unwrap(), Cancelled::Unknown);
    assert_eq!(journal.retry(&guid).await.unwrap(), Retried::Unknown);
    let refused = journal.defer(call("m", ()).key("")).await.unwrap_err();
    assert!(matches!(refused, DeferError::Call(_)), "{refused}");
}

async fn a_pending_record_is_cancelled_for_good(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1)).await.unwrap();
    assert_eq!(journal.cancel(&guid).await.unwrap(), Cancelled::Pending);
    assert_eq!(journal.cancel(&guid).await.unwrap(), Cancelled::AlreadyEnded(Status::Cancelled));
    let pass =
        worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(()) }).run_once().await.unwrap();
    assert_eq!(pass.picked, 0);
    assert_eq!(place.sql("SELECT status FROM t_method_limit_log"), "4");
    assert_eq!(journal.stats().await.unwrap().pending, 0);
}

async fn an_ended_record_cannot_be_cancelled(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1)).await.unwrap();
    worker(&journal).on("ship", |_: u32| async { Ok::<_, JobError>(7) }).run_once().await.unwrap();
    assert_eq!(journal.cancel(&guid).await.unwrap(), Cancelled::AlreadyEnded(Status::Done));
    assert_eq!(journal.find(&guid).await.unwrap().unwrap().result.as_deref(), Some("7"));
}

async fn failed_expired_and_cancelled_records_can_be_tried_again_and_done_ones_not(place: &Place) {
    let journal = place.journal().await;
    let failed = journal.defer(call("ship", 0)).await.unwrap();
    let expired = journal.defer(call("ship", 1).deadline_in(Duration::ZERO)).await.unwrap();
    let cancelled = journal.defer(call("ship", 1)).await.unwrap();
    journal.cancel(&cancelled).await.unwrap();
    let ship = |ok: bool| {
        move |n: u32| async move { if n > 0 || ok { Ok(n) } else { Err(JobError::permanent("none of it")) } }
    };
    let pass = worker(&journal).on("ship", ship(false)).run_once().await.unwrap();
    assert_eq!((pass.picked, pass.failed, pass.expired), (1, 1, 1));
    assert_eq!(status(&journal, &expired).await, Status::Expired);
    assert_eq!(journal.retry(&failed).await.unwrap(), Retried::Pending);
    assert_eq!(journal.retry(&expired).await.unwrap(), Retried::Pending);
    assert_eq!(journal.retry(&cancelled).await.unwrap(), Retried::Pending);
    assert_eq!(journal.retry(&cancelled).await.unwrap(), Retried::Refused(Status::Pending));
    assert_eq!(journal.stats().await.unwrap().pending, 3);
    let pass = worker(&journal).on("ship", ship(true)).run_once().await.unwrap();
    assert_eq!((pass.picked, pass.done), (3, 3));
    assert_eq!(journal.retry(&failed).await.unwrap(), Retried::Refused(Status::Done));
    assert_eq!(journal.stats().await.unwrap().pending, 0);
}

async fn waiting_ends_with_the_record_or_with_the_patience(place: &Place) {
    let journal = place.journal().await;
    let guid = journal.defer(call("ship", 1)).await.unwrap();
    let record = journal.wait(&guid, Duration::from_millis(5)).await.unwrap().unwrap();
    assert_eq!(record.status, Status::Pending);
    let waiting = {
        let (journal, guid) = (journal.clone(), guid.clone());
        tokio::spawn(async move { end(&journal, &guid).await })
    };
    let running = worker(&journal).on("ship", |n: u32| async move { Ok::<_, JobError>(n + 1) }).start();
    let record = waiting.await.unwrap();
    assert_eq!((record.status, record.result.as_deref()), (Status::Done, Some("2")));
    running.stop().await;
}

async fn waiting_sees_what_another_process_ends(place: &Place) {
    let (here, there) = (place.journal().await, place.journal().await);
    let guid = here.defer(call("ship", 1)).await.unwrap();
    let waiting = {
        let guid = guid.clone();
        tokio::spawn(async move { end(&here, &guid).await.status })
    };
    there.cancel(&guid).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Status::Cancelled);
}

async fn lists_come_in_pages_the_newest_first(place: &Place) {
    let journal = place.journal().await;
    let mut guids = Vec::new();
    for nth in 0..7 {
        guids.push(journal.defer(call(if nth % 2 == 0 { "even" } else { "odd" }, nth)).await.unwrap());
    }
    guids.reverse();
    journal.cancel(&guids[2]).await.unwrap();
    let mut seen = Vec::new();
    let mut page = Page::first(3);
    loop {
        let records = journal.list(Filter::all(), page).await.unwrap();
        let Some(last) = records.last() else { break };
        assert!(records.len() <= 3);
        page = Page::after(3, last);
        seen.extend(records.into_iter().map(|record| record.guid));
    }
    assert_eq!(seen, guids);
    let few =
        journal.list(Filter::all().status(Status::Pending).method("even"), Page::first(9)).await.unwrap();
    let few: Vec<_> = few.into_iter().map(|record| record.guid).collect();
    assert_eq!(few, [guids[0].clone(), guids[4].clone(), guids[6].clone()]);
    assert_eq!(journal.list(Filter::all().status(Status::Cancelled), Page::first(9)).await.unwrap().len(), 1);
    assert!(journal.list(Filter::all().status(Status::Running), Page::first(9)).await.unwrap().is_empty());
}

async fn statistics_tell_depth_and_age(place: &Place) {
    let journal = place.journal().await;
    for nth in 0..3 {
        journal.defer(call("ship", nth)).await.unwrap();
    }
    journal.defer(call("later", 0).delay(Duration::from_secs(3_600))).await.unwrap();
    place.age(&["next_time"], Duration::from_secs(100));
    let stats = journal.stats().await.unwrap();
    assert_eq!((stats.pending, stats.methods["ship"].pending, stats.methods["later"].pending), (4, 3, 1));
    assert!(stats.overdue.unwrap() >= Duration::from_secs(100));
    assert_eq!(stats.methods["later"].overdue, None);
    // Tried again and again, and old all the same.
    let again = |_: u32| async { Err::<(), _>(JobError::retry("not yet")) };
    let worker = worker(&journal).backoff(Duration::from_secs(3_600), Duration::from_secs(3_600));
    place.age(&["create_time"], Duration::from_secs(1_000));
    journal.defer(call("later", 1).delay(Duration::from_secs(3_600))).await.unwrap();
    worker.on("ship", again).run_once().await.unwrap();
    let stats = journal.stats().await.unwrap();
    let about = Duration::from_secs(1_000)..Duration::from_secs(1_600);
    assert!(about.contains(&stats.oldest.unwrap()) && about.contains(&stats.methods["ship"].oldest.unwrap()));
    assert!(about.contains(&stats.methods["later"].oldest.unwrap()), "{stats:?}");
    assert_eq!(place.journal().await.stats().await.unwrap().methods["ship"].pending, 3);
}

async fn what_is_printed_for_a_log_has_nothing_private(place: &Place) {
    let journal = place.journal().await;
    let secret = call("ship", "4111-1111").key("key of 4111-1111");
    let mut told = format!("{secret:?}");
    let guid = journal.defer(secret).await.unwrap();
    let (tell, replays) = std::sync::mpsc::channel();
    let worker = worker(&journal).on_replay("ship", move |replay, text: String| {
        tell.send(format!("{replay:?}")).unwrap();
        async move { if replay.attempt == 1 { Err(JobError::retry(text)) } else { Ok(text) } }
    });
    let running = worker.start();
    told += &format!("{:?}", end(&journal, &guid).await);
    running.stop().await;
    told.extend(replays.try_iter());
    assert!(told.contains("Call {") && told.contains("Record {") && told.contains("Replay {"), "{told}");
    assert!(!told.contains("4111"), "{told}");
}

/// Each waited for a key that the other had just written, until the server ended one of them.
#[test]
fn batches_that_share_keys_in_opposite_orders_do_not_wait_for_each_other() {
    crate::place::run(&Place::postgres(), async |place: &Place| {
        let journals = [place.journal().await, place.journal().await];
        for round in 0..10 {
            let batch = async |journal: &Journal, nths: Vec<u32>| {
                let calls = nths.into_iter().map(|nth| call("ship", nth).key(format!("{round}-{nth}")));
                let calls: Vec<_> = calls.map(|call| journal.defer(call)).collect();
                futures_util::future::join_all(calls).await
            };
            let (one, mut other) = tokio::join!(
                batch(&journals[0], (0..500).collect()),
                batch(&journals[1], (0..500).rev().collect())
            );
            other.reverse();
            for (one, other) in one.into_iter().zip(other) {
                assert_eq!(one.unwrap(), other.unwrap());
            }
        }
        assert_eq!(place.count("1 = 1"), 5_000);
        drop(journals);
        // What a connection counted is told when it ends, at the latest.
        let connections = "SELECT count(*) FROM pg_stat_activity
                           WHERE datname = current_database() AND application_name = 'tidegate-journal'";
        until("they are closed", async || (place.sql(connections) == "0").then_some(())).await;
        let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        assert_eq!(place.sql(deadlocks), "0");
    });
}
