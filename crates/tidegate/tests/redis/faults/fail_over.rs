//! Fail-overs, planned and by kill, with clients from before and from after: Sentinel and
//! Cluster.
//!
//! All clients ask for starts and hold slots all the while. What they were given is counted
//! here, beside the store: starts against the limit's bound, and who holds a slot without
//! seeing that it is lost against the number of slots. `TIDEGATE_CASES=10` runs ten times
//! as many fail-overs.

use super::check::{exceeded, odd};
use super::drive::{Driver, Record, now_us};
use super::holds::{Hold, Holds, over_held};
use super::trio::gate;
use std::time::Duration;
use testkit::servers::{Cluster, Sentinels, pause, wait_until};
use testkit::suite::cases;
use tidegate::{Fallback, GateOptions, Limit, Limiter, Redis};

const LIMIT: &str = "100/s burst 50";
const SLOTS: usize = 3;
/// Short: what was held at the fail-over would keep the new master from giving slots out.
const LEASE: Duration = Duration::from_millis(900);
/// Two masters may be used beside each other for this long: the sentinels are asked every
/// half a second and upon each of their messages, and the rest is for a busy machine.
const OVERLAP: Duration = Duration::from_secs(1);
const FAIL_OVER: Duration = Duration::from_secs(25);

/// One process: a store of its own.
struct Client {
    limiter: Limiter,
    starts: Driver,
    holds: Holds,
}

impl Client {
    fn start(redis: Redis) -> Self {
        let limiter = Limiter::builder().redis(redis.deadline(Duration::from_millis(100))).build();
        let starts = Driver::start(&gate(&limiter, "starts", LIMIT, Fallback::Deny), &["all"], 1);
        let options = GateOptions::new().hold_for(LEASE).fallback(Fallback::Deny);
        let slots = limiter.gate_with("slots", &*format!("{SLOTS} concurrent"), options).unwrap();
        Self { limiter, starts, holds: Holds::start(&slots, SLOTS) }
    }

    fn address(&self) -> String {
        self.limiter.redis_stats().unwrap().shards[0].address.clone()
    }

    #[track_caller]
    fn wait_served(&self, since_us: u64) {
        wait_until("the store answers", FAIL_OVER, || self.starts.exact_us() > since_us);
    }
}

/// What all clients together were given in one fail-over.
struct Count {
    /// How long after the fail-over all clients from before had followed.
    followed: Duration,
    records: Vec<Record>,
    holds: Vec<Hold>,
}

impl Count {
    fn of(clients: Vec<Client>, followed: Duration) -> Self {
        let mut count = Self { followed, records: Vec::new(), holds: Vec::new() };
        for client in clients {
            odd(&client.limiter.redis_stats().unwrap()).unwrap();
            count.records.extend(client.starts.stop());
            count.holds.extend(client.holds.stop());
        }
        count
    }

    /// Starts above what one master would have let start, in the whole time.
    fn surplus(&self) -> i64 {
        let allowed = || self.records.iter().filter(|record| record.is_allowed);
        let from = allowed().map(|record| record.from_us).min().unwrap_or(0);
        let till = allowed().map(|record| record.till_us).max().unwrap_or(0);
        let limit: Limit = LIMIT.parse().unwrap();
        let bound = limit.worst_case(Duration::from_micros(till - from), 1);
        allowed().count() as i64 - bound as i64
    }

    /// Two masters may be used beside each other for as long as `overlap`.
    #[track_caller]
    fn check(&self, what: &str, overlap: Duration) {
        let limit: Limit = LIMIT.parse().unwrap();
        let over = over_held(&self.holds, SLOTS);
        let degraded = self.records.iter().filter(|record| record.is_degraded).count();
        println!(
            "{what}: {} starts, {} above the limit's own bound; {} of {SLOTS} slots held, {:?} over; \
             followed within {:?}; {degraded} of {} answers degraded",
            self.records.iter().filter(|record| record.is_allowed).count(),
            self.surplus(),
            over.most,
            over.time,
            self.followed,
            self.records.len(),
        );
        let bound = |window: Duration| {
            // What was not replicated, and what two masters let start beside each other.
            let beside = limit.worst_case(overlap.min(window), 1) - limit.worst_case(Duration::ZERO, 1);
            limit.worst_case(window, 1) + limit.capacity() + beside
        };
        exceeded(&self.records, bound).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(over.time <= overlap, "{what}: {} of {SLOTS} slots held for {:?}", over.most, over.time);
    }
}

