//! `stats`: how much is pending, by method and in all, for people and for programs.

use crate::place::{Place, call};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

on_both! {
    depth_and_ages_are_told_by_method_and_in_all,
    a_journal_with_nothing_pending_tells_that,
    a_method_with_an_odd_name_does_no_harm,
}

fn depth_and_ages_are_told_by_method_and_in_all(place: &Place) {
    place.defer_all((0..3).map(|nth| call("ship", nth)));
    place.defer(call("bill", 0).delay(Duration::from_secs(3_600)));
    place.failed(call("fail", 0), "it has ended, and does not count");
    let out = place.ok(&["stats"]);
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["METHOD", "PENDING", "OLDEST", "OVERDUE"]);
    assert_eq!((rows[1][0], rows[1][1], rows[1][3]), ("bill", "1", "-"));
    assert_eq!(rows[2][..2], ["ship", "3"]);
    assert!(rows[2][2..].iter().all(|length| length.ends_with('s') || length.ends_with('m')), "{out}");
    assert_eq!(rows[3][..3], ["in", "all", "4"]);
    assert_eq!(rows.len(), 4);

    let lines = place.json(&["stats"]);
    let names = lines.iter().map(|line| line["method"].clone());
    assert_eq!(names.collect::<Vec<_>>(), [json!("bill"), json!("ship"), Value::Null]);
    let pending = lines.iter().map(|line| line["pending"].clone());
    assert_eq!(pending.collect::<Vec<_>>(), [1, 3, 4]);
    let [bill, ship, all] = &lines[..] else { panic!("three lines") };
    let keys: BTreeSet<&str> = all.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["method", "pending", "oldest_seconds", "overdue_seconds"].into());
    assert_eq!(bill["overdue_seconds"], Value::Null, "it is not due yet");
    assert!(bill["oldest_seconds"].as_f64().unwrap() > 0.0);
    let overdue = ship["overdue_seconds"].as_f64().unwrap();
    assert!(overdue > 0.0 && all["overdue_seconds"].as_f64().unwrap() >= overdue, "{lines:?}");
    assert!(all["oldest_seconds"].as_f64().unwrap() >= bill["oldest_seconds"].as_f64().unwrap());
}

fn a_journal_with_nothing_pending_tells_that(place: &Place) {
    let nothing = json!({"method": null, "pending": 0, "oldest_seconds": null, "overdue_seconds": null});
    assert_eq!(place.json(&["stats"]), [nothing]);
    let out = place.ok(&["stats"]);
    let rows: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1..], [["in", "all", "0", "-", "-"]]);
    let told = place.run(&["stats", "--table", "other"]);
    assert!(told.code == 1 && told.out.is_empty() && told.err.contains("`other`"), "{told:?}");
    assert_eq!(place.run(&["stats", "ship"]).code, 2);
}

fn a_method_with_an_odd_name_does_no_harm(place: &Place) {
    let name = "\x1b[2J\u{202e}\n\u{7f}FAKE";
    place.defer(call(name, 0));
    for args in [&["stats"][..], &["stats", "--json"]] {
        let told = place.run(args).all();
        let bad = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!told.contains(bad) && !told.lines().any(|line| line.starts_with("FAKE")), "{told:?}");
    }
    assert_eq!(place.json(&["stats"])[0]["method"], name, "programs get it unharmed");
}
