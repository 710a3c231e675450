//! Several servers: masters that die or are frozen, slots that move, sentinels.

use super::check::{DEADLINE, RECOVERY, SLACK, burst, exceeded, late, odd};
use super::drive::{Driver, Record, now_us};
use super::login::{CLUSTER_RIGHTS, RIGHTS};
use super::trio::{LIMIT, State, Trio, gate};
use std::time::Duration;
use testkit::servers::{Cluster, RedisServer, Sentinels, pause, wait_until};
use tidegate::{Fallback, Gate, Limit, Limiter, Redis};

/// Longer than the servers among themselves take to replace one of them: a vote that nobody
/// wins is repeated seconds later. It says nothing about the store.
const FAIL_OVER: Duration = Duration::from_secs(20);

fn limiter(cluster: &Cluster) -> Limiter {
    Limiter::builder().redis(Redis::cluster(cluster.urls()).unwrap()).build()
}

/// A key of that master's.
fn key_of(cluster: &Cluster, master: usize) -> String {
    let keys = (0..).map(|nth| format!("key{nth}"));
    keys.into_iter().find(|key| cluster.master_of(key) == master).expect("every master has keys")
}

/// A key of each master, the last one that of the sign of life.
fn keys(cluster: &Cluster) -> [String; 3] {
    let alive = cluster.master_of("nodes");
    let mut masters = cluster.masters();
    masters.retain(|master| *master != alive);
    [masters[0], masters[1], alive].map(|master| key_of(cluster, master))
}

fn reach(gate: &Gate, keys: &[String]) {
    for key in keys {
        wait_until("every master is reached", RECOVERY, || !gate.peek(key).is_degraded());
    }
}

fn starts(records: &[Record]) -> usize {
    records.iter().filter(|record| record.is_degraded && record.is_allowed).count()
}

#[test]
fn one_dead_master_leaves_the_other_shards_exact() {
    let cluster = Cluster::with(&["--cluster-require-full-coverage", "no"]);
    let limiter = limiter(&cluster);
    let gate = gate(&limiter, "spread", LIMIT, Fallback::Local);
    let keys = keys(&cluster);
    reach(&gate, &keys);
    wait_until("the nodes are counted", RECOVERY, || limiter.redis_stats().unwrap().nodes == Some(1));
    let dead = cluster.master_of(&keys[0]);
    cluster.servers[cluster.replica_of(dead)].kill();
    let drivers = keys.each_ref().map(|key| Driver::start(&gate, &[key], 2));
    pause(Duration::from_millis(300));
    cluster.servers[dead].freeze();
    let address = cluster.servers[dead].addr();
    wait_until("its breaker is open", Duration::from_secs(2), || {
        limiter.redis_stats().unwrap().shards.iter().any(|shard| shard.address == address && !shard.is_up)
    });
    pause(Duration::from_millis(1_000));
    let open = limiter.redis_stats().unwrap().shards.iter().filter(|shard| !shard.is_up).count();
    assert_eq!(open, 1, "{:?}", limiter.redis_stats());
    cluster.servers[dead].thaw();
    let back_us = now_us();
    wait_until("the dead one is exact again", RECOVERY + RECOVERY, || {
        drivers[0].exact_us() > back_us + 300_000
    });
    println!(
        "exact again after {:?}",
        Duration::from_micros(drivers[0].degraded_us().saturating_sub(back_us))
    );
    let [one, other, alive] = drivers.map(Driver::stop);
    let limit = gate.limit();
    late(&one, DEADLINE).unwrap();
    burst(&one, &limit).unwrap();
    assert!(starts(&one) >= 50, "{}", starts(&one));
    for records in [other, alive] {
        late(&records, DEADLINE).unwrap();
        // A busy machine may miss a deadline here and there, and is then answered by the share
        // in memory; nothing else does.
        let (degraded, exact): (Vec<_>, Vec<_>) = records.into_iter().partition(|record| record.is_degraded);
        assert!(degraded.len() * 20 <= exact.len(), "{} of {}", degraded.len(), exact.len());
        exceeded(&exact, |window| limit.worst_case(window, 1)).unwrap();
    }
    odd(&limiter.redis_stats().unwrap()).unwrap();
}

