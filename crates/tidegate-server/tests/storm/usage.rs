//! The command line, and what it says where nothing can be done.

use crate::sale::{Sale, Told, Ways, tidegate};

const SECRET: &str = "a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7";

fn run(args: &[&str]) -> Told {
    Told::of(tidegate().args(args).output().unwrap())
}

#[test]
fn a_storm_stays_on_this_machine_unless_allowed() {
    let told = run(&["--secret", SECRET, "--url", "http://192.0.2.1:8080"]);
    assert_eq!(told.code, 2, "{told:?}");
    assert!(told.err.contains("192.0.2.1") && told.err.contains("--allow-remote"), "{told:?}");
}

#[test]
fn what_is_missing_is_said_before_anybody_comes() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let told = run(&["--secret", SECRET, "--url", &format!("http://{free}")]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.err.contains("tidegate sale") && told.err.contains("--url"), "{told:?}");

    let sale = Sale::start(Ways::default());
    let told = run(&["--secret", SECRET, "--url", &sale.url, "--goods", "other"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.err.contains("40401") && told.err.contains("--goods"), "{told:?}");

    let told = run(&["--data", "no/such/folder", "--url", &sale.url]);
    assert_eq!(told.code, 2, "{told:?}");
    assert!(told.err.contains("TIDEGATE_SALE_SECRET") && told.err.contains("no/such/folder"), "{told:?}");

    let told = Told::of(sale.command("--json no/such/folder/a.json").output().unwrap());
    assert!(told.code == 1 && told.err.contains("no/such/folder/a.json"), "{told:?}");
    assert!(sale.asks().is_empty());
}

#[test]
fn a_wrong_secret_is_seen_in_the_answers() {
    let sale = Sale::start(Ways { stock: 10, ..Ways::default() });
    let told =
        sale.storm(&format!("--users 20 --duration 100ms --connections 2 --secret {}", "00".repeat(32)));
    assert_eq!((told.answers(40101), told.number("/orders/given")), (20, 0), "{told:?}");
    assert!(told.out.contains("not_signed_in"), "{told:?}");
}

#[test]
fn everything_is_bounded() {
    for args in [
        &["--users", "0"][..],
        &["--users", "100000001"],
        &["--duration", "2h"],
        &["--grace", "61m"],
        &["--retries", "3"],
        &["--connections", "0"],
        &["--connections", "65535"],
        &["--repeat", "101"],
        &["--units", "0"],
        &["--goods", "a/b"],
        &["--url", "https://127.0.0.1"],
        &["--duration", "soon"],
    ] {
        let told = run(args);
        assert_eq!(told.code, 2, "{args:?}: {told:?}");
        assert!(told.err.contains(args[0]), "{args:?}: {told:?}");
    }
}

#[test]
fn the_help_says_what_users_do_and_what_is_checked() {
    let told = run(&["--help"]);
    assert_eq!(told.code, 0);
    for words in ["Retry-After", "/randomPath", "decrStock", "books", "TIDEGATE_SALE_SECRET", "Exit codes"] {
        assert!(told.out.contains(words), "{words}: {}", told.out);
    }
}
