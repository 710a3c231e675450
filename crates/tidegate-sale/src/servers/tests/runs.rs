//! Which Redis it is, and what it can be trusted with.

use super::rig::{buy, engine, on_sale, phone, shared, until};
use crate::engine::Engine as _;
use crate::servers::{ServersConfig, ServersEngine, rebuild};
use std::sync::Arc;
use testkit::servers::RedisServer;

fn blocking<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// The first replica gives a running server another replication id; those who are connected
/// do not notice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_mean_different_runs_agree_after_one_count() {
    let redis = blocking(RedisServer::start);
    let mut config = shared().config();
    config.redis = redis.url();
    let mut engines = vec![engine(&config).await, engine(&config).await];
    on_sale(&engines[0], 1000, 1000).await;
    let run = |engine: &ServersEngine| engine.core.link.live().unwrap().run.clone();
    let before = run(&engines[0]);
    let _replica = blocking(|| RedisServer::replica_of(&redis));
    engines.push(engine(&config).await);
    assert_ne!(run(&engines[2]), before, "it is another run to whoever comes now");
    for round in 0..20 {
        for engine in &engines {
            super::rig::insist(engine, &format!("user-{round}")).await.unwrap();
        }
    }
    let is_one = |engine: &Arc<ServersEngine>| engine.core.link.live().is_ok_and(|live| live.run != before);
    until("all mean the same", async || engines.iter().all(is_one)).await;
    let loads = shared().postgres.sql_in(&config.postgres, "SELECT count(*) FROM sale_loads");
    assert_eq!(loads.trim(), "2", "at the beginning, and once more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_evicts_what_is_sold_is_not_sold_from() {
    let redis =
        blocking(|| RedisServer::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]));
    let mut config = shared().config();
    config.redis = redis.url();
    let opened = ServersEngine::open(config.clone()).await.unwrap();
    until("the broker is there", async || opened.core.broker.is_up()).await;
    assert!(opened.ready().unwrap_err().contains("Redis"));
    for policy in ["noeviction", "volatile-lru"] {
        redis.cmd(&["CONFIG", "SET", "maxmemory-policy", policy]).accepted();
        until("it is taken", async || opened.core.link.live().is_ok()).await;
        redis.cmd(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]).accepted();
        until("it is left", async || opened.core.link.live().is_err()).await;
    }
}

/// Whoever means another epoch than the one that is there is too late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_comes_too_late_changes_nothing() {
    let config = shared().config();
    let engine = engine(&config).await;
    on_sale(&engine, 10, 5).await;
    let (shelf, live) = (engine.core.shelf(&phone()).unwrap(), engine.core.link.live().unwrap());
    let run = live.run.as_str();
    for late in [
        &["fence", run, "0"][..],
        &["fence", "another", "1"],
        &["begin", run, "7", "0"],
        &["fill", run, "0", "a", "b"],
        &["end", run, "7", "x", "y"],
    ] {
        let done = rebuild::step(&engine.core, &shelf, &live, late, None).await;
        assert!(done.unwrap_err().what.contains("another was quicker"));
    }
    buy(&engine, "ann").await.unwrap();
}

#[test]
fn a_configuration_shows_no_password() {
    let config = ServersConfig::new("redis://:sesame@a", "amqp://b:sesame@c", "postgres://d:sesame@e/f");
    assert!(!format!("{config:?}").contains("sesame"));
}
