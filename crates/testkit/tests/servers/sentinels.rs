//! Sentinels: they name the master, and find another.

use super::{SOON, bulk, is_gone, ok};
use testkit::servers::{RedisServer, Sentinels, wait_until};

#[test]
fn the_replica_becomes_master_when_the_master_is_killed() {
    let sentinels = Sentinels::start();
    assert_eq!((sentinels.urls().len(), sentinels.name()), (3, "mymaster"));
    let (old, replica) = (&sentinels.servers[0], &sentinels.servers[1]);
    assert_eq!(sentinels.master().port(), old.port());
    old.kill();
    wait_until("the sentinels name the replica", SOON, || sentinels.master().port() == replica.port());
    assert_eq!(replica.cmd(&["SET", "key", "value"]), ok());
    old.restart();
    wait_until("the old master follows the new one", SOON, || {
        // A server that is made a replica closes its connections, so an answer may be missing.
        old.try_cmd(&["GET", "key"]).is_ok_and(|reply| reply == bulk("value"))
    });
    sentinels.wait_ready();

    sentinels.restart_sentinel(0);
    sentinels.wait_ready();
    assert_eq!(sentinels.master().port(), replica.port(), "a sentinel remembers");
    sentinels.sentinels[0].kill();
    assert_eq!(sentinels.master().port(), replica.port(), "another is asked");
    sentinels.wait_ready();

    let all = sentinels.servers.iter().chain(&sentinels.sentinels);
    let pids: Vec<u32> = all.filter_map(RedisServer::pid).collect();
    drop(sentinels);
    assert!(pids.len() == 4 && pids.into_iter().all(is_gone));
}
