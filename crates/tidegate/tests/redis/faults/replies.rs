//! A server that forgets, and a connection that breaks at the worst moment.

use super::check::{RECOVERY, SLACK, exceeded, late, odd};
use super::drive::{Driver, Record, now_us};
use super::trio::{LIMIT, State, Trio, gate};
use std::thread;
use std::time::Duration;
use testkit::servers::{FaultProxy, RedisServer, pause, wait_until};
use tidegate::{Fallback, Gate, Limit, Limiter, Redis};

/// So long that only a fault, and no busy machine, keeps an answer from coming in time.
const PATIENT: Duration = Duration::from_millis(500);

fn patient(url: &str) -> Limiter {
    Limiter::builder().redis(Redis::at(url).unwrap().deadline(PATIENT)).build()
}

/// Lets callers ask while something is done to the server.
fn under_load(gate: &Gate, mut fault: impl FnMut(usize), times: usize) -> Vec<Record> {
    assert!(!gate.check("all").is_degraded(), "the store is reached");
    let driver = Driver::start(gate, &["all"], 3);
    pause(Duration::from_millis(200));
    for nth in 0..times {
        fault(nth);
        pause(Duration::from_millis(60));
    }
    pause(Duration::from_millis(200));
    driver.stop()
}

#[test]
fn script_flush_is_mended_before_anybody_notices() {
    let server = RedisServer::start();
    let limiter = patient(&server.url());
    let gate = gate(&limiter, "flushed", LIMIT, Fallback::Deny);
    let flush = |_| drop(server.cmd(&["SCRIPT", "FLUSH"]).accepted());
    let records = under_load(&gate, flush, 10);
    let (stats, limit) = (limiter.redis_stats().unwrap(), gate.limit());
    exceeded(&records, |window| limit.worst_case(window, 1)).unwrap();
    late(&records, PATIENT).unwrap();
    odd(&stats).unwrap();
    // Two calls may be under way when it goes, and a flush may meet none.
    assert!((8..=20).contains(&stats.script_reloads), "{stats:?}");
    assert_eq!((stats.degraded, stats.timeouts, stats.connects), (0, 0, 1), "{stats:?}");
}

#[test]
fn flushall_costs_at_most_one_burst() {
    let server = RedisServer::start();
    let limiter = patient(&server.url());
    let gate = gate(&limiter, "flushed", "20/s burst 50", Fallback::Deny);
    let records = under_load(&gate, |_| drop(server.cmd(&["FLUSHALL"]).accepted()), 1);
    let (stats, limit) = (limiter.redis_stats().unwrap(), gate.limit());
    exceeded(&records, |window| limit.worst_case(window, 1) + limit.capacity()).unwrap();
    // It was lost in fact: else this would show nothing.
    assert!(exceeded(&records, |window| limit.worst_case(window, 1)).is_err());
    late(&records, PATIENT).unwrap();
    odd(&stats).unwrap();
    assert_eq!((stats.degraded, stats.connects), (0, 1), "{stats:?}");
}

#[test]
fn flushall_between_two_lives_of_the_script_is_no_fault() {
    let server = RedisServer::start();
    let trio = Trio::start(Redis::at(&server.url()).unwrap());
    server.cmd(&["FLUSHALL"]).accepted();
    server.cmd(&["SCRIPT", "FLUSH"]).accepted();
    trio.run(Duration::from_millis(300));
    let told = trio.end(State::Lost);
    assert!(told.stats.script_reloads >= 1, "{:?}", told.stats);
}

const COUNTED: &str = "5000 per 24h";

#[test]
fn a_reply_cut_in_the_middle_counts_as_spent_and_is_never_granted_twice() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.addr());
    let limiter = patient(&proxy.url());
    let counted = gate(&limiter, "counted", COUNTED, Fallback::Deny);
    // After nothing, in the head, in a number, between two lines.
    let cuts = [0, 1, 3, 4, 7, 12, 25, 2, 5, 20];
    let cut = |nth: usize| {
        proxy.cut_in_reply(cuts[nth]);
        let connects = nth as u64 + 2;
        wait_until("it is connected again", RECOVERY, || limiter.redis_stats().unwrap().connects >= connects);
        // A server that closes young connections would be left alone.
        pause(Duration::from_millis(60));
    };
    let records = under_load(&counted, cut, cuts.len());
    let (stats, granted) =
        (limiter.redis_stats().unwrap(), records.iter().filter(|record| record.is_allowed).count() as u64);
    let other = patient(&server.url());
    let used = 5_000 - gate(&other, "counted", COUNTED, Fallback::Deny).peek("all").remaining();
    println!("granted {granted}, used {used}, {stats:?}");
    late(&records, PATIENT).unwrap();
    odd(&stats).unwrap();
    // The one by which the store was reached.
    let granted = granted + 1;
    assert!(used >= granted, "{granted} were granted, but only {used} are used");
    assert!(used <= granted + stats.degraded, "{used} are used, {granted} were granted: {stats:?}");
    assert!(used > granted, "no cut met a reply: {stats:?}");
    // Whoever was on the way, and nobody else: three callers.
    assert!(stats.degraded <= 3 * cuts.len() as u64, "{stats:?}");
    // A cut connection is made anew at once, and only once.
    assert!(stats.connects <= 1 + cuts.len() as u64, "{stats:?}");
    assert_eq!(proxy.connections() as u64, stats.connects);
}

#[test]
fn a_connection_that_is_cut_and_then_silent_is_waited_for_one_deadline_only() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.addr());
    let limiter = patient(&proxy.url());
    let gate = gate(&limiter, "cut", LIMIT, Fallback::Deny);
    assert!(!gate.check("all").is_degraded());
    server.freeze();
    let records: Vec<Record> = thread::scope(|scope| {
        let ask = || {
            let gate = &gate;
            scope.spawn(move || Record::of(|| gate.check("all")))
        };
        // One is on its way, the next one waits for its answer; then the network breaks, and
        // comes back mute.
        let first = ask();
        pause(Duration::from_millis(30));
        let second = ask();
        pause(PATIENT - Duration::from_millis(100));
        proxy.refuse();
        proxy.stall();
        [first, second].map(|asked| asked.join().unwrap()).into()
    });
    assert!(records.iter().all(|record| record.is_degraded), "{records:?}");
    late(&records, PATIENT).unwrap();
}

#[test]
fn a_cap_holds_while_the_store_answers_now_and_then() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.addr());
    let limiter = Limiter::builder().redis(Redis::at(&proxy.url()).unwrap()).build();
    let cap: Limit = "1/s burst 5".parse().unwrap();
    let gate = gate(&limiter, "capped", "1000/s", Fallback::Allow { cap: cap.clone() });
    wait_until("the store is reached", Duration::from_secs(2), || !gate.check("all").is_degraded());
    let driver = Driver::start(&gate, &["all"], 3);
    for _ in 0..8 {
        proxy.stall();
        pause(Duration::from_millis(100));
        proxy.pass();
        let now = now_us();
        wait_until("the store answers again", Duration::from_secs(3), || driver.exact_us() > now);
    }
    let records = driver.stop();
    let degraded = records.iter().filter(|record| record.is_degraded);
    exceeded(degraded, |window| cap.worst_case(window, 1)).unwrap();
    assert!(records.iter().map(Record::took).max().unwrap() <= Duration::from_millis(20) + SLACK);
}
