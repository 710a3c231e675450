//! The layers before the network, each with its bound; and what an operator sees.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use testkit::servers::{Cluster, FaultProxy, RedisServer, pause, wait_until};
use tidegate::{Check, Decision, Denial, Gate, GateError, GateOptions, Limit, Limiter, Redis};

const PATIENCE: Duration = Duration::from_secs(10);

fn node(url: &str) -> Limiter {
    Limiter::builder().redis(Redis::at(url).unwrap().deadline(Duration::from_secs(5))).build()
}

fn allowed(decisions: impl IntoIterator<Item = Decision>) -> Vec<bool> {
    decisions.into_iter().map(|decision| decision.is_allowed()).collect()
}

/// Runs `work` on so many threads at once.
fn crowd(threads: usize, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(&work);
        }
    });
}

#[test]
fn a_denied_hot_key_costs_at_most_one_call_a_node_for_each_freed_unit() {
    let server = RedisServer::start();
    let nodes = [node(&server.url()), node(&server.url())];
    let gates = nodes.each_ref().map(|node| node.gate("hot", "100/s burst 1").unwrap());
    assert!(gates.iter().any(|gate| gate.check("goods:7").is_allowed()));
    let (before, began) = (server.calls("evalsha"), server.micros());
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for gate in &gates {
            for _ in 0..8 {
                scope.spawn(|| {
                    while server_time_is_before(&server, began + 1_000_000) {
                        for _ in 0..500 {
                            admitted
                                .fetch_add(u64::from(gate.check("goods:7").is_allowed()), Ordering::Relaxed);
                        }
                    }
                });
            }
        }
    });
    let (calls, took_us) = (server.calls("evalsha") - before, server.micros() - began);
    let freed = took_us / 10_000 + 1;
    // Besides: each node's first question, and its signs of life, at most two a second.
    let others = 2 + 4 * (took_us / 1_000_000 + 1);
    assert!(calls <= 2 * freed + others, "{calls} calls of two nodes for {freed} freed units");
    let admitted = admitted.into_inner();
    assert!(admitted <= freed && admitted >= freed / 2, "{admitted} of {freed} freed units were admitted");
    let remembered: u64 = nodes.iter().map(|node| node.redis_stats().unwrap().remembered).sum();
    assert!(remembered > 10 * calls, "{remembered} answers from memory");
}

fn server_time_is_before(server: &RedisServer, us: u64) -> bool {
    server.micros() < us
}

#[test]
fn where_no_refunds_a_denial_is_remembered_for_as_long_as_it_holds() {
    let server = RedisServer::start();
    let limiter = node(&server.url());
    let gate = limiter.gate_with("slow", "1 per 1h", GateOptions::new().no_refunds()).unwrap();
    assert_eq!(allowed([gate.check("a"), gate.check("a")]), [true, false]);
    let asked = limiter.redis_stats().unwrap().decisions;
    pause(Duration::from_millis(120));
    for _ in 0..1_000 {
        let denied = gate.check("a");
        assert!(denied.retry_after().is_some_and(|after| after > Duration::from_secs(3_590)));
    }
    assert_eq!(limiter.redis_stats().unwrap().decisions, asked, "Redis was not asked again");
    // What is smaller or may wait is another question.
    assert!(gate.check_cost("a", 0).is_allowed());
}

#[test]
fn what_another_node_gives_back_is_seen_within_50_ms() {
    let server = RedisServer::start();
    let (one, other) = (node(&server.url()), node(&server.url()));
    let limit = "1 per 1h";
    let (here, there) = (one.gate("few", limit).unwrap(), other.gate("few", limit).unwrap());
    let permit = here.reserve("a").into_permit().unwrap();
    assert!(!there.check("a").is_allowed());
    assert!(!there.check("a").is_allowed(), "remembered");
    permit.refund();
    // 50 ms, and what a busy machine takes.
    wait_until("the unit is seen", Duration::from_millis(50) + PATIENCE, || there.check("a").is_allowed());
    let permit = there.reserve("b").into_permit().unwrap();
    assert!(!there.check("b").is_allowed());
    permit.refund();
    assert!(there.check("b").is_allowed(), "on the same node it is seen at once");
}

