//! A server that dies, hangs or is paused.

use super::check::{DEADLINE, RECOVERY, late, odd};
use super::drive::{Driver, now_us};
use super::trio::{State, Trio, gate};
use std::thread;
use std::time::Duration;
use testkit::servers::{RedisServer, wait_until};
use tidegate::{Fallback, Gate, Limit, Limiter, Redis};

/// How long a fault lasts once it was noticed.
const LASTS: Duration = Duration::from_millis(700);

fn redis(server: &RedisServer) -> Redis {
    Redis::at(&server.url()).unwrap()
}

#[test]
fn kill_9_and_restart_costs_at_most_one_burst() {
    let server = RedisServer::start();
    let trio = Trio::start(redis(&server));
    let took = trio.outage(|| server.kill(), LASTS, || server.restart());
    let told = trio.end(State::Lost);
    println!("exact again after {took:?}");
    // The share flows, and the cap is used.
    let [local, deny, allow] = told.degraded_starts();
    assert!(local >= 35 && deny == 0 && allow >= 20, "{local} {deny} {allow}");
    // One at the start, one when it was back; and tries without a server are no connections.
    assert!(told.stats.connects <= 4, "{:?}", told.stats);
}

#[test]
fn a_frozen_server_delays_nobody_beyond_the_deadline() {
    let server = RedisServer::start();
    let trio = Trio::start(redis(&server));
    let took = trio.outage(|| server.freeze(), LASTS, || server.thaw());
    let told = trio.end(State::Kept);
    println!("exact again after {took:?}");
    let [local, deny, allow] = told.degraded_starts();
    assert!(local >= 35 && deny == 0 && allow >= 20, "{local} {deny} {allow}");
    assert!(told.stats.timeouts > 0 && told.stats.connects <= 4, "{:?}", told.stats);
}

#[test]
fn debug_sleep_delays_nobody_beyond_the_deadline() {
    let server = RedisServer::start();
    let trio = Trio::start(redis(&server));
    let took = thread::scope(|scope| {
        let sleeping = scope.spawn(|| server.cmd(&["DEBUG", "SLEEP", "0.8"]).accepted());
        trio.outage(|| (), Duration::ZERO, || drop(sleeping.join()))
    });
    let told = trio.end(State::Kept);
    println!("exact again after {took:?}");
    assert!(told.stats.timeouts > 0 && told.stats.connects <= 4, "{:?}", told.stats);
}

#[test]
fn client_pause_delays_nobody_beyond_the_deadline() {
    for what in ["ALL", "WRITE"] {
        let server = RedisServer::start();
        let trio = Trio::start(redis(&server));
        let paused = || drop(server.cmd(&["CLIENT", "PAUSE", "900", what]).accepted());
        // Whoever writes is answered when it is over.
        let took = trio.outage(paused, Duration::ZERO, || drop(server.cmd(&["DEL", "nothing"]).accepted()));
        let told = trio.end(State::Kept);
        println!("exact again after {took:?}");
        let [local, deny, allow] = told.degraded_starts();
        assert!(local >= 35 && deny == 0 && allow >= 20, "{what}: {local} {deny} {allow}");
        assert!(told.stats.timeouts > 0, "{what}: {:?}", told.stats);
        // A server that lets clients in, but does not serve them, is tried with pauses too.
        assert!(told.stats.connects <= 12, "{what}: {:?}", told.stats);
    }
}

/// Nothing flows in during a test, so that every unit can be counted.
const COUNTED: &str = "200 per 1h";

fn used(server: &RedisServer, name: &str) -> u64 {
    let other = Limiter::builder().redis(redis(server).deadline(Duration::from_secs(5))).build();
    let left = gate(&other, name, COUNTED, Fallback::Deny).peek("all");
    assert!(!left.is_degraded(), "{left:?}");
    200 - left.remaining()
}

fn granted(records: &[super::drive::Record]) -> u64 {
    records.iter().filter(|record| record.is_allowed).count() as u64
}

#[test]
fn a_call_that_timed_out_is_spent_and_never_granted_twice() {
    let server = RedisServer::start();
    let limiter = Limiter::builder().redis(redis(&server)).build();
    let counted = gate(&limiter, "counted", COUNTED, Fallback::Deny);
    wait_until("the store is reached", RECOVERY, || !counted.peek("all").is_degraded());
    let driver = Driver::start(&counted, &["all"], 2);
    wait_until("some were granted", Duration::from_secs(5), || driver.records().len() > 10);
    server.freeze();
    wait_until("it counts as away", Duration::from_secs(2), || {
        !limiter.redis_stats().unwrap().shards[0].is_up
    });
    server.thaw();
    let back_us = now_us();
    wait_until("it is asked again", Duration::from_secs(3), || driver.exact_us() > back_us);
    let records = driver.stop();
    let stats = limiter.redis_stats().unwrap();
    let (granted, used) = (granted(&records), used(&server, "counted"));
    println!("granted {granted}, used {used}, {} timed out", stats.timeouts);
    assert!(stats.timeouts > 0, "{stats:?}");
    assert!(used >= granted, "{granted} were granted, but only {used} are used");
    assert!(used <= granted + stats.timeouts, "{used} are used, {granted} were granted: {stats:?}");
    late(&records, DEADLINE).unwrap();
    odd(&stats).unwrap();
    // What is left is all that is granted from now on.
    let more = (0..200).map(|_| counted.check("all")).filter(|d| d.is_allowed() && !d.is_degraded()).count();
    assert!(used + more as u64 <= 200, "{used} and {more}");
}

