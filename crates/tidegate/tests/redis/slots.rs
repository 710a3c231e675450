//! Slots of a concurrency limit, held across processes.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use testkit::servers::{RedisServer, wait_until};
use tidegate::{Fallback, Gate, GateOptions, Limiter, Redis, Verdict};

/// For machines that are busy with other things.
const PATIENCE: Duration = Duration::from_secs(10);
const LEASE: Duration = Duration::from_millis(600);

fn node(server: &RedisServer) -> Limiter {
    let redis = Redis::at(&server.url()).unwrap().deadline(Duration::from_secs(5));
    Limiter::builder().redis(redis).build()
}

fn gate(limiter: &Limiter, limit: &str) -> Gate {
    limiter.gate_with("workers", limit, GateOptions::new().hold_for(LEASE)).unwrap()
}

fn pause(time: Duration) {
    testkit::servers::pause(time);
}

#[test]
fn slots_are_counted_over_all_nodes() {
    let server = RedisServer::start();
    let (one, other) = (node(&server), node(&server));
    let (here, there) = (gate(&one, "3 concurrent"), gate(&other, "3 concurrent"));
    let pair = here.reserve_cost("job", 2).into_permit().unwrap();
    let single = there.reserve("job").into_permit().unwrap();
    assert!(!here.reserve("job").is_allowed());
    assert_eq!(there.peek("job").remaining(), 0);
    assert!(there.reserve("another job").is_allowed());
    drop(single);
    assert!(there.reserve("job").is_allowed(), "a dropped permit gives its slot back");
    drop(pair);
    wait_until("both slots come back", PATIENCE, || here.peek("job").remaining() == 3);
}

/// A check that costs nothing holds no slot. What it "truly cost" was sent as the debt of a rate, an
/// error for slots, which failed the calls of others with it.
#[test]
fn a_slot_that_was_not_held_is_no_debt() {
    let server = RedisServer::start();
    let limiter = node(&server);
    let (slots, rate) = (gate(&limiter, "3 concurrent"), limiter.gate("rate", "1000/s").unwrap());
    for _ in 0..50 {
        slots.reserve_cost("job", 0).into_permit().unwrap().settle(2);
        assert!(rate.check("job").is_allowed());
    }
    assert_eq!(limiter.redis_stats().unwrap().degraded, 0);
    assert_eq!(slots.peek("job").remaining(), 3);
}

#[test]
fn a_slot_is_renewed_for_as_long_as_it_is_held() {
    let server = RedisServer::start();
    let (one, other) = (node(&server), node(&server));
    let held = gate(&one, "1 concurrent").reserve("job").into_permit().unwrap();
    for _ in 0..10 {
        pause(LEASE / 4);
        assert!(!gate(&other, "1 concurrent").reserve("job").is_allowed());
        assert!(!held.is_lost());
    }
    drop(held);
    wait_until("the slot comes back", PATIENCE, || gate(&other, "1 concurrent").reserve("job").is_allowed());
}

#[test]
fn a_crashed_holders_slot_comes_back_when_its_lease_ends() {
    let server = RedisServer::start();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "slots::holds_a_slot_until_it_is_killed", "--ignored", "--nocapture"])
        .env("TIDEGATE_URL", server.url())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let limiter = node(&server);
    let gate = gate(&limiter, "1 concurrent");
    wait_until("the child holds it", PATIENCE, || gate.peek("job").remaining() == 0);
    // Longer than a lease: the child renews it.
    pause(2 * LEASE);
    assert!(!gate.reserve("job").is_allowed());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the slot comes back", LEASE + PATIENCE, || gate.reserve("job").is_allowed());
}

#[test]
#[ignore = "a child of another test"]
fn holds_a_slot_until_it_is_killed() {
    let Ok(url) = std::env::var("TIDEGATE_URL") else { return };
    let redis = Redis::at(&url).unwrap().deadline(Duration::from_secs(5));
    let limiter = Limiter::builder().redis(redis).build();
    let _held = gate(&limiter, "1 concurrent").reserve("job").into_permit().unwrap();
    pause(Duration::from_secs(60));
}

#[test]
fn a_holder_that_outlives_its_lease_sees_that_it_is_lost() {
    let server = RedisServer::start();
    let limiter = node(&server);
    let held = gate(&limiter, "1 concurrent").reserve("job").into_permit().unwrap();
    assert!(!held.is_lost());
    server.freeze();
    pause(LEASE);
    assert!(held.is_lost(), "nobody can say that the slot is still its own");
    server.thaw();
}

#[test]
fn a_holder_whose_slot_was_forgotten_sees_that_it_is_lost() {
    let server = RedisServer::start();
    let limiter = node(&server);
    let held = gate(&limiter, "1 concurrent").reserve("job").into_permit().unwrap();
    server.cmd(&["FLUSHALL"]);
    wait_until("the next sign of life finds out", PATIENCE, || held.is_lost());
}

