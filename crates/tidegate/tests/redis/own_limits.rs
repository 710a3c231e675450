//! Checks that bring a limit of their own along, over Redis: as in memory (`tests/own_limits.rs`).

use std::sync::LazyLock;
use testkit::library::Clocked;
use testkit::limits::{MIXED, SMOOTH, TICKED, WINDOWS};
use testkit::model::Store;
use testkit::own_limits::OwnLimits;
use testkit::servers::RedisServer;
use testkit::suite::{conforms, mixtures_conform};
use testkit::trace::Traffic;
use tidegate::{Check, Decision, Fallback, GateError, GateOptions, Limit, Limiter, Redis};

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

fn redis(prefix: &str) -> Redis {
    Redis::at(&SERVER.url()).unwrap().prefix(prefix).unwrap()
}

#[test]
fn a_limit_of_checks_decides_as_the_model() {
    let clocked = Clocked::in_redis(redis("own"));
    let make = |limit: &Limit| {
        Box::new(OwnLimits::on(&clocked, std::slice::from_ref(limit))) as Box<dyn testkit::Subject>
    };
    for text in SMOOTH.iter().chain(&TICKED).chain(&WINDOWS) {
        let traffic = Traffic { store: Store::Redis, begins_us: 123_456_789, ..Traffic::plain() };
        if let Err(mismatch) = conforms(&text.parse().unwrap(), &traffic, 1, 1, &make) {
            panic!("{mismatch}");
        }
    }
}

#[test]
fn limits_of_checks_are_decided_as_nodes_of_the_model_that_disagree() {
    let clocked = Clocked::in_redis(redis("mixed")).with(|options| options.remember_denials(false));
    let make = |limits: &[Limit]| Box::new(OwnLimits::on(&clocked, limits)) as Box<dyn testkit::Subject>;
    let changes = MIXED.iter().map(|text| text.parse().unwrap()).collect();
    let traffic = Traffic {
        store: Store::Redis,
        changes,
        change_percent: 0,
        begins_us: 123_456_789,
        ..Traffic::plain()
    };
    if let Err(mismatch) = mixtures_conform(&traffic, 1, 20, &make) {
        panic!("{mismatch}");
    }
}

#[test]
fn a_limit_of_checks_is_charged_beside_the_gates_and_comes_back() {
    let clocked = Clocked::in_redis(redis("beside"));
    let gate = clocked.gate(&"10/min".parse().unwrap());
    let tier: Limit = "20/min".parse().unwrap();
    let by_tier = |cost| Check::new(&gate, "ann").cost(cost).limit(&tier).unwrap();
    assert!(gate.check_cost("ann", 8).is_allowed());
    let permit = clocked.limiter.reserve(&[by_tier(5)]).into_permit().unwrap();
    assert_eq!(gate.peek("ann").remaining(), 0);
    permit.cancel();
    assert_eq!(clocked.limiter.check(&[by_tier(0)]).decision().remaining(), 12);
    // One after the other: each counts what the other has let start.
    let both = [Check::new(&gate, "ben").cost(6), Check::new(&gate, "ben").cost(6).limit(&tier).unwrap()];
    assert!(clocked.limiter.check(&both).is_allowed());
    // The gate's limit denies; the check's own would have let 6 more start beside the 12.
    let denied = clocked.limiter.check(&both);
    assert_eq!(denied.decisions().iter().map(Decision::is_allowed).collect::<Vec<_>>(), [false, true]);
    let own = Check::new(&gate, "ben").cost(0).limit(&tier).unwrap();
    assert_eq!(clocked.limiter.check(&[own]).decision().remaining(), 8, "a denied request charges nothing");
    let error = Check::new(&gate, "ann").limit(&"5 concurrent".parse().unwrap()).map(drop).unwrap_err();
    assert!(matches!(error, GateError::CheckLimit { .. }), "{error}");
}

#[test]
fn a_limit_of_checks_is_shared_among_the_nodes_while_redis_is_away() {
    let gone = Redis::at("redis://127.0.0.1:1").unwrap().nodes(2);
    let limiter = Limiter::builder().redis(gone).build();
    let options = GateOptions::new().fallback(Fallback::Local);
    let gate = limiter.gate_with("gone", "10/day", options).unwrap();
    let tier: Limit = "1000/day".parse().unwrap();
    let verdict = limiter.check(&[Check::new(&gate, "ann").limit(&tier).unwrap()]);
    assert!(verdict.is_degraded());
    assert!(verdict.decision().limit() <= 500, "{:?}", verdict.decision());
}