#[test]
fn requests_that_share_a_call_are_decided_one_by_one_in_order() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.addr());
    let limiter = node(&proxy.url());
    let gate = limiter.gate_with("shared", "10 per 1h", GateOptions::new().remember_denials(false)).unwrap();
    assert!(gate.check_cost("a", 7).is_allowed());
    proxy.delay(Duration::from_millis(300));
    // While the first is on its way, the others gather: [5, 1, 2, 1] with 3 left.
    let mut first = Box::pin(gate.check_cost_async("a", 0));
    let waker = std::task::Waker::noop();
    assert!(first.as_mut().poll(&mut std::task::Context::from_waker(waker)).is_pending());
    pause(Duration::from_millis(50));
    let calls = limiter.redis_stats().unwrap().calls;
    let asked = [5, 1, 2, 1].map(|cost| gate.check_cost_async("a", cost));
    proxy.pass();
    let decisions = asked.map(block_on);
    assert_eq!(allowed(decisions), [false, true, true, false]);
    let left = decisions.map(|decision| decision.remaining());
    assert_eq!(left, [3, 2, 0, 0]);
    let stats = limiter.redis_stats().unwrap();
    assert!(stats.calls <= calls + 2, "{} calls for four requests", stats.calls - calls);
    assert_eq!(stats.coalesced, 3);
}

#[test]
fn a_key_that_comes_twice_in_a_call_is_charged_twice() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.addr());
    let limiter = node(&proxy.url());
    let gate = limiter.gate("twice", "2 per 1h").unwrap();
    assert!(gate.check("a").is_allowed());
    proxy.delay(Duration::from_millis(300));
    let mut first = Box::pin(gate.check_cost_async("a", 0));
    assert!(first.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending());
    pause(Duration::from_millis(50));
    let calls = limiter.redis_stats().unwrap().calls;
    // A limit that was changed and changed back: two groups, about the one unit that is
    // left, with states that look the same.
    let before = gate.check_async("a");
    gate.change("2 per 2h").unwrap();
    gate.change("2 per 1h").unwrap();
    let after = gate.check_async("a");
    proxy.pass();
    assert_eq!(allowed([before, after].map(block_on)), [true, false]);
    assert_eq!(limiter.redis_stats().unwrap().calls, calls + 1, "they did not share a call");
}

