//! What becomes of calls, for the observer of the process and for the log.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use crate::{on_manual_clock, poll, ready};
use std::pin::pin;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use tidegate::rules::{Observer, Record};
use tidegate::{Caller, Limiter, Refusal, User, limited, observe_calls};
use tracing::Level;

#[path = "../support/logged.rs"]
mod logged;

static RECORDS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

struct Recording;

impl Observer for Recording {
    fn verdict(&self, record: &Record<'_>) {
        assert_eq!((record.policy(), record.is_shadow()), (record.rule(), false));
        let line = format!("{}: {record}", record.outcome());
        RECORDS.lock().unwrap().push((record.rule().to_string(), line));
    }
}

fn observe() {
    static OBSERVED: OnceLock<()> = OnceLock::new();
    OBSERVED.get_or_init(|| observe_calls(Recording).unwrap());
}

/// The records of this gate. Other tests of this process are recorded, too.
fn records(gate: &str) -> Vec<String> {
    let records = RECORDS.lock().unwrap();
    records.iter().filter(|(of, _)| of == gate).map(|(_, line)| line.clone()).collect()
}

#[limited("2/h", name = "plain", prefix = "", key = id, limiter = limiter)]
fn plain(limiter: &Limiter, id: u32) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5 concurrent", name = "both-slots", limiter = limiter, prefix = "", and(limit = "1 per 2s wait 3s", name = "both-rate", prefix = ""))]
async fn both(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[limited("1/h", name = "by-user", by = user, missing = refuse, prefix = "", limiter = limiter)]
fn by_user(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[test]
fn every_call_is_a_record_of_each_of_its_limits() {
    observe();
    assert!(observe_calls(Recording).is_err(), "there is one");
    let (clock, limiter) = on_manual_clock();
    for is_allowed in [true, true, false] {
        assert_eq!(plain(&limiter, 7).is_ok(), is_allowed);
    }
    assert_eq!(
        records("plain"),
        [
            "allowed: allowed by `plain` for 7: 2/h, 1 left",
            "allowed: allowed by `plain` for 7: 2/h, 0 left",
            "denied: denied by `plain` for 7: 2/h, 0 left, free again in 30 min",
        ]
    );
    assert!(ready(both(&limiter)).is_ok());
    {
        let mut second = pin!(both(&limiter));
        assert!(poll(&mut second).is_pending());
        assert!(ready(both(&limiter)).is_err());
        clock.advance(Duration::from_secs(2));
        assert!(poll(&mut second).is_ready());
    }
    assert_eq!(
        records("both-slots"),
        [
            "allowed: allowed by `both-slots`: 5 concurrent, 4 left",
            "not_charged: not charged by `both-slots`: another rule refused",
            "waited: allowed by `both-slots` after 2 s: 5 concurrent, 4 left",
        ]
    );
    let rate = records("both-rate");
    assert_eq!(rate.len(), 3, "{rate:?}");
    assert!(rate[1].starts_with("denied: denied by `both-rate`: 1 per 2s wait 3s, 0 left"), "{rate:?}");
    assert!(rate[2].starts_with("waited: allowed by `both-rate` after 2 s"), "{rate:?}");
}

#[test]
fn callers_who_are_not_known_are_recorded_as_in_rules() {
    observe();
    let (_, limiter) = on_manual_clock();
    assert!(by_user(&limiter).is_err());
    assert!(Caller::new().user(User::new("ann")).enter(|| by_user(&limiter)).is_ok());
    assert!(Caller::new().user(User::new("x".repeat(5_000))).enter(|| by_user(&limiter)).is_err());
    assert_eq!(
        records("by-user"),
        [
            "incomplete: refused by `by-user`: the request does not say user",
            "allowed: allowed by `by-user` for user:ann: 1/h, 0 left",
            "ambiguous: refused by `by-user`: the request does not clearly say user",
        ]
    );
}

#[limited("1/h", name = "skip", by = user, missing = skip, prefix = "", limiter = limiter)]
fn skip(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[limited("2/h", name = "both-skip", limiter = limiter, and(limit = "1/h", name = "skip-second", by = user, missing = skip))]
fn skip_one(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[limited("1 concurrent queue 1 wait 1s", name = "skip-all", by = user, missing = skip, limiter = limiter)]
async fn skip_all(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[test]
fn a_limit_that_skips_unknown_callers_does_not_apply_to_them() {
    observe();
    let (_, limiter) = on_manual_clock();
    assert!((0..3).all(|_| skip(&limiter).is_ok()));
    let ann = Caller::new().user(User::new("ann"));
    assert!(ann.enter(|| skip(&limiter)).is_ok() && ann.enter(|| skip(&limiter)).is_err());
    assert_eq!(records("skip")[..1], ["skipped: skipped by `skip`: the request does not say user"]);

    assert!(skip_one(&limiter).is_ok() && skip_one(&limiter).is_ok());
    assert_eq!(skip_one(&limiter).unwrap_err().gate(), "both-skip", "the other limit applies");
    assert!((0..3).all(|_| ready(skip_all(&limiter)).is_ok()));
}

fn logged(level: Level, run: impl FnOnce()) -> Vec<String> {
    logged::logged("tidegate::rules", level, run)
}

#[limited("1/h", name = "logged", prefix = "", key = id, limiter = limiter)]
fn logs(limiter: &Limiter, id: u32) -> Result<(), Refusal> {
    Ok(())
}

#[test]
fn refused_calls_are_logged_a_few_each_second_and_the_others_counted() {
    let (clock, limiter) = on_manual_clock();
    let lines = logged(Level::INFO, || {
        for _ in 0..101 {
            let _ = logs(&limiter, 7);
        }
        clock.advance(Duration::from_secs(1));
        let _ = logs(&limiter, 7);
    });
    assert_eq!(lines.len(), 11, "{lines:#?}");
    for part in [
        "INFO message=denied by `logged` for 7: 1/h, 0 left, free again in 1 h",
        "rule=\"logged\"",
        "policy=\"logged\"",
        "key=7",
        "outcome=\"denied\"",
        "shadow=false",
        "limit=1/h",
        "remaining=0",
        "retry_after_ms=3600000",
        "suppressed=0",
    ] {
        assert!(lines[0].contains(part), "{part} in {}", lines[0]);
    }
    assert!(lines[10].contains("suppressed=90"), "{}", lines[10]);

    let lines = logged(Level::TRACE, || drop(logs(&limiter, 8)));
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("TRACE message=allowed by `logged` for 8: 1/h, 0 left"), "{}", lines[0]);
}
