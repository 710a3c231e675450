//! Sentinels that are silent, stale, or of different opinions.

use super::check::RECOVERY;
use super::trio::gate;
use std::time::Duration;
use testkit::servers::{FaultProxy, RedisServer, Sentinels, wait_until};
use tidegate::{Fallback, Gate, Limiter, Redis};

const LIMIT: &str = "1000/s";

fn client(urls: Vec<String>, name: &str) -> (Limiter, Gate) {
    let redis = Redis::sentinel(urls, name, "redis://any").unwrap();
    let limiter = Limiter::builder().redis(redis.deadline(Duration::from_millis(200))).build();
    let gate = gate(&limiter, "sentinel", LIMIT, Fallback::Deny);
    (limiter, gate)
}

#[track_caller]
fn is_reached(gate: &Gate) {
    wait_until("the master is reached", RECOVERY, || !gate.check("all").is_degraded());
    let degraded = (0..120).filter(|_| gate.check("all").is_degraded()).count();
    assert_eq!(degraded, 0, "{degraded} of 120 calls degraded");
}

#[test]
fn a_stale_sentinel_before_good_ones_is_not_believed() {
    let sentinels = Sentinels::start();
    let stale = Sentinels::stale_sentinel(&sentinels.servers[1]);
    let urls = std::iter::once(stale.url()).chain(sentinels.urls()).collect();
    let (limiter, gate) = client(urls, sentinels.name());
    is_reached(&gate);
    assert_eq!(limiter.redis_stats().unwrap().shards[0].address, sentinels.servers[0].addr());
}

#[test]
fn a_stale_sentinel_beside_one_good_one_is_not_believed() {
    let sentinels = Sentinels::start();
    let stale = Sentinels::stale_sentinel(&sentinels.servers[1]);
    let (_limiter, gate) = client(vec![stale.url(), sentinels.urls().remove(0)], sentinels.name());
    is_reached(&gate);
}

#[test]
fn silent_sentinels_before_a_good_one_do_not_use_up_the_time_to_connect() {
    let sentinels = Sentinels::start();
    // Each accepts, and says nothing.
    let silent: Vec<FaultProxy> = (0..4).map(|_| FaultProxy::start("127.0.0.1:1")).collect();
    silent.iter().for_each(FaultProxy::stall);
    let urls = silent.iter().map(FaultProxy::url).chain(sentinels.urls().into_iter().take(1)).collect();
    let (_limiter, gate) = client(urls, sentinels.name());
    is_reached(&gate);
}

#[test]
fn a_sentinel_that_does_not_know_the_name_is_passed_over() {
    let (sentinels, alone) = (Sentinels::start(), RedisServer::start());
    let urls = std::iter::once(alone.url()).chain(sentinels.urls()).collect();
    let (_limiter, gate) = client(urls, sentinels.name());
    is_reached(&gate);
}

#[test]
fn stale_sentinels_are_not_believed_while_their_master_still_takes_writes() {
    let sentinels = Sentinels::start();
    let old = &sentinels.servers[0];
    sentinels.fail_over();
    // More of them, and before the good one, which has the higher epoch.
    let stale = [(), ()].map(|()| Sentinels::stale_sentinel(old));
    let urls = stale.iter().map(RedisServer::url).chain(sentinels.urls().into_iter().take(1)).collect();
    let (limiter, gate) = client(urls, sentinels.name());
    is_reached(&gate);
    assert_eq!(old.info("replication", "role").as_deref(), Some("master"), "else this shows nothing");
    assert_eq!(limiter.redis_stats().unwrap().shards[0].address, sentinels.servers[1].addr());
}

#[test]
fn a_sentinels_user_needs_only_the_documented_rights() {
    let sentinels = Sentinels::start();
    for rights in [
        "+sentinel|get-master-addr-by-name",
        "+sentinel|get-master-addr-by-name +sentinel|master +subscribe &*",
    ] {
        for sentinel in &sentinels.sentinels {
            let mut command = vec!["ACL", "SETUSER", "limits", "reset", "on", ">secret"];
            command.extend(rights.split(' '));
            sentinel.cmd(&command).accepted();
        }
        let urls = sentinels.sentinels.iter().map(|sentinel| sentinel.url_as("limits", "secret")).collect();
        let (_limiter, gate) = client(urls, sentinels.name());
        is_reached(&gate);
    }
}
