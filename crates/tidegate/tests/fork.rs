//! A limiter that a process has inherited by `fork`: the threads behind it did not come along.
//!
//! A test binary of its own: nothing else runs in it while it forks.

#![cfg(all(feature = "redis", target_os = "linux"))]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]
#![allow(unsafe_code, reason = "`fork` has no safe form")]

use std::sync::Mutex;
use std::time::Duration;
use testkit::servers::RedisServer;
use tidegate::{Check, Denial, Fallback, Gate, GateOptions, Limiter, Redis};

/// Runs in a child process; a child that does not end within the time is a failure.
fn in_child(what: &str, run: impl FnOnce() -> bool) {
    // SAFETY: the child calls nothing but `run` and `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "the system forks");
    if child == 0 {
        // A child that hangs is ended by its alarm.
        // SAFETY: `alarm` and `_exit` take plain numbers.
        unsafe {
            libc::alarm(10);
            libc::_exit(if run() { 0 } else { 1 });
        }
    }
    let mut status = 0;
    // SAFETY: waits for the child that was started here.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{what}: the child hung, status {status}");
    assert_eq!(libc::WEXITSTATUS(status), 0, "{what}");
}

/// One forks at a time, and nobody else holds a lock meanwhile.
static ALONE: Mutex<()> = Mutex::new(());

fn falls_back(gate: &Gate, limiter: &Limiter) -> bool {
    let is_away = |denial: Option<Denial>| matches!(denial, Some(Denial::Unavailable(_)));
    let checked = gate.check("a");
    let peeked = gate.peek("a");
    let reserved = gate.reserve("a");
    let several = limiter.check(&[Check::new(gate, "a"), Check::new(gate, "b")]);
    let acquired = gate.acquire("a").blocking();
    gate.reset("a");
    [checked, peeked].iter().all(|decision| decision.is_degraded() && is_away(decision.denial()))
        && [reserved, several, acquired].iter().all(|verdict| verdict.is_degraded() && !verdict.is_allowed())
}

#[test]
fn a_limiter_that_was_inherited_by_fork_answers_by_its_fallback() {
    let _alone = ALONE.lock().unwrap();
    let server = RedisServer::start();
    let limiter =
        Limiter::builder().redis(Redis::at(&server.url()).unwrap().deadline(Duration::from_secs(2))).build();
    let deny = || GateOptions::new().fallback(Fallback::Deny);
    let gate = limiter.gate_with("rate", "100/s", deny()).unwrap();
    let places = limiter.gate_with("places", "5 concurrent queue 5 wait 1s", deny()).unwrap();
    assert!(!gate.check("a").is_degraded() && gate.check("a").is_allowed());
    let mut permit = places.reserve("db").into_permit().unwrap();
    let leased = limiter.gate_with("leased", "1000/s", deny().lease(Duration::from_secs(5))).unwrap();
    let has_spent_a_lease = |_| leased.check("a").is_allowed() && limiter.redis_stats().unwrap().leased > 0;
    assert!((0..10_000).any(has_spent_a_lease), "a hot key is worth a lease");

    in_child("a rate", || falls_back(&gate, &limiter));
    in_child("places", || {
        let acquired = places.acquire("db").blocking();
        acquired.is_degraded() && !acquired.is_allowed()
    });
    in_child("units that the parent has leased", || leased.check("a").is_degraded());
    in_child("a permit that is dropped", || {
        permit.refund_units(1);
        true
    });
    in_child("a limiter of its own", || {
        let own = Limiter::builder()
            .redis(Redis::at(&server.url()).unwrap().deadline(Duration::from_secs(2)))
            .build();
        let decision = own.gate_with("rate", "100/s", deny()).unwrap().check("a");
        decision.is_allowed() && !decision.is_degraded()
    });
    assert_eq!(places.peek("db").remaining(), 4, "the child's copy of a permit gives nothing back");
    drop(permit);
    assert!(!gate.check("a").is_degraded(), "the parent goes on");
}

#[test]
fn a_wait_in_memory_ends_in_a_child_too() {
    let _alone = ALONE.lock().unwrap();
    let limiter = Limiter::new();
    let gate = limiter.gate("waits", "100/s burst 1 wait 1s").unwrap();
    // The timer's thread is started by the first who waits.
    for _ in 0..3 {
        assert!(gate.acquire("a").blocking().is_allowed());
    }
    in_child("a wait", || (0..3).all(|_| gate.acquire("a").blocking().is_allowed()));
}
