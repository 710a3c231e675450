//! `--exec`: what a command gets, and what becomes of what it says.

use crate::place::{PATIENCE, Place, Told, call, until_there};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;
use testkit::servers::wait_until;
use tidegate_journal::{Guid, Record, Status};

/// Runs the method `m` with this command; the record, and its result as JSON.
fn replay(place: &Place, params: impl serde::Serialize, command: &str, more: &[&str]) -> (Record, Value) {
    let guid: Guid = place.defer(call("m", params));
    let exec = format!("m={command}");
    let told = place.run(&[&["run-once", "--exec", &exec], more].concat());
    assert_eq!(told.code, 0, "{told:?}");
    let record = place.find(&guid);
    let result = record.result.as_deref().map_or(Value::Null, |text| serde_json::from_str(text).unwrap());
    (record, result)
}

fn done(place: &Place, params: impl serde::Serialize, command: &str) -> Value {
    let (record, result) = replay(place, params, command, &[]);
    assert_eq!((record.status, record.last_error), (Status::Done, None));
    result
}

on_both! { a_command_gets_parameters_guid_method_and_attempt }

fn a_command_gets_parameters_guid_method_and_attempt(place: &Place) {
    let params = json!({"to": "Zoë's \"house\"; $(rm -rf /) `x`", "n": [1.5, null, {}]});
    let print = r#"printf '{"guid":"%s","method":"%s","attempt":%s,"lease":%s,"params":%s}' "$TIDEGATE_GUID" "$TIDEGATE_METHOD" "$TIDEGATE_ATTEMPT" "$TIDEGATE_LEASE" "$(cat)""#;
    let file = place.folder.path().join("print.sh");
    std::fs::write(&file, print).unwrap();
    let (record, result) = replay(place, &params, &format!("sh {}", file.display()), &[]);
    let expected = json!({"guid": record.guid, "method": "m", "attempt": 1, "lease": 1, "params": params});
    assert_eq!(result, expected);
    assert_eq!((record.status, record.attempts), (Status::Done, 1));
}

#[test]
fn output_becomes_the_result_as_json_or_as_a_string() {
    let place = Place::sqlite();
    for (command, expected) in [
        ("cat", json!({"a": [1, 2]})),
        ("echo not json", json!("not json")),
        ("echo ' 17 '", json!(17)),
        ("true", Value::Null),
        ("printf '\\377x'", json!("\u{fffd}x")),
        ("sh -c 'echo done; echo a warning >&2'", json!("done")),
    ] {
        assert_eq!(done(&place, json!({"a": [1, 2]}), command), expected, "{command}");
    }
}

