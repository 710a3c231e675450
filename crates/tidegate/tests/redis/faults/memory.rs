//! Servers that answer, but take no writes: memory full, and replicas.

use super::check::{DEADLINE, RECOVERY, late, odd};
use super::drive::{Driver, now_us};
use super::trio::{CAP, LIMIT, State, Trio, gate};
use std::time::Duration;
use testkit::servers::{RedisServer, pause, wait_until};
use tidegate::{Denial, Fallback, Limiter, Redis};

fn redis(server: &RedisServer) -> Redis {
    Redis::at(&server.url()).unwrap()
}

fn set_memory(server: &RedisServer, most: &str) {
    server.cmd(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).accepted();
    server.cmd(&["CONFIG", "SET", "maxmemory", most]).accepted();
}

#[test]
fn memory_full_makes_grants_fall_back_and_leaves_denials_exact() {
    let server = RedisServer::start();
    let limiter = Limiter::builder().redis(redis(&server).deadline(Duration::from_millis(500))).build();
    let gate = gate(&limiter, "full", "2 per 1h", Fallback::Deny);
    assert_eq!([(); 3].map(|()| gate.check("used up").is_allowed()), [true, true, false]);
    set_memory(&server, "1");
    pause(Duration::from_millis(60)); // longer than a denial is remembered
    let denied = gate.check("used up");
    assert!(!denied.is_degraded() && matches!(denied.denial(), Some(Denial::Later(_))), "{denied:?}");
    let peeked = gate.peek("new");
    assert!(!peeked.is_degraded() && peeked.remaining() == 2, "{peeked:?}");
    for _ in 0..10 {
        let unavailable = gate.check("new");
        assert!(unavailable.is_degraded() && !unavailable.is_allowed(), "{unavailable:?}");
    }
    set_memory(&server, "0");
    let back = gate.check("new");
    assert!(back.is_allowed() && !back.is_degraded(), "{back:?}");
    assert_eq!(back.remaining(), 1, "what was refused was not spent");
    odd(&limiter.redis_stats().unwrap()).unwrap();
}

#[test]
fn memory_full_is_survived_by_every_fallback() {
    let server = RedisServer::start();
    let trio = Trio::start(redis(&server));
    set_memory(&server, "1");
    trio.run(Duration::from_secs(1));
    set_memory(&server, "0");
    let took = trio.wait_exact(now_us());
    trio.run(Duration::from_millis(300));
    let told = trio.end(State::Kept);
    println!("exact again after {took:?}");
    let [local, deny, allow] = told.degraded_starts();
    assert!(local >= 50 && deny == 0 && allow >= 20, "{local} {deny} {allow}");
    assert!(told.stats.connects <= 4, "{:?}", told.stats);
}

/// Makes a replica of it. What it is sent it does not write to a file first: on a busy disk
/// that can keep it from answering for seconds.
fn demote(server: &RedisServer, master: &RedisServer) {
    server.cmd(&["CONFIG", "SET", "repl-diskless-load", "swapdb"]).accepted();
    server.cmd(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]).accepted();
    wait_until("it has caught up", RECOVERY, || {
        server.info("replication", "master_link_status").as_deref() == Some("up")
    });
}

#[test]
fn a_read_only_replica_is_not_asked_until_it_is_a_master() {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    demote(&replica, &master);
    let trio = Trio::start_away(redis(&replica).nodes(1));
    trio.wait_down();
    trio.run(Duration::from_millis(500));
    assert_eq!(trio.stats().connects, 0, "{:?}", trio.stats());
    replica.cmd(&["REPLICAOF", "NO", "ONE"]).accepted();
    let took = trio.wait_exact(now_us());
    let told = trio.end(State::Kept);
    println!("exact again after {took:?}");
    let [local, deny, allow] = told.degraded_starts();
    assert!(local >= 25 && deny == 0 && allow >= 15, "{local} {deny} {allow}");
}

#[test]
fn a_master_that_becomes_a_replica_is_left_alone() {
    let (master, other) = (RedisServer::start(), RedisServer::start());
    let trio = Trio::start(redis(&master));
    let promote = || drop(master.cmd(&["REPLICAOF", "NO", "ONE"]).accepted());
    let took = trio.outage(|| demote(&master, &other), Duration::from_millis(500), promote);
    // What it was sent by its master was nothing.
    let told = trio.end(State::Lost);
    println!("exact again after {took:?}");
    let [local, deny, allow] = told.degraded_starts();
    assert!(local >= 25 && deny == 0 && allow >= 15, "{local} {deny} {allow}");
    assert!(told.stats.connects <= 4, "{:?}", told.stats);
}

#[test]
fn a_key_that_holds_something_else_falls_back_and_harms_no_other() {
    let server = RedisServer::start();
    let limiter = Limiter::builder().redis(redis(&server)).build();
    let gate = gate(&limiter, "mixed", LIMIT, Fallback::allow(CAP).unwrap());
    server.cmd(&["HSET", "tg:1:mixed:{bad}", "field", "value"]).accepted();
    wait_until("the store is reached", RECOVERY, || !gate.check("good").is_degraded());
    let (bad, good) = (Driver::start(&gate, &["bad"], 1), Driver::start(&gate, &["good"], 1));
    pause(Duration::from_millis(500));
    let (bad, good) = (bad.stop(), good.stop());
    assert!(bad.iter().all(|record| record.is_degraded));
    let cap: tidegate::Limit = CAP.parse().unwrap();
    super::check::exceeded(&bad, |window| cap.worst_case(window, 1)).unwrap();
    let degraded = good.iter().filter(|record| record.is_degraded).count();
    assert!(degraded * 20 <= good.len(), "{degraded} of {}", good.len());
    late(&good, DEADLINE).unwrap();
    late(&bad, DEADLINE).unwrap();
}
