//! What one call may cost the server: lists that it has to read are bounded.

use std::time::Duration;
use testkit::servers::RedisServer;
use tidegate::{GateError, Limiter, Redis};

fn node(url: &str) -> Limiter {
    Limiter::builder().redis(Redis::at(url).unwrap().deadline(Duration::from_secs(20))).build()
}

#[test]
fn a_log_that_a_call_could_not_read_in_time_is_refused_where_the_limit_is_made() {
    let limiter = node("redis://127.0.0.1:1");
    let error = limiter.gate("downloads", "50000 per 1h sliding-log").unwrap_err();
    assert_eq!(
        error.to_string(),
        "gate `downloads` cannot be kept in Redis: `50000/h sliding-log` has up to 50000 entries a key, \
         at most 10000 are read there in time; write `50000/h sliding-window slices 100`"
    );
    assert!(matches!(error, GateError::Long { entries: 50_000, most: 10_000, .. }));
    let gate = limiter.gate("downloads", "10000 per 1h sliding-log").unwrap();
    for long in ["10001 per 1h sliding-log", "6000 per 1h sliding-log wait 1s"] {
        assert!(matches!(gate.change(long), Err(GateError::Long { .. })), "{long}");
        assert_eq!(gate.limit().amount(), 10_000, "it stays as it was");
    }
    gate.change("50000 per 1h sliding-window slices 100").unwrap();
    assert!(Limiter::new().gate("downloads", "50000 per 1h sliding-log").is_ok(), "in memory it is free");
}

#[test]
fn keys_with_long_logs_do_not_gather_in_one_call() {
    let server = RedisServer::start();
    let limiter = node(&server.url());
    let calls = |limit: &str, keys: usize| {
        let gate = limiter.gate(&format!("of-{keys}"), limit).unwrap();
        assert!(gate.check("connected").is_allowed());
        let before = limiter.redis_stats().unwrap().calls;
        // Frozen, so that all of them gather behind the first.
        server.freeze();
        let asked: Vec<_> = (0..keys).map(|key| gate.check_async(&format!("user:{key}"))).collect();
        server.thaw();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(asked.into_iter().all(|asked| runtime.block_on(asked).is_allowed()));
        limiter.redis_stats().unwrap().calls - before
    };
    // Two of them may take what a call may: at least every other one makes a call.
    let made = calls("10000 per 1h sliding-log", 60);
    assert!(made >= 28, "60 keys of 10,000 entries shared {made} calls");
    let made = calls("100 per 1h sliding-log", 100);
    assert!(made <= 20, "100 keys of 100 entries took {made} calls");
}

#[test]
fn calls_that_were_cancelled_in_the_midst_leave_no_entries_behind() {
    let server = RedisServer::start();
    let gate = node(&server.url()).gate("returns", "10 per 1day sliding-log").unwrap();
    let mut last = gate.reserve("ada").into_permit().unwrap();
    for _ in 0..300 {
        // The next one is there before the one before it is given back.
        let next = gate.reserve("ada").into_permit().unwrap();
        std::mem::replace(&mut last, next).cancel();
        assert_eq!(gate.peek("ada").remaining(), 9);
    }
    let elements = server.cmd(&["LLEN", "tg:1:returns:{ada}"]).int();
    assert!(elements < 2 + 2 * 70, "{elements} elements for one unit");
}

#[test]
fn a_crowd_of_waiters_that_crashed_is_not_cleared_away_in_one_call() {
    let server = RedisServer::start();
    let gate = node(&server.url()).gate("crashed", "1 concurrent queue 5000 wait 1s").unwrap();
    let (queue, alive) = ("tg:1:crashed:{ada}:queue", "tg:1:crashed:{ada}:alive");
    let script =
        "for i = 1, 1000 do for k = 1, 2 do redis.call('ZADD', KEYS[k], i, 'x.' .. i .. '~500:1') end end";
    server.cmd(&["EVAL", script, "2", queue, alive]).accepted();
    assert!(!gate.reserve("ada").is_allowed(), "the others seem to wait");
    assert_eq!(server.cmd(&["ZCARD", queue]).int(), 900);
    let taken = (0..20).any(|_| gate.reserve("ada").into_permit().is_ok());
    assert!(taken, "they are cleared away call by call");
}
