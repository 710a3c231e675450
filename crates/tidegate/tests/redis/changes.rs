//! Limits that change and nodes that differ, over one Redis: compared with the model, counted
//! by their starts, and what went wrong once. In memory: `tests/changes`.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::hot::{Crowd, crowd};
use testkit::library::{Clocked, Library, Nodes, Way};
use testkit::limits::{ALIKE, MIXED};
use testkit::model::Store;
use testkit::rng::Rng;
use testkit::servers::{RedisServer, Reply};
use testkit::suite::{cases, conforms_once, mixtures_conform};
use testkit::trace::{Traffic, some_of};
use testkit::{Mode, Subject};
use tidegate::{Limit, Redis};

const SECOND: u64 = 1_000_000;

static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

/// A part of the server that nobody else uses, and its name.
fn redis() -> (Redis, String) {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let prefix = format!("changes-{}", MADE.fetch_add(1, Ordering::Relaxed));
    (Redis::at(&SERVER.url()).unwrap().prefix(&prefix).unwrap(), prefix)
}

fn limits(texts: &[&str]) -> Vec<Limit> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn assert_sound(nodes: &[Clocked]) {
    for node in nodes {
        let stats = node.limiter.redis_stats().unwrap();
        assert_eq!((stats.disagreements, stats.degraded), (0, 0), "{stats:?}");
    }
}

/// Two to four nodes, each under one of the limits, changing: compared with the model.
fn assert_mixtures_conform(traffic: &Traffic, seed: u64, traces: u64) {
    assert_mixtures_of(&MIXED, traffic, seed, traces);
}

fn assert_mixtures_of(from: &[&str], traffic: &Traffic, seed: u64, traces: u64) {
    let nodes: &'static [Clocked] = Clocked::nodes(&redis().0, 4).leak();
    let traffic = Traffic { changes: limits(from), store: Store::Redis, ..traffic.clone() };
    let make = |limits: &[Limit]| Box::new(Nodes::on(nodes, limits)) as Box<dyn Subject>;
    if let Err(mismatch) = mixtures_conform(&traffic, seed, traces, &make) {
        panic!("{mismatch}");
    }
    assert_sound(nodes);
}

#[test]
fn nodes_whose_limits_count_alike_share_a_count_as_the_model() {
    assert_mixtures_of(&ALIKE, &Traffic { change_percent: 10, ..Traffic::plain() }, 4_000_000, 20);
}

#[test]
fn nodes_that_differ_decide_as_the_model() {
    assert_mixtures_conform(&Traffic { change_percent: 0, ..Traffic::plain() }, 1, 30);
}

#[test]
fn nodes_that_change_now_and_then_decide_as_the_model() {
    let traffic = Traffic { begins_us: 123_456_789, restarts: true, ..Traffic::plain() };
    assert_mixtures_conform(&traffic, 1_000_000, 30);
}

#[test]
fn nodes_that_change_all_the_time_decide_as_the_model() {
    assert_mixtures_conform(&Traffic { change_percent: 30, ..Traffic::plain() }, 2_000_000, 30);
}

#[test]
fn one_node_that_changes_decides_as_the_model() {
    assert_changes_conform(false, 0);
}

#[test]
fn one_node_that_changes_and_gives_back_decides_as_the_model() {
    assert_changes_conform(true, 3_000_000);
}

fn assert_changes_conform(gives_back: bool, seed: u64) {
    let (clocked, all) = (Clocked::in_redis(redis().0), limits(&MIXED));
    let make = |limit: &Limit| Box::new(Library::on(&clocked, limit, Way::Both)) as Box<dyn Subject>;
    for seed in seed..seed + 30 * cases() {
        let mut rng = Rng::new(seed);
        let changes = some_of(&all, &mut rng);
        let (first, change_percent) = (rng.pick(&changes).clone(), *rng.pick(&[5, 15, 40]));
        let traffic =
            Traffic { changes, change_percent, gives_back, store: Store::Redis, ..Traffic::plain() };
        if let Err(mismatch) = conforms_once(&first, &traffic, seed, &make) {
            panic!("{mismatch}");
        }
    }
    assert_sound(std::slice::from_ref(&clocked));
}

