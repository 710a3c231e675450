//! `list` and `show`: the right records, in the right order, for people and for programs.

use crate::place::{PATIENCE, Place, call, lines};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _};
use std::time::Duration;
use testkit::servers::wait_until;
use tidegate_journal::{Guid, JobError, Worker};

on_both! {
    a_list_tells_what_people_ask_for,
    a_list_for_programs_has_one_object_a_line,
    lists_are_filtered_by_status_and_method,
    pages_follow_each_other_and_miss_nothing,
    a_long_list_comes_whole_and_a_reader_may_leave_early,
    a_running_record_is_told_from_a_pending_one,
    one_record_is_shown_whole,
    a_status_and_a_method_that_others_wrote_are_shown_as_they_are,
    a_record_that_is_not_there_is_told,
}

fn guids(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| record["guid"].as_str().unwrap()).collect()
}

fn a_list_tells_what_people_ask_for(place: &Place) {
    let told = place.run(&["list"]);
    assert_eq!((told.code, told.out.as_str(), told.err.as_str()), (0, "", "no records\n"));
    let failed = place.failed(call("ship", 1), "the courier is ill\nand so is the other");
    let pending = place.defer(call("cancel_task", 1));
    let out = place.ok(&["list"]);
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["GUID", "METHOD", "STATUS", "TRIES", "AGE", "NEXT", "LAST", "ERROR"]);
    assert_eq!(rows[1][..4], [pending.as_str(), "cancel_task", "pending", "0"]);
    assert_eq!(rows[2][..4], [failed.as_str(), "ship", "failed", "1"]);
    assert!(out.contains(r"the courier is ill\nand so is the other"), "{out}");
    assert!(!out.contains('\x1b'), "no colour in a pipe: {out:?}");
}

fn a_list_for_programs_has_one_object_a_line(place: &Place) {
    assert_eq!(place.json(&["list"]), Vec::<Value>::new());
    let guid = place.failed(call("ship", json!({"to": [1, 2]})).key("k-1").priority(7), "no");
    let [record] = &place.json(&["list"])[..] else { panic!("one record") };
    let names = [
        "guid",
        "method",
        "status",
        "attempts",
        "priority",
        "create_time",
        "update_time",
        "next_time",
        "deadline",
        "lease_owner",
        "last_error",
    ];
    let expected: BTreeSet<&str> = names.into();
    assert_eq!(record.as_object().unwrap().keys().map(String::as_str).collect::<BTreeSet<_>>(), expected);
    assert_eq!(record["guid"], guid.as_str());
    assert_eq!((&record["status"], &record["attempts"]), (&json!("failed"), &json!(1)));
    assert_eq!((&record["priority"], &record["last_error"]), (&json!(7), &json!("no")));
    assert_eq!((&record["next_time"], &record["deadline"]), (&Value::Null, &Value::Null));
    let time = humantime::parse_rfc3339(record["create_time"].as_str().unwrap()).unwrap();
    assert_eq!(time, place.find(&guid).create_time);
    let [record] = &place.json(&["list", "--params"])[..] else { panic!("one record") };
    assert_eq!(record["params"], json!({"to": [1, 2]}));
    assert_eq!((&record["key"], &record["result"]), (&json!("k-1"), &Value::Null));
}

