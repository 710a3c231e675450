//! A pass that is interrupted: once in order, twice at once.

use crate::place::{PATIENCE, Place, call, end, until_there};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::process::Child;
use testkit::servers::wait_until;
use tidegate_journal::{Filter, Page, Status};

on_both! { a_pass_that_is_interrupted_gives_back_what_has_not_started }

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn a_pass_that_is_interrupted_gives_back_what_has_not_started(place: &Place) {
    place.defer_all((0..10).map(|nth| call("ship", nth)));
    let (began, go) = (place.folder.path().join("began"), place.folder.path().join("go"));
    let exec = format!("ship=sh -c 'touch {}; {}'", began.display(), until_there(&go));
    let child = place.start(&["run-once", "--exec", &exec, "--concurrency", "1"]);
    wait_until("one has begun", PATIENCE, || began.exists());
    send(&child, Signal::TERM);
    let pending = || {
        let listed = place.journal.list(Filter::all().status(Status::Pending), Page::first(100));
        place.runtime.block_on(listed).unwrap()
    };
    wait_until("the others are back", PATIENCE, || pending().len() == 9);
    std::fs::write(go, "").unwrap();
    let told = end(child, PATIENCE);
    assert_eq!(told.code, 1);
    assert!(told.out.contains(", done 1, failed 0, retried 0, expired 0, purged 0\n"), "{told:?}");
    assert!(told.err.contains("interrupted"), "{told:?}");
    assert!(pending().iter().all(|record| record.attempts == 0), "not counted");
}

#[test]
fn interrupted_twice_it_kills_what_runs_and_ends() {
    let place = Place::sqlite();
    let guid = place.defer(call("ship", 1));
    let file = place.folder.path().join("pid");
    let exec = format!("ship=sh -c 'echo $$ > {}; exec sleep 200'", file.display());
    let child = place.start(&["run-once", "--exec", &exec]);
    let mut pid = 0;
    wait_until("it has begun", PATIENCE, || {
        pid = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        pid != 0
    });
    send(&child, Signal::INT);
    // Two of the same kind that come together count as one, so a second of another.
    send(&child, Signal::TERM);
    let told = end(child, PATIENCE);
    assert_eq!((told.code, told.out.as_str()), (1, ""));
    assert!(told.err.contains("interrupted twice"), "{told:?}");
    let pid = Pid::from_raw(pid).unwrap();
    wait_until("the command is gone", PATIENCE, || test_kill_process(pid).is_err());
    assert_eq!(place.find(&guid).status, Status::Running, "until its lease lapses");
}

/// Somebody else's transaction keeps it from ending anything, and from opening the journal.
#[test]
fn a_pass_that_does_not_come_to_its_work_can_be_interrupted_too() {
    for (signal, args) in [
        (Signal::TERM, &["run-once"][..]),
        (Signal::HUP, &["run-once", "--exec", "ship=true"]),
        (Signal::QUIT, &["run-once"]),
        (Signal::INT, &["run-once", "--exec", "ship=true"]),
    ] {
        let place = Place::sqlite();
        let guid = place.defer(call("ship", 1).deadline_in(std::time::Duration::ZERO));
        let other = rusqlite::Connection::open(&place.option[1]).unwrap();
        other.busy_timeout(PATIENCE).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let child = place.start(args);
        wait_until("it listens", PATIENCE, || catches(&child, signal));
        send(&child, signal);
        let told = end(child, PATIENCE);
        assert_eq!(told.code, 1, "{signal:?} {args:?}: {told:?}");
        assert!(told.err.contains("interrupted"), "{signal:?} {args:?}: {told:?}");
        other.execute_batch("ROLLBACK").unwrap();
        assert_eq!(place.find(&guid).status, Status::Pending);
    }
}

/// By what the system knows of it.
fn catches(child: &Child, signal: Signal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
    u64::from_str_radix(mask, 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}
