//! Who is let in: passwords, certificates, users with few rights.

use super::check::{DEADLINE, RECOVERY, late, odd};
use super::drive::{Driver, now_us};
use super::trio::{LIMIT, State, Trio, gate};
use std::fmt::Write as _;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use testkit::servers::{RedisServer, pause, wait_until};
use tidegate::{Check, Fallback, GateOptions, Limiter, Redis};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

#[test]
fn wrong_password_falls_back_until_it_is_the_right_one() {
    let server = RedisServer::with_password("right");
    let said = Said::listen();
    let trio = Trio::start_away(Redis::at(&server.url_as("", "wrong")).unwrap().nodes(1));
    trio.wait_down();
    trio.run(Duration::from_millis(500));
    assert_eq!(trio.stats().connects, 0, "{:?}", trio.stats());
    wait_until("it is told why", RECOVERY, || {
        said.about(&server.addr()).contains("check user and password in the URL")
    });
    server.cmd(&["CONFIG", "SET", "requirepass", "wrong"]).accepted();
    let took = trio.wait_exact(now_us());
    let told = trio.end(State::Kept);
    println!("exact again after {took:?}");
    let [local, deny, allow] = told.degraded_starts();
    assert!(local >= 25 && deny == 0 && allow >= 15, "{local} {deny} {allow}");
    assert_eq!(told.stats.connects, 1, "{:?}", told.stats);
    assert!(!said.about(&server.addr()).contains("wrong"), "a password is in the log");
}

#[test]
fn tls_with_a_client_certificate() {
    let server = RedisServer::with_tls();
    let tls = server.tls();
    let redis = || Redis::at(&server.url()).unwrap().tls_authority(tls.ca.as_bytes());
    let trusted = redis().tls_client(tls.client_cert.as_bytes(), tls.client_key.as_bytes());
    let limiter = Limiter::builder().redis(trusted).build();
    let known = gate(&limiter, "tls", "2 per 1h", Fallback::Deny);
    let driver = Driver::start(&known, &["first"], 1);
    wait_until("it is let in", RECOVERY, || driver.exact_us() > 0);
    late(&driver.stop(), DEADLINE).unwrap();
    assert_eq!([(); 3].map(|()| known.check("all").is_allowed()), [true, true, false]);
    // Without a certificate nobody is let in.
    let limiter = Limiter::builder().redis(redis()).build();
    let stranger = gate(&limiter, "tls", "2 per 1h", Fallback::Deny);
    let driver = Driver::start(&stranger, &["all"], 1);
    wait_until("it is refused", RECOVERY, || !limiter.redis_stats().unwrap().shards[0].is_up);
    let records = driver.stop();
    assert!(records.iter().all(|record| record.is_degraded && !record.is_allowed));
    late(&records, DEADLINE).unwrap();
    assert_eq!(limiter.redis_stats().unwrap().connects, 0);
}

/// The rights that docs/redis.md names: to run the script, what the script runs, and
/// nothing else. Asking for the eviction policy is refused, which costs the warning only.
pub(super) const RIGHTS: &str = "~tg:* -@all +evalsha +script|load +role +time \
    +get +mget +set +setrange +del +pexpire \
    +lrange +llen +lset +ltrim +lpush +rpush +rpop \
    +zadd +zcard +zrange +zrangebyscore +zrem +zremrangebyscore +zscore";

/// What a Cluster needs besides.
pub(super) const CLUSTER_RIGHTS: &str = "+cluster|slots +asking +eval";

/// One of each algorithm.
const EVERY: [&str; 8] = [
    "100/s burst 20 wait 1s",
    "leaky 100/s queue 10",
    "20 every 100ms cap 40",
    "50 per 1s fixed-window",
    "50 per 20ms sliding-window slices 5",
    "50 per 20ms sliding-log",
    "100/s warmup 1s wait 1s",
    "3 concurrent queue 3 wait 100ms",
];