fn lists_are_filtered_by_status_and_method(place: &Place) {
    let failed = place.failed(call("ship", 1), "no");
    let ship = place.defer(call("ship", 2));
    let bill = place.defer(call("bill", 2));
    let listed = |args: &[&str]| {
        let records = place.json(&[&["list"], args].concat());
        guids(&records).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(listed(&["--status", "failed"]), [failed.as_str()]);
    assert_eq!(listed(&["--status", "pending"]), [bill.as_str(), ship.as_str()]);
    assert_eq!(listed(&["--method", "ship"]), [ship.as_str(), failed.as_str()]);
    assert_eq!(listed(&["--method", "ship", "--status", "pending"]), [ship.as_str()]);
    assert_eq!(listed(&["--method", "nobody's"]), [""; 0]);
    let told = place.run(&["list", "--status", "lost"]);
    assert_eq!(told.code, 2);
    assert!(told.err.contains("pending, running, done, failed, expired, cancelled"), "{told:?}");
}

fn pages_follow_each_other_and_miss_nothing(place: &Place) {
    let all: Vec<Guid> = (0..5).map(|nth| place.defer(call("ship", nth))).collect();
    let newest_first: Vec<&str> = all.iter().rev().map(Guid::as_str).collect();
    let mut seen: Vec<String> = Vec::new();
    let mut after: Vec<String> = Vec::new();
    loop {
        let args: Vec<&str> =
            ["list", "--limit", "2"].into_iter().chain(after.iter().map(String::as_str)).collect();
        let told = place.run(&args);
        seen.extend(told.out.lines().skip(1).map(|line| line.split(' ').next().unwrap().to_owned()));
        // What it says is what one has to type.
        let Some(next) = told.err.trim_end().strip_prefix("there are more: ") else { break };
        after = next.split(' ').map(str::to_owned).collect();
    }
    assert_eq!(seen, newest_first);
    let told = place.run(&["list", "--after", "nobody"]);
    assert_eq!(told.code, 1);
    assert!(told.err.contains("there is no record nobody"), "{told:?}");
    for wrong in ["0", "-1", "many"] {
        assert_eq!(place.run(&["list", "--limit", wrong]).code, 2, "{wrong}");
    }
    let told = place.run(&["list", "--limit", "20000"]);
    assert!(told.code == 2 && told.err.contains("--json"), "{told:?}");
}

fn a_long_list_comes_whole_and_a_reader_may_leave_early(place: &Place) {
    let all = place.defer_all((0..2_100).map(|nth| call("ship", nth)));
    let all: BTreeSet<&str> = all.iter().map(Guid::as_str).collect();
    let records = place.json(&["list", "--limit", "5000"]);
    assert_eq!((records.len(), guids(&records).into_iter().collect()), (2_100, all));
    // Who takes a part for the whole would act on too few.
    let told = place.run(&["list", "--limit", "1999", "--json"]);
    let records = lines(&told.out);
    let last = records.last().unwrap()["guid"].as_str().unwrap();
    assert_eq!((told.code, records.len()), (0, 1_999));
    assert_eq!(told.err, format!("there are more: --after {last}\n"));
    let mut child = place.start(&["list", "--limit", "5000", "--json"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(lines(&line).len(), 1);
    wait_until("the program ends", PATIENCE, || child.try_wait().unwrap().is_some());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""), "as `| head -1` does");
}

fn a_running_record_is_told_from_a_pending_one(place: &Place) {
    let guid = place.defer(call("ship", 1));
    let other = place.defer(call("other", 1));
    let running = place.runtime.block_on(async {
        Worker::new(&place.journal)
            .grace(Duration::ZERO)
            .name("worker-7")
            .on("ship", |_: u32| std::future::pending::<Result<(), JobError>>())
            .start()
    });
    wait_until("it runs", PATIENCE, || place.ok(&["list", "--status", "running"]).contains(guid.as_str()));
    let [record] = &place.json(&["list", "--status", "running"])[..] else { panic!("one runs") };
    assert_eq!((&record["guid"], &record["lease_owner"]), (&json!(guid), &json!("worker-7")));
    assert!(place.ok(&["show", guid.as_str()]).contains("running"));
    assert_eq!(guids(&place.json(&["list", "--status", "pending"])), [other.as_str()]);
    let told = place.run(&["cancel", guid.as_str()]);
    assert_eq!(told.code, 0);
    assert!(told.out.contains("cancelled while it ran"), "{told:?}");
    place.runtime.block_on(running.stop());
}

fn one_record_is_shown_whole(place: &Place) {
    let guid = place.defer(call("ship", json!({"to": "x"})).deadline_in(Duration::from_secs(7_000)));
    let out = place.ok(&["show", guid.as_str()]);
    let names: Vec<&str> = out.lines().map(|line| line.split("  ").next().unwrap()).collect();
    let expected = [
        "guid",
        "method",
        "status",
        "attempts",
        "priority",
        "created",
        "changed",
        "next",
        "deadline",
        "worker",
        "last error",
        "key",
        "params",
        "result",
    ];
    assert_eq!(names, expected);
    assert!(out.contains("(in 116m)") && out.contains("--params shows them"), "{out}");
    assert!(place.ok(&["show", guid.as_str(), "--show-params"]).contains(r#""x""#));
    assert_eq!(place.json(&["show", guid.as_str(), "--params"]), place.json(&["list", "--params"]));
}

fn a_status_and_a_method_that_others_wrote_are_shown_as_they_are(place: &Place) {
    let guid = place.defer(call("ship", 1));
    place.sql("UPDATE t_method_limit_log SET status = 7, method_name = ''");
    let out = place.ok(&["list"]);
    let row: Vec<&str> = out.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], [guid.as_str(), "\"\"", "7"]);
    let [record] = &place.json(&["list", "--status", "7"])[..] else { panic!("one record") };
    assert_eq!((&record["status"], &record["method"]), (&json!(7), &json!("")));
    assert_eq!(place.json(&["list", "--status", "failed"]), Vec::<Value>::new());
    assert_eq!(place.json(&["list", "--status", "-3"]), Vec::<Value>::new(), "a number may be negative");
    let told = place.run(&["cancel", guid.as_str()]);
    assert!(told.code == 1 && told.out.contains("not cancelled: it is 7"), "{told:?}");
    assert!(place.ok(&["retry", guid.as_str()]).contains("pending again"));
}

fn a_record_that_is_not_there_is_told(place: &Place) {
    let told = place.run(&["show", "0190f3a2b4c87d1e8f00112233445566"]);
    assert_eq!((told.code, told.out.as_str()), (1, ""));
    assert_eq!(told.err, "error: there is no record 0190f3a2b4c87d1e8f00112233445566 (any more)\n");
    let told = place.run(&["show", &"a".repeat(65)]);
    assert!(told.code == 2 && told.err.contains("a guid has 1 to 64 bytes"), "{told:?}");
}