/// A fail-over with clients from before, one that comes when it is over, and one later.
fn fail_over(redis: &Redis, replace: impl FnOnce(), is_followed: impl Fn(&Client) -> bool) -> Count {
    let start = || Client::start(redis.clone());
    let mut clients = vec![start(), start()];
    clients.iter().for_each(|client| client.wait_served(0));
    pause(Duration::from_millis(500));
    replace();
    let over_us = now_us();
    clients.push(start());
    wait_until("all have followed", FAIL_OVER, || clients.iter().all(&is_followed));
    let followed = Duration::from_micros(now_us() - over_us);
    clients.iter().for_each(|client| client.wait_served(over_us));
    pause(Duration::from_secs(1));
    clients.push(start());
    // Long enough that two masters beside each other would show.
    pause(Duration::from_secs(2));
    Count::of(clients, followed)
}

fn of_sentinels(sentinels: &Sentinels, what: &str, replace: impl FnOnce(&Sentinels)) {
    with_urls(sentinels, sentinels.urls(), what, replace);
}

fn with_urls(sentinels: &Sentinels, urls: Vec<String>, what: &str, replace: impl FnOnce(&Sentinels)) {
    let redis = Redis::sentinel(urls, sentinels.name(), "redis://any").unwrap();
    let before = sentinels.master().addr();
    let is_followed = |client: &Client| ![before.as_str(), sentinels.name()].contains(&&*client.address());
    let count = fail_over(&redis, || replace(sentinels), is_followed);
    assert_ne!(sentinels.master().addr(), before, "{what}");
    count.check(what, OVERLAP);
}

fn kill_master(sentinels: &Sentinels) {
    let master = sentinels.master();
    let before = master.addr();
    master.kill();
    wait_until("the sentinels name another", FAIL_OVER, || sentinels.master().addr() != before);
}

#[test]
fn a_planned_fail_over_doubles_neither_rates_nor_slots() {
    for _ in 0..cases() {
        let sentinels = Sentinels::start();
        of_sentinels(&sentinels, "planned", Sentinels::fail_over);
    }
}

#[test]
fn a_planned_fail_over_is_followed_without_the_sentinels_messages() {
    for _ in 0..cases() {
        let sentinels = Sentinels::start();
        for sentinel in &sentinels.sentinels {
            let rights = ["ACL", "SETUSER", "limits", "on", ">secret", "+sentinel"];
            sentinel.cmd(&rights).accepted();
        }
        let urls = sentinels.sentinels.iter().map(|sentinel| sentinel.url_as("limits", "secret")).collect();
        with_urls(&sentinels, urls, "planned, without messages", Sentinels::fail_over);
    }
}

#[test]
fn a_fail_over_by_kill_costs_at_most_a_burst_and_doubles_no_slots() {
    for _ in 0..cases() {
        let sentinels = Sentinels::start();
        of_sentinels(&sentinels, "by kill", kill_master);
    }
}

#[test]
fn an_old_master_without_its_replicas_takes_no_writes_where_it_was_told_so() {
    for nth in 0..cases() {
        // With all replicas wanted, the new master waits for the old one to follow it.
        let wanted = if nth % 2 == 0 { "1" } else { "2" };
        let sentinels = Sentinels::with_replicas(2);
        for server in &sentinels.servers {
            server.cmd(&["CONFIG", "SET", "min-replicas-to-write", wanted]).accepted();
        }
        let what = format!("planned, min-replicas-to-write {wanted} of 2");
        of_sentinels(&sentinels, &what, Sentinels::fail_over);
    }
}

#[test]
fn a_planned_fail_over_of_every_master_of_a_cluster_doubles_neither_rates_nor_slots() {
    let cluster = Cluster::start();
    let redis = Redis::cluster(cluster.urls()).unwrap();
    let before = cluster.masters();
    let replace = || {
        for master in &before {
            let replica = cluster.replica_of(*master);
            cluster.servers[replica].cmd(&["CLUSTER", "FAILOVER"]).accepted();
            wait_until("it has taken over", FAIL_OVER, || cluster.masters().contains(&replica));
        }
    };
    let old: Vec<String> = before.iter().map(|master| cluster.servers[*master].addr()).collect();
    let is_followed = |client: &Client| {
        let stats = client.limiter.redis_stats().unwrap();
        stats.shards.iter().all(|shard| !old.contains(&shard.address))
    };
    let count = fail_over(&redis, replace, is_followed);
    // The old master hands over before the new one begins: none are used beside each other.
    count.check("planned, Cluster", Duration::ZERO);
}
