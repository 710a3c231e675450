//! `retry`, `cancel` and `purge`: what they do, and what they say they did.

use crate::place::{Place, call};
use serde_json::json;
use std::time::Duration;
use tidegate_journal::{Guid, Status};

on_both! {
    retry_makes_pending_what_failed_and_refuses_the_rest,
    cancel_ends_what_is_pending_and_refuses_the_rest,
    purge_removes_what_ended_long_ago_and_nothing_else,
    what_was_asked_for_is_done_also_where_nobody_reads_what_came_of_it,
}

fn retry_makes_pending_what_failed_and_refuses_the_rest(place: &Place) {
    let failed = place.failed(call("ship", 1), "no");
    let pending = place.defer(call("ship", 2));
    let told = place.run(&["retry", pending.as_str(), failed.as_str(), "nobody"]);
    assert_eq!(told.code, 1, "not all were done: {told:?}");
    let lines: Vec<&str> = told.out.lines().collect();
    assert!(lines[0].starts_with(&format!("{pending}  not tried again: it is pending")), "{told:?}");
    assert_eq!(lines[1], format!("{failed}  pending again"));
    assert_eq!(lines[2], "nobody  there is no such record (any more)");
    assert_eq!(place.find(&failed).status, Status::Pending);
    let again = place.failed(call("ship", 3), "no");
    assert_eq!(
        place.json(&["retry", again.as_str()]),
        [json!({"guid": again, "done": true, "outcome": "pending again"})]
    );
    assert_eq!(place.run(&["retry"]).code, 2, "which?");
}

fn cancel_ends_what_is_pending_and_refuses_the_rest(place: &Place) {
    let failed = place.failed(call("ship", 1), "no");
    let guids = [place.defer(call("ship", 2)), place.defer(call("ship", 3))];
    let out = place.ok(&["cancel", guids[0].as_str(), guids[1].as_str()]);
    assert_eq!(out, format!("{}  cancelled\n{}  cancelled\n", guids[0], guids[1]));
    assert!(guids.iter().all(|guid| place.find(guid).status == Status::Cancelled));
    let told = place.run(&["cancel", "--json", failed.as_str(), guids[0].as_str(), "nobody"]);
    assert_eq!(told.code, 1);
    let done: Vec<_> = crate::place::lines(&told.out).into_iter().map(|line| line["done"].clone()).collect();
    assert_eq!(done, [false, false, false]);
    assert!(
        told.out.contains("not cancelled: it is failed") && told.out.contains("it is cancelled"),
        "{told:?}"
    );
}

fn purge_removes_what_ended_long_ago_and_nothing_else(place: &Place) {
    let pending = place.defer(call("ship", 0));
    for nth in 0..3 {
        place.failed(call("bill", nth), "no");
    }
    assert_eq!(place.ok(&["purge"]), "purged 0\n", "they ended today");
    assert_eq!(place.ok(&["purge", "--older-than", "1h 30m"]), "purged 0\n");
    assert_eq!(place.json(&["purge", "--older-than", "0s"]), [json!({"purged": 3})]);
    assert_eq!(place.json(&["list"]).len(), 1);
    assert_eq!(place.find(&pending).status, Status::Pending);
    // Overdue, but nobody has ended it: a purge does not.
    let late = place.defer(call("ship", 1).deadline_in(Duration::ZERO));
    assert_eq!(place.ok(&["purge", "--older-than", "0s"]), "purged 0\n");
    assert_eq!(place.find(&late).status, Status::Pending);
    for wrong in ["soon", "", "1 fortnight"] {
        let told = place.run(&["purge", "--older-than", wrong]);
        assert!(told.code == 2 && told.err.contains("--older-than"), "{told:?}");
    }
}

fn what_was_asked_for_is_done_also_where_nobody_reads_what_came_of_it(place: &Place) {
    let guids: Vec<_> = (0..3).map(|nth| place.defer(call("ship", nth))).collect();
    let cancel = |more: &[&str]| {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let all: Vec<&str> = guids.iter().map(Guid::as_str).chain(more.iter().copied()).collect();
        place.command(&[&["cancel"], &all[..]].concat()).stdout(writer).status().unwrap().code()
    };
    assert_eq!(cancel(&[]), Some(0), "all were done");
    assert!(guids.iter().all(|guid| place.find(guid).status == Status::Cancelled));
    assert_eq!(cancel(&["nobody"]), Some(1), "none was");
}

#[test]
fn what_another_program_named_is_shown_tried_again_and_cancelled() {
    let place = Place::sqlite();
    let other = rusqlite::Connection::open(&place.option[1]).unwrap();
    for name in ["0190f3a2-b4c8-7d1e-8f00-112233445566", "order 17"] {
        let sql =
            "INSERT INTO t_method_limit_log (guid, method_name, method_params, create_time, update_time)
                   VALUES (?1, 'ship', '1', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)";
        other.execute(sql, [name]).unwrap();
        assert!(place.ok(&["show", name]).contains(name));
        assert_eq!(place.ok(&["cancel", name]), format!("{name}  cancelled\n"));
        assert_eq!(place.ok(&["retry", name]), format!("{name}  pending again\n"));
    }
}
