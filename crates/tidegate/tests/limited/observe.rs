//! Who is told about calls: the observer of the process, and the log.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use crate::{on_manual_clock, poll, ready};
use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;
use tidegate::{CallObserver, Decision, Limiter, Refusal, limited, observe_calls};
use tracing::Level;

#[path = "../support/logged.rs"]
mod logged;

static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Told;

impl CallObserver for Told {
    fn allowed(&self, gate: &str, decision: &Decision, wait: Duration) {
        TOLD.lock().unwrap().push(format!("{gate}: {} left after {wait:?}", decision.remaining()));
    }

    fn refused(&self, refusal: &Refusal) {
        TOLD.lock().unwrap().push(format!("{}: {refusal}", refusal.gate()));
    }
}

/// What was told about this gate. Other tests of this process are told about too.
fn told(gate: &str) -> Vec<String> {
    let about = format!("{gate}: ");
    let told = TOLD.lock().unwrap();
    told.iter().filter_map(|line| line.strip_prefix(&about)).map(str::to_string).collect()
}

#[limited("2/h", name = "told-plain", prefix = "", key = id, limiter = limiter)]
fn plain(limiter: &Limiter, id: u32) -> Result<(), Refusal> {
    Ok(())
}

#[limited("5 concurrent", name = "told-place", limiter = limiter, and(limit = "1 per 2s wait 3s", name = "told-rate"))]
async fn both(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[limited("1/h", name = "told-user", by = user, missing = refuse, limiter = limiter)]
fn by_user(limiter: &Limiter) -> Result<(), Refusal> {
    Ok(())
}

#[test]
fn every_call_is_told_to_the_observer() {
    observe_calls(Told).unwrap();
    assert!(observe_calls(Told).is_err(), "there is one");
    let (clock, limiter) = on_manual_clock();
    for is_allowed in [true, true, false] {
        assert_eq!(plain(&limiter, 7).is_ok(), is_allowed);
    }
    assert_eq!(
        told("told-plain"),
        [
            "1 left after 0ns",
            "0 left after 0ns",
            "denied by `told-plain` for 7: 2/h, 0 left, free again in 30 min"
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
    assert_eq!(told("told-place"), ["4 left after 0ns", "4 left after 2s"]);
    let rate = told("told-rate");
    assert_eq!(rate.len(), 3, "{rate:?}");
    assert!(rate[1].starts_with("denied by `told-rate`"), "{rate:?}");
    assert!(rate[2].ends_with("left after 2s"), "{rate:?}");
    assert!(by_user(&limiter).is_err());
    assert_eq!(told("told-user"), ["denied by `told-user`: 1/h, who calls is not known"]);
}

fn logged(level: Level, run: impl FnOnce()) -> Vec<String> {
    logged::logged("tidegate::limited", level, run)
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
        "gate=\"logged\"",
        "key=\"7\"",
        "outcome=\"denied\"",
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