#[test]
fn several_dead_masters_give_one_share_each_and_no_more() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    let gate = gate(&limiter, "spread", "20/s burst 40", Fallback::Local);
    let cap: Limit = "1/s burst 5".parse().unwrap();
    let capped = super::trio::gate(&limiter, "capped", LIMIT, Fallback::Allow { cap: cap.clone() });
    let keys = keys(&cluster);
    reach(&gate, &keys);
    wait_until("the nodes are counted", RECOVERY, || limiter.redis_stats().unwrap().nodes == Some(1));
    let drivers = keys.each_ref().map(|key| Driver::start(&gate, &[key], 1));
    let all: Vec<&str> = keys.iter().map(String::as_str).collect();
    let allowed = Driver::start(&capped, &all, 3);
    pause(Duration::from_millis(300));
    cluster.servers.iter().for_each(RedisServer::freeze);
    pause(Duration::from_millis(1_500));
    for records in drivers.map(Driver::stop) {
        late(&records, DEADLINE).unwrap();
        burst(&records, &gate.limit()).unwrap();
        assert!(starts(&records) >= 15, "{}", starts(&records));
    }
    let allowed = allowed.stop();
    exceeded(allowed.iter().filter(|record| record.is_degraded), |window| cap.worst_case(window, 1)).unwrap();
    cluster.servers.iter().for_each(RedisServer::thaw);
}

#[test]
fn cluster_fail_over_with_a_stalled_replica_costs_at_most_one_burst() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    let gate = gate(&limiter, "failing", LIMIT, Fallback::Local);
    let keys = keys(&cluster);
    reach(&gate, &keys);
    wait_until("the nodes are counted", RECOVERY, || limiter.redis_stats().unwrap().nodes == Some(1));
    let master = cluster.master_of(&keys[0]);
    let replica = cluster.replica_of(master);
    // It hears of no write from now on, but is too fresh to be passed over.
    cluster.servers[replica].cmd(&["CONFIG", "SET", "cluster-replica-validity-factor", "0"]).accepted();
    let driver = Driver::start(&gate, &[&keys[0]], 3);
    let other = Driver::start(&gate, &[&keys[1]], 1);
    pause(Duration::from_millis(200));
    cluster.servers[replica].freeze();
    pause(Duration::from_millis(300));
    let killed_us = now_us();
    cluster.servers[master].kill();
    cluster.servers[replica].thaw();
    wait_until("the replica has taken over", FAIL_OVER, || cluster.master_of(&keys[0]) == replica);
    let over_us = now_us();
    wait_until("it is exact again", RECOVERY, || driver.exact_us() > over_us + 300_000);
    println!(
        "fail-over took {:?}, exact {:?} later",
        Duration::from_micros(over_us - killed_us),
        Duration::from_micros(driver.degraded_us().saturating_sub(over_us)),
    );
    let (records, others, stats) = (driver.stop(), other.stop(), limiter.redis_stats().unwrap());
    let limit = gate.limit();
    late(&records, DEADLINE).unwrap();
    late(&others, DEADLINE).unwrap();
    burst(&records, &limit).unwrap();
    let exact = records.iter().filter(|record| !record.is_degraded);
    exceeded(exact, |window| limit.worst_case(window, 1) + limit.capacity()).unwrap();
    exceeded(&others, |window| 2 * limit.worst_case(window, 1)).unwrap();
    odd(&stats).unwrap();
    // Masters that say that their cluster is down are tried with pauses as well.
    let seconds = (over_us - killed_us) / 1_000_000 + 1;
    assert!(stats.connects <= 12 + 4 * seconds, "{seconds} s: {stats:?}");
}

