//! `run-once` as a pass: what it touches, what it counts, and how fast it may go.

use crate::place::{Place, call};
use serde_json::json;
use std::time::Duration;
use tidegate_journal::Status;

on_both! {
    without_commands_it_expires_and_purges_only,
    with_commands_it_replays_their_methods_and_counts_all_it_did,
    a_limit_holds_for_all_methods_together,
    several_passes_at_once_run_each_record_once,
}

fn without_commands_it_expires_and_purges_only(place: &Place) {
    let failed = place.failed(call("bill", 1), "no");
    let pending = place.defer(call("ship", 1));
    let late = place.defer(call("ship", 2).deadline_in(Duration::ZERO));
    assert_eq!(place.ok(&["run-once"]), "picked 0, done 0, failed 0, retried 0, expired 1, purged 0\n");
    assert_eq!(place.find(&late).status, Status::Expired);
    let pass = place.json(&["run-once", "--older-than", "0s"]);
    assert_eq!(pass, [json!({"picked": 0, "done": 0, "failed": 0, "retried": 0, "expired": 0, "purged": 2})]);
    let record = place.find(&pending);
    assert_eq!((record.status, record.attempts), (Status::Pending, 0));
    assert_eq!(place.run(&["show", failed.as_str()]).code, 1, "purged");
    for option in [["--limit", "1/s"], ["--concurrency", "2"], ["--timeout", "1s"], ["--max-attempts", "2"]] {
        let told = place.run(&[&["run-once"], &option[..]].concat());
        assert!(told.code == 2 && told.err.contains("--exec"), "{told:?}");
    }
}

fn with_commands_it_replays_their_methods_and_counts_all_it_did(place: &Place) {
    let done: Vec<_> = (0..5).map(|nth| place.defer(call("ship", nth))).collect();
    let failed = place.defer(call("bill", 1));
    let again = place.defer(call("mail", 1));
    let other = place.defer(call("other", 1));
    let later = place.defer(call("ship", 9).delay(Duration::from_secs(3_600)));
    place.defer(call("ship", 9).deadline_in(Duration::ZERO));
    let args = ["run-once", "--exec", "ship=true", "--exec", "bill=sh -c 'exit 65'", "--exec", "mail=false"];
    assert_eq!(place.ok(&args), "picked 7, done 5, failed 1, retried 1, expired 1, purged 0\n");
    assert!(done.iter().all(|guid| place.find(guid).status == Status::Done));
    assert_eq!(place.find(&failed).status, Status::Failed);
    assert_eq!((place.find(&again).status, place.find(&again).attempts), (Status::Pending, 1));
    for untouched in [&other, &later] {
        let record = place.find(untouched);
        assert_eq!((record.status, record.attempts), (Status::Pending, 0));
    }
    let told = place.run(&["run-once", "--exec", "ship=true", "--exec", "ship=false"]);
    assert!(told.code == 2 && told.err.contains("`ship` twice"), "{told:?}");
    let told = place.run(&["run-once", "--exec", "ship=true", "--timeout", "0s"]);
    assert!(told.code == 2 && told.err.contains("write 30s, 5m"), "{told:?}");
    // The last attempt of one that has no more.
    let last = place.defer(call("flop", 1).max_attempts(1));
    assert_eq!(place.json(&["run-once", "--exec", "flop=false"])[0]["failed"], 1);
    assert_eq!(place.find(&last).last_error.unwrap(), "gave up after 1 attempts: exit code 1");
}

fn a_limit_holds_for_all_methods_together(place: &Place) {
    const RECORDS: u32 = 16;
    let mut guids = place.defer_all((1..RECORDS / 2).map(|nth| call("ship", nth)));
    guids.extend(place.defer_all((0..RECORDS / 2).map(|nth| call("bill", nth))));
    guids.push(place.defer(call("ship", 0)));
    let begun = place.runtime.block_on(place.journal.now()).unwrap();
    let args = ["run-once", "--exec", "ship=true", "--exec", "bill=true", "--limit", "20/s burst 1"];
    assert_eq!(place.json(&args)[0]["done"], RECORDS);
    let last = guids.iter().map(|guid| place.find(guid).update_time).max().unwrap();
    // One at once, and 50 ms for each further one: a machine that is busy only makes it longer.
    let least = (RECORDS - 1) * Duration::from_millis(50);
    let took = last.duration_since(begun).unwrap();
    assert!(took >= least, "{RECORDS} replays at 20/s took {took:?}, less than {least:?}");
    let told = place.run(&["run-once", "--exec", "ship=true", "--limit", "fast"]);
    assert!(told.code == 2 && told.err.contains("--limit"), "{told:?}");
}

fn several_passes_at_once_run_each_record_once(place: &Place) {
    let guids = place.defer_all((0..60).map(|nth| call("ship", nth)));
    let log = place.folder.path().join("log");
    let command = format!("ship=sh -c 'echo $TIDEGATE_GUID >> {}'", log.display());
    let args = ["run-once", "--exec", &command, "--concurrency", "3", "--json"];
    let passes: Vec<_> = (0..3).map(|_| place.start(&args)).collect();
    let passes: Vec<_> =
        passes.into_iter().map(|pass| crate::place::end(pass, crate::place::PATIENCE)).collect();
    let done: u64 =
        passes.iter().map(|pass| crate::place::lines(&pass.out)[0]["done"].as_u64().unwrap()).sum();
    assert_eq!(done, 60);
    let mut ran: Vec<String> = std::fs::read_to_string(log).unwrap().lines().map(str::to_owned).collect();
    ran.sort();
    let mut expected: Vec<String> = guids.iter().map(ToString::to_string).collect();
    expected.sort();
    assert_eq!(ran, expected);
}