#[test]
fn a_new_key_is_read_once() {
    let server = RedisServer::start();
    let limiter = node(&server.url());
    let gate = limiter.gate("new", "2 per 1h").unwrap();
    let before = server.calls("get");
    let keys: Vec<String> = (0..200).map(|key| format!("{key}")).collect();
    gate.check_batch(&keys, |_, decision| assert_eq!(decision.remaining(), 1));
    assert_eq!(server.calls("get") - before, 0, "all keys of a call are read at once");
    // What holds something else is not new, and stays what it is.
    server.cmd(&["RPUSH", "tg:1:new:{other}", "1"]).accepted();
    assert!(gate.check("other").is_degraded());
    assert_eq!(server.cmd(&["LLEN", "tg:1:new:{other}"]).int(), 1);
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn each_layer_can_be_switched_off() {
    let server = RedisServer::start();
    let limiter = node(&server.url());
    let off = GateOptions::new().remember_denials(false).coalesce(false);
    let gate = limiter.gate_with("bare", "5 per 1h", off).unwrap();
    let before = limiter.redis_stats().unwrap();
    crowd(8, || {
        for _ in 0..25 {
            let _ = gate.check("a");
        }
    });
    let after = limiter.redis_stats().unwrap();
    assert_eq!(after.decisions - before.decisions, 200, "everybody asks");
    assert!(after.calls - before.calls >= 200, "in a call of its own");
    assert_eq!((after.coalesced, after.remembered, after.leased), (0, 0, 0));
}

#[test]
fn a_lease_admits_no_more_than_its_bound_and_its_books_balance() {
    const LIFE: Duration = Duration::from_millis(100);
    let server = RedisServer::start();
    let nodes = [node(&server.url()), node(&server.url())];
    let limit: Limit = "2000/s burst 200".parse().unwrap();
    let gates = nodes
        .each_ref()
        .map(|node| node.gate_with("lease", limit.clone(), GateOptions::new().lease(LIFE)).unwrap());
    let (began, admitted) = (server.micros(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for gate in &gates {
            for _ in 0..4 {
                scope.spawn(|| {
                    while server_time_is_before(&server, began + 1_000_000) {
                        for _ in 0..50 {
                            admitted.fetch_add(u64::from(gate.check("a").is_allowed()), Ordering::Relaxed);
                        }
                    }
                });
            }
        }
    });
    let window = Duration::from_micros(server.micros() - began);
    // Outstanding on each node: at most what flows in one life.
    let outstanding = 2 * 200;
    let (admitted, most) = (admitted.into_inner(), limit.worst_case(window, 1) + outstanding);
    assert!(admitted <= most, "{admitted} were admitted, at most {most} may be");
    let spent: u64 = nodes.iter().map(|node| node.redis_stats().unwrap().leases.spent).sum();
    assert!(spent > 0, "nothing was leased");
    for node in &nodes {
        wait_until("nothing is outstanding", PATIENCE, || {
            node.redis_stats().unwrap().leases.outstanding == 0
        });
        let leases = node.redis_stats().unwrap().leases;
        assert_eq!(leases.granted, leases.spent + leases.returned + leases.expired, "{leases:?}");
    }
    wait_until("what was not spent is back", PATIENCE, || gates[0].peek("a").remaining() == 200);
}

#[test]
fn a_windows_lease_dies_with_its_window() {
    let server = RedisServer::start();
    for (limit, offset_us) in
        [("100 per 300ms fixed-window", 0), ("100 per 300ms fixed-window offset 130ms", 130_000)]
    {
        lease_dies_with_its_window(&server, limit, offset_us);
    }
}

fn lease_dies_with_its_window(server: &RedisServer, limit: &str, offset_us: u64) {
    let limiter = node(&server.url());
    let lease = GateOptions::new().lease(Duration::from_millis(250));
    let gate = limiter.gate_with(&format!("window-{offset_us}"), limit, lease).unwrap();
    let window = || (server.micros() - offset_us) / 300_000;
    // Over four windows, never more in one than it has: leases of the last must be gone.
    let mut by_window = std::collections::BTreeMap::<u64, u64>::new();
    let began = server.micros();
    while server.micros() < began + 1_200_000 {
        let before = window();
        let decisions: Vec<bool> = (0..20).map(|_| gate.check("a").is_allowed()).collect();
        // Only what surely belongs to one window is counted.
        if window() == before {
            *by_window.entry(before).or_default() +=
                decisions.iter().filter(|allowed| **allowed).count() as u64;
        }
    }
    assert!(by_window.values().all(|admitted| *admitted <= 100), "{by_window:?}");
    assert!(limiter.redis_stats().unwrap().leases.spent > 0, "nothing was leased");
}

#[test]
fn a_limit_that_promises_its_own_pace_cannot_be_leased() {
    let limiter = node("redis://127.0.0.1:1");
    for limit in ["leaky 5/s queue 3", "5/s warmup 1s", "5 concurrent"] {
        let refused = limiter.gate_with("paced", limit, GateOptions::new().lease(Duration::from_millis(50)));
        assert!(matches!(refused, Err(GateError::Lease { .. })), "{limit}");
    }
}

#[test]
fn a_limit_beyond_exact_doubles_is_refused_and_its_neighbour_named() {
    let limiter = node("redis://127.0.0.1:1");
    let error = limiter.gate("odd", "1234567/day burst 100000").unwrap_err().to_string();
    assert!(error.contains("nearest that fits"), "{error}");
    let gate = limiter.gate("even", "10/s").unwrap();
    assert!(gate.change("1234567/day burst 100000").is_err());
}

#[test]
fn while_nodes_disagree_about_a_limit_no_more_starts_than_the_looser_allows() {
    let server = RedisServer::start();
    let nodes = [node(&server.url()), node(&server.url())];
    let gates = nodes.each_ref().map(|node| node.gate("changed", "100/s burst 10").unwrap());
    let looser: Limit = "300/s burst 30".parse().unwrap();
    let hammer = |gates: [&Gate; 2]| {
        let (began, admitted) = (server.micros(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for gate in gates {
                scope.spawn(|| {
                    while server.micros() < began + 500_000 {
                        admitted.fetch_add(u64::from(gate.check("a").is_allowed()), Ordering::Relaxed);
                    }
                });
            }
        });
        (admitted.into_inner(), Duration::from_micros(server.micros() - began))
    };
    gates[1].change(looser.clone()).unwrap();
    let (admitted, window) = hammer([&gates[0], &gates[1]]);
    let most = looser.worst_case(window, 1);
    assert!(admitted <= most, "{admitted} were admitted while nodes disagreed, at most {most} may be");
    gates[0].change(looser.clone()).unwrap();
    let (admitted, window) = hammer([&gates[0], &gates[1]]);
    let (least, most) = (100, looser.worst_case(window, 1));
    assert!((least..=most).contains(&admitted), "{admitted} were admitted, of {least} to {most}");
}

#[test]
fn what_a_stricter_limit_cannot_hold_is_not_forgotten_by_the_looser() {
    let pairs = [
        // Only the burst differs, the rate does, or the algorithm.
        ("10/s burst 100", "10/s burst 2"),
        ("10/s burst 100", "50/s burst 5"),
        ("10/s burst 100", "20 per 100ms fixed-window"),
        ("10/s burst 100", "5 per 100ms sliding-log"),
        ("10/s burst 100", "leaky 50/s queue 2"),
        ("10/s burst 100", "50/s warmup 10ms"),
        ("100 per 1min sliding-log", "5 per 100ms sliding-log"),
        ("100 per 1min sliding-window", "50/s burst 5"),
        ("100 every 1min cap 100", "5 every 100ms cap 5"),
        ("100 per 1h fixed-window", "50/s burst 5"),
    ];
    let server = RedisServer::start();
    std::thread::scope(|scope| {
        for (nth, (loose, strict)) in pairs.into_iter().enumerate() {
            let server = &server;
            scope.spawn(move || {
                let name = format!("pair-{nth}");
                let looser = node(&server.url()).gate(&name, loose).unwrap();
                let stricter = node(&server.url()).gate(&name, strict).unwrap();
                let began = server.micros();
                let mut admitted = u64::from(looser.check_cost("a", 100).is_allowed()) * 100;
                assert_eq!(admitted, 100, "`{loose}`");
                // The stricter one looks, drains as it counts, and lets some through.
                for _ in 0..6 {
                    admitted += u64::from(stricter.check("a").is_allowed());
                    pause(Duration::from_millis(60));
                }
                while looser.check("a").is_allowed() {
                    admitted += 1;
                }
                let window = Duration::from_micros(server.micros() - began);
                let limit = |text: &str| text.parse::<Limit>().unwrap().worst_case(window, 1);
                let most = limit(loose) + limit(strict);
                assert!(admitted <= most, "`{loose}` and `{strict}`: {admitted} of {most} in {window:?}");
            });
        }
    });
}

#[test]
fn keys_can_be_read_by_an_operator_and_expire_when_they_say_nothing() {
    let server = RedisServer::start();
    let limiter = node(&server.url());
    let texts = [
        "10/s burst 5",
        "leaky 10/s capacity 5",
        "leaky 10/s queue 3",
        "5 every 200ms cap 10",
        "5 per 300ms fixed-window",
        "5 per 300ms sliding-window",
        "5 per 300ms sliding-log",
        "10/s warmup 100ms",
    ];
    for (nth, text) in texts.iter().enumerate() {
        let gate = limiter.gate(&format!("limit-{nth}"), *text).unwrap();
        let decision = gate.check("user:42");
        assert!(decision.is_allowed(), "{text}");
        let key = format!("tg:1:limit-{nth}:{{user:42}}");
        let left_ms = server.cmd(&["PTTL", &key]).int();
        let reset_ms = i64::try_from(decision.reset_after().as_millis()).unwrap();
        // Whole milliseconds, rounded up, and one for the server's own clock.
        assert!(
            (1..=reset_ms + 2).contains(&left_ms),
            "`{text}`: {left_ms} ms left, {reset_ms} to the reset"
        );
        wait_until("it is gone", PATIENCE, || server.cmd(&["EXISTS", &key]).int() == 0);
        let fresh = gate.peek("user:42");
        assert_eq!((fresh.remaining(), fresh.reset_after()), (fresh.limit(), Duration::ZERO), "{text}");
    }
    let strange = limiter.gate("strange", "1 per 1h").unwrap();
    let hostile: [&[u8]; 4] = [b"a\r\nFLUSHALL\r\n", b"{x}y", b"\0\xff", &[b'x'; 10_000]];
    for key in hostile {
        assert_eq!(allowed([strange.check(key), strange.check(key)]), [true, false]);
    }
    let names = server.cmd(&["KEYS", "tg:1:strange:*"]);
    assert_eq!(names.items().len(), hostile.len());
    assert!(names.items().iter().all(|name| name.text().len() < 100 && name.text().is_ascii()), "{names:?}");
}

#[test]
fn a_key_that_holds_something_else_disturbs_nobody_else() {
    let server = RedisServer::start();
    let limiter = node(&server.url());
    for (nth, limit) in ["10/s", "5 per 10s sliding-log", "3 concurrent"].iter().enumerate() {
        let gate = limiter.gate(&format!("mixed-{nth}"), *limit).unwrap();
        let key = format!("tg:1:mixed-{nth}:{{bad}}");
        for command in [&["SET", &key, "garbage"][..], &["HSET", &key, "a", "b"], &["RPUSH", &key, "x"]] {
            server.cmd(&["DEL", &key]);
            server.cmd(command);
            crowd(8, || {
                let bad = gate.reserve("bad");
                assert!(bad.is_degraded(), "{limit}, {command:?}: {bad:?}");
                let good = gate.reserve_cost("good", 0);
                assert!(good.is_allowed() && !good.is_degraded(), "{limit}, {command:?}: {good:?}");
            });
        }
    }
}

#[test]
fn across_slots_an_earlier_charge_goes_back_on_a_later_denial() {
    let cluster = Cluster::start();
    let redis = Redis::cluster(cluster.urls()).unwrap().deadline(Duration::from_secs(5));
    let limiter = Limiter::builder().redis(redis).build();
    let user = limiter.gate("user", "5 per 1h").unwrap();
    let goods = limiter.gate("goods", "1 per 1h").unwrap();
    let ask = |name: &str| limiter.check(&[Check::new(&user, name), Check::new(&goods, "7")]);
    assert!(ask("ann").is_allowed());
    for nth in 0..20 {
        let verdict = ask("bob");
        assert_eq!(verdict.bound_by(), "goods");
        assert!(matches!(verdict.decision().denial(), Some(Denial::Later(_))));
        if nth > 0 {
            // Known to be refused, nobody else is even asked.
            pause(Duration::from_millis(10));
        }
    }
    wait_until("bob has paid nothing", PATIENCE, || user.peek("bob").remaining() == 5);
    assert_eq!(user.peek("ann").remaining(), 4);
}

#[test]
fn a_check_beside_a_remembered_denial_is_looked_at_and_not_charged() {
    let server = RedisServer::start();
    let limiter = node(&server.url());
    let user = limiter.gate("user", "5 per 1h").unwrap();
    let goods = limiter.gate_with("goods", "1 per 1h", GateOptions::new().no_refunds()).unwrap();
    assert!(goods.check("7").is_allowed() && !goods.check("7").is_allowed());
    let verdict = limiter.check(&[Check::new(&user, "ann"), Check::new(&goods, "7")]);
    assert_eq!((verdict.is_allowed(), verdict.bound_by()), (false, "goods"));
    let [own, shared] = verdict.decisions() else { panic!("{verdict:?}") };
    assert!(own.is_checked() && own.is_allowed() && own.remaining() == 5, "{own:?}");
    assert!(shared.is_checked() && !shared.is_allowed(), "{shared:?}");
    assert_eq!(user.peek("ann").remaining(), 5);
}

#[test]
fn memory_and_redis_can_be_asked_in_one_request() {
    let server = RedisServer::start();
    let (shared, own) = (node(&server.url()), Limiter::new());
    let (everywhere, here) = (shared.gate("all", "2 per 1h").unwrap(), own.gate("here", "3 per 1h").unwrap());
    let ask = || shared.reserve(&[Check::new(&everywhere, "a"), Check::new(&here, "a")]);
    assert!(ask().is_allowed() && ask().is_allowed());
    assert_eq!(ask().bound_by(), "all");
    assert_eq!(here.peek("a").remaining(), 1, "what memory charged went back");
    ask().into_permit().unwrap_err();
}

#[test]
fn handles_and_batches_are_the_same_keys() {
    let server = RedisServer::start();
    let limiter = node(&server.url());
    let gate = limiter.gate("batch", "3 per 1h").unwrap();
    let handle = gate.handle("a");
    assert!(handle.check().is_allowed());
    let mut seen = Vec::new();
    gate.check_batch(&["a", "b", "a", "a"], |nth, decision| seen.push((nth, decision.is_allowed())));
    assert_eq!(seen, [(0, true), (1, true), (2, true), (3, false)]);
    handle.reset();
    assert_eq!(handle.peek().remaining(), 3);
}
