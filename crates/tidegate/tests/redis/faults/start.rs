//! Starting while Redis is away.

use super::check::RECOVERY;
use super::drive::{Driver, now_us};
use super::trio::{State, Trio, gate};
use std::time::Duration;
use testkit::servers::{RedisServer, wait_until};
use tidegate::{Fallback, Limiter, Redis};

fn redis(server: &RedisServer) -> Redis {
    Redis::at(&server.url()).unwrap()
}

#[test]
fn starting_while_redis_is_away_denies_if_nobody_knows_the_number_of_nodes() {
    let server = RedisServer::start();
    server.kill();
    let trio = Trio::start_away(redis(&server));
    trio.wait_down();
    trio.run(Duration::from_millis(500));
    assert_eq!(trio.stats().nodes, None);
    server.restart();
    let took = trio.wait_exact(now_us());
    wait_until("the nodes are counted", RECOVERY, || trio.stats().nodes == Some(1));
    let told = trio.end(State::Kept);
    println!("exact again after {took:?}");
    let [local, deny, allow] = told.degraded_starts();
    assert!(local == 0 && deny == 0 && allow >= 15, "{local} {deny} {allow}");
    super::check::let_through(&told.local).unwrap();
    assert!(told.stats.connects <= 2, "{:?}", told.stats);
}

#[test]
fn starting_while_redis_is_away_gives_a_share_of_the_nodes_that_were_said() {
    let server = RedisServer::start();
    server.kill();
    let limiter = Limiter::builder().redis(redis(&server).nodes(4)).build();
    let gate = gate(&limiter, "quarter", "200/s burst 40", Fallback::Local);
    let (began_us, driver) = (now_us(), Driver::start(&gate, &["all"], 2));
    wait_until("a second has passed", Duration::from_secs(3), || now_us() > began_us + 1_000_000);
    let records = driver.records();
    let local = records.iter().filter(|record| record.is_degraded && record.is_allowed).count();
    assert!((40..=60).contains(&local), "{local} of about 50");
    assert!(records.iter().all(|record| record.is_degraded));
    assert_eq!(limiter.redis_stats().unwrap().nodes, Some(4));
    server.restart();
    let back_us = now_us();
    wait_until("it is exact", RECOVERY, || driver.exact_us() > back_us);
    wait_until("the nodes are counted", RECOVERY, || limiter.redis_stats().unwrap().nodes == Some(1));
    super::check::late(&driver.stop(), super::check::DEADLINE).unwrap();
}