#[test]
fn huge_output_holds_nobody_up_and_is_not_kept() {
    let place = Place::sqlite();
    let result = done(&place, 1, "head -c 10000000 /dev/zero");
    assert_eq!(result["stdout_bytes"], 10_000_000);
    let exact = done(&place, 1, r#"sh -c 'printf \"; head -c 65534 /dev/zero | tr "\000" x; printf \"'"#);
    assert_eq!(exact.as_str().map(str::len), Some(65_534), "what just fits is kept");
    let (record, _) = replay(&place, 1, "sh -c 'yes error 65 | head -c 5000000 >&2; exit 65'", &[]);
    let error = record.last_error.unwrap();
    assert!(error.starts_with("exit code 65: ") && error.len() < 1_100, "{} bytes", error.len());
    // Nor parameters that nobody reads.
    assert_eq!(done(&place, "x".repeat(200_000), "true"), Value::Null);
    assert_eq!(done(&place, "x".repeat(200_000), "sh -c 'exec <&-; echo 1'"), json!(1));
    assert_eq!(done(&place, "x".repeat(200_000), "wc -c"), json!(200_002));
}

#[test]
fn exit_codes_tell_failed_for_good_from_try_again() {
    let place = Place::sqlite();
    let command = |code: u8| format!("sh -c 'echo one >&2; echo two >&2; exit {code}'");
    let (record, _) = replay(&place, 1, &command(65), &[]);
    assert_eq!((record.status, record.attempts), (Status::Failed, 1));
    assert_eq!(record.last_error.unwrap(), "exit code 65: one\ntwo");
    for code in [1, 64, 66, 255] {
        let (record, _) = replay(&place, 1, &command(code), &[]);
        assert_eq!((record.status, record.attempts), (Status::Pending, 1));
        assert_eq!(record.last_error.unwrap(), format!("exit code {code}: one\ntwo"));
    }
    let (record, _) = replay(&place, 1, "sh -c 'kill -9 $$'", &["--max-attempts", "1"]);
    assert_eq!(record.status, Status::Failed);
    assert_eq!(record.last_error.unwrap(), "gave up after 1 attempts: ended by signal 9");
}

#[test]
fn a_command_that_takes_too_long_is_killed_with_its_children() {
    let place = Place::sqlite();
    let pids = place.folder.path().join("pids");
    let command = format!("sh -c 'sleep 200 & echo $$ $! > {}; wait'", pids.display());
    // Long enough for it to write them, however busy the machine is; it would sleep on and on.
    let (record, _) = replay(&place, 1, &command, &["--timeout", "3s"]);
    assert_eq!((record.status, record.attempts), (Status::Pending, 1));
    assert_eq!(record.last_error.unwrap(), "it took longer than 3s");
    let pids = std::fs::read_to_string(pids).unwrap();
    assert_eq!(pids.split_whitespace().count(), 2);
    for pid in pids.split_whitespace() {
        wait_until("it is gone", PATIENCE, || !lives(pid));
    }
}

/// A process that is dead and not waited for counts as gone.
fn lives(pid: &str) -> bool {
    let status = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z') && !rest.is_empty())
}

#[test]
fn children_that_are_left_behind_hold_nobody_up() {
    let place = Place::sqlite();
    let file = place.folder.path().join("pid");
    let command = format!("sh -c 'sleep 300 & echo $! > {}; echo 1'", file.display());
    assert_eq!(done(&place, 1, &command), json!(1));
    let pid = std::fs::read_to_string(file).unwrap();
    assert!(lives(pid.trim()), "it was not waited for");
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_command_that_is_missing_costs_no_attempt() {
    let place = Place::sqlite();
    let guid = place.defer(call("m", 1));
    for (exec, expected) in [
        ("m=no-such-program-anywhere", "no program `no-such-program-anywhere`"),
        ("m=/no/such/program", "no program `/no/such/program`"),
        ("m", "METHOD=COMMAND"),
        ("m=", "no command"),
        ("m='", "quotes"),
    ] {
        let told = place.run(&["run-once", "--exec", exec]);
        assert_eq!((told.code, told.out.as_str()), (2, ""), "{told:?}");
        assert!(told.err.contains(expected), "{told:?}");
    }
    // A file that may be run, but cannot: that is known only when it is tried.
    let broken = place.folder.path().join("broken");
    std::fs::write(&broken, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let exec = format!("m={}", broken.display());
    assert_eq!(place.json(&["run-once", "--exec", &exec])[0]["retried"], 1);
    let record = place.find(&guid);
    assert!(record.last_error.unwrap().contains("cannot be started"), "{:?}", record.status);
}

#[test]
fn parameters_that_are_no_json_fail_for_good() {
    let place = Place::sqlite();
    let guid = place.defer(call("m", 1));
    let conn = rusqlite::Connection::open(&place.option[1]).unwrap();
    conn.busy_timeout(PATIENCE).unwrap();
    conn.execute("UPDATE t_method_limit_log SET method_params = 'hunter2'", []).unwrap();
    assert_eq!(place.json(&["run-once", "--exec", "m=cat"])[0]["failed"], 1);
    let record = place.find(&guid);
    assert_eq!((record.status, record.attempts), (Status::Failed, 1));
    assert!(!record.last_error.unwrap().contains("hunter2"));
}

#[test]
fn a_slow_command_keeps_its_lease_and_no_other_pass_takes_it() {
    let place = Place::sqlite();
    let guid = place.defer(call("m", 1));
    let go = place.folder.path().join("go");
    let exec = format!("m=sh -c '{}'", until_there(&go));
    let slow = place.start(&["run-once", "--exec", &exec]);
    wait_until("it runs", PATIENCE, || place.find(&guid).status == Status::Running);
    assert_eq!(place.json(&["run-once", "--exec", "m=false"])[0]["picked"], 0);
    std::fs::write(go, "").unwrap();
    let told = crate::place::end(slow, PATIENCE + Duration::from_secs(5));
    assert!(told.code == 0 && told.out.starts_with("picked 1, done 1"), "{told:?}");
}

/// The variables of whoever starts a pass may hold passwords: of the database, and of anything else.
#[test]
fn a_command_gets_no_variable_that_it_does_not_need_or_that_was_not_named() {
    let place = Place::sqlite();
    let guid = place.defer(call("m", 1));
    let run = |more: &[&str]| {
        let mut command = place.command(&[&["run-once", "--exec", "m=env"], more].concat());
        command.env("TIDEGATE_JOURNAL", "postgres://app:hunter2@h/d").env("PGPASSWORD", "hunter2");
        command.env("SHIP_TOKEN", "for the command").env("LC_ALL", "C").env("TZ", "UTC");
        Told::of(command.output().unwrap())
    };
    let variables =
        |guid: &Guid| -> String { serde_json::from_str(&place.find(guid).result.unwrap()).unwrap() };
    assert_eq!(run(&[]).code, 0);
    let known = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"];
    let ours = ["TIDEGATE_GUID", "TIDEGATE_METHOD", "TIDEGATE_ATTEMPT", "TIDEGATE_LEASE"];
    let text = variables(&guid);
    for line in text.lines() {
        let (name, _) = line.split_once('=').unwrap();
        assert!(known.contains(&name) || ours.contains(&name) || name.starts_with("LC_"), "{line}");
    }
    for line in ["LC_ALL=C", "TZ=UTC", "TIDEGATE_METHOD=m"] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    let guid = place.defer(call("m", 1));
    assert_eq!(run(&["--env", "SHIP_TOKEN"]).code, 0);
    let text = variables(&guid);
    assert!(text.contains("SHIP_TOKEN=for the command") && !text.contains("hunter2"), "{text}");
    let guid = place.defer(call("m", 2));
    let told = run(&["--env", "NO_SUCH_VARIABLE"]);
    assert!(told.code == 2 && told.err.contains("--env NO_SUCH_VARIABLE: there is no such"), "{told:?}");
    assert_eq!(place.find(&guid).attempts, 0);
}