#[test]
fn the_queue_is_bounded_over_all_nodes_and_first_in_first_out() {
    let server = RedisServer::start();
    let (one, other) = (node(&server), node(&server));
    let limit = "1 concurrent queue 2 wait 20s";
    let (here, there) = (gate(&one, limit), gate(&other, limit));
    let held = here.reserve("job").into_permit().unwrap();
    let order = Arc::new(AtomicUsize::new(0));
    let queue = |gate: &Gate| {
        let (waiting, order) = (gate.acquire("job"), order.clone());
        std::thread::spawn(move || {
            let verdict = waiting.blocking();
            let turn = order.fetch_add(1, Ordering::SeqCst);
            assert!(verdict.is_allowed());
            pause(Duration::from_millis(30));
            turn
        })
    };
    let queued = |expected: i64| {
        wait_until("it is queued", PATIENCE, || {
            server.cmd(&["ZCARD", "tg:1:workers:{job}:queue"]).int() == expected
        });
    };
    let first = queue(&there);
    queued(1);
    let second = queue(&here);
    queued(2);
    assert!(!there.acquire("job").blocking().is_allowed(), "the third in the queue is refused at once");
    assert!(!here.acquire("job").blocking().is_allowed(), "on every node");
    assert!(!here.reserve("job").is_allowed(), "nobody overtakes who waits");
    drop(held);
    assert_eq!((first.join().unwrap(), second.join().unwrap()), (0, 1));
}

#[test]
fn who_waits_too_long_or_goes_away_leaves_the_queue() {
    let server = RedisServer::start();
    let limiter = node(&server);
    let gate = gate(&limiter, "1 concurrent queue 1 wait 100ms");
    let held = gate.reserve("job").into_permit().unwrap();
    let length = || server.cmd(&["ZCARD", "tg:1:workers:{job}:queue"]).int();
    assert!(!gate.acquire("job").blocking().is_allowed());
    wait_until("it has left", PATIENCE, || length() == 0);

    let mut waiting = Box::pin(gate.acquire("job"));
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    wait_until("it is queued", PATIENCE, || {
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        length() == 1
    });
    drop(waiting);
    wait_until("it has left", PATIENCE, || length() == 0);
    drop(held);
    wait_until("the slot is free", PATIENCE, || gate.peek("job").remaining() == 1);
}

#[test]
fn a_waiter_that_is_dropped_after_its_grant_gives_the_slot_back() {
    let server = RedisServer::start();
    let limiter = node(&server);
    let gate = gate(&limiter, "1 concurrent");
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    for _ in 0..50 {
        // Polled once, it is on its way; whatever comes back finds nobody.
        let mut asked = Box::pin(gate.acquire("job"));
        let _ = asked.as_mut().poll(&mut context);
        drop(asked);
    }
    wait_until("the slot is free", LEASE * 3, || gate.peek("job").remaining() == 1);
}

#[test]
fn a_lowered_limit_takes_no_slot_from_a_holder_and_gives_none_before_enough_are_back() {
    let server = RedisServer::start();
    let limiter = node(&server);
    let gate = gate(&limiter, "3 concurrent");
    let mut held: Vec<_> = (0..3).map(|_| gate.reserve("job").into_permit().unwrap()).collect();
    gate.change("1 concurrent").unwrap();
    for left in [3, 2, 1] {
        assert!(!gate.reserve("job").is_allowed(), "{left} are held of 1");
        assert!(held.iter().all(|permit| !permit.is_lost()));
        drop(held.pop());
    }
    wait_until("there is room", PATIENCE, || gate.reserve("job").is_allowed());
}

#[test]
fn nodes_with_other_leases_share_the_slots_and_each_keeps_its_own() {
    let server = RedisServer::start();
    let (one, other) = (node(&server), node(&server));
    let short = gate(&one, "2 concurrent");
    let long = other.gate_with("workers", "2 concurrent", GateOptions::new().hold_for(LEASE * 20)).unwrap();
    let held = short.reserve("job").into_permit().unwrap();
    let kept = long.reserve("job").into_permit().unwrap();
    assert!(!short.reserve("job").is_allowed() && !long.reserve("job").is_allowed());
    pause(LEASE * 2);
    assert!(!held.is_lost() && !kept.is_lost(), "both are renewed in time");
    let free = || long.peek("job").remaining();
    assert_eq!(free(), 0);
    drop(held);
    wait_until("one is free", PATIENCE, || free() == 1);
    drop(kept);
    wait_until("both are free", PATIENCE, || free() == 2);
}

