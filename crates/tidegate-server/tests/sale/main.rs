//! `tidegate sale` as a newcomer runs it: what it prints is pasted into a shell.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

mod faults;
mod hanging;
mod running;
mod secrets;
mod starting;

use running::{PATIENCE, Running, shell, tidegate};
use rustix::process::Signal;
use serde_json::Value;
use testkit::servers::{PostgresServer, RabbitServer, RedisServer, wait_until};

#[test]
fn what_is_printed_buys_and_a_restart_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let first = Running::start(folder.path(), &[]);
    assert!(first.printed.contains("10000 of 10000 units left"), "{}", first.printed);
    let out = shell(&first.buying());
    let mut lines = out.lines();
    assert!(lines.next().unwrap().strip_prefix("path ").is_some_and(|path| path.len() == 55), "{out}");
    let sn = lines.next().unwrap().strip_prefix("order ").unwrap();
    assert!(sn.starts_with("demo-"), "{out}");
    let order: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!((&order["code"], &order["data"]["order_sn"]), (&200.into(), &sn.into()), "{out}");
    assert_eq!(first.books()["left"], 9_999);
    let storm = first.lines("Then let a million")[0];
    assert!(storm.starts_with("cargo run --release -- storm --url http://127.0.0.1:"), "{storm}");

    let token = first.word("admin token").to_owned();
    let audit = first.word("books").replace("/sale/demo/books", "/admin/sales/demo/audit");
    let audit = shell(&format!("curl -sS -H 'Authorization: Bearer {token}' {audit}"));
    assert!(audit.contains("\"tidegate sale\""), "{audit}");
    assert!(first.end(Signal::TERM).contains("stopped"));

    let again = Running::start(folder.path(), &["--stock", "5"]);
    assert!(again.printed.contains("9999 of 10000 units left"), "{}", again.printed);
    assert_eq!(again.word("admin token"), token);
    shell(&again.buying());
    assert_eq!(again.books()["left"], 9_998);
    again.end(Signal::INT);
}

/// A restart opens nothing that an operator has not opened.
#[test]
fn what_was_left_as_a_draft_stays_one() {
    let folder = tempfile::tempdir().unwrap();
    let first = Running::start(folder.path(), &[]);
    first.admin("sales", r#"{"goods":"later","total":5}"#);
    first.end(Signal::TERM);
    let again = Running::start(folder.path(), &["--goods", "later"]);
    assert!(again.printed.starts_with("The sale of later is draft: 5 of 5"), "{}", again.printed);
    for line in again.lines("It is a draft") {
        shell(&line.replace("ADMIN-TOKEN", again.word("admin token")));
    }
    assert!(shell(&again.buying()).contains("order later-"));
    again.end(Signal::TERM);
}

/// Two processes on the same servers, as in production: what one sells the other knows.
#[test]
fn two_processes_sell_together_on_servers() {
    let (redis, rabbit, postgres) = (RedisServer::start(), RabbitServer::start(), PostgresServer::start());
    let urls = [redis.url(), rabbit.url(), postgres.url()];
    let servers = ["--redis", &urls[0], "--amqp", &urls[1], "--postgres", &urls[2], "--stock", "3"];
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let one = Running::start(here.path(), &servers);
    let other = Running::start(there.path(), &servers);
    for process in [&one, &other] {
        // Until it has found its broker it says that it is busy, and takes nothing.
        let script = process.buying();
        wait_until("it sells", PATIENCE, || shell(&script).contains("order demo-"));
    }
    wait_until("both see both orders placed", PATIENCE, || {
        [&one, &other].iter().all(|process| {
            let books = process.books();
            (&books["placed"], &books["left"]) == (&2.into(), &1.into())
        })
    });
    assert!(one.end(Signal::TERM).contains("stopped"));
    other.end(Signal::INT);
}

#[test]
fn its_options_count() {
    let folder = tempfile::tempdir().unwrap();
    let args = [
        "--goods",
        "phone-15",
        "--stock",
        "1",
        "--rate",
        "100/s",
        "--data",
        "my data",
        "--ip-limit",
        "1/h burst 1",
    ];
    let sale = Running::start(folder.path(), &[&args[..], &["--admin-token", "0123456789abcdef"]].concat());
    assert!(!sale.printed.contains("0123456789abcdef"), "the operator knows it already");
    let storm = sale.lines("Then let a million")[0];
    assert!(storm.ends_with("--goods phone-15 --data 'my data'"), "{storm}");
    shell(&sale.buying());
    assert_eq!(sale.books()["left"], 0);
    for file in ["sale.db", "secret"] {
        let found = std::fs::metadata(folder.path().join("my data").join(file)).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&found.permissions()) & 0o077, 0, "{file}");
    }
    sale.end(Signal::TERM);
    let again = Running::start(folder.path(), &args);
    assert!(again.printed.contains("sold out; more units come with"), "{}", again.printed);
    again.end(Signal::TERM);
}

#[test]
fn what_cannot_be_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let running = Running::start(folder.path(), &[]);
    let taken = running.word("books").trim_start_matches("http://").split('/').next().unwrap();
    for (args, code, told) in [
        (&["--listen", taken, "--data", "other"][..], 1, "choose another with --listen"),
        (&["--listen", "127.0.0.1:0"], 1, "another process serves this file"),
        (&["--admin-token", "short"], 2, "16 to 256"),
        (&["--rate", "fast"], 2, "fast"),
        (&["--goods", "a b"], 2, "an id is"),
        (&["--trusted-proxy", "10.0.0.0/33"], 2, "--trusted-proxy"),
        (&["--ip-limit", "none"], 2, "none"),
        (&["--listen", "127.0.0.1:0", "--data", "third", "--rate", "5 concurrent"], 1, "`rate`"),
        (&["--listen", "127.0.0.1:0", "--data", "fourth", "--stock", "0"], 1, "`total`"),
    ] {
        let ended = tidegate(folder.path(), args).output().unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(told), "{args:?}: {error}");
    }
    running.end(Signal::TERM);
}
