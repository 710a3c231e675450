//! Several limits, one of which is known to refuse: what the others say is the truth, or is
//! said not to be known.

use std::time::Duration;
use testkit::servers::{Cluster, FaultProxy, RedisServer};
use tidegate::{Check, Decision, Denial, Gate, GateOptions, Limiter, ManualClock, Redis};

const DEADLINE: Duration = Duration::from_secs(5);

/// On a clock that stands still: what is remembered is believed for as long as it does.
fn node(url: &str, clock: &ManualClock) -> Limiter {
    Limiter::builder().redis(Redis::at(url).unwrap().deadline(DEADLINE)).clock(clock.clone()).build()
}

fn use_up(gate: &Gate, key: &str) {
    while gate.check(key).is_allowed() {}
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_remembered_denial_does_not_hide_another_limit_that_takes_longer() {
    let server = RedisServer::start();
    let clock = ManualClock::new();
    let (here, elsewhere) = (node(&server.url(), &clock), node(&server.url(), &clock));
    for wait in ["", " wait 20ms"] {
        let limits =
            [("short", format!("1 per 140ms burst 1{wait}")), ("long", format!("1 per 185ms burst 1{wait}"))];
        let [short, long] = limits.each_ref().map(|(name, limit)| {
            here.remove(name);
            here.gate(name, limit.as_str()).unwrap()
        });
        elsewhere.remove("long");
        let long_elsewhere = elsewhere.gate("long", limits[1].1.as_str()).unwrap();
        use_up(&short, "a");
        assert!(!short.check("a").is_allowed(), "remembered");
        use_up(&long_elsewhere, "a");
        let checks = [Check::new(&short, "a"), Check::new(&long, "a")];
        let now = here.check(&checks);
        assert_eq!(now.retry_after(), Some(ms(185)), "{now:?}");
        assert_eq!(now.bound_by(), "long");
        assert!(now.decisions().iter().all(|decision| decision.is_checked() && !decision.is_allowed()));
        if !wait.is_empty() {
            use_up_reserved(&short);
            use_up_reserved(&long);
            let later = here.reserve(&checks);
            assert_eq!(later.retry_after(), Some(long.reserve("a").retry_after().unwrap()), "{later:?}");
        }
        clock.advance(Duration::from_secs(10));
    }
}

fn use_up_reserved(gate: &Gate) {
    while let Ok(permit) = gate.reserve("a").into_permit() {
        drop(permit);
    }
}

#[test]
fn a_remembered_denial_does_not_hide_a_call_that_can_never_fit() {
    let server = RedisServer::start();
    let clock = ManualClock::new();
    let limiter = node(&server.url(), &clock);
    let [short, few] = ["short", "few"].map(|name| limiter.gate(name, "3/s").unwrap());
    let slots = limiter.gate("slots", "3 concurrent").unwrap();
    use_up(&short, "a");
    let never = limiter.check(&[Check::new(&short, "a"), Check::new(&few, "a").cost(4)]);
    assert_eq!((never.retry_after(), never.decision().denial()), (None, Some(Denial::Never)), "{never:?}");
    let never = limiter.reserve(&[Check::new(&short, "a"), Check::new(&slots, "a").cost(4)]);
    assert_eq!((never.retry_after(), never.decision().denial()), (None, Some(Denial::Never)), "{never:?}");
}

#[test]
fn in_a_cluster_the_slots_behind_a_refusal_are_looked_at() {
    let cluster = Cluster::start();
    let redis = Redis::cluster(cluster.urls()).unwrap().deadline(DEADLINE);
    let clock = ManualClock::new();
    let limiter = Limiter::builder().redis(redis).clock(clock).build();
    let off = || GateOptions::new().remember_denials(false);
    let short = limiter.gate_with("short", "1 per 140ms", off()).unwrap();
    let long = limiter.gate_with("long", "1 per 185ms", off()).unwrap();
    use_up(&short, "ann");
    use_up(&long, "goods:7");
    let verdict = limiter.check(&[Check::new(&short, "ann"), Check::new(&long, "goods:7")]);
    assert_eq!(verdict.retry_after(), Some(ms(185)), "{verdict:?}");
    assert!(verdict.decisions().iter().all(Decision::is_checked));
    let free = limiter.check(&[Check::new(&short, "ann"), Check::new(&long, "goods:8")]);
    assert_eq!(free.decisions().iter().map(Decision::is_allowed).collect::<Vec<_>>(), [false, true]);
    assert_eq!(long.peek("goods:8").remaining(), 1, "only looked at");
}

#[test]
fn a_check_that_could_not_be_asked_allows_nothing_and_says_so() {
    let server = RedisServer::start();
    let proxy = FaultProxy::start(&server.addr());
    let clock = ManualClock::new();
    let redis = Redis::at(&proxy.url()).unwrap().deadline(ms(200));
    let limiter = Limiter::builder().redis(redis).clock(clock).build();
    let [short, other] = ["short", "other"].map(|name| limiter.gate(name, "3/s").unwrap());
    use_up(&short, "a");
    proxy.stall();
    let verdict = limiter.check(&[Check::new(&short, "a"), Check::new(&other, "a")]);
    let [known, unknown] = verdict.decisions() else { panic!("{verdict:?}") };
    assert!(known.is_checked() && !known.is_allowed());
    assert!(!unknown.is_checked() && !unknown.is_allowed() && unknown.remaining() == 0, "{unknown:?}");
    assert_eq!(unknown.denial(), Some(Denial::Busy));
    assert_eq!((verdict.bound_by(), verdict.retry_after()), ("short", known.retry_after()));
}

#[test]
fn a_flood_of_refusals_looks_at_other_limits_a_bounded_number_of_times() {
    let server = RedisServer::start();
    let clock = ManualClock::new();
    let limiter = node(&server.url(), &clock);
    let hot = limiter.gate("hot", "1 per 1h").unwrap();
    let user = limiter.gate("user", "5 per 1h").unwrap();
    use_up(&hot, "goods:7");
    let asked = || limiter.redis_stats().unwrap().decisions;
    // The same two keys: looked at once.
    let before = asked();
    for _ in 0..1_000 {
        let verdict = limiter.check(&[Check::new(&user, "ann"), Check::new(&hot, "goods:7")]);
        assert!(verdict.decisions()[0].is_allowed() && !verdict.is_allowed());
    }
    assert_eq!(asked() - before, 1, "what was seen is good for a moment");
    // Another user each time: so many in a second, and no more.
    let (before, began) = (asked(), server.micros());
    for user_id in 0..5_000 {
        let key = format!("user:{user_id}");
        let verdict = limiter.check(&[Check::new(&user, &key), Check::new(&hot, "goods:7")]);
        let first = &verdict.decisions()[0];
        assert!(!verdict.is_allowed() && first.is_checked() == first.is_allowed());
        assert_eq!(verdict.bound_by(), "hot");
    }
    // A second that has begun counts, and the one in which it ends.
    let (looks, seconds) = (asked() - before, (server.micros() - began) / 1_000_000 + 2);
    assert!(looks <= 1_000 * seconds, "{looks} looks in {seconds} s");
    assert!(looks < 5_000 || seconds > 5, "nobody was left unasked");
}
