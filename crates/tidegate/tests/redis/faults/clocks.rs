//! A server's clock that steps back, nodes that die, settings that change.
//!
//! A [`ManualClock`] stands in for the server's clock.

use super::login::Said;
use super::trio::gate;
use std::time::Duration;
use testkit::servers::{FaultProxy, RedisServer, wait_until};
use tidegate::{Fallback, Gate, GateOptions, Limiter, ManualClock, Redis, Timestamp};

const PATIENCE: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3_600);
const LEASE: Duration = Duration::from_secs(10);

fn clock() -> ManualClock {
    ManualClock::at(Timestamp::from_micros(2 * 3_600_000_000))
}

fn node(url: &str, clock: &ManualClock) -> Limiter {
    let redis = Redis::at(url).unwrap().deadline(Duration::from_secs(5));
    Limiter::builder().redis(redis).clock(clock.clone()).build()
}

fn slots(limiter: &Limiter, lease: Duration) -> Gate {
    let options = GateOptions::new().hold_for(lease).fallback(Fallback::Deny);
    limiter.gate_with("slots", "2 concurrent queue 5 wait 1h", options).unwrap()
}

fn step_back(clock: &ManualClock) {
    clock.set(Timestamp::from_micros(clock.now().as_micros() - HOUR.as_micros() as u64));
}

fn free(gate: &Gate) -> u64 {
    let decision = gate.peek("job");
    assert!(!decision.is_degraded(), "{decision:?}");
    decision.remaining()
}

#[test]
fn a_clock_that_steps_back_does_not_lock_the_slots_of_crashed_holders() {
    let (server, clock) = (RedisServer::start(), clock());
    let proxy = FaultProxy::start(&server.addr());
    let (crashing, lives) = (node(&proxy.url(), &clock), node(&server.url(), &clock));
    let (short, long) = (slots(&crashing, LEASE), slots(&lives, LEASE * 6));
    let held = short.reserve("job").into_permit().unwrap();
    let kept = long.reserve("job").into_permit().unwrap();
    assert_eq!(free(&long), 0);
    // From now on the holder is as good as crashed.
    proxy.refuse();
    step_back(&clock);
    assert_eq!(free(&long), 0, "a lease is not shorter for the step");
    clock.advance(LEASE - Duration::from_millis(1));
    assert_eq!(free(&long), 0, "nor over before its time");
    clock.advance(Duration::from_millis(2));
    assert_eq!(free(&long), 1, "it is over when its own lease is, not an hour later");
    assert!(!kept.is_lost(), "a lease that is longer lives on");
    drop((held, kept));
}

#[test]
fn a_clock_that_steps_back_does_not_keep_crashed_waiters_in_the_queue() {
    let (server, clock) = (RedisServer::start(), clock());
    let proxy = FaultProxy::start(&server.addr());
    let (crashing, lives) = (node(&proxy.url(), &clock), node(&server.url(), &clock));
    let gate = slots(&lives, LEASE);
    let held: Vec<_> = (0..2).map(|_| gate.reserve("job").into_permit().unwrap()).collect();
    let waiting = slots(&crashing, LEASE).acquire("job");
    let waiter = std::thread::spawn(move || waiting.blocking().is_allowed());
    let queued = || server.cmd(&["ZCARD", "tg:1:slots:{job}:queue"]).int();
    wait_until("it is queued", PATIENCE, || queued() == 1);
    proxy.refuse();
    step_back(&clock);
    // Looked at once after the step, as anybody who asks does.
    assert_eq!(free(&gate), 0);
    clock.advance(Duration::from_secs(3));
    wait_until("it is out of the queue", PATIENCE, || {
        let _ = gate.peek("job");
        queued() == 0
    });
    drop(held);
    // Past its longest wait.
    clock.advance(2 * HOUR);
    assert!(!waiter.join().unwrap());
}

fn nodes(limiter: &Limiter) -> Option<u32> {
    limiter.redis_stats().unwrap().nodes
}