/// A server that the store hears of only now has never answered: what flowed before it was
/// heard of was another one's to give.
#[test]
fn a_new_master_that_does_not_answer_gives_no_burst_away() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    let gate = gate(&limiter, "new", "20/s burst 40", Fallback::Local);
    let keys = keys(&cluster);
    reach(&gate, &keys);
    wait_until("the nodes are counted", RECOVERY, || limiter.redis_stats().unwrap().nodes == Some(1));
    pause(Duration::from_millis(2_000));
    let master = cluster.master_of(&keys[0]);
    let replica = cluster.replica_of(master);
    assert!(!gate.check(&keys[0]).is_degraded());
    cluster.servers[replica].cmd(&["CLUSTER", "FAILOVER", "TAKEOVER"]).accepted();
    wait_until("the old master knows", RECOVERY, || {
        cluster.servers[master].info("replication", "role").as_deref() == Some("slave")
    });
    cluster.servers[replica].freeze();
    let driver = Driver::start(&gate, &[&keys[0]], 2);
    pause(Duration::from_millis(700));
    let records = driver.stop();
    cluster.servers[replica].thaw();
    late(&records, DEADLINE).unwrap();
    // 2 s and 0.7 s at most since the last answer, and the old master's among them.
    let local = starts(&records);
    assert!(local <= 20, "{local} local starts, while about 14 flow in");
}

#[test]
fn a_slot_that_went_to_a_server_that_is_away_delays_nobody() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    let gate = gate(&limiter, "moving", LIMIT, Fallback::Deny);
    let keys = keys(&cluster);
    reach(&gate, &keys);
    let (from, to) = (cluster.master_of(&keys[0]), cluster.master_of(&keys[1]));
    cluster.begin_migration(cluster.slot(&keys[0]), from, to);
    cluster.servers[to].freeze();
    let address = cluster.servers[to].addr();
    wait_until("its breaker is open", Duration::from_secs(2), || {
        let _ = gate.check(&keys[1]);
        limiter.redis_stats().unwrap().shards.iter().any(|shard| shard.address == address && !shard.is_up)
    });
    // The old owner has no such key, and sends everybody to the new one.
    let driver = Driver::start(&gate, &[&keys[0]], 2);
    pause(Duration::from_millis(600));
    let records = driver.stop();
    cluster.servers[to].thaw();
    late(&records, DEADLINE).unwrap();
    assert!(records.iter().all(|record| record.is_degraded), "{records:?}");
}

/// Nothing flows in during a test, so that every unit can be counted.
const COUNTED: &str = "3000 per 24h";

#[test]
fn slot_migration_under_load_loses_nothing() {
    let cluster = Cluster::start();
    let patience = Duration::from_millis(500);
    // As a user who has the documented rights only.
    let rights = format!("{RIGHTS} {CLUSTER_RIGHTS}");
    for server in &cluster.servers {
        let mut command = vec!["ACL", "SETUSER", "limits", "on", ">secret"];
        command.extend(rights.split_whitespace());
        server.cmd(&command).accepted();
    }
    let urls = cluster.servers.iter().map(|server| server.url_as("limits", "secret"));
    let redis = Redis::cluster(urls).unwrap().deadline(patience);
    let limiter = Limiter::builder().redis(redis).build();
    let counted = gate(&limiter, "counted", COUNTED, Fallback::Deny);
    let flowing = gate(&limiter, "flowing", LIMIT, Fallback::Deny);
    let key = keys(&cluster)[0].clone();
    reach(&counted, std::slice::from_ref(&key));
    let (slot, from) = (cluster.slot(&key), cluster.master_of(&key));
    let to = cluster.master_of(&keys(&cluster)[1]);
    let drivers = [&counted, &flowing].map(|gate| Driver::start(gate, &[&key], 2));
    pause(Duration::from_millis(200));
    // There, back, and there again; each half of the way is held for a while.
    let mut ends = [from, to];
    for _ in 0..3 {
        let [from, to] = ends;
        cluster.begin_migration(slot, from, to);
        pause(Duration::from_millis(150));
        cluster.move_keys(slot, from, to);
        pause(Duration::from_millis(150));
        cluster.end_migration(slot, from, to);
        pause(Duration::from_millis(150));
        ends.reverse();
    }
    let [counts, flows] = drivers.map(Driver::stop);
    let stats = limiter.redis_stats().unwrap();
    let (limit, granted) = (flowing.limit(), counts.iter().filter(|record| record.is_allowed).count() as u64);
    let used = 3_000 - counted.peek(&key).remaining();
    println!("granted {granted}, used {used}: {stats:?}");
    exceeded(&flows, |window| limit.worst_case(window, 1)).unwrap();
    late(&flows, patience).unwrap();
    late(&counts, patience).unwrap();
    odd(&stats).unwrap();
    assert!(used >= granted && used <= granted + stats.degraded, "{granted} granted, {used} used: {stats:?}");
    let calls = |command: &str| cluster.servers.iter().map(|server| server.calls(command)).sum::<u64>();
    assert!(calls("eval") > 0 && calls("asking") > 0, "nobody was sent to where the key went");
    // Whoever asks for one key is served all the while.
    let degraded = counts.iter().chain(&flows).filter(|record| record.is_degraded).count();
    assert!(degraded == 0, "{degraded} of {}: {stats:?}", counts.len() + flows.len());
}