/// A hot key at nodes that differ, asked every `step_us`.
fn hot(texts: &[&str], step_us: u64, until_us: u64) -> Crowd {
    let limits = limits(texts);
    let nodes = Clocked::nodes(&redis().0, limits.len());
    let seen = crowd(&mut Nodes::on(&nodes, &limits), &limits, step_us, until_us, &mut |_| Vec::new());
    assert_sound(&nodes);
    seen
}

const WINDOWS_US: [u64; 7] = [0, 1_000, 50_000, 100_000, 500_000, SECOND, 3 * SECOND];

/// At least 95 % of the strictest limit, at most what all allow together, nobody locked out.
fn assert_fair(seen: &Crowd, what: &str) {
    let (units, least) = (seen.flowed(), seen.least_flow());
    assert!(units * 100 >= least * 95, "{units} started, the strictest limit alone lets {least}: {what}");
    assert_eq!(seen.worst_window(&WINDOWS_US), None, "window, units, bound: {what}");
    assert_eq!(seen.locked_out_us, 0, "beyond a full key of the limit in force: {what}");
}

#[test]
fn two_nodes_of_10_and_20_a_second_do_not_starve_a_hot_key() {
    assert_fair(&hot(&["10/s burst 10", "20/s burst 10"], 10_000, 10 * SECOND), "10/s and 20/s");
}

#[test]
fn three_nodes_of_1000_1000_and_1100_a_second_get_more_than_570() {
    assert_fair(&hot(&["1000/s", "1000/s", "1100/s"], 500, SECOND), "1000/s, 1000/s, 1100/s");
}

#[test]
fn three_nodes_of_100_100_and_120_a_second_get_more_than_17() {
    assert_fair(&hot(&["100/s", "100/s", "120/s"], 2_000, 4 * SECOND), "100/s, 100/s, 120/s");
}

#[test]
fn a_node_with_the_same_rate_and_a_larger_burst_does_not_starve_a_hot_key() {
    assert_fair(&hot(&["10/s", "10/s burst 30"], 10_000, 10 * SECOND), "10/s and 10/s burst 30");
}

#[test]
fn random_nodes_of_buckets_keep_both_bounds() {
    let from =
        ["10/s burst 10", "11/s burst 10", "20/s burst 10", "10/s burst 30", "7/s burst 3", "50/s burst 5"];
    for seed in 0..6 * cases() {
        let mut rng = Rng::new(seed);
        let texts: Vec<&str> = (0..rng.between(2, 4)).map(|_| *rng.pick(&from)).collect();
        assert_fair(&hot(&texts, *rng.pick(&[7_777, 15_000]), 6 * SECOND), &format!("{texts:?}"));
    }
}

/// What the server keeps of a gate: each key's bytes.
fn bytes(prefix: &str, gate: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let Reply::Array(keys) = SERVER.cmd(&["KEYS", &format!("{prefix}:*:{gate}:*")]) else { panic!("keys") };
    let dump = |key: &Reply| (key.bytes().to_vec(), SERVER.cmd(&[b"DUMP", key.bytes()]).bytes().to_vec());
    keys.iter().map(dump).collect()
}

const KINDS: [&str; 10] = [
    "10/s burst 10",
    "20/s burst 5",
    "leaky 50/s queue 10",
    "20 every 1s cap 30",
    "5 per 10s fixed-window",
    "5 per 10s sliding-window slices 3",
    "7 per 10s sliding-log",
    "100 per 1day sliding-log",
    "10/s warmup 2s wait 1s",
    "1000003/day burst 10",
];

#[test]
fn a_denial_and_a_peek_under_any_limit_change_no_byte_of_a_key() {
    let (redis, prefix) = redis();
    let nodes = Clocked::nodes(&redis, 2);
    for pair in KINDS.iter().flat_map(|a| KINDS.map(|b| [*a, b])) {
        let limits = limits(&pair);
        let mut gates = Nodes::on(&nodes, &limits);
        gates.turn_to(0);
        while gates.decide(SECOND, b"k", 1, Mode::Check).allowed {}
        let before = bytes(&prefix, gates.name());
        assert!(!before.is_empty(), "{pair:?}: nothing is kept");
        for now_us in [SECOND, SECOND + 1_000, SECOND + 2_000] {
            for (node, limit) in limits.iter().enumerate() {
                gates.turn_to(node);
                let whole = limit.capacity();
                let seen = gates.decide(now_us, b"k", whole, Mode::Check);
                assert!(!seen.allowed, "{pair:?}: {seen:?}");
                gates.decide(now_us, b"k", 1, Mode::Peek);
                gates.decide(now_us, b"k", whole, Mode::Peek);
                gates.decide(now_us, b"k", 0, Mode::Check);
            }
        }
        assert_eq!(bytes(&prefix, gates.name()), before, "{pair:?}");
    }
}

