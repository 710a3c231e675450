//! What must not be seen: parameters, results and keys without being asked for, and control
//! characters at all.

use crate::place::{Place, call};
use serde_json::{Value, json};
use std::process::Command;
use tidegate_journal::{Guid, JobError, Worker};

on_both! {
    nothing_private_is_seen_unless_asked_for,
    no_control_character_of_a_stranger_reaches_the_terminal,
}

const SECRET: &str = "4111-1111-1111-1111";

fn nothing_private_is_seen_unless_asked_for(place: &Place) {
    let params = json!({"card": SECRET, "note": format!("it's \"{SECRET}\"\n")});
    let records = [
        // In parameters, key and result.
        place.defer(call("echo", &params).key(format!("key-{SECRET}"))),
        // In the words of the parser, which repeats what it does not understand.
        place.defer(call("typed", SECRET)),
        // In the words of a command that fails.
        place.defer(call("leak", &params)),
    ];
    let worker = Worker::new(&place.journal)
        .on("echo", |params: Value| async { Ok::<_, JobError>(params) })
        .on("typed", |_: u32| async { Ok::<_, JobError>(()) });
    place.runtime.block_on(worker.run_once()).unwrap();
    let leak = "leak=sh -c 'cat >&2; exit 65'";
    let mut told = vec![place.run(&["run-once", "--exec", leak]), place.run(&["run-once", "--json"])];
    assert_eq!(told[0].code, 0, "{:?}", told[0]);
    for record in &records[1..] {
        let error = place.find(record).last_error.unwrap();
        assert!(error.contains(SECRET), "the journal has it: {error}");
    }
    told.push(place.run(&["list"]));
    told.push(place.run(&["list", "--json"]));
    for guid in &records {
        told.push(place.run(&["show", guid.as_str()]));
        told.push(place.run(&["show", guid.as_str(), "--json"]));
        told.push(place.run(&["cancel", guid.as_str()]));
        told.push(place.run(&["retry", guid.as_str()]));
    }
    for told in &told {
        assert!(!told.all().contains(SECRET), "{told:?}");
    }
    assert!(told[2].out.contains("[redacted]"), "{}", told[2].out);
    for args in [&["list"][..], &["show", records[0].as_str()]] {
        for more in [&["--params"][..], &["--show-params"], &["--params", "--json"]] {
            let out = place.ok(&[args, more].concat());
            assert!(out.contains(SECRET), "{out}");
        }
    }
    assert_eq!(place.json(&["show", records[0].as_str(), "--params"])[0]["result"], params);
}

/// Clears the screen, sets the title, turns text around, hides it, and begins a line of its own.
const HOSTILE: &str = "\x1b[2J\x1b]0;pwned\x07\u{9b}31m\u{202e}gpj.exe\u{200b}\r\x08\n\u{2028}\u{7f}FAKE";

fn no_control_character_of_a_stranger_reaches_the_terminal(place: &Place) {
    let guid = place.failed(call(HOSTILE, json!({ HOSTILE: HOSTILE })).key(HOSTILE), HOSTILE);
    let echo = place.defer(call("echo", HOSTILE));
    let told = place.run(&["run-once", "--exec", "echo=cat"]);
    assert_eq!(told.code, 0, "{told:?}");
    for more in [&[][..], &["--params"], &["--json"], &["--json", "--params"]] {
        for args in [&["list"][..], &["show", guid.as_str()], &["show", echo.as_str()]] {
            let told = place.run(&[args, more].concat());
            assert_eq!(told.code, 0, "{told:?}");
            harmless(&told.all());
        }
    }
    // Programs get it unharmed.
    let [record] = &place.json(&["show", guid.as_str(), "--params"])[..] else { panic!("one record") };
    assert_eq!((&record["method"], &record["last_error"]), (&json!(HOSTILE), &json!(HOSTILE)));
    assert_eq!((&record["params"][HOSTILE], &record["key"]), (&json!(HOSTILE), &json!(HOSTILE)));
    assert_eq!(place.json(&["show", echo.as_str(), "--params"])[0]["result"], json!(HOSTILE));
    // Also where it comes by the command line.
    for args in [&["list", "--status", HOSTILE][..], &["list", "--table", HOSTILE], &[HOSTILE]] {
        let told = place.run(args);
        assert_ne!(told.code, 0);
        harmless(&told.all());
    }
}

#[track_caller]
fn harmless(text: &str) {
    let bad = |c: &char| (c.is_control() && *c != '\n') || ['\u{200b}', '\u{2028}', '\u{202e}'].contains(c);
    assert_eq!(text.chars().find(bad), None, "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("FAKE")), "a line of a stranger's: {text}");
}

/// Others may write into the table, and are not asked what.
#[test]
fn rows_that_others_wrote_are_shown_as_far_as_they_go() {
    let place = Place::sqlite();
    let conn = rusqlite::Connection::open(&place.option[1]).unwrap();
    conn.busy_timeout(crate::place::PATIENCE).unwrap();
    let insert =
        "INSERT INTO t_method_limit_log (guid, method_name, method_params, status, create_time, update_time)
                  VALUES (?1, NULL, ?2, ?3, ?4, ?4)";
    conn.execute(insert, (HOSTILE, format!("no json {HOSTILE}"), 2, i64::MAX - 1)).unwrap();
    conn.execute(insert, ("early", "{\n\"a\": 1}", 1, -1)).unwrap();
    for args in [&["list", "--params"][..], &["list", "--params", "--json"], &["show", "early"]] {
        harmless(&place.ok(args));
    }
    let records = place.json(&["list", "--params"]);
    assert_eq!(records[0]["guid"], HOSTILE);
    assert_eq!(records[0]["params"], format!("no json {HOSTILE}"));
    assert_eq!((&records[1]["create_time"], &records[1]["params"]), (&Value::Null, &json!({"a": 1})));
    assert_eq!(records.len(), 2);
}

/// `script` makes a terminal; it comes with every Debian and most others.
#[test]
fn colour_is_for_terminals_and_never_a_stranger_s() {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("no `script` here to make a terminal with: not tried");
        return;
    }
    let place = Place::sqlite();
    let guid: Guid = place.failed(call("ship", 1), "no");
    let run = |args: &str, no_color: &str| {
        let program = env!("CARGO_BIN_EXE_tidegate");
        let command = format!("{program} journal {args} --sqlite {}", place.option[1]);
        let mut script = Command::new("script");
        script.args(["-qec", &command, "/dev/null"]).env("NO_COLOR", no_color).env("TERM", "xterm");
        String::from_utf8(script.output().unwrap().stdout).unwrap()
    };
    let show = format!("show {guid}");
    let shown = run(&show, "");
    assert!(shown.contains("\x1b[31mfailed\x1b["), "{shown:?}");
    let shown = run(&show, "1");
    assert!(shown.contains("failed") && !shown.contains('\x1b'), "{shown:?}");
    // On a terminal the parser's own words keep their colours; an argument's must go.
    let shown = run("show 'a\x1b[2Jb'", "");
    assert!(shown.contains("a guid has") && !shown.contains("\x1b[2J"), "{shown:?}");
    let shown = run(&format!("show {}", "a".repeat(65)), "");
    assert!(shown.contains('\x1b'), "a plain mistake is told in colour");
}