#[test]
fn callers_are_answered_while_servers_come_and_go() {
    let cluster = Cluster::start();
    let limiter = limiter(&cluster);
    let gate = gate(&limiter, "busy", "100000/s", Fallback::Deny);
    let keys = keys(&cluster);
    reach(&gate, &keys);
    let all: Vec<&str> = keys.iter().map(String::as_str).collect();
    let driver = Driver::start(&gate, &all, 8);
    // Each time, the former master's shard is given up and another one begins.
    for _ in 0..4 {
        let replica = cluster.replica_of(cluster.master_of(&keys[0]));
        cluster.servers[replica].cmd(&["CLUSTER", "FAILOVER", "TAKEOVER"]).accepted();
        wait_until("the replica has taken over", FAIL_OVER, || cluster.master_of(&keys[0]) == replica);
        cluster.wait_ready();
    }
    let records = driver.stop();
    late(&records, DEADLINE).unwrap();
    odd(&limiter.redis_stats().unwrap()).unwrap();
}

#[test]
fn sentinel_fail_over_is_followed() {
    let sentinels = Sentinels::start();
    let redis = Redis::sentinel(sentinels.urls(), sentinels.name(), "redis://any").unwrap();
    let trio = Trio::start(redis);
    let before = sentinels.master().addr();
    sentinels.master().kill();
    trio.wait_down();
    wait_until("the sentinels name another", FAIL_OVER, || sentinels.master().addr() != before);
    let named = sentinels.master();
    wait_until("it is a master", FAIL_OVER, || {
        named.info("replication", "role").as_deref() == Some("master")
    });
    let took = trio.wait_exact(now_us());
    assert_eq!(trio.stats().shards[0].address, named.addr());
    // Writes on their way to the replica may be lost.
    let told = trio.end(State::Lost);
    println!("exact again after {took:?}");
    assert!(told.stats.connects <= 4, "{:?}", told.stats);
    assert!(told.local.iter().map(Record::took).max().unwrap() <= DEADLINE + SLACK);
}

#[test]
fn a_frozen_sentinel_does_not_keep_the_others_from_being_asked() {
    let sentinels = Sentinels::start();
    sentinels.sentinels[0].freeze();
    let redis = Redis::sentinel(sentinels.urls(), sentinels.name(), "redis://any").unwrap();
    let limiter = Limiter::builder().redis(redis).build();
    let gate = gate(&limiter, "sentinel", LIMIT, Fallback::Deny);
    wait_until("the master is reached", RECOVERY, || !gate.check("all").is_degraded());
    sentinels.sentinels[0].thaw();
}