#[test]
fn what_is_left_after_a_part_came_back_is_renewed_and_can_be_lost() {
    let server = RedisServer::start();
    let limiter = node(&server);
    let gate = gate(&limiter, "3 concurrent");
    let mut held = gate.reserve_cost("job", 3).into_permit().unwrap();
    held.refund_units(1);
    wait_until("one is back", PATIENCE, || gate.peek("job").remaining() == 1);
    pause(LEASE * 2);
    assert!(!held.is_lost(), "the two that are left are renewed");
    assert_eq!(gate.peek("job").remaining(), 1);
    server.cmd(&["FLUSHALL"]);
    wait_until("they are lost", PATIENCE, || held.is_lost());
}

#[test]
fn a_waiter_whose_node_is_gone_is_passed_over() {
    let server = RedisServer::start();
    let (one, other) = (node(&server), node(&server));
    let limit = "1 concurrent queue 2 wait 20s";
    let (here, there) = (gate(&one, limit), gate(&other, limit));
    let held = here.reserve("job").into_permit().unwrap();
    // A waiter that gives no sign of life: queued by hand, as a node that died had left it.
    server.cmd(&["ZADD", "tg:1:workers:{job}:queue", "1", "gone.1:1"]).accepted();
    let alive_us = (server.micros() + 300_000).to_string();
    server.cmd(&["ZADD", "tg:1:workers:{job}:alive", &alive_us, "gone.1:1"]).accepted();
    let waiting = there.acquire("job");
    let waiter = std::thread::spawn(move || waiting.blocking().is_allowed());
    wait_until("it is behind the other", PATIENCE, || {
        server.cmd(&["ZCARD", "tg:1:workers:{job}:queue"]).int() == 2
    });
    drop(held);
    assert!(waiter.join().unwrap(), "it is its turn once the other counts as gone");
}

#[test]
fn while_writes_are_refused_no_slot_is_given_and_those_held_end_with_their_lease() {
    let server = RedisServer::start();
    let limiter = node(&server);
    let deny = GateOptions::new().hold_for(LEASE).fallback(Fallback::Deny);
    let gate = limiter.gate_with("workers", "2 concurrent", deny).unwrap();
    let held = gate.reserve("job").into_permit().unwrap();
    server.cmd(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).accepted();
    server.cmd(&["CONFIG", "SET", "maxmemory", "1"]).accepted();
    let refused = gate.reserve("job");
    assert!(!refused.is_allowed() && refused.is_degraded(), "{refused:?}");
    wait_until("it cannot be renewed", PATIENCE, || held.is_lost());
    server.cmd(&["CONFIG", "SET", "maxmemory", "0"]).accepted();
    wait_until("slots are given again", PATIENCE, || gate.reserve("job").is_allowed());
    drop(held);
    wait_until("none is left behind", PATIENCE, || gate.peek("job").remaining() == 2);
}

#[test]
fn slots_and_rates_are_taken_together_or_not_at_all() {
    let server = RedisServer::start();
    let limiter = node(&server);
    let slots = gate(&limiter, "1 concurrent");
    let rate = limiter.gate("rate", "2 per 1h").unwrap();
    let both = [tidegate::Check::new(&slots, "job"), tidegate::Check::new(&rate, "job")];
    let ask = || -> Verdict { limiter.reserve(&both) };
    let held = ask().into_permit().unwrap();
    let denied = ask();
    assert_eq!(denied.bound_by(), "workers");
    assert_eq!(rate.peek("job").remaining(), 1, "no slot, no charge");
    drop(held);
    wait_until("the slot is free", PATIENCE, || slots.peek("job").remaining() == 1);
    drop(ask().into_permit().unwrap());
    wait_until("the slot is free", PATIENCE, || slots.peek("job").remaining() == 1);
    assert_eq!(ask().bound_by(), "rate");
    assert_eq!(slots.peek("job").remaining(), 1, "no rate, no slot");
}

#[test]
fn no_more_slots_are_held_than_there_are_and_none_is_left_behind() {
    const SLOTS: u64 = 5;
    let server = RedisServer::start();
    let nodes = [node(&server), node(&server), node(&server)];
    let (held, most, had) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for nth in 0..12 {
            let (held, most, had) = (&held, &most, &had);
            let gate = gate(&nodes[nth % 3], "5 concurrent queue 100 wait 20s");
            scope.spawn(move || {
                for turn in 0..15 {
                    let verdict = if (nth + turn) % 2 == 0 {
                        gate.acquire("job").blocking()
                    } else {
                        gate.reserve("job")
                    };
                    let Ok(permit) = verdict.into_permit() else { continue };
                    most.fetch_max(held.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    had.fetch_add(1, Ordering::SeqCst);
                    pause(Duration::from_millis(1));
                    held.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                }
            });
        }
    });
    let (most, had) = (most.into_inner(), had.into_inner());
    assert!(most <= SLOTS, "{most} of {SLOTS} slots were held at once");
    assert!(had >= 6 * 15, "only {had} were held at all");
    wait_until("nothing is left behind", PATIENCE, || {
        server.cmd(&["KEYS", "tg:1:workers:*"]).items().is_empty()
    });
}
