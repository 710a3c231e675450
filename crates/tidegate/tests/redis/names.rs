//! Two gates of one name own the same keys in Redis: what counts there is the name.
//!
//! A gate that was taken out of its limiter can still be used by those who hold it, and the
//! name can be defined anew meanwhile.

use std::time::Duration;
use testkit::servers::{Cluster, FaultProxy, RedisServer, pause, wait_until};
use tidegate::{Check, Gate, Limiter, Redis};

fn node(url: &str) -> Limiter {
    Limiter::builder().redis(Redis::at(url).unwrap().deadline(Duration::from_secs(5))).build()
}

/// A gate that was taken out, and the one that has its name now.
fn two_of_one_name(limiter: &Limiter, limits: [&str; 2]) -> [Gate; 2] {
    limits.map(|limit| {
        limiter.remove("one-name");
        limiter.gate("one-name", limit).unwrap()
    })
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn two_gates_of_one_name_in_one_call_are_both_charged() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.addr());
    let limiter = node(&proxy.url());
    for (nth, limits) in [["2 per 1h", "2 per 1h"], ["2 per 1h", "3 per 1h"]].into_iter().enumerate() {
        let key = format!("{nth}");
        let [old, new] = two_of_one_name(&limiter, limits);
        assert!(old.check(&key).is_allowed());
        proxy.delay(Duration::from_millis(300));
        let mut first = Box::pin(old.check_cost_async(&key, 0));
        let waker = std::task::Waker::noop();
        assert!(first.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
        pause(Duration::from_millis(50));
        let calls = limiter.redis_stats().unwrap().calls;
        let asked = [old.check_async(&key), new.check_async(&key)];
        proxy.pass();
        let allowed = asked.map(|asked| u64::from(block_on(asked).is_allowed())).iter().sum::<u64>();
        assert_eq!(limiter.redis_stats().unwrap().calls, calls + 1, "they did not share a call");
        let capacity = new.limit().capacity();
        assert_eq!(new.peek(&key).remaining(), capacity - 1 - allowed, "{allowed} were let in: {limits:?}");
    }
}

/// One request with checks of 2 and 1 on gates of one name: the key has used 3 after it.
fn is_charged_the_sum(limiter: &Limiter, limits: [&str; 2]) {
    let [old, new] = two_of_one_name(limiter, limits);
    let ask = || limiter.reserve(&[Check::new(&old, "a").cost(2), Check::new(&new, "a")]);
    let verdict = ask();
    assert!(verdict.is_allowed(), "{limits:?}: {verdict:?}");
    let capacity = new.limit().capacity();
    assert_eq!(new.peek("a").remaining(), capacity - 3, "{limits:?}");
    drop(verdict);
    assert!(!ask().is_allowed(), "{limits:?}");
    let left = || new.peek("a").remaining();
    wait_until("the refusal has charged nothing", Duration::from_secs(10), || left() == capacity - 3);
    new.reset("a");
}

#[test]
fn one_request_about_two_gates_of_one_name_is_charged_the_sum() {
    let server = RedisServer::start();
    let limiter = node(&server.url());
    is_charged_the_sum(&limiter, ["5 per 1h", "5 per 1h"]);
    is_charged_the_sum(&limiter, ["4 per 1h", "5 per 1h"]);
    is_charged_the_sum(&limiter, ["5 per 1h sliding-log", "5 per 1h sliding-log"]);
    is_charged_the_sum(&limiter, ["5 per 24h fixed-window", "5 per 24h fixed-window"]);
}

#[test]
fn in_a_cluster_one_request_about_two_gates_of_one_name_is_charged_the_sum() {
    let cluster = Cluster::start();
    let redis = Redis::cluster(cluster.urls()).unwrap().deadline(Duration::from_secs(5));
    let limiter = Limiter::builder().redis(redis).build();
    is_charged_the_sum(&limiter, ["5 per 1h", "5 per 1h"]);
    is_charged_the_sum(&limiter, ["4 per 1h", "5 per 1h"]);
}

#[test]
fn slots_of_two_gates_of_one_name_are_counted_together() {
    let server = RedisServer::start();
    let limiter = node(&server.url());
    for limits in [["3 concurrent", "3 concurrent"], ["3 concurrent", "4 concurrent"]] {
        let [old, new] = two_of_one_name(&limiter, limits);
        let capacity = new.limit().capacity();
        let checks = [Check::new(&old, "a").cost(2), Check::new(&new, "a")];
        let permit = limiter.reserve(&checks).into_permit().unwrap();
        assert_eq!(new.peek("a").remaining(), capacity - 3, "{limits:?}");
        drop(permit);
        wait_until("all are free again", Duration::from_secs(10), || new.peek("a").remaining() == capacity);
    }
}

#[test]
fn two_limiters_of_one_process_share_what_they_name_alike() {
    let server = RedisServer::start();
    let (one, other) = (node(&server.url()), node(&server.url()));
    let (here, there) = (one.gate("shared", "5 per 1h").unwrap(), other.gate("shared", "5 per 1h").unwrap());
    let ask = || one.check(&[Check::new(&here, "a").cost(2), Check::new(&there, "a")]);
    assert!(ask().is_allowed());
    assert_eq!((here.peek("a").remaining(), there.peek("a").remaining()), (2, 2));
    assert!(!ask().is_allowed());
    wait_until("the refusal has charged nothing", Duration::from_secs(10), || {
        here.peek("a").remaining() == 2
    });
}
