//! Memory that limiters take while little is asked of them, whatever the process did before.
//!
//! A binary of its own, because resident memory is a process's; one test at a time, because
//! they share it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the message")]

use std::sync::{Mutex, MutexGuard, PoisonError};
use tidegate::{GateOptions, Limiter};

const MB: usize = 1 << 20;

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Builds limiters, asks each for a few keys and drops them, again and again: the most that
/// was resident while a round of them was alive. All of it, so that what an earlier test has
/// left behind does not hide anything.
fn most_resident(rounds: usize, make: impl Fn(usize) -> Vec<Limiter>) -> usize {
    let round = |round| {
        let limiters = make(round);
        for limiter in &limiters {
            let gate = limiter.gate("gate", "5/h").unwrap();
            assert!(
                (0..20u32).all(|key| gate.check(&key.to_le_bytes()).is_allowed()),
                "nothing is left over"
            );
        }
        resident_bytes()
    };
    (0..rounds).map(round).max().unwrap()
}

#[test]
fn limiters_that_are_built_again_do_not_touch_their_whole_tables() {
    let _alone = alone();
    let most = most_resident(4, |_| (0..20).map(|_| Limiter::new()).collect());
    assert!(most < 64 * MB, "20 limiters with 20 keys each took {} MB", most / MB);
}

#[test]
fn gates_with_tables_of_their_own_that_are_built_again_do_not_touch_them() {
    let _alone = alone();
    let limiters = |_| {
        let limiter = Limiter::builder().max_keys(1_000).build();
        for gate in 0..40 {
            // Below the size from which on huge pages are asked for.
            let options = GateOptions::new().max_keys(200_000);
            let gate = limiter.gate_with(&format!("gate-{gate}"), "5/h", options).unwrap();
            assert!(gate.check("key").is_allowed());
        }
        vec![limiter]
    };
    let most = most_resident(4, limiters);
    assert!(most < 64 * MB, "40 gates with a key each took {} MB", most / MB);
}

#[cfg(feature = "redis")]
#[test]
fn limiters_over_redis_have_no_table_to_touch() {
    use testkit::servers::RedisServer;
    let _alone = alone();
    let server = RedisServer::start();
    let deadline = std::time::Duration::from_secs(20);
    let limiter = |prefix: String| {
        let redis = tidegate::Redis::at(&server.url()).unwrap().deadline(deadline);
        Limiter::builder().redis(redis.prefix(&prefix).unwrap()).build()
    };
    let most = most_resident(3, |round| (0..40).map(|n| limiter(format!("r{round}-{n}"))).collect());
    assert!(most < 64 * MB, "40 limiters over Redis took {} MB", most / MB);
}