#[test]
fn a_day_s_log_that_was_another_limit_for_a_while_admits_no_second_hundred() {
    let nodes = Clocked::nodes(&redis().0, 1);
    let day: Limit = "100 per 1day sliding-log".parse().unwrap();
    for between in ["100 per 1s sliding-log", "100/s", "100 per 1s fixed-window"] {
        let mut gate = Nodes::on(&nodes, std::slice::from_ref(&day));
        let takes = |gate: &mut Nodes<'_>, now_us: u64| {
            (0..500).take_while(|_| gate.decide(now_us, b"k", 1, Mode::Check).allowed).count()
        };
        assert_eq!(takes(&mut gate, 0), 100);
        gate.change(SECOND, &between.parse().unwrap());
        assert!(takes(&mut gate, 3 * SECOND) > 0, "{between} has a shorter memory");
        gate.change(4 * SECOND, &day);
        assert_eq!(takes(&mut gate, 6 * SECOND), 0, "{between}");
    }
}

#[test]
fn a_day_s_bucket_that_was_a_second_s_for_a_while_admits_no_second_thousand() {
    let nodes = Clocked::nodes(&redis().0, 1);
    let mut gate = Nodes::on(&nodes, &limits(&["1000/day burst 1000"]));
    assert!(gate.decide(0, b"k", 1000, Mode::Check).allowed);
    gate.change(SECOND / 2, &"1000/s burst 1000".parse().unwrap());
    assert!(gate.decide(SECOND, b"k", 1, Mode::Check).allowed);
    gate.change(3 * SECOND / 2, &"1000003/day burst 1000".parse().unwrap());
    // 12 a second have flowed out by the limit in force.
    assert!(!gate.decide(7 * SECOND / 2, b"k", 30, Mode::Check).allowed);
}

#[test]
fn controllers_that_flip_starve_nobody_and_admit_no_more_than_the_looser_limit() {
    for (pair, every_us) in [(["10/s burst 10", "11/s burst 10"], 90_000), (["10/s", "11/s"], 20_000)] {
        let limits = limits(&pair);
        let nodes = Clocked::nodes(&redis().0, 1);
        let mut flips = 0;
        let mut seen =
            crowd(&mut Nodes::on(&nodes, &limits[..1]), &limits[..1], 5_000, 10 * SECOND, &mut |now_us| {
                let is_time = now_us / every_us > flips;
                flips = now_us / every_us;
                let nth = usize::try_from(flips % 2).unwrap();
                is_time.then(|| (0, limits[nth].clone())).into_iter().collect()
            });
        seen.limits = limits;
        assert_fair(&seen, &format!("{pair:?} every {every_us}us"));
    }
}

#[test]
fn a_key_that_met_many_limits_takes_a_few_thousand_bytes() {
    let (redis, prefix) = redis();
    let nodes = Clocked::nodes(&redis, 1);
    let mut gate = Nodes::on(&nodes, &limits(&["100/day burst 5"]));
    for nth in 0..200_u64 {
        let (now_us, amount) = (nth * 3 * SECOND, nth % 17 + 3);
        let text = match nth % 4 {
            0 => format!("{amount}/day burst 300"),
            1 => format!("{} per 1day sliding-log", amount * 100),
            2 => format!("{amount}/s burst {amount}"),
            _ => format!("{} per 1h sliding-window slices 60", amount * 100),
        };
        gate.change(now_us, &text.parse().unwrap());
        gate.decide(now_us + SECOND, b"k", 1, Mode::Check);
        let size: usize = bytes(&prefix, gate.name()).values().map(Vec::len).sum();
        assert!(size <= 4_000, "{size} bytes after {nth} changes");
    }
}