/// Does everything that can be done to a gate.
fn use_every_part(limiter: &Limiter) {
    for (nth, text) in EVERY.iter().enumerate() {
        let options = GateOptions::new().fallback(Fallback::Deny).hold_for(Duration::from_millis(150));
        let gate = limiter.gate_with(&format!("gate{nth}"), *text, options).unwrap();
        for _ in 0..3 {
            assert!(!gate.check("all").is_degraded(), "{text}");
            assert!(!gate.peek("all").is_degraded(), "{text}");
            if let Ok(last) = gate.reserve("all").into_permit() {
                last.refund();
            }
            let one = gate.reserve("all").into_permit();
            let two = gate.reserve_cost("all", 2).into_permit();
            if let Ok(permit) = one {
                permit.refund();
            }
            if let Ok(permit) = two {
                permit.settle(3);
            }
            pause(Duration::from_millis(8));
        }
        let held: Vec<_> = (0..4).map(|_| gate.reserve("all").into_permit()).collect();
        let queued: Vec<_> = (0..2)
            .map(|_| {
                thread::spawn({
                    let gate = gate.clone();
                    move || gate.acquire("all").blocking().is_degraded()
                })
            })
            .collect();
        pause(Duration::from_millis(20));
        drop(held);
        for one in queued {
            assert!(!one.join().unwrap(), "{text}");
        }
        assert!(gate.reset_async("all").blocking(), "{text}");
    }
    let gates: Vec<_> = limiter.gates();
    let checks: Vec<Check<'_>> = gates.iter().map(|gate| Check::new(gate, "all")).collect();
    assert!(!limiter.reserve(&checks).is_degraded());
}

#[test]
fn an_acl_user_with_the_documented_rights_can_do_everything() {
    let server = RedisServer::with_acl("limits", "secret", RIGHTS);
    let url = server.url_as("limits", "secret");
    let redis = Redis::at(&url).unwrap().deadline(Duration::from_secs(2));
    let limiter = Limiter::builder().redis(redis).build();
    wait_until("it is let in", RECOVERY, || limiter.redis_stats().unwrap().nodes == Some(1));
    use_every_part(&limiter);
    let stats = limiter.redis_stats().unwrap();
    odd(&stats).unwrap();
    assert_eq!(stats.degraded, 0, "{stats:?}");
    let unused: Vec<&str> =
        RIGHTS.split('+').skip(1).map(str::trim).filter(|right| server.calls(right) == 0).collect();
    assert!(unused.is_empty(), "rights that are not needed: {unused:?}");
    // Nothing was refused but the question for the policy, not even in the background.
    let refused = server.cmd(&["ACL", "LOG"]).accepted();
    for entry in refused.items() {
        let shown = format!("{entry:?}");
        let object = entry.items()[7].text();
        assert!(object.starts_with("config") || object.starts_with("client"), "{object}: {shown}");
    }
}

#[test]
fn a_user_without_rights_is_told_so() {
    for rights in [
        "~tg:* -@all +role +script|load",
        "~tg:* -@all +evalsha +script|load",
        "~tg:* -@all +evalsha +script|load +role +time +get",
        "~other:* +@all",
    ] {
        let server = RedisServer::with_acl("limits", "secret", rights);
        let said = Said::listen();
        let url = server.url_as("limits", "secret");
        let limiter = Limiter::builder().redis(Redis::at(&url).unwrap()).build();
        let gate = gate(&limiter, "denied", LIMIT, Fallback::Deny);
        let driver = Driver::start(&gate, &["all"], 2);
        wait_until("it is told which rights are missing", RECOVERY, || {
            said.about(&server.addr()).contains("see docs/redis.md for")
        });
        let began_us = now_us();
        wait_until("a second has passed", RECOVERY, || now_us() > began_us + 1_000_000);
        let records = driver.stop();
        assert!(records.iter().all(|record| record.is_degraded && !record.is_allowed), "{rights}");
        late(&records, DEADLINE).unwrap();
        // Tried again with pauses, not as fast as callers ask.
        let stats = limiter.redis_stats().unwrap();
        assert!(stats.connects <= 15, "{rights}: {stats:?}");
        odd(&stats).unwrap();
    }
}

/// What the library says about its servers, for all tests of this process.
pub(super) struct Said(&'static Mutex<String>);

impl Said {
    pub(super) fn listen() -> Self {
        static LINES: LazyLock<Mutex<String>> = LazyLock::new(|| {
            tracing::subscriber::set_global_default(Listener).expect("nobody else listens");
            Mutex::default()
        });
        Self(&LINES)
    }

    /// The lines in which this server is named.
    pub(super) fn about(&self, address: &str) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let named = lines.lines().filter(|line| line.contains(address));
        named.fold(String::new(), |all, line| all + line + "\n")
    }
}

struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("tidegate")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let said = Said::listen();
        let mut lines = said.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_str(&line.0.replace('\n', " "));
        lines.push('\n');
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}