/// Two nodes that know of each other, of which the second can be cut off.
fn two(server: &RedisServer, node: impl Fn(&str) -> Limiter) -> (Limiter, Limiter, FaultProxy) {
    let proxy = FaultProxy::start(&server.addr());
    let (lives, crashing) = (node(&server.url()), node(&proxy.url()));
    wait_until("both are counted", PATIENCE, || nodes(&lives) == Some(2) && nodes(&crashing) == Some(2));
    (lives, crashing, proxy)
}

/// Longer than from one sign of life to the next, which is a second and a half.
const HEARD: Duration = Duration::from_secs(3);

#[test]
fn a_killed_node_counts_for_five_seconds_not_ten() {
    let server = RedisServer::start();
    let at = |url: &str| Limiter::builder().redis(Redis::at(url).unwrap()).build();
    let (lives, _crashed, proxy) = two(&server, at);
    proxy.refuse();
    // Five seconds, and the next sign of life of the other.
    wait_until("the other is no longer counted", Duration::from_secs(5) + HEARD, || nodes(&lives) == Some(1));
}

#[test]
fn a_clock_that_steps_back_does_not_keep_dead_nodes_counted() {
    let (server, clock) = (RedisServer::start(), clock());
    let (lives, _crashed, proxy) = two(&server, |url| node(url, &clock));
    proxy.refuse();
    step_back(&clock);
    // The clock goes on about as fast as time does.
    wait_until("the other is no longer counted", 3 * PATIENCE, || {
        clock.advance(Duration::from_millis(1));
        nodes(&lives) == Some(1)
    });
}

/// Waits until each of two nodes has given a sign of life.
fn beat_twice(server: &RedisServer) {
    let beats = server.calls("evalsha");
    wait_until("signs of life were given", HEARD, || server.calls("evalsha") > beats + 1);
}

#[test]
fn a_server_that_comes_back_empty_makes_no_node_forget_the_others() {
    let (server, clock) = (RedisServer::start(), clock());
    let (lives, others, _proxy) = two(&server, |url| node(url, &clock));
    for _ in 0..3 {
        server.cmd(&["FLUSHALL"]).accepted();
        beat_twice(&server);
        assert_eq!((nodes(&lives), nodes(&others)), (Some(2), Some(2)));
    }
}

#[test]
fn a_server_that_was_away_for_long_makes_no_node_forget_the_others() {
    let (server, clock) = (RedisServer::start(), clock());
    let (lives, others, _proxy) = two(&server, |url| node(url, &clock));
    for _ in 0..3 {
        // All signs of life are over at once, as after a clock that stepped forward.
        clock.advance(Duration::from_secs(6));
        beat_twice(&server);
        assert_eq!((nodes(&lives), nodes(&others)), (Some(2), Some(2)));
    }
}

#[test]
fn an_eviction_policy_that_is_changed_while_connected_is_warned_about() {
    let said = Said::listen();
    let server = RedisServer::start();
    let redis = Redis::at(&server.url()).unwrap().deadline(Duration::from_secs(5));
    let limiter = Limiter::builder().redis(redis).build();
    let gate = gate(&limiter, "evicted", "100/s", Fallback::Deny);
    wait_until("the store is reached", PATIENCE, || !gate.check("all").is_degraded());
    assert!(!said.about(&server.addr()).contains("evict"));
    server.cmd(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "100mb"]).accepted();
    wait_until("it is warned about", PATIENCE, || said.about(&server.addr()).contains("allkeys-lru"));
    assert_eq!(limiter.redis_stats().unwrap().connects, 1);
    let warned = || said.about(&server.addr()).lines().filter(|line| line.contains("evict")).count();
    assert_eq!(warned(), 1, "{}", said.about(&server.addr()));
    server.cmd(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]).accepted();
    wait_until("a change is warned about", PATIENCE, || said.about(&server.addr()).contains("volatile-ttl"));
    assert_eq!(warned(), 2, "{}", said.about(&server.addr()));
}
