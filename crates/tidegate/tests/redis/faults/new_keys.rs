//! Keys that nobody has asked about before Redis went away.

use super::check::RECOVERY;
use super::trio::gate;
use std::time::Duration;
use testkit::servers::{RedisServer, wait_until};
use tidegate::{Check, Decision, Denial, Fallback, Gate, Limiter, Redis};

/// Limiters over one server that have heard of each other.
fn fleet(server: &RedisServer, nodes: u32) -> Vec<Limiter> {
    let limiter = |_| Limiter::builder().redis(Redis::at(&server.url()).unwrap()).build();
    let fleet: Vec<Limiter> = (0..nodes).map(limiter).collect();
    wait_until("all have heard of each other", Duration::from_secs(5), || {
        fleet.iter().all(|limiter| limiter.redis_stats().unwrap().nodes == Some(nodes))
    });
    fleet
}

/// Kills the server, and waits until every node has seen it.
fn kill(server: &RedisServer, fleet: &[Limiter]) {
    let gates: Vec<Gate> =
        fleet.iter().map(|limiter| gate(limiter, "probe", "1000/s", Fallback::Deny)).collect();
    for gate in &gates {
        wait_until("the store is reached", RECOVERY, || !gate.check("all").is_degraded());
    }
    server.kill();
    for (limiter, gate) in fleet.iter().zip(&gates) {
        wait_until("it counts as away", RECOVERY, || {
            let _ = gate.check("all");
            !limiter.redis_stats().unwrap().shards[0].is_up
        });
    }
}

/// Nothing flows in during a test, so that every unit can be counted.
const COUNTED: &str = "10 per 1h sliding-log";

#[test]
fn two_fresh_clients_are_not_refused_at_the_start_of_an_outage() {
    let server = RedisServer::start();
    let fleet = fleet(&server, 2);
    let gates: Vec<Gate> =
        fleet.iter().map(|limiter| gate(limiter, "client", COUNTED, Fallback::Local)).collect();
    for gate in &gates {
        wait_until("the store answers the gate", RECOVERY, || !gate.check("known").is_degraded());
    }
    kill(&server, &fleet);
    let before: Vec<(u64, u64)> = fleet.iter().map(degraded).collect();
    for client in ["first", "second"] {
        for gate in &gates {
            let decisions: Vec<_> = (0..6).map(|_| gate.check(client)).collect();
            assert!(decisions.iter().all(Decision::is_degraded), "{decisions:?}");
            let starts = decisions.iter().filter(|decision| decision.is_allowed()).count();
            assert_eq!(starts, 1, "{client}: one request on each node, and no burst");
            assert!(matches!(decisions[5].denial(), Some(Denial::Later(_))), "{:?}", decisions[5]);
        }
    }
    for (limiter, before) in fleet.iter().zip(before) {
        let (all, denied) = degraded(limiter);
        assert_eq!((all - before.0, denied - before.1), (12, 10), "{:?}", limiter.redis_stats());
    }
}

/// Decisions by the fallback, and the denials among them.
fn degraded(limiter: &Limiter) -> (u64, u64) {
    let stats = limiter.redis_stats().unwrap();
    (stats.degraded, stats.degraded_denied)
}

#[test]
fn three_nodes_with_fewer_units_than_nodes_give_one_each_and_of_slots_none() {
    let server = RedisServer::start();
    let fleet = fleet(&server, 3);
    let limits = [
        "2/week",
        "1000/week burst 1",
        "leaky 2/week capacity 2",
        "leaky 2/week queue 2",
        "2/week fixed-window",
        "2/week sliding-window",
        "1/week sliding-log",
        "1 every 1week",
        "2/week warmup 1h",
    ];
    let gates: Vec<Vec<Gate>> = fleet
        .iter()
        .map(|limiter| {
            let rate =
                |(nth, limit): (usize, &&str)| gate(limiter, &format!("rate-{nth}"), limit, Fallback::Local);
            limits.iter().enumerate().map(rate).collect()
        })
        .collect();
    let slots: Vec<Gate> =
        fleet.iter().map(|limiter| gate(limiter, "slots", "2 concurrent", Fallback::Local)).collect();
    for gate in gates.iter().flatten() {
        wait_until("the store answers the gate", RECOVERY, || !gate.check("known").is_degraded());
    }
    kill(&server, &fleet);
    for gates in &gates {
        for (gate, limit) in gates.iter().zip(limits) {
            let starts = (0..5).filter(|_| gate.check("new").is_allowed()).count();
            assert_eq!(starts, 1, "{limit}");
        }
    }
    for gate in slots {
        let verdict = gate.reserve("new");
        assert!(matches!(verdict.decisions()[0].denial(), Some(Denial::Unavailable(_))), "{verdict:?}");
    }
}

#[test]
fn a_cost_above_the_share_is_not_told_that_it_can_never_start() {
    let server = RedisServer::start();
    let fleet = fleet(&server, 2);
    let units = gate(&fleet[0], "units", "8 per 1h", Fallback::Local);
    let other = gate(&fleet[0], "other", "8 per 1h", Fallback::Local);
    wait_until("the store answers the gate", RECOVERY, || !units.check("known").is_degraded());
    kill(&server, &fleet);
    let unavailable = |denial| matches!(denial, Some(Denial::Unavailable(_)));
    let denial = units.check_cost("new", 6).denial();
    assert!(unavailable(denial), "{denial:?}: fits once Redis is back");
    assert!(unavailable(units.peek_cost("new", 6).denial()));
    assert_eq!(units.check_cost("new", 9).denial(), Some(Denial::Never));
    // Several checks of one key pay the sum.
    let twice = [Check::new(&units, "new").cost(3), Check::new(&units, "new").cost(3)];
    let verdict = fleet[0].check(&twice);
    assert!(verdict.decisions().iter().all(|decision| unavailable(decision.denial())), "{verdict:?}");
    let both = [Check::new(&units, "two").cost(2), Check::new(&units, "two").cost(2)];
    assert!(fleet[0].check(&both).is_allowed(), "one request, whatever it consists of");
    assert!(!fleet[0].check(&both).is_allowed());
    // What another limit refuses takes nothing of this one.
    let refused = [Check::new(&other, "a").cost(4), Check::new(&units, "new").cost(6)];
    assert!(!fleet[0].check(&refused).is_allowed());
    assert!(other.check_cost("a", 4).is_allowed());
}