fn two(server: &RedisServer) -> [(Limiter, Gate); 2] {
    [(), ()].map(|()| {
        let limiter = Limiter::builder().redis(redis(server)).build();
        let gate = gate(&limiter, "shared", "100/s burst 20", Fallback::Local);
        (limiter, gate)
    })
}

#[test]
fn the_number_of_nodes_is_heard_and_the_share_halves() {
    let server = RedisServer::start();
    let nodes = two(&server);
    wait_until("both have heard of each other", Duration::from_secs(5), || {
        nodes.iter().all(|(limiter, _)| limiter.redis_stats().unwrap().nodes == Some(2))
    });
    let drivers = nodes.each_ref().map(|(_, gate)| Driver::start(gate, &["all"], 2));
    wait_until("both ask", Duration::from_secs(5), || drivers.iter().all(|driver| driver.exact_us() > 0));
    server.kill();
    let killed_us = now_us();
    wait_until("a second has passed", Duration::from_secs(5), || now_us() > killed_us + 1_000_000);
    let (limit, share) = ("100/s burst 20".parse::<Limit>().unwrap(), "100 per 2s burst 10".parse().unwrap());
    let mut all = Vec::new();
    for (driver, (limiter, _)) in drivers.into_iter().zip(&nodes) {
        let records = driver.stop();
        all.extend(records.iter().copied());
        super::check::burst(&records, &share).unwrap();
        late(&records, DEADLINE).unwrap();
        let local = records.iter().filter(|record| record.is_degraded && record.is_allowed).count();
        assert!((40..=60).contains(&local), "{local} of about 50: {:?}", limiter.redis_stats());
        assert_eq!(limiter.redis_stats().unwrap().nodes, Some(2));
    }
    // What Redis let start, what flows in without it, and one request on each node.
    let flow = |window: Duration| u64::try_from(window.as_micros() / 10_000).unwrap();
    super::check::exceeded(&all, |window| limit.worst_case(window, 1) + flow(window) + 2).unwrap();
}

#[test]
fn a_local_share_below_one_unit_is_one_unit_of_a_longer_window() {
    let server = RedisServer::start();
    let nodes = [(), ()].map(|()| {
        let limiter = Limiter::builder().redis(redis(&server)).build();
        let gate = gate(&limiter, "single", "1 per 100ms fixed-window", Fallback::Local);
        (limiter, gate)
    });
    wait_until("both have heard of each other", Duration::from_secs(5), || {
        nodes.iter().all(|(limiter, _)| limiter.redis_stats().unwrap().nodes == Some(2))
    });
    let drivers = nodes.each_ref().map(|(_, gate)| Driver::start(gate, &["all"], 2));
    wait_until("both ask", Duration::from_secs(5), || drivers.iter().all(|driver| driver.exact_us() > 0));
    server.kill();
    let killed_us = now_us();
    wait_until("a second has passed", Duration::from_secs(5), || now_us() > killed_us + 1_000_000);
    let share: Limit = "1 per 200ms fixed-window".parse().unwrap();
    for driver in drivers {
        let records = driver.stop();
        late(&records, DEADLINE).unwrap();
        let local: Vec<_> = records.into_iter().filter(|record| record.is_degraded).collect();
        super::check::exceeded(&local, |window| share.worst_case(window, 1)).unwrap();
        let starts = granted(&local);
        assert!((3..=7).contains(&starts), "{starts} of about 5");
    }
}

#[test]
fn a_reset_is_answered() {
    let server = RedisServer::start();
    let limiter = Limiter::builder().redis(redis(&server).deadline(Duration::from_millis(200))).build();
    let gate = gate(&limiter, "reset", "2 per 1h", Fallback::Deny);
    let all = |expected| assert_eq!([(); 3].map(|()| gate.check("all").is_allowed()), expected);
    all([true, true, false]);
    assert!(gate.reset_async("all").blocking());
    all([true, true, false]);
    // On its way to a server that does not answer.
    server.freeze();
    let asked_us = now_us();
    assert!(!gate.reset_async("all").blocking());
    // The breaker is open, or about to be: at once, or after the deadline.
    wait_until("it counts as away", Duration::from_secs(3), || {
        assert!(!gate.reset_async("all").blocking());
        !limiter.redis_stats().unwrap().shards[0].is_up
    });
    assert!(!gate.reset_async("all").blocking());
    assert!(now_us() - asked_us < 2_000_000, "{} us", now_us() - asked_us);
    server.thaw();
    wait_until("it is answered again", Duration::from_secs(3), || gate.reset_async("all").blocking());
    // What had timed out may have come through late; this one did for certain.
    assert!(!gate.peek("all").is_degraded());
    assert_eq!(gate.peek("all").remaining(), 2);
}
