//! A cluster: ready, moved about, and half of it gone.

use super::{SOON, bulk, is_gone, ok};
use testkit::servers::{Cluster, RedisServer, Reply, wait_until};

#[test]
fn a_cluster_is_ready_and_moves_a_slot_in_steps() {
    let cluster = Cluster::start();
    assert_eq!((cluster.urls().len(), cluster.masters()), (6, vec![0, 1, 2]));
    assert_eq!([0, 1, 2].map(|master| cluster.replica_of(master)), [3, 4, 5]);
    // Three keys of one slot, one of them not text, and more than one batch moves.
    let (slot, from) = (cluster.slot("{tide}1"), cluster.master_of("{tide}1"));
    assert_eq!((cluster.slot("{tide}2"), cluster.owner(slot)), (slot, from));
    let to = (from + 1) % 3;
    let old = &cluster.servers[from];
    let new = &cluster.servers[to];
    for nth in 0..250 {
        assert_eq!(old.cmd(&["SET", &format!("{{tide}}{nth}"), "x"]), ok());
    }
    assert_eq!(old.cmd(&[b"SET".as_slice(), b"{tide}\xff", b"\xff"]), ok());

    cluster.begin_migration(slot, from, to);
    assert_eq!(cluster.master_of("{tide}1"), from, "still the old one's");
    assert_eq!(old.cmd(&["GET", "{tide}1"]), bulk("x"), "what it has, it answers");
    let ask = format!("ASK {slot} {}", new.addr());
    assert_eq!(old.cmd(&["GET", "{tide}new"]).error(), Some(ask.as_str()));

    cluster.move_keys(slot, from, to);
    assert_eq!(old.cmd(&["GET", "{tide}1"]).error(), Some(ask.as_str()));
    let mut conn = new.connect().unwrap();
    assert_eq!(conn.cmd(&["ASKING"]), ok());
    assert_eq!(conn.cmd(&["GET", "{tide}249"]), bulk("x"));

    cluster.end_migration(slot, from, to);
    assert_eq!(cluster.master_of("{tide}1"), to);
    let moved = format!("MOVED {slot} {}", new.addr());
    assert_eq!(old.cmd(&["GET", "{tide}1"]).error(), Some(moved.as_str()));
    assert_eq!(new.cmd(&[b"GET".as_slice(), b"{tide}\xff"]), Reply::Bulk(vec![0xff]));

    cluster.migrate(slot, to, from);
    assert_eq!(cluster.master_of("{tide}1"), from);
    assert_eq!(old.cmd(&["GET", "{tide}1"]), bulk("x"));
}

#[test]
fn a_replica_takes_over_from_a_master_that_is_killed() {
    let cluster = Cluster::start();
    let old = cluster.master_of("key");
    let replica = cluster.replica_of(old);
    cluster.servers[old].kill();
    assert!(!cluster.masters().contains(&old));
    wait_until("the replica has taken over", SOON, || cluster.master_of("key") == replica);
    cluster.wait_ready();
    assert_eq!(cluster.servers[replica].cmd(&["SET", "key", "value"]), ok());
    cluster.servers[old].restart();
    wait_until("the old master has become a replica", SOON, || {
        cluster.servers[old].cmd(&["ROLE"]).items()[0] == bulk("slave")
    });
    cluster.wait_ready();
    assert_eq!((cluster.masters().len(), cluster.replica_of(replica)), (3, old));

    let pids: Vec<u32> = cluster.servers.iter().filter_map(RedisServer::pid).collect();
    drop(cluster);
    assert!(pids.len() == 6 && pids.into_iter().all(is_gone));
}
